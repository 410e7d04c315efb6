//! `experiments/shard-served`: queries of real records over HTTP in an open loop, on one node
//! alone and on a gateway before several.
//!
//! Every server is a process of its own, the load generator another. The capacity of a system
//! is measured in a closed loop first; rates are shares of it. The queues of the shards are read
//! from the nodes' own run folders: M/G/1 predicts their response at high loads from their service
//! times at the lightest.

mod claims;
mod config;
mod findings;
mod measured;
mod oracle;
pub mod spike;
mod system;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use ground::window::Window;

use super::claims::Claim;
use super::context::Context;
use super::lab;
use super::marks::{self};
use super::provenance::Round;
use config::Config;
use configuration::Fill;
use findings::{Findings, LayersRow, Row};
use measured::Foretold;
use oracle::{Kind, Question, Text, Words};
use record::{RunFolder, Step};
use system::{Layout, System, first_queue, layers_of};

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let mut config: Config = context.config()?;
    if context.short {
        config.shorten();
    }
    ensure!(
        config.load.shares.is_sorted() && config.load.shares.len() > 1,
        "shares: two at least, ascending"
    );
    let folder = context.folder.canonicalize()?;
    let text = Text::read(&folder.join(&config.text))?;
    context.say(format!(
        "{} records, {} B: making {} shards",
        text.records(),
        text.bytes(),
        config.shards
    ));
    text.import(&context.scratch.join("datasets"), config.shards)?;
    let words = Words::of_text(&text, config.words);
    let mut case = Case {
        context,
        config: &config,
        text: &text,
        words,
        findings: Findings {
            records: text.records(),
            text_bytes: text.bytes(),
            ..Findings::default()
        },
    };
    for (name, nodes) in [("one node", 0), ("gateway", config.system.nodes)] {
        case.measure(name, nodes)?;
        // Measurements are recorded even if a later one fails.
        case.record()?;
    }
    case.measure_layers()?;
    case.record()?;
    Ok(claims::claims(&config, &case.findings))
}

/// The questions and the measurements.
struct Case<'a> {
    context: &'a Context,
    config: &'a Config,
    text: &'a Text,
    words: Words,
    findings: Findings,
}

/// A load of one kind of question.
struct QuestionLoad {
    kind: Kind,
    questions: Vec<Question>,
    trace: PathBuf,
}

