//! Throughput at any read share and of mixes of sizes.

use serde::{Deserialize, Serialize};

use super::io::{IoCapacity, IoSize, affine_row};
use crate::error::{Error, check, positive};
use crate::regression::Estimated;

/// The meaning of the shares of a mix. The two meanings differ in throughput by a factor of five
/// and more, so a prediction always names the one it used. [`IoCapacity::mix`] has an example of
/// both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shares {
    /// Shares of the I/Os: this percentage of all I/Os has the size. By conservation of capacity
    /// the throughput is the *harmonic* mean, 1/T = Σ Pᵢ/Tᵢ.
    Ios,
    /// Shares of the capacity: this part of the system (workers, time) is reserved for the size.
    /// The throughput is the *arithmetic* mean T = Σ Pᵢ·Tᵢ, as AT&T's slides print it.
    Capacity,
}

/// One size of a mix, an input of [`IoCapacity::mix`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixPart {
    /// Bytes of each I/O.
    pub size_bytes: f64,
    /// Share of reads among the I/Os of this size.
    pub read_share: f64,
    /// Share of this size, in the meaning of [`Shares`]; the shares of a mix sum to 1.
    pub share: f64,
}

/// The source of the cost of an I/O in an [`IoThroughput`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The points of its own size.
    Size,
    /// The affine cost, because a size was not measured. A mix then uses it for all sizes.
    Affine,
}

/// A predicted throughput in I/Os per second: [`IoCapacity::throughput`] of one size,
/// [`IoCapacity::mix`] of several. At this load the system is saturated, and response times are
/// long.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IoThroughput {
    /// Reads and writes together, with the interval of the mean. A single new measurement scatters
    /// more ([`IoCapacity::scatter`]), and errors of the formula itself come on top
    /// ([`super::MixError`]).
    pub total: Estimated,
    /// Reads per second (T_read).
    pub reads: f64,
    /// Writes per second (T_write).
    pub writes: f64,
    /// Bytes per second, read and written.
    pub bytes: f64,
    /// The source of the costs.
    pub basis: Basis,
    /// For a mix, the meaning of its shares.
    pub by: Option<Shares>,
    /// The respects in which the prediction is an extrapolation; empty if it is none.
    pub extrapolated: Vec<String>,
}

impl IoCapacity {
    /// The throughput of I/Os of one size at a read share, T = 1/(ρ·s_r + (1 − ρ)·s_w). A size that
    /// was not measured uses the affine cost, and is marked if outside the measured sizes.
    pub fn throughput(&self, size_bytes: f64, read_share: f64) -> Result<IoThroughput, Error> {
        let part = MixPart { size_bytes, read_share, share: 1.0 };
        Ok(IoThroughput { by: None, ..self.mix(&[part], Shares::Ios)? })
    }

