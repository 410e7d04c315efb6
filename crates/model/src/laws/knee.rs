//! Finds the bend of a measured curve.

use crate::error::{Error, not_negative, positive};

/// The knee of a measured curve: the index of the point with the largest *power* X/R, throughput
/// over mean response time (Kleinrock: "Power and Deterministic Rules of Thumb for Probabilistic
/// Problems in Computer Communications", ICC 1979). Below it more load costs little response time;
/// above it more load costs much response time for little throughput. For an M/M/1 queue it is at
/// half the saturation.
///
/// The result is one of the measured points; nothing is interpolated.
///
/// # Errors
/// [`Error::Invalid`] if a throughput or response time is not above 0, or there are no points.
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

/// The number of clients that saturates a closed system: N* = X_max·(R_1 + Z), where the asymptotic
/// bounds X ≤ N/(R_1 + Z) and X ≤ X_max meet (Lazowska et al., 1984, section 5.2). R_1 is the
/// response time in seconds with a single client.
///
/// Below N* clients hardly wait for each other; above it each further client only adds to the
/// response time. Real curves bend around N* gradually.
///
/// # Errors
/// [`Error::Invalid`] if a number is out of range.
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
