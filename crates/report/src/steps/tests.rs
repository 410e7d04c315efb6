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

/// A simulated cluster names the devices of its members.
#[test]
fn devices_of_members_are_devices_where_no_server_is_fitted() {
    let window = |queue: &str, busy_s: f64| {
        let mut window = Window::new(queue, 1_000_000, 1, &[]);
        (window.length_s, window.busy_s, window.arrivals, window.completions) = (1.0, busy_s, 9, 9);
        window
    };
    let step = Step {
        index: 0,
        rate: Some(9.0),
        clients: None,
        start_unix_us: 1_000_000,
        end_unix_us: 2_000_000,
        generator: record::Generator::default(),
    };
    let run = record::Run {
        format: record::FORMAT,
        version: String::new(),
        kind: "simulate".to_owned(),
        start_unix_us: 1_000_000,
        laboratory: None,
        machine: Machine::default(),
        asked: toml::Table::new(),
    };
    let queues = [("load", 0.0), ("a/device/0", 0.8), ("b/device/0", 0.4), ("a/node", 0.9)];
    let folder = RunFolder {
        dir: "simd".into(),
        run,
        windows: queues.iter().map(|(queue, busy_s)| window(queue, *busy_s)).collect(),
        samples: Vec::new(),
        times: Vec::new(),
        host: Vec::new(),
        steps: vec![step.clone()],
    };
    let observed = observe(std::slice::from_ref(&folder), 0, step.clone(), true).unwrap();
    let busy: Vec<f64> =
        observed.windows.devices.iter().flatten().map(|window| window.busy_s).collect();
    assert_eq!(busy, [0.8, 0.4]);
    // A fit with device queues is of one server.
    assert!(observe(&[folder], 0, step, false).is_err());
    assert!(is_device_of_member("node-12/device/3") && is_device("device/3"));
    for queue in ["device/3", "gateway/device", "gateway/device/0", "shard/device/0", "a/node"] {
        assert!(!is_device_of_member(queue), "{queue}");
    }
}
