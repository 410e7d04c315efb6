//! The hot class of a node, with a driver whose devices serve one read at a time in virtual time.

use std::collections::{BTreeMap, HashMap};

use ground::window::{self, Nanos, Outcome, SECOND};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::Size;
use crate::act::copies::{Copies, ReadCounts};
use crate::act::{self, Governor, Mode, Modes, Status};

const MS: Nanos = SECOND / 1000;
const BYTES: u64 = 10_000;

pub(super) fn device(name: &str, outcome: Outcome, bytes_max: u64) -> DeviceSettings {
    DeviceSettings {
        name: name.to_owned(),
        outcome,
        servers: 1,
        queue_length_max: 1000,
        bytes_max,
        segment_bytes: bytes_max / 16,
        segments_max: 0,
        piece_bytes: 0,
        servers_max: 0,
    }
}

pub(super) fn settings(hot_bytes: u64, tiers: TierSettings) -> Settings {
    Settings {
        memory_bytes_max: 0,
        eviction: crate::tier::Eviction::default(),
        object_bytes_max: 1 << 20,
        revalidate: None,
        stale_if_error: 0,
        devices: vec![
            device("device/0", Outcome::BulkDevice, 1 << 30),
            device("device/1", Outcome::HotDevice, hot_bytes),
        ],
        tiers,
        origin: OriginSettings { servers: 4, queue_length_max: 100 },
        appends_bytes_max: 1 << 30,
        writes_waiting_max: 10,
        cluster: None,
        windows: window::Settings::default(),
    }
}

/// A node, its devices, and an origin that holds every key.
pub(super) struct Driven {
    pub node: Node<Size>,
    pub now: Nanos,
    /// What ends at a time.
    ends: BTreeMap<(Nanos, JobId), Event<Size>>,
    /// Service time of a read of each device.
    service: Vec<Nanos>,
    broken: Vec<bool>,
    /// The version of each key that is not 0.
    versions: HashMap<Key, u64>,
    request: RequestId,
    outcomes: HashMap<RequestId, Outcome>,
    on_disk: HashMap<(DeviceId, u64, u64), Size>,
    keys: HashMap<(DeviceId, u64), Vec<Key>>,
    /// What it does beside.
    pub others: Vec<Action<Size>>,
}

impl Driven {
    pub fn new(settings: Settings) -> Driven {
        let devices = settings.devices.len();
        Driven {
            node: Node::new(settings, 0),
            now: 0,
            ends: BTreeMap::new(),
            service: vec![10 * MS, MS],
            broken: vec![false; devices],
            versions: HashMap::new(),
            request: 0,
            outcomes: HashMap::new(),
            on_disk: HashMap::new(),
            keys: HashMap::new(),
            others: Vec::new(),
        }
    }

    fn payload(&self, key: &Key) -> Size {
        let version = self.versions.get(key).copied().unwrap_or(0);
        let etag = format!("{}-{version}", String::from_utf8_lossy(key)).into();
        Size { bytes: BYTES, stored_bytes: BYTES, etag }
    }

