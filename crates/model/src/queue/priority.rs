//! Priorities: several classes with Poisson arrivals before one server, the most urgent first, none
//! interrupted.

use crate::distribution::{Complex64, ServiceTime, inversion};
use crate::error::{Error, check, not_negative};

use super::moments::third_moment;
use super::{Queue, interpolate};

/// The M/G/1 queue with non-preemptive priorities: when the server is free it takes the longest waiting
/// request of the most urgent class that has one.
///
/// Means: A. Cobham, "Priority assignment in waiting line problems", Operations Research 2 (1954). The laws:
/// H. Kesten and J. Runnenburg, "Priority in waiting line problems", Proc. KNAW 60 (1957); with σ the
/// utilisation of all classes, γ(s) = s + Λ(1 − Θ(s)), Λ the arrival rate of the more urgent classes and Θ
/// the transform of their busy period, a waiting time of class k has the transform
/// ((1 − σ)γ + Σ_{less urgent i} λᵢ(1 − Bᵢ(γ))) / (s − λₖ + λₖBₖ(γ)). Each class's law is exact but for the
/// inversion; how the classes' times depend on each other is not known here. All classes need a stable
/// queue: where the least urgent has none the others may still have one, and this says [`Error::Unstable`].
///
/// It assumes Poisson arrivals of every class, service that depends on nothing but its class, and that nobody is
/// interrupted. Wrong where an urgent request interrupts (it waits too long here), and where urgency grows with
/// waiting.
///
/// ```
/// use model::distribution::{Exponential, ServiceTime};
/// use model::queue::{Priorities, Queue};
/// let (read, scrub) = (Exponential::new(0.005)?, Exponential::new(0.02)?);
/// // Reads go before scrubbing.
/// let disk = Priorities::new(&[(100.0, &read), (15.0, &scrub)])?;
/// let reads = disk.class(0)?;
/// assert!((reads.waiting_mean() - 0.017).abs() < 1e-12);
/// assert!(disk.class(1)?.waiting_mean() > 4.0 * reads.waiting_mean());
/// assert!(reads.response_quantile(0.99)? > 0.05);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone)]
pub struct Priorities<'a> {
    classes: Vec<(f64, &'a dyn ServiceTime)>,
}

/// One class of [`Priorities`], whose page has laws, source and an example; [`Priorities::class`] gives it.
///
/// Cobham's mean wait: Σ λᵢE\[Sᵢ²\] / (2(1 − σ′)(1 − σ)) seconds, the sum over all classes, σ′ the utilisation
/// of the more urgent ones and σ of these and this one.
///
/// ```
/// use model::distribution::Deterministic;
/// use model::queue::{Priorities, Queue};
/// // 80 requests/s of 10 ms, half of them before the other half: Σ λE[S²]/2 = 4 ms.
/// let law = Deterministic::new(0.01)?;
/// let both = Priorities::new(&[(40.0, &law), (40.0, &law)])?;
/// assert!((both.class(0)?.waiting_mean() - 0.004 / 0.6).abs() < 1e-12);
/// assert!((both.class(1)?.waiting_mean() - 0.004 / (0.6 * 0.2)).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct ClassQueue<'a> {
    /// The classes before this one, more urgent, this one, and the others.
    before: &'a [(f64, &'a dyn ServiceTime)],
    own: (f64, &'a dyn ServiceTime),
    after: &'a [(f64, &'a dyn ServiceTime)],
}

/// λE\[S\] of classes.
fn load(classes: &[(f64, &dyn ServiceTime)]) -> f64 {
    classes.iter().map(|(rate, law)| rate * law.mean()).sum()
}

/// λE\[S²\] of a class.
fn second(class: (f64, &dyn ServiceTime)) -> f64 {
    class.0 * class.1.mean().powi(2) * (1.0 + class.1.scv())
}

impl<'a> Priorities<'a> {
    /// With the arrivals per second and the law of service of each class, the most urgent first.
    /// [`Error::Unstable`] at a utilisation of 1 or more by all classes; the rates in it are sums.
    pub fn new(classes: &[(f64, &'a dyn ServiceTime)]) -> Result<Self, Error> {
        check("the number of classes", classes.len() as f64, 1.0..=1e3, "1 to 1,000")?;
        for (rate, _) in classes {
            not_negative("the arrival rate", *rate)?;
        }
        let (rate, load) = (classes.iter().map(|c| c.0).sum::<f64>(), load(classes));
        if load.is_nan() || load >= 1.0 {
            return Err(Error::Unstable { rate, saturation: rate / load });
        }
        Ok(Priorities { classes: classes.to_vec() })
    }

    /// Share of time that the server is busy, with any class.
    pub fn utilisation(&self) -> f64 {
        load(&self.classes)
    }

    /// A class as a queue of its own; 0 is the most urgent one.
    pub fn class(&self, index: usize) -> Result<ClassQueue<'_>, Error> {
        let last = self.classes.len() as f64 - 1.0;
        check("the index of a class", index as f64, 0.0..=last, "below the number of classes")?;
        let (before, rest) = self.classes.split_at(index);
        Ok(ClassQueue { before, own: rest[0], after: &rest[1..] })
    }
}

impl ClassQueue<'_> {
    /// 1 − the load of the more urgent classes, and of these and this one.
    fn free(&self) -> (f64, f64) {
        let free = 1.0 - load(self.before);
        (free, free - self.own.0 * self.own.1.mean())
    }

