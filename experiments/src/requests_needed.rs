//! `experiments/requests-needed`: how many requests a prediction at 80 % of the saturation needs until
//! it is within 2 points, by the works of requests, by their responses alone, and by hand.
//!
//! Services run in virtual time, by code of its own: a fit and its judgement share nothing but the
//! recorded times.

use anyhow::Context as _;
use ground::window::{Finished, Operation, Outcome, Recorder, Settings, Window};
use model::fit::{Options, Request, Step, Times};
use model::queue::{Discipline, Mmm, Queue as _};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use report::grid::Grid;
use serde::{Deserialize, Serialize};

use super::claims::{Claim, Goal};
use super::context::Context;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    seed: u64,
    /// Mean work, seconds.
    work_s: f64,
    /// Loads that are fitted, as shares of the saturation, for equal times.
    fit_shares: Vec<f64>,
    judge_share: f64,
    /// Times that are judged, in mean responses at the judged load.
    times: Vec<f64>,
    /// Requests of a fit.
    requests: Vec<usize>,
    /// Runs of each.
    runs: u64,
    /// Requests of the run that gives the truth.
    truth: usize,
    service: Vec<Service>,
    short: Short,
}

/// What `--short` does.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Short {
    requests: Vec<usize>,
    runs: u64,
    truth: usize,
}

/// A simulated service.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Service {
    name: String,
    discipline: Discipline,
    servers: u32,
    /// SCV of work: 1 is exponential, any other lognormal.
    scv: f64,
    /// Time outside of the servers, mean works.
    outside: f64,
}

/// Points that are wanted.
const POINTS: f64 = 2.0;
/// Numbers of servers that M/M/m is tried with.
const SERVERS_MAX: u32 = 8;

/// Ways to a prediction.
const WAYS: [&str; 4] = [
    "works (fit --servers auto)",
    "responses alone (number given)",
    "M/M/1 by mean response",
    "M/M/m by mean response",
];