    pub fn handle(&mut self, event: Event<Size>) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut actions = Vec::new();
            self.node.handle(self.now, event, &mut actions);
            for action in actions {
                match action {
                    Action::Reply { request, reply, .. } => {
                        let Reply::Found { payload, outcome, .. } = reply else {
                            panic!("{reply:?}");
                        };
                        assert_eq!(payload.bytes, BYTES);
                        self.outcomes.insert(request, outcome);
                    }
                    Action::Read { device, location, job, start, .. } => {
                        let place = (device, location.segment(), location.offset());
                        let there = self.on_disk.get(&place).filter(|_| !self.broken[device]);
                        let failure = || match self.broken[device] {
                            true => Unread::Failed(Failure::unavailable("broken")),
                            false => Unread::Gone,
                        };
                        let result = there.cloned().ok_or_else(failure);
                        let end = start + self.service[device];
                        self.ends.insert((end, job), Event::Read { job, result, left: 0 });
                    }
                    Action::Append { device, location, key, payload, job } => {
                        let written = !self.broken[device];
                        let place = (device, location.segment(), location.offset());
                        self.on_disk.insert(place, payload);
                        self.keys.entry((device, location.segment())).or_default().push(key);
                        events.push(Event::Appended { job, written, full: false });
                    }
                    Action::DropSegment { device, segment } => {
                        self.on_disk.retain(|at, _| (at.0, at.1) != (device, segment));
                    }
                    Action::List { device, segment } => {
                        let keys = self.keys.get(&(device, segment)).cloned().unwrap_or_default();
                        events.push(Event::Listed { device, segment, keys });
                    }
                    Action::Check { key, job } => {
                        let result = Checked::Version(self.payload(&key).etag);
                        events.push(Event::Checked { job, result });
                    }
                    Action::Fetch { key, job } => {
                        let result = Fetched::Found(self.payload(&key));
                        events.push(Event::Fetched { job, result });
                    }
                    other => self.others.push(other),
                }
            }
        }
    }

    pub fn run_to(&mut self, now: Nanos) {
        while let Some(entry) = self.ends.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), event) = entry.remove_entry();
            self.now = self.now.max(at);
            self.handle(event);
        }
        self.now = now;
    }

    /// Asks for a key; the answer comes with time.
    fn ask(&mut self, key: &str) -> RequestId {
        self.request += 1;
        let (request, asker) = (self.request, Asker::Client { avoid: None });
        self.handle(Event::Get {
            request,
            key: name(key),
            asker,
            deadline: None,
            take: Take::Whole,
        });
        request
    }

    /// Reads a key, and waits for the answer.
    pub fn get(&mut self, key: &str) -> Outcome {
        let request = self.ask(key);
        while !self.outcomes.contains_key(&request) {
            let next = self.ends.first_key_value().expect("an answer").0.0;
            self.run_to(next);
        }
        self.outcomes[&request]
    }

    fn reads(&mut self, key: &str, times: u32) {
        (0..times).for_each(|_| assert_ne!(self.get(key), Outcome::Error));
    }

    fn put(&mut self, key: &str) {
        self.request += 1;
        let (request, name) = (self.request, name(key));
        self.handle(Event::WriteBegin { request, key: name.clone(), epoch: None });
        *self.versions.entry(name.clone()).or_default() += 1;
        let payload = Some(self.payload(&name));
        self.handle(Event::WriteEnd { request, key: name, payload });
    }

    fn hot_places(&self, key: &str) -> (bool, bool) {
        let on = self.node.index.get(&name(key));
        (on.is_some_and(|on| on.main().is_some()), on.is_some_and(|on| on.hot().is_some()))
    }
}

fn name(key: &str) -> Key {
    key.as_bytes().into()
}

fn quick() -> TierSettings {
    TierSettings { memory: 100 * SECOND, ..TierSettings::default() }
}

/// Reads that wait while the segment of their records is dropped say nothing of the device.
#[test]
fn reads_of_what_is_gone_do_not_take_a_device_out() {
    let mut driven = Driven::new(settings(1 << 20, quick()));
    let keys = ["a", "b", "c", "d", "e"];
    assert!(keys.iter().all(|key| driven.get(key) == Outcome::Origin));
    driven.on_disk.clear();
    assert!(keys.iter().all(|key| driven.get(key) == Outcome::Origin));
    assert!(keys.iter().all(|key| driven.get(key) == Outcome::BulkDevice));
}

#[test]
fn what_is_read_again_is_copied_and_then_read_from_the_hot_device() {
    let mut driven = Driven::new(settings(1 << 20, quick()));
    assert_eq!(driven.get("a"), Outcome::Origin);
    assert_eq!(driven.hot_places("a"), (true, false));
    let outcomes: Vec<Outcome> = (0..4).map(|_| driven.get("a")).collect();
    assert_eq!(driven.hot_places("a"), (true, true));
    assert_eq!((outcomes[0], outcomes[3]), (Outcome::BulkDevice, Outcome::HotDevice));
    let tiers = driven.node.tiers(driven.now);
    let hot = tiers.hot.unwrap();
    assert_eq!((hot.moves.promoted, hot.moves.promoted_bytes > BYTES), (1, true));
    assert_eq!(hot.last_minute.promoted, 1);
    assert!(hot.bought.hot_reads > 0 && hot.bought.saved_s > 0.0, "{:?}", hot.bought);
    assert_eq!((hot.hottest[0].key.as_str(), hot.moved[0].what), ("a", MoveKind::Promoted));
    assert_eq!((tiers.devices[1].objects, tiers.devices[1].class), (1, DeviceClass::Hot));
}

