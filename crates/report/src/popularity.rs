//! How the hit ratio depends on memory, as specified on a command line or in a cluster file.
//!
//! | text | law |
//! |---|---|
//! | `0.25` | hits ∝ memory^0.25, at most 1 ([`Popularity`]) |
//! | `zipf:0.8:1000000` | Che's approximation of least-recently-used memory over a million objects, popularity falling as rank^−0.8 ([`HitCurve`]) |
//! | a file | the curve of a trace, from reuse distances of a sample of its keys ([`Curve`]) |
//! | a folder | the curve of a run's samples, which cover a part of its keys |
//!
//! A number of objects counts those of all servers, and a trace or a run contains the requests of
//! all servers; a server's own hit ratio determines its position on the curve.

use std::path::Path;

use ground::window::{Operation, QueueName};
use model::cache::{Cache, Catalogue, Curve, Eviction, HitCurve, Shards};
use model::storage::{HitLaw, Popularity};

use crate::error::Error;
use record::RunFolder;
use record::trace::Trace;

/// The largest number of keys whose reuse distances are tracked: about 16 MB, for a curve accurate
/// to one point.
const KEYS_MAX: usize = 65_536;

/// Assumed size of an object whose size the trace does not state.
const SIZE_UNKNOWN_BYTES: u64 = 1;

/// The number of keys for each sampled key, if a run does not state it.
const ONE_IN: u64 = 64;

/// A relation between memory and hit ratio.
#[derive(Clone, Debug, PartialEq)]
pub enum Law {
    /// A power of memory.
    Power(Popularity),
    /// A curve computed from a popularity distribution.
    Catalogue(HitCurve),
    /// A curve measured on a stream of keys.
    Stream(Curve),
}

impl HitLaw for Law {
    fn change(&self, now: f64, factor: f64) -> f64 {
        match self {
            Law::Power(popularity) => popularity.change(now, factor),
            Law::Catalogue(curve) => curve.change(now, factor),
            Law::Stream(curve) => curve.change(now, factor),
        }
    }
}

/// Parses a law; paths are relative to `folder`.
///
/// # Errors
/// If the text is invalid, or the trace or the run cannot be read or has too few requests.
pub fn read(text: &str, folder: &Path) -> Result<Law, Error> {
    if let Ok(exponent) = text.parse() {
        return Ok(Law::Power(Popularity::new(exponent)?));
    }
    if let Some(objects) = zipf(text)? {
        return Ok(Law::Catalogue(Cache::new(objects, Eviction::Lru).curve()));
    }
    let path = folder.join(text);
    let shown = path.display();
    let curve = if path.is_dir() {
        of_run(&path)
    } else if path.is_file() {
        of_trace(&path)
    } else {
        return Err(Error::input(format!(
            "invalid popularity `{text}`: write an exponent, zipf:0.8:1000000, a trace, or a run folder"
        )));
    };
    let place = format!("cannot derive a popularity from {shown}");
    let curve = curve.map_err(Error::content(&place))?;
    if curve.point(curve.memory_max())?.hit_ratio.value <= 0.0 {
        return Err(Error::experiment(format!("{place}: no object was requested twice")));
    }
    Ok(Law::Stream(curve))
}

/// Parses `zipf:EXPONENT:OBJECTS`; `None` if the text does not begin with `zipf`.
///
/// # Errors
/// If a number is invalid, or out of range for a catalogue.
pub fn zipf(text: &str) -> Result<Option<Catalogue>, Error> {
    let Some(zipf) = text.strip_prefix("zipf:") else { return Ok(None) };
    let parts = zipf.split_once(':');
    let parts = parts.and_then(|(s, n)| Some((s.parse().ok()?, n.parse().ok()?)));
    let Some((exponent, objects)) = parts else {
        return Err(Error::input(format!(
            "invalid popularity `{text}`: write zipf, its exponent and the number of objects: zipf:0.8:1000000"
        )));
    };
    Ok(Some(Catalogue::zipf(objects, exponent)?))
}

fn of_trace(path: &Path) -> Result<Curve, Error> {
    let trace = Trace::open(path, None, true)?;
    let mut shards = Shards::fixed_size(KEYS_MAX)?;
    for row in trace.rows.iter().filter(|row| row.operation == Operation::Get) {
        shards.push(u64::from(row.key), row.size.map_or(SIZE_UNKNOWN_BYTES, u64::from));
    }
    Ok(shards.curve()?)
}

