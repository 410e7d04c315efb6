//! Phase-type laws with given moments.

use crate::error::{Error, check, time};

use super::super::Hyperexponential;
use super::PhaseType;

/// Phases of a fit by three moments at most.
const FIT_PHASES_MAX: usize = 200;

/// Points of (0, 1), even in the logarithm of the odds, between which a change of sign is looked for.
const SCAN: i32 = 400;

/// A chain: an exponential of mean `single`, an Erlang law of mean `erlang`, and
/// the probability of the one of them that may be left out.
struct Chain {
    single: f64,
    erlang: f64,
    p: f64,
}

/// The two structures that together reach every triple of moments that acyclic laws of n phases do.
#[derive(Clone, Copy)]
enum Structure {
    /// An exponential always, an Erlang of n − 1 phases with probability p.
    MaybeErlang,
    /// An Erlang of n − 1 phases always, an exponential with probability p.
    MaybeSingle,
}

impl Structure {
    /// For mean 1 and the second moment: the chain with the mean `x` of its certain part. It may ask
    /// for what there is not, a probability above 1 or a negative mean.
    fn chain(self, n: usize, m2: f64, x: f64) -> Chain {
        let phases = (n - 1) as f64;
        let c2 = (phases + 1.0) / phases;
        // The other part adds p·y = 1 − x to the mean; the second moment says what y is.
        let other = match self {
            Structure::MaybeErlang => (m2 - 2.0 * x) / ((1.0 - x) * c2),
            Structure::MaybeSingle => (m2 - x * x * c2 - 2.0 * x * (1.0 - x)) / (2.0 * (1.0 - x)),
        };
        let p = (1.0 - x) / other;
        match self {
            Structure::MaybeErlang => Chain { single: x, erlang: other, p },
            Structure::MaybeSingle => Chain { single: other, erlang: x, p },
        }
    }

    /// The third moment of a chain.
    fn third(self, n: usize, chain: &Chain) -> f64 {
        let phases = (n - 1) as f64;
        let (c2, c3) =
            ((phases + 1.0) / phases, (phases + 1.0) * (phases + 2.0) / (phases * phases));
        let Chain { single: x, erlang: e, p } = *chain;
        match self {
            Structure::MaybeErlang => {
                6.0 * x.powi(3) + p * (6.0 * x * x * e + 3.0 * x * e * e * c2 + e.powi(3) * c3)
            }
            Structure::MaybeSingle => {
                e.powi(3) * c3 + p * (3.0 * e * e * c2 * x + 6.0 * e * x * x + 6.0 * x.powi(3))
            }
        }
    }

