//! AT&T's capacity of a storage system, fitted to measured points. [`IoCapacity`] has the formula.

use serde::Serialize;

use crate::error::{Error, check};
use crate::regression::{Estimated, Linear, Noise, dot, ratio};
use crate::statistics::f_exceeded;

/// A measurement at saturation: the I/Os per second of one size at one share of reads.
/// [`IoCapacity`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IoPoint {
    /// Bytes of each I/O.
    pub size_bytes: f64,
    /// Share of reads among the I/Os, 0 to 1.
    pub read_share: f64,
    /// I/Os per second, reads and writes together.
    pub throughput: f64,
}

/// The constants of one size, from [`IoCapacity::sizes`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IoSize {
    /// Bytes of each I/O.
    pub size_bytes: f64,
    /// C: reads per second without writes (T_100%read).
    pub capacity: Estimated,
    /// Writes per second without reads (T_100%write).
    pub write_throughput: Estimated,
    /// f_rw: the number of reads that take as much capacity as one write.
    pub write_cost: Estimated,
    /// Smallest measured share of reads.
    pub read_share_low: f64,
    /// Largest measured share of reads.
    pub read_share_high: f64,
    /// For each point in the given order: fitted over measured throughput, less 1.
    pub residuals: Vec<f64>,
    #[serde(skip)]
    pub(super) fit: Linear,
}

/// Seconds of the system per I/O, affine in its size B: a + b·B, for reads and for writes. Fitted
/// by least squares over all points ([`IoCapacity`] has the method). Wrong if a size crosses a
/// stripe or a page.
///
/// ```
/// use model::capacity::{IoCapacity, IoPoint};
/// // A read takes 0.1 ms and 10 ns a byte, a write twice as long.
/// let at = |size_bytes: f64, read_share: f64| {
///     let seconds = (1e-4 + 1e-8 * size_bytes) * (2.0 - read_share);
///     IoPoint { size_bytes, read_share, throughput: 1.0 / seconds }
/// };
/// let points = [at(4e3, 1.0), at(4e3, 0.0), at(64e3, 1.0), at(64e3, 0.0)];
/// let system = IoCapacity::fit(&points, 0.95)?;
/// let cost = system.affine().unwrap();
/// assert!((cost.read_fixed_s.value - 1e-4).abs() < 1e-9);
/// assert!((cost.write_byte_s.value - 2e-8).abs() < 1e-13);
/// // A size between them, reads alone.
/// assert!((system.throughput(16e3, 1.0)?.total.value - 1.0 / 2.6e-4).abs() < 0.01);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AffineCost {
    /// Seconds for a read, whatever its size.
    pub read_fixed_s: Estimated,
    /// Seconds for each byte read.
    pub read_byte_s: Estimated,
    /// Seconds for a write, whatever its size.
    pub write_fixed_s: Estimated,
    /// Seconds for each byte written.
    pub write_byte_s: Estimated,
    /// The largest relative error at a measured point, with its sign: fitted over measured
    /// throughput, less 1.
    pub residual_worst: f64,
    /// The probability of a fit this bad if the cost were affine (F test of lack of fit against
    /// separate fits of the sizes); `None` if the points have no degrees of freedom left.
    pub lack_of_fit: Option<f64>,
    #[serde(skip)]
    pub(super) fit: Linear,
    #[serde(skip)]
    pub(super) noise: Option<Noise>,
}

/// How much points scatter, from [`IoCapacity::affine_scatter`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scatter {
    /// Standard deviation of a measured throughput over its mean.
    pub deviation: f64,
    /// Degrees of freedom of that.
    pub degrees: f64,
}

