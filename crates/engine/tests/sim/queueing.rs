//! The engine's queues against queueing theory: response-time distributions within a point.

use engine::sim::{Law, Popularity, Simulation};
use ground::window::{Histogram, Outcome, SECOND, Window};
use model::distribution::Gamma;
use model::queue::{Mg1, erlang_c};

use crate::plain::Plain;

/// Maximum difference between a simulated distribution and the exact one.
const POINT: f64 = 0.01;

fn run(plain: &Plain) -> Vec<Vec<Window>> {
    let mut simulation = Simulation::new(plain.settings());
    simulation.preload(false);
    simulation.run_to((plain.seconds + 10) * SECOND);
    assert_eq!(simulation.counts().failed + simulation.counts().refused, 0);
    simulation.windows(true)
}

/// Response times at the clients, of one outcome or of all.
fn responses(windows: &[Vec<Window>], outcome: Option<Outcome>) -> Histogram {
    let mut all = Histogram::default();
    let times = windows[0].iter().flat_map(|window| &window.times);
    times.filter(|t| outcome.is_none_or(|o| t.outcome == o)).for_each(|t| all.merge(&t.response));
    all
}

fn agrees(what: &str, simulated: &Histogram, exact: impl Fn(f64) -> f64, times: &[f64]) {
    for &t in times {
        let (share, exact) = (simulated.share_within(t).unwrap(), exact(t));
        assert!((share - exact).abs() < POINT, "{what}, t = {t}: {share} simulated, {exact} exact");
    }
}

/// Uniform keys, all on the device and none in memory: every read is a read of the device. There
/// are so many keys that two readers seldom share a flight.
fn device(rate: f64, servers: u32, service: Law) -> Plain {
    Plain {
        nodes: 1,
        gateways: 0,
        rate,
        seconds: (300_000.0 / rate) as u64,
        keys: 100_000,
        popularity: Popularity::Uniform,
        memory_bytes: 0,
        servers,
        service,
    }
}

#[test]
fn a_device_with_one_server_is_an_mg1_queue() {
    for (rate, scv) in [(70.0, 0.5), (50.0, 1.0)] {
        let windows = run(&device(rate, 1, Law::gamma(0.01, scv).unwrap()));
        let exact = Mg1::new(rate, Gamma::new(0.01, scv).unwrap()).unwrap();
        let simulated = responses(&windows, None);
        let cdf = |t| exact.response_cdf(t);
        agrees(&format!("scv {scv}"), &simulated, cdf, &[0.005, 0.01, 0.02, 0.05, 0.1]);
        let device = windows[1].iter().filter(|w| w.queue == "device/0");
        let (busy, length) = device.fold((0.0, 0.0), |(b, l), w| (b + w.busy_s, l + w.length_s));
        let utilisation = busy / (length - 10.0);
        assert!((utilisation - exact.utilisation()).abs() < POINT, "{utilisation}");
    }
}

#[test]
fn a_device_with_several_servers_is_an_mmm_queue() {
    const SERVERS: u32 = 4;
    let (rate, mean) = (300.0, 0.01);
    let windows = run(&device(rate, SERVERS, Law::exponential(mean)));
    let rho = rate * mean / f64::from(SERVERS);
    let (wait, mu) = (erlang_c(SERVERS, rho), 1.0 / mean);
    // A request that waits does so for an exponential time of rate mµ − λ, and is then served.
    let drain = f64::from(SERVERS) * mu - rate;
    let exact = |t: f64| {
        let served = 1.0 - (-mu * t).exp();
        let both = 1.0 - (mu * (-drain * t).exp() - drain * (-mu * t).exp()) / (mu - drain);
        let equal = 1.0 - (1.0 + mu * t) * (-mu * t).exp();
        let waited = if (mu - drain).abs() < 1e-9 { equal } else { both };
        (1.0 - wait) * served + wait * waited
    };
    agrees("m = 4", &responses(&windows, None), exact, &[0.005, 0.01, 0.02, 0.05]);
}

#[test]
fn a_cluster_is_the_mixture_of_its_nodes() {
    let plain = Plain {
        nodes: 3,
        gateways: 1,
        rate: 200.0,
        seconds: 2500,
        keys: 60_000,
        // Half of each node's objects are in memory.
        memory_bytes: 10_000 * (100 + 40 + 4 + 72),
        ..device(200.0, 1, Law::exponential(0.01))
    };
    let settings = plain.settings();
    let windows = run(&plain);
    let (all, hits) = (responses(&windows, None), responses(&windows, Some(Outcome::Memory)));
    let q = hits.count() as f64 / all.count() as f64;
    assert!((q - 0.5).abs() < 0.02, "hit ratio {q}");
    let shares = settings.ring.shares();
    let exact = |t: f64| {
        let miss = |share: &f64| share * (1.0 - (-(100.0 - (1.0 - q) * 200.0 * share) * t).exp());
        q + (1.0 - q) * shares.iter().map(miss).sum::<f64>()
    };
    agrees("3 nodes", &all, exact, &[0.002, 0.01, 0.03, 0.1]);
}
