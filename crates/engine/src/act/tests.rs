use super::*;

fn proposal(target: &str) -> Proposal {
    Proposal {
        knob: Knob::Layers,
        target: target.to_owned(),
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
