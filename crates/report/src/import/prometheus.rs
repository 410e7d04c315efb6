//! Converts a saved response of Prometheus's `/api/v1/query_range`, to a query for the `_bucket`
//! counters of a histogram, into windows of the queue `gateway`.
//!
//! Each series counts from the start of its process; a decrease means that the process was
//! restarted and counts from 0 again. Increments are summed over the series with the same `le`, so
//! label sets (instances, paths) need no `sum by`. The distribution of responses between two bounds
//! is unknown: they are spread evenly, and the bounds are the resolution.

use std::collections::BTreeMap;
use std::path::Path;

use ground::window::{Nanos, Operation, Outcome, QueueName, SECOND, Window};
use serde::Deserialize;

use super::collector::WINDOWS_MAX;
use super::error::Error;

#[derive(Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<Data>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "resultType")]
    kind: String,
    result: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    values: Vec<(f64, String)>,
}

/// The windows and properties of a saved response.
#[derive(Clone, Debug, Default)]
pub(super) struct Range {
    pub windows: Vec<Window>,
    /// The buckets' upper bounds, seconds, ascending.
    pub edges_s: Vec<f64>,
    /// Number of responses, and number of those above the largest bound.
    pub responses: u64,
    pub above: u64,
    /// Number of series, and number of counter resets.
    pub series: usize,
    pub resets: u64,
    /// Number of intervals that were merged with others.
    pub joined: u64,
}

/// Converts a time of Prometheus to milliseconds.
fn millis(seconds: f64) -> Option<u64> {
    (0.0..9e9).contains(&seconds).then(|| (seconds * 1e3).round() as u64)
}

/// Increments by interval (start and end in ms), then by bound (its bits, so that infinity sorts
/// last).
type Increments = BTreeMap<(u64, u64), BTreeMap<u64, f64>>;

/// Adds the increments of one series; returns its number of resets.
fn add(series: &[(f64, String)], bound: u64, to: &mut Increments) -> Result<u64, String> {
    let (mut resets, mut last) = (0, None::<(u64, f64)>);
    for (at, value) in series {
        let at = millis(*at).ok_or_else(|| format!("invalid time `{at}`"))?;
        let value: f64 =
            value.parse().map_err(|_| format!("invalid number `{value}` at {at} ms"))?;
        if !(0.0..1e15).contains(&value) {
            last = None;
            continue;
        }
        match last {
            Some((before, _)) if at <= before => {
                return Err(format!("times are out of order at {at} ms"));
            }
            Some((before, old)) => {
                let increment = if value < old { value } else { value - old };
                resets += u64::from(value < old);
                *to.entry((before, at)).or_default().entry(bound).or_insert(0.0) += increment;
            }
            None => {}
        }
        last = Some((at, value));
    }
    Ok(resets)
}

/// Merges intervals that carry no information of their own. Overlapping intervals, where a series
/// lacks a sample, become one. If the query's step is shorter than the sampling interval, series
/// change only at some samples; an interval without a change is then merged with the next. Returns
/// the intervals and the number that was merged away.
fn joined(increments: Increments) -> (Increments, u64) {
    let before = increments.len();
    let mut apart: Vec<((u64, u64), BTreeMap<u64, f64>)> = Vec::new();
    for (interval, counts) in increments {
        match apart.last_mut() {
            Some(last) if interval.0 < last.0.1 => join(last, interval, counts),
            _ => apart.push((interval, counts)),
        }
    }
    let total = |counts: &BTreeMap<u64, f64>| counts.values().copied().fold(0.0, f64::max);
    let sum: f64 = apart.iter().map(|(_, counts)| total(counts)).sum();
    let idle = apart.iter().filter(|(_, counts)| total(counts) == 0.0).count();
    // An interval with this many expected arrivals is practically never empty by chance.
    let is_sampled_late =
        sum >= BUSY_MEAN * apart.len() as f64 && IDLE_SHARE * idle as f64 >= apart.len() as f64;
    let mut kept: Vec<((u64, u64), BTreeMap<u64, f64>)> = Vec::new();
    for (interval, counts) in apart {
        match kept.last_mut() {
            Some(last) if is_sampled_late && total(&last.1) == 0.0 && last.0.1 == interval.0 => {
                join(last, interval, counts);
            }
            _ => kept.push((interval, counts)),
        }
    }
    let gone = (before - kept.len()) as u64;
    (kept.into_iter().collect(), gone)
}

