//! Each queue on its own: its load, its service times, and its expected length.

use serde::{Deserialize, Serialize};

use crate::distribution::Empirical;
use crate::queue::{Mg1, erlang_c};
use ground::window::{Histogram, Window};

/// If the newest windows contain at least this number of services, only these determine the service
/// times: a queue's servers may have become faster (a shard gained a layer).
const RECENT_MIN: u64 = 50;
/// The newest part of the window.
const RECENT_PART: f64 = 0.25;

/// A queue in the sliding window, and some time ahead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Station {
    /// Its name.
    pub queue: String,
    /// Its servers; 0 if they are not limited.
    pub servers: u32,
    /// Arrivals per second.
    pub rate: f64,
    /// Arrivals per second expected [`super::Settings::ahead_s`] later.
    pub rate_ahead: f64,
    /// Mean service time, seconds.
    pub service_mean_s: f64,
    /// Squared coefficient of variation of the service times.
    pub service_scv: f64,
    /// Utilisation; 0 where servers are not limited.
    pub utilisation: f64,
    /// Mean number of requests waiting and in service, as measured.
    pub length: f64,
    /// The mean number expected at the rate ahead, by M/G/m; `None` past saturation. If servers are not
    /// limited, the rate times the service time.
    pub length_ahead: Option<f64>,
    /// P(T ≤ objective) of this queue alone at the rate ahead; 0 past saturation. Known only for a queue with
    /// one server.
    pub within_ahead: Option<f64>,
}

/// The mean number waiting and in service of M/G/m by Lee and Longton's approximation, exact for one
/// server and for exponential service; `None` past saturation.
fn number(rate: f64, mean: f64, scv: f64, servers: u32) -> Option<f64> {
    let load = rate * mean;
    if servers == 0 {
        return Some(load);
    }
    let m = f64::from(servers);
    if load >= m {
        return None;
    }
    let rho = load / m;
    Some(load + erlang_c(servers, rho) * rho / (1.0 - rho) * 0.5 * (1.0 + scv))
}

impl Station {
    /// The station of the windows of one queue, in the order of time; `None` without any service.
    pub(super) fn from_windows(
        windows: &[&Window],
        rate_ahead: f64,
        objective_s: f64,
    ) -> Option<Station> {
        let last = windows.last()?;
        let time: f64 = windows.iter().map(|w| w.length_s).sum();
        let recent_from = last.end_unix_us().saturating_sub((RECENT_PART * time * 1e6) as u64);
        let services = |from: u64| {
            let mut all = Histogram::default();
            for times in windows.iter().filter(|w| w.start_unix_us >= from).flat_map(|w| &w.times) {
                all.merge(&times.service);
            }
            all
        };
        let recent = services(recent_from);
        let service = if recent.count() >= RECENT_MIN { recent } else { services(0) };
        let mean = service.mean_s();
        if mean <= 0.0 || time <= 0.0 {
            return None;
        }
        let scv = service.variance_s2() / (mean * mean);
        let rate = windows.iter().map(|w| w.arrivals as f64).sum::<f64>() / time;
        let length_ahead = number(rate_ahead, mean, scv, last.servers);
        let within_ahead = || {
            let law = Empirical::from_histogram(&service).ok()?;
            match Mg1::new(rate_ahead, law) {
                Ok(queue) => Some(queue.response_cdf(objective_s)),
                Err(_) => Some(0.0),
            }
        };
        let capacity = time * f64::from(last.servers);
        let busy: f64 = windows.iter().map(|w| w.busy_s).sum();
        Some(Station {
            queue: last.queue.clone(),
            servers: last.servers,
            rate,
            rate_ahead,
            service_mean_s: mean,
            service_scv: scv,
            utilisation: if capacity > 0.0 { busy / capacity } else { 0.0 },
            length: windows.iter().map(|w| w.length_integral_s).sum::<f64>() / time,
            length_ahead,
            within_ahead: if last.servers == 1 { within_ahead() } else { None },
        })
    }
}
