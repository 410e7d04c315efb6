//! The claims of experiments on predictions: the largest error among held-out loads.

use super::claims::{Claim, Goal, Peer};
use super::marks::{MarkedLoad, up_to};
use report::Row;

/// A claim on the error of predictions up to a load.
pub struct Accuracy<'a> {
    /// Name of the case that was predicted.
    pub of: &'a str,
    /// The part of the loads, in words.
    pub part: &'a str,
    /// The largest load that counts, requests/s.
    pub rate_max: f64,
    /// The largest error that is allowed, points.
    pub goal: f64,
    /// The largest that the source printed, points.
    pub published: Option<f64>,
    /// The loads that were measured, with the complaints about each.
    pub loads: &'a [MarkedLoad],
}

impl Accuracy<'_> {
    /// The largest error of our model among the rows of the part, with the widest half-width of a
    /// measurement there: each point has to be measured well, not only the worst. `None` if the
    /// part has no rows. `requests`: how many each load measured.
    pub fn claim(&self, rows: &[Row], requests: &[(f64, u64)]) -> Option<Claim> {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.rate <= self.rate_max).collect();
        let (worst, value) =
            rows.iter().map(|row| (row, error(row))).max_by(|a, b| a.1.total_cmp(&b.1))?;
        let half_width = rows
            .iter()
            .map(|row| row.measured.half_width.map_or(f64::NAN, |h| h * 100.0))
            .fold(0.0, |widest: f64, h| {
                // An unknown width stays unknown; `max` alone would drop it.
                if h.is_nan() || widest.is_nan() { f64::NAN } else { widest.max(h) }
            });
        let spotify = rows
            .iter()
            .filter_map(|row| row.spotify_error_points)
            .fold(0.0, |largest: f64, error| largest.max(error.abs()));
        let unstable = rows.iter().any(|row| row.spotify.is_none());
        let peer = if unstable { "Spotify model where stable" } else { "Spotify model" };
        let requests = requests.iter().filter(|(rate, _)| *rate <= self.rate_max);
        let samples = requests.map(|(_, requests)| requests).sum();
        let name = format!(
            "{}: |error of P(T ≤ t)| {}, worst at {:.0}/s and {} ms",
            self.of,
            self.part,
            worst.rate,
            worst.within_s * 1e3
        );
        Some(Claim {
            published: self.published,
            goal: Some(Goal::AtMost(self.goal)),
            peer: Some(Peer { name: peer.into(), value: spotify }),
            marks: up_to(self.loads, self.rate_max),
            ..Claim::new(name, value, half_width, "points", samples)
        })
    }
}

/// Size of a row's error, points. A load that the model calls unstable is one where it expects
/// nobody to be answered in time, so that all of the measured share is its error.
fn error(row: &Row) -> f64 {
    row.concertina_error_points.map_or(row.measured.value * 100.0, f64::abs)
}