/// Empty intervals are treated as repeated samples if intervals have at least `BUSY_MEAN` arrivals
/// on average and at least one in `IDLE_SHARE` intervals is empty.
const BUSY_MEAN: f64 = 20.0;
const IDLE_SHARE: f64 = 10.0;

fn join(
    to: &mut ((u64, u64), BTreeMap<u64, f64>),
    interval: (u64, u64),
    counts: BTreeMap<u64, f64>,
) {
    to.0.1 = to.0.1.max(interval.1);
    for (bound, count) in counts {
        *to.1.entry(bound).or_insert(0.0) += count;
    }
}

/// Parses a saved response.
pub(super) fn read(text: &str, path: &Path, objectives_ms: &[f64]) -> Result<Range, Error> {
    let content = |reason: String| Error::Content { path: path.to_owned(), reason };
    let how = "save the response of /api/v1/query_range?query=NAME_bucket&start=…&end=…&step=…";
    let answer: Answer = serde_json::from_str(text)
        .map_err(|e| content(format!("not a response of Prometheus ({e}); {how}")))?;
    if answer.status != "success" {
        return Err(content(format!(
            "Prometheus replied {} ({}); {how}",
            answer.status, answer.error
        )));
    }
    let data = answer.data.ok_or_else(|| content(format!("no `data`; {how}")))?;
    if data.kind != "matrix" {
        return Err(content(format!("its result is a {}, but must be a matrix; {how}", data.kind)));
    }
    let mut range = Range::default();
    let mut increments = Increments::new();
    let mut bounds: Vec<f64> = Vec::new();
    for (index, series) in data.result.into_iter().enumerate() {
        let place = |reason: String| content(format!("series {}: {reason}", index + 1));
        let series: Series = serde_json::from_value(series).map_err(|e| place(e.to_string()))?;
        let Some(le) = series.metric.get("le") else {
            return Err(place(format!(
                "it has no label `le`, so it is not a histogram bucket; {how}"
            )));
        };
        let bound: f64 = le.parse().map_err(|_| place(format!("invalid number le=`{le}`")))?;
        // Adding 0.0 turns -0, whose bits would sort last, into 0.
        let bound = bound + 0.0;
        if bound.is_nan() || bound < 0.0 || (bound.is_finite() && bound > 1e6) {
            return Err(place(format!("le=`{le}` is not a time in seconds")));
        }
        range.resets += add(&series.values, bound.to_bits(), &mut increments).map_err(place)?;
        range.series += 1;
        if !bounds.contains(&bound) {
            bounds.push(bound);
        }
    }
    if increments.len() as u64 > WINDOWS_MAX {
        let (windows, window_s) = (increments.len() as u64, 0.0);
        return Err(Error::Windows { path: path.to_owned(), windows, window_s, most: WINDOWS_MAX });
    }
    bounds.sort_by(f64::total_cmp);
    if bounds.len() < 2 || bounds.last() != Some(&f64::INFINITY) {
        let what = format!("buckets up to le=\"+Inf\" with a bound below it; {how}");
        return Err(Error::Empty { path: path.to_owned(), what });
    }
    let (increments, joined) = joined(increments);
    range.joined = joined;
    range.edges_s = bounds.iter().copied().filter(|b| b.is_finite() && *b > 0.0).collect();
    for (interval, counts) in increments {
        // Skip an interval in which some bound has no samples.
        if bounds.iter().all(|b| counts.contains_key(&b.to_bits())) {
            let counts: Vec<f64> = counts.into_values().collect();
            range.window(interval.0, interval.1, &bounds, &counts, objectives_ms);
        }
    }
    if range.responses == 0 {
        let what = "responses between two of its samples; ask for counters (not rates) over a longer \
            range";
        return Err(Error::Empty { path: path.to_owned(), what: what.to_owned() });
    }
    Ok(range)
}

