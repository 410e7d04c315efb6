//! `experiments/blowfish-served`: a shard of a served dataset under a load that triples at once.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use configuration::{Fill, Overload};
use ground::window::Window;
use record::RunFolder;
use report::svg::{Axis, Mark, Plot, standalone};
use serde::Deserialize;
use shard::index;
use shard::record::Format;

use super::oracle::{self, Frequencies, KEY, Kind, NAME, Question, Text, Words};
use super::system::{Layout, System, first_queue, layers_of};
use crate::claims::{Claim, Goal};
use crate::context::Context;
use crate::lab;
use crate::marks;
use crate::provenance::Round;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    text: PathBuf,
    /// Bytes of the text that are used: the shard.
    text_bytes: usize,
    /// Sampling of the index without layers, of both arrays.
    sampling: u32,
    words: Frequencies,
    questions: usize,
    checked: usize,
    queue_length_max: u32,
    layers_bytes: u64,
    connections: usize,
    /// What a closed loop gets without layers, in the unit of the loads.
    unit_of_smallest: f64,
    loads: Vec<f64>,
    capacity_clients: usize,
    capacity_s: f64,
    full: Part,
    short: Part,
    goals: Goals,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    /// How long each load lasts, seconds.
    hold_s: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Goals {
    sustained_s: f64,
    drained_s: f64,
    footprint: f64,
}

/// Length of a window.
const WINDOW_S: f64 = 0.5;
/// Windows over which throughput and length are taken.
const OVER: usize = 6;
/// A share of the rate that counts as all of it.
const ALL: f64 = 0.95;

/// A run: each series is of seconds since the load began, and a value.
struct Run {
    answered: Vec<(f64, f64)>,
    length: Vec<(f64, f64)>,
    footprint: Vec<(f64, f64)>,
    offered: Vec<(f64, f64)>,
    failed: u64,
    requests: u64,
    changes: Vec<String>,
}

/// Measures.
///
/// # Errors
/// If the text is missing, or a process fails.
pub fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let part = if context.short { &config.short } else { &config.full };
    let text = Text::read(&context.folder.canonicalize()?.join(&config.text))?;
    let text = text.first(config.text_bytes);
    let datasets = context.scratch.join("datasets");
    let file = context.scratch.join("text");
    text.write(&file)?;
    context.say(format!("making a shard of {} bytes", text.bytes()));
    let options = dataset::Options {
        format: Some(Format::Stanzas),
        columns: Vec::new(),
        header: shard::record::detect::Header::Given,
        key: Some(KEY.to_owned()),
        orders: Vec::new(),
        index: index::Options { sa_sampling: config.sampling, isa_sampling: config.sampling },
        shard_bytes: None,
        jobs: Some(1),
        memory_bytes: None,
        replace: false,
    };
    let made = dataset::import(&datasets, NAME, &[file], &options, &mut |_| {})?;
    ensure!(made.shards == 1, "{} shards in place of one", made.shards);
    let words = Words::of_text(&text, config.words);
    let questions = text.questions(Kind::FirstOfMedium, config.questions, &words, 7)?;
    let trace = oracle::write_trace(context.scratch.join("trace.csv"), &questions)?;
    let case = Case {
        context,
        config: &config,
        part,
        text: &text,
        questions,
        trace,
        base: made.shard_bytes as f64,
    };

    let capacity = case.capacity()?;
    context.say(format!("{capacity:.0}/s in a closed loop without layers"));
    let mut claims = vec![Claim::once("answered in a closed loop without layers", capacity, "/s")];
    let mut csv = "fill,what,second,value\n".to_owned();
    for (name, fill) in
        [("dedicated", Fill::Sweep), ("opportunistic", Fill::Queries), ("both", Fill::Both)]
    {
        let (run, wrong) = case.spike(name, fill, capacity / config.unit_of_smallest)?;
        for (what, series) in
            [("answered", &run.answered), ("length", &run.length), ("footprint", &run.footprint)]
        {
            for (at, value) in series {
                let _ = writeln!(csv, "{name},{what},{at:.2},{value:.4}");
            }
        }
        let notes = [format!("{} bytes; {}", text.bytes(), run.changes.join("; "))];
        write(context, &format!("{name}.svg"), &svg(name, &run, &notes))?;
        write(context, "served.csv", &csv)?;
        claims.extend(of_run(&config, part, name, &run, wrong));
    }
    Ok(claims)
}

fn unix_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

fn write(context: &Context, name: &str, text: &str) -> anyhow::Result<()> {
    let path = context.out.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

struct Case<'a> {
    context: &'a Context,
    config: &'a Config,
    part: &'a Part,
    text: &'a Text,
    questions: Vec<Question>,
    trace: PathBuf,
    /// Bytes of the shard without layers.
    base: f64,
}

