//! Measures the capacity of a store: reads and writes alone for each size, then the law between
//! them, judged on mixes that the fit did not use.
//!
//! A closed loop's clients are doubled until the throughput stops growing: at reads alone and
//! writes alone of each size. Then all points, and mixes that are not fitted, are measured in turn with that many
//! clients, several times, so that a drift of the machine falls on all of them. The shares of a mix are of its
//! requests: the harmonic mean is the reading that should hold, and the arithmetic one is shown beside it
//! ([`model::capacity::Shares`]).
//!
//! - `settings`: what is measured; `results`: what is found.
//! - `files`: the folder of a survey of a file system. `keys`: the requests, as one trace with a slice for each point. `judge`: the law and its error, from what
//!   was measured. `text`: the output for people.

mod files;
mod judge;
mod keys;
mod results;
mod settings;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail, ensure};
use ground::number::percent;
use model::capacity::MixPart;
use model::statistics::batch_means;

pub use files::Folder;
pub use judge::judge;
use keys::Requests;
pub use keys::bytes_of_objects;
use load::{Keys, Length, Load, Plan, Progress, Session, Size, Think};
pub use results::{ClientSearch, Judged, MeasuredPoint, Reads, Survey};
pub use settings::Settings;

/// A doubling of the clients that gains less than this is fruitless; two of them end the search.
const GAIN: f64 = 0.05;
const PATIENCE: usize = 2;
/// Seconds of a step of the search, as a part of those of a repetition.
const SEARCH: f64 = 0.5;

/// Measures, fits and judges. `stop` ends it with an error that says what was measured; run folders are kept.
pub fn run(
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(&Progress),
) -> anyhow::Result<Survey> {
    let sizes = settings.sizes.iter();
    let alone: Vec<Vec<MixPart>> = sizes
        .flat_map(|&size| [1.0, 0.0].map(|read_share| vec![part(size, read_share, 1.0)]))
        .collect();
    let all: Vec<Vec<MixPart>> = alone.iter().chain(&settings.mixes).cloned().collect();
    let (clients, saturated, mut points) =
        measure(settings, &all, alone.len(), true, stop, progress)?;
    let mixes = points.split_off(alone.len());
    judge(settings.repeat, ClientSearch { clients, saturated }, points, mixes, &settings.wanted)
}

/// Measures reads alone. Nothing is written, so every object must be there.
pub fn reads(
    settings: &Settings,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(&Progress),
) -> anyhow::Result<Reads> {
    let all: Vec<Vec<MixPart>> =
        settings.sizes.iter().map(|&size| vec![part(size, 1.0, 1.0)]).collect();
    let (clients, saturated, points) = measure(settings, &all, all.len(), false, stop, progress)?;
    Ok(Reads { clients, saturated, points })
}

/// Measures points, with the clients that saturate the first `alone` of them. With `fill`, every object is put
/// before.
fn measure(
    settings: &Settings,
    all: &[Vec<MixPart>],
    alone: usize,
    fill: bool,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(&Progress),
) -> anyhow::Result<(usize, bool, Vec<MeasuredPoint>)> {
    ensure!(!settings.sizes.is_empty() && settings.repeat >= 1, "nothing to measure");
    std::fs::create_dir_all(&settings.plan.out)?;
    let requests = Requests::write(&settings.plan.out.join("requests.csv"), all, settings)?;
    let bench = Bench { settings, requests: &requests, stop };
    if fill {
        bench.fill(progress)?;
        bench.go_on(|| "nothing was measured".to_owned())?;
    }
    let (clients, saturated) = bench.search(all, alone, progress)?;
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); all.len()];
    let mut failed: Vec<(u64, u64, u64)> = vec![(0, 0, 0); all.len()];
    let mut busy = vec![0.0f64; all.len()];
    for turn in 0..settings.repeat {
        for point in 0..all.len() {
            let name = format!("point-{point}-{turn}");
            let step = bench.step(&name, Some(point), &[clients], settings.step_s, progress)?;
            bench.go_on(|| text::learnt(all, &rates, clients))?;
            let step = step.first().context("a step was not measured")?;
            check_objects(step, &all[point])?;
            rates[point].push(step.rate);
            let sum = &mut failed[point];
            *sum = (sum.0 + step.completions, sum.1 + step.errors, sum.2 + step.refusals);
            busy[point] = busy[point].max(step.step.generator.cpu);
        }
    }
    let measured = |point: usize| {
        let (count, errors, refused) = failed[point];
        let repetitions = rates[point].clone();
        let throughput = repetitions.iter().sum::<f64>() / repetitions.len().max(1) as f64;
        let half_width = batch_means(&repetitions).map(|e| e.half_width);
        let share = |n: u64| n as f64 / count.max(1) as f64;
        let parts = all[point].clone();
        let (errors, refused) = (share(errors), share(refused));
        let generator = busy[point];
        MeasuredPoint { parts, repetitions, throughput, half_width, errors, refused, generator }
    };
    Ok((clients, saturated, (0..all.len()).map(measured).collect()))
}

