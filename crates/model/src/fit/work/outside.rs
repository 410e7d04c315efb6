//! How much the time outside of the servers varies, of one server in line.
//!
//! While requests wait, the k-th gap between departures is its work plus what it spends outside less
//! what the one before spent there: Sₖ + Oₖ − Oₖ₋₁. Works are independent, so that the covariance of
//! successive gaps is −Var\[O\] (R. Roll, "A simple implicit measure of the effective bid-ask spread",
//! 1984, finds a spread of prices so). That of gaps two apart is 0 but for what makes neighbouring works
//! alike, so it is taken off. Of separate lines it is so in each. Of several servers, or shared ones, gaps say nothing of the kind:
//! the variance outside then counts as work's.

use crate::queue::Discipline;

use super::search::Search;

/// The fewest pairs of gaps, and the least value in standard errors.
const PAIRS: usize = 200;
const ERRORS: f64 = 3.0;
/// The most SCV: that of a few slow replies is no law of all.
const SCV_MAX: f64 = 4.0;

/// What the time outside adds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spread {
    /// Its variance, s².
    pub variance: f64,
    /// The standard error of that.
    pub error: f64,
    /// The variance that it adds to works, s².
    pub of_work: f64,
}

/// Sums of pairs.
#[derive(Clone, Copy, Debug, Default)]
struct Pairs {
    n: f64,
    a: f64,
    b: f64,
    ab: f64,
    aabb: f64,
}

impl Pairs {
    fn add(&mut self, a: f64, b: f64) {
        let Pairs { n, a: sum_a, b: sum_b, ab, aabb } = self;
        (*n, *sum_a, *sum_b) = (*n + 1.0, *sum_a + a, *sum_b + b);
        (*ab, *aabb) = (*ab + a * b, *aabb + a * b * a * b);
    }

    /// The covariance and its standard error. Values are relative to a mean already.
    fn covariance(&self) -> (f64, f64) {
        let n = self.n.max(1.0);
        let product = self.ab / n;
        let variance = (self.aabb / n - product * product).max(0.0);
        (product - self.a / n * (self.b / n), (variance / n).sqrt())
    }
}

/// The variance of the time outside under the best hypothesis; `None` if nothing shows.
pub(super) fn spread(found: &Search) -> Option<Spread> {
    let (kind, outside) = (found.best.kind, found.best.outside);
    let one = kind.discipline == Discipline::Fifo && kind.servers == Some(1);
    if !one && kind.lines() == 0 {
        return None;
    }
    if outside <= 0.0 {
        return None;
    }
    let mut gaps: Vec<Vec<Option<f64>>> = Vec::new();
    let (mut sum, mut n, mut all) = (0.0, 0.0, 0.0);
    for line in &found.lines {
        let places = kind.places(line);
        let count = kind.lines().max(1) as usize;
        let mut free = vec![f64::NEG_INFINITY; count];
        let mut own: Vec<Vec<Option<f64>>> = vec![Vec::new(); count];
        for &i in &line.by_end {
            let i = i as usize;
            let place = places.get(i).map_or(0, |place| *place as usize);
            let (free, own) = (&mut free[place], &mut own[place]);
            let end = line.departures[i] - outside;
            let waited = line.arrivals[i] < *free && line.counted[i];
            own.push(waited.then_some(end - *free));
            if waited {
                (sum, n) = (sum + end - *free, n + 1.0);
            }
            all += f64::from(u8::from(line.counted[i]));
            *free = end;
        }
        gaps.append(&mut own);
    }
    let mean = sum / f64::max(n, 1.0);
    let (mut next, mut second) = (Pairs::default(), Pairs::default());
    for own in &gaps {
        for three in own.windows(3) {
            let [Some(a), Some(b), Some(c)] = three else { continue };
            next.add(a - mean, b - mean);
            second.add(a - mean, c - mean);
        }
    }
    if (next.n as usize) < PAIRS {
        return None;
    }
    let ((near, near_error), (far, far_error)) = (next.covariance(), second.covariance());
    let (variance, error) = (far - near, near_error.hypot(far_error));
    let found = variance > ERRORS * error && variance > 1e-4 * outside * outside;
    let variance = variance.min(SCV_MAX * outside * outside);
    found.then(|| Spread { variance, error, of_work: variance * (1.0 + n / f64::max(all, 1.0)) })
}
