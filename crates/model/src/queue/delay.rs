//! What M/G/m's approximation knows of a request that waits: see [`super::Mgm`].

use crate::distribution::{Complex64, Empirical, Hyperexponential, Piece, ServiceTime, inversion};
use crate::error::Error;

use super::erlang_c;
use super::moments::{integral, third_moment};
use super::mphm::Solved;

/// Servers up to which probability and law of waiting are corrected by an exact solution.
const SOLVED_MAX: u32 = 32;

/// An SCV so near to 1 is exponential.
const NEARLY: f64 = 1e-3;

/// A waiting time by Tijms's form: with probability `waits` a first end and then a geometric number of residual
/// service times m times faster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Renewed {
    waits: f64,
    first: Empirical,
    /// Mean of the geometric number.
    later: f64,
    servers: f64,
}

impl Renewed {
    fn new(law: &dyn ServiceTime, servers: u32, rho: f64, waits: f64) -> Result<Self, Error> {
        let first = first_end(law, servers)?;
        Ok(Renewed { waits, first, later: rho / (1.0 - rho), servers: f64::from(servers) })
    }

    /// Its mean, if a request waits.
    fn mean(&self, law: &dyn ServiceTime) -> f64 {
        self.first.mean() + self.later * law.mean() * (1.0 + law.scv()) / (2.0 * self.servers)
    }

    /// Its mean and second moment.
    fn moments(&self, law: &dyn ServiceTime) -> (f64, f64) {
        let (mean, m) = (law.mean(), self.servers);
        let one = mean * (1.0 + law.scv()) / (2.0 * m);
        let two = third_moment(law) / (3.0 * mean * m * m);
        let first = self.first.mean();
        let all = self.mean(law);
        let variance = self.first.scv() * first * first
            + self.later * (two - one * one)
            + self.later * (1.0 + self.later) * one * one;
        (self.waits * all, self.waits * (variance + all * all))
    }

    /// Adds `factor` times the transform of its part that waits to a line.
    fn add_line(&self, law: &dyn ServiceTime, re: f64, step: f64, factor: f64, out: &mut Line) {
        let (m, mut first, mut faster) = (self.servers, ZEROS, ZEROS);
        self.first.transform_line(re, step, &mut first);
        law.transform_line(re / m, step / m, &mut faster);
        for (k, value) in out.iter_mut().enumerate() {
            let s = Complex64::new(re, step * k as f64) / m;
            let residual = (1.0 - faster[k]) / (s * law.mean());
            *value += factor * self.waits * first[k] / (1.0 + self.later * (1.0 - residual));
        }
    }
}

/// Values of a transform on an inversion's line.
pub(super) type Line = [Complex64; inversion::TERMS];
pub(super) const ZEROS: Line = [Complex64::ZERO; inversion::TERMS];

/// What an exact queue with hyperexponential service is off that form.
#[derive(Clone, Debug, PartialEq)]
struct Correction {
    /// Of the whole.
    factor: f64,
    /// The exact queue: the probability to wait and the law of the wait.
    waits: f64,
    exact: Empirical,
    /// The same queue by the form.
    law: Hyperexponential,
    form: Renewed,
}

/// The law of the waiting time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Delay {
    form: Renewed,
    correction: Option<Correction>,
}

