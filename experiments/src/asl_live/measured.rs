//! The measurement of all rows, and what came of each.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use ground::window::Window;
use model::laws::{self, Check, TOLERANCE, Verdict};
use model::statistics::batch_means;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use record::{HostSampler, RunFolder};
use serde::Serialize;

use super::config::{Settings, Times};
use super::parameters::{POOL, of_step, total};
use super::predict::Prediction;
use super::rows::{Row, System, Work};
use super::system::{Lab, LoadPlan};
use crate::context::Context;
use crate::marks::{Complaint, Mark};
use crate::provenance::Round;

/// By how much the processors may be busier than in another repetition of a row of which the machine is
/// the limit: what is more was not the row's own work.
const BUSIER_MAX: f64 = 0.15;

/// One repetition of a row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Repetition {
    /// Requests/s, and keys/s of gets (found ones).
    pub throughput: f64,
    /// See `throughput`.
    pub keys_per_s: f64,
    /// Mean response time, seconds.
    pub response_s: f64,
    /// Requests behind it.
    pub requests: f64,
    /// Length of the steady part, seconds.
    pub steady_s: f64,
    /// Share of the keys that was missing: by the servers' counts, and by the clients'.
    pub missing_servers: Option<f64>,
    /// See `missing_servers`.
    pub missing_clients: Option<f64>,
    /// Deviations of the interactive law, percent, of each generator, and how many of them are
    /// broken.
    pub interactive_percent: Vec<f64>,
    /// See `interactive_percent`.
    pub broken: u32,
    /// Replies that were errors.
    pub errors: u64,
    /// Mean busy and stolen shares of the processors.
    pub busy: f64,
    /// See `busy`.
    pub stolen: f64,
    /// What the generators complained about.
    pub complaints: Vec<String>,
    /// In the middlewares: mean wait for a worker and time with one, seconds, and the mean number
    /// that waits at each middleware.
    pub waiting_s: Option<f64>,
    /// See `waiting_s`.
    pub serving_s: Option<f64>,
    /// See `waiting_s`.
    pub waiting: Option<f64>,
    /// Start and end, microseconds since 1970.
    #[serde(skip)]
    pub(super) bounds_us: (u64, u64),
}

/// A row with its prediction and all repetitions.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredRow {
    /// The row.
    pub row: Row,
    /// What was predicted before.
    pub prediction: Prediction,
    /// What was measured.
    pub repetitions: Vec<Repetition>,
}

impl MeasuredRow {
    /// Mean and half width of the 95 % interval over repetitions of a figure.
    pub fn mean(&self, of: impl Fn(&Repetition) -> f64) -> (f64, f64) {
        let values: Vec<f64> = self.repetitions.iter().map(of).collect();
        let only = values.first().copied().unwrap_or(f64::NAN);
        batch_means(&values).map_or((only, f64::NAN), |e| (e.mean, e.half_width))
    }

