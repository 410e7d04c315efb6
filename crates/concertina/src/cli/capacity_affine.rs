//! The cost of an I/O between the measured sizes, in a sentence: of a table of measurements, and of a store that was measured.

use model::capacity::AffineCost;
use model::regression::Estimated;
use report::objective::time;

use super::capacity_verdict::{error_percent, interval};

/// The cost between sizes, in a sentence.
pub(super) fn affine_text(affine: &AffineCost) -> String {
    let line = |fixed: Estimated, byte: Estimated| {
        format!("{} + {} ns per byte", time(fixed.value), interval(scaled(byte, 1e9)))
    };
    format!(
        "\nBetween sizes: a read takes {}, a write {}; worst error {} %.\n",
        line(affine.read_fixed_s, affine.read_byte_s),
        line(affine.write_fixed_s, affine.write_byte_s),
        error_percent(affine.residual_worst)
    )
}

/// Converts to another unit.
fn scaled(e: Estimated, by: f64) -> Estimated {
    Estimated { value: e.value * by, low: e.low.map(|x| x * by), high: e.high.map(|x| x * by) }
}
