//! Converts a saved response of Prometheus's `/api/v1/query_range`, to a query for the `_bucket`
//! counters of a histogram, into windows of the queue `gateway`.
//!
//! Each series counts from the start of its process; a decrease means that the process was
//! restarted and counts from 0 again. Increments are summed over the series with the same `le`, so
//! label sets (instances, paths) need no `sum by`. The distribution of responses between two bounds
//! is unknown: they are spread evenly, and the bounds are the resolution.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ground::window::{Nanos, Operation, Outcome, QueueName, SECOND, Window};
use serde::Deserialize;

use super::collector::WINDOWS_MAX;
use super::error::Error;
use super::time::Unit;

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

/// The largest bound that is taken for seconds where neither a name nor `--unit` says the unit. Clients' libraries have bounds up to
/// 10 s, and of milliseconds up to 1,000 and more.
const SECONDS_MAX: f64 = 100.0;

/// The windows and properties of a saved response.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub windows: Vec<Window>,
    /// The unit of the buckets' bounds.
    pub unit: Unit,
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
    /// Number of bounds that only some of the series have, which were left out.
    pub bounds_left_out: usize,
}

/// The unit that a metric's name ends with, as conventions have it: `http_request_duration_seconds_bucket`.
fn unit_of(name: &str) -> Option<Unit> {
    let name = name.strip_suffix("_bucket").unwrap_or(name);
    Unit::parse(name.rsplit_once('_')?.1)
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
        let text = value;
        let value: f64 =
            value.parse().map_err(|_| format!("invalid number `{value}` at {at} ms"))?;
        // Of counters that are extrapolated or divided by time, requests cannot be counted.
        if value.is_finite() && value.fract() != 0.0 {
            return Err(format!(
                "`{text}` at {at} ms is no count of requests, but as `rate` or `increase` have it: ask for NAME_bucket itself"
            ));
        }
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

/// How a response is saved.
const HOW: &str = "save the response of /api/v1/query_range?query=NAME_bucket&start=…&end=…&step=…";

/// The series of a saved response, or what is wrong with it.
fn series_of(text: &str) -> Result<Vec<Series>, String> {
    let answer: Answer = serde_json::from_str(text)
        .map_err(|e| format!("not a response of Prometheus ({e}); {HOW}"))?;
    if answer.status != "success" {
        return Err(format!("Prometheus replied {} ({}); {HOW}", answer.status, answer.error));
    }
    let data = answer.data.ok_or_else(|| format!("no `data`; {HOW}"))?;
    if data.kind != "matrix" {
        return Err(format!("its result is a {}, but must be a matrix; {HOW}", data.kind));
    }
    let read = |(index, series)| {
        serde_json::from_value(series).map_err(|e| format!("series {}: {e}", index + 1))
    };
    data.result.into_iter().enumerate().map(read).collect()
}

impl Series {
    /// The label of its bucket's upper bound.
    fn le(&self) -> &str {
        self.metric.get("le").map_or("", String::as_str)
    }

    /// The upper bound of its bucket, seconds.
    fn bound_s(&self, unit: Unit) -> Result<f64, String> {
        let Some(le) = self.metric.get("le") else {
            return Err(format!("it has no label `le`, so it is not a histogram bucket; {HOW}"));
        };
        let bound: f64 = le.parse().map_err(|_| format!("invalid number le=`{le}`"))?;
        // Adding 0.0 turns -0, whose bits would sort last, into 0.
        let bound = bound * unit.seconds() + 0.0;
        if bound.is_nan() || bound < 0.0 || (bound.is_finite() && bound > 1e6) {
            return Err(format!("le=`{le}` is not a time in {}", unit.name()));
        }
        Ok(bound)
    }
}

/// Parses a saved response, whose bounds are in `unit`; `None` if their names say it.
pub(super) fn read(
    text: &str,
    path: &Path,
    objectives_ms: &[f64],
    unit: Option<Unit>,
) -> Result<Range, Error> {
    let content = |reason: String| Error::Content { path: path.to_owned(), reason };
    let all = series_of(text).map_err(content)?;
    check_names(&all).map_err(content)?;
    let mut range = Range::new(bounds_unit(&all, unit).map_err(content)?);
    let common = common_bounds(&all);
    range.bounds_left_out = common.left_out;
    let mut increments = Increments::new();
    let (mut bounds, mut pairs): (Vec<f64>, u64) = (Vec::new(), 0);
    for (index, series) in all.iter().enumerate() {
        let place = |reason: String| content(format!("series {}: {reason}", index + 1));
        let bound = series.bound_s(range.unit).map_err(place)?;
        if !common.bounds.contains(series.le()) {
            continue;
        }
        pairs += series.values.len().saturating_sub(1) as u64;
        range.resets += add(&series.values, bound.to_bits(), &mut increments).map_err(place)?;
        range.series += 1;
        if !bounds.contains(&bound) {
            bounds.push(bound);
        }
    }
    if range.resets >= FALLS_MIN && range.resets * FALLS_SHARE >= pairs {
        return Err(content(format!(
            "{} of {pairs} values are less than the one before, as those of `rate` or of a gauge: ask for the counters \
             NAME_bucket themselves",
            range.resets
        )));
    }
    if increments.len() as u64 > WINDOWS_MAX {
        let (windows, window_s) = (increments.len() as u64, 0.0);
        return Err(Error::Windows { path: path.to_owned(), windows, window_s, most: WINDOWS_MAX });
    }
    bounds.sort_by(f64::total_cmp);
    if bounds.len() < 2 || bounds.last() != Some(&f64::INFINITY) {
        let what = format!("buckets up to le=\"+Inf\" with a bound below it; {HOW}");
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

/// That all series are of one metric: the same request would be counted by each.
fn check_names(all: &[Series]) -> Result<(), String> {
    let names: BTreeSet<&str> =
        all.iter().filter_map(|series| Some(series.metric.get("__name__")?.as_str())).collect();
    let mut names = names.into_iter();
    match (names.next(), names.next()) {
        (Some(one), Some(other)) => Err(format!(
            "it has the metrics {one} and {other}: a request may be in both; save one of them"
        )),
        _ => Ok(()),
    }
}

/// The bounds, as their labels, that all histograms have.
struct CommonBounds<'a> {
    bounds: BTreeSet<&'a str>,
    /// Number of bounds that some histograms lack.
    left_out: usize,
}

/// The bounds that the histograms of all instances, paths and so on have in common. Counts up to one that a histogram lacks would be
/// less than those up to a smaller one that it has; a wider bucket is true.
fn common_bounds(all: &[Series]) -> CommonBounds<'_> {
    let mut of: BTreeMap<Vec<(&str, &str)>, BTreeSet<&str>> = BTreeMap::new();
    for series in all {
        let labels = series.metric.iter().filter(|(name, _)| *name != "le");
        let labels = labels.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        of.entry(labels).or_default().insert(series.le());
    }
    let every: BTreeSet<&str> = of.values().flatten().copied().collect();
    let bounds: BTreeSet<&str> =
        every.iter().copied().filter(|le| of.values().all(|own| own.contains(le))).collect();
    CommonBounds { left_out: every.len() - bounds.len(), bounds }
}

/// The unit of the bounds: what `unit` says, or the names of the metrics, or seconds if they can be.
fn bounds_unit(series: &[Series], unit: Option<Unit>) -> Result<Unit, String> {
    if let Some(unit) = unit {
        return Ok(unit);
    }
    let first = series.first().and_then(|first| unit_of(first.metric.get("__name__")?));
    let finite = series.iter().filter_map(|series| series.metric.get("le")?.parse().ok());
    let largest = finite.filter(|bound: &f64| bound.is_finite()).fold(0.0, f64::max);
    match first {
        Some(unit) => Ok(unit),
        None if largest > SECONDS_MAX => Err(format!(
            "its bounds reach {largest}, and no name says that they are seconds: give --unit ms (or s, us, ns)"
        )),
        None => Ok(Unit::Seconds),
    }
}

/// The fewest values less than the one before, and one in how many, that no restarts explain.
const FALLS_MIN: u64 = 8;
const FALLS_SHARE: u64 = 8;

/// Number of points over which the responses in a bucket are spread.
const PARTS: u64 = 64;

impl Range {
    fn new(unit: Unit) -> Range {
        Range {
            windows: Vec::new(),
            unit,
            edges_s: Vec::new(),
            responses: 0,
            above: 0,
            series: 0,
            resets: 0,
            joined: 0,
            bounds_left_out: 0,
        }
    }

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
        let range = read(&text, Path::new("p"), &[10.0, 55.0], None).unwrap();
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

    /// A histogram of milliseconds was read as one of seconds.
    #[test]
    fn bounds_are_in_the_unit_that_the_name_says() {
        let plain = answer(&[("+Inf", "a", &[0.0, 10.0]), ("5", "a", &[0.0, 4.0])]);
        let named = |name: &str| {
            plain.replace("\"instance\"", &format!("\"__name__\":\"{name}\",\"instance\""))
        };
        let edges = |text: &str, unit| read(text, Path::new("p"), &[], unit).map(|r| r.edges_s);
        for (name, edge) in [
            ("istio_request_duration_milliseconds_bucket", 0.005),
            ("latency_us_bucket", 5e-6),
            ("http_request_duration_seconds_bucket", 5.0),
            ("latency_bucket", 5.0),
        ] {
            let found = edges(&named(name), None).unwrap();
            assert!((found[0] - edge).abs() < 1e-12 * edge, "{name}: {found:?}");
        }
        assert_eq!(edges(&named("latency_bucket"), Some(Unit::Millis)).unwrap(), [0.005]);
        let large = plain.replace("\"le\":\"5\"", "\"le\":\"1000\"");
        assert!(edges(&large, None).unwrap_err().to_string().contains("--unit ms"));
        assert_eq!(edges(&large, Some(Unit::Seconds)).unwrap(), [1000.0]);
        let mut both: Value = serde_json::from_str(&named("a_seconds_bucket")).unwrap();
        both["data"]["result"][0]["metric"]["__name__"] = json!("b_seconds_bucket");
        let error = edges(&both.to_string(), None).unwrap_err().to_string();
        assert!(error.contains("a_seconds_bucket and b_seconds_bucket"), "{error}");
    }

    /// Two versions of a service beside each other, whose histograms have other bounds.
    #[test]
    fn bounds_that_some_histograms_lack_are_left_out() {
        let text = answer(&[
            ("+Inf", "a", &[0.0, 100.0]),
            ("0.1", "a", &[0.0, 90.0]),
            ("0.01", "a", &[0.0, 50.0]),
            ("+Inf", "b", &[0.0, 100.0]),
            ("0.1", "b", &[0.0, 80.0]),
            ("0.05", "b", &[0.0, 70.0]),
        ]);
        let range = read(&text, Path::new("p"), &[100.0], None).unwrap();
        assert_eq!((range.responses, range.above, range.bounds_left_out), (200, 30, 2));
        assert_eq!(range.edges_s, [0.1]);
        assert_eq!(range.windows[0].times[0].within, [170]);
    }

    /// What `rate` and `increase` make of counters, and a gauge.
    #[test]
    fn what_does_not_count_is_refused() {
        let of = |values: &[f64]| {
            let text = answer(&[("+Inf", "a", values), ("0.1", "a", values)]);
            read(&text, Path::new("p"), &[], None).map(|range| range.responses)
        };
        let rates: Vec<f64> = (0..40).map(|i| 100.0 + f64::from(i * 7 % 13) / 8.0).collect();
        assert!(of(&rates).unwrap_err().to_string().contains("ask for NAME_bucket itself"));
        let gauge: Vec<f64> = (0..40).map(|i| f64::from(100 + i * 7 % 13)).collect();
        assert!(of(&gauge).unwrap_err().to_string().contains("less than the one before"));
        // A process that is restarted every few minutes.
        let restarts: Vec<f64> = (0..60).map(|i| f64::from(i % 20 * 50)).collect();
        assert_eq!(of(&restarts).unwrap(), 19 * 50 * 3);
    }

    /// Samples each minute asked for each 15 s, and a series that lacks one.
    #[test]
    fn windows_are_no_shorter_than_samples() {
        let minutes: Vec<f64> = (0..41).map(|i| f64::from(100 * (i / 4))).collect();
        let text = answer(&[("+Inf", "a", &minutes), ("0.1", "a", &minutes)]);
        let range = read(&text, Path::new("p"), &[], None).unwrap();
        assert_eq!((range.windows.len(), range.joined), (10, 30));
        assert!(range.windows.iter().all(|w| (w.completions, w.length_s) == (100, 60.0)));
        // As rare as this, an interval without a request is nothing odd.
        let rare: Vec<f64> = minutes.iter().map(|count| count / 100.0).collect();
        let text = answer(&[("+Inf", "a", &rare), ("0.1", "a", &rare)]);
        assert_eq!(read(&text, Path::new("p"), &[], None).unwrap().joined, 0);
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
        let range = read(&lacking.to_string(), Path::new("p"), &[], None).unwrap();
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
            let error = read(text, Path::new("p"), &[], None).unwrap_err().to_string();
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
            if let Ok(range) = read(&text, Path::new("p"), &[20.0], None) {
                prop_assert!(range.windows.iter().all(|w| w.length_integral_s.is_finite()));
            }
        }

        #[test]
        fn changed_answers_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut text = answer(&[("0.1", "a", &[1.0, 5.0]), ("+Inf", "a", &[1.0, 7.0])]).into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            let _ = read(&String::from_utf8_lossy(&text), Path::new("p"), &[20.0], None);
        }
    }
}
