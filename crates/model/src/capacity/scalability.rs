//! Gunther's Universal Scalability Law. [`Scalability`] has the formula.

use serde::Serialize;

use crate::error::{Error, check, not_negative, positive};
use crate::regression::{Estimated, Linear, Noise};

/// A measured throughput at a concurrency. The page of [`Scalability`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScalablePoint {
    /// Number of concurrent clients, threads, processors or nodes; at least 1.
    pub concurrency: f64,
    /// Their throughput, 1/s.
    pub throughput: f64,
}

/// A predicted throughput, from [`Scalability::throughput`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScalableThroughput {
    /// The concurrency.
    pub concurrency: f64,
    /// The throughput, 1/s, with the interval of the fitted mean.
    pub throughput: Estimated,
    /// Whether it is outside the measured concurrencies; never for given parameters.
    pub extrapolated: bool,
}

/// The concurrency with the largest throughput: N* = √((1 − α)/β), from [`Scalability::peak`].
///
/// ```
/// use model::capacity::Scalability;
/// let law = Scalability::new(100.0, 0.02, 0.0005)?;
/// // √(0.98/0.0005) = 44.3
/// assert!((law.peak().unwrap().concurrency.value - 1960.0f64.sqrt()).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// N*, not rounded; 1 if throughput falls from the start on.
    pub concurrency: Estimated,
    /// X(N*), 1/s.
    pub throughput: f64,
    /// Whether it is outside the measured concurrencies.
    pub extrapolated: bool,
}

/// The Universal Scalability Law with its three parameters:
///
///   X(N) = γN / (1 + α(N − 1) + βN(N − 1)).
///
/// N is the concurrency (clients, threads, processors, nodes); γ the throughput at N = 1, 1/s; α,
/// the contention, the share of work that must be done serially; β, the coherency, the cost of
/// keeping each pair consistent. With β > 0 the throughput peaks at N* = √((1 − α)/β); with β = 0
/// it approaches γ/α (Amdahl's law); with both 0 it grows without bound. Source: Gunther,
/// "Guerrilla Capacity Planning" (2007), chapters 4 to 6; "A General Theory of Computational
/// Scalability Based on Rational Functions" (2008), eq. 5.
///
/// The fit minimises Σ(X − X(N))² by the method of Levenberg and Marquardt from a weighted linear
/// start (N/X is linear in 1/γ, α/γ, β/γ). Intervals are Student's, for the fit linearised at its
/// solution, as R's `nls` computes them. α and β are held at 0 if the free fit would be negative
/// (with a warning): speed-up above N-fold is an effect of caches that the law has no term for.
/// Cost: [`Scalability::fit`].
///
/// Wrong with think times (count only busy clients), past the limit of another resource (errors,
/// memory), for runs of different machines, and for a throughput that is capped instead of slowed;
/// the residuals show it. The only response time that it predicts is R = N/X.
///
/// ```
/// use model::capacity::{Scalability, ScalablePoint};
/// // Gunther's ray tracer.
/// let runs = [(1., 20.), (4., 78.), (8., 130.), (12., 170.), (16., 190.), (20., 200.)];
/// let points = runs.map(|(concurrency, throughput)| ScalablePoint { concurrency, throughput });
/// let law = Scalability::fit(&points, 0.95)?;
/// assert!((law.contention().value - 0.02444).abs() < 1e-5);
/// assert!((law.peak().unwrap().concurrency.value - 24.488).abs() < 1e-3);
/// assert!(law.throughput(32.0)?.extrapolated);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scalability {
    unit: Estimated,
    contention: Estimated,
    coherency: Estimated,
    measured: Option<(f64, f64)>,
    residuals: Vec<f64>,
    #[serde(skip)]
    errors: Option<Errors>,
    warnings: Vec<String>,
}

/// The law linearised at its solution, in the free parameters.
#[derive(Clone, Debug, PartialEq)]
struct Errors {
    fit: Linear,
    noise: Option<Noise>,
    free: [bool; 3],
}

impl Errors {
    /// Half the width of the interval of a quantity with this gradient in (γ, α, β).
    fn half_width(&self, gradient: [f64; 3]) -> Option<f64> {
        let row: Vec<f64> = chosen(gradient, self.free);
        self.noise.map(|noise| noise.half_width(&self.fit.factor(&row)))
    }
}

fn chosen(values: [f64; 3], free: [bool; 3]) -> Vec<f64> {
    values.into_iter().zip(free).filter_map(|(x, free)| free.then_some(x)).collect()
}