fn of_run(path: &Path) -> Result<Curve, Error> {
    let run = RunFolder::read(path)?;
    let asked = &run.run.asked;
    let said = asked.get("sample_one_in").or_else(|| asked.get("observe")?.get("sample_one_in"));
    let one_in = said.and_then(toml::Value::as_integer).and_then(|n| u64::try_from(n).ok());
    let one_in = one_in.filter(|n| *n > 0).unwrap_or(ONE_IN);
    let mut samples: Vec<_> =
        run.samples.iter().filter(|sample| sample.operation == Operation::Get).collect();
    if samples.is_empty() {
        return Err(Error::experiment("the run has no samples of reads"));
    }
    samples.sort_by_key(|sample| sample.received_unix_us);
    let mut shards = Shards::fixed_size(KEYS_MAX)?.sampled_before(1.0 / one_in as f64)?;
    let bytes: u64 = samples.iter().map(|sample| sample.size.min(1 << 40)).sum();
    for sample in &samples {
        shards.push(sample.key, sample.size.max(1));
    }
    // The queue nearest to the clients has the number of requests for all keys, sampled or not.
    let reads = |queue: QueueName<'_>| -> u64 {
        let windows = run.windows.iter().filter(|w| w.is_of(queue)).flat_map(|w| &w.times);
        windows.filter(|t| t.operation == Operation::Get).map(|t| t.response.count()).sum()
    };
    let requests = QueueName::REQUESTS.map(reads).into_iter().find(|n| *n > 0);
    Ok(match requests {
        Some(all) => {
            let mean = bytes as f64 / samples.len() as f64;
            shards.curve_of(all as f64, all as f64 * mean)?
        }
        None => shards.curve()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_are_read() {
        let here = Path::new("");
        assert_eq!(read("0.25", here).unwrap(), Law::Power(Popularity::new(0.25).unwrap()));
        let zipf = read("zipf:0.8:100000", here).unwrap();
        let cache = Cache::new(Catalogue::zipf(100_000, 0.8).unwrap(), Eviction::Lru);
        let (now, then) =
            (cache.with_memory(1e3).unwrap().hit_ratio, cache.with_memory(3e3).unwrap().hit_ratio);
        assert!((now * zipf.change(now, 3.0) - then).abs() < 1e-3);
        for (bad, says) in [
            ("1.5", "exponent of memory"),
            ("nan", "exponent of memory"),
            ("zipf", "invalid popularity"),
            ("zipf:0.8", "number of objects"),
            ("zipf:0.8:-3", "number of objects"),
            ("zipf:-1:100", "exponent of popularity"),
            ("zipf:0.8:0", "number of objects"),
            ("no/such/place", "invalid popularity"),
            ("", "invalid popularity"),
        ] {
            let error = format!("{:#}", read(bad, Path::new("/nowhere")).unwrap_err());
            assert!(error.contains(says), "{bad}: {error}");
        }
    }

    /// A stream of a Zipf law: its curve is near that of the law.
    #[test]
    fn a_trace_is_its_own_law() {
        use rand::SeedableRng;
        use rand_distr::Distribution;
        let dir = tempfile::tempdir().unwrap();
        let mut random = rand::rngs::StdRng::seed_from_u64(5);
        let law = rand_distr::Zipf::new(2_000.0, 0.8).unwrap();
        let mut text = String::from("time_ms,key,size,op\n");
        for row in 0..60_000 {
            text += &format!("{row},k{},100,get\n", law.sample(&mut random) as u32);
        }
        std::fs::write(dir.path().join("trace.csv"), text).unwrap();
        let stream = read("trace.csv", dir.path()).unwrap();
        let zipf = read("zipf:0.8:2000", dir.path()).unwrap();
        for factor in [0.25, 0.5, 2.0] {
            let (one, other) = (0.5 * stream.change(0.5, factor), 0.5 * zipf.change(0.5, factor));
            assert!((one - other).abs() < 0.03, "{factor}: {one} {other}");
        }
        std::fs::write(dir.path().join("once.csv"), "time_ms,key,size,op\n1,a,1,get\n").unwrap();
        let error = format!("{:#}", read("once.csv", dir.path()).unwrap_err());
        assert!(error.contains("requested twice"), "{error}");
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        assert!(read("empty", dir.path()).is_err());
    }
}
