//! What is timed of ours: each task gives an answer, so that it can be checked and not be left out.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use engine::gateway::Spread;
use engine::node::OriginSettings;
use engine::route::{Member, Policy, Ring};
use engine::sim::drawn::{self, DrawnCluster, Hits};
use engine::sim::{Arrivals, Law};
use ground::window::{Histogram, Nanos, Outcome};
use model::Model;
use model::design::{Bootstrap, Factorial, Form};
use model::distribution::{Empirical, Gamma, Lognormal, ServiceTime};
use model::network::{Class, Network, Station};
use model::plan::{Choices, DeviceChoice, Memory, Objective, Question, SizeLaw, plan};
use model::queue::{Mg1, Queue as _};
use model::storage::Popularity;
use rand::SeedableRng as _;
use rand_distr::{Distribution as _, Exp};

use super::super::queue_laws::simulate::{Draw, Random, Servers};
use super::events;

/// Shortest duration of a round, seconds.
const ROUND_S: f64 = 0.02;

/// Seconds of one call, from as many as a round takes, and its answer.
pub fn per_call(mut task: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<(f64, f64)> {
    let mut calls = 1u32;
    loop {
        let start = Instant::now();
        let mut answer = 0.0;
        for _ in 0..calls {
            answer = black_box(task()?);
        }
        let seconds = start.elapsed().as_secs_f64();
        if seconds >= ROUND_S || calls >= 1 << 24 {
            return Ok((seconds / f64::from(calls), answer));
        }
        calls = calls.saturating_mul(2);
    }
}

/// The throughput of a closed network of stations with `servers` servers each.
pub fn network(customers: u32, stations: u32, servers: u32) -> anyhow::Result<f64> {
    let demands: Vec<f64> = (0..stations).map(|k| (1.0 + f64::from(k) / 10.0) / 1000.0).collect();
    let named = |k: u32| Station::servers(&format!("s{k}"), servers);
    let stations = (0..stations).map(named).collect::<Result<Vec<_>, _>>()?;
    let class = Class::closed("work", customers, 0.0, &demands)?;
    let solution = Network::new(stations, vec![class])?.solve()?;
    ensure!(solution.method.is_exact(), "the network was solved by an approximation");
    Ok(solution.classes[0].throughput)
}

/// A law that was measured: 100,000 gamma times of mean 1 s and SCV 0.5 in a histogram.
pub fn empirical_law() -> anyhow::Result<Empirical> {
    let draw = Draw::Gamma(rand_distr::Gamma::new(2.0, 0.5)?);
    let mut random = Random::seed_from_u64(1);
    let mut times = Histogram::default();
    for _ in 0..100_000 {
        times.record((draw.draw(&mut random) * 1e9) as u64);
    }
    Ok(Empirical::from_histogram(&times)?)
}

/// Equal steps up to an end.
pub fn times(points: u32, end_s: f64) -> Vec<f64> {
    (1..=points).map(|i| end_s * f64::from(i) / f64::from(points)).collect()
}

/// The sum of the response-time CDF of M/G/1 at many times.
pub fn cdf<D: ServiceTime + Clone>(
    law: &D,
    utilisation: f64,
    times: &[f64],
) -> anyhow::Result<f64> {
    let queue = Mg1::new(utilisation / law.mean(), law.clone())?;
    Ok(queue.response_cdfs(times).iter().sum())
}

/// The largest error of the interpolated CDF.
pub fn cdf_error<D: ServiceTime + Clone>(
    law: &D,
    utilisation: f64,
    times: &[f64],
) -> anyhow::Result<f64> {
    let queue = Mg1::new(utilisation / law.mean(), law.clone())?;
    let found = queue.response_cdfs(times);
    let errors = times.iter().zip(found).map(|(&t, share)| (share - queue.response_cdf(t)).abs());
    Ok(errors.fold(0.0, f64::max))
}

/// The law with a formula.
pub fn formula(scv: f64) -> anyhow::Result<Gamma> {
    Ok(Gamma::new(1.0, scv)?)
}

/// A law with a heavy tail, whose transform has no formula.
pub fn heavy() -> anyhow::Result<Lognormal> {
    Ok(Lognormal::new(1.0, 4.0)?)
}

/// The mean response time of some `requests` requests before three servers, each of which serves 1/s: by the simulator
/// of clusters, as a node with one device and no hits.
pub fn simulate_cluster(requests: u64, arrivals_per_s: f64) -> anyhow::Result<f64> {
    let second = ground::window::SECOND;
    let device = drawn::DeviceSettings {
        name: "device/0".to_owned(),
        outcome: Outcome::BulkDevice,
        servers: 3,
        queue_length_max: 1_000_000,
        law: Law::exponential(1.0),
        weight: 1.0,
    };
    let seconds = requests as f64 / arrivals_per_s;
    let windows = ground::window::Settings {
        window_ns: (seconds / 100.0 * second as f64) as Nanos,
        ..ground::window::Settings::default()
    };
    let mut run = DrawnCluster::new(drawn::Settings {
        seed: 1,
        ring: Arc::new(Ring::new(vec![Member::new("node", 1.0)], 1)?),
        devices: vec![device],
        origin: OriginSettings { servers: 1, queue_length_max: 1 },
        origin_half: Law::constant(0.0),
        hits: Hits::default(),
        memory: Law::constant(0.0),
        delay: Law::constant(0.0),
        arrivals: Arrivals::Poisson(arrivals_per_s),
        until: (seconds * second as f64) as Nanos,
        write_share: 0.0,
        bytes: 0,
        network: 0,
        gateways: 0,
        spread: Spread::Primary,
        policy: Policy::default(),
        ping_interval: second,
        faults: Vec::new(),
        windows,
    });
    run.run_to(Nanos::MAX / 2);
    let windows = run.windows(false).swap_remove(0);
    let times = windows.iter().flat_map(|window| &window.times);
    let (mut sum_s, mut count) = (0.0, 0);
    for times in times {
        sum_s += times.response.sum_s();
        count += times.response.count();
    }
    Ok(sum_s / count as f64)
}

/// The mean response time of `requests` requests before three servers, each of which serves 1/s: by
/// a list of events.
pub fn simulate(requests: u64, arrivals_per_s: f64) -> anyhow::Result<f64> {
    let mut random = Random::seed_from_u64(2);
    let (gap, service) = (Exp::new(arrivals_per_s)?, Exp::new(1.0)?);
    let customers = usize::try_from(requests)?;
    let records = events::simulate(customers, 3, &gap, &service, &mut random);
    Ok(records.iter().map(|r| r.left - r.arrived).sum::<f64>() / requests as f64)
}

/// The same by the recursion of Kiefer and Wolfowitz, which keeps no list.
pub fn recursion(requests: u64, arrivals_per_s: f64) -> anyhow::Result<f64> {
    let mut random = Random::seed_from_u64(2);
    let (gap, service) = (Exp::new(arrivals_per_s)?, Exp::new(1.0)?);
    let mut servers = Servers::new(3);
    let mut sum = 0.0f64;
    for _ in 0..requests {
        let (gap, service): (f64, f64) = (gap.sample(&mut random), service.sample(&mut random));
        sum += servers.serve(gap, service) + service;
    }
    Ok(sum / requests as f64)
}

/// The largest fraction of variation's upper end in a 2^3·3 design, from `samples` bootstrap
/// samples.
pub fn bootstrap(samples: usize) -> anyhow::Result<f64> {
    let cell = |i: u32| {
        let mean = 100.0 + 40.0 * f64::from(i & 1) + 15.0 * f64::from((i >> 1) & 1) + f64::from(i);
        [-1.0, 0.5, 0.75].map(|noise| mean + noise * f64::from(1 + i % 3)).to_vec()
    };
    let cells: Vec<Vec<f64>> = (0..8).map(cell).collect();
    let design = Factorial::new(&cells, Form::Additive, 0.95)?;
    let mut random = Random::seed_from_u64(3);
    let found = Bootstrap::new(&design, samples, &mut random)?;
    let upper = found.effects.iter().map(|effect| effect.fraction[1]);
    Ok(upper.fold(0.0, f64::max))
}

/// Choices that make 10,000 configurations for each number of servers.
fn choices(servers: u32) -> anyhow::Result<Choices> {
    Ok(Choices {
        servers: (1..=servers).collect(),
        server_price: 200.0,
        memory: Memory {
            // The largest, so that no size has all hits and every objective can be missed.
            fitted: 400.0,
            sizes: (1..=25).map(|i| 16.0 * f64::from(i)).collect(),
            price: 1.0,
            hits: SizeLaw::Power(Popularity::zipf(0.8)?),
        },
        devices: vec![DeviceChoice {
            class: "bulk_device".to_owned(),
            counts: (1..=40).collect(),
            price: 40.0,
            holds: None,
            reads: None,
            service_s: None,
        }],
        replicas: (1..=10).collect(),
        replica_price: 10.0,
        ..Choices::default()
    })
}

/// The model of the folder.
pub fn fitted(folder: &Path) -> anyhow::Result<Model> {
    let path = folder.join("model.toml");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Model::from_toml(&text)?)
}

