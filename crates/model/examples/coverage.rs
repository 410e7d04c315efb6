//! How often what a service does at loads that were not measured is within the intervals of a fit to its arrivals and departures.
//!
//! `cargo run --release -p model --example coverage -- FILE key=value …` fits simulated services whose truth is known, one line of
//! tab-separated values for each fit, and appends it to FILE; fits that FILE has already are left out, so that a run that was ended goes
//! on where it was. Without keys it prints the table of FILE. Keys, each a list: `laws` ([`Law`]), `servers`, `hits` (shares), `clocks` (us,
//! ms, 10ms, s: stamps in whole seconds with durations in ms), `requests` (of all steps), `loads` (of a FILE of their own), `seeds` (first..end); `program`: the path of
//! `concertina`, whose commands then import and fit an access log of each service in the place of this library. Fitted at 30, 50 and 70 % of
//! the capacity or at the loads, judged at 80 and 90 % within 2, 5 and 10 mean works, and by the saturation. The truth is a simulation of [`TRUE`] requests,
//! which has an error of its own, two standard deviations of which are no miss; FILE.truth keeps it.

// The library reads no files; this keeps its results in one.
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::error::Error;
use std::io::Write;

use ground::window::{Finished, Nanos, Operation, Outcome, Recorder, Settings, Window};
use model::Model;
use model::fit::{Options, Request, Step, Times, black_box, has_times, work};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, Gamma, LogNormal};

const MEAN_S: f64 = 0.010;
const JUDGED: [f64; 2] = [0.8, 0.9];
const WITHIN_S: [f64; 3] = [0.02, 0.05, 0.1];
/// Requests of a truth.
const TRUE: usize = 10_000_000;
const BATCHES: usize = 100;
/// What a truth is known to at least, as a share.
const TRUTH_ERROR: f64 = 0.0005;
/// Hits take 0.1 to 0.3 ms.
const HIT_S: [f64; 2] = [1e-4, 2e-4];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Law {
    Exponential,
    Lognormal(f64),
    Deterministic,
    Uniform,
    /// With an exponent of 2.5.
    Pareto,
    /// With an exponent of 2.2, up to 200 times the least work: an SCV of 1.9.
    ShortPareto,
    /// Of this shape: an SCV of one over it.
    Gamma(f64),
    /// Of this shape, with the mean of the law of scale 1: SCVs of 2.1 (0.7) and 3.1 (0.6).
    Weibull {
        shape: f64,
        mean: f64,
    },
    /// This part takes the first, the others the second, in means.
    Bimodal {
        part: f64,
        first: f64,
        second: f64,
    },
}

impl Law {
    fn from_name(name: &str) -> Option<Law> {
        Some(match name {
            "exponential" => Law::Exponential,
            "lognormal1" => Law::Lognormal(1.0),
            "lognormal4" => Law::Lognormal(4.0),
            "deterministic" => Law::Deterministic,
            "uniform" => Law::Uniform,
            // A standard deviation of the logarithm of 1.5.
            "lognormal8" => Law::Lognormal(2.25f64.exp() - 1.0),
            "pareto" => Law::Pareto,
            "pareto22" => Law::ShortPareto,
            "gamma" => Law::Gamma(0.5),
            "gamma3" => Law::Gamma(3.0),
            "erlang4" => Law::Gamma(4.0),
            "weibull" => Law::Weibull { shape: 0.7, mean: 1.265_823_506_057_283_6 },
            "weibull6" => Law::Weibull { shape: 0.6, mean: 1.504_575_488_251_556 },
            "bimodal" => Law::Bimodal { part: 0.9, first: 0.5, second: 5.5 },
            "bimodal25" => Law::Bimodal { part: 5.0 / 6.0, first: 0.2, second: 5.0 },
            _ => return None,
        })
    }