/// The worst error of each run, points.
#[derive(Debug, Serialize)]
struct Errors {
    service: String,
    way: &'static str,
    requests: usize,
    worst_points: Vec<f64>,
}

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let mut config: Config = context.config()?;
    if context.short {
        let short = &config.short;
        (config.requests, config.runs, config.truth) =
            (short.requests.clone(), short.runs, short.truth);
    }
    let mut all = Vec::new();
    let mut claims = Vec::new();
    for (number, service) in config.service.iter().enumerate() {
        context.say(&service.name);
        let seed = config.seed + 1_000 * number as u64;
        let truth = Truth::simulate(service, &config, seed);
        let mut errors: Vec<Vec<Errors>> = Vec::new();
        for (step, &requests) in config.requests.iter().enumerate() {
            let mut of: Vec<Errors> = WAYS
                .map(|way| Errors {
                    service: service.name.clone(),
                    way,
                    requests,
                    worst_points: Vec::new(),
                })
                .into();
            for run in 0..config.runs {
                let seed = seed + 10 * (1 + run) + 100 * step as u64;
                let runs = service.runs(&config, requests, seed);
                let found = predictions(service, &runs, &truth)?;
                for (errors, shares) in of.iter_mut().zip(found) {
                    errors.worst_points.push(truth.worst(&shares));
                }
            }
            errors.push(of);
        }
        for (way, title) in WAYS.into_iter().enumerate() {
            let means: Vec<(f64, f64)> = errors
                .iter()
                .map(|of| (of[way].requests as f64, mean(&of[way].worst_points)))
                .collect();
            let needed = needed(&means);
            let name =
                format!("{}: requests for ± {POINTS} points at 80 %, {}", service.name, title);
            let claim = Claim::counted(name, needed.round(), "", config.runs);
            let largest = *config.requests.last().context("no numbers of requests")? as f64;
            claims.push(if way == 0 { claim.with_goal(Goal::AtMost(largest)) } else { claim });
        }
        all.extend(errors.into_iter().flatten());
        context.say(text(&all, &service.name));
    }
    let path = context.out.join("errors.json");
    std::fs::write(&path, serde_json::to_string_pretty(&all)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(claims)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Where the mean of worst errors falls to the wanted one, between the numbers of requests by powers;
/// beyond them as by the square root of the last, at most a hundred times as many.
fn needed(means: &[(f64, f64)]) -> f64 {
    let Some(&(first, error)) = means.first() else { return f64::NAN };
    if error <= POINTS {
        return first;
    }
    for pair in means.windows(2) {
        let ((n, a), (m, b)) = (pair[0], pair[1]);
        if b <= POINTS {
            let slope = (m / n).ln() / (b / a).ln();
            return n * (slope * (POINTS / a).ln()).exp();
        }
    }
    let (largest, error) = means[means.len() - 1];
    largest * (error / POINTS).powi(2).min(100.0)
}

/// The table of a service.
fn text(all: &[Errors], service: &str) -> String {
    let mut grid = Grid::new("lrr", &["way", "requests", "mean of the worst errors, points"]);
    for one in all.iter().filter(|e| e.service == service) {
        grid.row([
            one.way.to_owned(),
            one.requests.to_string(),
            format!("{:.1}", mean(&one.worst_points)),
        ]);
    }
    grid.text()
}

/// What is judged.
struct Truth {
    rate: f64,
    times: Vec<f64>,
    shares: Vec<f64>,
}

impl Truth {
    fn simulate(service: &Service, config: &Config, seed: u64) -> Truth {
        let rate = config.judge_share * service.saturation(config);
        let all = service.run(config, rate, config.truth, seed);
        let all = &all[all.len() / 20..];
        let n = all.len() as f64;
        let mean = all.iter().map(|(a, d)| d - a).sum::<f64>() / n;
        let times: Vec<f64> = config.times.iter().map(|t| t * mean).collect();
        let share = |t: &f64| all.iter().filter(|(a, d)| d - a <= *t).count() as f64 / n;
        let shares = times.iter().map(share).collect();
        Truth { rate, times, shares }
    }

    /// The worst error, points.
    fn worst(&self, shares: &[f64]) -> f64 {
        let off = shares.iter().zip(&self.shares).map(|(a, b)| 100.0 * (a - b).abs());
        off.fold(0.0, f64::max)
    }
}

type Run = Vec<(f64, f64)>;

impl Service {
    fn saturation(&self, config: &Config) -> f64 {
        f64::from(self.servers) / config.work_s
    }

    /// Runs at the fitted loads: so many requests in all.
    fn runs(&self, config: &Config, requests: usize, seed: u64) -> Vec<(f64, Run)> {
        let all: f64 = config.fit_shares.iter().sum();
        let of = |(i, share): (usize, &f64)| {
            let rate = share * self.saturation(config);
            let n = (requests as f64 * share / all) as usize;
            (rate, self.run(config, rate, n, seed + i as u64))
        };
        config.fit_shares.iter().enumerate().map(of).collect()
    }

    /// Arrivals and departures in the order of arrival.
    fn run(&self, config: &Config, rate: f64, n: usize, seed: u64) -> Run {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut now, mut arrivals, mut works) = (0.0, Vec::new(), Vec::new());
        for _ in 0..n {
            now += exponential(&mut random) / rate;
            arrivals.push(now);
            works.push(self.work(config, &mut random));
        }
        let ends = match self.discipline {
            Discipline::Fifo => in_line(self.servers as usize, &arrivals, &works),
            Discipline::Shared => shared(f64::from(self.servers), &arrivals, &works),
            Discipline::Lines => {
                let lines = self.servers.max(1) as usize;
                let mut free = vec![0.0f64; lines];
                let each = arrivals.iter().zip(&works).map(|(arrival, work)| {
                    let line = &mut free[random.random_range(0..lines)];
                    *line = line.max(*arrival) + work;
                    *line
                });
                each.collect()
            }
        };
        let outside = self.outside * config.work_s;
        arrivals.into_iter().zip(ends).map(|(a, d)| (a, d + outside)).collect()
    }

    fn work(&self, config: &Config, random: &mut StdRng) -> f64 {
        if (self.scv - 1.0).abs() < 1e-9 {
            return config.work_s * exponential(random);
        }
        let variance = (1.0 + self.scv).ln();
        config.work_s * (variance.sqrt() * normal(random) - 0.5 * variance).exp()
    }
}

fn exponential(random: &mut StdRng) -> f64 {
    -(1.0 - random.random::<f64>()).ln()
}

/// Box and Muller's.
fn normal(random: &mut StdRng) -> f64 {
    let radius = (2.0 * exponential(random)).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}

fn in_line(servers: usize, arrivals: &[f64], works: &[f64]) -> Vec<f64> {
    let mut free = vec![0.0f64; servers];
    let of = |(arrival, work): (&f64, &f64)| {
        let first = free.iter_mut().min_by(|a, b| a.total_cmp(b));
        first.map_or(0.0, |server| {
            *server = server.max(*arrival) + work;
            *server
        })
    };
    arrivals.iter().zip(works).map(of).collect()
}

fn shared(servers: f64, arrivals: &[f64], works: &[f64]) -> Vec<f64> {
    let mut ends = vec![0.0; arrivals.len()];
    let mut inside: Vec<(usize, f64)> = Vec::new();
    let (mut now, mut next) = (0.0, 0);
    while next < arrivals.len() || !inside.is_empty() {
        let speed = (servers / inside.len().max(1) as f64).min(1.0);
        let least = inside.iter().map(|j| j.1).fold(f64::INFINITY, f64::min) / speed;
        let due = arrivals.get(next).map_or(f64::INFINITY, |a| a - now);
        let step = least.min(due).max(0.0);
        inside.iter_mut().for_each(|j| j.1 -= step * speed);
        now += step;
        if due <= least {
            inside.push((next, works[next]));
            next += 1;
        }
        inside.retain(|(i, left)| {
            let over = *left <= 1e-12;
            if over {
                ends[*i] = now;
            }
            !over
        });
    }
    ends
}

