//! Fork-join of n equal M/M/1 queues: means by the literature's formulas, which `ForkJoin` is checked against.
//!
//! Requests arrive as a Poisson stream of rate λ; each puts one part into every queue; parts are
//! served at rate µ, first come, first served; the request is answered when all its parts are. ρ =
//! λ/µ.

use crate::error::{Error, check};
use crate::fork_join::fan_out::PARTS_MAX;
use crate::queue::stable;

fn checked(arrival_rate: f64, service_rate: f64, ways: u32) -> Result<(f64, f64), Error> {
    check("the service rate", service_rate, 1e-12..=1e12, "1e-12 to 1e12 per second")?;
    check("the number of parts", f64::from(ways), 1.0..=f64::from(PARTS_MAX), "1 to 10,000")?;
    stable(arrival_rate, service_rate)?;
    Ok((arrival_rate / service_rate, 1.0 / (service_rate - arrival_rate)))
}

/// Hₙ = 1 + 1/2 + … + 1/n.
fn harmonic(n: u32) -> f64 {
    (1..=n).rev().map(|i| 1.0 / f64::from(i)).sum()
}

/// Mean response time in seconds of the two-way fork-join queue, exact: (12 − ρ)/8 · 1/(µ − λ), ρ =
/// λ/µ.
///
/// λ requests/s arrive in a Poisson stream, each with a part for both queues; a part takes an
/// exponential time of rate µ per second, first come first served; a request is answered when both
/// parts are. Wrong for other service (`ForkJoin`). Cost: nanoseconds.
///
/// Source: L. Flatto, S. Hahn, "Two parallel queues created by arrivals with two demands I", SIAM
/// Journal on Applied Mathematics 44 (1984); in this form R. Nelson, A. N. Tantawi, "Approximate
/// analysis of fork/join synchronization in parallel queues", IEEE Transactions on Computers 37
/// (1988), equation 6.
pub(super) fn two_way_mean(arrival_rate: f64, service_rate: f64) -> Result<f64, Error> {
    let (rho, response) = checked(arrival_rate, service_rate, 2)?;
    Ok((12.0 - rho) / 8.0 * response)
}

/// Mean response time in seconds by the approximation of Nelson and Tantawi, as the literature
/// gives it: the two-way mean times H_n/H₂ + 4/11·(1 − H_n/H₂)·ρ, for 2 to 32 parts; H_n = 1 +
/// 1/2 + … + 1/n, ρ = λ/µ, assumptions as for [`two_way_mean`].
///
/// Source: Nelson and Tantawi (1988), equation 16, who fitted the 4/11 to simulations. It is some 1
/// % low at three parts and half load, where [`varma_makowski_mean`] is more accurate, and
/// `ForkJoin` more accurate still. An error outside their range.
pub(super) fn nelson_tantawi_mean(
    arrival_rate: f64,
    service_rate: f64,
    ways: u32,
) -> Result<f64, Error> {
    check("the parts of Nelson's and Tantawi's formula", f64::from(ways), 2.0..=32.0, "2 to 32")?;
    let (rho, _) = checked(arrival_rate, service_rate, ways)?;
    let ratio = harmonic(ways) / harmonic(2);
    Ok((ratio + 4.0 / 11.0 * (1.0 - ratio) * rho) * two_way_mean(arrival_rate, service_rate)?)
}

/// Mean response time in seconds by the interpolation of Varma and Makowski between an empty and a
/// saturated system: (Hₙ + (Vₙ − Hₙ)·ρ)/(µ − λ), Hₙ = 1 + 1/2 + … + 1/n and ρ = λ/µ, assumptions as
/// for [`two_way_mean`]. Exact for one and two parts, within 3 % of simulation for up to eight, 5 %
/// low for sixteen at high load; for other service see `ForkJoin`. Cost: that of
/// [`heavy_traffic_factor`].
///
/// Source: S. Varma, A. M. Makowski, "Interpolation approximations for symmetric fork-join queues",
/// Performance Evaluation 20 (1994). Vₙ is [`heavy_traffic_factor`].
pub(super) fn varma_makowski_mean(
    arrival_rate: f64,
    service_rate: f64,
    ways: u32,
) -> Result<f64, Error> {
    let (rho, response) = checked(arrival_rate, service_rate, ways)?;
    let empty = harmonic(ways);
    Ok((empty + (heavy_traffic_factor(ways)? - empty) * rho) * response)
}

/// Vₙ: the limit as ρ → 1 of the mean response of n-way fork-join of M/M/1 queues, relative to that
/// of one part. V₁ = 1, V₂ = 11/8, and in general less than Hₙ.
///
/// Varma and Makowski give Σᵣ C(n, r)(−1)^(r−1) Σₘ C(r, m)(m − 1)!/r^(m+1), which loses all digits
/// from some 30 parts on. With (m − 1)!/r^m = ∫x^(m−1)e^(−rx)dx the sums close, and Vₙ = ∫ Σⱼ₌₁ⁿ
/// \[(1 − e^(−x))^j − (1 − (1 + x)e^(−x))^j\]/j dx/x, all of whose terms are positive. The
/// trapezoidal rule in ln x is exact to 1e-12 here. Cost: some 700·n multiplications.
pub(super) fn heavy_traffic_factor(ways: u32) -> Result<f64, Error> {
    check("the number of parts", f64::from(ways), 1.0..=f64::from(PARTS_MAX), "1 to 10,000")?;
    let step = 0.0625;
    let mut total = 0.0;
    // From x = e^(−32), where the integrand is x, to e^(4.5) = 90, where it is n·90·e^(−90).
    for i in -512..=72 {
        let x = f64::exp(step * f64::from(i));
        let (a, b) = (-(-x).exp_m1(), 1.0 - (1.0 + x) * (-x).exp());
        let (mut power_a, mut power_b) = (1.0, 1.0);
        for j in 1..=ways {
            power_a *= a;
            power_b *= b;
            total += (power_a - power_b) / f64::from(j);
            if power_a < 1e-18 {
                break;
            }
        }
    }
    Ok(total * step)
}
