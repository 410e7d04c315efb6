use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Happened {
    ReadStart(Option<u64>),
    Landed(Version),
    GivenUp(Version),
    Acknowledged(Version),
    Read { began: Nanos, seen: ReadResult },
}

/// The naive twin: for each read it compares every candidate with every acknowledged write,
/// straight from the list of events.
struct Naive<'a>(&'a [(Nanos, Happened)]);

impl Naive<'_> {
    fn writes(&self) -> Vec<(Nanos, Option<u64>)> {
        let begun = |(at, h): &(Nanos, Happened)| match h {
            Happened::ReadStart(bytes) => Some((*at, *bytes)),
            _ => None,
        };
        self.0.iter().filter_map(begun).collect()
    }

    fn landings(&self, version: Version) -> Vec<usize> {
        let landed = self.0.iter().filter(|(_, h)| matches!(h, Happened::Landed(_)));
        let mine = landed
            .enumerate()
            .filter(|(_, (_, h))| matches!(h, Happened::Landed(landed) if *landed == version));
        mine.map(|(place, _)| place).collect()
    }

    fn ended(&self, version: Version) -> Option<Nanos> {
        let mut ends = self.0.iter().filter(
            |(_, h)| matches!(h, Happened::GivenUp(v) | Happened::Acknowledged(v) if *v == version),
        );
        ends.next().map(|(at, _)| *at)
    }

    fn is_allowed(&self, version: Version, began: Nanos) -> bool {
        let Some(last) = self.landings(version).last().copied() else { return false };
        self.0.iter().all(|(at, h)| {
            let Happened::Acknowledged(newer) = h else { return true };
            let newer_began = self.writes()[*newer as usize - 1].0;
            *at >= began
                || (self.landings(*newer)[0] <= last
                    && self.ended(version).is_none_or(|ended| ended >= newer_began))
        })
    }

    fn may_show(&self, began: Nanos, seen: ReadResult) -> bool {
        let writes = self.writes();
        match seen {
            ReadResult::Version { key: 0, version, bytes } => {
                let write = (version as usize).checked_sub(1).and_then(|i| writes.get(i));
                write.is_some_and(|(_, written)| *written == Some(bytes))
                    && self.is_allowed(version, began)
            }
            ReadResult::Version { .. } => false,
            ReadResult::Nothing => {
                let landed = self.0.iter().any(|(_, h)| matches!(h, Happened::Landed(_)));
                let deletes = |i: usize| writes[i].1.is_none();
                let mut deletions = (0..writes.len()).filter(|&i| deletes(i));
                !landed || deletions.any(|i| self.is_allowed(i as Version + 1, began))
            }
        }
    }
}

fn happened() -> impl Strategy<Value = Happened> {
    let version = |(key, version, bytes)| ReadResult::Version { key, version, bytes };
    let seen = prop_oneof![
        4 => (Just(0u32), 0u32..8, Just(1u64)).prop_map(version),
        1 => (0u32..2, 0u32..8, 1u64..3).prop_map(version),
        1 => Just(ReadResult::Nothing),
    ];
    prop_oneof![
        2 => Just(Happened::ReadStart(Some(1))),
        1 => Just(Happened::ReadStart(None)),
        3 => (1u32..8).prop_map(Happened::Landed),
        1 => (1u32..8).prop_map(Happened::GivenUp),
        2 => (1u32..8).prop_map(Happened::Acknowledged),
        4 => (0u64..40, seen).prop_map(|(began, seen)| Happened::Read { began, seen }),
    ]
}

proptest! {
    #[test]
    fn agrees_with_looking_at_the_whole_history(
        events in prop::collection::vec(happened(), 0..40),
    ) {
        let mut checker = Checker::default();
        let mut history: Vec<(Nanos, Happened)> = Vec::new();
        for (at, event) in events.into_iter().enumerate() {
            let at = at as Nanos;
            let naive = Naive(&history);
            match event {
                Happened::ReadStart(bytes) => {
                    checker.begin(0, bytes, at);
                }
                Happened::Landed(version) => {
                    // Only a write that began can land.
                    if version as usize > naive.writes().len() {
                        continue;
                    }
                    checker.landed(0, version);
                }
                Happened::GivenUp(version) => {
                    if version as usize > naive.writes().len() {
                        continue;
                    }
                    checker.given_up(0, version, at);
                }
                Happened::Acknowledged(version) => {
                    let landed = !naive.landings(version).is_empty();
                    prop_assert_eq!(checker.acknowledged(0, version, at).is_ok(), landed);
                    if !landed {
                        continue;
                    }
                }
                Happened::Read { began, seen } => {
                    let began = began.min(at);
                    let judged = checker.read(0, began, at, seen);
                    prop_assert_eq!(judged.is_ok(), naive.may_show(began, seen), "{:?}", judged);
                }
            }
            history.push((at, event));
        }
    }
}

