//! What stamps that are coarser than the responses leave open, and what they still show.
//!
//! Such stamps do not say which request met which, nor how requests come within a tick. A fit takes arrivals for a Poisson stream, and where
//! they come in clumps the waits of these are taken for work: of three requests at a time to two servers it found three servers of 16 ms in
//! place of 10 ms. But clumps show in the counts of successive ticks: their variance over their mean is 1 of a Poisson stream, and c of c
//! requests at a time, however long the ticks are. Successive counts are compared (J. von Neumann, 1941), so that a load that changes slowly
//! does not count. What evens out within a tick, as the pauses of a few clients do, is not seen.

use ground::number::{digits, time};

/// The fewest ticks that are compared.
const TICKS_MIN: f64 = 20.0;
/// A ratio that differs from 1 by more standard deviations than these is not explained by chance.
const CHANCE: f64 = 4.0;
/// A ratio that differs from 1 by less is not told, however many ticks there are.
const MATTERS: f64 = 0.2;
/// Stamps are coarse if their tick is longer than this number of mean responses. Finer ones show which requests met, and the fit of works
/// uses them.
const RESPONSES: f64 = 2.0;

/// When a request came and was answered, as stamps show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StampedRequest {
    pub arrival_s: f64,
    pub departure_s: f64,
}

/// The judged requests of a step.
#[derive(Clone, Debug)]
pub(super) struct StampedStep {
    pub name: String,
    /// The tick of the stamps, seconds.
    pub clock_s: f64,
    pub requests: Vec<StampedRequest>,
}

/// The stamps of steps, if they are coarser than the responses.
pub(super) struct CoarseStamps {
    /// Their tick, seconds.
    pub clock_s: f64,
    /// The mean response at the lightest load, seconds.
    pub response_s: f64,
    /// The name of the step whose counts differ most from those of a Poisson stream, and the variance of these counts over their mean;
    /// `None` if chance explains the differences of all steps.
    pub clumped: Option<(String, f64)>,
}

impl CoarseStamps {
    /// `None` where stamps are fine, or not known.
    pub fn new(steps: &[StampedStep]) -> Option<CoarseStamps> {
        let clock_s = steps.iter().map(|step| step.clock_s).fold(0.0, f64::max);
        let mean = |step: &StampedStep| {
            let taken = step.requests.iter().map(|r| r.departure_s - r.arrival_s);
            taken.sum::<f64>() / step.requests.len().max(1) as f64
        };
        let response_s = steps.iter().map(mean).fold(f64::INFINITY, f64::min);
        if clock_s <= RESPONSES * response_s {
            return None;
        }
        let of = |step: &StampedStep| {
            let (ratio, deviation) = counts_over_poisson(step)?;
            let off = (ratio - 1.0).abs();
            (off > (CHANCE * deviation).max(MATTERS)).then(|| (step.name.clone(), ratio))
        };
        let far = |found: &(String, f64)| (found.1.max(1e-3)).ln().abs();
        let clumped = steps.iter().filter_map(of).max_by(|a, b| far(a).total_cmp(&far(b)));
        Some(CoarseStamps { clock_s, response_s, clumped })
    }

    /// What they leave open and what to do: sentences.
    pub fn text(&self) -> String {
        let (tick, response) = (time(self.clock_s), time(self.response_s));
        let known = format!(
            "Stamps are known to {tick}, and the mean response is {response}: they do not say which requests met."
        );
        let remedy = "Log stamps as fine as the responses (nginx: $msec; Apache: %{msec}t)";
        match &self.clumped {
            None => format!(
                "{known} The response times alone were fitted, as of requests that come one by one at random; their counts in ticks of {tick} agree \
                 with that, which what evens out within a tick would as well. {remedy} to know the servers from the requests themselves."
            ),
            Some((step, ratio)) => format!(
                "{known} Requests do not come one by one at random: in step {step} their counts in ticks of {tick} vary {} times as much. A fit \
                 of response times takes for work what they wait for each other, so that the work and the number of servers are not known, \
                 and nothing is claimed beyond the heaviest fitted load. {remedy}.",
                digits(*ratio, 2)
            ),
        }
    }
}

