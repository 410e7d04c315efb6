//! The shares of memory and hot devices over their bytes, as a file that `plan` reads.

use std::path::Path;

use model::plan::Curves;
use serde::{Deserialize, Serialize};

use super::sample::{Node, Sampled, Shares};
use crate::error::Error;

/// What the second line of a file says.
const WRITTEN_BY: &str = "Written by `concertina tiers --curves`";
/// The version that is written.
const FORMAT: u32 = 1;

/// Multiples of a size at which the curves are computed.
const MULTIPLES: [f64; 6] = [0.25, 0.5, 1.0, 1.5, 2.0, 4.0];

/// A file of curves, with what they were computed from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurvesFile {
    format: u32,
    /// Requests of which the sample was taken.
    pub requests: usize,
    /// Sampled part of the keys.
    pub sampled: f64,
    /// The memory tier's policy.
    pub eviction: String,
    /// Whether hot devices were filled as a node fills them, or hold the best placement because
    /// the requests have no times.
    pub timed: bool,
    /// The curves.
    pub curves: Curves,
}

impl CurvesFile {
    /// Computes curves around the sizes of a node: from a quarter of its memory and hot bytes to
    /// four times these. Cost: some microseconds for each sampled request and pair of sizes, on two
    /// threads. `done` is called after each row with the number of all.
    pub fn compute(
        sampled: &Sampled,
        node: &Node,
        timed: bool,
        done: impl Fn(usize) + Sync,
    ) -> CurvesFile {
        let sizes = |size: f64| {
            let multiples = MULTIPLES.into_iter().filter(|_| size > 0.0);
            std::iter::once(0.0).chain(multiples.map(|times| times * size)).collect::<Vec<f64>>()
        };
        let (memory_bytes, hot_bytes) = (sizes(node.memory_bytes), sizes(node.hot_bytes));
        let row = |memory: f64| -> Vec<Shares> {
            let of = |hot: f64| match timed && hot > 0.0 {
                true => sampled.node_shares(&Node {
                    memory_bytes: memory,
                    hot_bytes: hot,
                    ..node.clone()
                }),
                false => sampled.shares(node.eviction, memory, hot),
            };
            hot_bytes.iter().map(|&hot| of(hot)).collect()
        };
        let next = std::sync::atomic::AtomicUsize::new(0);
        let work = || {
            let mut rows = Vec::new();
            loop {
                let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(&memory) = memory_bytes.get(at) else { return rows };
                rows.push((at, row(memory)));
                done(memory_bytes.len());
            }
        };
        let mut rows = std::thread::scope(|scope| {
            let other = scope.spawn(work);
            let mut rows = work();
            rows.extend(other.join().unwrap_or_default());
            rows
        });
        rows.sort_by_key(|row| row.0);
        // Memory's share is that without hot devices: what these hold does not change it.
        let memory_share = rows.iter().map(|(_, row)| row[0].memory).collect();
        let hot_share = rows
            .iter()
            .map(|(_, row)| row.iter().map(|of| of.hot.min(1.0 - row[0].memory)).collect())
            .collect();
        CurvesFile {
            format: FORMAT,
            requests: sampled.requests(),
            sampled: sampled.rate(),
            eviction: format!("{:?}", node.eviction),
            timed,
            curves: Curves { memory_bytes, hot_bytes, memory_share, hot_share },
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read, is of a later version, or its curves are not curves.
    pub fn read(path: &Path) -> Result<CurvesFile, Error> {
        let shown = path.display();
        let text = record::file::read_text(path).map_err(|source| {
            let file = format!("the curves {shown} (`concertina tiers --curves` writes them)");
            Error::File { file, source }
        })?;
        let place = format!("invalid curves file {shown}");
        let file: CurvesFile = toml::from_str(&text).map_err(Error::content(&place))?;
        if file.format != FORMAT {
            return Err(Error::input(format!(
                "{shown} has format {}, and this version reads {FORMAT}: write it again with `concertina tiers --curves`",
                file.format
            )));
        }
        file.curves.check().map_err(Error::content(place))?;
        Ok(file)
    }

    /// Whether a text is that of such a file, of any version.
    pub fn is_text(text: &str) -> bool {
        text.contains(WRITTEN_BY)
    }

    /// The file's text.
    ///
    /// # Errors
    /// If it cannot be written as TOML.
    pub fn text(&self) -> Result<String, Error> {
        Ok(format!(
            "# Shares of all requests that memory and hot devices serve, by their bytes in all nodes together.\n\
             # {WRITTEN_BY}; read by `concertina plan --curves`.\n{}",
            toml::to_string(self)?
        ))
    }

    /// A sentence about where the curves come from.
    pub fn origin(&self) -> String {
        format!(
            "Hit ratios of memory and hot devices by curves from {} recorded requests, {:.1} % of the keys sampled{}.",
            self.requests,
            self.sampled * 100.0,
            if self.timed { "" } else { "; hot devices hold the best placement" }
        )
    }
}

#[cfg(test)]
mod tests {
    use engine::node::TierSettings;
    use engine::tier::Eviction;
    use ground::window::SECOND;

    use super::super::sample::Recorded;
    use super::*;

    #[test]
    fn curves_are_the_shares_of_their_sizes_and_are_read_as_written() {
        let keys: Vec<Vec<u8>> = (0..300u64).map(|key| key.to_le_bytes().to_vec()).collect();
        let requests = (0..6000u64).map(|i| Recorded {
            key: &keys[(i * i * 7919 % 1009 * (i % 300) / 1009) as usize],
            bytes: 1000,
            at: i * SECOND / 50,
        });
        let sampled = Sampled::new(requests, 1000);
        let node = Node {
            eviction: Eviction::S3Fifo,
            memory_bytes: 20_000.0,
            hot_bytes: 100_000.0,
            tiers: TierSettings::default(),
            bulk: (0.008, f64::INFINITY),
            hot: (0.0005, f64::INFINITY),
        };
        let file = CurvesFile::compute(&sampled, &node, true, |_| {});
        assert_eq!(file.curves.check(), Ok(()));
        let (memory, hot) = file.curves.shares(20_000.0, 100_000.0);
        let shares = sampled.node_shares(&node);
        assert!((memory - shares.memory).abs() < 0.01 && hot == shares.hot, "{shares:?}");
        assert_eq!(
            file.curves.shares(40_000.0, 0.0).0,
            sampled.shares(node.eviction, 40_000.0, 0.0).memory
        );
        assert!(file.curves.shares(0.0, 400_000.0).1 > file.curves.shares(0.0, 25_000.0).1);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("curves.toml");
        std::fs::write(&path, file.text().unwrap()).unwrap();
        assert_eq!(CurvesFile::read(&path).unwrap(), file);
        for (from, to, says) in [
            ("format = 1", "format = 2", "format 2"),
            ("memory_bytes = [0.0", "memory_bytes = [7.0", "memory_bytes"),
            ("timed", "timid", "timid"),
        ] {
            std::fs::write(&path, file.text().unwrap().replace(from, to)).unwrap();
            let error = ground::with_causes(&CurvesFile::read(&path).unwrap_err());
            assert!(error.contains(says), "{error}");
        }
    }
}
