//! [`Node::hit`] beside its twin: the same read as an event.

use model::window::{self, Nanos, Outcome};
use proptest::prelude::*;

use super::*;
use crate::Size;

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
                        events.push(Event::Checked { job, result: Checked::Current });
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
        self.handle(now, Event::Get { request, key: key.clone(), asker, deadline: None })
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
fn shown(replies: Vec<(Reply<Size>, u32)>) -> String {
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
            prop_assert_eq!(shown(twin.get(now, &key)), shown(hits.hit(now, &key)));
            prop_assert_eq!(twin.node.contents(), hits.node.contents());
        }
        prop_assert_eq!(twin.node.flush_windows(now), hits.node.flush_windows(now));
        prop_assert_eq!(twin.node.invariants().count(), 0);
    }
}
