use super::*;

#[test]
fn choices_are_numbers_ranges_and_rates() {
    assert_eq!("2".parse(), Ok(StepChoice::Indices(2..=2)));
    assert_eq!("0-3".parse(), Ok(StepChoice::Indices(0..=3)));
    assert_eq!("1500/s".parse(), Ok(StepChoice::Rate(1500.0)));
    for bad in ["", "x", "3-1", "-1", "0/s", "NaN/s", "0-99999999999"] {
        assert!(bad.parse::<StepChoice>().is_err(), "{bad}");
    }
}

#[test]
fn a_step_is_known_by_its_start() {
    assert!(same_step("a#0@17", "b#0@17") && !same_step("a#0@17", "a#0@18"));
    assert!(same_step("x", "x") && !same_step("x", "y"));
    assert_eq!((short_name("a@b#0@17"), short_name("a@b")), ("a@b#0", "a@b"));
}

#[test]
fn threads_of_one_queue_are_joined() {
    let window = |start, arrivals| {
        let mut w = Window::new("node", start, 0, &[]);
        (w.length_s, w.arrivals) = (1.0, arrivals);
        w
    };
    let joined = parallel(vec![window(0, 1), window(1_000_000, 2), window(20, 4)]);
    let counts: Vec<u64> = joined.iter().map(|w| w.arrivals).collect();
    assert_eq!(counts, [5, 2]);
    assert_eq!(joined[0].length_s, 1.0);
}
