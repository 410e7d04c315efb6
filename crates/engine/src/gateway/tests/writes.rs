//! Writes: when they are sent, tried again, refused, and wait.

use super::*;

#[test]
fn a_write_is_sent_once_and_its_doubt_is_told() {
    let mut desk = Desk::new(settings(3, 3));
    let primary = desk.order()[0];
    let (attempt, node) = sent(&desk.write());
    assert_eq!(node, primary);
    assert_eq!(refused(&desk.fail(attempt, Failed::Broken)), Some(Refusal::Unknown));
    // The node is suspect now, and has not answered since: the next write waits until it does.
    assert!(desk.write().is_empty());
    desk.tell(Event::Ponged { node: primary, load: LoadReport::default(), fits: true });
    let (attempt, _) = sent(&desk.pass(25 * MS));
    assert_eq!(refused(&desk.answer(attempt, Status::Busy)), Some(Refusal::Busy));
    let (attempt, _) = sent(&desk.write());
    let actions = desk.pass(20 * SECOND);
    let request = desk.next;
    let end = [Action::Cancel { attempt }, Action::Refuse { request, why: Refusal::Unknown }];
    assert_eq!(actions, end, "no hedge, no second try");
}

#[test]
fn a_write_that_was_not_taken_is_tried_again() {
    let mut desk = Desk::new(settings(3, 3));
    let primary = desk.order()[0];
    let (attempt, _) = sent(&desk.write());
    assert!(desk.fail(attempt, Failed::Connect).is_empty());
    desk.tell(Event::Ponged { node: primary, load: LoadReport::default(), fits: true });
    let (attempt, node) = sent(&desk.pass(25 * MS));
    assert_eq!(node, primary);
    assert!(desk.fail(attempt, Failed::Connect).is_empty());
    assert!(desk.pass_without(4 * SECOND, &[primary]).is_empty());
    let actions = desk.pass_without(2 * SECOND, &[primary]);
    assert_eq!(refused(&actions), Some(Refusal::NoPrimary));
}

/// Writes of a gateway that had just been started on a busy machine were refused for good, because the first pings
/// were answered late.
#[test]
fn a_write_waits_for_a_primary_that_fell_silent_but_not_for_one_that_is_gone() {
    let mut desk = Desk::new(settings(3, 3));
    let primary = desk.order()[0];
    desk.fail_ping(primary);
    assert!(desk.write().is_empty());
    assert!(desk.pass_without(SECOND, &[primary]).is_empty());
    let (attempt, node) = sent(&desk.pass(SECOND / 2));
    assert_eq!(node, primary);
    desk.answer(attempt, Status::Final);
    desk.pass(SECOND);
    // Not longer than its client.
    desk.fail_ping(primary);
    let (request, deadline) = (100, desk.now + SECOND);
    desk.tell(Event::Request { request, key: KEY.into(), operation: Operation::Write, deadline });
    let actions = desk.pass_without(2 * SECOND, &[primary]);
    assert_eq!(actions, [Action::Refuse { request, why: Refusal::TooLate }]);
    // One that came a second before the patience ends is refused at that time, later ones at once.
    desk.pass_without(2 * SECOND, &[primary]);
    assert!(desk.write().is_empty());
    assert_eq!(refused(&desk.pass_without(SECOND, &[primary])), Some(Refusal::NoPrimary));
    assert_eq!(refused(&desk.write()), Some(Refusal::NoPrimary));
    // A write that was not sent used no retry.
    assert_eq!(desk.gateway.status(desk.now).counts.attempts.retries, 0);
}

#[test]
fn a_misdirected_write_waits_for_the_view() {
    let mut desk = Desk::new(settings(3, 3));
    let order = desk.order();
    let (attempt, _) = sent(&desk.write());
    assert!(desk.answer(attempt, Status::Misdirected).is_empty());
    let mut view = View::fixed(3);
    view.epoch = 1;
    view.live[order[0]] = false;
    let (attempt, node) = sent(&desk.tell(Event::View(view)));
    assert_eq!(node, order[1]);
    // An older view is ignored.
    desk.tell(Event::View(View::fixed(3)));
    assert_eq!(sent(&desk.write()).1, order[1]);
    assert_eq!(sent(&desk.read()).1, order[1]);
    assert!(desk.answer(attempt, Status::Misdirected).is_empty());
    let mut tries = 0;
    loop {
        let actions = desk.pass(SECOND / 100);
        if let Some(why) = refused(&actions) {
            assert_eq!(why, Refusal::TooLate, "nothing was done, and it is known");
            break;
        }
        for action in actions {
            if let Action::Send { attempt, request: 1, .. } = action {
                desk.answer(attempt, Status::Misdirected);
                tries += 1;
            }
        }
    }
    assert!((10..60).contains(&tries), "{tries}");
}

#[test]
fn a_write_at_a_node_that_was_lost_is_given_up_when_nobody_acts_on_the_earlier_view() {
    let lag = SECOND / 2;
    let mut desk = Desk::new(Settings { view_lag: lag, ..settings(3, 3) });
    let order = desk.order();
    let view = |epoch: u64, lost: Option<NodeId>| {
        let mut view = View { epoch, ..View::fixed(3) };
        lost.into_iter().for_each(|lost| view.live[lost] = false);
        Event::View(view)
    };
    desk.tell(view(4, None));
    let actions = desk.write();
    assert!(matches!(actions[0], Action::Send { node, epoch: 4, .. } if node == order[0]));
    // Another node's loss concerns it not.
    assert_eq!(refused(&desk.tell(view(5, Some(order[1])))), None);
    assert_eq!(refused(&desk.pass(lag + MS)), None);
    assert_eq!(refused(&desk.tell(view(6, Some(order[0])))), None);
    assert_eq!(refused(&desk.pass(lag - MS)), None);
    // Whether the node is back does not matter: it began to order its keys anew.
    assert_eq!(refused(&desk.tell(view(7, None))), None);
    assert_eq!(refused(&desk.pass(2 * MS)), Some(Refusal::Unknown));
    assert!(matches!(desk.write()[0], Action::Send { epoch: 7, .. }));
}