/// More reads than this share that find nothing are not those of a store that keeps what is put.
const MISSES: f64 = 0.01;

/// Fails if what is read is not what was put: the speed of misses, or of other objects, says nothing of the store's.
fn check_objects(step: &load::StepSummary, parts: &[MixPart]) -> anyhow::Result<()> {
    let misses = step.outcomes.get("miss").copied().unwrap_or(0.0);
    ensure!(
        misses <= MISSES,
        "{} of the replies said that there is no such object, though every object was put, or is to be there: the store does not keep what is \
         put (a cache that evicts, another bucket or prefix), and the speed of its misses is not its capacity",
        percent(misses, 1)
    );
    // A reply to a write may have a body of its own.
    let answered = (step.completions - step.errors) as f64 * (1.0 - misses);
    if parts.iter().any(|part| part.read_share < 1.0) || answered < 1.0 {
        return Ok(());
    }
    let shares: f64 = parts.iter().map(|part| part.share).sum();
    let size = parts.iter().map(|part| part.share * part.size_bytes).sum::<f64>() / shares;
    let found = step.bytes as f64 / answered;
    // The sizes of a mix are drawn.
    let off = (found / size - 1.0).abs();
    ensure!(
        off < 0.5 || parts.len() > 1,
        "reads of objects of {size:.0} bytes were answered with {found:.0} bytes in the mean: is this the service that keeps them?"
    );
    Ok(())
}

/// A part of a mix.
pub fn part(size: u64, read_share: f64, share: f64) -> MixPart {
    MixPart { size_bytes: size as f64, read_share, share }
}

struct Bench<'a> {
    settings: &'a Settings,
    requests: &'a Requests,
    stop: &'a Arc<AtomicBool>,
}

