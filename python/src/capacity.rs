//! Capacities from tables of measurements.

use ::model::capacity::{IoCapacity, IoPoint, MixPart, Scalability, ScalablePoint, Shares};
use anyhow::Context;
use pyo3::prelude::*;
use report::capacity::{MixQuestion, scaling_json, storage_json};

use crate::array::{Column, Numbers};
use crate::error::invalid;
use crate::value::object;
use crate::work::unlocked;

/// A mix of sizes: share of reads, and of each size its bytes and its share.
type Mix = (f64, Vec<(f64, f64)>);

/// AT&T's law of a storage system, as `concertina capacity` (docs/capacity.md): three columns of one length.
#[pyfunction]
#[pyo3(signature = (size_bytes, read_share, throughput, *, at=Vec::new(), mixes=Vec::new(), by="ios", point_error=None, confidence=0.95))]
#[expect(clippy::too_many_arguments, reason = "keywords of a function in Python")]
pub fn storage_capacity(
    py: Python<'_>,
    size_bytes: Column,
    read_share: Column,
    throughput: Column,
    at: Vec<(f64, f64)>,
    mixes: Vec<Mix>,
    by: &str,
    point_error: Option<f64>,
    confidence: f64,
) -> PyResult<Py<PyAny>> {
    let by = match by {
        "ios" => Shares::Ios,
        "capacity" => Shares::Capacity,
        other => return Err(invalid(format!("invalid shares `{other}`: ios or capacity"))),
    };
    let (Column(sizes), Column(reads), Column(rates)) = (size_bytes, read_share, throughput);
    equal_lengths(&[sizes.len(), reads.len(), rates.len()])?;
    if let Some(share) = point_error.filter(|share| !(0.0..=1.0).contains(share)) {
        return Err(invalid(format!("invalid point_error {share}: a share from 0 to 1")));
    }
    let points = sizes.into_iter().zip(reads).zip(rates);
    let points: Vec<IoPoint> = points
        .map(|((size_bytes, read_share), throughput)| IoPoint {
            size_bytes,
            read_share,
            throughput,
        })
        .collect();
    let found = unlocked(py, move |_| {
        let system = IoCapacity::fit(&points, confidence)?;
        let (mut answers, mut notes) = (Vec::new(), Vec::new());
        for (read, bytes) in at {
            let asked = format!("{read},{bytes}");
            answers.push((
                asked.clone(),
                system.throughput(bytes, read).with_context(|| format!("at {asked}"))?,
            ));
        }
        for (read_share, sizes) in mixes {
            let sizes_text: Vec<String> =
                sizes.iter().map(|(bytes, share)| format!("{bytes}:{share}")).collect();
            let asked = format!("{read_share},{}", sizes_text.join(","));
            let part =
                |&(size_bytes, share): &(f64, f64)| MixPart { size_bytes, read_share, share };
            let parts: Vec<MixPart> = sizes.iter().map(part).collect();
            let question = MixQuestion { parts: &parts, by, confidence, point_error };
            answers.push((
                asked.clone(),
                question.answer(&system).with_context(|| format!("at {asked}"))?,
            ));
            notes.extend(question.basis_of_interval(&system).map(|why| format!("{asked}: {why}")));
        }
        let mut value = storage_json(&system, &answers, &notes)?;
        value["points"] = points.len().into();
        value["confidence"] = confidence.into();
        Ok(value)
    })?;
    object(py, &found)
}

/// The Universal Scalability Law of a system, as `concertina capacity`: two columns of one length, and other concurrencies.
#[pyfunction]
#[pyo3(signature = (concurrency, throughput, *, at=None, confidence=0.95))]
pub fn scaling_capacity(
    py: Python<'_>,
    concurrency: Column,
    throughput: Column,
    at: Option<Numbers>,
    confidence: f64,
) -> PyResult<Py<PyAny>> {
    let (Column(concurrencies), Column(throughputs)) = (concurrency, throughput);
    equal_lengths(&[concurrencies.len(), throughputs.len()])?;
    let points: Vec<ScalablePoint> = concurrencies
        .into_iter()
        .zip(throughputs)
        .map(|(concurrency, throughput)| ScalablePoint { concurrency, throughput })
        .collect();
    let at = at.map_or_else(Vec::new, |at| at.values);
    let found = unlocked(py, move |_| {
        let law = Scalability::fit(&points, confidence)?;
        let found = at.iter().map(|&n| law.throughput(n)).collect::<Result<Vec<_>, _>>()?;
        let mut value = scaling_json(&law, &found)?;
        value["points"] = points.len().into();
        value["confidence"] = confidence.into();
        Ok(value)
    })?;
    object(py, &found)
}

/// That columns have one length.
pub fn equal_lengths(lengths: &[usize]) -> PyResult<()> {
    if lengths.windows(2).any(|pair| pair[0] != pair[1]) {
        return Err(invalid(format!("the columns have {lengths:?} values: give as many of each")));
    }
    Ok(())
}
