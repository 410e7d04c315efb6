//! Service times that change with the load of a device.

use serde::{Deserialize, Serialize};

use crate::error::{Error, check, positive};

/// Neighbouring factors of [`ByLoad::levels`] differ by at most this, as a logarithm: between them P(T ≤ t) is a
/// straight line.
const STEP: f64 = 0.05;
/// The most factors.
const LEVELS_MAX: f64 = 24.0;

/// A mean service time that changes with the load: what is done for many requests at once costs each less
/// (or, where they disturb each other, more).
///
/// Up to `from` reads/s of a device the mean is that of its law. From there to `to` reads/s the time in which a server is
/// busy grows in a straight line, each further request adding the same, until the mean is `factor` times as long; beyond `to` it
/// stays so. The form is an assumption: two loads are known, and none between them.
///
/// ```
/// use model::storage::ByLoad;
/// let by_load = ByLoad { from: 60.0, to: 100.0, factor: 0.9 };
/// by_load.check()?;
/// assert_eq!((by_load.factor_at(30.0), by_load.factor_at(100.0), by_load.factor_at(120.0)), (1.0, 0.9, 0.9));
/// assert!((by_load.factor_at(80.0) - 75.0 / 80.0).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByLoad {
    /// Reads/s of a device up to which the mean is that of the law.
    pub from: f64,
    /// Reads/s from which the mean changes no more.
    pub to: f64,
    /// The mean from there on over that of the law.
    pub factor: f64,
}

impl ByLoad {
    /// That the numbers are such, and that more load keeps the servers busier.
    ///
    /// # Errors
    /// [`Error::Invalid`] otherwise.
    pub fn check(self) -> Result<(), Error> {
        positive("the load from which works change", self.from)?;
        let must = "a finite load above that from which works change";
        check("the load up to which works change", self.to, self.from * 1.000_001..=1e15, must)?;
        let must = "at most 1,000, and so much that more load keeps the servers busier";
        check("the factor of works at full load", self.factor, self.from / self.to..=1e3, must)?;
        Ok(())
    }

    /// The mean over that of the law at reads/s of a device.
    pub fn factor_at(self, rate: f64) -> f64 {
        if rate <= self.from {
            1.0
        } else if rate >= self.to {
            self.factor
        } else {
            (self.from + (rate - self.from) * self.slope()) / rate
        }
    }

    /// Work of a further request between the two loads, over the mean of the law.
    fn slope(self) -> f64 {
        (self.to * self.factor - self.from) / (self.to - self.from)
    }

    /// The reads/s that keep servers busy for `busy` mean service times of the law in a second.
    pub(super) fn rate_of(self, busy: f64) -> f64 {
        if busy <= self.from {
            busy
        } else if busy >= self.to * self.factor {
            busy / self.factor
        } else {
            self.from + (busy - self.from) / self.slope()
        }
    }

    /// Factors from 1 to that of full load.
    pub(super) fn levels(self) -> Vec<f64> {
        let n = (self.factor.ln().abs() / STEP).ceil().clamp(1.0, LEVELS_MAX - 1.0);
        (0..=n as usize).map(|k| self.factor.powf(k as f64 / n)).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::distribution::{Empirical, Piece, ServiceTime};
    use crate::queue::{ArrivalLaw, Discipline};
    use crate::storage::{DeviceGroup, HitRatio, Node};

    use super::*;
    use crate::storage::class::Class;
    use crate::storage::delay::Delay;

    fn node(class: Class) -> Node {
        Node {
            hit_ratio: HitRatio::new(0.0, 0.0).unwrap(),
            memory: None,
            other_share: 0.0,
            other: None,
            delay: Delay::constant(0.002),
            joining: 0.0,
            joining_knee: f64::INFINITY,
            link: None,
            workers: None,
            arrivals: ArrivalLaw::Poisson,
            classes: vec![class],
            groups: vec![DeviceGroup { class: 0, count: 1, share: 1.0, factor: 1.0 }],
        }
    }

    fn law(mean: f64) -> Empirical {
        let piece = |centre, share| Piece { centre, half_width: 0.4 * centre, share };
        Empirical::from_pieces(vec![piece(0.5 * mean, 0.8), piece(3.0 * mean, 0.2)]).unwrap()
    }

    /// At each load the node is one whose works have that mean at all loads.
    #[test]
    fn a_load_is_predicted_by_the_work_that_it_has() {
        for (servers, discipline) in
            [(1, Discipline::Fifo), (3, Discipline::Fifo), (2, Discipline::Shared)]
        {
            let m = f64::from(servers);
            for factor in [0.8, 1.15] {
                let by_load = ByLoad { from: 60.0 * m, to: 100.0 * m, factor };
                let mut class = Class::new(law(0.01 / factor), servers);
                (class.discipline, class.by_load) = (discipline, Some(by_load));
                let changing = node(class.clone());
                assert!(
                    (changing.saturation() - 100.0 * m).abs() < 1e-6,
                    "{}",
                    changing.saturation()
                );
                for rate in [30.0 * m, 60.0 * m, 75.0 * m, 90.0 * m] {
                    let mean = class.service.mean() * by_load.factor_at(rate);
                    let service = law(0.01).with_moments(mean, class.service.scv()).unwrap();
                    let mut same = Class::new(service, servers);
                    same.discipline = discipline;
                    let same = node(same);
                    let (found, known) =
                        (changing.operating(rate).unwrap(), same.operating(rate).unwrap());
                    assert!((found.response_mean / known.response_mean - 1.0).abs() < 0.01);
                    assert!((found.utilisation_mean - known.utilisation_mean).abs() < 1e-9);
                    for t in [0.01, 0.03, 0.1] {
                        let found = changing.cdf(rate, &[t]).unwrap()[0];
                        let known = same.cdf(rate, &[t]).unwrap()[0];
                        let at = (servers, discipline, factor, rate, t);
                        assert!((found - known).abs() < 0.01, "{at:?}: {found} {known}");
                    }
                }
                assert!(changing.operating(101.0 * m).is_err());
            }
        }
    }

    #[test]
    fn loads_and_busy_times_are_each_others_inverse() {
        for factor in [0.7, 0.95, 1.0, 1.3] {
            let by_load = ByLoad { from: 60.0, to: 100.0, factor };
            by_load.check().unwrap();
            for rate in [1.0, 59.0, 60.0, 70.0, 99.0, 100.0, 150.0] {
                let back = by_load.rate_of(rate * by_load.factor_at(rate));
                assert!((back - rate).abs() < 1e-9, "{factor} {rate}: {back}");
            }
        }
    }

    #[test]
    fn bad_numbers_are_named() {
        let good = ByLoad { from: 60.0, to: 100.0, factor: 0.9 };
        for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            assert!(ByLoad { from: bad, ..good }.check().is_err(), "{bad}");
            assert!(ByLoad { to: bad, ..good }.check().is_err(), "{bad}");
            assert!(ByLoad { factor: bad, ..good }.check().is_err(), "{bad}");
        }
        // More load would leave the servers idler.
        assert!(ByLoad { factor: 0.59, ..good }.check().is_err());
        assert!(ByLoad { to: 60.0, ..good }.check().is_err());
    }
}
