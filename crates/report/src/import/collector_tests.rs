//! Windows of logs whose requests come in stretches.

use proptest::prelude::*;

use super::*;

proptest! {
    /// Little's law by construction, and nothing is lost, whatever the order.
    #[test]
    fn integrals_are_those_of_a_naive_twin(
        all in prop::collection::vec((0u64..20_000, 0u64..9_000), 1..60),
        window in 1u64..4_000,
    ) {
        let mut collector = Collector::new(QueueName::Gateway, window, &[0.002], true);
        let base = 1_000_000u64;
        for &(end, response) in &all {
            collector.add(&Request { end: base + end, response, operation: Operation::Get,
                outcome: Some(Outcome::Unknown), bytes: 1 });
        }
        prop_assert_eq!(collector.fits(), true);
        let windows = collector.full_length(&[]).remove(0).windows;
        let completions: u64 = windows.iter().map(|w| w.completions).sum();
        prop_assert_eq!(completions, all.len() as u64);
        for (index, w) in windows.iter().enumerate() {
            let from = all.iter().map(|r| base + r.0).min().unwrap_or(0) / window * window
                + index as u64 * window;
            let present = |&(end, response): &(u64, u64)| {
                let (start, end) = (base + end - response, base + end);
                end.min(from + window).saturating_sub(start.max(from))
            };
            let naive = all.iter().map(present).sum::<u64>() as f64 * 1e-9;
            prop_assert!((w.length_integral_s - naive).abs() < 1e-12);
            let arrived = |&&(end, response): &&(u64, u64)| {
                (from..from + window).contains(&(base + end - response))
            };
            prop_assert_eq!(w.arrivals, all.iter().filter(arrived).count() as u64);
            prop_assert_eq!(w.dispersion.sum, w.arrivals);
        }
    }
}

fn get(end: Nanos, response: Nanos) -> Request {
    let (operation, outcome) = (Operation::Get, Some(Outcome::Unknown));
    Request { end, response, operation, outcome, bytes: 1 }
}

proptest! {
    /// Windows that double in length are those that would have been made of that length.
    #[test]
    fn doubled_windows_are_those_of_twice_the_length(
        all in prop::collection::vec((0u64..20_000, 0u64..9_000), 1..60),
        window in 1u64..40,
        times in 0u32..5,
    ) {
        let window = 50 * window;
        let long = window << times;
        let [mut doubled, mut exact] =
            [window, long].map(|ns| Collector::new(QueueName::Gateway, ns, &[0.002], true));
        for (i, &(end, response)) in all.iter().enumerate() {
            // In the middle of the log, as it happens.
            if i == all.len() / 2 {
                (0..times).for_each(|_| doubled.double());
            }
            doubled.record(&get(1_000_000 + end, response));
            exact.record(&get(1_000_000 + end, response));
        }
        let [doubled, exact] = [doubled, exact].map(|c| c.full_length(&[]).remove(0).windows);
        prop_assert_eq!(doubled.len(), exact.len());
        for (a, b) in doubled.iter().zip(&exact) {
            prop_assert!((a.length_integral_s - b.length_integral_s).abs() < 1e-12);
            prop_assert_eq!(&a.interval_arrivals, &b.interval_arrivals);
            let of = |w: &Window| (w.start_unix_us, w.arrivals, w.completions, w.bytes);
            prop_assert_eq!(of(a), of(b));
            let of = |w: &Window| -> Vec<_> {
                let times = w.times.iter();
                times.map(|t| (t.response.count(), t.response.max_s(), t.within.clone())).collect()
            };
            prop_assert_eq!(of(a), of(b));
        }
    }
}

#[test]
fn the_first_and_the_last_window_are_as_long_as_they_were_observed() {
    let ms = 1_000_000u64;
    let windows = |ends: &[u64]| {
        let mut collector = Collector::new(QueueName::Gateway, SECOND, &[50.0], true);
        ends.iter().for_each(|end| collector.add(&get(end * ms, 10 * ms)));
        let windows = collector.finish(&[]);
        let arrivals: u64 = windows.iter().map(|w| w.arrivals).sum();
        assert_eq!(arrivals as usize, ends.len());
        windows
            .iter()
            .map(|w| (w.start_unix_us / 1000, (w.length_s * 1e3).round() as u64))
            .collect::<Vec<_>>()
    };
    assert_eq!(windows(&[5_210, 6_500, 7_800]), [(5_200, 800), (6_000, 1_000), (7_000, 800)]);
    // Too little of a second is part of the next, or of the one before.
    assert_eq!(windows(&[5_910, 6_500, 7_100]), [(5_900, 1_200)]);
    assert_eq!(windows(&[5_910]), [(5_900, 10)]);
    assert!(Collector::new(QueueName::Gateway, SECOND, &[], true).finish(&[]).is_empty());
}