/// X(N) and its gradient in γ, α and β; `None` if the denominator is not positive.
fn law([unit, contention, coherency]: [f64; 3], n: f64) -> Option<(f64, [f64; 3])> {
    let pairs = n * (n - 1.0);
    let divisor = 1.0 + contention * (n - 1.0) + coherency * pairs;
    if divisor.is_nan() || divisor <= 0.0 {
        return None;
    }
    let per_unit = n / divisor;
    let slope = -unit * per_unit / divisor;
    Some((unit * per_unit, [per_unit, slope * (n - 1.0), slope * pairs]))
}

impl Scalability {
    /// The law with known parameters: γ in 1/s, α and β dimensionless.
    pub fn new(unit: f64, contention: f64, coherency: f64) -> Result<Self, Error> {
        check("the throughput of one", unit, 1e-9..=1e15, "from 1e-9 to 1e15 per s")?;
        not_negative("the contention", contention)?;
        not_negative("the coherency", coherency)?;
        check(
            "the contention and the coherency",
            contention.max(coherency),
            0.0..=1e15,
            "to 1e15",
        )?;
        Ok(Scalability {
            unit: Estimated::alone(unit),
            contention: Estimated::alone(contention),
            coherency: Estimated::alone(coherency),
            measured: None,
            residuals: Vec::new(),
            errors: None,
            warnings: Vec::new(),
        })
    }

    /// Fits points of at least three concurrencies; intervals at the given confidence (0.5 to
    /// 0.9999) need a fourth point. Cost: some tens of passes over the points.
    pub fn fit(points: &[ScalablePoint], confidence: f64) -> Result<Self, Error> {
        for point in points {
            check("a concurrency", point.concurrency, 1.0..=1e9, "from 1 to 1e9")?;
            check("a throughput per s", point.throughput, 1e-9..=1e15, "from 1e-9 to 1e15")?;
        }
        let mut known: Vec<f64> = points.iter().map(|p| p.concurrency).collect();
        known.sort_by(f64::total_cmp);
        known.dedup();
        let (Some(&low), Some(&high), 3..) = (known.first(), known.last(), known.len()) else {
            let what = "different concurrencies".to_owned();
            let todo = "measure more, from 1 to past the expected peak";
            return Err(Error::TooFew { what, got: known.len(), need: 3, todo });
        };
        let (mut at, mut free) = (descend(points, [true; 3])?, [true; 3]);
        let unbound = at;
        if at[1] < 0.0 || at[2] < 0.0 {
            let tries = [[true, false, true], [true, true, false], [true, false, false]];
            let mut best = f64::INFINITY;
            for held in tries {
                let found = descend(points, held)?;
                let cost = cost(points, found).unwrap_or(f64::INFINITY);
                if found[1] >= 0.0 && found[2] >= 0.0 && cost < best {
                    (at, free, best) = (found, held, cost);
                }
            }
        }
        if at[1] < 0.0 || at[2] < 0.0 || at[0] <= 0.0 {
            return Err(no_fit(
                "no positive throughput at concurrency 1 fits them; check the columns",
            ));
        }
        let (fit, _) = tangent(points, at, free, 0.0).ok_or_else(|| {
            no_fit("their parameters cannot be separated; measure concurrencies further apart")
        })?;
        let noise = Noise::new(cost(points, at).unwrap_or(0.0), fit.degrees(), confidence)?;
        let errors = Errors { fit, noise, free };
        let estimate = |j: usize| {
            let gradient: [f64; 3] = std::array::from_fn(|k| if k == j { 1.0 } else { 0.0 });
            let half = if free[j] { errors.half_width(gradient) } else { None };
            Estimated::around(at[j], half)
        };
        let fitted = |p: &ScalablePoint| law(at, p.concurrency).map_or(0.0, |(x, _)| x);
        let mut found = Scalability {
            unit: estimate(0),
            contention: estimate(1),
            coherency: estimate(2),
            measured: Some((low, high)),
            residuals: points.iter().map(|p| p.throughput - fitted(p)).collect(),
            errors: Some(errors),
            warnings: Vec::new(),
        };
        found.warnings = found.doubts(points, unbound);
        Ok(found)
    }

    /// γ: the throughput at concurrency 1, 1/s.
    pub fn unit(&self) -> Estimated {
        self.unit
    }

    /// α: the share of work that must be done serially.
    pub fn contention(&self) -> Estimated {
        self.contention
    }

    /// β: the cost of keeping a pair consistent, relative to the work of one.
    pub fn coherency(&self) -> Estimated {
        self.coherency
    }