/// The judged shares by each way.
fn predictions(
    service: &Service,
    runs: &[(f64, Run)],
    truth: &Truth,
) -> anyhow::Result<[Vec<f64>; 4]> {
    let steps: Vec<Step> = runs.iter().map(|(rate, run)| step(*rate, run)).collect();
    let nothing = || vec![0.0; truth.times.len()];
    let of = |model: &model::Model| match model.cdf(truth.rate, &truth.times) {
        Ok(shares) => Ok(shares),
        // Past the saturation of a model nobody is answered in time for long.
        Err(model::Error::Unstable { .. }) => Ok(nothing()),
        Err(error) => Err(error),
    };
    let options = Options::default();
    let works = model::fit::work(&steps, None, &options)?;
    // Its intervals are not asked for here.
    let few = Options { replicates: 8, ..options };
    let alone = match model::fit::black_box(&steps, Some(service.servers), &few) {
        Ok(found) => of(&found.model)?,
        Err(model::Error::Unstable { .. }) => nothing(),
        Err(error) => return Err(error.into()),
    };
    let means: Vec<(f64, f64)> = runs
        .iter()
        .map(|(_, run)| {
            let (from, to) = (run.first().map_or(0.0, |r| r.0), run.last().map_or(1.0, |r| r.0));
            let rate = run.len() as f64 / (to - from);
            (rate, run.iter().map(|(a, d)| d - a).sum::<f64>() / run.len().max(1) as f64)
        })
        .collect();
    let by_hand = |most: u32| {
        let best = (1..=most).map(|m| by_mean(&means, m)).min_by(|a, b| a.2.total_cmp(&b.2));
        let (m, rate, _) = best.unwrap_or((1, 1.0, 0.0));
        match Mmm::new(truth.rate, rate, m) {
            Ok(queue) => truth.times.iter().map(|t| queue.response_cdf(*t)).collect(),
            Err(_) => nothing(),
        }
    };
    Ok([of(&works.model)?, alone, by_hand(1), by_hand(SERVERS_MAX)])
}

/// The service rate of M/M/m whose mean responses are nearest to the measured ones, relatively: m, the rate,
/// and the sum of squares.
fn by_mean(means: &[(f64, f64)], m: u32) -> (u32, f64, f64) {
    let off = |rate: f64| -> f64 {
        let each = means.iter().map(|&(load, response)| {
            Mmm::new(load, rate, m).map_or(1e6, |q| (q.response_mean() / response - 1.0).powi(2))
        });
        each.sum()
    };
    let fastest = means.iter().map(|m| 1.0 / m.1).fold(0.0, f64::max);
    // By ever finer steps about the best.
    let (mut best, mut width) = ((f64::INFINITY, fastest), 0.9);
    for _ in 0..7 {
        let centre = best.1;
        for i in -20..=20 {
            let rate = centre * (1.0 + width * f64::from(i) / 20.0).max(1e-3);
            let now = off(rate);
            if now < best.0 {
                best = (now, rate);
            }
        }
        width *= 0.3;
    }
    (m, best.1, best.0)
}

/// A run as a fit reads it.
fn step(rate: f64, run: &[(f64, f64)]) -> Step {
    let request = |&(arrival_s, departure_s): &(f64, f64)| Request {
        arrival_s,
        departure_s,
        operation: Operation::Get,
        outcome: Outcome::Unknown,
        bytes: 0,
        key: 0,
        counted: true,
    };
    let requests = run.iter().map(request).collect();
    Step {
        name: format!("{rate}/s"),
        load: windows(run),
        times: Some(Times { requests, open: true, ..Times::default() }),
        ..Step::default()
    }
}

/// The clients' windows of a run.
fn windows(run: &[(f64, f64)]) -> Vec<Window> {
    let nanos = |s: f64| (s * 1e9) as u64;
    let mut events: Vec<(u64, bool, u64)> = Vec::new();
    for (arrival, departure) in run {
        events.push((nanos(*arrival), true, 0));
        events.push((nanos(*departure), false, nanos(departure - arrival).max(1)));
    }
    events.sort_unstable();
    let end = run.last().map_or(0, |r| nanos(r.0));
    let mut recorder = Recorder::new("load", 0, Settings::default(), 0);
    let mut all = Vec::new();
    for (at, comes, response) in events.into_iter().take_while(|e| e.0 < end) {
        all.extend(recorder.roll(at));
        if comes {
            recorder.arrive(at);
            recorder.start(at);
            continue;
        }
        let (operation, outcome) = (Operation::Get, Outcome::Unknown);
        let finished =
            Finished { operation, outcome, waiting: 0, service: response, response, bytes: 0 };
        recorder.finish(at, &finished);
    }
    all.extend(recorder.roll(end));
    all
}
