//! [`Node::hit`] beside its twin: the same read as an event.

use ground::window::{self, Nanos, Outcome, SECOND};
use proptest::prelude::*;

use super::*;
use crate::Size;
use ground::Etag;

fn settings() -> Settings {
    Settings {
        memory_bytes_max: 3_000,
        eviction: crate::tier::Eviction::default(),
        object_bytes_max: 2_000,
        revalidate: Some(40),
        stale_if_error: 0,
        devices: Vec::new(),
        tiers: TierSettings::default(),
        origin: OriginSettings { servers: 4, queue_length_max: 8 },
        appends_bytes_max: 0,
        writes_waiting_max: 4,
        cluster: None,
        windows: window::Settings { window_ns: 50, ..window::Settings::default() },
    }
}

/// A node whose origin answers every read at once.
struct Driven {
    node: Node<Size>,
    request: RequestId,
    etag: Etag,
}

impl Driven {
    fn handle(&mut self, now: Nanos, event: Event<Size>) -> Vec<(Reply<Size>, u32)> {
        let mut replies = Vec::new();
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut actions = Vec::new();
            self.node.handle(now, event, &mut actions);
            for action in actions {
                match action {
                    Action::Reply { reply, stages, .. } => {
                        replies.push((reply, stages.node_length))
                    }
                    Action::Fetch { job, .. } => {
                        let payload =
                            Size { bytes: 700, stored_bytes: 720, etag: self.etag.clone() };
                        events.push(Event::Fetched { job, result: Fetched::Found(payload) });
                    }
                    Action::Check { job, .. } => {
                        events.push(Event::Checked {
                            job,
                            result: Checked::Version(self.etag.clone()),
                        });
                    }
                    _ => {}
                }
            }
        }
        replies
    }

    fn get(&mut self, now: Nanos, key: &Key) -> Vec<(Reply<Size>, u32)> {
        self.request += 1;
        let (request, asker) = (self.request, Asker::Client { avoid: None });
        self.handle(
            now,
            Event::Get { request, key: key.clone(), asker, deadline: None, take: Take::Whole },
        )
    }

    /// The read by [`Node::hit`] if that answers, else as an event.
    fn hit(&mut self, now: Nanos, key: &Key) -> Vec<(Reply<Size>, u32)> {
        let mut actions = Vec::new();
        let hit = self.node.hit(now, key, &mut actions);
        assert!(actions.is_empty(), "a lone node offers nothing");
        let Some(Hit { payload, warm, length }) = hit else { return self.get(now, key) };
        vec![(Reply::Found { payload, outcome: Outcome::Memory, age: 0, warm }, length)]
    }
}