impl Case<'_> {
    fn start(&self, name: &str, nodes: usize, layers_bytes: u64) -> anyhow::Result<System> {
        let (origin, folder) = (self.context.scratch.join("origin"), self.folder(name));
        let is_filled = origin.exists();
        let system = System::start(&Layout {
            folder: &folder,
            origin: &origin,
            nodes,
            replicas: self.config.system.replicas,
            layers_bytes,
            window_s: self.config.system.window_s,
            fill: Fill::Sweep,
            bound: None,
        })?;
        if !is_filled {
            self.context.say("pushing the dataset");
            system.push(&self.context.scratch.join("datasets"))?;
        }
        system.wait()?;
        Ok(system)
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.context.scratch.join(name.replace(' ', "-"))
    }

    fn question_load(&self, kind: Kind) -> anyhow::Result<QuestionLoad> {
        // Another stream of random numbers for each kind.
        let seed = 1 + kind as u64;
        let questions = self.text.questions(kind, self.config.load.questions, &self.words, seed)?;
        let path = self.context.scratch.join(format!("{}.csv", kind.file()));
        Ok(QuestionLoad { kind, trace: oracle::write_trace(path, &questions)?, questions })
    }

    /// Compares a sample of replies with the scan's results.
    fn check(&mut self, system: &System, asked: &QuestionLoad) -> anyhow::Result<()> {
        let sample = asked.questions.get(..self.config.load.checked).unwrap_or(&asked.questions);
        self.findings.wrong += self.text.wrong(&mut system.client()?, sample)?;
        self.findings.checked += sample.len() as u64;
        Ok(())
    }

    fn load(
        &self,
        system: &System,
        asked: &QuestionLoad,
        how: &[String],
        out: &Path,
    ) -> anyhow::Result<RunFolder> {
        let url = format!("{}{}", system.url()?, asked.kind.path());
        let mut arguments = vec![
            format!("--trace={}", asked.trace.display()),
            format!("--window={}s", self.config.system.window_s),
            "--sample-one-in=0".to_owned(),
        ];
        arguments.extend_from_slice(how);
        lab::load(&url, &arguments, out, self.context.quiet)
    }

    /// The throughput of a closed loop without think time, requests/s.
    fn capacity(&self, system: &System, asked: &QuestionLoad, out: &Path) -> anyhow::Result<f64> {
        let how = [
            format!("--clients={}", self.config.load.capacity_clients),
            "--warmup=0.5s".to_owned(),
            format!("--duration={}s", self.config.load.capacity_s),
        ];
        let run = self.load(system, asked, &how, out)?;
        let step = run.steps.first().context("the load was not measured")?;
        let windows = measured::windows(&run, "load", step);
        let seconds: f64 = windows.iter().map(|w| w.length_s).sum();
        let answered: u64 =
            windows.iter().map(|w| w.completions - w.errors.min(w.completions)).sum();
        ensure!(answered > 0, "nothing was answered: {}", asked.kind.in_words());
        Ok(answered as f64 / seconds)
    }

    /// All kinds at all rates through one system.
    fn measure(&mut self, name: &str, nodes: usize) -> anyhow::Result<()> {
        let system = self.start(name, nodes, 0)?;
        let mut rows = Vec::new();
        for kind in Kind::ALL {
            let asked = self.question_load(kind)?;
            self.check(&system, &asked)?;
            let place = |what: &str| self.folder(name).join(format!("{}-{what}", kind.file()));
            let capacity = self.capacity(&system, &asked, &place("capacity"))?;
            for &share in &self.config.load.shares {
                let row =
                    self.step(&system, name, &asked, capacity, share, &place(&share.to_string()))?;
                self.context.say(row.in_words());
                rows.push(row);
            }
            self.check(&system, &asked)?;
        }
        let runs = system.stop()?;
        for row in &mut rows {
            row.queues =
                runs.iter().flat_map(|(p, run)| measured::queues(p, run, &row.step)).collect();
        }
        if nodes == 0 {
            let (_, run) = runs.first().context("a node records its run")?;
            foretell(run, &mut rows);
        }
        self.findings.rows.extend(rows);
        Ok(())
    }

    fn step(
        &self,
        system: &System,
        name: &str,
        asked: &QuestionLoad,
        capacity: f64,
        share: f64,
        out: &Path,
    ) -> anyhow::Result<Row> {
        let (warmup_s, measure_s) = (self.config.load.warmup_s, self.config.load.measure_s);
        let before = system.cpu_s()?;
        let rate = capacity * share;
        let run = self.load(system, asked, &open_loop(rate, warmup_s, measure_s, share), out)?;
        let after = system.cpu_s()?;
        // Warm-up and step have the same rate; the processes do little without requests.
        let sent = rate * (warmup_s + measure_s);
        let cpu_us = before
            .into_iter()
            .zip(after)
            .map(|((process, was), (_, is))| (process, (is - was) / sent * 1e6))
            .collect();
        let step = run.steps.first().context("the load was not measured")?.clone();
        let windows = measured::windows(&run, "load", &step);
        let goals = self.config.goals;
        let label = format!("{name}, {}, {:.0} %", asked.kind.in_words(), share * 100.0);
        let smallest_s = goals.node_p99_ms.min(goals.gateway_p99_ms) * 1e-3;
        let facts = [("stolen", marks::stolen(&run)), ("processors_busy", marks::busy(&run))];
        self.context.provenance.round(Round::new(&label, 1, true).with(facts))?;
        Ok(Row {
            system: name.to_owned(),
            kind: asked.kind,
            capacity_per_s: capacity,
            share,
            rate_per_s: rate,
            requests: windows.iter().map(|w| w.completions).sum(),
            failed: failed(&windows, &step, asked.kind),
            p50_ms: measured::quantile_ms(&windows, 0.5),
            p99_ms: measured::quantile_ms(&windows, 0.99),
            cpu_us,
            stolen: marks::stolen(&run),
            marks: marks::of_run(&label, &run, smallest_s),
            step,
            queues: Vec::new(),
            foretold: Vec::new(),
            foretold_by_own: Vec::new(),
        })
    }

    /// The same load on one node without layers and with them, as its queues call for them.
    fn measure_layers(&mut self) -> anyhow::Result<()> {
        let layers = self.config.layers;
        let asked = self.question_load(Kind::FirstOfMedium)?;
        let mut rate = None;
        for bytes in [0, layers.bytes] {
            let name = if bytes == 0 { "layers off" } else { "layers on" };
            let system = self.start(name, 0, bytes)?;
            self.check(&system, &asked)?;
            let folder = self.folder(name);
            let rate = match rate {
                Some(rate) => rate,
                None => *rate.insert(
                    layers.share * self.capacity(&system, &asked, &folder.join("capacity"))?,
                ),
            };
            let how = open_loop(rate, layers.warmup_s, layers.measure_s, layers.share);
            let run = self.load(&system, &asked, &how, &folder.join("load"))?;
            let told = layers_of(&system)?;
            self.check(&system, &asked)?;
            let step = run.steps.first().context("the load was not measured")?;
            let windows = measured::windows(&run, "load", step);
            let runs = system.stop()?;
            let (process, node) = runs.first().context("a node records its run")?;
            let row = LayersRow {
                layers_bytes: bytes,
                rate_per_s: rate,
                requests: windows.iter().map(|w| w.completions).sum(),
                failed: failed(&windows, step, asked.kind),
                p50_ms: measured::quantile_ms(&windows, 0.5),
                p99_ms: measured::quantile_ms(&windows, 0.99),
                queue_length_mean: measured::length(&measured::windows(node, &first_queue(), step)),
                queues: measured::queues(process, node, step),
                told,
            };
            self.context.say(format!(
                "{name}: {rate:.0}/s, p99 {:.2} ms, the first shard's queue {:.2} on average",
                row.p99_ms.value, row.queue_length_mean.value
            ));
            self.findings.layers.push(row);
        }
        Ok(())
    }

    fn record(&self) -> anyhow::Result<()> {
        let write = |name: &str, text: &str| {
            let path = self.context.out.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write("served.json", &serde_json::to_string_pretty(&self.findings)?)?;
        let table = claims::table(&self.findings);
        self.context.say(&table);
        write("served.txt", &table)?;
        self.context.record(&claims::claims(self.config, &self.findings)).map(drop)
    }
}