/// A key whose first version, of 10 bytes, is in the origin and acknowledged.
fn checker_of_one_object() -> Checker {
    let mut checker = Checker::default();
    assert_eq!(checker.begin(7, Some(10), 0), 1);
    checker.landed(7, 1);
    checker.acknowledged(7, 1, 0).unwrap();
    checker
}

fn version(version: Version, bytes: u64) -> ReadResult {
    ReadResult::Version { key: 7, version, bytes }
}

#[test]
fn an_older_version_after_an_acknowledgement_is_stale() {
    let mut checker = checker_of_one_object();
    checker.begin(7, Some(20), 50);
    checker.landed(7, 2);
    checker.acknowledged(7, 2, 100).unwrap();
    assert!(checker.read(7, 90, 120, version(1, 10)).is_ok(), "the read began before");
    let stale = checker.read(7, 101, 120, version(1, 10)).unwrap_err();
    assert_eq!(stale.kind, Kind::Stale);
    assert!(stale.to_string().contains("2 was acknowledged before"), "{stale}");
    let kind = |seen| begun_kind(&mut checker, seen);
    assert_eq!(
        [ReadResult::Nothing, version(2, 21), version(3, 20)].map(kind),
        [Kind::NeverWritten, Kind::WrongBytes, Kind::NeverWritten]
    );
    assert_eq!(checker.acknowledged(7, 3, 130).unwrap_err().kind, Kind::Lost);
}

fn begun_kind(checker: &mut Checker, seen: ReadResult) -> Kind {
    checker.read(7, 101, 120, seen).unwrap_err().kind
}

/// Regression: the first checker numbered versions in the order in which they landed in the origin.
/// So the write that landed late counted as the newest, and the loss of the acknowledged write was
/// not found.
#[test]
fn a_write_given_up_that_lands_late_is_not_the_newest() {
    let mut checker = checker_of_one_object();
    checker.begin(7, Some(20), 10);
    checker.given_up(7, 2, 50);
    checker.begin(7, Some(30), 60);
    checker.landed(7, 3);
    checker.acknowledged(7, 3, 100).unwrap();
    checker.landed(7, 2);
    let resurfaced = checker.read(7, 101, 120, version(2, 20)).unwrap_err();
    assert_eq!(resurfaced.kind, Kind::Resurfaced, "{resurfaced}");
    assert_eq!(checker.at_the_end(7, 130, version(2, 20)).unwrap_err().kind, Kind::Lost);
    assert!(checker.at_the_end(7, 130, version(3, 30)).is_ok());
}

/// Regression: the checker took the absence for the last deletion of all, which had been acknowledged
/// and replaced, and so reported a stale read.
#[test]
fn a_deletion_given_up_that_lands_late_resurfaces() {
    let mut checker = checker_of_one_object();
    checker.begin(7, None, 10);
    checker.given_up(7, 2, 20);
    checker.begin(7, None, 30);
    checker.landed(7, 3);
    checker.acknowledged(7, 3, 40).unwrap();
    checker.begin(7, Some(20), 50);
    checker.landed(7, 4);
    checker.acknowledged(7, 4, 60).unwrap();
    assert_eq!(checker.read(7, 70, 80, ReadResult::Nothing).unwrap_err().kind, Kind::Stale);
    checker.landed(7, 2);
    assert_eq!(checker.read(7, 90, 100, ReadResult::Nothing).unwrap_err().kind, Kind::Resurfaced);
}

/// Two clients write at the same time: either order is allowed, but later reads must follow the
/// origin's.
#[test]
fn writes_that_overlap_are_ordered_by_the_origin() {
    let mut checker = checker_of_one_object();
    checker.begin(7, Some(20), 10);
    checker.begin(7, Some(30), 20);
    checker.landed(7, 3);
    checker.acknowledged(7, 3, 40).unwrap();
    checker.landed(7, 2);
    assert!(checker.read(7, 50, 60, version(2, 20)).is_ok(), "it may have happened");
    assert!(checker.read(7, 50, 60, version(3, 30)).is_ok(), "its write is not acknowledged");
    checker.acknowledged(7, 2, 70).unwrap();
    assert_eq!(checker.read(7, 80, 90, version(3, 30)).unwrap_err().kind, Kind::Stale);
    assert!(checker.at_the_end(7, 90, version(2, 20)).is_ok());
}
