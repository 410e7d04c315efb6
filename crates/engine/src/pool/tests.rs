use super::*;
use crate::route::{Policy, health};
use ground::window::{Operation as Recorded, SECOND};

/// One pool of some servers, and one route to it.
pub(super) fn settings(servers: usize, routing: Routing) -> Settings {
    let servers: Vec<Server> =
        (0..servers).map(|i| Server { name: format!("s{i}:1"), weight: 1 }).collect();
    let ring = Ketama::new(Distribution::Ketama, Hash::Fnv1a64, None, &servers).unwrap();
    let pool = PoolSettings {
        name: "p".to_owned(),
        servers: (0..servers.len()).collect(),
        ring,
        routing,
        policy: Policy::default(),
        multi_get: MultiGet::default(),
        hedge: None,
        workers: 0,
        waiting_max: 0,
        on_failure: OnFailure::Error,
        flush_on_return: true,
        timeout: SECOND,
        retry_share: 0.1,
    };
    Settings {
        servers,
        pools: vec![pool],
        routes: vec![Route::new("", 0)],
        ping_interval: SECOND / 10,
        ping_timeout: SECOND / 4,
        health: health::Settings::default(),
        seed: 1,
        windows: ground::window::Settings::default(),
    }
}

/// Pools whose servers have been asked how they are.
fn pools(settings: Settings) -> Pools {
    let servers = settings.servers.len();
    let mut pools = Pools::new(settings, 0);
    let mut actions = Vec::new();
    pools.handle(0, Event::Tick, &mut actions);
    let pings: Vec<Action> = (0..servers).map(|server| Action::Ping { server }).collect();
    assert_eq!(actions, pings);
    for server in 0..servers {
        pools.handle(0, Event::Ponged { server }, &mut actions);
    }
    assert_eq!(actions.len(), servers, "nothing more was to be found out");
    pools
}

#[test]
fn settings_that_fit_pass() {
    assert_eq!(settings(3, Routing::Replicated).check(), Ok(()));
}

/// A server that does not keep up gets a bounded number of copies, and the requests do not notice.
#[test]
fn copies_are_bounded() {
    let mut settings = settings(2, Routing::Hash);
    let mut copies = settings.pools[0].clone();
    copies.name = "copies".to_owned();
    copies.servers = vec![2, 3];
    settings.servers.extend(settings.servers.clone());
    settings.pools.push(copies);
    settings.routes[0].copy_to = Some(1);
    assert_eq!(settings.check(), Ok(()));
    let mut pools = pools(settings);
    let mut copied = Vec::new();
    for request in 0..3000 {
        let keys = Keys::One(KeyHash { route: 0, ring: 7, id: request });
        let (operation, recorded) = (Operation::Read, Recorded::Get);
        let mut actions = Vec::new();
        let event = Event::Request {
            request,
            client: 0,
            operation,
            recorded,
            keys,
            bytes: 0,
            deadline: SECOND,
        };
        pools.handle(request, event, &mut actions);
        let mut own = None;
        for action in &actions {
            let Action::Send { attempt, server, .. } = action else { panic!("{action:?}") };
            if *server < 2 { own = Some(*attempt) } else { copied.push(*attempt) }
        }
        let attempt = own.expect("sent to its own pool");
        let event = Event::Answered { attempt, answer: Answer::Hit, hits: 1, bytes: 10 };
        actions.clear();
        pools.handle(request, event, &mut actions);
        assert_eq!(actions.last(), Some(&Action::Forget { request }));
    }
    let counts = pools.pools[0].counts.clone();
    assert_eq!((copied.len(), counts.copies, counts.copies_left_out), (1000, 1000, 2000));
    for attempt in copied {
        let mut actions = Vec::new();
        pools.handle(4000, Event::Failed { attempt, why: Failed::Broken }, &mut actions);
        assert!(actions.iter().all(|action| matches!(action, Action::Ping { .. })), "{actions:?}");
    }
    assert_eq!(pools.servers.iter().map(|server| server.copies).sum::<u32>(), 0);
}

mod inherit;
mod mutants;
mod world;

/// A write that one replica carried out and another could not: the client gets the words of the one that could not.
#[test]
fn a_replica_that_is_full_is_heard() {
    for (answers, said_by) in [
        ([Answer::Done, Answer::Error], Some(1)),
        ([Answer::Error, Answer::Done], Some(0)),
        ([Answer::Error, Answer::Error], Some(0)),
        ([Answer::Done, Answer::Done], None),
    ] {
        let mut pools = pools(settings(2, Routing::Replicated));
        let keys = Keys::One(KeyHash { route: 0, ring: 7, id: 1 });
        let event = Event::Request {
            request: 1,
            client: 0,
            operation: Operation::Write,
            recorded: Recorded::Put,
            keys,
            bytes: 10,
            deadline: SECOND,
        };
        let mut actions = Vec::new();
        pools.handle(1, event, &mut actions);
        let attempts: Vec<AttemptId> = actions
            .drain(..)
            .map(|action| match action {
                Action::Send { attempt, .. } => attempt,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(attempts.len(), 2);
        for (attempt, answer) in attempts.iter().zip(answers) {
            let event = Event::Answered { attempt: *attempt, answer, hits: 0, bytes: 10 };
            pools.handle(2, event, &mut actions);
        }
        let attempt = attempts[said_by.unwrap_or(0)];
        let used = Action::Use { request: 1, part: 0, attempt };
        assert!(actions.contains(&used), "{answers:?}: {actions:?}");
        assert!(!actions.iter().any(|action| matches!(action, Action::Refuse { .. })));
        assert!(actions.contains(&Action::Done { request: 1 }));
    }
}