/// Without the age, which a hit does not tell.
fn without_age(replies: Vec<(Reply<Size>, u32)>) -> String {
    let without = |(reply, length)| match reply {
        Reply::Found { payload, outcome, warm, .. } => {
            (Reply::Found { payload, outcome, age: 0, warm }, length)
        }
        other => (other, length),
    };
    format!("{:?}", replies.into_iter().map(without).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn a_hit_is_the_same_as_its_event(steps in prop::collection::vec((0u8..6, 0u64..30), 1..200)) {
        let new = || Driven { node: Node::new(settings(), 0), request: 0, etag: "e".into() };
        let (mut twin, mut hits) = (new(), new());
        let mut now = 0;
        for (key, later) in steps {
            now += later;
            let key = Key::from([key].as_slice());
            prop_assert_eq!(without_age(twin.get(now, &key)), without_age(hits.hit(now, &key)));
            prop_assert_eq!(twin.node.contents(), hits.node.contents());
        }
        prop_assert_eq!(twin.node.flush_windows(now), hits.node.flush_windows(now));
        prop_assert_eq!(twin.node.invariants().count(), 0);
    }
}

fn device() -> DeviceSettings {
    DeviceSettings {
        name: "device/0".to_owned(),
        outcome: Outcome::BulkDevice,
        servers: 1,
        queue_length_max: 8,
        bytes_max: 1 << 20,
        segment_bytes: 1 << 16,
        segments_max: 0,
        piece_bytes: 0,
        servers_max: 0,
    }
}

/// What an event has a node do.
fn handled(node: &mut Node<Size>, now: Nanos, event: Event<Size>) -> Vec<Action<Size>> {
    let mut actions = Vec::new();
    node.handle(now, event, &mut actions);
    actions
}

/// Without an origin an object is nowhere else once it has left memory, which here has room for none.
#[test]
fn an_object_is_read_while_it_is_being_written_to_a_device() {
    let with = Settings {
        devices: vec![device()],
        appends_bytes_max: 1 << 20,
        memory_bytes_max: 0,
        ..settings()
    };
    let (mut node, key): (Node<Size>, _) = (Node::new(with, 0), Key::from(&b"a"[..]));
    let mut jobs = Vec::new();
    let mut write = |node: &mut Node<Size>, request, etag: &str| {
        let begin = Event::WriteBegin { request, key: key.clone(), epoch: None };
        handled(node, 1, begin);
        let payload = Some(Size { bytes: 700, stored_bytes: 720, etag: etag.into() });
        let actions = handled(node, 1, Event::WriteEnd { request, key: key.clone(), payload });
        jobs.extend(actions.iter().filter_map(|action| match action {
            Action::Append { job, .. } => Some(*job),
            _ => None,
        }));
        jobs.clone()
    };
    let read = |node: &mut Node<Size>, now, request| {
        let asker = Asker::Client { avoid: None };
        let (deadline, take) = (None, Take::Whole);
        handled(node, now, Event::Get { request, key: key.clone(), asker, deadline, take })
    };
    let version = |actions: &[Action<Size>]| match actions {
        [Action::Reply { reply: Reply::Found { payload, .. }, .. }] => payload.etag.to_string(),
        other => format!("{other:?}"),
    };
    write(&mut node, 1, "first");
    assert_eq!(version(&read(&mut node, 2, 2)), "first");
    // The record of an earlier version that is still being written is none of the object's.
    let jobs = write(&mut node, 3, "second");
    assert_eq!(version(&read(&mut node, 3, 4)), "second");
    handled(&mut node, 4, Event::Appended { job: jobs[0], written: true, full: false });
    assert_eq!(version(&read(&mut node, 4, 5)), "second");
    handled(&mut node, 5, Event::Appended { job: jobs[1], written: true, full: false });
    let actions = read(&mut node, 5, 6);
    assert!(matches!(actions[..], [Action::Read { .. }]), "{actions:?}");
    assert_eq!(node.invariants().count(), 0);
}

/// What was in memory, on a device or on its way to one is gone.
#[test]
fn a_cleared_node_holds_nothing() {
    let with = Settings { devices: vec![device()], appends_bytes_max: 1 << 20, ..settings() };
    let mut node: Node<Size> = Node::new(with, 0);
    let keys = [Key::from(&b"a"[..]), Key::from(&b"b"[..])];
    let mut jobs = Vec::new();
    for (request, key) in (0..).zip(&keys) {
        let mut actions = Vec::new();
        node.handle(1, Event::WriteBegin { request, key: key.clone(), epoch: None }, &mut actions);
        let payload = Size { bytes: 700, stored_bytes: 720, etag: Etag::from("e") };
        let end = Event::WriteEnd { request, key: key.clone(), payload: Some(payload) };
        node.handle(1, end, &mut actions);
        jobs.extend(actions.iter().filter_map(|action| match action {
            Action::Append { job, .. } => Some(*job),
            _ => None,
        }));
    }
    // One is written, the other not yet.
    assert!(node.contents().appending_bytes >= 2 * 720);
    node.handle(2, Event::Appended { job: jobs[0], written: true, full: false }, &mut Vec::new());
    assert!(node.hit(2, &keys[1], &mut Vec::new()).is_some());
    node.handle(3, Event::Clear, &mut Vec::new());
    node.handle(4, Event::Appended { job: jobs[1], written: true, full: false }, &mut Vec::new());
    for (request, key) in (10..).zip(keys) {
        assert!(node.hit(5, &key, &mut Vec::new()).is_none());
        let asker = Asker::Client { avoid: None };
        let mut actions = Vec::new();
        node.handle(
            5,
            Event::Get { request, key, asker, deadline: None, take: Take::Whole },
            &mut actions,
        );
        assert!(matches!(actions[..], [Action::Fetch { .. }]), "{actions:?}");
    }
    assert_eq!((node.contents().memory_objects, node.contents().memory_bytes), (0, 0));
    assert_eq!(node.contents().appending_bytes, 0);
}

#[test]
fn a_device_whose_last_write_failed_is_told_of_until_one_succeeds() {
    let with = Settings { devices: vec![device()], appends_bytes_max: 1 << 20, ..settings() };
    let mut node: Node<Size> = Node::new(with, 0);
    let ends = [(false, false), (true, false), (false, true)];
    for ((request, now), (written, full)) in (0..).zip((1..).map(|s| s * 10 * SECOND)).zip(ends) {
        let key = Key::from(&b"a"[..]);
        handled(&mut node, now, Event::WriteBegin { request, key: key.clone(), epoch: None });
        let payload = Size { bytes: 700, stored_bytes: 720, etag: Etag::from("e") };
        let end = Event::WriteEnd { request, key, payload: Some(payload) };
        let actions = handled(&mut node, now, end);
        let jobs = actions.iter().filter_map(|action| match action {
            Action::Append { job, .. } => Some(*job),
            _ => None,
        });
        let jobs: Vec<JobId> = jobs.collect();
        assert_eq!(jobs.len(), 1, "{actions:?}");
        handled(&mut node, now, Event::Appended { job: jobs[0], written, full });
        // A full device makes room.
        assert_eq!(node.tiers(now).devices[0].write_failed, !written && !full);
    }
}