/// A fitted storage system: AT&T's constant capacity.
///
/// With T_read and T_write the reads and writes in a second that a saturated system completes, all
/// of one size,
///
///   C = T_read + T_write·f_rw,   f_rw = T_100%read / T_100%write,
/// is constant. In terms of time: a read takes s_r = 1/C and a write s_w = f_rw/C seconds of the
/// system, so at a read share ρ an I/O takes y = ρ·s_r + (1 − ρ)·s_w seconds and the throughput is
/// T = 1/y. This is linear in s_r and s_w, so two points determine them and more points give
/// intervals, by least squares of *relative* errors (each row times its T), because the scatter of
/// measured throughput is proportional to it. Between sizes the time is affine, s = a + b·bytes,
/// for reads and for writes: a fixed cost and a rate.
///
/// Source: AT&T's slides on storage capacity estimation; intervals of ratios by Fieller (1954). It
/// assumes points that were saturated and steady. Wrong for caches that absorb writes until they
/// are full (a short run measures the cache), for reads that disturb writes or the reverse (see the
/// residuals at 50 %), and for sizes that cross a stripe or a page (see the lack of fit). The
/// relative weights bias the times down by their squared scatter: 0.25 % at 5 %. It does not
/// predict response times ([`crate::queue`]).
///
/// ```
/// use model::capacity::{IoCapacity, IoPoint};
/// // 10,000 reads/s or 2,500 writes/s of 4 KiB: what at 70 % reads?
/// let point = |read_share, throughput| IoPoint { size_bytes: 4096.0, read_share, throughput };
/// let system = IoCapacity::fit(&[point(1.0, 10_000.0), point(0.0, 2_500.0)], 0.95)?;
/// assert!((system.sizes()[0].write_cost.value - 4.0).abs() < 1e-12);
/// let at = system.throughput(4096.0, 0.7)?;
/// assert!((at.total.value - 5263.16).abs() < 0.01);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IoCapacity {
    pub(super) sizes: Vec<IoSize>,
    pub(super) affine: Option<AffineCost>,
    /// Relative standard deviation of a measured point about the separate fits of the sizes.
    scatter: Option<f64>,
    #[serde(skip)]
    pub(super) noise: Option<Noise>,
    warnings: Vec<String>,
}

impl IoCapacity {
    /// Fits points of any number of sizes, each at two or more shares of reads. Intervals have the
    /// given confidence (0.5 to 0.9999) and assume one relative scatter for all sizes; with two
    /// points for each size there are none. Cost: linear in the points.
    pub fn fit(points: &[IoPoint], confidence: f64) -> Result<Self, Error> {
        for point in points {
            check("an I/O size in bytes", point.size_bytes, 1e-3..=1e18, "from 0.001 to 1e18")?;
            check("a share of reads", point.read_share, 0.0..=1.0, "from 0 to 1")?;
            check(
                "a throughput in I/Os per s",
                point.throughput,
                1e-9..=1e15,
                "from 1e-9 to 1e15",
            )?;
        }
        let mut known: Vec<f64> = points.iter().map(|p| p.size_bytes).collect();
        known.sort_by(f64::total_cmp);
        known.dedup();
        if known.is_empty() {
            let todo = "measure a size at two shares of reads";
            return Err(Error::TooFew {
                what: "measured points".to_owned(),
                got: 0,
                need: 2,
                todo,
            });
        }
        let mut fits = Vec::new();
        for &size in &known {
            let own: Vec<&IoPoint> = points.iter().filter(|p| p.size_bytes == size).collect();
            fits.push(fit_size(size, &own)?);
        }
        let sse: f64 = fits.iter().map(|(fit, _)| fit.sse()).sum();
        let degrees = fits.iter().map(|(fit, _)| fit.degrees()).sum();
        let noise = Noise::new(sse, degrees, confidence)?;
        let sizes: Vec<IoSize> = known
            .into_iter()
            .zip(fits)
            .map(|(size, (fit, shares))| constants(size, fit, shares, noise))
            .collect();
        let mut warnings = Vec::new();
        let affine = affine_cost(points, &sizes, sse, degrees, confidence, &mut warnings)?;
        if noise.is_none() {
            warnings
                .push("two points for each size: exact through them, so no intervals".to_owned());
        }
        warnings.extend(sizes.iter().filter_map(|size| {
            let below_1 = size.write_cost.high.unwrap_or(size.write_cost.value) < 1.0;
            let words = "writes are cheaper than reads: a cache may have absorbed them";
            below_1.then(|| format!("{} bytes: {words}", size.size_bytes))
        }));
        let scatter = noise.map(|n| n.variance.sqrt());
        Ok(IoCapacity { sizes, affine, scatter, noise, warnings })
    }