#[test]
fn a_write_voids_both_copies_and_the_one_under_way() {
    let mut driven = Driven::new(settings(1 << 20, quick()));
    driven.reads("a", 5);
    assert_eq!(driven.hot_places("a"), (true, true));
    driven.put("a");
    // The new version was written to a bulk device; no copy of the old one is left.
    assert_eq!(driven.hot_places("a"), (true, false));
    driven.handle(Event::Invalidate { key: name("a") });
    assert_eq!(driven.hot_places("a"), (false, false));
}

#[test]
fn the_copy_with_the_shorter_expected_wait_is_read() {
    let mut driven = Driven::new(settings(1 << 20, quick()));
    for key in ["a", "b"] {
        driven.reads(key, 6);
    }
    // 30 reads at once: a hot device of 1 ms and a bulk one of 10 ms share them ten to one.
    let others: Vec<String> = (0..30).map(|i| format!("other {i}")).collect();
    for key in &others {
        driven.reads(key, 6);
    }
    let before = driven.node.tiers(driven.now).hot.unwrap().bought;
    let requests: Vec<RequestId> = others.iter().map(|key| driven.ask(key)).collect();
    driven.run_to(driven.now + 32 * MS);
    assert!(requests.iter().all(|request| driven.outcomes.contains_key(request)));
    let bought = driven.node.tiers(driven.now).hot.unwrap().bought;
    let passed_by = bought.hot_passed_by - before.hot_passed_by;
    assert!((1..=4).contains(&passed_by), "{passed_by}");
    // With nothing queued it is the hot one's turn again.
    assert_eq!(driven.get("a"), Outcome::HotDevice);
}

#[test]
fn pins_are_copied_at_their_first_read_and_stay() {
    let pins = vec![Pin::Prefix(b"logo/".to_vec()), Pin::Key(b"front".to_vec())];
    let mut driven = Driven::new(settings(400_000, TierSettings { pins, ..quick() }));
    for key in ["logo/1", "front", "logo"] {
        assert_eq!(driven.get(key), Outcome::Origin);
    }
    driven.reads("front", 1);
    driven.reads("logo/1", 1);
    assert_eq!(driven.get("logo/1"), Outcome::HotDevice);
    assert_eq!((driven.hot_places("front").1, driven.hot_places("logo").1), (true, false));
    // Popular objects of several times the hot device's bytes come and go.
    for round in 0..20 {
        for object in 0..20 {
            let key = format!("{round} {object}");
            driven.reads(&key, 4);
            driven.run_to(driven.now + SECOND);
        }
    }
    let hot = driven.node.tiers(driven.now).hot.unwrap();
    assert!(hot.moves.demoted > 50, "{:?}", hot.moves);
    assert!(driven.hot_places("front").1 && driven.hot_places("logo/1").1, "{:?}", hot.moves);
}

#[test]
fn a_failing_device_is_taken_out_and_put_back_when_it_works_again() {
    let mut driven = Driven::new(settings(1 << 20, quick()));
    let keys: Vec<String> = (0..20).map(|i| format!("key {i}")).collect();
    for key in &keys {
        driven.reads(key, 5);
    }
    driven.broken[1] = true;
    // Nobody notices: what fails there is read from the bulk device.
    for key in &keys {
        assert_eq!(driven.get(key), Outcome::BulkDevice);
    }
    let state = |driven: &mut Driven| driven.node.tiers(driven.now).devices[1].state;
    assert_eq!(state(&mut driven), DeviceState::Out);
    let (reads, later) = (driven.node.tiers(driven.now).devices[1].queue_length, driven.now);
    assert_eq!(reads, 0);
    driven.broken[1] = false;
    driven.run_to(later + 200 * SECOND);
    for _ in 0..8 {
        keys.iter().for_each(|key| driven.reads(key, 1));
        driven.run_to(driven.now + SECOND);
    }
    assert_eq!(state(&mut driven), DeviceState::In);
    assert_eq!(driven.get(&keys[19]), Outcome::HotDevice);
}

