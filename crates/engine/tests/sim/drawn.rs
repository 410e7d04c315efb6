//! Clusters whose hits are drawn, against exact laws and against the same cluster with keys.

use std::sync::Arc;

use engine::gateway::Spread;
use engine::node::OriginSettings;
use engine::route::{Member, Policy, Ring};
use engine::sim::drawn::{DeviceSettings, DrawnCluster, Hits, NodeFault, NodeFaultKind, Settings};
use engine::sim::{Arrivals, Law, Popularity, Simulation};
use ground::window::{self, Histogram, Outcome, SECOND, Window};
use model::queue::erlang_c;

use crate::plain::Plain;

/// Maximum difference between a simulated share and the exact one.
const POINT: f64 = 0.01;

fn cluster(nodes: usize, rate: f64, seconds: u64) -> Settings {
    let members = (0..nodes).map(|i| Member::new(format!("n{i}"), 1.0)).collect();
    let device = DeviceSettings {
        name: "device/0".to_owned(),
        outcome: Outcome::BulkDevice,
        servers: 1,
        queue_length_max: 1_000_000,
        law: Law::exponential(0.01),
        weight: 1.0,
    };
    Settings {
        seed: 1,
        ring: Arc::new(Ring::new(members, 3.min(nodes)).unwrap()),
        devices: vec![device],
        origin: OriginSettings { servers: 1000, queue_length_max: 1 << 20 },
        origin_half: Law::exponential(0.0025),
        hits: Hits::default(),
        memory: Law::constant(0.0),
        delay: Law::constant(0.0),
        arrivals: Arrivals::Poisson(rate),
        until: seconds * SECOND,
        write_share: 0.0,
        bytes: 100,
        network: 0,
        gateways: 1,
        spread: Spread::Primary,
        policy: Policy::default(),
        ping_interval: SECOND / 10,
        faults: Vec::new(),
        windows: window::Settings { window_ns: 10 * SECOND, ..window::Settings::default() },
    }
}

fn run(settings: Settings) -> Vec<Vec<Window>> {
    let end = settings.until + 10 * SECOND;
    let mut drawn = DrawnCluster::new(settings);
    drawn.run_to(end);
    let counts = drawn.counts();
    let answered = counts.reads.values().sum::<u64>() + counts.acknowledged + counts.refused;
    assert_eq!(answered, counts.requests, "each request ends once");
    drawn.windows(true)
}

/// Response times at the clients.
fn responses(windows: &[Vec<Window>]) -> Histogram {
    let mut all = Histogram::default();
    windows[0].iter().flat_map(|window| &window.times).for_each(|t| all.merge(&t.response));
    all
}

fn agrees(what: &str, simulated: &Histogram, exact: impl Fn(f64) -> f64, times: &[f64]) {
    for &t in times {
        let (share, exact) = (simulated.share_within(t).unwrap(), exact(t));
        assert!((share - exact).abs() < POINT, "{what}, t = {t}: {share} simulated, {exact} exact");
    }
}

#[test]
fn one_server_is_an_mm1_queue() {
    for rate in [50.0, 80.0] {
        let windows = run(cluster(1, rate, (1_000_000.0 / rate) as u64));
        let exact = |t: f64| 1.0 - (-(100.0 - rate) * t).exp();
        agrees(&format!("{rate}/s"), &responses(&windows), exact, &[0.005, 0.02, 0.05, 0.1]);
    }
}

#[test]
fn several_servers_are_an_mmm_queue() {
    let (servers, rate, mu) = (3, 240.0, 100.0);
    let mut settings = cluster(1, rate, 4000);
    settings.devices[0].servers = servers;
    let windows = run(settings);
    let wait = erlang_c(servers, rate / mu / f64::from(servers));
    let drain = f64::from(servers) * mu - rate;
    let exact = |t: f64| {
        let served = 1.0 - (-mu * t).exp();
        let both = 1.0 - (mu * (-drain * t).exp() - drain * (-mu * t).exp()) / (mu - drain);
        (1.0 - wait) * served + wait * both
    };
    agrees("m = 3", &responses(&windows), exact, &[0.005, 0.01, 0.02, 0.05]);
    let device = windows[1].iter().filter(|w| w.queue == "device/0");
    let busy: f64 = device.map(|w| w.busy_s).sum();
    assert!((busy / 4000.0 - rate / mu).abs() < 0.03, "{busy}");
}