    /// A work, seconds.
    fn draw(self, random: &mut StdRng) -> f64 {
        let relative = match self {
            Law::Exponential => random.sample::<f64, _>(Exp1),
            Law::Lognormal(scv) => {
                let variance = (1.0 + scv).ln();
                LogNormal::new(-0.5 * variance, variance.sqrt())
                    .map_or(1.0, |law| law.sample(random))
            }
            Law::Deterministic => 1.0,
            Law::Uniform => 2.0 * random.random::<f64>(),
            Law::Pareto => 0.6 * (1.0 - random.random::<f64>()).powf(-0.4),
            Law::ShortPareto => {
                let (a, most) = (2.2f64, 200f64);
                let beyond = most.powf(-a);
                let mean = a / (a - 1.0) * (1.0 - most.powf(1.0 - a)) / (1.0 - beyond);
                (1.0 - random.random::<f64>() * (1.0 - beyond)).powf(-1.0 / a) / mean
            }
            Law::Gamma(shape) => {
                Gamma::new(shape, 1.0 / shape).map_or(1.0, |law| law.sample(random))
            }
            Law::Weibull { shape, mean } => random.sample::<f64, _>(Exp1).powf(1.0 / shape) / mean,
            Law::Bimodal { part, first, second } => {
                if random.random::<f64>() < part {
                    first
                } else {
                    second
                }
            }
        };
        MEAN_S * relative
    }
}

#[derive(Clone, Debug)]
struct Cell {
    law: String,
    servers: usize,
    hits: f64,
    clock: String,
    /// Requests of a fit, hits among them.
    requests: f64,
    /// The loads of its steps, in capacities.
    loads: Vec<f64>,
}

/// A service: its law, and its servers in line.
#[derive(Clone, Copy)]
struct Service {
    law: Law,
    servers: usize,
}

impl Service {
    /// Arrivals and departures of requests that use the servers.
    fn run(
        self,
        utilisation: f64,
        requests: usize,
        random: &mut StdRng,
        mut each: impl FnMut(f64, f64),
    ) {
        let rate = utilisation * self.servers as f64 / MEAN_S;
        // Times as integers of a picosecond, which a heap orders.
        let mut free: BinaryHeap<std::cmp::Reverse<u64>> =
            (0..self.servers).map(|_| std::cmp::Reverse(0)).collect();
        let mut now = 0.0;
        for _ in 0..requests {
            now += random.sample::<f64, _>(Exp1) / rate;
            let earliest = free.pop().map_or(0.0, |free| free.0 as f64 * 1e-12);
            let end = now.max(earliest) + self.law.draw(random);
            free.push(std::cmp::Reverse((end * 1e12) as u64));
            each(now, end);
        }
    }

    /// Shares within [`WITHIN_S`] at each of [`JUDGED`], each with its standard deviation, by batches.
    fn truth(self) -> Vec<(f64, f64)> {
        let of = |(i, utilisation): (usize, &f64)| {
            let mut random = StdRng::seed_from_u64(77 + i as u64);
            let mut within = [[0u32; BATCHES]; WITHIN_S.len()];
            let (mut at, size) = (0usize, TRUE / BATCHES);
            self.run(*utilisation, TRUE, &mut random, |from, end| {
                let counts = within.iter_mut().zip(WITHIN_S);
                counts.for_each(|(n, t)| n[at / size] += u32::from(end - from <= t));
                at += 1;
            });
            within.map(|counts| {
                let shares = counts.map(|n| f64::from(n) / size as f64);
                let mean = shares.iter().sum::<f64>() / BATCHES as f64;
                let square: f64 = shares.iter().map(|share| (share - mean).powi(2)).sum();
                (mean, square.sqrt() / BATCHES as f64)
            })
        };
        JUDGED.iter().enumerate().flat_map(of).collect()
    }
}

fn nanos(seconds: f64) -> Nanos {
    (seconds.max(0.0) * 1e9).round() as Nanos
}

