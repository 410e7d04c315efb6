//! Measures all engines of all datasets, in turns, between measurements of the ceiling.
//!
//! In a round every engine answers a slice of each query, in the order of footprints, so that
//! rivals of equal size follow one another; before each the ceiling is measured. A round in which
//! the ceiling drifted is done again, a bounded number of times. Every slice, the warming ones too,
//! is compared with the oracle.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::checksum;
use crate::config::{Config, Dataset};
use crate::engine::{Engine, Query, Slice};
use crate::oracle::{Expected, Oracle};
use crate::ours::Point;
use crate::queries::Queries;
use crate::results::{DatasetResult, EngineResult, Rates, Results};
use crate::sdsl::Sdsl;
use crate::tune::{Choice, Favour, Kind, Pilot, choose, samples_bytes};

/// Where everything is.
pub struct Place<'a> {
    /// The experiment's folder.
    pub folder: &'a Path,
    /// Where texts and compiled rivals go.
    pub scratch: &'a Path,
    /// This program, which serves our engines.
    pub program: &'a Path,
    /// Shows nothing of the progress.
    pub quiet: bool,
}

/// Patterns for which the oracle is compared with a scan of the text.
const SCANNED: usize = 8;
/// Sampling rate of a pilot, of both arrays: it is also the smallest index that counts so fast.
const PILOT_SAMPLING: u32 = 256;
/// Footprints closer than this share of each other are one point.
const NEAR: f64 = 0.029;
/// Most blocks of a slice.
const BLOCKS_MAX: usize = 1 << 20;

/// Measures what the configuration says.
///
/// # Errors
/// If something is missing, an engine ends, or an answer is wrong.
pub fn run(config: &Config, short: bool, place: &Place<'_>) -> anyhow::Result<Results> {
    let config = if short { config.clone().shortened()? } else { config.clone() };
    let sdsl = Sdsl::find(place.scratch)?;
    let mut datasets = Vec::new();
    for dataset in &config.dataset {
        datasets.push(measure(&config, dataset, &sdsl, place)?);
    }
    let mut versions = sdsl.versions;
    versions.insert("shard".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    Ok(Results { versions, datasets })
}

impl Place<'_> {
    fn say(&self, what: impl AsRef<str>) {
        if !self.quiet {
            eprintln!("{}", what.as_ref());
        }
    }
}

/// An engine with what is known of it.
struct Running {
    engine: Engine,
    index: &'static str,
    parameters: String,
    bytes: u64,
    /// Queries of a slice and the rates of the rounds, for each query and batch.
    measured: Vec<(Query, usize, usize, Vec<f64>)>,
}

/// What every slice needs.
struct Judge<'a> {
    config: &'a Config,
    expected: &'a Expected,
}

impl Judge<'_> {
    /// Queries/s of a slice whose answers are right.
    fn ask(&self, engine: &mut Engine, name: &str, slice: &Slice) -> anyhow::Result<f64> {
        let answer = engine.ask(slice)?;
        if let Some(right) = self.expected.checksum(slice) {
            ensure!(answer.checksum == right, "{name} gave a wrong answer to one of {slice}");
        }
        Ok(slice.count as f64 * 1e9 / answer.ns.max(1) as f64)
    }

    /// The number of queries that take as long as a slice should.
    fn length(
        &self,
        engine: &mut Engine,
        name: &str,
        query: Query,
        batch: usize,
    ) -> anyhow::Result<usize> {
        let (block, wanted_s) = (self.config.block, self.config.slice_s);
        let mut blocks = 1;
        loop {
            let slice = Slice { query, batch, first: 0, count: blocks * block };
            let rate = self.ask(engine, name, &slice)?;
            if slice.count as f64 / rate > wanted_s / 4.0 || blocks >= BLOCKS_MAX {
                return Ok(((rate * wanted_s / block as f64).ceil() as usize).max(1) * block);
            }
            blocks *= 2;
        }
    }

    /// An engine that is ready, its slices' lengths found.
    fn running(
        &self,
        mut engine: Engine,
        bytes: u64,
        index: &'static str,
        parameters: String,
        batches: &[usize],
    ) -> anyhow::Result<Running> {
        let mut measured = Vec::new();
        for query in Query::ALL {
            for &batch in batches {
                let count = self.length(&mut engine, &parameters, query, batch)?;
                measured.push((query, batch, count, Vec::new()));
            }
        }
        Ok(Running { engine, index, parameters, bytes, measured })
    }
}