/// Uniform keys, of which a part is in memory, without replicas: what both can decide.
#[test]
fn it_agrees_with_the_cluster_that_has_keys() {
    let plain = Plain {
        nodes: 3,
        gateways: 1,
        rate: 400.0,
        seconds: 1200,
        keys: 60_000,
        popularity: Popularity::Uniform,
        memory_bytes: 10_000 * (100 + 40 + 4 + 72),
        servers: 1,
        service: Law::exponential(0.01),
    };
    let keyed_settings = plain.settings();
    let ring = keyed_settings.ring.clone();
    let mut keyed = Simulation::new(keyed_settings);
    keyed.preload(false);
    keyed.run_to((plain.seconds + 10) * SECOND);
    let keyed = keyed.windows(true);
    let all = responses(&keyed);
    let of_memory = |windows: &[Vec<Window>]| -> u64 {
        let times = windows[0].iter().flat_map(|window| &window.times);
        times.filter(|t| t.outcome == Outcome::Memory).map(|t| t.response.count()).sum()
    };
    let memory = of_memory(&keyed) as f64 / all.count() as f64;
    assert!((0.3..0.7).contains(&memory), "{memory}");
    let hits = Hits { memory, ..Hits::default() };
    let drawn = Settings { ring, hits, ..cluster(3, plain.rate, plain.seconds) };
    let drawn = responses(&run(drawn));
    let exact = |t| all.share_within(t).unwrap();
    agrees("with keys", &drawn, exact, &[0.001, 0.005, 0.01, 0.02, 0.05]);
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_not() {
    let settings = |seed| Settings {
        seed,
        write_share: 0.1,
        network: 100_000,
        gateways: 2,
        spread: Spread::All,
        hits: Hits { memory: 0.5, hot: 0.0, origin: 0.05 },
        ..cluster(5, 300.0, 60)
    };
    assert_eq!(run(settings(1)), run(settings(1)));
    assert_ne!(run(settings(1)), run(settings(2)));
}

/// With a choice of three replicas, fewer requests wait.
#[test]
fn a_choice_of_replicas_shortens_the_queues() {
    let with = |spread| {
        let settings = Settings { spread, network: 100_000, ..cluster(10, 800.0, 600) };
        responses(&run(settings)).mean_s()
    };
    let (first, any) = (with(Spread::Primary), with(Spread::All));
    assert!(any < 0.6 * first, "{any} s with a choice, {first} s without");
}

#[test]
fn nodes_that_fail_send_their_requests_to_others() {
    let fault = |node, kind| NodeFault { at: 20 * SECOND, until: 40 * SECOND, node, kind };
    let faults = vec![
        fault(0, NodeFaultKind::Down),
        fault(1, NodeFaultKind::DeviceLost(0)),
        fault(2, NodeFaultKind::Slow(3.0)),
    ];
    let settings = Settings { network: 100_000, faults, ..cluster(5, 200.0, 60) };
    let windows = run(settings.clone());
    let of = |node: usize, queue: &str, from: usize, to: usize| -> u64 {
        let windows = windows[1 + node].iter().filter(|window| window.queue == queue);
        windows.skip(from).take(to - from).map(|window| window.arrivals).sum()
    };
    assert!(of(0, "node", 0, 2) > 300 && of(0, "node", 2, 4) < 10 && of(0, "node", 4, 6) > 300);
    assert!(of(1, "origin", 2, 4) > 300 && of(1, "device/0", 2, 4) < 10);
    let errors: u64 = windows[0].iter().map(|window| window.errors).sum();
    assert_eq!(errors, 0, "each key has two further nodes");
    let alone = Settings { network: 100_000, ..cluster(1, 50.0, 60) };
    let lost = vec![fault(0, NodeFaultKind::Down)];
    let windows = run(Settings { faults: lost, ..alone });
    let errors: u64 = windows[0].iter().map(|window| window.errors).sum();
    assert!((800..1200).contains(&errors), "a third of the requests find no node: {errors}");
}

/// What a node loses in a fault that lasts no time goes on elsewhere; then the node works again.
#[test]
fn a_fault_that_lasts_no_time_ends() {
    let at = 20 * SECOND;
    let kinds = [NodeFaultKind::Down, NodeFaultKind::DeviceLost(0), NodeFaultKind::Slow(1e6)];
    for kind in kinds {
        let faults = (0..3).map(|node| NodeFault { at, until: at, node, kind }).collect();
        let settings = Settings { network: 100_000, faults, ..cluster(3, 30.0, 60) };
        let windows = run(settings);
        let of = |queue: &str| -> u64 {
            let nodes = windows[1..].iter().flatten().filter(|window| window.queue == queue);
            nodes
                .filter(|window| window.start_unix_us >= 30_000_000)
                .map(|window| window.completions)
                .sum()
        };
        let errors: u64 = windows[0].iter().skip(3).map(|window| window.errors).sum();
        assert!(of("device/0") > 800 && of("origin") == 0 && errors == 0, "{kind:?}");
    }
}