/// A Zipf catalogue on a hot device for a tenth of its bytes: within a point of the best static
/// placement, without many writes once it is there; and again after the popular set has changed.
#[test]
fn the_share_served_hot_is_that_of_the_best_placement() {
    const OBJECTS: usize = 2000;
    let hot_bytes = OBJECTS as u64 / 10 * (BYTES + 40);
    let mut driven = Driven::new(settings(hot_bytes, quick()));
    let mut random = SmallRng::seed_from_u64(3);
    let weights: Vec<f64> = (1..=OBJECTS).map(|rank| 1.0 / rank as f64).collect();
    let mut sums: Vec<f64> = Vec::new();
    weights.iter().for_each(|w| sums.push(sums.last().unwrap_or(&0.0) + w));
    let best = sums[OBJECTS / 10 - 1] / sums[OBJECTS - 1];
    for shift in [0, 1000] {
        let mut shares = Vec::new();
        let before = driven.node.tiers(driven.now).hot.unwrap().moves;
        for _ in 0..10 {
            let mut hot = 0;
            for _ in 0..4000 {
                let drawn = random.random_range(0.0..sums[OBJECTS - 1]);
                let rank = sums.partition_point(|sum| *sum <= drawn);
                let key = format!("{}", (rank + shift) % OBJECTS);
                hot += u32::from(driven.get(&key) == Outcome::HotDevice);
            }
            shares.push(f64::from(hot) / 4000.0);
        }
        let hot = driven.node.tiers(driven.now).hot.unwrap();
        let moves = hot.moves.since(&before);
        println!("best {best:.4}, shift {shift}: {shares:?}, {moves:?}, {:?}", hot.share_at);
        let last = shares[7..].iter().sum::<f64>() / 3.0;
        // After the change the old counts are not yet gone: this is 1.2 times the remembered time.
        let points = if shift == 0 { 0.03 } else { 0.09 };
        assert!(
            last > best - points,
            "{last} served hot, {best} by the best placement: {shares:?}"
        );
    }
}

/// A device that stalled once looks slow, so nothing is read from it or copied to it; after a while it is tried.
#[test]
fn a_hot_device_that_stalled_is_used_again() {
    let mut driven = Driven::new(settings(1 << 20, quick()));
    let read = |driven: &mut Driven, keys: std::ops::Range<u64>| {
        let hot = (0..3).flat_map(|_| keys.clone()).filter(|&key| {
            let key = format!("{key}");
            driven.get(&key) == Outcome::HotDevice
        });
        hot.count()
    };
    read(&mut driven, 0..20);
    let there = read(&mut driven, 0..20);
    assert!(there > 50, "{there} of 60 from the hot device");
    // One read of it takes 100 times as long as those of the bulk device.
    driven.service[1] = SECOND;
    assert_eq!(driven.get("0"), Outcome::HotDevice);
    driven.service[1] = MS;
    let slow = read(&mut driven, 0..20);
    assert!(slow < 10, "{slow} of 60 from a device that seems slower");
    // Each read that tries it shows a little more of what it is.
    let (mut again, mut new) = (0, 0);
    for _ in 0..30 {
        driven.run_to(driven.now + SECOND);
        (again, new) = (read(&mut driven, 0..20), read(&mut driven, 20..40));
    }
    assert!(again > 50 && new > 50, "{again} and {new} of 60 from the hot device");
}

/// The index has no versions: what a start finds is compared record by record.
#[test]
fn an_older_hot_copy_that_a_start_finds_is_not_served() {
    let mut driven = Driven::new(settings(1 << 20, quick()));
    for (device, version) in [(1, 1), (0, 2)] {
        driven.versions.insert(name("a"), version);
        let payload = driven.payload(&name("a"));
        driven.on_disk.insert((device, 0, 0), payload);
    }
    let records = [Restored::new(b"a", 0, BYTES + 33).unwrap()];
    let found = [1, 0].map(|device| RestoredSegment { device, segment: 0, records: &records });
    driven.node.restore(&found, |work| work.into_iter().for_each(|work| work()));
    assert_eq!(driven.node.contents().device_objects, 1);
    // Both are unknown, and the hot one is nearer; the origin says that version 2 is current.
    assert_eq!(driven.get("a"), Outcome::Origin);
    assert_eq!(driven.hot_places("a"), (true, false));
    assert_eq!(driven.get("a"), Outcome::BulkDevice);
}

