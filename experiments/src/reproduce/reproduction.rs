//! What was found for the figures of the catalogue, and the count of what agrees.

use super::catalogue::Figure;
use super::compute::{Curve, Row};
use super::measured::Measurement;
use crate::claims::Verdict;

/// A figure with what was found for it.
pub struct Reproduction<'a> {
    /// As the catalogue has it.
    pub figure: &'a Figure,
    /// Its computed numbers.
    pub rows: Vec<Row<'a>>,
    /// Its measurements.
    pub measurements: Vec<Measurement<'a>>,
    /// Its curves.
    pub curves: Vec<Curve<'a>>,
}

/// How many figures of a chapter agree with what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// NumberEntry numbers that are the printed ones.
    pub same: usize,
    /// NumberEntry numbers that differ.
    pub differ: usize,
    /// MeasurementEntry claims that hold.
    pub hold: usize,
    /// MeasurementEntry claims that are not shown.
    pub not_shown: usize,
    /// MeasurementEntry claims that fail.
    pub fail: usize,
    /// Figures that are absent, each with its reason.
    pub absent: usize,
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Count { same, differ, hold, not_shown, fail, absent } = self;
        write!(
            f,
            "computed {same} as printed, {differ} not; measured {hold} hold, {not_shown} not shown, {fail} fail; \
             {absent} absent with the reason"
        )
    }
}

/// The count of one chapter.
pub struct ChapterCount {
    /// Its title.
    pub title: String,
    /// What agrees and what does not.
    pub count: Count,
}

impl Count {
    /// Counts what was found for the figures of a chapter.
    pub fn of_figures(found: &[Reproduction<'_>]) -> Count {
        let mut count = Count::default();
        for figure in found {
            count.absent += usize::from(figure.figure.absent.is_some());
            for row in &figure.rows {
                if row.is_same() { count.same += 1 } else { count.differ += 1 }
            }
            for claim in figure.measurements.iter().flat_map(|measured| &measured.claims) {
                match claim.verdict {
                    Some(Verdict::Holds) => count.hold += 1,
                    Some(Verdict::NotShown) => count.not_shown += 1,
                    Some(Verdict::Fails) => count.fail += 1,
                    None => {}
                }
            }
        }
        count
    }
}