/// Windows of a second, as an import makes them, or shorter ones of a short log, whose last one would be lost.
fn windows(all: &[(f64, f64)], seconds: f64) -> Vec<Window> {
    let mut events: Vec<(Nanos, bool, Nanos)> = Vec::with_capacity(2 * all.len());
    for (from, end) in all {
        events.push((nanos(*from), false, 0));
        events.push((nanos(*end), true, nanos(end - from).max(1)));
    }
    events.sort_unstable();
    let settings = Settings::default();
    let window_ns = settings.window_ns.min(nanos(seconds / 8.0).max(1));
    let settings = Settings { window_ns, ..settings };
    let mut recorder = Recorder::new("load", 0, settings, 0);
    let mut made = Vec::new();
    for (time, ends, taken) in events.into_iter().take_while(|event| event.0 < nanos(seconds)) {
        made.extend(recorder.roll(time));
        if ends {
            let (operation, outcome) = (Operation::Get, Outcome::Unknown);
            let finished = Finished {
                operation,
                outcome,
                waiting: 0,
                service: taken,
                response: taken,
                bytes: 0,
            };
            recorder.finish(time, &finished);
        } else {
            recorder.arrive(time);
            recorder.start(time);
        }
    }
    made.extend(recorder.roll(nanos(seconds)));
    made
}

impl Cell {
    /// The ticks of departures and of responses, seconds.
    fn ticks(&self) -> (f64, f64) {
        match self.clock.as_str() {
            "us" => (1e-6, 1e-6),
            "ms" => (1e-3, 1e-3),
            "10ms" => (1e-2, 1e-2),
            _ => (1.0, 1e-3),
        }
    }

    fn step(&self, service: Service, utilisation: f64, random: &mut StdRng) -> Step {
        let part = utilisation / self.loads.iter().sum::<f64>();
        let requests = self.requests * part;
        let served = ((1.0 - self.hits) * requests) as usize;
        let mut all = Vec::new();
        service.run(utilisation, served, random, |from, end| all.push((from, end)));
        let seconds = all.last().map_or(0.0, |last: &(f64, f64)| last.0);
        for _ in served..requests as usize {
            let from = random.random::<f64>() * seconds;
            all.push((from, from + HIT_S[0] + HIT_S[1] * random.random::<f64>()));
        }
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (clock_s, resolution_s) = self.ticks();
        let floor = |time: f64, tick: f64| (time / tick).floor() * tick;
        let mut requests = Vec::with_capacity(all.len());
        for (from, end) in &all {
            let departure_s = floor(*end, clock_s);
            // Of stamps in whole seconds the duration is the difference of two readings of a clock of milliseconds.
            let taken = floor(*end, resolution_s) - floor(*from, resolution_s);
            let (operation, outcome) = (Operation::Get, Outcome::Unknown);
            let arrival_s = departure_s - taken.max(0.0);
            requests.push(Request {
                arrival_s,
                departure_s,
                operation,
                outcome,
                bytes: 0,
                key: 0,
                counted: true,
            });
        }
        // An import spreads completions over their tick, and responses evenly over what they may have been.
        let spread: Vec<(f64, f64)> = requests
            .iter()
            .enumerate()
            .map(|(i, r)| {
                let taken = r.departure_s - r.arrival_s;
                let even = (i as f64 * 0.618_034).fract() - (i as f64 * 0.414_214).fract();
                let taken = (taken + resolution_s * even).abs();
                let end = r.departure_s + clock_s * random.random::<f64>();
                (end - taken, end)
            })
            .collect();
        Step {
            name: format!("{utilisation}"),
            load: windows(&spread, seconds),
            times: Some(Times {
                requests,
                clock_s,
                resolution_s,
                is_timed_apart: false,
                open: true,
            }),
            ..Step::default()
        }
    }