impl Case<'_> {
    fn start(&self, name: &str, layers_bytes: u64, fill: Fill) -> anyhow::Result<System> {
        let (origin, folder) =
            (self.context.scratch.join("origin"), self.context.scratch.join(name));
        let is_filled = origin.exists();
        let system = System::start(&Layout {
            folder: &folder,
            origin: &origin,
            nodes: 0,
            replicas: 1,
            layers_bytes,
            window_s: WINDOW_S,
            fill,
            bound: Some((self.config.queue_length_max, Overload::Block)),
        })?;
        if !is_filled {
            system.push(&self.context.scratch.join("datasets"))?;
        }
        system.wait()?;
        Ok(system)
    }

    fn arguments(&self, how: &[String]) -> Vec<String> {
        let mut arguments = vec![
            format!("--trace={}", self.trace.display()),
            format!("--window={WINDOW_S}s"),
            "--sample-one-in=0".to_owned(),
            "--times=0".to_owned(),
            format!("--connections={}", self.config.connections),
            "--timeout=60s".to_owned(),
            "--warmup=1s".to_owned(),
            "--backlog=100000".to_owned(),
        ];
        arguments.extend_from_slice(how);
        arguments
    }

    /// Requests per second of a closed loop without layers.
    fn capacity(&self) -> anyhow::Result<f64> {
        let system = self.start("plain", 0, Fill::Sweep)?;
        let how = [
            format!("--clients={}", self.config.capacity_clients),
            format!("--duration={}s", self.config.capacity_s),
        ];
        let url = format!("{}{}", system.url()?, Kind::FirstOfMedium.path());
        let out = self.context.scratch.join("capacity");
        let run = lab::load(&url, &self.arguments(&how), &out, self.context.quiet)?;
        system.stop()?;
        let step = run.steps.first().context("the load was not measured")?;
        let windows = super::measured::windows(&run, "load", step);
        let seconds: f64 = windows.iter().map(|window| window.length_s).sum();
        let answered: u64 = windows.iter().map(|window| window.completions).sum();
        ensure!(answered > 0, "nothing was answered");
        Ok(answered as f64 / seconds)
    }

    /// The loads in turn; returns the run and the number of wrong answers before and after it.
    fn spike(&self, name: &str, fill: Fill, unit: f64) -> anyhow::Result<(Run, u64)> {
        let system = self.start(name, self.config.layers_bytes, fill)?;
        let sample = self.questions.get(..self.config.checked).unwrap_or(&self.questions);
        let mut wrong = self.text.wrong(&mut system.client()?, sample)?;
        let loads = &self.config.loads;
        let schedule: Vec<String> =
            loads.iter().map(|load| format!("{:.1}:{}s", load * unit, self.part.hold_s)).collect();
        let how = [format!("--schedule={}", schedule.join(",")), "--seed=3".to_owned()];
        let url = format!("{}{}", system.url()?, Kind::FirstOfMedium.path());
        let out = self.context.scratch.join(format!("{name}-load"));
        let done = AtomicBool::new(false);
        let mut held: Vec<(u64, f64)> = Vec::new();
        let load = std::thread::scope(|scope| -> anyhow::Result<RunFolder> {
            let loading = scope.spawn(|| {
                let run = lab::load(&url, &self.arguments(&how), &out, self.context.quiet);
                done.store(true, Ordering::Relaxed);
                run
            });
            while !done.load(Ordering::Relaxed) {
                // Administration is answered beside queries, however long their queue is.
                if let Ok(told) = layers_of(&system) {
                    let parts = told["parts"].as_array().into_iter().flatten();
                    let bytes: f64 =
                        parts.filter_map(|part| part["layers"]["bytes"].as_f64()).sum();
                    held.push((unix_us(), bytes));
                }
                std::thread::sleep(Duration::from_millis(500));
            }
            loading.join().map_err(|_| anyhow::anyhow!("the load's thread ended early"))?
        })?;
        let told = layers_of(&system)?;
        wrong += self.text.wrong(&mut system.client()?, sample)?;
        let runs = system.stop()?;
        let (_, node) = runs.first().context("a node records its run")?;
        let label = format!("spike, {name}");
        let facts = [("stolen", marks::stolen(&load)), ("processors_busy", marks::busy(&load))];
        self.context.provenance.round(Round::new(&label, 1, true).with(facts))?;
        let of_load: Vec<&Window> = load.windows.iter().filter(|w| w.queue == "load").collect();
        let begun = load.steps.first().context("nothing was sent")?.start_unix_us;
        let since = |unix_us: u64| (unix_us as f64 - begun as f64) * 1e-6;
        let of_shard = node.windows.iter().filter(|w| w.queue == first_queue());
        let text_bytes = self.text.bytes() as f64;
        let sum = |of: fn(&Window) -> u64| of_load.iter().map(|w| of(w)).sum::<u64>();
        let dropped: u64 = load.steps.iter().map(|step| step.generator.dropped).sum();
        let times = (0..loads.len()).map(|at| at as f64 * self.part.hold_s);
        let changes = told["changes"].as_array().cloned().unwrap_or_default();
        Ok((
            Run {
                answered: of_load
                    .iter()
                    .map(|w| (since(w.end_unix_us()), w.completions as f64 / w.length_s))
                    .filter(|(at, _)| *at > 0.0)
                    .collect(),
                length: of_shard
                    .map(|w| (since(w.end_unix_us()), w.length_integral_s / w.length_s))
                    .filter(|(at, _)| *at > 0.0)
                    .collect(),
                footprint: held
                    .into_iter()
                    .map(|(at, bytes)| (since(at), (self.base + bytes) / text_bytes))
                    .collect(),
                offered: times.zip(loads.iter().map(|load| load * unit)).collect(),
                failed: sum(|w| w.errors) + dropped,
                requests: sum(|w| w.completions),
                changes: changes.iter().filter_map(|c| c.as_str().map(str::to_owned)).collect(),
            },
            wrong,
        ))
    }
}

