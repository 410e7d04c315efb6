//! What a survey measures, and how long.

use load::Plan;
use model::capacity::MixPart;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The service and what all steps share; its `out` is the folder of the run folders.
    pub plan: Plan,
    /// Sizes of the objects, bytes.
    pub sizes: Vec<u64>,
    /// Seconds of a repetition, and of the warm-up before it.
    pub step_s: f64,
    /// The same.
    pub warmup_s: f64,
    /// Repetitions of every point.
    pub repeat: usize,
    /// The most clients.
    pub clients_max: usize,
    /// Mixes that are not fitted, each with parts of the requests.
    pub mixes: Vec<Vec<MixPart>>,
    /// Mixes that are predicted only.
    pub wanted: Vec<Vec<MixPart>>,
}