/// A node whose copies are asked for: a governor decides, and the node is told, once in 50 reads.
struct Governed {
    driven: Driven,
    governor: Governor,
    copies: Copies,
    on: bool,
}

impl Governed {
    fn new(hot: Mode) -> Governed {
        let modes = Modes { hot, ..act::Settings::default().modes };
        let settings = act::Settings { modes, judged_after: SECOND, ..act::Settings::default() };
        Governed {
            driven: Driven::new(self::settings(1 << 20, quick())),
            governor: Governor::new(settings),
            copies: Copies::new(),
            on: true,
        }
    }

    /// Reads 20 objects in turn, from `first` on; returns how many of 1,000 reads the hot device served.
    fn run(&mut self, first: u64) -> usize {
        let mut served = 0;
        for read in 0..1000u64 {
            let outcome = self.driven.get(&format!("{}", first + read % 20));
            served += usize::from(outcome == Outcome::HotDevice);
            if read % 50 == 49 {
                self.look();
            }
        }
        served
    }

    fn look(&mut self) {
        let now = self.driven.now;
        let hot = self.driven.node.tiers(now).hot.unwrap();
        let seen = ReadCounts {
            reads: hot.bought.hot_reads + hot.bought.bulk_reads,
            with_copy: hot.bought.hot_reads + hot.bought.hot_passed_by,
            best: hot.held,
        };
        if let Some(proposal) = self.copies.look(seen) {
            let made = self.governor.propose(now, 0, &proposal) == Some(Status::Made);
            self.copies.decided(made);
        }
        while let Some((id, ..)) = self.governor.due(now) {
            self.governor.realise(id, self.copies.share().unwrap_or(f64::NAN));
        }
        let auto = self.governor.settings().modes.hot == Mode::Auto;
        let on = auto && !self.governor.is_held() && self.copies.may_copy();
        if on != self.on {
            self.on = on;
            self.driven.handle(Event::Copying(on));
        }
    }

    fn statuses(&self) -> Vec<Status> {
        self.governor.entries().map(|entry| entry.status.clone()).collect()
    }
}

#[test]
fn copies_are_made_advised_held_or_left_alone() {
    let mut auto = Governed::new(Mode::Auto);
    auto.run(0);
    let served = auto.run(0);
    assert!(served > 900, "{served} of 1,000 served hot");
    // Another set of objects, while all changes are held: nothing is copied, and once the journal says so.
    auto.governor.hold(0, true);
    auto.look();
    let held = auto.run(100);
    assert!(held == 0, "{held} of 1,000 served hot while held");
    auto.governor.hold(0, false);
    auto.run(100);
    let resumed = auto.run(100);
    assert!(resumed > 900, "{resumed} of 1,000 served hot after all");
    let statuses = auto.statuses();
    assert!(statuses.contains(&Status::Held), "{statuses:?}");
    assert_eq!(statuses.last(), Some(&Status::Made), "{statuses:?}");
    assert!(statuses.len() <= 6, "{statuses:?}");
    let made = auto.governor.entries().last().unwrap();
    assert!(made.expected.after > made.expected.before + 0.09, "{made:?}");
    assert!(made.realised.is_some_and(|share| share > made.expected.before), "{made:?}");

    for (mode, expected) in [(Mode::Advise, vec![Status::Advised]), (Mode::Off, vec![])] {
        let mut governed = Governed::new(mode);
        governed.look();
        governed.run(0);
        let served = governed.run(0);
        assert_eq!((served, governed.statuses()), (0, expected), "{mode:?}");
    }
}

#[test]
fn a_pinned_key_is_copied_whatever_is_allowed() {
    let pins = vec![Pin::Key(b"a".to_vec())];
    let mut driven = Driven::new(settings(1 << 20, TierSettings { pins, ..quick() }));
    driven.handle(Event::Copying(false));
    driven.reads("a", 4);
    driven.reads("b", 8);
    assert_eq!((driven.hot_places("a"), driven.hot_places("b")), ((true, true), (true, false)));
    driven.handle(Event::Copying(true));
    driven.reads("b", 2);
    assert_eq!(driven.hot_places("b"), (true, true));
}