    /// Measured less fitted throughput of each point, in the given order.
    pub fn residuals(&self) -> &[f64] {
        &self.residuals
    }

    /// Sum of squared residuals.
    pub fn sse(&self) -> f64 {
        self.residuals.iter().map(|e| e * e).sum()
    }

    /// Warnings about the validity of the results.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn parameters(&self) -> [f64; 3] {
        [self.unit.value, self.contention.value, self.coherency.value]
    }

    /// X(N) with its interval, marked if outside the measured concurrencies.
    pub fn throughput(&self, concurrency: f64) -> Result<ScalableThroughput, Error> {
        check("a concurrency", concurrency, 1.0..=1e9, "from 1 to 1e9")?;
        let (value, gradient) = law(self.parameters(), concurrency).unwrap_or((0.0, [0.0; 3]));
        positive("the predicted throughput", value)?;
        let half = self.errors.as_ref().and_then(|e| e.half_width(gradient));
        let mut throughput = Estimated::around(value, half);
        throughput.low = throughput.low.map(|low| low.max(0.0));
        Ok(ScalableThroughput { concurrency, throughput, extrapolated: self.outside(concurrency) })
    }

    fn outside(&self, n: f64) -> bool {
        self.measured.is_some_and(|(low, high)| n < low || n > high)
    }

    /// N* = √((1 − α)/β), its interval by the delta method on ln N*; `None` if throughput never
    /// decreases.
    pub fn peak(&self) -> Option<Peak> {
        let [_, contention, coherency] = self.parameters();
        let limit = |n: f64| law(self.parameters(), n).map_or(0.0, |(x, _)| x);
        // It falls from the start: at N = 1 the slope of X is (1 − α − β)γ.
        if contention >= 1.0 || (coherency > 0.0 && 1.0 - contention <= coherency) {
            let (concurrency, throughput) = (Estimated::alone(1.0), limit(1.0));
            return Some(Peak { concurrency, throughput, extrapolated: self.outside(1.0) });
        }
        if coherency <= 0.0 {
            return None;
        }
        let at = ((1.0 - contention) / coherency).sqrt();
        if !at.is_finite() {
            return None;
        }
        let gradient = [0.0, -0.5 / (1.0 - contention), -0.5 / coherency];
        let half = self.errors.as_ref().and_then(|e| e.half_width(gradient));
        // A factor of e^20 is no information, and more would overflow.
        let logarithm = Estimated::around(at.ln(), half.filter(|h| *h < 20.0));
        let concurrency = Estimated { value: at, ..logarithm.map(f64::exp) };
        Some(Peak { concurrency, throughput: limit(at), extrapolated: self.outside(at) })
    }

    /// The limit of throughput without coherency, γ/α; `None` if it falls or grows without bound.
    pub fn ceiling(&self) -> Option<f64> {
        let [unit, contention, coherency] = self.parameters();
        let level = unit / contention;
        (coherency == 0.0 && contention > 0.0 && level.is_finite()).then_some(level)
    }

    fn doubts(&self, points: &[ScalablePoint], unbound: [f64; 3]) -> Vec<String> {
        let mut words = Vec::new();
        if self.errors.as_ref().is_none_or(|e| e.noise.is_none()) {
            words.push(
                "as many points as parameters: exact through them, so no intervals".to_owned(),
            );
        }
        for (name, was) in [("contention α", unbound[1]), ("coherency β", unbound[2])] {
            if was < 0.0 {
                words.push(format!(
                    "the {name} would be {was:.2e}: held at 0 (faster than in proportion: a cache, or noise)"
                ));
            }
        }
        for (name, value) in [("contention α", self.contention), ("coherency β", self.coherency)]
        {
            if value.low.is_some_and(|low| low <= 0.0) {
                words.push(format!(
                    "the {name} does not differ significantly from 0: measure more or further apart"
                ));
            }
        }
        if let (Some(peak), Some((low, high))) = (self.peak(), self.measured) {
            if peak.concurrency.value > high {
                words.push(format!(
                    "the peak at {:.1} is past the largest measured concurrency, {high}: extrapolated",
                    peak.concurrency.value
                ));
            }
            if peak.concurrency.value <= low {
                words.push("throughput only falls: concurrency gains nothing".to_owned());
            }
        }
        let relative = |(p, e): (&ScalablePoint, &f64)| (p.concurrency, -e / p.throughput);
        let errors = points.iter().zip(&self.residuals).map(relative);
        let worst = errors.fold((0.0, 0.0f64), |w, e| if e.1.abs() > w.1.abs() { e } else { w });
        if worst.1.abs() > 0.1 {
            words.push(format!(
                "the law is {:+.0} % off at {}: something other than contention and coherency acts there",
                100.0 * worst.1,
                worst.0
            ));
        }
        words
    }
}

