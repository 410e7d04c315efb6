//! Open classes: flows from a routing matrix, and the capacity that they leave to closed classes.

use crate::error::{Error, not_negative};

use super::station::Law;

/// Arrival rates at the stations of an open (Jackson) network, from the arrival rates from outside
/// and a routing matrix: `routing[i][j]` is the share of the departures from station i that go to
/// j; the rest leaves the network. Solves λ = γ + λP. A class of [`super::Class::open`] with λ_i /
/// Σγ as visits is the Jackson network (Jackson, Management Science 10, 1963). O(stations³).
///
/// The flows hold for any network that routes by fixed shares and loses nothing. That each station
/// behaves as if alone with Poisson arrivals holds for exponential service and similar conditions
/// ([`super::Station`]). Wrong if routing depends on history, such as at most three tries, or a
/// retry at the same replica.
///
/// ```
/// // 10 requests/s go to the front; 80 % of them on to the disk, of which 10 % try again.
/// let rates = model::network::flows(&[10.0, 0.0], &[vec![0.0, 0.8], vec![0.1, 0.0]])?;
/// assert!((rates[0] - 10.0 / 0.92).abs() < 1e-12 && (rates[1] - 8.0 / 0.92).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
pub fn flows(external: &[f64], routing: &[Vec<f64>]) -> Result<Vec<f64>, Error> {
    let count = external.len();
    check_routing(routing, count)?;
    for &rate in external {
        not_negative("an arrival rate from outside", rate)?;
    }
    // Only reachable stations count: unreachable ones may be a trap, which does no harm.
    let mut reached: Vec<bool> = external.iter().map(|rate| *rate > 0.0).collect();
    for _ in 0..count {
        for i in 0..count {
            for j in 0..count {
                reached[j] |= reached[i] && routing[i][j] > 0.0;
            }
        }
    }
    let share = |i: usize, j: usize| if reached[i] { routing[i][j] } else { 0.0 };
    solve(count, |i, j| f64::from(u8::from(i == j)) - share(j, i), external)
        .filter(|rates| rates.iter().all(|r| r.is_finite() && *r >= 0.0 && *r <= 1e15))
        .ok_or_else(|| {
            wrong("customers reach stations from which no route leaves the network; add one")
        })
}

/// Mean visits to the stations of a closed network for each visit to station `reference`, from a
/// routing matrix whose rows sum to 1: v = vP. O(stations³). Source: W. Gordon, G. Newell, "Closed
/// queueing systems with exponential servers", Operations Research 15 (1967). Wrong if routing
/// depends on history, as for [`flows`].
///
/// ```
/// let visits = model::network::visits(0, &[vec![0.0, 0.3, 0.7], vec![1.0, 0.0, 0.0], vec![1.0, 0.0, 0.0]])?;
/// assert!((visits[1] - 0.3).abs() < 1e-12 && (visits[2] - 0.7).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
pub fn visits(reference: usize, routing: &[Vec<f64>]) -> Result<Vec<f64>, Error> {
    let count = routing.len();
    check_routing(routing, count)?;
    if reference >= count {
        return Err(wrong("the reference station is not in it; count from 0"));
    }
    if let Some(row) = routing.iter().find(|row| (row.iter().sum::<f64>() - 1.0).abs() > 1e-9) {
        let what = format!(
            "a row sums to {}; in a closed network each sums to 1",
            row.iter().sum::<f64>()
        );
        return Err(wrong(&what));
    }
    // The equation of the reference is replaced by v = 1.
    let mut right = vec![0.0; count];
    right[reference] = 1.0;
    let same = |i: usize, j: usize| f64::from(u8::from(i == j));
    let matrix =
        |i: usize, j: usize| if i == reference { same(i, j) } else { same(i, j) - routing[j][i] };
    solve(count, matrix, &right)
        .filter(|v| v.iter().all(|v| v.is_finite() && *v >= -1e-9 && *v <= 1e12))
        .map(|v| v.into_iter().map(|v| v.max(0.0)).collect())
        .ok_or_else(|| wrong("not all stations lead back to the reference; split the network"))
}

fn wrong(what: &str) -> Error {
    Error::Network { place: "the routing matrix".to_owned(), what: what.to_owned() }
}