impl Bench<'_> {
    /// Whether it was not interrupted; else an error with what was learnt.
    fn go_on(&self, learnt: impl Fn() -> String) -> anyhow::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            let out = self.settings.plan.out.display();
            bail!("interrupted; {}; the run folders are in {out}", learnt());
        }
        Ok(())
    }

    /// Puts every object once.
    fn fill(&self, progress: &mut dyn FnMut(&Progress)) -> anyhow::Result<()> {
        let clients = self.settings.clients_max.min(16);
        let plan = self.plan("fill", self.requests.catalogue(), Load::Nothing, 1.0);
        let mut session = Session::open(&Plan { fill: Some(clients), ..plan }, self.stop)?;
        session.fill(progress)?;
        session.close()?;
        Ok(())
    }

    fn plan(&self, name: &str, slice: std::ops::Range<u64>, load: Load, seconds: f64) -> Plan {
        let keys = Keys::Trace {
            file: self.requests.file.clone(),
            slice: Some(slice),
            warmup_slice: None,
            size: Size::fixed(1),
            skip_broken: false,
            resolution_ms: Some(1.0),
        };
        Plan {
            load,
            keys,
            length: Some(Length::Seconds(seconds)),
            warmup: Some(Length::Seconds(self.settings.warmup_s)),
            fill: None,
            times: 0,
            sample_one_in: 0,
            out: self.settings.plan.out.join(name),
            ..self.settings.plan.clone()
        }
    }

    /// Measures a point with some numbers of clients, until more gain nothing or it is interrupted. Steps that
    /// are too short for one reply are measured again, four times as long, until the time in which a reply must
    /// come has passed.
    fn step(
        &self,
        name: &str,
        point: Option<usize>,
        clients: &[usize],
        mut seconds: f64,
        progress: &mut dyn FnMut(&Progress),
    ) -> anyhow::Result<Vec<load::StepSummary>> {
        let mut name = name.to_owned();
        loop {
            let steps = self.steps(&name, point, clients, seconds, progress)?;
            let told = steps.iter().any(|step| step.completions > 0 || !step.faults.is_empty());
            if told || self.stop.load(Ordering::Relaxed) || seconds > self.settings.plan.timeout_s {
                return Ok(steps);
            }
            seconds *= 4.0;
            name.push_str("-longer");
        }
    }

    /// Measures a point once with some numbers of clients.
    fn steps(
        &self,
        name: &str,
        point: Option<usize>,
        clients: &[usize],
        seconds: f64,
        progress: &mut dyn FnMut(&Progress),
    ) -> anyhow::Result<Vec<load::StepSummary>> {
        let slice = point.map_or(self.requests.catalogue(), |p| self.requests.rows_of(p));
        let closed =
            |n: usize| Load::Closed { clients: vec![n], think_ms: 0.0, think: Think::Constant };
        let first = closed(*clients.first().context("no clients")?);
        let mut session = Session::open(&self.plan(name, slice, first, seconds), self.stop)?;
        let (mut best, mut fruitless) = (0.0f64, 0);
        for &n in clients {
            session.load(&closed(n), progress)?;
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let rate = session.summary().steps.last().map_or(0.0, |step| step.rate);
            fruitless = if rate < (1.0 + GAIN) * best { fruitless + 1 } else { 0 };
            best = best.max(rate);
            if fruitless >= PATIENCE {
                break;
            }
        }
        Ok(session.close()?.steps)
    }

    /// The clients that saturate every one of the first points, and whether more gained nothing at
    /// all of them.
    fn search(
        &self,
        all: &[Vec<MixPart>],
        points: usize,
        progress: &mut dyn FnMut(&Progress),
    ) -> anyhow::Result<(usize, bool)> {
        let doubled = std::iter::successors(Some(1usize), |n| n.checked_mul(2));
        let numbers: Vec<usize> =
            doubled.take_while(|&n| n <= self.settings.clients_max.max(1)).collect();
        let (mut clients, mut saturated) = (1, true);
        let mut found: Vec<Vec<f64>> = Vec::new();
        for point in 0..points {
            let name = format!("search-{point}");
            let seconds = SEARCH * self.settings.step_s;
            let steps = self.step(&name, Some(point), &numbers, seconds, progress)?;
            self.go_on(|| text::learnt(all, &found, clients))?;
            let best = steps.iter().map(|step| step.rate).fold(0.0, f64::max);
            ensure!(best > 0.0, "{}", self.nothing(&steps));
            found.push(vec![best]);
            let enough = steps.iter().position(|step| step.rate * (1.0 + GAIN) >= best);
            clients = clients.max(numbers[enough.unwrap_or(0)]);
            saturated &= steps.len() < numbers.len() || enough.is_some_and(|e| e + 1 < steps.len());
        }
        // Twice as many, so that the slower repetition of a point is saturated too.
        Ok(((2 * clients).min(self.settings.clients_max.max(1)), saturated))
    }

    /// Why no request of a point succeeded.
    fn nothing(&self, steps: &[load::StepSummary]) -> String {
        let fault = steps.iter().flat_map(|s| &s.faults).map(|(why, _)| why.as_str()).next();
        let why = fault.unwrap_or("no reply came");
        format!(
            "{}: no request succeeded ({why}): are puts and gets allowed?",
            self.settings.plan.url
        )
    }
}