    /// An access log of steps that follow each other.
    fn log(&self, steps: &[Step]) -> String {
        let mut log = String::new();
        let mut begins = 1.7e9;
        for times in steps.iter().filter_map(|step| step.times.as_ref()) {
            let ends = times.requests.iter().map(|request| request.departure_s);
            let last = ends.fold(0.0, f64::max);
            for (i, request) in times.requests.iter().enumerate() {
                let (end, taken) =
                    (begins + request.departure_s, request.departure_s - request.arrival_s);
                log += &match self.clock.as_str() {
                    "us" => format!("{end:.6} 200 {taken:.6} 512 \"GET /{} HTTP/1.1\"\n", i % 999),
                    "ms" => format!("{end:.3} 200 {taken:.3} 512 \"GET /{} HTTP/1.1\"\n", i % 999),
                    "10ms" => {
                        format!("{end:.2} 200 {taken:.2} 512 \"GET /{} HTTP/1.1\"\n", i % 999)
                    }
                    _ => format!(
                        "10.0.0.7 - - [{}] \"GET /{} HTTP/1.1\" 200 512 \"-\" \"-\" {taken:.3}\n",
                        stamp(end - 1.7e9),
                        i % 999
                    ),
                };
            }
            begins += last.ceil() + 1.0;
        }
        log
    }

    fn title(&self) -> String {
        let Cell { law, servers, hits, clock, requests, .. } = self;
        format!("{law}\t{servers}\t{hits}\t{clock}\t{requests}")
    }
}

/// A fitted model with what is printed of it.
struct Fitted {
    model: Model,
    title: String,
    score: f64,
}

fn fitted(steps: &[Step]) -> Result<Fitted, Box<dyn Error>> {
    if has_times(steps) {
        let found = work(steps, None, &Options::default())?;
        let first = found.hypotheses.first().ok_or("no hypothesis")?;
        let (title, score) = (first.title(), first.score);
        return Ok(Fitted { model: found.model, title, score });
    }
    let found = black_box(steps, None, &Options::default())?;
    let title =
        found.servers.likeliest.map_or_else(|| "no limit".to_owned(), |m| format!("{m} servers"));
    Ok(Fitted { model: found.model, title, score: 0.0 })
}

/// Seconds of processor time of this process and of the commands that it ran.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(4).filter_map(|t| t.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// The commands of a program, and where they leave their files.
struct Commands {
    program: String,
    path: String,
}

impl Commands {
    /// The output of a command.
    fn run(&self, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
        let done = std::process::Command::new(&self.program).args(arguments).output()?;
        let said = String::from_utf8_lossy(&done.stderr).trim().replace('\n', " ");
        if done.status.success() { Ok(()) } else { Err(said.into()) }
    }

    /// Imports and fits a log of the steps.
    fn fitted(&self, cell: &Cell, steps: &[Step], seed: u64) -> Result<Fitted, Box<dyn Error>> {
        // Files of their own, because nothing is overwritten or removed.
        let name = cell.title().replace('\t', "-");
        let of = |extension: &str| {
            format!("{}.{name}-{seed}-{}.{extension}", self.path, std::process::id())
        };
        let (log, out, file) = (of("log"), of("run"), of("toml"));
        let mut opened = std::fs::OpenOptions::new().write(true).create_new(true).open(&log)?;
        opened.write_all(cell.log(steps).as_bytes())?;
        let format = r#"$msec $status $request_time $body_bytes_sent "$request""#;
        let options: &[&str] = if cell.clock == "s" { &[] } else { &["--log-format", format] };
        self.run(&[&["import", &log, "--out", &out], options].concat())?;
        self.run(&["fit", &out, "--servers", "auto", "--out", &file])?;
        let model = Model::from_toml(&std::fs::read_to_string(&file)?)?;
        let first = model.hypotheses.first();
        let title = first.map_or_else(|| "responses alone".to_owned(), |first| first.title());
        let score = first.map_or(0.0, |first| first.score);
        Ok(Fitted { model, title, score })
    }
}

/// A stamp of the common log format.
fn stamp(seconds: f64) -> String {
    let second = seconds as u64;
    let (minute, hour) = (second / 60 % 60, second / 3_600);
    format!("{:02}/Nov/2023:{:02}:{minute:02}:{:02} +0000", 1 + hour / 24, hour % 24, second % 60)
}