fn no_fit(why: &str) -> Error {
    Error::Contradictory { what: "the measured throughputs".to_owned(), why: why.to_owned() }
}

fn cost(points: &[ScalablePoint], at: [f64; 3]) -> Option<f64> {
    points.iter().try_fold(0.0, |sum, p| {
        let (x, _) = law(at, p.concurrency)?;
        Some(sum + (p.throughput - x).powi(2))
    })
}

/// The damped step to the minimum of the law linearised at a point: rows of √damping times each
/// column's length shorten it (Marquardt). Returned with the linear fit.
fn tangent(
    points: &[ScalablePoint],
    at: [f64; 3],
    free: [bool; 3],
    damping: f64,
) -> Option<(Linear, [f64; 3])> {
    let mut rows = Vec::with_capacity(points.len() + 3);
    let mut right = Vec::with_capacity(points.len() + 3);
    for p in points {
        let (x, gradient) = law(at, p.concurrency)?;
        rows.push(chosen(gradient, free));
        right.push(p.throughput - x);
    }
    if damping > 0.0 {
        let columns = rows[0].len();
        let length = |j: usize| rows.iter().map(|r: &Vec<f64>| r[j] * r[j]).sum::<f64>().sqrt();
        let pulls: Vec<f64> = (0..columns).map(|j| damping.sqrt() * length(j)).collect();
        for (j, pull) in pulls.into_iter().enumerate() {
            let mut row = vec![0.0; columns];
            row[j] = pull;
            rows.push(row);
            right.push(0.0);
        }
    }
    let fit = Linear::fit(&rows, &right)?;
    let mut steps = fit.coefficients.iter();
    let step = free.map(|free| if free { steps.next().copied().unwrap_or(0.0) } else { 0.0 });
    Some((fit, step))
}

/// N/X is linear in (1/γ, α/γ, β/γ); with weights X²/N its errors are those of X. A crude guess if
/// that fit is invalid.
fn start(points: &[ScalablePoint], free: [bool; 3]) -> [f64; 3] {
    let row = |p: &ScalablePoint| {
        let (n, weight) = (p.concurrency, p.throughput * p.throughput / p.concurrency);
        chosen([weight, weight * (n - 1.0), weight * n * (n - 1.0)], free)
    };
    let rows: Vec<Vec<f64>> = points.iter().map(row).collect();
    let right: Vec<f64> = points.iter().map(|p| p.throughput).collect();
    let best = points.iter().map(|p| p.throughput / p.concurrency).fold(0.0f64, f64::max);
    let guess = [best, 0.0, 0.0];
    let Some(fit) = Linear::fit(&rows, &right).filter(|fit| fit.coefficients[0] > 0.0) else {
        return guess;
    };
    let mut parts = fit.coefficients.iter().map(|c| c / fit.coefficients[0]);
    let mut at = free.map(|free| if free { parts.next().unwrap_or(0.0) } else { 0.0 });
    at[0] = 1.0 / fit.coefficients[0];
    let cheaper = match (cost(points, at), cost(points, guess)) {
        (Some(found), Some(crude)) => found <= crude,
        (found, _) => found.is_some(),
    };
    if cheaper { at } else { guess }
}

/// The least squares over the free parameters.
fn descend(points: &[ScalablePoint], free: [bool; 3]) -> Result<[f64; 3], Error> {
    let mut at = start(points, free);
    let diverged = || no_fit("the fit does not converge; check the columns, or measure more loads");
    let mut now = cost(points, at).ok_or_else(diverged)?;
    let mut damping = 1e-4;
    for _ in 0..500 {
        let Some((_, step)) = tangent(points, at, free, damping) else {
            // Linearly dependent columns, even with damping: the caller reports it.
            return Ok(at);
        };
        let next: [f64; 3] = std::array::from_fn(|j| at[j] + step[j]);
        let small = (0..3).all(|j| step[j].abs() <= 1e-13 * next[j].abs() + 1e-300);
        match cost(points, next) {
            Some(new) if new <= now && next[0] > 0.0 => {
                (at, now) = (next, new);
                damping = (damping * 0.1).max(1e-20);
                if small {
                    return Ok(at);
                }
            }
            _ if small || damping > 1e20 => return Ok(at),
            _ => damping *= 10.0,
        }
    }
    Ok(at)
}