    /// Share of time that the server is idle.
    fn idle(&self) -> f64 {
        self.free().1 - load(self.after)
    }

    /// The sum of a property over all classes.
    fn all(&self, of: impl Fn((f64, &dyn ServiceTime)) -> f64) -> f64 {
        self.before.iter().chain([&self.own]).chain(self.after).map(|c| of(*c)).sum()
    }

    /// The transform of the busy period of the more urgent classes: Θ = Σ(λᵢ/Λ)·Bᵢ(s + Λ(1 − Θ)), by Steffensen's
    /// iteration from `near`.
    fn busy_period(&self, s: Complex64, near: Complex64) -> Complex64 {
        let rate: f64 = self.before.iter().map(|c| c.0).sum();
        if rate <= 0.0 {
            return Complex64::new(1.0, 0.0);
        }
        let next = |theta: Complex64| {
            let at = s + rate * (1.0 - theta);
            self.before.iter().map(|(r, law)| law.transform(at) * (r / rate)).sum::<Complex64>()
        };
        let mut theta = near;
        for _ in 0..500 {
            let one = next(theta);
            let two = next(one);
            let bend = two - 2.0 * one + theta;
            let jump = theta - (one - theta) * (one - theta) / bend;
            let better = jump.is_finite() && jump.norm() <= 1.0;
            let moved = (two - one).norm();
            theta = if better { jump } else { two };
            if moved < 1e-14 {
                return two;
            }
        }
        theta
    }

    /// Transforms at the inversion's line for `t`: of the waiting time less its atom at 0, and of service.
    fn line(&self, t: f64) -> Vec<(Complex64, Complex64)> {
        let (re, step) = inversion::line(t);
        let idle = self.idle();
        let rate: f64 = self.before.iter().map(|c| c.0).sum();
        let mut theta = Complex64::ZERO;
        (0..inversion::TERMS)
            .map(|k| {
                let s = Complex64::new(re, step * k as f64);
                theta = self.busy_period(s, theta);
                let at = s + rate * (1.0 - theta);
                let less: Complex64 =
                    self.after.iter().map(|(r, law)| (1.0 - law.transform(at)) * *r).sum();
                let own = (1.0 - self.own.1.transform(at)) * self.own.0;
                let waiting = (at * idle + less) / (s - own);
                (waiting - idle, self.own.1.transform(s))
            })
            .collect()
    }
}

impl ClassQueue<'_> {
    /// P(a request waits, and its response time ≤ t seconds).
    fn delayed(&self, t: f64) -> f64 {
        let waits = 1.0 - self.idle();
        if t.is_nan() || t <= 1e-18 || t >= 1e18 {
            return if t > 1.0 { waits } else { 0.0 };
        }
        let line = self.line(t);
        // A request that waits is not faster than one that does not.
        let within = waits * self.own.1.cdf(t);
        inversion::sum(|k| line[k].0 * line[k].1, t).clamp(0.0, within)
    }
}

/// Cost: for each CDF 81 transforms of every class, and for a class that is not the most urgent some 5 to
/// 10 times as many for the busy period of those before it.
impl Queue for ClassQueue<'_> {
    fn throughput(&self) -> f64 {
        self.own.0
    }
    /// Share of time that the server serves this class.
    fn utilisation(&self) -> f64 {
        self.own.0 * self.own.1.mean()
    }
    fn waiting_mean(&self) -> f64 {
        let (before, with) = self.free();
        self.all(second) / (2.0 * before * with)
    }
    fn waiting_variance(&self) -> f64 {
        let (before, with) = self.free();
        let third = self.all(|(rate, law)| rate * third_moment(law));
        let all = self.all(second);
        let urgent: f64 = self.before.iter().map(|c| second(*c)).sum();
        let square = third / (3.0 * before * before * with)
            + all * (urgent + second(self.own)) / (2.0 * (before * with).powi(2))
            + all * urgent / (2.0 * before.powi(3) * with);
        (square - self.waiting_mean().powi(2)).max(0.0)
    }
    fn response_mean(&self) -> f64 {
        self.waiting_mean() + self.own.1.mean()
    }
    fn response_variance(&self) -> f64 {
        self.waiting_variance() + self.own.1.scv() * self.own.1.mean().powi(2)
    }
    fn waiting_cdf(&self, t: f64) -> f64 {
        if t.is_nan() || t < 0.0 {
            return 0.0;
        }
        let idle = self.idle();
        if t <= 1e-18 || t >= 1e18 {
            return if t > 1.0 { 1.0 } else { idle };
        }
        let line = self.line(t);
        (idle + inversion::sum(|k| line[k].0, t)).clamp(idle, 1.0)
    }
    fn response_cdf(&self, t: f64) -> f64 {
        (self.idle() * self.own.1.cdf(t) + self.delayed(t)).clamp(0.0, 1.0)
    }
    fn response_cdfs(&self, times: &[f64]) -> Vec<f64> {
        let at_once = |t: f64| self.idle() * self.own.1.cdf(t);
        interpolate::cdfs(times, at_once, |t| self.delayed(t))
    }
}
