//! A request of several parts, independent of each other.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use statrs::function::gamma::ln_gamma;

use crate::bisection::bisect;
use crate::error::{Error, check};

/// Largest number of parts of a request: the 99th percentile of 10,000 parts is at a millionth of one part's tail, as
/// deep as measured laws reach.
pub(super) const PARTS_MAX: u32 = 10_000;

/// A request that consists of `parts` parts sent at once, and is answered when `needed` of them are: a multi-get over
/// several servers (all parts), or a read of any k of n coded pieces.
///
/// P(T ≤ t) = P(at least k of n parts have X ≤ t), a binomial tail for independent parts of one law (H. A. David, H. N.
/// Nagaraja, "Order Statistics", 2003, section 2.1). It rises with P(X ≤ t), so that intervals and quantiles of a part
/// carry over exactly. Parts that arrive together at queues that get common arrivals wait alike: with all parts needed,
/// each at another queue, the request is then *faster* than this says (parts are associated: R. Nelson, A. N. Tantawi,
/// IEEE Transactions on Computers 37 (1988), section III), and [`super::ForkJoin`] is its law. Parts that meet at one
/// queue wait for each other, which is not included. Cost: nanoseconds to a microsecond.
///
/// Written `N` or `N:K`:
///
/// ```
/// use model::fork_join::FanOut;
/// let all: FanOut = "100".parse()?;
/// // With 99 % of the parts within a time, 37 % of the requests are.
/// assert!((all.within(0.99) - 0.366).abs() < 1e-3);
/// let any: FanOut = "3:1".parse()?;
/// assert!((any.within(0.5) - 0.875).abs() < 1e-12);
/// assert!((any.within(any.part_share(0.99)) - 0.99).abs() < 1e-9);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FanOut {
    parts: u32,
    needed: u32,
}

impl FanOut {
    /// [`Error::Invalid`] unless there are 1 to 10,000 parts, of which 1 to all are needed.
    pub fn new(parts: u32, needed: u32) -> Result<FanOut, Error> {
        let n = check(
            "the number of parts",
            f64::from(parts),
            1.0..=f64::from(PARTS_MAX),
            "1 to 10,000",
        )?;
        let must = "1 to the number of parts";
        check("the number of parts that must answer", f64::from(needed), 1.0..=n, must)?;
        Ok(FanOut { parts, needed })
    }

    /// Number of parts of a request.
    pub fn parts(self) -> u32 {
        self.parts
    }

    /// Number of parts after which the request is answered.
    pub fn needed(self) -> u32 {
        self.needed
    }

    /// P(request ≤ t), given P(part ≤ t).
    pub fn within(self, part: f64) -> f64 {
        binomial_tail(self.parts, self.needed, part.clamp(0.0, 1.0))
    }

    /// P(part ≤ t) at the time t at which P(request ≤ t) is `request`: the inverse of [`FanOut::within`].
    pub fn part_share(self, request: f64) -> f64 {
        if self.needed == self.parts {
            // A bisection ends before the digits of a share near 1 that a large power needs.
            return request.clamp(0.0, 1.0).powf(1.0 / f64::from(self.parts));
        }
        bisect(1.0, |part| self.within(part) < request)
    }
}

impl FromStr for FanOut {
    type Err = String;

    fn from_str(text: &str) -> Result<FanOut, String> {
        let number = |text: &str| {
            text.parse::<u32>().map_err(|_| {
                "write N or N:K, the number of parts and how many of them must answer".to_owned()
            })
        };
        let (parts, needed) = match text.split_once(':') {
            Some((parts, needed)) => (number(parts)?, number(needed)?),
            None => (number(text)?, number(text)?),
        };
        FanOut::new(parts, needed).map_err(|error| error.to_string())
    }
}

impl fmt::Display for FanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts == self.needed {
            true => write!(f, "all of {} parts", self.parts),
            false => write!(f, "{} of {} parts", self.needed, self.parts),
        }
    }
}

/// P(a binomial count of `n` tries with probability `p` is at least `k`): the smaller tail is
/// summed from its largest term, so both tails keep their digits (1e-9 of themselves at a million
/// tries).
pub(super) fn binomial_tail(n: u32, k: u32, p: f64) -> f64 {
    let (all, rank) = (f64::from(n), f64::from(k));
    if k == 0 || p >= 1.0 {
        return 1.0;
    }
    if p <= 0.0 {
        return 0.0;
    }
    if k >= n {
        return p.powf(all);
    }
    if k == 1 {
        return -(all * (-p).ln_1p()).exp_m1();
    }
    let chance = |j: f64| {
        let ways = ln_gamma(all + 1.0) - ln_gamma(j + 1.0) - ln_gamma(all - j + 1.0);
        (ways + j * p.ln() + (all - j) * (-p).ln_1p()).exp()
    };
    let odds = p / (1.0 - p);
    let above = rank > all * p;
    let mut j = if above { rank } else { rank - 1.0 };
    let (mut term, mut sum) = (chance(j), 0.0);
    while term > sum * 1e-17 && (0.0..=all).contains(&j) {
        sum += term;
        if above {
            term *= (all - j) / (j + 1.0) * odds;
            j += 1.0;
        } else {
            term *= j / (all - j + 1.0) / odds;
            j -= 1.0;
        }
    }
    f64::clamp(if above { sum } else { 1.0 - sum }, 0.0, 1.0)
}