    /// The chain with these moments: where the third moment's error changes sign between the points
    /// of a scan, or does so twice between them, or touches 0.
    fn solve(self, n: usize, m2: f64, m3: f64) -> Option<Chain> {
        let off = |x: f64| self.third(n, &self.chain(n, m2, x)) - m3;
        let possible = |x: f64| {
            let Chain { single, erlang, p } = self.chain(n, m2, x);
            let holds = single > 0.0 && erlang > 0.0 && p > 0.0 && p <= 1.0 + 1e-9;
            holds.then_some(Chain { single, erlang, p: p.min(1.0) })
        };
        let at = |i: i32| 1.0 / (1.0 + (20.0 - 40.0 * f64::from(i) / f64::from(SCAN)).exp());
        let points: Vec<(f64, f64)> = (0..=SCAN).map(|i| (at(i), off(at(i)))).collect();
        let mut crossings = points
            .windows(2)
            .filter(|p| (p[0].1 <= 0.0) != (p[1].1 <= 0.0))
            .map(|p| root(p[0].0, p[1].0, &off));
        if let Some(chain) = crossings.find_map(possible) {
            return Some(chain);
        }
        for three in points.windows(3) {
            let [(a, va), (_, vb), (c, vc)] = *three else { continue };
            let sign = va.signum();
            if vb * sign >= va * sign || vb * sign >= vc * sign {
                continue;
            }
            let (mut low, mut high) = (a, c);
            for _ in 0..100 {
                let (x, y) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
                if off(x) * sign < off(y) * sign {
                    high = y;
                } else {
                    low = x;
                }
            }
            let least = 0.5 * (low + high);
            let value = off(least) * sign;
            let found = if value < 0.0 {
                possible(root(a, least, &off)).or_else(|| possible(root(least, c, &off)))
            } else if value < 1e-12 * m3 {
                possible(least)
            } else {
                None
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn law(self, n: usize, mean: f64, chain: &Chain) -> Result<PhaseType, Error> {
        let steps = (n - 1) as f64 / (chain.erlang * mean);
        let single = 1.0 / (chain.single * mean);
        let mut rates = vec![steps; n];
        let mut initial = vec![0.0; n];
        initial[0] = chain.p;
        match self {
            Structure::MaybeErlang => {
                rates[n - 1] = single;
                initial[n - 1] += 1.0 - chain.p;
            }
            Structure::MaybeSingle => {
                rates[0] = single;
                initial[1] += 1.0 - chain.p;
            }
        }
        PhaseType::chain(&initial, &rates)
    }
}

/// Where `off` changes its sign between `a` and `b`, by bisection.
fn root(a: f64, b: f64, off: &dyn Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (a, b);
    let first = off(a) <= 0.0;
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if (off(middle) <= 0.0) == first {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

impl PhaseType {
    /// The usual law with a mean in seconds and a squared coefficient of variation from 0.001 to 1e6.
    ///
    /// Above 1 two exponential branches with balanced means (W. Whitt, "Approximating a point process
    /// by a renewal process", Operations Research 30, 1982); at 1 the exponential; below, k − 1 or k
    /// equal phases, 1/k ≤ SCV (H. C. Tijms, "Stochastic Models", 1994). Both moments are
    /// exact; of the tail two moments say little, so prefer three, or [`super::HyperErlang::fit`].
    ///
    /// ```
    /// use model::distribution::{PhaseType, ServiceTime};
    /// let law = PhaseType::from_two_moments(0.01, 0.4)?;
    /// assert_eq!(law.initial().len(), 3);
    /// assert!((law.mean() - 0.01).abs() < 1e-15 && (law.scv() - 0.4).abs() < 1e-12);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn from_two_moments(mean: f64, scv: f64) -> Result<Self, Error> {
        time("the mean of a law", mean)?;
        let must = "0.001 to 1,000,000; for less take a constant, or a constant and a law";
        check("the SCV of a phase-type law", scv, 1e-3..=1e6, must)?;
        if (scv - 1.0).abs() < 1e-12 {
            return Self::chain(&[1.0], &[1.0 / mean]);
        }
        if scv > 1.0 {
            let p = 0.5 * (1.0 + ((scv - 1.0) / (scv + 1.0)).sqrt());
            let rates = vec![2.0 * p / mean, 2.0 * (1.0 - p) / mean];
            return Self::from_rates(vec![p, 1.0 - p], vec![Vec::new(); 2], rates);
        }
        // The least k with 1/k ≤ SCV, forgiving rounding at exact fractions.
        let k = (1.0 / scv - 1e-9).ceil().max(2.0);
        let p =
            ((k * scv - (k * (1.0 + scv) - k * k * scv).max(0.0).sqrt()) / (1.0 + scv)).max(0.0);
        let n = k as usize;
        let mut initial = vec![0.0; n];
        (initial[0], initial[1]) = (1.0 - p, p);
        Self::chain(&initial, &vec![(k - p) / mean; n])
    }

    /// A law with the first three moments E\[X\], E\[X²\], E\[X³\] (seconds, seconds², seconds³), of as few
    /// phases as an acyclic law can have (up to 200).
    ///
    /// Source: A. Bobbio, A. Horváth, M. Telek, "Matching three moments with minimal acyclic phase type
    /// distributions", Stochastic Models 21 (2005): an exponential phase and an Erlang law, one of which
    /// may be left out, reach all that n phases reach. Where they give closed formulas we look for the
    /// root of the third moment's equation in one unknown (401 points and bisection), which can be
    /// checked by hand; the moments are matched to 1e-10. An error if no law, or none of 200 phases, has
    /// the moments.
    ///
    /// ```
    /// use model::distribution::{PhaseType, ServiceTime};
    /// let law = PhaseType::from_three_moments([1.0, 1.6, 4.0])?;
    /// assert!((law.moment(2) - 1.6).abs() < 1e-9 && (law.moment(3) - 4.0).abs() < 1e-9);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn from_three_moments(moments: [f64; 3]) -> Result<Self, Error> {
        let [mean, second, third] = moments;
        time("the mean of a law", mean)?;
        let (m2, m3) = (second / (mean * mean), third / (mean * mean * mean));
        let must = "from the mean's square to 1e6 times that";
        check("the second moment of a law (in squared means)", m2, 1.0..=1e6, must)?;
        let must = "at least the square of the second, at most 1e12";
        check(
            "the third moment of a law (in cubed means)",
            m3,
            m2 * m2 * (1.0 - 1e-12)..=1e12,
            must,
        )?;
        let scv = m2 - 1.0;
        let erlang = (1.0 / scv).round();
        let exact = (1.0 + 1.0 / erlang) * (1.0 + 2.0 / erlang);
        if (1.0..=FIT_PHASES_MAX as f64).contains(&erlang)
            && (scv * erlang - 1.0).abs() < 1e-9
            && (m3 / exact - 1.0).abs() < 1e-9
        {
            let n = erlang as usize;
            let mut initial = vec![0.0; n];
            initial[0] = 1.0;
            return Self::chain(&initial, &vec![erlang / mean; n]);
        }
        for n in 2..=FIT_PHASES_MAX {
            // An SCV below 1/n is out of reach of n phases.
            if scv * (n as f64) < 1.0 {
                continue;
            }
            for structure in [Structure::MaybeErlang, Structure::MaybeSingle] {
                if let Some(chain) = structure.solve(n, m2, m3) {
                    return structure.law(n, mean, &chain);
                }
            }
        }
        let must = "within what phase-type laws of 200 phases with these first two moments reach";
        Err(Error::Invalid { what: "the third moment of a law (in cubed means)", value: m3, must })
    }
}

impl TryFrom<&Hyperexponential> for PhaseType {
    type Error = Error;

    /// The same law as phases.
    fn try_from(law: &Hyperexponential) -> Result<Self, Error> {
        let branches = law.branches();
        let rates = branches.iter().map(|b| 1.0 / b.1).collect();
        let initial = branches.iter().map(|b| b.0).collect();
        Self::from_rates(initial, vec![Vec::new(); branches.len()], rates)
    }
}
