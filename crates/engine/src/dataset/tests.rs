mod world;

use ground::Etag;

use super::*;
use crate::mutant::{self, Mutant};
use world::{Counts, Plan, World};

const SETTINGS: Settings = Settings {
    tries: 2,
    pause: 10,
    chunk_bytes_max: 100,
    seal_bytes: 1000,
    seal_chunks: 1000,
    shard_tries: 2,
    removed_at_once: 2,
};

/// A dataset and what its store has.
struct Desk {
    dataset: Dataset<&'static str>,
    manifest: Manifest,
}

impl Desk {
    /// A dataset with one sealed chunk, and a view.
    fn new() -> Desk {
        let manifest = Manifest {
            id: "a".into(),
            etag: "1".into(),
            sealed_chunks: 1,
            next_shard: 2,
            shards: Arc::from([1]),
        };
        let mut told = Desk { dataset: Dataset::new(SETTINGS), manifest };
        assert_eq!(told.tell(Event::First { token: 0 }), [Action::Head]);
        told.refresh(1, 10, 0);
        assert!(told.dataset.is_idle());
        told
    }

    fn tell(&mut self, event: Event<&'static str>) -> Vec<Action<&'static str>> {
        self.tell_at(0, event)
    }

    fn tell_at(&mut self, now: Nanos, event: Event<&'static str>) -> Vec<Action<&'static str>> {
        let mut actions = Vec::new();
        self.dataset.handle(now, event, &mut actions);
        actions
    }

    fn head(&mut self) -> Vec<Action<&'static str>> {
        self.tell(Event::Head(Ok(Some(self.manifest.etag.clone()))))
    }

    /// Ends a refresh that has begun, with another manifest than the view's.
    fn refresh(
        &mut self,
        last_chunk: u64,
        end_id: u64,
        log_bytes: u64,
    ) -> Vec<Action<&'static str>> {
        assert_eq!(self.head(), [Action::ReadManifest]);
        let manifest = self.manifest.clone();
        assert_eq!(self.tell(Event::Manifest(Ok(Some(manifest)))), [Action::Fetch]);
        assert_eq!(self.tell(Event::Fetched(Ok(()))), [Action::Open]);
        let tail = Tail { last_chunk, end_id, log_bytes };
        let number = last_chunk + 1;
        assert_eq!(self.tell(Event::Opened(Ok(tail))), [Action::ReadChunk { number }]);
        assert_eq!(self.tell(Event::Chunk(Ok(None))), [Action::Head]);
        self.head()
    }

    fn change(&mut self, token: Token, bytes: usize) -> Vec<Action<&'static str>> {
        self.tell(Event::Change { token, id: "a".into(), bytes, records: 2, appended: 2 })
    }
}

fn put(number: u64, first_id: u64, changes: &[Token]) -> Action<&'static str> {
    Action::PutChunk { number, first_id, changes: changes.to_vec() }
}