/// How many configurations are looked at, of 10,000 for each number of servers: all of them, as the
/// objective is one that none holds, and each is stable.
pub fn plan_all(model: &Model, servers: u32) -> anyhow::Result<f64> {
    let objective = Objective { share: 0.999_999, within_s: 1e-4 };
    let found = plan(model, &Question::new(objective, 20.0), &choices(servers)?)?;
    ensure!(found.ranked.is_empty(), "a configuration holds what none can");
    ensure!(found.evaluated >= found.configurations, "only {} were looked at", found.evaluated);
    Ok(found.evaluated as f64)
}

#[cfg(test)]
mod tests {
    use model::queue::{Mm1, Mmm};

    use super::*;

    #[test]
    fn tasks_answer_what_is_known() {
        // One customer meets nobody: the throughput is one over all demands.
        let alone = network(1, 10, 1).unwrap();
        assert!((alone - 1.0 / 0.0145).abs() < 1e-9, "{alone}");
        // Many saturate the slowest station.
        let many = network(2_000, 10, 4).unwrap();
        assert!((many / (4.0 / 0.0019) - 1.0).abs() < 1e-6, "{many}");
        let exact = Mmm::new(2.4, 1.0, 3).unwrap().response_mean();
        for simulated in [simulate(200_000, 2.4), recursion(200_000, 2.4)] {
            let simulated = simulated.unwrap();
            assert!((simulated / exact - 1.0).abs() < 0.05, "{simulated} {exact}");
        }
        let upper = bootstrap(200).unwrap();
        assert!((0.5..=1.0).contains(&upper), "{upper}");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("model-speed");
        assert_eq!(plan_all(&fitted(&folder).unwrap(), 1).unwrap(), 10_000.0);
    }

    #[test]
    fn interpolated_laws_are_near_the_laws() {
        let times = times(300, 10.0);
        let exponential = Gamma::new(1.0, 1.0).unwrap();
        let single = Mm1::new(0.8, 1.0).unwrap();
        let exact: f64 = times.iter().map(|&t| single.response_cdf(t)).sum();
        assert!((cdf(&exponential, 0.8, &times).unwrap() / exact - 1.0).abs() < 1e-5);
        assert!(cdf_error(&formula(0.4).unwrap(), 0.8, &times).unwrap() < 1e-4);
        assert!(cdf_error(&empirical_law().unwrap(), 0.8, &times).unwrap() < 1e-3);
        assert!((empirical_law().unwrap().scv() - 0.5).abs() < 0.02);
    }

    #[test]
    fn a_failing_task_is_an_error() {
        assert!(per_call(|| anyhow::bail!("no answer")).is_err());
        let (seconds, answer) = per_call(|| Ok(3.0)).unwrap();
        assert!(seconds > 0.0 && answer == 3.0);
    }
}