/// Arguments of a load of Poisson arrivals.
fn open_loop(rate: f64, warmup_s: f64, measure_s: f64, share: f64) -> Vec<String> {
    vec![
        format!("--rate={rate}"),
        format!("--warmup={warmup_s}s"),
        format!("--duration={measure_s}s"),
        // Other arrivals at each load.
        format!("--seed={}", 1 + (share * 1000.0) as u64),
    ]
}

/// Requests of a load that failed: errors, arrivals never sent, and, where the length of every reply
/// is known, all requests if the sum of the lengths differs.
fn failed(windows: &[&Window], step: &Step, kind: Kind) -> u64 {
    let sum = |of: fn(&Window) -> u64| windows.iter().map(|w| of(w)).sum::<u64>();
    let (requests, errors) = (sum(|w| w.completions), sum(|w| w.errors));
    let others = kind.answer_bytes().is_some_and(|bytes| {
        sum(|w| w.bytes) != bytes * requests.saturating_sub(errors) && errors == 0
    });
    if others { requests } else { errors + step.generator.dropped }
}

/// Predicts the first shard's queue for searches of medium words, which all meet it first, at all
/// loads but the lightest.
fn foretell(run: &RunFolder, rows: &mut [Row]) {
    let mut rows = rows.iter_mut().filter(|row| row.kind == Kind::MediumWord);
    let Some(lightest) = rows.next() else { return };
    let service = measured::windows(run, &first_queue(), &lightest.step);
    for row in rows {
        let at = measured::windows(run, &first_queue(), &row.step);
        // If the law has no steady state there is no figure, and the claim is not shown.
        let none = || vec![Foretold::NONE];
        row.foretold = measured::foretell(&service, &at).unwrap_or_else(|_| none());
        row.foretold_by_own = measured::foretell(&at, &at).unwrap_or_else(|_| none());
    }
}