impl Delay {
    /// Of a service law at a utilisation.
    pub(super) fn new(law: &dyn ServiceTime, servers: u32, rho: f64) -> Result<Self, Error> {
        let uncorrected = |waits: f64| {
            let form = Renewed::new(law, servers, rho, waits)?;
            Ok(Delay { form, correction: None })
        };
        if servers == 1 || rho <= 0.0 {
            return uncorrected(rho);
        }
        let erlang = erlang_c(servers, rho);
        let solved = servers.min(SOLVED_MAX);
        let scale = (f64::from(servers) / f64::from(solved)).sqrt();
        let near = 1.0 - (1.0 - rho) * scale;
        let near_erlang = erlang_c(solved, near);
        // Too rare for a correction to be seen, or to be computed.
        if near <= 0.0 || near_erlang < 1e-9 || (law.scv() - 1.0).abs() < NEARLY {
            return uncorrected(erlang);
        }
        let factor = erlang / near_erlang;
        if law.scv() < 1.0 {
            let (waits, longer) = regular(solved, near, law.scv())?;
            let mut form = Renewed::new(law, servers, rho, waits * factor)?;
            // The correction of the mean falls on the first part, so that the tail keeps its rate.
            let own = form.first.mean();
            let mean = (own + (longer - 1.0) * form.mean(law)).clamp(0.3 * own, 3.0 * own);
            form.first = form.first.with_moments(mean, form.first.scv())?;
            return Ok(Delay { form, correction: None });
        }
        let unit = law.mean() / scale;
        let third = third_moment(law) / law.mean().powi(3);
        let sooner = first_end(law, 2)?.mean() / law.mean();
        let branches = branches(law.scv(), third, sooner).map(|(p, mean)| (p, mean * unit));
        let [(p, x), (q, y)] = branches;
        let twin = Hyperexponential::new(&branches)?;
        let rows: [&[f64]; 2] = [&[-1.0 / x, 0.0], &[0.0, -1.0 / y]];
        let start = [p, q];
        let exact = Solved::new(near * f64::from(solved) / unit, solved, &start, &rows)?;
        let (waits, wait) = exact.waiting();
        let times = exact.times().0;
        let exact = pieces(wait / waits, |t| times.above(t) / waits)?;
        let exact = exact.with_moments(wait / waits, exact.scv())?;
        let correction = Correction {
            factor,
            waits,
            exact,
            form: Renewed::new(&twin, solved, near, near_erlang)?,
            law: twin,
        };
        Ok(Delay { form: Renewed::new(law, servers, rho, erlang)?, correction: Some(correction) })
    }

    /// The probability that a request waits.
    pub(super) fn waits(&self) -> f64 {
        let more = self.correction.as_ref().map_or(0.0, |c| c.factor * (c.waits - c.form.waits));
        (self.form.waits + more).clamp(0.0, 1.0)
    }

    /// Mean and second moment of the waiting time of all requests.
    pub(super) fn moments(&self, law: &dyn ServiceTime) -> (f64, f64) {
        let (mut one, mut two) = self.form.moments(law);
        if let Some(c) = &self.correction {
            let (mean, plain) = (c.exact.mean(), c.form.moments(&c.law));
            one += c.factor * (c.waits * mean - plain.0);
            two += c.factor * (c.waits * mean * mean * (1.0 + c.exact.scv()) - plain.1);
        }
        (one.max(0.0), two.max(one * one))
    }

    /// The transform of the part of the waiting time that is above 0.
    pub(super) fn line(&self, law: &dyn ServiceTime, t: f64) -> Line {
        let (re, step) = inversion::line(t);
        let mut out = ZEROS;
        if let Some(c) = &self.correction {
            c.exact.transform_line(re, step, &mut out);
            out.iter_mut().for_each(|x| *x *= c.factor * c.waits);
            c.form.add_line(&c.law, re, step, -c.factor, &mut out);
        }
        self.form.add_line(law, re, step, 1.0, &mut out);
        out
    }
}

/// The law of the first end of `servers` services, each with its residual time left: P(> t) =
/// (∫ₜ(1 − F)/b)^m, in pieces that carry 1/200 of the probability each, and less in the tail.
fn first_end(law: &dyn ServiceTime, servers: u32) -> Result<Empirical, Error> {
    let (mean, m) = (law.mean(), f64::from(servers));
    let above = |t: f64| (1.0 - law.cdf(t)).max(0.0);
    // The share of residual times, and of first ends, beyond t.
    let (mut t, mut residual, mut left) = (0.0f64, 1.0f64, 1.0f64);
    let mut pieces = Vec::new();
    while left > 1e-9 && pieces.len() < 2_000 {
        let now = above(t);
        if now < 1e-12 {
            break;
        }
        // First ends come at the rate m(1 − F(t)) / (b·residual); the step is to hold `share` of them.
        let share = (left / 8.0).min(1.0 / 200.0);
        let step = share / left * mean * residual / (m * now);
        let spent = integral(&above, t, t + step, 1e-9 * mean / m);
        let next = (residual - spent / mean).max(0.0);
        let next_left = next.powf(m);
        if next_left >= left {
            break;
        }
        let (centre, half_width) = (t + 0.5 * step, 0.5 * step);
        pieces.push(Piece { centre, half_width, share: left - next_left });
        (t, residual, left) = (t + step, next, next_left);
    }
    Empirical::from_pieces(pieces)
}

