//! Hyper-Erlang laws by maximum likelihood: the page of [`HyperErlang::fit`] says how.

use statrs::function::gamma::ln_gamma;

use crate::error::{Error, check, time};
use crate::window::Histogram;

use super::{ErlangBranch, HyperErlang};

/// Branches of a fit at most: more are more splits to try than they gain.
const BRANCHES_MAX: usize = 4;
/// Phases of a fit at most.
const FIT_PHASES_MAX: u32 = 50;
/// Values nearer to each other than this part are taken together, with their mean.
const TOGETHER: f64 = 0.01;
/// Steps of every split; then of the better half; then of the best few, until they converge.
const STEPS: [usize; 3] = [8, 24, 2_000];
/// How many splits are followed to the end.
const FINALISTS: usize = 6;
/// Converged: a step gains less than this in log-likelihood for each observation.
const GAIN: f64 = 1e-9;

/// What [`HyperErlang::fit`] found, whose page has the method, its limits and an example.
#[derive(Clone, Debug, PartialEq)]
pub struct HyperErlangFit {
    /// The law.
    pub law: HyperErlang,
    /// Σ weight·ln(density), times in seconds: greater is better among fits of the same values.
    pub log_likelihood: f64,
    /// Free parameters: a share and a rate for each branch, the phases of each, less one.
    pub parameters: usize,
    /// Steps of expectation and maximisation that the best split took.
    pub steps: usize,
    /// Whether the last step gained less than 1e-9 for each observation.
    pub converged: bool,
}

/// The values to fit, scaled to mean 1.
struct Values {
    /// x, ln x and share.
    points: Vec<(f64, f64, f64)>,
    mean: f64,
    weight: f64,
}

/// One split on its way.
struct Candidate {
    /// Share, phases, mean (in means of the values), and ln((phases − 1)!).
    branches: Vec<(f64, f64, f64, f64)>,
    log_likelihood: f64,
    steps: usize,
    converged: bool,
}

impl HyperErlang {
    /// The hyper-Erlang law of at most four branches and `phases` phases in all (1 to 50) under which
    /// weighted values (seconds above 0, weight) are most likely.
    ///
    /// Source: A. Thümmler, P. Buchholz, M. Telek, "A novel approach for phase-type fitting with the EM
    /// algorithm", IEEE Transactions on Dependable and Secure Computing 3 (2006). For a given split of the
    /// phases into branches an expectation–maximisation step is a few sums, because an Erlang's rate has a
    /// closed estimate; the splits are tried in turn and the poor ones dropped early.
    ///
    /// The fitted mean is the values' mean (a property of each EM step); other moments need not be. No
    /// branch is narrower than an Erlang of `phases` phases, so the likelihood has a bound. A local
    /// maximum for each split of the phases, from two deterministic starts. Values that are 0 belong
    /// into an atom: see [`super::super::Mixture`]. Values within 1 % of each other are taken together.
    /// Cost: some 0.1 s for 10 phases, 1 s for 50, whatever the number of values.
    ///
    /// ```
    /// use model::distribution::{HyperErlang, ServiceTime};
    /// // Quick ones of 1 ms ± 10 % and slow ones of 9 ms ± 40 %.
    /// let mut values = Vec::new();
    /// for i in 0..100 {
    ///     let u = f64::from(i) / 50.0 - 1.0;
    ///     values.push((0.001 + 0.0001 * u, 3.0));
    ///     values.push((0.009 + 0.0036 * u, 1.0));
    /// }
    /// let fit = HyperErlang::fit(&values, 12)?;
    /// assert!(fit.converged);
    /// let mean = (3.0 * 0.001 + 0.009) / 4.0;
    /// assert!((fit.law.mean() / mean - 1.0).abs() < 0.02);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn fit(values: &[(f64, f64)], phases: u32) -> Result<HyperErlangFit, Error> {
        let most = f64::from(FIT_PHASES_MAX);
        check("the number of phases of a fit", f64::from(phases), 1.0..=most, "1 to 50")?;
        let values = Values::new(values)?;
        let mut candidates: Vec<Candidate> = splits(phases)
            .iter()
            .flat_map(|split| [start(&values, split.iter()), start(&values, split.iter().rev())])
            .collect();
        for (round, &steps) in STEPS.iter().enumerate() {
            for candidate in &mut candidates {
                candidate.improve(&values, steps);
            }
            candidates.sort_by(|a, b| b.log_likelihood.total_cmp(&a.log_likelihood));
            let keep = if round == 0 { candidates.len() / 2 } else { FINALISTS };
            candidates.truncate(keep.max(FINALISTS));
        }
        let best = &candidates[0];
        let branches: Vec<ErlangBranch> = best
            .branches
            .iter()
            .filter(|b| b.0 > 1e-9)
            .map(|b| ErlangBranch { share: b.0, phases: b.1 as u32, mean: b.2 * values.mean })
            .collect();
        let total: f64 = branches.iter().map(|b| b.share).sum();
        let scaled: Vec<ErlangBranch> =
            branches.iter().map(|b| ErlangBranch { share: b.share / total, ..*b }).collect();
        Ok(HyperErlangFit {
            parameters: 3 * scaled.len() - 1,
            law: HyperErlang::new(&scaled)?,
            // Of densities by the second, not by the mean.
            log_likelihood: values.weight * (best.log_likelihood - values.mean.ln()),
            steps: best.steps,
            converged: best.converged,
        })
    }

    /// [`HyperErlang::fit`] of a histogram's times, each bucket at its middle; the mean is the
    /// histogram's exact one. An error if times of 0 were recorded.
    pub fn fit_histogram(times: &Histogram, phases: u32) -> Result<HyperErlangFit, Error> {
        let values: Vec<(f64, f64)> = times
            .buckets()
            .map(|(low, high, n)| (if low > 0.0 { 0.5 * (low + high) } else { 0.0 }, n as f64))
            .collect();
        let mut fit = Self::fit(&values, phases)?;
        let factor = times.mean_s() / super::super::ServiceTime::mean(&fit.law);
        for branch in &mut fit.law.branches {
            branch.mean *= factor;
        }
        Ok(fit)
    }
}

