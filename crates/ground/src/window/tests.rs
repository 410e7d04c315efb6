use proptest::prelude::*;

use super::*;

fn histogram_of(values: &[Nanos]) -> Histogram {
    let mut histogram = Histogram::default();
    values.iter().for_each(|&v| histogram.record(v));
    histogram
}

proptest! {
    #[test]
    fn histogram_agrees_with_its_naive_twin(
        mut values in prop::collection::vec(0u64..20_000_000_000, 1..300),
        p in 0.001f64..1.0,
    ) {
        let histogram = histogram_of(&values);
        values.sort_unstable();
        let rank = ((p * values.len() as f64).ceil() as usize).clamp(1, values.len());
        let exact = values[rank - 1] as f64 * 1e-9;
        let quantile = histogram.quantile_s(p).unwrap();
        prop_assert!((quantile - exact).abs() <= exact / 128.0 + 1e-9, "{quantile} {exact}");
        let mean = values.iter().map(|&v| v as f64).sum::<f64>() * 1e-9 / values.len() as f64;
        prop_assert!((histogram.mean_s() - mean).abs() <= 1e-9 * (1.0 + mean));
        let t = exact * (1.0 + 1.0 / 64.0) + 1e-8;
        let naive = values.iter().filter(|&&v| v as f64 * 1e-9 <= exact).count();
        prop_assert!(histogram.share_within(t).unwrap() >= naive as f64 / values.len() as f64 - 1e-9);
    }

    /// The load generator and the servers record into the same type: an error in it would hide from both.
    #[test]
    fn histograms_agree_with_hdrhistogram(
        values in prop::collection::vec(0..100_000_000_000u64, 1..400),
        p in 0.0..=1.0f64,
    ) {
        let ours = histogram_of(&values);
        let mut theirs = hdrhistogram::Histogram::<u64>::new(3).unwrap();
        values.iter().for_each(|&value| theirs.record(value).unwrap());
        prop_assert_eq!(ours.count(), theirs.len());
        prop_assert!((ours.max_s() * 1e9 / theirs.max().max(1) as f64 - 1.0).abs() < 0.002 || theirs.max() < 128);
        // Both give the value at rank ⌈p·n⌉, ours to a bucket's width, theirs to three digits.
        let (a, b) = (ours.quantile_s(p).unwrap() * 1e9, theirs.value_at_quantile(p) as f64);
        let width = 1.0 / 128.0 + 1e-3;
        prop_assert!((a - b).abs() <= width * b.max(128.0), "quantile {p}: {a} and {b}");
        prop_assert!((ours.mean_s() * 1e9 - theirs.mean()).abs() <= 1e-3 * theirs.mean() + 1.0);
    }

    #[test]
    fn parts_of_a_histogram_add_to_the_whole(
        values in prop::collection::vec(0u64..20_000_000_000, 1..300),
        t_s in 0.0f64..25.0,
    ) {
        let whole = histogram_of(&values);
        let (low, high) = whole.split_at(t_s);
        let naive = values.iter().filter(|&&v| v as f64 * 1e-9 <= t_s).count() as u64;
        prop_assert!(low.count() >= naive, "{} {naive}", low.count());
        prop_assert!(low.count() as f64 <= whole.share_within(t_s * 1.02 + 1e-8).unwrap()
            * values.len() as f64 + 1e-6);
        let mut both = low.clone();
        both.merge(&high);
        prop_assert_eq!((both.count(), both.sum_s()), (whole.count(), whole.sum_s()));
        prop_assert_eq!(both.max_s(), whole.max_s());
        prop_assert!((both.variance_s2() - whole.variance_s2()).abs() <= 1e-9 * (1.0 + whole.variance_s2()));
        prop_assert!(both.buckets().eq(whole.buckets()));
        prop_assert!(low.is_empty() || high.is_empty() || low.mean_s() <= high.mean_s() * 1.01);
    }

    #[test]
    fn merging_is_recording_both(a in prop::collection::vec(any::<u32>(), 0..50),
                                 b in prop::collection::vec(any::<u32>(), 0..50)) {
        let wide = |v: &[u32]| v.iter().map(|&x| u64::from(x)).collect::<Vec<_>>();
        let mut merged = histogram_of(&wide(&a));
        merged.merge(&histogram_of(&wide(&b)));
        let both = histogram_of(&[wide(&a), wide(&b)].concat());
        prop_assert_eq!(merged.count(), both.count());
        prop_assert_eq!(merged.sum_s(), both.sum_s());
        prop_assert!(merged.buckets().eq(both.buckets()));
    }

    #[test]
    fn stored_histograms_come_back(values in prop::collection::vec(any::<u64>(), 0..50)) {
        let histogram = histogram_of(&values);
        let json = serde_json::to_string(&histogram).unwrap();
        let back: Histogram = serde_json::from_str(&json).unwrap();
        prop_assert!(back.buckets().eq(histogram.buckets()));
        prop_assert_eq!(back.count(), histogram.count());
    }

    #[test]
    fn hostile_histograms_are_errors_not_panics(buckets in prop::collection::vec(any::<u64>(), 0..9),
                                                n in any::<u64>(), squares in any::<f64>()) {
        let json = format!(
            r#"{{"n":{n},"sum_ns":1,"sum_squares_s2":{squares:?},"max_ns":1,"buckets":{buckets:?}}}"#
        );
        if let Ok(histogram) = serde_json::from_str::<Histogram>(&json) {
            histogram.quantile_s(0.5);
            histogram.share_within(1.0);
        }
    }
}