/// Time from `from` until `OVER` values in a row satisfy; all of the time if they never do.
fn until(
    series: &[(f64, f64)],
    from: f64,
    hold_s: f64,
    are: impl Fn(&[(f64, f64)]) -> bool,
) -> f64 {
    let within: Vec<(f64, f64)> = series
        .iter()
        .copied()
        .filter(|(at, _)| *at > from + WINDOW_S && *at <= from + hold_s)
        .collect();
    let found = within.windows(OVER).find(|few| are(few));
    found.and_then(|few| few.first()).map_or(hold_s, |(at, _)| at - from)
}

fn of_run(config: &Config, part: &Part, name: &str, run: &Run, wrong: u64) -> Vec<Claim> {
    let rises = run.offered.windows(2).filter(|pair| match pair {
        [(_, before), (_, after)] => after > before,
        _ => false,
    });
    let high = engine::layers::Settings::default().high;
    let (mut sustained, mut drained) = (0.0_f64, 0.0_f64);
    for rise in rises {
        let Some(&(from, rate)) = rise.get(1) else { continue };
        let mean = |few: &[(f64, f64)]| few.iter().map(|(_, v)| v).sum::<f64>() / few.len() as f64;
        sustained =
            sustained.max(until(&run.answered, from, part.hold_s, |few| mean(few) >= ALL * rate));
        drained = drained.max(until(&run.length, from, part.hold_s, |few| mean(few) < 2.0 * high));
    }
    let footprint = run.footprint.iter().map(|(_, footprint)| *footprint).fold(0.0, f64::max);
    let goals = &config.goals;
    let most = |name: String, value: f64, unit: &str, goal: f64| {
        Claim::once(name, value, unit).with_goal(Goal::AtMost(goal))
    };
    vec![
        most(
            format!("{name}: time until as much is answered as asked"),
            sustained,
            "s",
            goals.sustained_s,
        ),
        most(format!("{name}: time until the queue is short"), drained, "s", goals.drained_s),
        Claim::counted(format!("{name}: largest footprint"), footprint, "× input", 1)
            .with_goal(Goal::AtMost(goals.footprint)),
        Claim::counted(format!("{name}: failed requests"), run.failed as f64, "", run.requests)
            .with_goal(Goal::AtMost(0.0)),
        Claim::counted(
            format!("{name}: wrong answers"),
            wrong as f64,
            "",
            2 * config.checked as u64,
        )
        .with_goal(Goal::AtMost(0.0)),
    ]
}

fn svg(name: &str, run: &Run, notes: &[String]) -> String {
    let end = run.answered.iter().map(|(at, _)| *at).fold(1.0, f64::max);
    let plot = |title: &str, label: &str, points: &[(f64, f64)], log: bool| {
        let top = points.iter().map(|(_, value)| *value).fold(0.01, f64::max);
        let points = points.iter().map(|&(x, y)| (x, if log { y.max(0.01) } else { y })).collect();
        Plot {
            title: format!("{name}: {title}"),
            x: Axis::linear("seconds", 0.0, end),
            y: if log {
                Axis::log(label, 0.01, top * 1.2)
            } else {
                Axis::linear(label, 0.0, top * 1.1)
            },
            marks: vec![Mark::Line { class: "ours", label: String::new(), points }],
        }
    };
    let plots = [
        plot("footprint", "bytes held, × input", &run.footprint, false),
        plot("answered", "requests per second", &run.answered, false),
        plot("the shard's queue", "requests", &run.length, true),
    ];
    standalone(&plots, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_until_values_are_as_they_should() {
        let series: Vec<(f64, f64)> =
            (0..100).map(|at| (f64::from(at) * 0.5, if at < 40 { 1.0 } else { 2.0 })).collect();
        let are = |few: &[(f64, f64)]| few.iter().all(|(_, value)| *value > 1.5);
        assert!((until(&series, 10.0, 30.0, are) - 10.0).abs() < 1e-9);
        assert!((until(&series, 0.0, 15.0, are) - 15.0).abs() < 1e-9, "not in that time");
    }
}
