//! The law, its error, and how far off both are for mixes, from what was measured.

use anyhow::Context as _;
use ground::number::{decimals, percent};
use model::capacity::{IoCapacity, IoPoint, JudgedMix, MixError, MixPart, Shares};
use model::statistics::{batch_means, student};

use super::results::{ClientSearch, Judged, MeasuredPoint, Survey};

/// Throughput in the second half of the repetitions that differs by more than this from the first
/// half, at points of all kinds together, is a drift.
const DRIFT: f64 = 0.05;

/// A share of its core from which the load generator is what is measured.
const GENERATOR: f64 = 0.8;

/// A difference from the law that is worth saying.
const BIAS: f64 = 0.03;
/// Confidence of all intervals.
const CONFIDENCE: f64 = 0.95;

/// A mix by the law alone.
struct ByLaw {
    law: model::regression::Estimated,
    several: bool,
}

/// Fits the points, and judges the mixes: each is predicted by the law with the error that all other
/// mixes tell. `wanted` are predicted only.
///
/// # Errors
/// If the points give no law.
pub fn judge(
    repeat: usize,
    search: ClientSearch,
    points: Vec<MeasuredPoint>,
    mixes: Vec<MeasuredPoint>,
    wanted: &[Vec<MixPart>],
) -> anyhow::Result<Survey> {
    let each = points.iter().flat_map(|point| {
        let MixPart { size_bytes, read_share, .. } = point.parts[0];
        let at = move |&throughput: &f64| IoPoint { size_bytes, read_share, throughput };
        point.repetitions.iter().map(at)
    });
    let each: Vec<IoPoint> = each.filter(|p| p.throughput > 0.0).collect();
    let law = IoCapacity::fit(&each, CONFIDENCE).context("the measured points give no law")?;
    let degrees = each.len().saturating_sub(points.len()).max(1) as f64;
    // What will be measured scatters as the fitted points do.
    let scatter = (law.scatter().unwrap_or(0.0) / (repeat.max(1) as f64).sqrt(), degrees);
    let by_law = |parts: &[MixPart]| -> anyhow::Result<ByLaw> {
        let several = MixError::has_several(parts);
        Ok(ByLaw { law: law.mix(parts, Shares::Ios)?.total, several })
    };
    let found: Vec<ByLaw> =
        mixes.iter().map(|mix| by_law(&mix.parts)).collect::<anyhow::Result<_>>()?;
    // A mix without a reply tells nothing of the law.
    let student = student(CONFIDENCE, degrees)?;
    let compared = |(mix, by): (&MeasuredPoint, &ByLaw)| {
        let width = by.law.low.zip(by.law.high).map_or(0.0, |(low, high)| high - low);
        let of_law = 0.5 * width / student / by.law.value;
        (mix.throughput > 0.0).then_some(JudgedMix {
            several: by.several,
            measured: mix.throughput,
            law: by.law.value,
            deviation: of_law.hypot(scatter.0),
        })
    };
    let compared: Vec<Option<JudgedMix>> = mixes.iter().zip(&found).map(compared).collect();
    let error_but = |left_out: Option<usize>| -> anyhow::Result<MixError> {
        let kept = compared.iter().enumerate().filter(|(i, _)| Some(*i) != left_out);
        Ok(MixError::from_mixes(&kept.filter_map(|(_, mix)| *mix).collect::<Vec<JudgedMix>>())?)
    };
    let mut judged = Vec::new();
    for (i, (measured, by)) in mixes.into_iter().zip(&found).enumerate() {
        let expected = error_but(Some(i))?.expected(by.law, by.several, scatter, CONFIDENCE)?;
        let arithmetic = law.mix(&measured.parts, Shares::Capacity)?.total.value;
        judged.push(Judged::new(measured, by.law.value, &expected, arithmetic));
    }
    let mix_error = error_but(None)?;
    let mut predicted = Vec::new();
    for parts in wanted {
        let by = by_law(parts)?;
        let found = mix_error.expected(by.law, by.several, scatter, CONFIDENCE)?;
        let or = |end: Option<f64>| end.unwrap_or(found.value);
        predicted.push((parts.clone(), [found.value, or(found.low), or(found.high)]));
    }
    let warnings = warnings(search, &law, &mix_error, &points, &judged);
    let ClientSearch { clients, saturated } = search;
    Ok(Survey { clients, saturated, points, law, mix_error, judged, wanted: predicted, warnings })
}