/// The line of a fit.
fn judge(
    cell: &Cell,
    service: Service,
    truth: &[(f64, f64)],
    seed: u64,
    commands: Option<&Commands>,
) -> String {
    let mut random = StdRng::seed_from_u64(seed);
    let steps = cell.loads.iter().map(|u| cell.step(service, *u, &mut random));
    let steps: Vec<Step> = steps.collect();
    let before = cpu_s();
    let found = commands.map_or_else(|| fitted(&steps), |by| by.fitted(cell, &steps, seed));
    let cpu = cpu_s() - before;
    let head = format!("{}\t{seed}", cell.title());
    let Fitted { model, title, score } = match found {
        Ok(found) => found,
        Err(error) => return format!("{head}\t0\t0\t0\t0\t{cpu:.1}\trefused: {error}"),
    };
    let (mut inside, mut width, mut told) = (0, 0.0, String::new());
    let each = JUDGED.iter().flat_map(|u| WITHIN_S.map(|t| (u, t)));
    for ((utilisation, t), (share, deviation)) in each.zip(truth) {
        let rate = utilisation * service.servers as f64 / MEAN_S / (1.0 - cell.hits);
        let share = cell.hits + (1.0 - cell.hits) * share;
        match model.within(rate, t) {
            Ok(p) => {
                let error = (2.0 * deviation).max(TRUTH_ERROR);
                inside += u32::from((p.low - error..=p.high + error).contains(&share));
                width += p.high - p.low;
                let (low, high) = (100.0 * (p.low - share), 100.0 * (p.high - share));
                told += &format!(" {:+.1}[{low:+.1} {high:+.1}]", 100.0 * (p.value - share));
            }
            Err(_) => {
                width += 1.0;
                told += " past saturation";
            }
        }
    }
    let servers = model.classes.first().map_or(0, |class| class.servers);
    let right = servers as usize == service.servers && !title.contains("shared");
    let law = &model.classes[0].service;
    let (mean, scv) = (&law.mean, &law.scv);
    let off = |x: f64| 100.0 * (x / MEAN_S - 1.0);
    let most = service.servers as f64 / MEAN_S / (1.0 - cell.hits);
    let saturation = model.limits().map(|limits| limits.saturation).ok();
    let saturates = saturation.as_ref().is_some_and(|s| (s.low..=s.high).contains(&most));
    let [low, high] = saturation.map_or([0.0; 2], |s| [s.low / most, s.high / most]);
    format!(
        "{head}\t{inside}\t{:.1}\t{}\t{}\t{cpu:.1}\t{title} ({score:.2}) saturation [{low:.2} {high:.2}] work {:+.1} [{:+.1} {:+.1}] % scv {:.2} [{:.2} {:.2}] outside {:.2} ms q0 {:.3};{told}",
        100.0 * width / truth.len() as f64,
        u8::from(right),
        u8::from(saturates),
        off(mean.value),
        off(mean.low),
        off(mean.high),
        scv.value,
        scv.low,
        scv.high,
        1e3 * model.requests.front_delay.value,
        model.requests.q0.value,
    )
}

/// A table of a file's lines by cell.
fn table(text: &str) {
    let mut cells: BTreeMap<String, Vec<Vec<&str>>> = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields.len() == 12 {
            cells.entry(fields[..5].join("\t")).or_default().push(fields);
        }
    }
    println!(
        "law\tservers\thits\tclock\trequests\tfits\tright\tinside\tof\t%\tall six\tnone\twidth\tsaturation\tcpu s\trefused"
    );
    let value = |fields: &Vec<&str>, i: usize| fields[i].parse::<f64>().unwrap_or(0.0);
    for (cell, fits) in &cells {
        let n = fits.len() as f64;
        let sum = |i: usize| fits.iter().map(|fields| value(fields, i)).sum::<f64>();
        let with = |count: f64| fits.iter().filter(|fields| value(fields, 6) == count).count();
        let refused = fits.iter().filter(|fields| fields[11].starts_with("refused")).count();
        println!(
            "{cell}\t{n}\t{}\t{}\t{}\t{:.1}\t{}\t{}\t{:.1}\t{}\t{:.1}\t{refused}",
            sum(8),
            sum(6),
            6.0 * n,
            100.0 * sum(6) / (6.0 * n),
            with(6.0),
            with(0.0),
            sum(7) / n,
            sum(9),
            sum(10) / n,
        );
    }
}

