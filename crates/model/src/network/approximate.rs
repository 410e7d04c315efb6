//! Approximate mean value analysis of closed networks of several classes, at a cost that does not
//! depend on the populations.

use crate::error::Error;

/// Largest number of rounds of a fixed point. A round converges if numbers change by less than the
/// tolerance, relative to the class's population.
const ROUNDS_MAX: usize = 200_000;
const SETTLED: f64 = 1e-13;

/// A closed network of queues of constant speed, `[class][station]`, and delays.
pub(crate) struct Closed<'a> {
    pub(crate) demands: &'a [Vec<f64>],
    pub(crate) think_s: &'a [f64],
    pub(crate) customers: &'a [f64],
}

/// Throughputs of classes and numbers `[class][station]`.
pub(crate) type ClosedSolution = (Vec<f64>, Vec<Vec<f64>>);

impl Closed<'_> {
    fn stations(&self) -> usize {
        self.demands.first().map_or(0, Vec::len)
    }

    /// The initial numbers: each class is spread in proportion to its demands.
    fn start(&self, customers: &[f64]) -> Vec<Vec<f64>> {
        let spread = |(demands, n): (&Vec<f64>, &f64)| {
            let total: f64 = demands.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            demands.iter().map(|d| n * (d / total)).collect()
        };
        self.demands.iter().zip(customers).map(spread).collect()
    }

    /// The fixed point for a population. A customer of class c finds Σ_j (n − e_c)_j·(Q_j(n)/n_j +
    /// F[c][j]) customers at a station, where F is the change of the share when one customer of c
    /// leaves.
    fn core(
        &self,
        customers: &[f64],
        numbers: &mut [Vec<f64>],
        change: impl Fn(usize, usize, usize) -> f64,
    ) -> Result<Vec<f64>, Error> {
        let (classes, stations) = (customers.len(), self.stations());
        let mut throughput = vec![0.0; classes];
        let mut residence = vec![0.0; stations];
        for _ in 0..ROUNDS_MAX {
            let mut moved = 0.0f64;
            let old = numbers.to_vec();
            for c in 0..classes {
                if customers[c] <= 0.0 {
                    numbers[c].fill(0.0);
                    continue;
                }
                for (k, r) in residence.iter_mut().enumerate() {
                    let met = |j: usize| {
                        if customers[j] <= 0.0 {
                            return 0.0;
                        }
                        let left = customers[j] - f64::from(u8::from(j == c));
                        (left * (old[j][k] / customers[j] + change(c, j, k))).max(0.0)
                    };
                    *r = match self.demands[c][k] {
                        0.0 => 0.0,
                        d => d * (1.0 + (0..classes).map(met).sum::<f64>()),
                    };
                }
                throughput[c] = customers[c] / (self.think_s[c] + residence.iter().sum::<f64>());
                for (k, r) in residence.iter().enumerate() {
                    let number = throughput[c] * r;
                    moved = moved.max((number - old[c][k]).abs() / customers[c]);
                    numbers[c][k] = number;
                }
            }
            if moved <= SETTLED {
                return Ok(throughput);
            }
        }
        Err(Error::NoConvergence { rounds: ROUNDS_MAX })
    }

    /// Bard and Schweitzer: assumes that the share of a class at a station stays the same when one
    /// customer leaves. Errors of some per cent with few customers, vanishing with many. O(classes²
    /// × stations) for each round.
    ///
    /// Source: Schweitzer, Int. Conf. Stochastic Control and Optimization (1979); Lazowska,
    /// Zahorjan, Graham, Sevcik, "Quantitative System Performance" (1984), section 6.4.
    pub(crate) fn schweitzer(&self) -> Result<ClosedSolution, Error> {
        let mut numbers = self.start(self.customers);
        let throughput = self.core(self.customers, &mut numbers, |_, _, _| 0.0)?;
        Ok((throughput, numbers))
    }

    /// Linearizer: estimates the change of shares from the fixed points with one customer less of
    /// each class, three times. Errors of some tenths of a per cent. O(classes³ × stations) for
    /// each round.
    ///
    /// Source: Chandy and Neuse, CACM 25 (1982), 126-134.
    pub(crate) fn linearizer(&self) -> Result<ClosedSolution, Error> {
        let (classes, stations) = (self.customers.len(), self.stations());
        let mut numbers = self.start(self.customers);
        let mut change = vec![vec![vec![0.0; stations]; classes]; classes];
        let less = |c: usize| {
            let mut customers = self.customers.to_vec();
            customers[c] = (customers[c] - 1.0).max(0.0);
            customers
        };
        let mut without: Vec<_> = (0..classes).map(|c| self.start(&less(c))).collect();
        for _ in 0..3 {
            self.core(self.customers, &mut numbers, |c, j, k| change[c][j][k])?;
            for (c, numbers) in without.iter_mut().enumerate() {
                self.core(&less(c), numbers, |c, j, k| change[c][j][k])?;
            }
            for c in 0..classes {
                let fewer = less(c);
                for j in 0..classes {
                    for k in 0..stations {
                        let share = |numbers: &[Vec<f64>], n: f64| match n > 0.0 {
                            true => numbers[j][k] / n,
                            false => 0.0,
                        };
                        change[c][j][k] = match fewer[j] > 0.0 {
                            true => {
                                share(&without[c], fewer[j]) - share(&numbers, self.customers[j])
                            }
                            false => 0.0,
                        };
                    }
                }
            }
        }
        let throughput = self.core(self.customers, &mut numbers, |c, j, k| change[c][j][k])?;
        Ok((throughput, numbers))
    }
}
