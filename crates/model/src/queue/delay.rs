//! The law of the wait of a request that waits, in the approximation of M/G/m ([`super::Mgm`]).

use crate::distribution::{Complex64, Empirical, Hyperexponential, ServiceTime, inversion};
use crate::error::Error;

use super::branches::{self, Branches};
use super::erlang::erlang_c;
use super::first_end::first_end;
use super::hyper::{self, Exponentials};
use super::moments::{NEARLY, third_moment};
use super::regular::regular;

/// Largest number of servers of a queue that is solved: for regular service, for two exponential
/// branches, and for three.
const REGULAR_MAX: u32 = 32;
const TWO_MAX: u32 = 64;
const THREE_MAX: u32 = 16;

/// Values of a transform on an inversion's line.
pub(super) type Line = [Complex64; inversion::TERMS];
pub(super) const ZEROS: Line = [Complex64::ZERO; inversion::TERMS];

/// The law of the time until the first of the services in progress ends.
#[derive(Clone, Debug, PartialEq)]
struct Ends {
    first: Empirical,
    servers: f64,
}

/// Transforms of the first end, and of a residual service time m times as fast.
struct EndsLine {
    first: Line,
    residual: Line,
}

impl Ends {
    fn new(law: &dyn ServiceTime, servers: u32) -> Result<Self, Error> {
        Ok(Ends { first: first_end(law, servers)?, servers: f64::from(servers) })
    }

    fn line(&self, law: &dyn ServiceTime, re: f64, step: f64) -> EndsLine {
        let (m, mut first, mut residual) = (self.servers, ZEROS, ZEROS);
        self.first.transform_line(re, step, &mut first);
        law.transform_line(re / m, step / m, &mut residual);
        for (k, value) in residual.iter_mut().enumerate() {
            let s = Complex64::new(re, step * k as f64) / m;
            *value = (1.0 - *value) / (s * law.mean());
        }
        EndsLine { first, residual }
    }
}

/// A waiting time by Tijms's form: with probability `waits` the first end and then a geometric
/// number of residual service times m times as fast.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Renewed {
    waits: f64,
    /// Mean of the geometric number.
    later: f64,
}

impl Renewed {
    fn new(rho: f64, waits: f64) -> Self {
        Renewed { waits, later: rho / (1.0 - rho) }
    }

    /// Mean wait of a request that waits, given the mean of the first end.
    fn mean(&self, law: &dyn ServiceTime, servers: f64, first: f64) -> f64 {
        first + self.later * law.mean() * (1.0 + law.scv()) / (2.0 * servers)
    }

    /// Its mean and second moment.
    fn moments(&self, law: &dyn ServiceTime, servers: f64, first: &Empirical) -> (f64, f64) {
        let mean = law.mean();
        let one = mean * (1.0 + law.scv()) / (2.0 * servers);
        let two = third_moment(law) / (3.0 * mean * servers * servers);
        let all = self.mean(law, servers, first.mean());
        let variance = first.scv() * first.mean().powi(2)
            + self.later * (two - one * one)
            + self.later * (1.0 + self.later) * one * one;
        (self.waits * all, self.waits * (variance + all * all))
    }

    /// Adds `factor` times the transform of the part that waits.
    fn add(&self, first: &Line, residual: &Line, factor: f64, out: &mut Line) {
        for (value, (first, residual)) in out.iter_mut().zip(first.iter().zip(residual)) {
            *value += factor * self.waits * first / (1.0 + self.later * (1.0 - residual));
        }
    }
}

/// A law of exponential branches at a number of servers, whose exact queue is known.
#[derive(Clone, Debug, PartialEq)]
struct Twin {
    /// 1 if its excess is added, −1 if it is subtracted.
    sign: f64,
    servers: u32,
    law: Hyperexponential,
    ends: Ends,
}

impl Twin {
    fn new(
        sign: f64,
        branches: &[(f64, f64)],
        mean: f64,
        servers: u32,
        most: u32,
    ) -> Result<Self, Error> {
        let solved = servers.min(most);
        let scale = (f64::from(servers) / f64::from(solved)).sqrt();
        let branches: Vec<_> = branches.iter().map(|(p, x)| (*p, x * mean / scale)).collect();
        let law = Hyperexponential::new(&branches)?;
        let ends = Ends::new(&law, solved)?;
        Ok(Twin { sign, servers: solved, law, ends })
    }
}

/// The parts of M/G/m that do not depend on the load.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    servers: u32,
    ends: Ends,
    twins: Vec<Twin>,
}

/// The transforms of a [`Shape`] on the line of one time.
pub(super) struct ShapeLine {
    ends: EndsLine,
    twins: Vec<EndsLine>,
}

impl Shape {
    /// The shape of a service law at a number of servers.
    pub(super) fn new(law: &dyn ServiceTime, servers: u32) -> Result<Self, Error> {
        let ends = Ends::new(law, servers)?;
        let (mean, scv) = (law.mean(), law.scv());
        let mut twins = Vec::new();
        if servers > 1 && scv > 1.0 + NEARLY {
            let third = third_moment(law) / mean.powi(3);
            let fitted = branches::fit(scv, third, mean, &first_end(law, 1)?);
            let twin = |sign: f64, branches: &Branches, most: u32| {
                Twin::new(sign, branches, mean, servers, most)
            };
            match &fitted.three {
                None => twins.push(twin(1.0, &fitted.two, TWO_MAX)?),
                Some(three) => {
                    if servers > THREE_MAX {
                        twins.push(twin(1.0, &fitted.two, TWO_MAX)?);
                        twins.push(twin(-1.0, &fitted.two, THREE_MAX)?);
                    }
                    twins.push(twin(1.0, three, THREE_MAX)?);
                }
            }
        }
        Ok(Shape { servers, ends, twins })
    }