/// Number of points over which the responses in a bucket are spread.
const PARTS: u64 = 64;

impl Range {
    fn window(&mut self, from: u64, to: u64, bounds: &[f64], counts: &[f64], objectives: &[f64]) {
        let mut window = Window::new(&QueueName::Gateway.to_string(), from * 1000, 0, objectives);
        window.length_s = (to - from) as f64 * 1e-3;
        let times = window.times_mut(Operation::Get, Outcome::Unknown);
        let (mut low, mut below) = (0.0, 0u64);
        for (bound, cumulative) in bounds.iter().zip(counts) {
            // Buckets are not scraped at the same moment, so a bound may lag behind the one below
            // it.
            let count = (cumulative.round() as u64).saturating_sub(below);
            below += count;
            let nanos = |s: f64| (s * SECOND as f64) as Nanos;
            if bound.is_infinite() {
                // Treat these as past every objective, since their times are unknown.
                times.response.record_many(nanos(low), count);
                self.above += count;
                continue;
            }
            let parts = count.min(PARTS);
            for part in 0..parts {
                let at = (part as f64 + 0.5) / parts as f64;
                let times_of_part = count * (part + 1) / parts - count * part / parts;
                let response = nanos(low + (bound - low) * at);
                times.response.record_many(response, times_of_part);
                for (within, objective) in times.within.iter_mut().zip(objectives) {
                    if response as f64 * 1e-6 <= *objective {
                        *within += times_of_part;
                    }
                }
            }
            low = *bound;
        }
        let integral = times.response.sum_s();
        (window.arrivals, window.completions) = (below, below);
        window.length_integral_s = integral;
        window.busy_s = integral;
        self.responses += below;
        self.windows.push(window);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn answer(series: &[(&str, &str, &[f64])]) -> String {
        let result: Vec<_> = series
            .iter()
            .map(|(le, instance, values)| {
                let values: Vec<_> = values
                    .iter()
                    .enumerate()
                    .map(|(i, v)| json!([1_795_320_900.0 + 15.0 * i as f64, v.to_string()]))
                    .collect();
                json!({"metric": {"le": le, "instance": instance}, "values": values})
            })
            .collect();
        json!({"status": "success", "data": {"resultType": "matrix", "result": result}}).to_string()
    }

    #[test]
    fn counters_become_windows_over_resets() {
        let text = answer(&[
            ("+Inf", "a", &[100.0, 200.0, 50.0]),
            ("0.01", "a", &[80.0, 160.0, 40.0]),
            ("0.1", "a", &[100.0, 190.0, 50.0]),
            ("+Inf", "b", &[0.0, 10.0, 20.0]),
            ("0.01", "b", &[0.0, 0.0, 0.0]),
            ("0.1", "b", &[0.0, 10.0, 20.0]),
        ]);
        let range = read(&text, Path::new("p"), &[10.0, 55.0]).unwrap();
        assert_eq!((range.windows.len(), range.responses, range.above), (2, 170, 10));
        assert_eq!((range.resets, range.series), (3, 6));
        assert_eq!(range.edges_s, [0.01, 0.1]);
        let window = &range.windows[0];
        assert_eq!((window.completions, window.length_s), (110, 15.0));
        let times = &window.times[0];
        assert_eq!(times.within, [80, 90]);
        // 80 in the middle of 10 ms, 20 between 10 and 100 ms, 10 at 100 ms.
        let mean = (80.0 * 0.005 + 20.0 * 0.055 + 10.0 * 0.1) / 110.0;
        assert!((times.response.mean_s() - mean).abs() < 0.02 * mean);
        assert!((window.length_mean() * 15.0 / 110.0 - times.response.mean_s()).abs() < 1e-9);
        assert_eq!(range.windows[1].completions, 60);
    }

    /// Samples each minute asked for each 15 s, and a series that lacks one.
    #[test]
    fn windows_are_no_shorter_than_samples() {
        let minutes: Vec<f64> = (0..41).map(|i| f64::from(100 * (i / 4))).collect();
        let text = answer(&[("+Inf", "a", &minutes), ("0.1", "a", &minutes)]);
        let range = read(&text, Path::new("p"), &[]).unwrap();
        assert_eq!((range.windows.len(), range.joined), (10, 30));
        assert!(range.windows.iter().all(|w| (w.completions, w.length_s) == (100, 60.0)));
        // As rare as this, an interval without a request is nothing odd.
        let rare: Vec<f64> = minutes.iter().map(|count| count / 100.0).collect();
        let text = answer(&[("+Inf", "a", &rare), ("0.1", "a", &rare)]);
        assert_eq!(read(&text, Path::new("p"), &[]).unwrap().joined, 0);
        let mut lacking: Value = serde_json::from_str(&answer(&[
            ("+Inf", "a", &[0.0, 10.0, 20.0, 30.0]),
            ("0.1", "a", &[0.0, 10.0, 20.0, 30.0]),
            ("+Inf", "b", &[0.0, 10.0, 20.0, 30.0]),
            ("0.1", "b", &[0.0, 10.0, 20.0, 30.0]),
        ]))
        .unwrap();
        for series in [0, 1] {
            lacking["data"]["result"][series]["values"].as_array_mut().unwrap().remove(1);
        }
        let range = read(&lacking.to_string(), Path::new("p"), &[]).unwrap();
        let each: Vec<_> = range.windows.iter().map(|w| (w.completions, w.length_s)).collect();
        assert_eq!((each, range.joined), (vec![(40, 30.0), (20, 15.0)], 2));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let vector = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
        let failed = r#"{"status":"error","error":"bad query"}"#;
        let no_le = r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{},"values":[]}]}}"#;
        let no_infinity = answer(&[("1", "a", &[1.0, 2.0])]);
        let still = answer(&[("1", "a", &[1.0, 1.0]), ("+Inf", "a", &[1.0, 1.0])]);
        for (text, expected) in [
            ("x", "not a response of Prometheus"),
            (vector, "a vector"),
            (failed, "bad query"),
            (no_le, "series 1: it has no label `le`"),
            (&no_infinity, "+Inf"),
            (&still, "no responses"),
        ] {
            let error = read(text, Path::new("p"), &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_numbers_never_panic(
            values in prop::collection::vec((any::<f64>(), any::<f64>()), 0..6),
            le in "[-+0-9.eInfa]{0,6}",
        ) {
            let series = |le: &str| json!({"metric": {"le": le},
                "values": values.iter().map(|(t, v)| json!([t.abs() % 1e10, v.to_string()]))
                    .collect::<Vec<_>>()});
            let text = json!({"status": "success", "data": {"resultType": "matrix",
                "result": [series(&le), series("+Inf"), series("0.5")]}}).to_string();
            if let Ok(range) = read(&text, Path::new("p"), &[20.0]) {
                prop_assert!(range.windows.iter().all(|w| w.length_integral_s.is_finite()));
            }
        }

        #[test]
        fn changed_answers_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut text = answer(&[("0.1", "a", &[1.0, 5.0]), ("+Inf", "a", &[1.0, 7.0])]).into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            let _ = read(&String::from_utf8_lossy(&text), Path::new("p"), &[20.0]);
        }
    }
}