fn measure(
    config: &Config,
    dataset: &Dataset,
    sdsl: &Sdsl,
    place: &Place<'_>,
) -> anyhow::Result<DatasetResult> {
    let text = dataset.load(&place.folder.join(&config.data))?;
    let name = &dataset.name;
    place.say(format!("{name}: {} bytes; drawing queries and their answers", text.len()));
    let folder = place.scratch.join(name);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let oracle = Oracle::new(&text)?;
    let queries = Queries::draw(&oracle, &config.draw()).with_context(|| name.clone())?;
    oracle.check(&queries.patterns, SCANNED)?;
    let expected = Expected::new(&oracle, &queries);
    drop(oracle);
    queries.write(&text, &folder)?;
    let (len, checksum) = (text.len(), checksum::of_bytes(&text));
    drop(text);

    let judge = Judge { config, expected: &expected };
    let mut engines = start_ours(&judge, &folder, place)?;
    engines.extend(start_rivals(&judge, &folder, sdsl, len, &engines, place)?);
    engines.sort_by_key(|running| running.bytes);
    let mut ceiling = Ceiling::start(&judge, &folder, place)?;
    let drift = rounds(&judge, &mut engines, &mut ceiling, place)?;
    drop(ceiling.engine);
    std::fs::remove_dir_all(&folder).context("cannot remove what engines were built from")?;

    let bytes_of_patterns: usize = queries.patterns.iter().map(Vec::len).sum();
    Ok(DatasetResult {
        name: name.clone(),
        bytes: len as u64,
        checksum: format!("{checksum:016x}"),
        hits_mean: expected.hits_mean,
        pattern_bytes_mean: bytes_of_patterns as f64 / queries.patterns.len() as f64,
        ceiling: ceiling.rates.into_values().collect(),
        drift,
        engines: engines.into_iter().map(|running| running.result(len)).collect(),
    })
}

impl Running {
    fn result(self, len: usize) -> EngineResult {
        let rates = self.measured.into_iter();
        EngineResult {
            index: self.index.to_owned(),
            parameters: self.parameters,
            bytes: self.bytes,
            footprint: self.bytes as f64 / len as f64,
            rates: rates.map(|(query, batch, _, per_s)| Rates { query, batch, per_s }).collect(),
        }
    }
}

fn start_ours(judge: &Judge<'_>, folder: &Path, place: &Place<'_>) -> anyhow::Result<Vec<Running>> {
    let mut running: Vec<Running> = Vec::new();
    for pair in judge.config.points().chunks(2) {
        let start = |point: &Point| {
            let parameters = point.parameters();
            let mut command = Command::new(place.program);
            command.arg("serve").arg(folder);
            command.arg(format!("--alpha-sa={}", point.sa));
            command.arg(format!("--alpha-isa={}", point.isa));
            command.args(point.text_layer.map(|most| format!("--text-layer={most}")));
            Ok((Engine::start(&format!("shard, {parameters}"), &mut command)?, parameters))
        };
        let started: Vec<(Engine, String)> =
            pair.iter().map(start).collect::<anyhow::Result<_>>()?;
        for (mut engine, parameters) in started {
            let bytes = engine.ready()?;
            place.say(format!("shard, {parameters}: {bytes} bytes"));
            let batches = [1, judge.config.batch];
            running.push(judge.running(engine, bytes, "shard", parameters, &batches)?);
        }
    }
    Ok(running)
}

/// Builds pilots, and for the footprint of each of ours the indexes that do best there.
fn start_rivals(
    judge: &Judge<'_>,
    folder: &Path,
    sdsl: &Sdsl,
    len: usize,
    ours: &[Running],
    place: &Place<'_>,
) -> anyhow::Result<Vec<Running>> {
    let rivals = &judge.config.rivals;
    let mut targets: Vec<u64> = ours.iter().map(|running| running.bytes).collect();
    targets.sort_unstable();
    // The larger of two that are near to one another.
    targets.reverse();
    targets.dedup_by(|smaller, larger| *smaller as f64 > *larger as f64 * (1.0 - NEAR));
    let small = |bytes: u64| (bytes as f64) < rivals.wavelet_below * len as f64;
    let sada = rivals.psi_densities.iter().map(|&psi_density| Kind::Sada { psi_density });
    let mut kinds: Vec<Kind> = sada.collect();
    kinds.extend(targets.iter().any(|&bytes| small(bytes)).then_some(Kind::Wavelet));
    let pilot = |&kind: &Kind| Choice { kind, sa: PILOT_SAMPLING, isa: PILOT_SAMPLING };
    let mut choices: Vec<Choice> = kinds.iter().map(pilot).collect();
    let mut running = run_choices(judge, folder, sdsl, &choices, place)?;

    let mut pilots = Vec::new();
    for (choice, running) in choices.iter().zip(&mut running) {
        let samples = samples_bytes(len, choice.sa) + samples_bytes(len, choice.isa);
        // A long extract is nearly all steps.
        let slice =
            Slice { query: Query::Extract1024, batch: 1, first: 0, count: judge.config.block };
        let rate = judge.ask(&mut running.engine, &running.parameters, &slice)?;
        let steps = 1024.0 + f64::from(choice.isa - 1) / 2.0;
        pilots.push(Pilot {
            kind: choice.kind,
            fixed_bytes: running.bytes as f64 - samples,
            step_ns: 1e9 / rate / steps,
        });
    }
    let (wavelet, sada): (Vec<Pilot>, Vec<Pilot>) =
        pilots.iter().partition(|pilot| pilot.kind == Kind::Wavelet);
    let mut tuned = Vec::new();
    for &bytes in &targets {
        for favour in [Favour::Search, Favour::Extract] {
            tuned.extend(choose(&sada, len, bytes as f64, favour, rivals));
            if small(bytes) {
                tuned.extend(choose(&wavelet, len, bytes as f64, favour, rivals));
            }
        }
    }
    tuned.retain(|choice| {
        let new = !choices.contains(choice);
        choices.extend(new.then_some(*choice));
        new
    });
    running.extend(run_choices(judge, folder, sdsl, &tuned, place)?);
    Ok(running)
}