/// The variance of the counts of arrivals in ticks over their mean, from the differences of successive counts, with the standard deviation
/// that it has of a Poisson stream. `None` of few ticks.
fn counts_over_poisson(step: &StampedStep) -> Option<(f64, f64)> {
    let clock = step.clock_s;
    let first = step.requests.first()?;
    let is_stamp = |time: f64| {
        let ticks = (time - first.departure_s) / clock;
        (ticks - ticks.round()).abs() < 1e-6
    };
    // Of stamps of starts the arrivals are whole ticks apart, and of those of ends the departures.
    let base = if step.requests.iter().all(|r| is_stamp(r.departure_s)) {
        first.departure_s
    } else {
        first.arrival_s
    };
    // An arrival is a stamp less a response, which is in the tick of the stamp where it is shorter than a tick.
    let tick = |arrival_s: f64| ((arrival_s - base) / clock - 1e-6).ceil() as i64;
    let ticks: Vec<i64> = step.requests.iter().map(|r| tick(r.arrival_s)).collect();
    let (low, high) = (ticks.iter().min()?, ticks.iter().max()?);
    // The first tick and the last are not whole.
    let whole = high - low - 1;
    if (whole as f64) < TICKS_MIN || whole > 100 * ticks.len() as i64 {
        return None;
    }
    let mut counts = vec![0.0; whole as usize];
    for tick in &ticks {
        if let Some(count) = usize::try_from(tick - low - 1).ok().and_then(|at| counts.get_mut(at))
        {
            *count += 1.0;
        }
    }
    let n = counts.len() as f64;
    let mean = counts.iter().sum::<f64>() / n;
    if mean <= 0.0 {
        return None;
    }
    let squares: f64 = counts.windows(2).map(|two| (two[1] - two[0]).powi(2)).sum();
    let ratio = squares / (2.0 * (n - 1.0) * mean);
    // Of normal counts 3/n; the fourth moment of Poisson counts adds 1/mean to n times the variance.
    Some((ratio, ((3.0 + 1.0 / mean) / n).sqrt()))
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use rand_distr::Exp1;

    use super::*;

    /// Arrivals in clumps of so many, 100/s in all, that are stamped in whole seconds at their ends.
    fn stamped(clump: usize, seconds: f64, seed: u64) -> StampedStep {
        let mut random = StdRng::seed_from_u64(seed);
        let mut now = 0.0;
        let mut requests = Vec::new();
        while now < seconds {
            now += clump as f64 / 100.0 * random.sample::<f64, _>(Exp1);
            for _ in 0..clump {
                let taken = 0.02 * random.random::<f64>();
                let departure_s = (now + taken).floor() + 0.25;
                let arrival_s = departure_s - (taken * 1e3).floor() * 1e-3;
                requests.push(StampedRequest { arrival_s, departure_s });
            }
        }
        StampedStep { name: "a".to_owned(), clock_s: 1.0, requests }
    }

    fn clumps_of(step: StampedStep) -> Option<(String, f64)> {
        CoarseStamps::new(&[step]).unwrap().clumped
    }

    #[test]
    fn clumps_show_in_counts_of_seconds_and_poisson_arrivals_do_not() {
        for seed in 0..40 {
            assert_eq!(clumps_of(stamped(1, 60.0, seed)), None, "{seed}");
            let (_, ratio) = clumps_of(stamped(4, 120.0, seed)).unwrap();
            assert!((2.0..7.0).contains(&ratio), "{seed}: {ratio}");
        }
    }

    #[test]
    fn a_load_that_changes_slowly_is_no_clump_and_paced_arrivals_are_not_poisson() {
        // From 100/s to 300/s in five minutes: the counts vary 30 times as much as those of one rate.
        let mut random = StdRng::seed_from_u64(3);
        let mut changing = stamped(1, 300.0, 3);
        for i in 0..changing.requests.len() {
            let request = changing.requests[i];
            let part = request.departure_s / 300.0;
            for _ in 0..usize::from(random.random::<f64>() < part)
                + usize::from(random.random::<f64>() < part)
            {
                changing.requests.push(request);
            }
        }
        // Copies come at their own times.
        for request in &mut changing.requests {
            let later = (4.0 * random.random::<f64>()).floor();
            request.arrival_s += later;
            request.departure_s += later;
        }
        assert_eq!(clumps_of(changing), None);
        let mut paced = stamped(1, 60.0, 4);
        for (i, request) in paced.requests.iter_mut().enumerate() {
            request.departure_s = (i as f64 / 100.0).floor();
            request.arrival_s = request.departure_s - 0.005;
        }
        assert!(clumps_of(paced).unwrap().1 < 0.1);
    }

    #[test]
    fn stamps_as_fine_as_responses_are_not_looked_at() {
        let mut fine = stamped(4, 60.0, 1);
        fine.clock_s = 0.015;
        assert!(CoarseStamps::new(&[fine]).is_none() && CoarseStamps::new(&[]).is_none());
    }
}
