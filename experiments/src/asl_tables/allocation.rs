//! The allocation of variation of a 2^3·3 design, computed from the printed effects alone.
//!
//! If errors explain the fraction u of the variation, an effect q explains (1 − u)·q²/Σq². The study weighted q²
//! by 2² where 2^k·r = 24 is correct (Jain, section 18.5), so its u is about six times too large. The sum of squared
//! errors can still be recovered, SSE = u/(1 − u)·2²·Σq², and with it the confidence intervals of the effects.

use std::path::Path;

use model::statistics::student_95;

use super::cells::Range;
use super::csv::Table;

/// The weight of a squared effect: the study's, and the correct one.
const WEIGHT_PRINTED: f64 = 4.0;
const WEIGHT: f64 = 24.0;
/// 2^k·(r − 1).
const ERROR_DEGREES: usize = 16;

/// A row of a table of effects.
pub(super) struct Effect {
    /// Letters of the factors that interact in it.
    pub name: String,
    /// q: as printed, as a number, and half a unit of its last digit.
    pub printed: String,
    pub value: f64,
    pub half: f64,
    /// The fraction of the variation that it explains, as printed, and half a unit of the last digit.
    pub printed_share: String,
    share: f64,
    share_half: f64,
}

impl Effect {
    /// The sign of the effect in a cell; bit i of `cell` is set if factor i is at its high level.
    pub fn sign(&self, cell: u32) -> f64 {
        let bits = self.name.chars().filter_map(|letter| "ABC".find(letter));
        let factors: u32 = bits.map(|bit| 1_u32 << bit).sum();
        if (factors & !cell).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 }
    }
}

pub(super) fn read(folder: &Path, file: &str) -> anyhow::Result<Vec<Effect>> {
    let table = Table::read(folder, file)?;
    let effect = |row: super::csv::Row| {
        let (value, half) = row.number_and_half("mean_estimate")?;
        let (share, share_half) = row.number_and_half("variation_explained_fraction")?;
        Ok(Effect {
            name: row.text("source")?.trim_start_matches('q').to_owned(),
            printed: row.text("mean_estimate")?.to_owned(),
            value,
            half,
            printed_share: row.text("variation_explained_fraction")?.to_owned(),
            share,
            share_half,
        })
    };
    table.rows().map(effect).collect()
}

fn sum_of_squares(effects: &[Effect]) -> f64 {
    effects.iter().map(|effect| effect.value.powi(2)).sum()
}

/// q²/Σq² of each effect: the value, and its least and greatest within the rounding of all effects.
fn parts(effects: &[Effect]) -> Vec<Range> {
    let squares = |by: f64| -> Vec<f64> {
        let moved = effects.iter().map(|e| (e.value.abs() + by * e.half).max(0.0));
        moved.map(|q| q * q).collect()
    };
    let (small, exact, large) = (squares(-1.0), squares(0.0), squares(1.0));
    let [all_small, all, all_large] = [&small, &exact, &large].map(|q| q.iter().sum::<f64>());
    let part = |i: usize| Range {
        exact: exact[i] / all,
        least: small[i] / (small[i] + all_large - large[i]),
        most: large[i] / (large[i] + all_small - small[i]),
    };
    (0..effects.len()).map(part).collect()
}

/// The fractions explained by the effects, with the study's weights, if errors explain the fraction u.
pub(super) fn shares(effects: &[Effect], u: Range) -> Vec<Range> {
    let share = |part: Range| Range {
        exact: (1.0 - u.exact) * part.exact,
        least: (1.0 - u.most) * part.least,
        most: (1.0 - u.least) * part.most,
    };
    parts(effects).into_iter().map(share).collect()
}

/// The fraction explained by errors: one minus the sum of the printed fractions; and the least and greatest with
/// which each of them is as printed.
pub(super) fn left(effects: &[Effect]) -> Range {
    let (mut least, mut most) = (0.0_f64, 1.0_f64);
    for (effect, part) in effects.iter().zip(parts(effects)) {
        least = least.max(1.0 - (effect.share + effect.share_half) / part.least);
        most = most.min(1.0 - (effect.share - effect.share_half) / part.most);
    }
    let sum: f64 = effects.iter().map(|effect| effect.share).sum();
    Range { exact: 1.0 - sum, least, most }
}

/// The fraction explained by errors under the study's weight, from the sums of squares of effects and errors.
pub(super) fn left_of_errors(effects: &[Effect], errors: f64) -> f64 {
    errors / (errors + WEIGHT_PRINTED * sum_of_squares(effects))
}

/// The fraction explained by errors, corrected from the study's weight to the right one.
pub(super) fn put_right(u: f64) -> f64 {
    // u = E/(E + 4·Σq²), so E/(E + 24·Σq²) is:
    u / (u + (1.0 - u) * WEIGHT / WEIGHT_PRINTED)
}

/// Half-width of the effects' 95 % confidence intervals if errors explain u under the study's weight.
pub(super) fn half_width(effects: &[Effect], u: f64) -> f64 {
    let errors = u / (1.0 - u) * WEIGHT_PRINTED * sum_of_squares(effects);
    student_95(ERROR_DEGREES) * (errors / ERROR_DEGREES as f64 / WEIGHT).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(name: &str, value: f64, share: f64) -> Effect {
        Effect {
            name: name.to_owned(),
            printed: String::new(),
            value,
            half: 0.05,
            printed_share: String::new(),
            share,
            share_half: 0.0005,
        }
    }

    /// Jain, example 18.1: q = 21.5, 9.5, 5; SSE = 102 of SST = 7,032; four cells, three runs each.
    #[test]
    fn errors_are_told_by_effects_and_shares() {
        let q = [("A", 21.5), ("B", 9.5), ("AB", 5.0)];
        let sum: f64 = q.iter().map(|(_, q)| q * q).sum();
        let u = 102.0 / (102.0 + 4.0 * sum);
        let rounded = |share: f64| (share * 1e3).round() / 1e3;
        let effects = q.map(|(name, q)| effect(name, q, rounded((1.0 - u) * q * q / sum)));
        assert!((left_of_errors(&effects, 102.0) - u).abs() < 1e-12);
        let found = left(&effects);
        assert!(found.least < u && u < found.most, "{found:?} {u}");
        for (share, effect) in shares(&effects, Range::around(u, 0.0)).iter().zip(&effects) {
            assert!((share.exact - effect.share).abs() <= 0.0005, "{}", effect.name);
        }
        let right = put_right(u);
        assert!((right - 102.0 / (102.0 + 24.0 * sum)).abs() < 1e-12, "{right}");
    }

    #[test]
    fn signs_are_products() {
        let signs = |name: &str| [0, 1, 3, 7].map(|cell| effect(name, 1.0, 0.0).sign(cell));
        assert_eq!(signs("A"), [-1.0, 1.0, 1.0, 1.0]);
        assert_eq!(signs("AB"), [1.0, -1.0, 1.0, 1.0]);
        assert_eq!(signs("ABC"), [-1.0, 1.0, -1.0, 1.0]);
    }
}