fn changed(token: Token, result: Result<(u64, u64), Why<&'static str>>) -> Action<&'static str> {
    let result = result.map(|(first_id, chunk)| Changed { first_id, records: 2, chunk });
    Action::Changed { token, result }
}

#[test]
fn a_process_that_holds_other_shards_opens_the_same_manifest_again() {
    let mut told = Desk::new();
    assert_eq!(told.tell(Event::Refresh { token: 1 }), [Action::Head]);
    assert_eq!(told.head(), [Action::FromView, Action::ReadChunk { number: 2 }]);
    told.tell(Event::Chunk(Ok(None)));
    let refreshed = |token, result| Action::Refreshed { token, result };
    assert_eq!(told.head(), [refreshed(1, Ok(()))], "nothing changed");
    assert_eq!(told.tell(Event::Moved { token: 2 }), [Action::Head]);
    assert_eq!(told.refresh(1, 10, 0), [Action::Show, refreshed(2, Ok(()))]);
    // What fails is done at the next refresh.
    told.tell(Event::Moved { token: 3 });
    for now in [0, 20] {
        told.tell_at(now, Event::Tick);
        told.head();
        let actions = told.tell_at(now, Event::Manifest(Err("down")));
        assert!(now == 0 || actions == [refreshed(3, Err(Why::Store("down")))], "{actions:?}");
    }
    assert_eq!(told.tell(Event::Refresh { token: 4 }), [Action::Head]);
    assert_eq!(told.refresh(1, 10, 0), [Action::Show, refreshed(4, Ok(()))]);
}

#[test]
fn changes_that_wait_become_one_chunk() {
    let mut told = Desk::new();
    assert_eq!(told.change(1, 60), [put(2, 10, &[1])]);
    for (token, bytes) in [(2, 60), (3, 40), (4, 1)] {
        assert!(told.change(token, bytes).is_empty());
    }
    let tail = Tail { last_chunk: 2, end_id: 12, log_bytes: 60 };
    assert_eq!(told.tell(Event::Put(Put::Stored(tail))), [Action::Head], "not acknowledged yet");
    assert_eq!(told.head(), [Action::Show, changed(1, Ok((10, 2))), put(3, 12, &[2, 3])]);
    let tail = Tail { last_chunk: 3, end_id: 16, log_bytes: 160 };
    told.tell(Event::Put(Put::Stored(tail)));
    let both = [changed(2, Ok((12, 3))), changed(3, Ok((14, 3)))];
    let actions = told.head();
    assert_eq!(actions[1..3], both);
    assert_eq!(actions[3], put(4, 16, &[4]));
}

#[test]
fn a_number_that_another_process_has_is_passed() {
    let mut told = Desk::new();
    told.change(1, 60);
    for (chunk, end_id) in [(2, 15), (3, 20)] {
        assert_eq!(told.tell(Event::Put(Put::Taken)), [Action::Head]);
        assert_eq!(told.head(), [Action::FromView, Action::ReadChunk { number: chunk }]);
        let tail = Tail { last_chunk: chunk, end_id, log_bytes: 50 };
        told.tell(Event::Chunk(Ok(Some(tail))));
        assert_eq!(told.tell(Event::Chunk(Ok(None))), [Action::Head]);
        let last = match chunk {
            2 => put(3, 15, &[1]),
            _ => changed(1, Err(Why::Contended)),
        };
        assert_eq!(told.head(), [Action::Show, last]);
    }
}

#[test]
fn a_chunk_that_was_put_too_late_does_not_count() {
    for may_hold in [false, true] {
        let mut told = Desk::new();
        told.change(1, 60);
        let tail = Tail { last_chunk: 2, end_id: 12, log_bytes: 60 };
        told.tell(Event::Put(Put::Stored(tail)));
        let etag = Etag::from("2");
        told.manifest = Manifest { etag, sealed_chunks: 2, ..told.manifest };
        assert_eq!(told.head(), [Action::ReadManifest]);
        let manifest = told.manifest.clone();
        let actions = told.tell(Event::Manifest(Ok(Some(manifest))));
        assert_eq!(actions, [Action::RemoveChunk { number: 2 }]);
        assert_eq!(told.tell(Event::ChunkRemoved(Ok(()))), [Action::Head]);
        let compare = Action::Compare { first_id: 10, changes: vec![1] };
        assert_eq!(told.refresh(2, 13, 0), [Action::Show, compare]);
        let last = match may_hold {
            true => changed(1, Err(Why::Unknown(None))),
            false => put(3, 13, &[1]),
        };
        assert_eq!(told.tell(Event::Compared { may_hold }), [last]);
    }
}

#[test]
fn a_change_whose_put_failed_is_unknown_and_one_of_another_dataset_is_refused() {
    let mut told = Desk::new();
    told.change(1, 60);
    assert_eq!(told.tell(Event::Put(Put::Failed("lost"))), [Action::Head]);
    told.head();
    told.tell(Event::Chunk(Ok(None)));
    assert_eq!(told.head(), [changed(1, Err(Why::Unknown(Some("lost"))))]);
    let id = "b".into();
    let other = told.tell(Event::Change { token: 2, id, bytes: 1, records: 2, appended: 2 });
    assert_eq!(other, [changed(2, Err(Why::Replaced))]);
}

#[test]
fn requests_for_a_view_share_the_next_read_and_first_ones_the_present() {
    let mut told = Desk::new();
    assert_eq!(told.tell(Event::Refresh { token: 1 }), [Action::Head]);
    for token in [2, 3] {
        assert!(told.tell(Event::Refresh { token }).is_empty(), "it is not older than its call");
    }
    let ended = |token| Action::Refreshed { token, result: Ok(()) };
    assert_eq!(told.tell(Event::First { token: 4 }), [ended(4)], "it has a view");
    told.head();
    told.tell(Event::Chunk(Ok(None)));
    assert_eq!(told.head(), [ended(1), Action::Head]);
    told.head();
    told.tell(Event::Chunk(Ok(None)));
    assert_eq!(told.head(), [ended(2), ended(3)]);
    let mut new: Dataset<&str> = Dataset::new(SETTINGS);
    let mut actions = Vec::new();
    for token in [1, 2] {
        new.handle(0, Event::First { token }, &mut actions);
    }
    new.handle(0, Event::Head(Ok(None)), &mut actions);
    assert_eq!(actions, [Action::Head, Action::Hide, ended(1), ended(2)]);
}

#[test]
fn a_view_that_changes_while_it_is_read_is_read_again_and_not_for_ever() {
    let mut told = Desk::new();
    told.tell(Event::Refresh { token: 1 });
    told.head();
    told.tell(Event::Chunk(Ok(None)));
    let other = Event::Head(Ok(Some("2".into())));
    assert_eq!(told.tell_at(5, other.clone()), [Action::Wake { at: 15 }]);
    assert_eq!(told.tell_at(14, Event::Tick), [Action::Wake { at: 15 }]);
    assert_eq!(told.tell_at(15, Event::Tick), [Action::Head]);
    told.head();
    told.tell(Event::Chunk(Ok(None)));
    let result = Err(Why::Changing);
    assert_eq!(told.tell_at(20, other), [Action::Refreshed { token: 1, result }]);
}

#[test]
fn damaged_copies_are_removed_but_not_those_in_use() {
    let mut told = Desk::new();
    told.manifest = Manifest { etag: "2".into(), shards: Arc::from([1, 2]), ..told.manifest };
    told.tell(Event::Refresh { token: 1 });
    told.head();
    let manifest = told.manifest.clone();
    told.tell(Event::Manifest(Ok(Some(manifest))));
    told.tell(Event::Fetched(Ok(())));
    let discard = Action::Discard { keep: Arc::from([1]) };
    assert_eq!(told.tell(Event::Opened(Err("damaged"))), [discard, Action::Wake { at: 10 }]);
}

/// Has a dataset seal a chunk of one record up to the replacement of its manifest.
fn sealing(told: &mut Desk) {
    told.change(1, 60);
    told.tell(Event::Put(Put::Stored(Tail { last_chunk: 4, end_id: 12, log_bytes: 60 })));
    told.head();
    assert_eq!(told.tell(Event::Seal { token: 9 }), [Action::Head]);
    told.head();
    told.tell(Event::Chunk(Ok(None)));
    assert_eq!(told.head(), [Action::Build]);
    assert_eq!(told.tell(Event::Built(Ok(true))), [Action::PutShard { number: 2 }]);
    assert_eq!(told.tell(Event::ShardPut(Ok(false))), [Action::PutShard { number: 3 }]);
    let replace = Action::Replace { over: "1".into(), shard: Some(3) };
    assert_eq!(told.tell(Event::ShardPut(Ok(true))), [replace]);
}

#[test]
fn a_seal_removes_the_chunks_after_its_manifest_is_current() {
    let mut told = Desk::new();
    sealing(&mut told);
    told.manifest =
        Manifest { etag: "2".into(), sealed_chunks: 4, shards: Arc::from([1, 3]), ..told.manifest };
    let keep = Action::Keep { number: 3 };
    assert_eq!(told.tell(Event::Replaced(Ok(true))), [keep, Action::Head]);
    let remove = |from, to| Action::RemoveChunks { from, to };
    let look = Action::LookForChunks { from: 1, to: 1 };
    assert_eq!(
        told.refresh(4, 12, 0),
        [Action::Show, look],
        "an earlier removal may have left some"
    );
    assert_eq!(told.tell(Event::Looked { found: true }), [remove(1, 2)]);
    assert_eq!(told.tell(Event::ChunksRemoved(Ok(()))), [remove(3, 4)]);
    assert_eq!(told.change(2, 5), [put(5, 12, &[2])], "the log is free meanwhile");
    let sealed = Action::Sealed { tokens: vec![9], result: Ok(true) };
    assert_eq!(told.tell(Event::ChunksRemoved(Ok(()))), [sealed]);
}

#[test]
fn a_seal_that_came_second_removes_its_shard_unless_only_the_reply_was_lost() {
    for lost in [false, true] {
        let mut told = Desk::new();
        sealing(&mut told);
        let shards = if lost { Arc::from([1, 3, 7]) } else { Arc::from([1, 2]) };
        let etag = "5".into();
        told.manifest = Manifest { etag, sealed_chunks: 4, shards, ..told.manifest };
        assert_eq!(told.tell(Event::Replaced(Ok(false))), [Action::Head]);
        let actions = told.refresh(4, 12, 0);
        if lost {
            assert_eq!(actions, [Action::Show, Action::Keep { number: 3 }, Action::Head]);
            continue;
        }
        assert_eq!(actions, [Action::Show, Action::RemoveShard { number: 3 }]);
        let sealed = Action::Sealed { tokens: vec![9], result: Err(Why::Lost) };
        assert_eq!(told.tell(Event::ShardRemoved(Ok(()))), [sealed]);
    }
}

#[test]
fn a_large_log_is_sealed_once() {
    let mut told = Desk::new();
    told.change(1, 60);
    told.tell(Event::Put(Put::Stored(Tail { last_chunk: 2, end_id: 12, log_bytes: 1001 })));
    assert_eq!(told.head().last(), Some(&Action::Large));
    assert_eq!(told.tell(Event::SealLarge), [Action::Head]);
    assert!(told.tell(Event::SealLarge).is_empty());
    told.head();
    told.tell(Event::Chunk(Ok(None)));
    assert_eq!(told.head(), [Action::Build]);
}

#[test]
fn memory_versions_and_names_are_limited() {
    let version = |etag, last_chunk| DatasetVersion { etag, last_chunk };
    let mut room = Room::new(100);
    assert!(room.take(60) && !room.take(41) && room.take(40));
    room.give_back(60);
    assert!(room.take(60));
    assert_eq!(serves(version("1", 5), version("1", 5)), Serves::Now);
    assert_eq!(serves(version("1", 6), version("1", 5)), Serves::AsOf);
    assert_eq!(serves(version("1", 4), version("1", 5)), Serves::Not);
    assert_eq!(serves(version("2", 5), version("1", 5)), Serves::Not);
    let mut lookups = Lookups::new(10, 2);
    assert_eq!(lookups.may(0, "a"), Lookup::Yes);
    lookups.failed(0, "a", None);
    lookups.failed(5, "b", Some("lost".into()));
    lookups.failed(5, "c", None);
    assert_eq!(lookups.may(9, "a"), Lookup::No);
    assert_eq!(lookups.may(9, "b"), Lookup::Failed("lost".into()));
    assert_eq!(lookups.may(9, "c"), Lookup::No, "the table is full");
    assert_eq!(lookups.may(10, "c"), Lookup::Yes);
}

const SEEDS: u64 = 300;

#[test]
fn seeds_find_no_violation_and_reach_what_is_rare() {
    let mut sum = Counts::default();
    for seed in 0..SEEDS {
        let counts = World::new(Plan::from_seed(seed)).run();
        let mut counts = counts.unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        for (sum, count) in sum.all().into_iter().zip(counts.all()) {
            *sum += *count;
        }
    }
    println!("{sum:?}");
    assert!(sum.all().iter().all(|count| **count > 5), "{sum:?}");
}

/// A checker that finds nothing is evidence only if it finds what is wrong.
#[test]
fn every_mutant_is_found() {
    for mutant in [
        Mutant::DatasetAckBeforeStored,
        Mutant::DatasetPublishesOver,
        Mutant::DatasetRemovesUnsealed,
        Mutant::DatasetRemovesListed,
        Mutant::DatasetDiscardsUsed,
        Mutant::DatasetLateChunkCounts,
        Mutant::DatasetSealedNotCompared,
        Mutant::DatasetViewNotCompared,
        Mutant::DatasetTakenTrusted,
        Mutant::DatasetLeavesChunks,
    ] {
        let found = (0..SEEDS).find_map(|seed| {
            let run = || World::new(Plan::from_seed(seed)).run();
            mutant::with(Some(mutant), run).err().map(|why| (seed, why))
        });
        let (seed, why) = found.unwrap_or_else(|| panic!("{mutant:?} is not found"));
        println!("{mutant:?}: seed {seed}: {why}");
    }
}