    /// The throughput of a mix of sizes. Cost: linear in the parts.
    ///
    /// ```
    /// use model::capacity::{IoCapacity, IoPoint, MixPart, Shares};
    /// let at = |size_bytes, read_share, throughput| IoPoint { size_bytes, read_share, throughput };
    /// let system = IoCapacity::fit(
    ///     &[at(4e3, 1.0, 1e4), at(4e3, 0.0, 2_500.0), at(1e6, 1.0, 120.0), at(1e6, 0.0, 80.0)],
    ///     0.95,
    /// )?;
    /// let part = |size_bytes, share| MixPart { size_bytes, read_share: 1.0, share };
    /// let parts = [part(4e3, 0.5), part(1e6, 0.5)];
    /// // Every other I/O is large: the small ones wait for them.
    /// assert!((system.mix(&parts, Shares::Ios)?.total.value - 237.154).abs() < 1e-3);
    /// // Half of the workers do large ones only, the others small ones only.
    /// assert!((system.mix(&parts, Shares::Capacity)?.total.value - 5060.0).abs() < 1e-9);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn mix(&self, parts: &[MixPart], by: Shares) -> Result<IoThroughput, Error> {
        check_parts(parts)?;
        let measured = parts.iter().all(|part| self.size(part.size_bytes).is_some());
        let basis = if measured { Basis::Size } else { Basis::Affine };
        let costs: Vec<f64> =
            parts.iter().map(|part| self.cost(part, basis)).collect::<Result<_, _>>()?;
        // The derivative of T by a cost: T² times the share of I/Os (harmonic), or Tᵢ² times that
        // of capacity (arithmetic). For the harmonic mean the interval is computed for the seconds
        // and inverted.
        let weights: Vec<f64> = match by {
            Shares::Ios => parts.iter().map(|part| part.share).collect(),
            Shares::Capacity => {
                parts.iter().zip(&costs).map(|(part, y)| part.share / (y * y)).collect()
            }
        };
        let half = self.spread(parts, &weights, basis)?;
        let (total, rates): (Estimated, Vec<f64>) = match by {
            Shares::Ios => {
                let seconds: f64 = parts.iter().zip(&costs).map(|(part, y)| part.share * y).sum();
                let rates = parts.iter().map(|part| part.share / seconds).collect();
                (Estimated::around(seconds, half).inverse(), rates)
            }
            Shares::Capacity => {
                let rates: Vec<f64> =
                    parts.iter().zip(&costs).map(|(part, y)| part.share / y).collect();
                (Estimated::around(rates.iter().sum(), half), rates)
            }
        };
        positive("the predicted throughput", total.value)?;
        let sum = |of: fn(&MixPart) -> f64| parts.iter().zip(&rates).map(|(p, t)| of(p) * t).sum();
        Ok(IoThroughput {
            total,
            reads: sum(|part| part.read_share),
            writes: sum(|part| 1.0 - part.read_share),
            bytes: sum(|part| part.size_bytes),
            basis,
            by: Some(by),
            extrapolated: self.extrapolated(parts, basis),
        })
    }

    fn size(&self, size_bytes: f64) -> Option<&IoSize> {
        self.sizes.iter().find(|size| size.size_bytes == size_bytes)
    }

    /// Seconds of the system per I/O.
    fn cost(&self, part: &MixPart, basis: Basis) -> Result<f64, Error> {
        let (fit, row) = match (basis, self.size(part.size_bytes), &self.affine) {
            (Basis::Size, Some(size), _) => {
                (&size.fit, vec![part.read_share, 1.0 - part.read_share])
            }
            (_, _, Some(affine)) => (&affine.fit, affine_row(part.size_bytes, part.read_share)),
            _ => {
                let unknown =
                    |p: f64| Error::SizeNotMeasured { size_bytes: p, known: self.known_sizes() };
                return Err(unknown(part.size_bytes));
            }
        };
        let seconds = fit.value(&row);
        if seconds > 0.0 && seconds.is_finite() {
            return Ok(seconds);
        }
        Err(Error::Contradictory {
            what: format!("the measured sizes and a size of {} bytes", part.size_bytes),
            why: format!(
                "the affine cost is {seconds:.3e} s there; it holds near the measured sizes only \
                 ({} bytes): measure that size",
                self.known_sizes()
            ),
        })
    }

    fn known_sizes(&self) -> String {
        let names: Vec<String> = self.sizes.iter().map(|s| s.size_bytes.to_string()).collect();
        names.join(", ")
    }

    /// Half the width of the interval of the sum of weight × seconds.
    fn spread(
        &self,
        parts: &[MixPart],
        weights: &[f64],
        basis: Basis,
    ) -> Result<Option<f64>, Error> {
        if let (Basis::Affine, Some(affine)) = (basis, &self.affine) {
            let mut row = vec![0.0; 4];
            for (part, weight) in parts.iter().zip(weights) {
                let own = affine_row(part.size_bytes, part.read_share);
                row.iter_mut().zip(own).for_each(|(sum, x)| *sum += weight * x);
            }
            return Ok(Self::half_width(affine.noise, &[affine.fit.factor(&row)]));
        }
        // The fits of different sizes are independent; parts of one size are not.
        let mut factors = Vec::new();
        for size in &self.sizes {
            let mut row = vec![0.0; 2];
            for (part, weight) in parts.iter().zip(weights) {
                if part.size_bytes == size.size_bytes {
                    row[0] += weight * part.read_share;
                    row[1] += weight * (1.0 - part.read_share);
                }
            }
            factors.push(size.fit.factor(&row));
        }
        Ok(Self::half_width(self.noise, &factors))
    }

    fn extrapolated(&self, parts: &[MixPart], basis: Basis) -> Vec<String> {
        let mut words = Vec::new();
        let (least, most) = (self.sizes[0].size_bytes, self.sizes[self.sizes.len() - 1].size_bytes);
        let all = |of: fn(&IoSize) -> f64| self.sizes.iter().map(of);
        let lowest = all(|s| s.read_share_low).fold(1.0f64, f64::min);
        let highest = all(|s| s.read_share_high).fold(0.0f64, f64::max);
        for part in parts {
            let size = part.size_bytes;
            let (low, high) = match (basis, self.size(size)) {
                (Basis::Size, Some(own)) => (own.read_share_low, own.read_share_high),
                _ => (lowest, highest),
            };
            if !(least..=most).contains(&size) {
                words.push(format!("{size} bytes is outside the measured {least} to {most}"));
            }
            if !(low..=high).contains(&part.read_share) {
                words.push(format!(
                    "a read share of {} at {size} bytes is outside the measured {low} to {high}",
                    part.read_share
                ));
            }
        }
        words
    }
}

fn check_parts(parts: &[MixPart]) -> Result<(), Error> {
    if parts.is_empty() {
        let todo = "name the sizes of the mix";
        return Err(Error::TooFew { what: "parts of a mix".to_owned(), got: 0, need: 1, todo });
    }
    for part in parts {
        check("an I/O size in bytes", part.size_bytes, 1e-3..=1e18, "from 0.001 to 1e18")?;
        check("a share of reads", part.read_share, 0.0..=1.0, "from 0 to 1")?;
        check("a share of a mix", part.share, 0.0..=1.0, "from 0 to 1")?;
    }
    let sum: f64 = parts.iter().map(|part| part.share).sum();
    check("the sum of the shares of a mix", sum, 1.0 - 1e-6..=1.0 + 1e-6, "1").map(|_| ())
}