fn check_routing(routing: &[Vec<f64>], count: usize) -> Result<(), Error> {
    if count == 0
        || count > 2000
        || routing.len() != count
        || routing.iter().any(|r| r.len() != count)
    {
        return Err(wrong(&format!(
            "it must be square, one row for each of {count} stations (1 to 2,000)"
        )));
    }
    for row in routing {
        if row.iter().any(|p| !(0.0..=1.0).contains(p)) || row.iter().sum::<f64>() > 1.0 + 1e-9 {
            return Err(wrong("shares must be from 0 to 1, and those of a row sum to at most 1"));
        }
    }
    Ok(())
}

/// Gaussian elimination with partial pivoting; `None` if the matrix is singular.
fn solve(count: usize, at: impl Fn(usize, usize) -> f64, right: &[f64]) -> Option<Vec<f64>> {
    let mut rows: Vec<Vec<f64>> =
        (0..count).map(|i| (0..count).map(|j| at(i, j)).chain([right[i]]).collect()).collect();
    for i in 0..count {
        let pivot = (i..count).max_by(|&a, &b| rows[a][i].abs().total_cmp(&rows[b][i].abs()))?;
        rows.swap(i, pivot);
        let (above, below) = rows.split_at_mut(i + 1);
        let row = &above[i];
        if row[i].abs() < 1e-13 {
            return None;
        }
        for other in below {
            let factor = other[i] / row[i];
            if factor != 0.0 {
                for j in i..=count {
                    other[j] -= factor * row[j];
                }
            }
        }
    }
    let mut found = vec![0.0; count];
    for i in (0..count).rev() {
        let known: f64 = (i + 1..count).map(|j| rows[i][j] * found[j]).sum();
        found[i] = (rows[i][count] - known) / rows[i][i];
    }
    Some(found)
}

/// Largest number of terms of all series of a station: a second or two.
const TERMS_MAX: usize = 500_000_000;

/// The capacity that open classes leave to closed ones at a station: rates α'(1), α'(2), … as a
/// law, and the probability that no open customer is present while no closed one is.
///
/// With open work ρ = Σ λD, the weight of n closed customers is h(n) = Σ_l C(n+l, l)·ρ^l /
/// (α(1)…α(n+l)), so α'(n) = h(n−1)/h(n); from the n where α is constant on it is α − ρ. The mean
/// number of open customers beside n closed ones is ρ(n+1)/α'(n+1). Source: Bruell, Balbo, Afshari,
/// Performance Evaluation 4 (1984), 241-260. The caller has checked ρ < lim α. Returns `None` if ρ
/// is so close to that limit, with so many servers, that the computation would take long.
pub(crate) fn left_over(law: &Law, open: f64, customers: usize) -> Option<(Law, f64)> {
    let Law::Rates(rates) = law else { return Some((Law::Delay, (-open).exp())) };
    let constant = rates.len();
    let limit = rates[constant - 1];
    if open == 0.0 {
        return Some((law.clone(), 1.0));
    }
    if constant == 1 {
        return Some((Law::Rates(vec![limit - open]), 1.0 - open / limit));
    }
    // u(n) = h(n)·α(1)…α(n), as mantissa and power of e.
    let last = constant.min(customers + 1);
    let mut spare = TERMS_MAX;
    let sums: Option<Vec<(f64, f64)>> =
        (0..=last).map(|n| series(law, open, n, limit, &mut spare)).collect();
    let sums = sums?;
    let rates = (1..=last)
        .map(|n| {
            let ((a, p), (b, q)) = (sums[n - 1], sums[n]);
            a / b * (p - q).exp() * law.alpha(n)
        })
        .collect();
    let idle = (-sums[0].1).exp() / sums[0].0;
    Some((Law::Rates(rates), idle))
}

/// u(n) = Σ_l C(n+l, l)·ρ^l / (α(n+1)…α(n+l)).
fn series(law: &Law, open: f64, n: usize, limit: f64, spare: &mut usize) -> Option<(f64, f64)> {
    if n + 1 >= law.constant_from() {
        // A power of 1/(1 − ρ/α).
        return Some((1.0, -((n + 1) as f64) * (-open / limit).ln_1p()));
    }
    let (mut term, mut sum, mut power) = (1.0f64, 1.0f64, 0.0f64);
    let scale = 1e100f64;
    for l in 1..*spare {
        let ratio = (n + l) as f64 / l as f64 * open / law.alpha(n + l);
        term *= ratio;
        sum += term;
        if sum > scale {
            (term, sum, power) = (term / scale, sum / scale, power + scale.ln());
        }
        if n + l >= law.constant_from() && ratio < 1.0 && term < 1e-18 * (1.0 - ratio) * sum {
            *spare -= l;
            return Some((sum, power));
        }
    }
    None
}