#[test]
fn pauses_are_the_longest_times_without_requests() {
    let mut collector = Collector::new(QueueName::Gateway, SECOND, &[50.0], true);
    (0..9).for_each(|i| collector.add(&get(i * SECOND + SECOND / 2, SECOND / 100)));
    assert_eq!(collector.pause(), None);
    collector.add(&get(50 * SECOND + SECOND / 2, SECOND / 100));
    let pause = collector.pause().unwrap();
    assert_eq!((pause.from_us, pause.until_us), (9_000_000, 50_000_000));
    assert!(pause.is_mostly_empty);
}

#[test]
fn a_log_of_weeks_has_longer_windows() {
    let mut collector = Collector::new(QueueName::Gateway, SECOND, &[50.0], true);
    let all = 30 * 86_400 / 7;
    (0..all).for_each(|i| collector.add(&get(7 * i * SECOND, SECOND / 100)));
    let breaks = collector.settle();
    assert!(breaks.is_empty() && collector.window_ns() == 32 * SECOND);
    let windows = collector.finish(&breaks);
    assert!(windows.len() as u64 <= WINDOWS_MAX);
    assert_eq!(windows.iter().map(|w| w.completions).sum::<u64>(), all);
}

/// Requests of a test of `seconds`, 50 in each, from `start_s` on.
fn test_of(collector: &mut Collector, start_s: u64, seconds: u64) {
    for i in 0..50 * seconds {
        let end = start_s * SECOND + i * SECOND / 50 + SECOND / 100;
        collector.add(&get(end, SECOND / 200));
    }
}

#[test]
fn windows_follow_the_tests_of_a_log_and_not_the_days_between_them() {
    let of = |starts_s: &[u64]| {
        let mut collector = Collector::new(QueueName::Gateway, SECOND, &[50.0], true);
        starts_s.iter().for_each(|start| test_of(&mut collector, *start, 600));
        let breaks = collector.settle();
        assert!(collector.fits_between(&breaks));
        let window_ns = collector.window_ns();
        (window_ns, breaks.clone(), collector.finish(&breaks))
    };
    let day = 86_400;
    let (window_ns, breaks, apart) = of(&[1_000, 1_000 + 5 * day]);
    assert_eq!(window_ns, SECOND);
    let expected = Break { from_us: 1_600_000_000, until_us: (1_000 + 5 * day) * 1_000_000 };
    assert_eq!(breaks, [expected]);
    // As each by itself.
    let alone = [1_000, 1_000 + 5 * day].map(|start| of(&[start]).2);
    assert_eq!(apart, alone.concat());
    // A gap of some minutes is a lull.
    let (_, breaks, close) = of(&[1_000, 2_000]);
    assert!(breaks.is_empty() && close.len() == 1_600);
}

#[test]
fn a_stray_stamp_costs_no_windows() {
    let mut collector = Collector::new(QueueName::Gateway, SECOND, &[50.0], true);
    test_of(&mut collector, 800_000_000, 100);
    collector.add(&get(SECOND / 2, SECOND / 100));
    let breaks = collector.settle();
    assert_eq!((breaks.len(), collector.window_ns()), (1, SECOND));
    let windows = collector.finish(&breaks);
    assert_eq!(windows.iter().map(|w| w.completions).sum::<u64>(), 5_001);
    assert_eq!(windows.len(), 101);
}

#[test]
fn a_batch_each_hour_is_one_load() {
    let mut collector = Collector::new(QueueName::Gateway, SECOND, &[50.0], true);
    (0..700).for_each(|hour| test_of(&mut collector, hour * 3_600, 4));
    let breaks = collector.settle();
    assert!(breaks.is_empty() && collector.window_ns() == 32 * SECOND);
    assert!(collector.pause().unwrap().is_mostly_empty);
}

#[test]
fn a_request_that_is_present_fills_the_time_without_others() {
    let mut collector = Collector::new(QueueName::Gateway, SECOND, &[50.0], true);
    test_of(&mut collector, 1_000, 600);
    test_of(&mut collector, 101_000, 600);
    assert_eq!(collector.clone().settle().len(), 1);
    collector.add(&get(101_300 * SECOND, 100_000 * SECOND));
    assert!(collector.settle().is_empty());
}
