//! The requests of all points, as one trace: first every object once, then a slice for each point.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use model::capacity::MixPart;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::settings::Settings;

/// Requests of a point's slice; they repeat from the start when they end.
const ROWS: u64 = 4_000;
/// Requests that have the shares of their mix; it divides [`ROWS`].
const BLOCK: usize = 20;
/// The most objects of a size, and the most bytes of all objects of it.
const OBJECTS_MAX: u64 = 256;
const BYTES_MAX: u64 = 64 << 20;

/// The objects of a size.
fn count(size: u64) -> u64 {
    (BYTES_MAX / size.max(1)).clamp(4, OBJECTS_MAX)
}

/// The bytes of all objects of some sizes.
pub fn bytes_of_objects(sizes: &[u64]) -> u64 {
    sizes.iter().map(|&size| size * count(size)).sum()
}

/// The trace.
pub(super) struct Requests {
    pub file: PathBuf,
    objects: u64,
}

impl Requests {
    /// Writes the requests of points, by the parts of each.
    pub fn write(
        file: &Path,
        points: &[Vec<MixPart>],
        settings: &Settings,
    ) -> anyhow::Result<Requests> {
        let mut sizes = settings.sizes.clone();
        sizes.extend(points.iter().flatten().map(|part| part.size_bytes as u64));
        sizes.sort_unstable();
        sizes.dedup();
        let mut text = String::from("time_ms,key,size,op\n");
        let mut objects = 0;
        for &size in &sizes {
            for object in 0..count(size) {
                let _ = writeln!(text, "0,s{size}-{object},{size},get");
                objects += 1;
            }
        }
        let mut random = StdRng::seed_from_u64(settings.plan.seed);
        for parts in points {
            for (part, op) in sequence(parts, &mut random) {
                let size = parts[part].size_bytes as u64;
                let object = random.random_range(0..count(size));
                let _ = writeln!(text, "0,s{size}-{object},{size},{op}");
            }
        }
        report::write_new(file, &text)?;
        Ok(Requests { file: file.to_owned(), objects })
    }

    /// The rows that ask for every object once.
    pub fn catalogue(&self) -> Range<u64> {
        0..self.objects
    }

    /// The rows of a point.
    pub fn rows_of(&self, point: usize) -> Range<u64> {
        let from = self.objects + point as u64 * ROWS;
        from..from + ROWS
    }
}

/// The requests of a point: the number of the part and the operation of each.
///
/// Each block of [`BLOCK`] has the shares of the mix to one request, in a random order. Independent
/// draws would not do: a point is some hundred requests of a slow store, the same in all its repetitions, so that the
/// share of the dear ones would be off by a tenth, with no sign of it in the scatter.
fn sequence(parts: &[MixPart], random: &mut StdRng) -> Vec<(usize, &'static str)> {
    let kinds: Vec<(usize, &str, f64)> = parts
        .iter()
        .enumerate()
        .flat_map(|(i, part)| {
            let reads = part.share * part.read_share;
            [(i, "get", reads), (i, "put", part.share - reads)]
        })
        .collect();
    let mut given = vec![0.0f64; kinds.len()];
    let mut all = Vec::with_capacity(ROWS as usize);
    while all.len() < ROWS as usize {
        let from = all.len();
        while all.len() < from + BLOCK {
            // The one that is furthest behind its share of what there will be.
            let due = |k: usize| kinds[k].2 * (all.len() + 1) as f64 - given[k];
            let next = (0..kinds.len()).max_by(|a, b| due(*a).total_cmp(&due(*b))).unwrap_or(0);
            given[next] += 1.0;
            all.push((kinds[next].0, kinds[next].1));
        }
        all[from..].shuffle(random);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::part;
    use super::*;
    use load::{Keys, Load, Plan, Popularity, Size};

    #[test]
    fn each_point_has_a_slice_with_its_shares_and_the_catalogue_has_all_objects() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::Synthetic {
            popularity: Popularity::Uniform,
            count: 1,
            size: Size::fixed(1),
            format: "k{i}".to_owned(),
            read_share: 1.0,
        };
        let plan = Plan::new("http://127.0.0.1:1", Load::Nothing, keys, dir.path().to_owned());
        let settings = Settings {
            plan,
            sizes: vec![4096],
            step_s: 1.0,
            warmup_s: 0.0,
            repeat: 1,
            clients_max: 1,
            mixes: Vec::new(),
            wanted: Vec::new(),
        };
        let points =
            [vec![part(4096, 1.0, 1.0)], vec![part(4096, 0.7, 0.25), part(1 << 24, 0.0, 0.75)]];
        let requests = Requests::write(&dir.path().join("r.csv"), &points, &settings).unwrap();
        let text = std::fs::read_to_string(&requests.file).unwrap();
        let rows: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(requests.catalogue(), 0..260, "256 of 4 KiB and 4 of 16 MiB");
        let distinct: std::collections::HashSet<&str> =
            rows.iter().filter_map(|row| row.split(',').nth(1)).collect();
        assert_eq!(distinct.len(), 260);
        let of = |point: usize, what: &str| {
            let range = requests.rows_of(point);
            let slice = &rows[range.start as usize..range.end as usize];
            slice.iter().filter(|row| row.contains(what)).count() as f64 / slice.len() as f64
        };
        assert_eq!(of(0, ",put"), 0.0);
        assert!((of(1, ",16777216,put") - 0.75).abs() < 1e-3);
        assert!((of(1, ",4096,get") - 0.175).abs() < 1e-3);
        assert_eq!(rows.len() as u64, requests.rows_of(1).end);
    }
    /// However few requests of a point are sent, their shares are those of the mix.
    #[test]
    fn the_first_requests_have_the_shares_of_the_mix() {
        let parts = [part(4096, 0.71, 0.24), part(65_536, 0.71, 0.39), part(524_288, 0.71, 0.37)];
        let all = sequence(&parts, &mut StdRng::seed_from_u64(20));
        assert_eq!(all.len() as u64, ROWS);
        for first in [60, 113, 440, 1_234, 4_000] {
            let dear = all[..first].iter().filter(|r| **r == (2, "put")).count() as f64;
            assert!((dear - 0.37 * 0.29 * first as f64).abs() < 4.0, "{first}: {dear}");
        }
        // In no order.
        let sizes: std::collections::HashSet<Vec<usize>> =
            all.chunks(BLOCK).map(|block| block.iter().map(|r| r.0).collect()).collect();
        assert!(sizes.len() > 190, "{}", sizes.len());
    }
}