#[test]
fn hashes_sample_one_key_in_n() {
    let kept = (0..64_000u64).filter(|k| is_sampled(key_hash(&k.to_le_bytes()), 64)).count();
    assert!((800..1200).contains(&kept), "{kept} of 64,000 kept, 1,000 expected");
    assert!(!is_sampled(0, 0));
}

#[test]
fn integrals_and_dispersion_add_up() {
    let mut recorder = Recorder::new("q", 1, Settings::default(), 0);
    recorder.arrive(0);
    recorder.start(0);
    recorder.arrive(SECOND / 4);
    let done = |service| Finished {
        operation: Operation::Get,
        outcome: Outcome::BulkDevice,
        waiting: 0,
        service,
        response: service,
        bytes: 10,
    };
    recorder.finish(SECOND / 2, &done(SECOND / 2));
    recorder.start(SECOND / 2);
    let first = recorder.roll(SECOND);
    assert_eq!(first.len(), 1);
    assert!((first[0].length_integral_s - 1.25).abs() < 1e-12);
    assert!((first[0].busy_s - 1.0).abs() < 1e-12);
    assert_eq!(first[0].dispersion.intervals, 16);
    assert_eq!(first[0].dispersion.sum, 2);
    assert_eq!(first[0].length_met_sum, 1);
    recorder.finish(SECOND + SECOND / 2, &done(SECOND));
    let rest = recorder.flush(SECOND * 2);
    assert_eq!(rest.len(), 1);
    assert!((rest[0].busy_s - 0.5).abs() < 1e-12);
    assert_eq!(rest[0].start_unix_us, 1_000_000);
    let mut merged = first[0].clone();
    merged.merge(&rest[0], false);
    assert_eq!((merged.arrivals, merged.completions), (2, 2));
    assert!((merged.length_s - 2.0).abs() < 1e-12);
}

/// Two threads that served one and three quarters of a level load were taken for bursts.
#[test]
fn threads_that_share_a_load_unequally_show_no_bursts() {
    let mut threads = [0, 1].map(|_| Recorder::new("gateway", 0, Settings::default(), 0));
    let mut one = Recorder::new("gateway", 0, Settings::default(), 0);
    for request in 0..1600 {
        let now = request * SECOND / 1600;
        threads[usize::from(request % 4 == 0)].arrive(now);
        one.arrive(now);
    }
    let [a, b] = threads.map(|mut recorder| recorder.roll(SECOND).remove(0));
    let whole = one.roll(SECOND).remove(0);
    let mut merged = a.clone();
    merged.merge(&b, true);
    assert_eq!(merged.interval_arrivals, [100; 16]);
    assert_eq!((merged.dispersion, merged.dispersion.index()), (whole.dispersion, Some(0.0)));
    // The number of threads does not change how many intervals there are; that of windows does.
    let mut later = merged.clone();
    later.merge(&whole, false);
    assert_eq!((later.dispersion.intervals, later.interval_arrivals.len()), (32, 0));
    later.merge(&merged, true);
    assert_eq!(later.dispersion.index(), None, "counts of other intervals cannot be added");
    let mut empty = Window::new("gateway", 0, 0, &[]);
    empty.merge(&a, true);
    assert_eq!((empty.dispersion, &empty.interval_arrivals), (a.dispersion, &a.interval_arrivals));
}

#[test]
fn an_arrival_that_is_told_late_counts_in_the_interval_in_which_it_came() {
    let mut recorder = Recorder::new("load", 0, Settings::default(), 0);
    recorder.arrive(SECOND / 2);
    recorder.arrive(SECOND / 4);
    let window = recorder.flush(SECOND * 3 / 4).remove(0);
    assert_eq!(window.interval_arrivals, [0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn a_long_silence_makes_few_windows() {
    let mut recorder = Recorder::new("q", 1, Settings::default(), 0);
    let windows = recorder.roll(10_000 * SECOND);
    assert!(windows.len() <= 61);
    let total: f64 = windows.iter().map(|w| w.length_s).sum();
    assert!((total - 10_000.0).abs() < 1e-6);
}

/// Reports found Little's law 7 % off at a load generator on a busy machine: arrivals that it told
/// late were missing from the integral of its queue's length, and not from the response times.
#[test]
fn an_arrival_that_is_told_late_is_in_the_queue_since_it_came() {
    let mut recorder = Recorder::new("load", 0, Settings::default(), 0);
    recorder.roll(1_000_000);
    recorder.arrive(5_000_000);
    recorder.start(5_000_000);
    // Told at 5 ms: it should have been sent at 2 ms.
    recorder.arrive(2_000_000);
    recorder.start(5_000_000);
    for waiting in [0, 3_000_000] {
        let finished = Finished {
            operation: Operation::Get,
            outcome: Outcome::Unknown,
            waiting,
            service: 4_000_000,
            response: waiting + 4_000_000,
            bytes: 0,
        };
        recorder.finish(9_000_000, &finished);
    }
    let window = recorder.roll(SECOND).remove(0);
    let responses: f64 = window.times.iter().map(|t| t.response.sum_s()).sum();
    assert!((window.length_integral_s - 0.011).abs() < 1e-12, "{}", window.length_integral_s);
    assert!((responses - 0.011).abs() < 1e-12);
}
