//! How unevenly objects load equal servers, and
//! the resulting limit, without regard to time.
//!
//! | `LAW` | objects |
//! |---|---|
//! | `zipf:0.8:1000000` | a million, popularity falling as rank^−0.8 |
//! | a trace | its keys, as often as it reads them |
//!
//! The counts of a short trace overstate the popularity of keys that it reads once. Other laws (an
//! exponent, the samples of a run) do not state the popularity of single objects and are rejected.

use std::path::Path;

use ground::window::Operation;
use model::cache::Catalogue;
use model::storage::Imbalance;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::Serialize;

use crate::error::Error;
use crate::objective::digits;
use crate::popularity;
use record::trace::Trace;

/// The probability with which the limit holds for a random placement.
const CHANCE: f64 = 0.95;

/// Number of placements to draw if there is no formula, and the largest number of random numbers to
/// spend on them: a second or two.
const PLACEMENTS: u32 = 1_000;
const DRAWS_MAX: f64 = 1e8;

/// Random numbers for a placement in addition to one for each server ([`Imbalance::sample_shares`]).
const DRAWS_OF_OBJECTS: f64 = 2_000.0;

const SEED: u64 = 1;

/// The imbalance of objects placed at random on servers of equal capacity. Shares are the fullest
/// server's share of all requests.
#[derive(Clone, Debug, Serialize)]
pub struct Placement {
    #[serde(skip)]
    servers: u32,
    /// The number of equally popular objects that would load the servers as unevenly.
    effective_objects: f64,
    share_max_mean: f64,
    /// The 95 % quantile over placements.
    share_max_p95: f64,
    /// The balls-into-bins bound, with objects for balls.
    share_max_bound: f64,
    /// The number of placements drawn, if some object is too popular for the formula.
    placements: Option<u32>,
    /// Requests/s on all servers up to which, in 95 % of placements, no server is past its limit.
    confidence_limit: f64,
    confidence_limit_bound: f64,
}

impl Placement {
    /// Computes the imbalance of a law's objects on servers that each have this confidence limit,
    /// requests/s.
    ///
    /// # Errors
    /// If there is one server, the law does not describe single objects, or the trace cannot be
    /// read.
    pub fn read(law: &str, servers: u32, server_limit: f64) -> Result<Placement, Error> {
        if servers <= 1 {
            let reason = "--popularity needs several servers to place objects on: add --servers";
            return Err(Error::input(reason));
        }
        let objects = catalogue(law).map_err(Error::content("--popularity"))?;
        let imbalance = Imbalance::new(servers, &objects)?;
        let (mean, p95, placements) = match imbalance.share_max_quantile(CHANCE) {
            Ok(p95) => (imbalance.share_max_mean(), p95, None),
            // One object is a large part of a server's load, so its placement matters.
            Err(_) => fullest_share(&imbalance, servers)?,
        };
        let bound = imbalance.share_max_bound();
        Ok(Placement {
            servers,
            effective_objects: imbalance.effective_objects(),
            share_max_mean: mean,
            share_max_p95: p95,
            share_max_bound: bound,
            placements,
            // Infinite if no load reaches the limit of a server.
            confidence_limit: server_limit / p95,
            confidence_limit_bound: server_limit / bound,
        })
    }

    /// Describes the imbalance.
    pub fn text(&self) -> String {
        let even = |share: f64| digits(share * f64::from(self.servers), 3);
        let how = match self.placements {
            Some(count) => format!(" ({count} placements drawn)"),
            None => String::new(),
        };
        format!(
            "Without regard to time, for objects placed at random (as unevenly as {} equally popular ones): the \
             fullest server has {} times an even share on average and at most {} times in 95 % of placements{how}, \
             so the limit is {} requests/s; by the bound {}.\n",
            digits(self.effective_objects, 4),
            even(self.share_max_mean),
            even(self.share_max_p95),
            digits(self.confidence_limit, 4),
            digits(self.confidence_limit_bound, 4)
        )
    }
}

/// The mean and the 95 % quantile of the fullest server's share in random placements, and the
/// number of placements drawn.
fn fullest_share(imbalance: &Imbalance, servers: u32) -> Result<(f64, f64, Option<u32>), Error> {
    let placements = placements_of(servers);
    let shares = imbalance.sample_shares(placements, &mut StdRng::seed_from_u64(SEED))?;
    let mean = shares.iter().sum::<f64>() / f64::from(placements);
    let p95 = shares.get((CHANCE * f64::from(placements)) as usize).copied().unwrap_or(1.0);
    Ok((mean, p95, Some(placements)))
}