/// The truth of a service, from a file that keeps it, or simulated.
fn known_truth(path: &str, law: &str, service: Service) -> Result<Vec<(f64, f64)>, Box<dyn Error>> {
    let head = format!("{law}\t{}\t{TRUE}\t", service.servers);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    if let Some(known) = text.lines().find_map(|line| line.strip_prefix(&head)) {
        let values: Vec<f64> = known.split('\t').map(str::parse).collect::<Result<_, _>>()?;
        return Ok(values.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect());
    }
    let truth = service.truth();
    let values: Vec<String> =
        truth.iter().flat_map(|t| [t.0.to_string(), t.1.to_string()]).collect();
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
    writeln!(file, "{head}{}", values.join("\t"))?;
    Ok(truth)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: coverage FILE [key=value …]")?;
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    let mut keys: BTreeMap<String, String> = BTreeMap::new();
    for argument in arguments {
        let (key, value) = argument.split_once('=').ok_or("keys are key=value")?;
        keys.insert(key.to_owned(), value.to_owned());
    }
    if keys.is_empty() {
        table(&known);
        return Ok(());
    }
    let list = |key: &str, otherwise: &str| -> Vec<String> {
        keys.get(key).map_or(otherwise, String::as_str).split(',').map(str::to_owned).collect()
    };
    let loads = list("loads", "0.3,0.5,0.7");
    let loads: Vec<f64> = loads.iter().map(|load| load.parse()).collect::<Result<_, _>>()?;
    let program = keys.get("program").cloned();
    let commands = program.map(|program| Commands { program, path: path.clone() });
    let seeds = list("seeds", "0..4")[0].clone();
    let (first, end) = seeds.split_once("..").ok_or("seeds are first..end")?;
    let seeds = first.parse::<u64>()?..end.parse::<u64>()?;
    let has = |line: &str| line.split('\t').take(6).collect::<Vec<_>>().join("\t");
    let known: BTreeSet<String> = known.lines().map(has).collect();
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path)?;
    for law in list("laws", "exponential,lognormal1,lognormal4,deterministic,uniform,pareto") {
        for servers in list("servers", "1,2,3,4") {
            let servers: usize = servers.parse()?;
            let service = Service { law: Law::from_name(&law).ok_or("unknown law")?, servers };
            let mut truth = Vec::new();
            for hits in list("hits", "0,0.35") {
                let of = |clock: String, requests: f64| {
                    let (law, hits) = (law.clone(), hits.parse());
                    hits.map(|hits| Cell {
                        law,
                        servers,
                        hits,
                        clock,
                        requests,
                        loads: loads.clone(),
                    })
                };
                let mut cells = Vec::new();
                for requests in list("requests", "24000") {
                    for clock in list("clocks", "us,ms,10ms,s") {
                        cells.push(of(clock, requests.parse()?)?);
                    }
                }
                let seeded = cells.iter().flat_map(|cell| seeds.clone().map(move |s| (cell, s)));
                for (cell, seed) in seeded {
                    if known.contains(&format!("{}\t{seed}", cell.title())) {
                        continue;
                    }
                    if truth.is_empty() {
                        truth = known_truth(&format!("{path}.truth"), &law, service)?;
                    }
                    let line = judge(cell, service, &truth, seed, commands.as_ref());
                    writeln!(file, "{line}")?;
                    println!("{line}");
                }
            }
        }
    }
    Ok(())
}