impl Values {
    fn new(values: &[(f64, f64)]) -> Result<Self, Error> {
        check("the number of values to fit", values.len() as f64, 1.0..=1e9, "at least 1")?;
        let (mut weight, mut sum) = (0.0, 0.0);
        for &(x, w) in values {
            let must =
                "a time in seconds from 1e-12 to 1e12; take zeros out as an atom of a mixture";
            check("a value to fit", x, 1e-12..=1e12, must)?;
            check("the weight of a value", w, 0.0..=1e15, "0 to 1e15")?;
            (weight, sum) = (weight + w, sum + w * x);
        }
        check("the sum of the weights", weight, 1e-12..=1e24, "above 0")?;
        let mean = time("the mean of the values", sum / weight)?;
        let mut sorted: Vec<(f64, f64)> =
            values.iter().filter(|v| v.1 > 0.0).map(|v| (v.0 / mean, v.1 / weight)).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut points = Vec::new();
        let (mut first, mut part, mut moment) = (0.0, 0.0, 0.0);
        for (x, w) in sorted {
            if part > 0.0 && x > first * (1.0 + TOGETHER) {
                points.push((moment / part, 0.0, part));
                (part, moment) = (0.0, 0.0);
            }
            if part == 0.0 {
                first = x;
            }
            (part, moment) = (part + w, moment + w * x);
        }
        points.push((moment / part, 0.0, part));
        points.iter_mut().for_each(|p| p.1 = p.0.ln());
        Ok(Values { points, mean, weight })
    }
}

/// All ways to write `phases` as a sum of at most [`BRANCHES_MAX`] numbers, ascending.
fn splits(phases: u32) -> Vec<Vec<u32>> {
    fn extend(rest: u32, least: u32, so_far: &mut Vec<u32>, out: &mut Vec<Vec<u32>>) {
        if rest == 0 {
            out.push(so_far.clone());
        } else if so_far.len() < BRANCHES_MAX {
            for part in least..=rest {
                so_far.push(part);
                extend(rest - part, part, so_far, out);
                so_far.pop();
            }
        }
    }
    let mut out = Vec::new();
    extend(phases, 1, &mut Vec::new(), &mut out);
    out
}

/// Equal shares; the first branch begins at the smallest values' mean, the last at the largest's.
fn start<'a>(values: &Values, phases: impl ExactSizeIterator<Item = &'a u32>) -> Candidate {
    let n = phases.len() as f64;
    let mut means = vec![(0.0, 0.0); phases.len()];
    let mut below = 0.0;
    for &(x, _, w) in &values.points {
        let group = (((below + 0.5 * w) * n) as usize).min(means.len() - 1);
        means[group].0 += w;
        means[group].1 += w * x;
        below += w;
    }
    let mut last = values.points[0].0;
    let branches = phases.zip(&means).map(|(&r, &(w, sum))| {
        let r = f64::from(r);
        last = if w > 0.0 { sum / w } else { last };
        (1.0 / n, r, last, ln_gamma(r))
    });
    Candidate {
        branches: branches.collect(),
        log_likelihood: f64::NEG_INFINITY,
        steps: 0,
        converged: false,
    }
}

impl Candidate {
    /// Steps of expectation and maximisation, at most so many.
    fn improve(&mut self, values: &Values, steps: usize) {
        let n = self.branches.len();
        let mut logs = vec![0.0; n];
        for _ in 0..steps {
            if self.converged {
                return;
            }
            let mut sums = vec![(0.0, 0.0); n];
            // ln of share·rate^r / (r − 1)! and the rate, once for all points.
            let fixed: Vec<(f64, f64, f64)> = self
                .branches
                .iter()
                .map(|&(share, r, mean, factorial)| {
                    let rate = r / mean;
                    (share.max(1e-300).ln() + r * rate.ln() - factorial, r - 1.0, rate)
                })
                .collect();
            let mut log_likelihood = 0.0;
            for &(x, ln_x, w) in &values.points {
                let mut most = f64::NEG_INFINITY;
                for (log, (constant, power, rate)) in logs.iter_mut().zip(&fixed) {
                    *log = constant + power * ln_x - rate * x;
                    most = most.max(*log);
                }
                let total: f64 = logs
                    .iter_mut()
                    .map(|log| {
                        *log = (*log - most).exp();
                        *log
                    })
                    .sum();
                log_likelihood += w * (most + total.ln());
                for (sum, log) in sums.iter_mut().zip(&logs) {
                    let part = w * log / total;
                    sum.0 += part;
                    sum.1 += part * x;
                }
            }
            for (branch, (share, moment)) in self.branches.iter_mut().zip(sums) {
                if share > 1e-12 {
                    (branch.0, branch.2) = (share, moment / share);
                } else {
                    branch.0 = 0.0;
                }
            }
            self.converged = log_likelihood - self.log_likelihood < GAIN;
            self.log_likelihood = log_likelihood;
            self.steps += 1;
        }
    }
}
