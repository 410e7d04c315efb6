//! The claims of experiments on predictions: the largest error among held-out loads.

use super::{Claim, Goal, Peer};
use report::Row;

/// Largest half-width of a measurement with which a claim can hold, points.
const WIDTH_MAX_POINTS: f64 = 1.0;

/// A claim on the error of predictions up to a load.
pub struct Accuracy<'a> {
    /// What was predicted.
    pub of: &'a str,
    /// Up to where, in words.
    pub part: &'a str,
    /// The largest load that counts, requests/s.
    pub rate_max: f64,
    /// The largest error that is allowed, points.
    pub goal: f64,
    /// The largest that the source printed, points.
    pub published: Option<f64>,
}

impl Accuracy<'_> {
    /// The largest error of our model among the rows of the part, with the interval of the widest
    /// measurement there; `None` if there are no rows. `requests`: how many each load measured.
    pub fn claim(&self, rows: &[Row], requests: &[(f64, u64)]) -> Option<Claim> {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.rate <= self.rate_max).collect();
        // A load that was measured and that the model calls unstable is missed by all.
        let (worst, value) = rows
            .iter()
            .map(|row| (row, row.concertina_error_points.map_or(f64::INFINITY, f64::abs)))
            .max_by(|a, b| a.1.total_cmp(&b.1))?;
        // Each point of the part has to be measured well, not the worst alone.
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
        Some(Claim {
            name: format!(
                "{}: |error of P(T ≤ t)| {}, worst at {:.0}/s and {} ms",
                self.of,
                self.part,
                worst.rate,
                worst.within_s * 1e3
            ),
            value,
            low: value - half_width,
            high: value + half_width,
            unit: "points".into(),
            samples: requests.map(|(_, requests)| requests).sum(),
            width_max: WIDTH_MAX_POINTS,
            published: self.published,
            goal: Some(Goal::AtMost(self.goal)),
            peer: Some(Peer { name: peer.into(), value: spotify }),
            holds: false,
        })
    }
}