    /// The mean of a figure that not every row has.
    pub fn mean_of_known(&self, of: impl Fn(&Repetition) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.repetitions.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// How far a prediction is from what was measured, percent, with the half width that the
    /// measurement leaves it. Batches differ in size, so for them keys/s are compared.
    pub fn error(&self, predicted: f64, batch_keys: Option<f64>, found: f64) -> (f64, f64) {
        let (predicted, (mean, half)) = match (self.row.work, batch_keys) {
            (Work::Batches, Some(keys)) => (predicted * keys * found, self.mean(|r| r.keys_per_s)),
            _ => (predicted, self.mean(|r| r.throughput)),
        };
        let error = (predicted / mean - 1.0) * 100.0;
        (error, predicted / mean * half / mean * 100.0)
    }

    /// What disturbed its repetitions.
    pub fn marks(&self) -> Vec<Mark> {
        let mut marks = Vec::new();
        let least = self.repetitions.iter().map(|one| one.busy).fold(f64::INFINITY, f64::min);
        for (i, one) in self.repetitions.iter().enumerate() {
            let step = format!("{}, repetition {}", self.row.name(), i + 1);
            for complaint in &one.complaints {
                marks.push(Mark::new(&step, Complaint::Generator, complaint.clone()));
            }
            if self.row.system.limited && one.busy > 0.8 {
                let busy = format!("the processors were {:.0} % busy", one.busy * 100.0);
                marks.push(Mark::new(&step, Complaint::Processor, busy));
            }
            // Where the machine is the limit it may be full, but not fuller than in another repetition.
            if !self.row.system.limited && one.busy > least + BUSIER_MAX {
                let (busy, least) = (one.busy * 100.0, least * 100.0);
                let detail = format!(
                    "the processors were {busy:.0} % busy, in another repetition {least:.0} %"
                );
                marks.push(Mark::new(&step, Complaint::Processor, detail));
            }
            if one.stolen > 0.05 {
                let stolen =
                    format!("the hypervisor took {:.1} % of the processors", one.stolen * 100.0);
                marks.push(Mark::new(&step, Complaint::Stolen, stolen));
            }
        }
        marks
    }
}

/// Measures all rows, repetition by repetition, in random order; systems are kept for all their
/// rows.
pub fn measure(
    context: &Context,
    lab: &mut Lab,
    rows: Vec<(Row, Prediction)>,
    settings: &Settings,
    times: &Times,
) -> anyhow::Result<Vec<MeasuredRow>> {
    let mut all: Vec<MeasuredRow> = rows
        .into_iter()
        .map(|(row, prediction)| MeasuredRow { row, prediction, repetitions: Vec::new() })
        .collect();
    let mut groups: BTreeMap<System, Vec<usize>> = BTreeMap::new();
    for (i, one) in all.iter().enumerate() {
        groups.entry(one.row.system).or_default().push(i);
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(settings.seed);
    for repetition in 1..=settings.repetitions {
        let mut order: Vec<(System, Vec<usize>)> = groups.clone().into_iter().collect();
        order.shuffle(&mut random);
        for (system, mut members) in order {
            members.shuffle(&mut random);
            lab.become_system(system)?;
            for &i in &members {
                let one = all.get_mut(i).context("a row is missing")?;
                let seed = u64::from(repetition) * 1000 + i as u64;
                let made = repeat(lab, one, settings, times, seed)?;
                let round = Round::new(&one.row.name(), repetition, true).with([
                    ("requests_per_s", made.throughput),
                    ("response_ms", made.response_s * 1e3),
                    ("busy", made.busy),
                ]);
                context.provenance.round(round)?;
                context.say(format!(
                    "{repetition}: {}: {:.1}/s, predicted {:.1}/s",
                    one.row.name(),
                    made.throughput,
                    one.prediction.network
                ));
                one.repetitions.push(made);
            }
            let windows = lab.stop_middlewares()?;
            for &i in &members {
                let middlewares = f64::from(system.middlewares);
                if let Some(last) = all.get_mut(i).and_then(|one| one.repetitions.last_mut()) {
                    last.inside(&windows, middlewares);
                }
            }
        }
    }
    Ok(all)
}

/// One repetition of a row in the present system.
fn repeat(
    lab: &mut Lab,
    one: &MeasuredRow,
    settings: &Settings,
    times: &Times,
    seed: u64,
) -> anyhow::Result<Repetition> {
    let MeasuredRow { row, prediction, .. } = one;
    let expected = prediction.network.max(1.0);
    let response_s = (f64::from(row.clients) / expected - settings.think_ms / 1e3).max(0.0);
    let steady_s = (times.requests / expected).clamp(times.shortest, times.longest);
    let asked = LoadPlan {
        work: row.work,
        clients: vec![row.clients],
        think_ms: settings.think_ms,
        ramp_s: times.ramp,
        measure_s: steady_s + 1.5 * response_s,
        seed,
        stored_only: false,
    };
    let before = lab.counts()?;
    let mut sampler = HostSampler::start();
    let runs = lab.load(&asked)?;
    let host = sampler.sample();
    let after = lab.counts()?;
    let mut made = Repetition {
        busy: host.cpu_user + host.cpu_system,
        stolen: host.cpu_stolen,
        ..Repetition::default()
    };
    let each = f64::from(row.clients) / runs.len() as f64;
    for run in &runs {
        made.add(run, each as u64, settings.think_ms / 1e3)?;
    }
    made.response_s /= made.throughput;
    let read = (after.hits - before.hits, after.misses - before.misses);
    if row.work != Work::Writes && read.0 + read.1 > 0 {
        made.missing_servers = Some(read.1 as f64 / (read.0 + read.1) as f64);
    }
    made.keys_per_s /= settings.value_bytes as f64;
    if let Work::Reads(keys) = row.work {
        let asked_for = made.throughput * f64::from(keys);
        made.missing_clients = Some(1.0 - made.keys_per_s / asked_for);
    }
    Ok(made)
}

impl Repetition {
    /// Adds what one generator measured; sums, of which means are made at the end.
    fn add(&mut self, run: &RunFolder, clients: u64, think_s: f64) -> anyhow::Result<()> {
        let step = run.steps.first().context("the generator completed no step")?;
        let windows = of_step(run, step);
        let sum = total(&windows);
        ensure!(sum.completions > 0.0, "a generator measured no request");
        let rate = sum.completions / sum.seconds;
        self.throughput += rate;
        self.response_s += rate * sum.response_s / sum.completions;
        self.requests += sum.completions;
        self.steady_s = self.steady_s.max(sum.seconds);
        let inside = |w: &&Window| {
            w.queue == "load" && (step.start_unix_us..step.end_unix_us).contains(&w.start_unix_us)
        };
        let own: Vec<&Window> = run.windows.iter().filter(inside).collect();
        self.keys_per_s += own.iter().map(|w| w.bytes as f64).sum::<f64>() / sum.seconds;
        self.errors += own.iter().map(|w| w.errors).sum::<u64>();
        let law: Check = laws::interactive("load", clients, think_s, &windows, TOLERANCE)?;
        self.interactive_percent.push(law.deviation_percent);
        self.broken += u32::from(law.verdict == Verdict::Broken);
        self.complaints.extend(step.generator.complaints.iter().cloned());
        self.bounds_us = (step.start_unix_us, step.end_unix_us);
        Ok(())
    }

    /// What the middlewares saw of it.
    fn inside(&mut self, windows: &[Window], middlewares: f64) {
        let (from, to) = self.bounds_us;
        let own = |w: &&Window| w.queue == POOL && (from..to).contains(&w.start_unix_us);
        let (mut count, mut waiting, mut serving, mut seconds) = (0.0, 0.0, 0.0, 0.0);
        for window in windows.iter().filter(own) {
            seconds += window.length_s / middlewares;
            for times in &window.times {
                count += times.waiting.count() as f64;
                waiting += times.waiting.sum_s();
                serving += times.service.sum_s();
            }
        }
        if count > 0.0 {
            self.waiting_s = Some(waiting / count);
            self.serving_s = Some(serving / count);
            self.waiting = Some(waiting / seconds / middlewares);
        }
    }
}
