use super::*;

fn proposal(target: &str) -> Proposal {
    Proposal {
        knob: Knob::Layers,
        target: target.to_owned(),
        kind: "grow".to_owned(),
        change: "grows".to_owned(),
        reason: "its queue is long".to_owned(),
        expected: Effect { quantity: "queue".to_owned(), before: 5.0, after: 1.0 },
        must: false,
    }
}

fn governor(layers: Mode, per_minute: u32) -> Governor {
    let off = Mode::Off;
    let modes = Modes {
        layers,
        bounds: off,
        concurrency: off,
        memory: off,
        hot: off,
        weights: off,
        replicas: off,
    };
    Governor::new(Settings { modes, per_minute, entries_max: 8, ..Settings::default() })
}

#[test]
fn modes_and_the_kill_switch_decide() {
    let must = Proposal { must: true, ..proposal("b") };
    for (mode, held, expected) in [
        (Mode::Auto, false, Some(Status::Made)),
        (Mode::Auto, true, Some(Status::Held)),
        (Mode::Advise, false, Some(Status::Advised)),
        (Mode::Off, false, None),
        (Mode::Off, true, None),
    ] {
        let mut governor = governor(mode, 10);
        governor.hold(0, held);
        assert_eq!(governor.propose(SECOND, 1, &proposal("a")), expected);
        let refused = expected.is_some_and(|status| status != Status::Made);
        if refused {
            assert_eq!(governor.propose(2 * SECOND, 2, &proposal("a")), None, "said already");
            assert!(governor.propose(400 * SECOND, 3, &proposal("a")).is_some(), "said long ago");
        }
        assert_eq!(governor.propose(SECOND, 1, &must), Some(Status::Made), "a bound requires it");
    }
}

#[test]
fn changes_are_limited_in_number_for_each_knob() {
    let mut governor = governor(Mode::Auto, 6);
    let mut made = 0;
    for second in 0..120u64 {
        let target = format!("shard/{second}");
        let status = governor.propose(second * SECOND, 0, &proposal(&target)).unwrap();
        made += u32::from(status == Status::Made);
    }
    // A burst of six, and six a minute.
    assert!((17..=18).contains(&made), "{made}");
    assert_eq!(governor.made(Knob::Layers), u64::from(made));
    assert_eq!(governor.entries().len(), 8, "the journal in memory is bounded");
}

#[test]
fn an_effect_is_realised_and_a_journal_is_taken_over() {
    let mut governor = governor(Mode::Auto, 10);
    governor.propose(0, 7, &proposal("a"));
    assert_eq!(governor.due(29 * SECOND), None);
    assert_eq!(governor.due(30 * SECOND), Some((1, Knob::Layers, "a".to_owned())));
    assert_eq!(governor.due(30 * SECOND), None);
    governor.realise(1, 1.5);
    governor.realise(1, f64::NAN);
    governor.hold(9, true);
    let lines = governor.take_lines();
    assert_eq!(lines.len(), 3);
    let text = serde_json::to_string(&lines).unwrap();
    let mut next = Governor::new(Settings::default());
    next.restore(serde_json::from_str::<Vec<Line>>(&text).unwrap());
    assert!(next.is_held(), "a restart does not release what an operator held");
    assert_eq!(next.entries().next().unwrap().realised, Some(1.5));
    next.hold(10, false);
    next.propose(0, 11, &proposal("b"));
    assert_eq!(next.entries().last().unwrap().id, 2, "numbers go on");
}

fn kind(target: &str, kind: &str) -> Proposal {
    Proposal { kind: kind.to_owned(), change: format!("{kind}s"), ..proposal(target) }
}

#[test]
fn an_approved_change_is_made_once_in_any_mode_and_while_changes_are_held() {
    for (mode, held) in [(Mode::Advise, false), (Mode::Auto, true), (Mode::Advise, true)] {
        let mut governor = governor(mode, 10);
        governor.hold(0, held);
        assert!(governor.propose(0, 1, &proposal("a")).is_some_and(|it| it != Status::Made));
        assert_eq!(governor.decide(SECOND, 2, 1, Verdict::Apply), Ok(()));
        assert_eq!(governor.entries().next().unwrap().status, Status::Approved);
        // Another target, and another kind of change, are not meant.
        assert_ne!(governor.propose(SECOND, 3, &proposal("b")), Some(Status::Made));
        assert_ne!(governor.propose(SECOND, 3, &kind("a", "fold")), Some(Status::Made));
        // Its size may differ by then.
        let larger = Proposal { change: "grows more".to_owned(), ..proposal("a") };
        assert_eq!(governor.propose(2 * SECOND, 4, &larger), Some(Status::Made));
        let made = governor.entries().last().unwrap().clone();
        assert_eq!(
            (made.cause, made.approved, made.change.as_str()),
            (Cause::Operator, Some(1), "grows more")
        );
        assert_eq!(governor.entries().next().unwrap().status, Status::Applied);
        // Its effect is judged as that of any other.
        assert_eq!(governor.due(40 * SECOND), Some((made.id, Knob::Layers, "a".to_owned())));
        assert_ne!(governor.propose(3 * SECOND, 5, &larger), Some(Status::Made), "once");
        for (id, why) in [
            (1, NotDecided::Decided(1)),
            (made.id, NotDecided::Made(made.id)),
            (99, NotDecided::Unknown(99)),
        ] {
            assert_eq!(governor.decide(4 * SECOND, 6, id, Verdict::Apply), Err(why));
        }
    }
}