/// The number of placements to draw.
fn placements_of(servers: u32) -> u32 {
    let most = DRAWS_MAX / (DRAWS_OF_OBJECTS + f64::from(servers));
    PLACEMENTS.min(most as u32).max(1)
}

/// The objects of a law.
fn catalogue(law: &str) -> Result<Catalogue, Error> {
    if let Some(objects) = popularity::zipf(law)? {
        return Ok(objects);
    }
    let path = Path::new(law);
    if !path.is_file() {
        return Err(Error::input(format!(
            "`{law}` does not state the popularity of single objects: write zipf:0.8:1000000, or a trace"
        )));
    }
    let trace = Trace::open(path, None, true)?;
    let mut counts = vec![0u64; trace.keys()];
    for row in trace.rows.iter().filter(|row| row.operation == Operation::Get) {
        if let Some(count) = counts.get_mut(row.key as usize) {
            *count += 1;
        }
    }
    Catalogue::from_counts(counts).map_err(Error::content(format!("{law} has no reads")))
}

#[cfg(test)]
mod tests {
    use ground::with_causes;

    use super::*;

    #[test]
    fn many_small_objects_need_no_draws_and_few_large_ones_do() {
        let even = Placement::read("zipf:0:1000000", 25, 780.0).unwrap();
        assert!(even.placements.is_none() && even.share_max_mean < even.share_max_p95, "{even:?}");
        assert!((even.effective_objects / 1e6 - 1.0).abs() < 1e-6, "{even:?}");
        assert!((25.0 * even.share_max_mean - 1.0098).abs() < 1e-3, "{even:?}");
        assert!((even.confidence_limit * even.share_max_p95 - 780.0).abs() < 1e-6, "{even:?}");
        let skewed = Placement::read("zipf:0.8:1000000", 25, 780.0).unwrap();
        assert_eq!(skewed.placements, Some(PLACEMENTS));
        assert!((25.0 * skewed.share_max_mean - 1.32).abs() < 0.08, "{skewed:?}");
        assert!(skewed.share_max_mean < skewed.share_max_p95, "{skewed:?}");
        assert!(skewed.confidence_limit < even.confidence_limit, "{skewed:?}");
        let free = Placement::read("zipf:0:1000000", 25, f64::INFINITY).unwrap();
        assert!(free.text().contains('∞'), "{}", free.text());
        // A million servers take hardly more draws.
        assert_eq!([25, 1_000_000].map(placements_of), [1_000, 99]);
    }

    #[test]
    fn a_trace_says_how_often_its_keys_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.csv");
        let mut text = String::from("time_ms,key,size,op\n");
        for (key, reads) in [("a", 3), ("b", 1)] {
            text += &format!("0,{key},100,get\n").repeat(reads);
        }
        text += "0,c,100,put\n";
        std::fs::write(&path, text).unwrap();
        let found = Placement::read(path.to_str().unwrap(), 2, 100.0).unwrap();
        // 1/(0.75² + 0.25²).
        assert!((found.effective_objects - 1.6).abs() < 1e-9, "{found:?}");
        // Both on one server, or each on its own.
        assert!((0.75..=1.0).contains(&found.share_max_mean), "{found:?}");
        assert!(found.share_max_p95 > 0.999, "{found:?}");
        std::fs::write(&path, "time_ms,key,size,op\n0,c,100,put\n").unwrap();
        let error = with_causes(&Placement::read(path.to_str().unwrap(), 2, 1.0).unwrap_err());
        assert!(error.contains("has no reads"), "{error}");
    }

    #[test]
    fn laws_without_objects_are_refused() {
        for (law, servers, says) in [
            ("0.25", 5, "single objects"),
            ("no/such/place", 5, "single objects"),
            ("zipf:0.8", 5, "number of objects"),
            ("zipf:-1:100", 5, "exponent of popularity"),
            ("zipf:0.8:0", 5, "number of objects"),
            ("zipf:0.8:100", 1, "--servers"),
        ] {
            let error = with_causes(&Placement::read(law, servers, 1.0).unwrap_err());
            assert!(error.contains(says), "{law}: {error}");
        }
    }
}
