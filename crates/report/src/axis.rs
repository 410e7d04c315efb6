//! The axes of plots: positions of values, and tick marks.

use super::objective::digits;

/// The mapping from values to positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Proportional to the value.
    Linear,
    /// Proportional to the logarithm; the range must be above 0.
    Log,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The label, with the unit.
    pub label: String,
    /// Its scale.
    pub scale: Scale,
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: &str, low: f64, high: f64) -> Axis {
        Axis { label: label.to_owned(), scale: Scale::Linear, low, high }.mended()
    }

    /// A logarithmic axis.
    pub fn log(label: &str, low: f64, high: f64) -> Axis {
        Axis { label: label.to_owned(), scale: Scale::Log, low, high }.mended()
    }

    /// Replaces a range that cannot be drawn.
    fn mended(mut self) -> Axis {
        let log = self.scale == Scale::Log;
        let usable = |x: f64| x.is_finite() && x.abs() < 1e15 && (!log || x > 1e-12);
        if !usable(self.low) {
            self.low = if log { 1e-3 } else { 0.0 };
        }
        if !usable(self.high) || self.high <= self.low {
            self.high = if log { self.low * 10.0 } else { self.low + 1.0 };
        }
        self
    }

    /// The position of a value, 0 at the lower end and 1 at the upper; `None` if it cannot be
    /// drawn.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let at = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value > 0.0 => (value / self.low).ln() / (self.high / self.low).ln(),
            Scale::Log => return None,
        };
        at.is_finite().then_some(at)
    }

    /// Tick marks and their labels (empty for minor ticks).
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => {
                let step = round_step((self.high - self.low) / 6.0);
                let first = (self.low / step - 1e-9).ceil() as i64;
                let last = (self.high / step + 1e-9).floor() as i64;
                let decimals = (-step.log10().floor()).max(0.0) as usize;
                let label = |x: f64| match decimals {
                    0 => digits(if x == 0.0 { 0.0 } else { x }, 15),
                    _ => format!("{x:.decimals$}").replace('-', "−"),
                };
                (first..=last.min(first + 20))
                    .map(|i| i as f64 * step)
                    .map(|x| (x, label(x)))
                    .collect()
            }
            Scale::Log => {
                let (first, last) =
                    (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
                let decades = last - first;
                let mut ticks = Vec::new();
                for decade in first..=last.min(first + 30) {
                    for m in 1..10 {
                        let value = f64::from(m) * 10f64.powi(decade);
                        let in_range =
                            self.place(value).is_some_and(|p| (-1e-9..=1.0 + 1e-9).contains(&p));
                        let shown = m == 1 || (decades <= 2 && (m == 2 || m == 5));
                        if in_range {
                            ticks.push((
                                value,
                                if shown { digits(value, 2) } else { String::new() },
                            ));
                        }
                    }
                }
                ticks
            }
        }
    }
}

/// Rounds a step up to 1, 2 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= step * 0.999).unwrap_or(10.0);
    factor * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        let labels = |axis: Axis| axis.ticks().into_iter().map(|t| t.1).collect::<Vec<_>>();
        assert_eq!(
            labels(Axis::linear("", 0.0, 1000.0)),
            ["0", "200", "400", "600", "800", "1,000"]
        );
        assert_eq!(
            labels(Axis::linear("", 0.9, 1.0)),
            ["0.90", "0.92", "0.94", "0.96", "0.98", "1.00"]
        );
        let log: Vec<_> =
            labels(Axis::log("", 0.1, 1000.0)).into_iter().filter(|l| !l.is_empty()).collect();
        assert_eq!(log, ["0.1", "1", "10", "100", "1,000"]);
    }
}
