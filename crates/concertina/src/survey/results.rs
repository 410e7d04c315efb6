//! What a survey finds: the throughput of points, mixes beside their predictions, and the law with its error.

use model::capacity::{IoCapacity, MixError, MixPart};
use serde::{Deserialize, Serialize};

/// Throughput of a point at saturation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredPoint {
    /// The requests' sizes and shares of reads.
    pub parts: Vec<MixPart>,
    /// Successful requests/s of each repetition.
    pub repetitions: Vec<f64>,
    /// Their mean.
    pub throughput: f64,
    /// Half the width of its 95 % interval; `None` of one repetition.
    pub half_width: Option<f64>,
    /// Share of the replies that were errors.
    pub errors: f64,
    /// Share of the replies that were refusals (503, 429).
    pub refused: f64,
    /// The most that a thread of the load generator used of its core.
    pub generator: f64,
}

/// A mix beside its prediction.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    /// What was measured.
    pub measured: MeasuredPoint,
    /// Requests/s by the law and its error, which the other judged mixes tell.
    pub predicted: f64,
    /// The interval in which a measurement is expected.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Predicted over measured, less 1.
    pub error: f64,
    /// Whether the measurement is in the interval.
    pub inside: bool,
    /// Requests/s by the law alone, the harmonic mean: shares of the requests.
    pub law: f64,
    /// The law over measured, less 1.
    pub law_error: f64,
    /// Requests/s by the arithmetic mean: shares of the capacity.
    pub arithmetic: f64,
}

/// The result of the search for the number of clients that saturate a store.
#[derive(Clone, Copy, Debug)]
pub struct ClientSearch {
    /// Clients of every point.
    pub clients: usize,
    /// Whether more clients gained nothing at every point.
    pub saturated: bool,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Survey {
    /// Clients of every point.
    pub clients: usize,
    /// Whether more clients gained nothing at every point.
    pub saturated: bool,
    /// Reads and writes alone of each size.
    pub points: Vec<MeasuredPoint>,
    /// The law.
    #[serde(skip)]
    pub law: IoCapacity,
    /// Its error for mixes, from all that were judged.
    pub mix_error: MixError,
    /// Mixes that the law has not seen.
    pub judged: Vec<Judged>,
    /// Mixes that were asked for: parts, requests/s, and the interval in which a measurement is expected.
    pub wanted: Vec<(Vec<MixPart>, [f64; 3])>,
    /// What is wrong, in sentences.
    pub warnings: Vec<String>,
}

impl Survey {
    /// The errors of the mixes without their signs, ascending.
    pub fn errors(&self) -> Vec<f64> {
        let mut errors: Vec<f64> = self.judged.iter().map(|j| j.error.abs()).collect();
        errors.sort_by(f64::total_cmp);
        errors
    }
}

/// Reads alone of each size, of a store that must not be written.
#[derive(Clone, Debug, Serialize)]
pub struct Reads {
    /// Clients of every point.
    pub clients: usize,
    /// Whether more clients gained nothing at every point.
    pub saturated: bool,
    /// One for each size.
    pub points: Vec<MeasuredPoint>,
}