    pub(super) fn line(&self, law: &dyn ServiceTime, t: f64) -> ShapeLine {
        let (re, step) = inversion::line(t);
        let twins = self.twins.iter().map(|twin| twin.ends.line(&twin.law, re, step));
        ShapeLine { ends: self.ends.line(law, re, step), twins: twins.collect() }
    }
}

/// The excess of a twin's exact queue over the form.
#[derive(Clone, Debug, PartialEq)]
struct Correction {
    twin: usize,
    factor: f64,
    exact: Exponentials,
    form: Renewed,
}

/// The law of the waiting time at a load.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Delay {
    form: Renewed,
    /// The first end, if it differs from the shape's.
    first: Option<Empirical>,
    corrections: Vec<Correction>,
}

impl Delay {
    /// Computes the law from a service law, its shape, and a utilisation.
    pub(super) fn new(law: &dyn ServiceTime, shape: &Shape, rho: f64) -> Result<Self, Error> {
        let servers = shape.servers;
        let uncorrected =
            |waits: f64| Delay { form: Renewed::new(rho, waits), first: None, corrections: vec![] };
        if servers == 1 || rho <= 0.0 {
            return Ok(uncorrected(rho));
        }
        let erlang = erlang_c(servers, rho);
        if law.scv() < 1.0 - NEARLY {
            let Some(near) = Near::new(servers, rho, erlang, servers.min(REGULAR_MAX)) else {
                return Ok(uncorrected(erlang));
            };
            let (waits, longer) = regular(near.servers, near.rho, law.scv())?;
            let mut delay = uncorrected(waits * near.factor);
            // The correction of the mean is applied to the first part, so that the tail keeps its
            // rate.
            let first = &shape.ends.first;
            let all = delay.form.mean(law, f64::from(servers), first.mean());
            let mean = first.mean() + (longer - 1.0) * all;
            let mean = mean.clamp(0.3 * first.mean(), 3.0 * first.mean());
            delay.first = Some(first.with_moments(mean, first.scv())?);
            return Ok(delay);
        }
        let mut delay = uncorrected(erlang);
        for (twin, of) in shape.twins.iter().enumerate() {
            let Some(near) = Near::new(servers, rho, erlang, of.servers) else { continue };
            let rate = near.rho * f64::from(of.servers) / of.law.mean();
            let exact = hyper::waiting_law(rate, of.servers, of.law.branches())?;
            let form = Renewed::new(near.rho, near.erlang);
            delay.corrections.push(Correction { twin, factor: of.sign * near.factor, exact, form });
        }
        Ok(delay)
    }

    /// The probability that a request waits.
    pub(super) fn waits(&self) -> f64 {
        let more = |c: &Correction| c.factor * (c.exact.above_zero() - c.form.waits);
        (self.form.waits + self.corrections.iter().map(more).sum::<f64>()).clamp(0.0, 1.0)
    }

    /// Mean and second moment of the waiting time of all requests.
    pub(super) fn moments(&self, law: &dyn ServiceTime, shape: &Shape) -> (f64, f64) {
        let first = self.first.as_ref().unwrap_or(&shape.ends.first);
        let (mut one, mut two) = self.form.moments(law, shape.ends.servers, first);
        for c in &self.corrections {
            let Some(twin) = shape.twins.get(c.twin) else { continue };
            let plain = c.form.moments(&twin.law, twin.ends.servers, &twin.ends.first);
            let exact = c.exact.moments();
            one += c.factor * (exact.0 - plain.0);
            two += c.factor * (exact.1 - plain.1);
        }
        (one.max(0.0), two.max(one * one))
    }

    /// The transform of the part of the waiting time that is above 0.
    pub(super) fn line(&self, shape: &ShapeLine, t: f64) -> Line {
        let (re, step) = inversion::line(t);
        let mut out = ZEROS;
        for c in &self.corrections {
            let Some(twin) = shape.twins.get(c.twin) else { continue };
            c.exact.add_line(re, step, c.factor, &mut out);
            c.form.add(&twin.first, &twin.residual, -c.factor, &mut out);
        }
        let mut other = ZEROS;
        let first = match &self.first {
            None => &shape.ends.first,
            Some(first) => {
                first.transform_line(re, step, &mut other);
                &other
            }
        };
        self.form.add(first, &shape.ends.residual, 1.0, &mut out);
        out
    }
}

/// A queue of fewer servers with the same (1 − ρ)√m.
struct Near {
    servers: u32,
    rho: f64,
    /// Its Erlang C, and the ratio of the other queue's to it.
    erlang: f64,
    factor: f64,
}

impl Near {
    /// `None` if waits are too rare for a correction to matter, or to be computed.
    fn new(servers: u32, rho: f64, waits: f64, solved: u32) -> Option<Self> {
        let scale = (f64::from(servers) / f64::from(solved)).sqrt();
        let rho = 1.0 - (1.0 - rho) * scale;
        let erlang = if rho > 0.0 { erlang_c(solved, rho) } else { 0.0 };
        (erlang >= 1e-9).then(|| Near { servers: solved, rho, erlang, factor: waits / erlang })
    }
}
