use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Happened {
    Written(Option<u64>),
    Acknowledged(Version),
    Read { began: Nanos, seen: Seen },
}

/// The naive twin: looks at the whole history before a read each time.
fn is_allowed(history: &[(Nanos, Happened)], began: Nanos, seen: Seen) -> bool {
    let written: Vec<Option<u64>> = history
        .iter()
        .filter_map(|(_, h)| if let Happened::Written(bytes) = h { Some(*bytes) } else { None })
        .collect();
    let floor = history
        .iter()
        .filter_map(|(at, h)| match h {
            Happened::Acknowledged(version) if *at < began => Some(*version),
            _ => None,
        })
        .max();
    // What a register may hold at some time between: any version from the acknowledged one on, or
    // nothing at all if none was.
    let from = floor.unwrap_or(1).max(1) as usize;
    let mut states: Vec<(usize, Option<u64>)> =
        written.iter().enumerate().skip(from - 1).map(|(i, bytes)| (i + 1, *bytes)).collect();
    if floor.is_none() {
        states.push((0, None));
    }
    states.into_iter().any(|(version, bytes)| match (seen, bytes) {
        (Seen::Nothing, None) => true,
        (Seen::Version { key: 0, version: v, bytes: b }, Some(bytes)) => {
            v as usize == version && b == bytes
        }
        _ => false,
    })
}

fn happened() -> impl Strategy<Value = Happened> {
    let version = |(key, version, bytes)| Seen::Version { key, version, bytes };
    let seen = prop_oneof![
        4 => (Just(0u32), 0u32..8, Just(1u64)).prop_map(version),
        1 => (0u32..2, 0u32..8, 1u64..3).prop_map(version),
        1 => Just(Seen::Nothing),
    ];
    prop_oneof![
        Just(Happened::Written(Some(1))),
        Just(Happened::Written(None)),
        (1u32..8).prop_map(Happened::Acknowledged),
        (0u64..40, seen).prop_map(|(began, seen)| Happened::Read { began, seen }),
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
            match event {
                Happened::Written(bytes) => {
                    checker.written(0, bytes);
                }
                Happened::Acknowledged(version) => {
                    let exists = history.iter()
                        .filter(|(_, h)| matches!(h, Happened::Written(_)))
                        .count() >= version as usize;
                    prop_assert_eq!(checker.acknowledged(0, version, at).is_ok(), exists);
                    if !exists {
                        continue;
                    }
                }
                Happened::Read { began, seen } => {
                    let began = began.min(at);
                    let judged = checker.read(0, began, at, seen);
                    prop_assert_eq!(judged.is_ok(), is_allowed(&history, began, seen), "{:?}", judged);
                }
            }
            history.push((at, event));
        }
    }
}

#[test]
fn what_is_wrong_is_said() {
    let mut checker = Checker::default();
    checker.written(7, Some(10));
    checker.written(7, Some(20));
    checker.acknowledged(7, 2, 100).unwrap();
    let old = Seen::Version { key: 7, version: 1, bytes: 10 };
    assert!(checker.read(7, 90, 120, old).is_ok(), "the read began before");
    let words = checker.read(7, 101, 120, old).unwrap_err().to_string();
    assert!(words.contains("version 2 was acknowledged before"), "{words}");
    assert!(checker.read(7, 101, 120, Seen::Nothing).is_err());
    assert!(checker.acknowledged(7, 3, 130).is_err());
    assert!(checker.at_the_end(7, 130, Some(1)).is_err());
    assert!(checker.at_the_end(7, 130, Some(2)).is_ok());
}
