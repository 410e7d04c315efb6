//! Sizes of the values that `experiments/proxy` stores: of one size, or those that the requests of a trace are for.

use std::path::Path;

use anyhow::ensure;
use record::trace::Trace;
use serde::Deserialize;

/// Values of one part of the grid, and its cells.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Values {
    /// Bytes of every value; without it, `trace` has the sizes.
    pub bytes: Option<u64>,
    /// The name of a trace of `../shared/data/traces`.
    pub trace: Option<String>,
    /// Numbers of connections, one request at a time on each.
    pub connections: Vec<u32>,
    /// Numbers of memcached servers.
    pub servers: Vec<usize>,
}

/// What the name of a cell says of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueSize {
    /// As many bytes.
    Bytes(u64),
    /// As in a trace. Nothing is set then: the load client's sets are all of one size.
    Trace,
}

/// Rows of a trace whose sizes are taken: its requests' sizes have settled long before.
const ROWS: u64 = 500_000;

impl Values {
    /// What the cells say of it.
    pub fn size(&self) -> ValueSize {
        self.bytes.map_or(ValueSize::Trace, ValueSize::Bytes)
    }

    /// The size of the value of each of `keys` keys. The load client asks for all keys equally often, so that of a trace these are
    /// the sizes of its requests at equal distances of their order by size.
    ///
    /// `None` where the trace is not in the folder `traces`.
    ///
    /// # Errors
    /// Neither or both of `bytes` and `trace`; a trace that cannot be read or has no sizes.
    pub fn sizes(&self, traces: &Path, keys: u64) -> anyhow::Result<Option<Vec<usize>>> {
        let keys = usize::try_from(keys)?;
        let name = match (self.bytes, &self.trace) {
            (Some(bytes), None) => return Ok(Some(vec![usize::try_from(bytes)?; keys])),
            (None, Some(name)) => name,
            _ => anyhow::bail!("values: one of `bytes` and `trace`"),
        };
        let path = traces.join(format!("{name}.csv.zst"));
        if !path.exists() {
            return Ok(None);
        }
        let trace = Trace::open(&path, Some(0..ROWS), true)?;
        let mut sizes: Vec<u32> = trace.rows.iter().filter_map(|row| row.size).collect();
        sizes.sort_unstable();
        ensure!(!sizes.is_empty(), "{} states no sizes", path.display());
        Ok(Some(quantiles(&sizes, keys)))
    }
}

/// `count` of sorted values, at the middles of equal parts.
fn quantiles(sorted: &[u32], count: usize) -> Vec<usize> {
    let at = |part: usize| (2 * part + 1) * sorted.len() / (2 * count);
    (0..count).map(|part| sorted[at(part)] as usize).collect()
}

impl std::fmt::Display for ValueSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ValueSize::Bytes(bytes) if bytes % 1024 == 0 => write!(f, "{} KiB", bytes / 1024),
            ValueSize::Bytes(bytes) => write!(f, "{bytes} B"),
            ValueSize::Trace => f.write_str("a trace's sizes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_requests() {
        let sorted: Vec<u32> = (0..1000).collect();
        assert_eq!(quantiles(&sorted, 4), [125, 375, 625, 875]);
        // Their mean is that of the requests, whatever their law.
        let squares: Vec<u32> = (0..1000).map(|i| i * i).collect();
        let mean = squares.iter().sum::<u32>() as f64 / 1000.0;
        let drawn = quantiles(&squares, 100).iter().sum::<usize>() as f64 / 100.0;
        assert!((drawn / mean - 1.0).abs() < 0.01, "{drawn} of {mean}");
        assert_eq!(quantiles(&[7], 3), [7, 7, 7]);
    }

    #[test]
    fn a_size_or_a_trace() {
        let values = |bytes, trace| Values { bytes, trace, connections: vec![], servers: vec![] };
        let none = Path::new("nowhere");
        assert_eq!(values(Some(100), None).sizes(none, 2).unwrap(), Some(vec![100, 100]));
        assert!(values(None, None).sizes(none, 2).is_err());
        assert!(values(Some(1), Some("x".to_owned())).sizes(none, 2).is_err());
        assert_eq!(values(None, Some("x".to_owned())).sizes(none, 2).unwrap(), None);
        assert_eq!(ValueSize::Bytes(1024).to_string(), "1 KiB");
    }
}