/// The law with P(> t) = `above(t)` in pieces of some 1/200 of the probability, and less in the tail.
fn pieces(mean: f64, above: impl Fn(f64) -> f64) -> Result<Empirical, Error> {
    let (mut t, mut left, mut step) = (0.0, 1.0, mean / 400.0);
    let mut pieces = Vec::new();
    while left > 1e-9 && pieces.len() < 2_000 {
        let share = (left / 8.0f64).min(1.0 / 200.0);
        let next = above(t + step).min(left);
        if left - next > share && step > 1e-9 * mean {
            step *= 0.7;
            continue;
        }
        // In the middle of a steep piece there is less: its own mean, by Simpson's rule.
        let half = above(t + 0.5 * step).clamp(next, left);
        let area = step / 6.0 * (left + 4.0 * half + next) - step * next;
        let centre = t + if left > next { area / (left - next) } else { 0.5 * step };
        pieces.push(Piece { centre, half_width: 0.5 * step, share: left - next });
        (t, left) = (t + step, next);
        step *= 1.3;
    }
    Empirical::from_pieces(pieces)
}

/// For an SCV up to 1: the probability that a request waits, and the factor of the mean wait of those that do,
/// over that of a first end and a geometric number of residual times.
fn regular(servers: u32, rho: f64, scv: f64) -> Result<(f64, f64), Error> {
    if scv > 1.0 - NEARLY {
        return Ok((erlang_c(servers, rho), 1.0));
    }
    if scv >= 0.5 {
        return mixed(servers, rho, scv);
    }
    let (some, none) = (mixed(servers, rho, 0.5)?, constant(servers, rho));
    let between = |a: f64, b: f64| b + (a - b) * scv / 0.5;
    Ok((between(some.0, none.0), between(some.1, none.1)))
}

/// [`regular`] of one or two phases of one rate.
fn mixed(servers: u32, rho: f64, scv: f64) -> Result<(f64, f64), Error> {
    let law = MixedErlang::new(scv);
    let start = [1.0 - law.one, law.one];
    let rows: [&[f64]; 2] = [&[-law.rate, law.rate], &[0.0, -law.rate]];
    let rate = rho * f64::from(servers);
    let (waits, wait) = Solved::new(rate, servers, &start, &rows)?.waiting();
    Ok((waits, factor(wait / waits, rho, &law, servers)?))
}

/// A mean wait over that of the first end and a geometric number of residual times.
fn factor(wait: f64, rho: f64, law: &dyn ServiceTime, servers: u32) -> Result<f64, Error> {
    let later = rho / (1.0 - rho) * law.mean() * (1.0 + law.scv()) / (2.0 * f64::from(servers));
    let factor = wait / (first_end(law, servers)?.mean() + later);
    Ok(if factor.is_finite() { factor } else { 1.0 })
}

/// Two exponential branches (probability, mean) of mean 1 with an SCV above 1, for a law with this third moment
/// and this mean time to the sooner end of two services under way.
///
/// If both can be met they are: then the law has two branches itself. A heavy tail's third moment would leave the
/// branches nothing for the rest, so that it counts up to that of branches which carry half of the work each.
/// With it simulated waits of lognormal service are too short for some servers and too long for others, and with
/// the sooner end alone the other way round by as much; so the geometric mean of both third moments is taken.
fn branches(scv: f64, third: f64, sooner: f64) -> [(f64, f64); 2] {
    let tail = third.min(3.0 * scv * (1.0 + scv));
    // The more of the work is in few long services, the sooner is the first end of the others: it falls with
    // the third moment, whose least is the first bound.
    let least = 1.5 * (1.0 + scv).powi(2);
    let (mut low, mut high) = (least * (1.0 + 1e-9), least * 1e4);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if sooner_end(two_branches(scv, middle)) > sooner {
            low = middle;
        } else {
            high = middle;
        }
    }
    two_branches(scv, (tail.max(least) * (low * high).sqrt()).sqrt())
}

