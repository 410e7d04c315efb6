mod world;

use super::*;
use crate::mutant::{self, Mutant};
use world::{Plan, World};

const PAGE: Kind = Kind::Page { limit: 10, partial: false };

struct Desk(Question);

impl Desk {
    fn new(kind: Kind, parts: usize) -> (Desk, Vec<Action>) {
        let mut asked = Desk(Question::new(kind, Settings::default(), 1000));
        let actions = asked.tell(0, Event::View { parts });
        (asked, actions)
    }

    fn tell(&mut self, now: Nanos, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.0.handle(now, event, &mut actions);
        actions
    }

    fn answer(&mut self, part: usize, records: usize) -> Vec<Action> {
        let answer = PartAnswer { records, bytes: records, broke_off: false };
        self.tell(1, Event::Answered { part, answer })
    }

    fn fail(&mut self, part: usize, why: Failed) -> Vec<Action> {
        self.tell(1, Event::Failed { part, why })
    }
}

fn asks(parts: std::ops::Range<usize>) -> Vec<Action> {
    parts.map(|part| Action::Ask { part }).collect()
}

fn done(parts: usize, missing: &[usize], more: bool) -> Action {
    Action::Done { parts, missing: missing.to_vec(), more }
}

#[test]
fn a_page_asks_in_order_and_drops_what_it_does_not_need() {
    let (mut asked, actions) = Desk::new(PAGE, 40);
    assert_eq!(actions, asks(0..1));
    assert_eq!(asked.answer(0, 4), asks(1..17));
    assert!(asked.answer(2, 3).is_empty(), "part 1 comes before it");
    // The first three are used, so three more are asked.
    assert_eq!(asked.answer(1, 1), asks(17..19));
    let last = asked.answer(3, 2);
    let mut expected: Vec<Action> = (4..19).map(|part| Action::Drop { part }).collect();
    expected.push(done(4, &[], true));
    assert_eq!(last, expected);
    assert!(asked.0.is_over() && asked.answer(4, 1).is_empty());
}

#[test]
fn a_failure_behind_a_full_page_is_none() {
    let (mut asked, _) = Desk::new(PAGE, 3);
    asked.answer(0, 4);
    assert!(asked.fail(2, Failed::Unavailable).is_empty());
    assert_eq!(asked.answer(1, 6), [done(2, &[], true)]);
    let (mut asked, _) = Desk::new(PAGE, 3);
    asked.answer(0, 4);
    asked.fail(2, Failed::Unavailable);
    assert_eq!(asked.answer(1, 5), [Action::Fail { part: 2 }]);
}

#[test]
fn what_is_missing_is_listed_or_fails_all() {
    let (mut asked, _) = Desk::new(Kind::Page { limit: 10, partial: true }, 3);
    assert_eq!(asked.fail(0, Failed::Unavailable), asks(1..3));
    asked.answer(2, 1);
    assert_eq!(asked.answer(1, 1), [done(3, &[0], false)]);
    let (mut asked, actions) = Desk::new(Kind::All, 3);
    assert_eq!(actions, asks(0..3));
    let drops = [Action::Drop { part: 0 }, Action::Drop { part: 2 }, Action::Fail { part: 1 }];
    assert_eq!(asked.fail(1, Failed::Unavailable), drops);
    let (mut asked, _) = Desk::new(Kind::Page { limit: 10, partial: true }, 1);
    assert_eq!(asked.fail(0, Failed::Question), [Action::Fail { part: 0 }]);
    let (asked, actions) = Desk::new(Kind::All, 0);
    assert!(asked.0.is_over());
    assert_eq!(actions, [done(0, &[], false)]);
}

#[test]
fn another_view_begins_again_and_not_for_ever() {
    let (mut asked, _) = Desk::new(Kind::All, 2);
    asked.answer(0, 3);
    for _ in 0..3 {
        assert_eq!(asked.fail(1, Failed::View), [Action::Refresh]);
        assert!(asked.answer(1, 1).is_empty(), "an answer of the earlier view");
        assert_eq!(asked.tell(1, Event::View { parts: 2 }), asks(0..2));
        asked.answer(0, 3);
    }
    assert_eq!(asked.fail(1, Failed::View), [Action::Fail { part: 1 }]);
    let (mut asked, _) = Desk::new(PAGE, 2);
    asked.fail(0, Failed::View);
    assert_eq!(asked.tell(1, Event::NoView), [Action::NoView]);
}

#[test]
fn a_deadline_ends_it() {
    let (mut asked, _) = Desk::new(PAGE, 2);
    asked.answer(0, 3);
    assert_eq!(asked.0.next_wake(), Some(1000));
    let late = asked.tell(1000, Event::Tick);
    assert_eq!(late, [Action::Drop { part: 1 }, Action::TooLate { part: Some(1) }]);
    let (mut asked, _) = Desk::new(Kind::Page { limit: 10, partial: true }, 3);
    asked.answer(0, 3);
    asked.answer(2, 1);
    let late = asked.tell(1000, Event::Tick);
    assert_eq!(late, [Action::Drop { part: 1 }, done(3, &[1], false)]);
    let (mut asked, _) = Desk::new(PAGE, 2);
    asked.fail(0, Failed::View);
    assert_eq!(asked.tell(1000, Event::Tick), [Action::TooLate { part: None }]);
}

#[test]
fn seeds_find_no_violation() {
    for seed in 0..150 {
        World::new(Plan::from_seed(seed)).run().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

/// A checker that finds nothing is evidence only if it finds what is wrong.
#[test]
fn every_mutant_is_found() {
    for mutant in [
        Mutant::QuestionKeepsEarlierAnswers,
        Mutant::QuestionForgetsMissing,
        Mutant::QuestionForgetsMore,
    ] {
        let found = (0..300).find(|seed| {
            let run = || World::new(Plan::from_seed(*seed)).run();
            mutant::with(Some(mutant), run).is_err()
        });
        let seed = found.unwrap_or_else(|| panic!("{mutant:?} is not found"));
        assert!(
            World::new(Plan::from_seed(seed)).run().is_ok(),
            "seed {seed} fails without {mutant:?}"
        );
    }
}
