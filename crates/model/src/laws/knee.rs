//! Finds the bend of a measured curve.

use crate::error::{Error, not_negative, positive};

/// The knee of a measured curve: the index of the point with the largest *power* X/R, throughput
/// over mean response time (Kleinrock: "Power and Deterministic Rules of Thumb for Probabilistic
/// Problems in Computer Communications", ICC 1979). Below it more load is nearly free, above it
/// response time is bought with little throughput. Of an M/M/1 it lies at half the saturation.
///
/// It is one of the points that were measured: between them nothing is said.
///
/// # Errors
/// [`Error::Invalid`] for a throughput or a response time that is not above 0, or no points.
///
/// ```
/// // M/M/1 with 100 requests/s: R = 1 / (100 − X).
/// let points: Vec<(f64, f64)> = (1..10).map(|i| 10.0 * f64::from(i))
///     .map(|x| (x, 1.0 / (100.0 - x))).collect();
/// assert_eq!(points[model::laws::knee(&points)?].0, 50.0);
/// # Ok::<(), model::Error>(())
/// ```
pub fn knee(points: &[(f64, f64)]) -> Result<usize, Error> {
    let mut best: Option<(f64, usize)> = None;
    for (i, &(throughput, response_s)) in points.iter().enumerate() {
        positive("a throughput, requests/s", throughput)?;
        positive("a mean response time, s", response_s)?;
        let power = throughput / response_s;
        if best.is_none_or(|(most, _)| power > most) {
            best = Some((power, i));
        }
    }
    best.map(|(_, i)| i).ok_or(Error::Invalid {
        what: "the number of points",
        value: 0.0,
        must: "at least 1: measure at one load or more",
    })
}

/// How many clients saturate a closed system: N* = X_max·(R_1 + Z), where the asymptotic bounds X ≤
/// N/(R_1 + Z) and X ≤ X_max meet (Lazowska et al., 1984, section 5.2). R_1 is the response time of
/// a client alone, s.
///
/// Below N* clients hardly wait for one another; each one beyond it adds to the response time
/// alone. Real curves bend around N*, not at it.
///
/// # Errors
/// [`Error::Invalid`] for numbers that cannot be what they are said to be.
///
/// ```
/// // A server of 10 ms, clients that think 90 ms: ten of them keep it busy.
/// assert!((model::laws::saturation_clients(100.0, 0.010, 0.090)? - 10.0).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
pub fn saturation_clients(
    throughput_max: f64,
    response_alone_s: f64,
    think_s: f64,
) -> Result<f64, Error> {
    positive("the largest throughput, requests/s", throughput_max)?;
    positive("the response time of a client alone, s", response_alone_s)?;
    not_negative("the mean think time, s", think_s)?;
    positive("the clients at saturation", throughput_max * (response_alone_s + think_s))
}
