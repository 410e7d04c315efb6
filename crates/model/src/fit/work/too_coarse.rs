//! What times tell whose clock is too coarse for a fit: rates and means, but no law, and no number of servers.
//!
//! The difference of two readings of a clock is right in the mean, however long its ticks are, if these have nothing to do with
//! the requests. So the mean response of many requests is known, and with the rate the mean number inside (J. Little,
//! 1961). Whether these wait, and for how many servers, a clock does not tell whose ticks are longer than the responses. Durations that
//! were measured finely and then cut off to whole ticks are up to a tick too short, so that what is said of the most work allows for that.

use ground::number::time;

use crate::fit::input::Step;

use super::times::COARSEST;

/// What is known of a step.
struct StepMeans {
    rate: f64,
    response_s: f64,
    /// Half the width of the 95 % interval of the mean response.
    half_s: f64,
}

/// What the times of steps tell, if their clock is too coarse for more: sentences. `None` if they may be fitted, or are not
/// recorded.
pub fn too_coarse(steps: &[Step]) -> Option<String> {
    let tick = |s: &Step| s.times.as_ref().map_or(0.0, |times| times.resolution_s);
    let tick_s = steps.iter().map(tick).fold(0.0, f64::max);
    let all: Vec<StepMeans> = steps.iter().filter_map(means).collect();
    let longest = all.iter().map(|means| means.response_s).fold(0.0, f64::max);
    if all.is_empty() || tick_s <= COARSEST * longest {
        return None;
    }
    let each = all.iter().map(|means| {
        let inside = means.rate * means.response_s;
        format!(
            "{:.4} requests/s: a mean response of {} ± {}, so {inside:.2} ± {:.2} requests inside in the mean",
            means.rate,
            time(means.response_s),
            time(means.half_s),
            means.rate * means.half_s,
        )
    });
    let each = each.collect::<Vec<_>>().join("; ");
    let heaviest = all.iter().map(|means| means.rate).fold(0.0, f64::max);
    let shortest =
        all.iter().map(|means| means.response_s + means.half_s).fold(f64::INFINITY, f64::min);
    // A logger that cuts durations off takes up to a tick from each; the times do not show it.
    let longest_work = shortest + tick_s;
    Some(format!(
        "response times are counted in ticks of {}, longer than the responses: neither a law of service nor a number \
         of servers follows from them. What is known: {each}; up to a tick more, if the log cuts durations off. The service carried \
         {heaviest:.4} requests/s; the mean work is at most {}, so that m servers are busy for at most {:.0}/m % of the time at that \
         load. Log with a finer clock ({})",
        time(tick_s),
        time(longest_work),
        100.0 * heaviest * longest_work,
        finer(longest),
    ))
}

/// A clock for responses of so many seconds.
fn finer(response_s: f64) -> &'static str {
    if response_s < 1e-3 {
        "microseconds for responses of microseconds"
    } else {
        "milliseconds for responses of milliseconds"
    }
}

fn means(step: &Step) -> Option<StepMeans> {
    let times = step.times.as_ref()?;
    let judged = || times.requests.iter().filter(|r| r.counted);
    let n = judged().count() as f64;
    let from = judged().map(|r| r.arrival_s).fold(f64::INFINITY, f64::min);
    let to = judged().map(|r| r.arrival_s).fold(f64::NEG_INFINITY, f64::max);
    if n < 2.0 {
        return None;
    }
    let taken = || judged().map(|r| r.departure_s - r.arrival_s);
    let response_s = taken().sum::<f64>() / n;
    let variance = taken().map(|t| (t - response_s).powi(2)).sum::<f64>() / (n - 1.0);
    // The last tick counts whole.
    let seconds = (to - from + times.clock_s).max(1e-9);
    Some(StepMeans { rate: n / seconds, response_s, half_s: 1.96 * (variance / n).sqrt() })
}