    /// The measured sizes, ascending, with their constants.
    pub fn sizes(&self) -> &[IoSize] {
        &self.sizes
    }

    /// The cost between sizes, if at least two sizes were measured and it is not negative at any of
    /// them.
    pub fn affine(&self) -> Option<&AffineCost> {
        self.affine.as_ref()
    }

    /// Relative standard deviation of a measured throughput about the sizes' own fits; `None` with
    /// two points for each size.
    pub fn scatter(&self) -> Option<f64> {
        self.scatter
    }

    /// Relative standard deviation of a point about the affine cost, and the degrees of freedom by which it is known: the
    /// scatter of measured throughput and what the affine form misses, and so at least the scatter. Needs three sizes.
    pub fn affine_scatter(&self) -> Option<Scatter> {
        /// Constants of the affine cost: two for reads, two for writes.
        const CONSTANTS: usize = 4;
        let noise = self.affine.as_ref()?.noise.as_ref()?;
        let points: usize = self.sizes.iter().map(|size| size.residuals.len()).sum();
        let degrees = points.checked_sub(CONSTANTS).filter(|degrees| *degrees > 0)? as f64;
        Some(Scatter { deviation: noise.variance.sqrt(), degrees })
    }

    /// Warnings about the validity of the results.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// The seconds of a read and of a write of one size, with the smallest and largest share of reads.
fn fit_size(size: f64, points: &[&IoPoint]) -> Result<(Linear, (f64, f64)), Error> {
    let low = points.iter().fold(1.0f64, |m, p| m.min(p.read_share));
    let high = points.iter().fold(0.0f64, |m, p| m.max(p.read_share));
    let rows: Vec<Vec<f64>> = points
        .iter()
        .map(|p| vec![p.read_share * p.throughput, (1.0 - p.read_share) * p.throughput])
        .collect();
    let fit = Linear::fit(&rows, &vec![1.0; rows.len()]).filter(|_| high > low);
    let Some(fit) = fit else {
        let what = format!("shares of reads measured at {size} bytes");
        let todo =
            "reads and writes cannot be separated: measure this size at another share of reads";
        return Err(Error::TooFew { what, got: 1, need: 2, todo });
    };
    if fit.coefficients.iter().any(|s| *s <= 0.0) {
        let [read, write] = [fit.coefficients[0], fit.coefficients[1]];
        let kind = if read <= write { "a read" } else { "a write" };
        return Err(Error::Contradictory {
            what: format!("the points of {size} bytes"),
            why: format!(
                "they imply a cost of {:.3e} s for {kind}; measure again, saturated and in \
                 steady state, at shares of reads further apart",
                read.min(write)
            ),
        });
    }
    Ok((fit, (low, high)))
}

fn constants(size_bytes: f64, fit: Linear, shares: (f64, f64), noise: Option<Noise>) -> IoSize {
    let (read, write) = (fit.factor(&[1.0, 0.0]), fit.factor(&[0.0, 1.0]));
    let of = |value: f64, z: &[f64]| Estimated::around(value, noise.map(|n| n.half_width(z)));
    let [read_s, write_s] = [fit.coefficients[0], fit.coefficients[1]];
    IoSize {
        size_bytes,
        capacity: of(read_s, &read).inverse(),
        write_throughput: of(write_s, &write).inverse(),
        write_cost: ratio((write_s, &write), (read_s, &read), noise),
        read_share_low: shares.0,
        read_share_high: shares.1,
        residuals: fit.residuals.iter().map(|e| throughput_error(*e)).collect(),
        fit,
    }
}

/// From 1 − (fitted time over measured time) to (fitted throughput over measured) − 1.
fn throughput_error(residual: f64) -> f64 {
    1.0 / (1.0 - residual) - 1.0
}

/// The regressors of the affine cost: a read share ρ of I/Os of B bytes.
pub(super) fn affine_row(size_bytes: f64, read_share: f64) -> Vec<f64> {
    let write_share = 1.0 - read_share;
    vec![read_share, read_share * size_bytes, write_share, write_share * size_bytes]
}

fn affine_cost(
    points: &[IoPoint],
    sizes: &[IoSize],
    own_sse: f64,
    own_degrees: usize,
    confidence: f64,
    warnings: &mut Vec<String>,
) -> Result<Option<AffineCost>, Error> {
    if sizes.len() < 2 {
        return Ok(None);
    }
    let row = |p: &IoPoint| {
        let row = affine_row(p.size_bytes, p.read_share);
        row.into_iter().map(|x| x * p.throughput).collect()
    };
    let rows: Vec<Vec<f64>> = points.iter().map(row).collect();
    let Some(fit) = Linear::fit(&rows, &vec![1.0; rows.len()]) else {
        warnings
            .push("the sizes are too close to each other to fit a cost between them".to_owned());
        return Ok(None);
    };
    let all_positive = sizes.iter().all(|size| {
        [0.0, 1.0].iter().all(|&read| fit.value(&affine_row(size.size_bytes, read)) > 0.0)
    });
    if !all_positive {
        let words =
            "an affine cost would be negative at a measured size: sizes between are not predicted";
        warnings.push(words.to_owned());
        return Ok(None);
    }
    let noise = Noise::new(fit.sse(), fit.degrees(), confidence)?;
    let of = |j: usize| {
        let unit: Vec<f64> = (0..4).map(|k| if k == j { 1.0 } else { 0.0 }).collect();
        let half = noise.map(|n| n.half_width(&fit.factor(&unit)));
        Estimated::around(fit.coefficients[j], half)
    };
    let errors = fit.residuals.iter().map(|e| throughput_error(*e));
    let residual_worst =
        errors.fold(0.0f64, |worst, e| if e.abs() > worst.abs() { e } else { worst });
    let extra = fit.degrees() - own_degrees;
    let own_variance = own_sse / own_degrees as f64;
    let mut lack_of_fit = None;
    if extra > 0 && own_degrees > 0 && own_variance > f64::EPSILON * f64::EPSILON {
        let mean_square = (fit.sse() - own_sse).max(0.0) / extra as f64;
        let f = (mean_square / own_variance).min(f64::MAX);
        lack_of_fit = Some(f_exceeded(f, extra as f64, own_degrees as f64)?);
    }
    if lack_of_fit.is_some_and(|p| p < 0.05) {
        warnings.push(format!(
            "the cost is not affine in size (chance {:.1e}): between sizes errors up to {:.0} % were seen",
            lack_of_fit.unwrap_or(0.0),
            100.0 * residual_worst.abs()
        ));
    }
    Ok(Some(AffineCost {
        read_fixed_s: of(0),
        read_byte_s: of(1),
        write_fixed_s: of(2),
        write_byte_s: of(3),
        residual_worst,
        lack_of_fit,
        noise,
        fit,
    }))
}

impl IoCapacity {
    /// Half the width of the interval of a sum of seconds, from the factors of its parts.
    pub(super) fn half_width(noise: Option<Noise>, independent: &[Vec<f64>]) -> Option<f64> {
        let square: f64 = independent.iter().map(|z| dot(z, z)).sum();
        noise.map(|n| n.t * (n.variance * square).sqrt())
    }
}