/// The mean time to the sooner end of two services under way, each of which has its residual time left.
fn sooner_end([(p, x), (q, y)]: [(f64, f64); 2]) -> f64 {
    let (v, w) = (p * x, q * y);
    v * v * x / 2.0 + 2.0 * v * w / (1.0 / x + 1.0 / y) + w * w * y / 2.0
}

/// Two exponential branches (probability, mean) of mean 1 with an SCV above 1 and a third moment; the larger mean
/// is the first.
fn two_branches(scv: f64, third: f64) -> [(f64, f64); 2] {
    let (second, third) = ((1.0 + scv) / 2.0, third / 6.0);
    // The branches' means are the roots of x² − sum·x + product.
    let sum = (third - second) / (second - 1.0);
    let product = sum - second;
    let x = 0.5 * (sum + (sum * sum - 4.0 * product).max(0.0).sqrt());
    // At the least third moment one branch takes no time at all.
    let y = (product / x).max(1e-9);
    let p = ((1.0 - y) / (x - y)).clamp(0.0, 1.0);
    [(p, x), (1.0 - p, y)]
}

/// Mean 1 and an SCV from 0.5 to 1: one exponential phase with probability `one`, else two, of one rate.
#[derive(Clone, Copy, Debug)]
struct MixedErlang {
    one: f64,
    rate: f64,
    scv: f64,
}

impl MixedErlang {
    fn new(scv: f64) -> Self {
        let one = (2.0 * scv - (2.0 - 2.0 * scv).max(0.0).sqrt()) / (1.0 + scv);
        MixedErlang { one, rate: 2.0 - one, scv }
    }
}

impl ServiceTime for MixedErlang {
    fn mean(&self) -> f64 {
        1.0
    }
    fn scv(&self) -> f64 {
        self.scv
    }
    fn transform(&self, s: Complex64) -> Complex64 {
        let phase = self.rate / (self.rate + s);
        phase * (self.one + (1.0 - self.one) * phase)
    }
    fn cdf(&self, t: f64) -> f64 {
        let x = self.rate * t.max(0.0);
        1.0 - (-x).exp() * (1.0 + (1.0 - self.one) * x)
    }
}

/// [`regular`] of constant service (M/D/m), exactly: C. Crommelin (1932). With the roots zₖ of zᵐ =
/// exp(mρ(z − 1)) inside the unit circle, P(no wait) = m(1 − ρ)/Π(1 − zₖ), and the mean number waiting is
/// Σ1/(1 − zₖ) + ((mρ)² − m(m − 1))/(2m(1 − ρ)).
fn constant(servers: u32, rho: f64) -> (f64, f64) {
    let m = f64::from(servers);
    let (mut product, mut sum) = (Complex64::new(1.0, 0.0), Complex64::ZERO);
    for k in 1..servers {
        let turn = Complex64::from_polar(1.0, std::f64::consts::TAU * f64::from(k) / m);
        let mut z = Complex64::ZERO;
        let value = |z: Complex64| turn * (rho * (z - 1.0)).exp();
        // A contraction, and then Newton.
        (0..8).for_each(|_| z = value(z));
        for _ in 0..8 {
            let f = value(z);
            z -= (z - f) / (1.0 - rho * f);
        }
        product *= 1.0 - z;
        sum += 1.0 / (1.0 - z);
    }
    let waits = 1.0 - m * (1.0 - rho) / product.re;
    let offered = m * rho;
    let waiting = sum.re + (offered * offered - m * (m - 1.0)) / (2.0 * m * (1.0 - rho));
    if waits < 1e-9 {
        return (waits.max(0.0), 1.0);
    }
    let later = rho / (1.0 - rho) / (2.0 * m);
    (waits.min(1.0), waiting / offered / waits / (1.0 / (m + 1.0) + later))
}