fn run_choices(
    judge: &Judge<'_>,
    folder: &Path,
    sdsl: &Sdsl,
    choices: &[Choice],
    place: &Place<'_>,
) -> anyhow::Result<Vec<Running>> {
    place.say(format!("sdsl-lite: compiling and building {} indexes", choices.len()));
    let engines = sdsl.start(folder, choices)?.into_iter().zip(choices);
    engines
        .map(|((engine, bytes), choice)| {
            let (name, parameters) = (choice.kind.name(), choice.parameters());
            place.say(format!("{name}, {parameters}: {bytes} bytes"));
            // It has no batches: one query at a time.
            judge.running(engine, bytes, name, parameters, &[1])
        })
        .collect()
}

/// The ceiling, one chain of accesses and as many as a batch has queries.
struct Ceiling {
    engine: Engine,
    /// Accesses of a slice.
    counts: BTreeMap<usize, usize>,
    /// Median of each round.
    rates: BTreeMap<usize, Rates>,
}

impl Ceiling {
    fn start(judge: &Judge<'_>, folder: &Path, place: &Place<'_>) -> anyhow::Result<Ceiling> {
        let mut command = Command::new(place.program);
        let mut engine =
            Engine::start("the ceiling", command.arg("serve").arg(folder).arg("--ceiling"))?;
        engine.ready()?;
        let (mut counts, mut rates) = (BTreeMap::new(), BTreeMap::new());
        for batch in [1, judge.config.batch] {
            let query = Query::Access;
            counts.insert(batch, judge.length(&mut engine, "the ceiling", query, batch)? / 2 + 1);
            rates.insert(batch, Rates { query, batch, per_s: Vec::new() });
        }
        Ok(Ceiling { engine, counts, rates })
    }

    /// Accesses/s of each kind now.
    fn measure(&mut self, judge: &Judge<'_>, round: usize) -> anyhow::Result<BTreeMap<usize, f64>> {
        let mut measured = BTreeMap::new();
        for (&batch, &count) in &self.counts {
            let slice = Slice { query: Query::Access, batch, first: round, count };
            measured.insert(batch, judge.ask(&mut self.engine, "the ceiling", &slice)?);
        }
        Ok(measured)
    }
}

/// Measures all rounds; the drift of the ceiling in each.
fn rounds(
    judge: &Judge<'_>,
    engines: &mut [Running],
    ceiling: &mut Ceiling,
    place: &Place<'_>,
) -> anyhow::Result<Vec<f64>> {
    let config = judge.config;
    let (mut drifts, mut again) = (Vec::new(), 0);
    while drifts.len() < config.rounds {
        let round = drifts.len();
        let mut seen: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for running in &mut *engines {
            for (batch, rate) in ceiling.measure(judge, round)? {
                seen.entry(batch).or_default().push(rate);
            }
            for (query, batch, count, rates) in &mut running.measured {
                let first = (round * 7 + again) * config.block;
                let slice = Slice { query: *query, batch: *batch, first, count: *count };
                let blocks = (*count / config.block).div_ceil(8);
                let warm = Slice { first: first + *count, count: blocks * config.block, ..slice };
                judge.ask(&mut running.engine, &running.parameters, &warm)?;
                rates.truncate(round);
                rates.push(judge.ask(&mut running.engine, &running.parameters, &slice)?);
            }
        }
        let medians: BTreeMap<usize, f64> =
            seen.iter_mut().map(|(&batch, rates)| (batch, median(rates))).collect();
        // One chain of accesses: what an index depends on most.
        let of_one = seen.get(&1).map_or(&[][..], |rates| rates);
        let spread = of_one.last().zip(of_one.first()).map_or(0.0, |(high, low)| high - low);
        let drift = spread / medians.get(&1).copied().unwrap_or(f64::NAN);
        let keep = drift <= config.drift_max || again >= config.rounds_again_max;
        place.say(format!(
            "round {}: the ceiling drifted by {:.1} %{}",
            round + 1,
            drift * 100.0,
            if keep { "" } else { ": again" }
        ));
        if !keep {
            again += 1;
            continue;
        }
        drifts.push(drift);
        for (batch, rate) in medians {
            if let Some(rates) = ceiling.rates.get_mut(&batch) {
                rates.per_s.push(rate);
            }
        }
    }
    Ok(drifts)
}

/// The median, after sorting.
fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