impl Judged {
    /// A mix beside what the law says of it, and what is expected by the law and the error of other mixes.
    fn new(
        measured: MeasuredPoint,
        law: f64,
        expected: &model::regression::Estimated,
        arithmetic: f64,
    ) -> Judged {
        let predicted = expected.value;
        let or = |end: Option<f64>| end.unwrap_or(predicted);
        let (low, high) = (or(expected.low), or(expected.high));
        let over = |predicted: f64| predicted / measured.throughput.max(f64::MIN_POSITIVE) - 1.0;
        let (error, law_error) = (over(predicted), over(law));
        let inside = (low..=high).contains(&measured.throughput);
        Judged { measured, predicted, low, high, error, inside, law, law_error, arithmetic }
    }
}

/// What the user should know: sentences.
fn warnings(
    search: ClientSearch,
    law: &IoCapacity,
    error: &MixError,
    points: &[MeasuredPoint],
    judged: &[Judged],
) -> Vec<String> {
    let mut texts: Vec<String> = law.warnings().iter().map(|w| format!("{w}.")).collect();
    if !search.saturated {
        texts.push(format!(
            "Throughput still grew with {} clients at some point: give a larger --clients-max.",
            search.clients
        ));
    }
    let all = || points.iter().chain(judged.iter().map(|j| &j.measured));
    let errors = all().map(|m| m.errors).fold(0.0, f64::max);
    if errors > 0.001 {
        let refused = all().map(|m| m.refused).fold(0.0, f64::max);
        let how =
            if refused > 0.5 * errors { "refused (503 or 429): it throttles" } else { "errors" };
        texts.push(format!(
            "Up to {} of the replies of a point were {how}; only successes are counted, and what a \
             refusal costs is not part of the law.",
            percent(errors, 1)
        ));
    }
    let full = all().filter(|m| m.generator > GENERATOR).count();
    if full > 0 {
        texts.push(format!(
            "The load generator used more than {:.0} % of a core at {full} points: there its capacity is measured, \
             not the store's, and the law need not hold. Give more --threads, or the store less of the machine.",
            100.0 * GENERATOR
        ));
    }
    texts.extend(drifted(all()));
    texts.extend(disturbed(error));
    // The factor applies to mixes of several sizes only.
    let one = judged.iter().filter(|j| !MixError::has_several(&j.measured.parts));
    let signed: Vec<f64> = one.map(|j| j.law_error).collect();
    let one_sided =
        batch_means(&signed).filter(|e| e.mean.abs() > e.half_width && e.mean.abs() > BIAS);
    if let Some(error) = one_sided {
        let (less, why) = match error.mean > 0.0 {
            true => ("less", "reads and writes disturb each other"),
            false => ("more", "they use parts of the store that work side by side"),
        };
        texts.push(format!(
            "The law fails: reads and writes of one size have {} {less} throughput than it says ({why}).",
            percent(error.mean.abs(), 1)
        ));
    }
    texts
}

/// That the store was faster or slower in the later repetitions, if it was beyond chance.
fn drifted<'a>(all: impl Iterator<Item = &'a MeasuredPoint>) -> Option<String> {
    let ratios: Vec<f64> = all
        .filter(|m| m.repetitions.len() >= 2)
        .map(|m| {
            let (first, last) = m.repetitions.split_at(m.repetitions.len() / 2);
            let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
            mean(last) / mean(first).max(f64::MIN_POSITIVE)
        })
        .collect();
    let drift = batch_means(&ratios)?;
    let off = (drift.mean - 1.0).abs();
    (off > DRIFT && off > drift.half_width).then(|| {
        format!(
            "The store drifted: its throughput in the later repetitions is {} {} than in the first. \
             A cache that fills, or the machine: measure longer.",
            percent(off, 0),
            if drift.mean < 1.0 { "less" } else { "more" }
        )
    })
}

/// That mixes of several sizes differ from the law, if they do beyond chance.
fn disturbed(error: &MixError) -> Option<String> {
    let half = student(0.95, error.degrees).ok()? * error.common_deviation;
    let by = error.common.exp_m1();
    let beyond = error.mixes > 0 && error.common.abs() > half && by.abs() > BIAS;
    beyond.then(|| {
        let (less, why) = match by < 0.0 {
            true => ("less", "requests of different sizes disturb each other"),
            false => ("more", "they use parts of the store that work side by side"),
        };
        format!(
            "Conservation of capacity fails: mixes of several sizes have {} ± {} {less} throughput than it \
             says ({why}). Predictions of such mixes are corrected by it.",
            decimals(100.0 * by.abs(), 1),
            percent(half, 1)
        )
    })
}