#[test]
fn a_dismissed_change_is_left_alone_for_a_while_unless_a_bound_requires_it() {
    for (mode, held) in [(Mode::Advise, false), (Mode::Auto, true)] {
        let mut governor = governor(mode, 10);
        governor.hold(0, held);
        governor.propose(0, 1, &proposal("a"));
        assert_eq!(governor.decide(0, 2, 1, Verdict::Dismiss), Ok(()));
        governor.hold(3, false);
        let over = operator::DISMISSED_FOR;
        assert!(governor.propose(0, 3, &kind("a", "fold")).is_some());
        for at in [SECOND, 400 * SECOND, over - 1] {
            assert_eq!(governor.propose(at, 4, &proposal("a")), None, "{at}");
        }
        let must = Proposal { must: true, ..proposal("a") };
        assert_eq!(governor.propose(over - 1, 4, &must), Some(Status::Made));
        assert!(governor.propose(over, 5, &proposal("a")).is_some());
        assert_eq!(governor.entries().next().unwrap().status, Status::Dismissed);
    }
}

#[test]
fn an_approval_lapses_and_does_not_outlive_the_process() {
    let mut governor = governor(Mode::Advise, 10);
    governor.propose(0, 1, &proposal("a"));
    governor.decide(0, 2, 1, Verdict::Apply).unwrap();
    governor.expire(operator::APPROVED_FOR - 1, 3);
    assert_eq!(governor.entries().next().unwrap().status, Status::Approved);
    governor.expire(operator::APPROVED_FOR, 4);
    assert_eq!(governor.entries().next().unwrap().status, Status::Lapsed);
    assert_ne!(governor.propose(operator::APPROVED_FOR, 5, &proposal("a")), Some(Status::Made));
    // One that lapsed may be approved again.
    assert_eq!(governor.decide(operator::APPROVED_FOR, 6, 1, Verdict::Apply), Ok(()));
    let text = serde_json::to_string(&governor.take_lines()).unwrap();
    let mut next = Governor::new(Settings::default());
    next.restore(serde_json::from_str::<Vec<Line>>(&text).unwrap());
    assert_eq!(next.entries().next().unwrap().status, Status::Lapsed);
}

#[test]
fn orders_are_bounded_and_the_last_word_on_a_kind_of_change_holds() {
    let mut governor = Governor::new(Settings {
        modes: Modes { layers: Mode::Advise, ..Settings::default().modes },
        ..Settings::default()
    });
    let targets = operator::ORDERS_MAX as u64 + 2;
    for at in 1..=targets {
        governor.propose(0, 1, &proposal(&at.to_string()));
        governor.decide(0, 2, at, Verdict::Apply).unwrap();
    }
    let lapsed: Vec<u64> =
        governor.entries().filter(|it| it.status == Status::Lapsed).map(|it| it.id).collect();
    assert_eq!(lapsed, [1, 2], "the oldest end");
    // Advised again after a while, and dismissed then.
    let last = targets.to_string();
    let later = operator::APPROVED_FOR - SECOND;
    governor.decide(later, 3, 1, Verdict::Dismiss).unwrap();
    assert_eq!(governor.propose(later, 4, &proposal("1")), None);
    assert_eq!(governor.propose(later, 4, &proposal(&last)), Some(Status::Made));
}

#[test]
fn a_knob_that_is_off_makes_nothing() {
    let mut before = governor(Mode::Advise, 10);
    before.propose(0, 1, &proposal("a"));
    let mut now = governor(Mode::Off, 10);
    now.restore(before.take_lines());
    let refused = now.decide(0, 2, 1, Verdict::Apply).unwrap_err();
    assert_eq!(refused, NotDecided::Off("layers"));
    assert!(refused.to_string().contains("act.layers is \"off\""));
}

/// Journals of version 1.0 have neither kinds nor causes.
#[test]
fn an_entry_of_an_earlier_version_is_read() {
    let line = r#"{"entry":{"id":3,"at_unix_us":1,"knob":"bounds","target":"device/0","change":"c","reason":"r",
        "status":"advised","expected":{"quantity":"q","before":1.0,"after":2.0},"realised":null}}"#;
    let mut governor = Governor::new(Settings::default());
    governor.restore([serde_json::from_str::<Line>(line).unwrap()]);
    let entry = governor.entries().next().unwrap();
    assert_eq!((entry.cause, entry.kind.as_str(), entry.approved), (Cause::Process, "", None));
}
