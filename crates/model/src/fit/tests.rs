use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp, Gamma, LogNormal};

use ground::window::{
    Finished, KernelDevice, Nanos, Operation, Outcome, QueueName, Recorder, Settings, Window,
};

use super::*;

/// Draws a service time of mean 1.
pub(crate) type Draw = Box<dyn Fn(&mut StdRng) -> f64>;

/// A simulated node: virtual time, Lindley's recursion for each device.
pub(crate) struct Simulated {
    pub devices: usize,
    pub hit_ratio: f64,
    pub mean: f64,
    pub delay: f64,
    pub service: Draw,
    /// Share of device 0 over an equal share.
    pub hot: f64,
    /// Pause of a device before each read, seconds; it is recorded as waiting.
    pub pause: f64,
}

/// A request at a queue: arrival, start, end, response as recorded, outcome.
pub(crate) type Visit = (f64, f64, f64, f64, Outcome);

fn nanos(s: f64) -> Nanos {
    (s * 1e9).round() as Nanos
}

pub(crate) fn windows(queue: &str, servers: u32, visits: &[Visit], seconds: f64) -> Vec<Window> {
    let mut events: Vec<(Nanos, u8, usize)> = Vec::new();
    for (i, v) in visits.iter().enumerate() {
        events.push((nanos(v.0), 1, i));
        events.push((nanos(v.1), 2, i));
        events.push((nanos(v.2), 3, i));
    }
    // At the same instant a service ends before the next begins; a request arrives before it
    // starts.
    events.sort_by_key(|e| (e.0, if e.1 == 3 { 0 } else { e.1 }, e.2));
    let mut recorder = Recorder::new(queue, servers, Settings::default(), 0);
    let mut all = Vec::new();
    for (time, kind, i) in events {
        if time >= nanos(seconds) {
            break;
        }
        all.extend(recorder.roll(time));
        let v = &visits[i];
        match kind {
            1 => recorder.arrive(time),
            2 => recorder.start(time),
            _ => recorder.finish(
                time,
                &Finished {
                    operation: Operation::Get,
                    outcome: v.4,
                    waiting: nanos(v.1 - v.0),
                    service: nanos(v.2 - v.1),
                    response: nanos(v.3),
                    bytes: 10_000,
                },
            ),
        }
    }
    all.extend(recorder.roll(nanos(seconds)));
    all
}

impl Simulated {
    pub(crate) fn run(&self, rate: f64, seconds: f64, seed: u64) -> (Vec<Visit>, Vec<Vec<Visit>>) {
        let mut random = StdRng::seed_from_u64(seed);
        let gaps = Exp::new(rate).unwrap();
        let mut free = vec![0.0f64; self.devices];
        let (mut client, mut devices) = (Vec::new(), vec![Vec::new(); self.devices]);
        let mut now = 0.0;
        while now < seconds {
            now += gaps.sample(&mut random);
            if random.random::<f64>() < self.hit_ratio {
                let response = 0.0002 + 0.0001 * random.random::<f64>();
                client.push((now, now, now + response, response, Outcome::Memory));
                continue;
            }
            let first = self.hot / self.devices as f64;
            let device = if random.random::<f64>() < first {
                0
            } else if self.hot == 1.0 {
                random.random_range(0..self.devices)
            } else {
                random.random_range(1..self.devices)
            };
            let device =
                if self.hot == 1.0 { random.random_range(0..self.devices) } else { device };
            // At least 2 ns, so that no service ends before it starts once rounded.
            let time = (self.mean * (self.service)(&mut random)).max(2e-9);
            let start = free[device].max(now) + self.pause;
            let end = start + time;
            free[device] = end;
            devices[device].push((now, start, end, end - now, Outcome::BulkDevice));
            let response = end - now + self.delay;
            client.push((now, now, now + response, response, Outcome::BulkDevice));
        }
        (client, devices)
    }

    pub(crate) fn step(&self, rate: f64, seconds: f64, seed: u64) -> Step {
        let (client, devices) = self.run(rate, seconds, seed);
        let device = |(i, v): (usize, &Vec<Visit>)| windows(&format!("device/{i}"), 1, v, seconds);
        Step {
            name: format!("{rate:.0}/s"),
            load: windows("load", 0, &client, seconds),
            devices: devices.iter().enumerate().map(device).collect(),
            ..Step::default()
        }
    }

    /// The load at a utilisation of the devices.
    pub(crate) fn rate(&self, utilisation: f64) -> f64 {
        utilisation * self.devices as f64 / self.mean / (1.0 - self.hit_ratio)
    }
}

pub(crate) fn simulated(service: Draw) -> Simulated {
    Simulated {
        devices: 16,
        hit_ratio: 0.3,
        mean: 0.008,
        delay: 0.0003,
        service,
        hot: 1.0,
        pause: 0.0,
    }
}

pub(crate) fn laws() -> Vec<(&'static str, Draw)> {
    let exponential = Exp::new(1.0).unwrap();
    let gamma = Gamma::new(4.0, 0.25).unwrap();
    let variance = 5.0f64.ln();
    let lognormal = LogNormal::new(-variance / 2.0, variance.sqrt()).unwrap();
    vec![
        ("exponential", Box::new(move |r: &mut StdRng| exponential.sample(r))),
        ("gamma 0.25", Box::new(move |r: &mut StdRng| gamma.sample(r))),
        ("lognormal 4", Box::new(move |r: &mut StdRng| lognormal.sample(r))),
        ("constant", Box::new(|_: &mut StdRng| 1.0)),
    ]
}

const OBJECTIVES: [f64; 4] = [0.005, 0.020, 0.050, 0.100];

#[test]
fn modest_loads_predict_high_ones() {
    for (name, service) in laws() {
        let system = simulated(service);
        let steps: Vec<Step> = [0.2, 0.35, 0.5]
            .iter()
            .enumerate()
            .map(|(i, rho)| system.step(system.rate(*rho), 100.0, 100 + i as u64))
            .collect();
        let model = fit(&steps, &Options::default()).unwrap();
        for fitted in &model.fitted {
            assert!(fitted.ks_distance < 0.015, "{name}: {fitted:?}");
            for p in &fitted.points {
                assert!((p.measured - p.predicted).abs() < 0.01, "{name}: {p:?}");
            }
        }
        for (rho, allowed) in [(0.5, 0.01), (0.7, 0.015), (0.9, 0.03)] {
            let rate = system.rate(rho);
            let (client, _) = system.run(rate, 700.0, 7);
            let measured: Vec<&Visit> = client.iter().filter(|v| v.0 > 20.0).collect();
            let prediction = model.predict(rate, &OBJECTIVES).unwrap();
            let mut worst = 0.0f64;
            for point in &prediction.points {
                let within = measured.iter().filter(|v| v.3 <= point.t_s).count() as f64
                    / measured.len() as f64;
                let off = (point.concertina.value - within).abs();
                worst = worst.max(off);
                assert!(point.concertina.low <= point.concertina.value);
            }
            let widths = prediction.points.iter().map(|p| p.concertina.high - p.concertina.low);
            let widest = widths.fold(0.0, f64::max);
            println!(
                "{name} at {rho}: worst {:.2}, interval {:.2} points",
                worst * 100.0,
                widest * 100.0
            );
            assert!(worst < allowed, "{name} at {rho}: {:.2} points", worst * 100.0);
            assert!((prediction.utilisation_mean.value - rho).abs() < 0.01 * rho + 0.005);
        }
        let delay = &model.requests.front_delay;
        assert!((delay.value - 0.0003).abs() < 0.0001, "{name}: {delay:?}");
        assert!((model.requests.q0.value - 0.3).abs() < 0.01, "{:?}", model.requests.q0);
        let mean = &model.classes[0].service.mean;
        assert!(mean.low < 0.008 * 1.01 && mean.high > 0.008 * 0.99, "{mean:?}");
        assert_eq!(model.devices.iter().map(|d| d.count).sum::<u32>(), 16);
        assert!(model.devices.len() <= 3, "chance is taken for imbalance: {:?}", model.devices);
        assert!(model.warnings.is_empty(), "{:?}", model.warnings);
    }
}

/// What the kernel says of devices beyond their reads is other work.
#[test]
fn other_work_is_what_keeps_devices_busy_beside_the_reads() {
    let (_, service) = laws().remove(0);
    let system = simulated(service);
    let mut step = system.step(system.rate(0.4), 100.0, 5);
    let plain = fit(std::slice::from_ref(&step), &Options::default()).unwrap();
    assert!(plain.classes[0].background.is_none());
    for window in step.devices.iter_mut().flatten() {
        let utilisation = window.busy_s / window.length_s + 0.12;
        window.kernel = Some(KernelDevice {
            reads: window.completions,
            writes: 30,
            await_ms: 9.0,
            utilisation,
        });
    }
    let model = fit(&[step], &Options::default()).unwrap();
    let work = model.classes[0].background.as_ref().unwrap();
    assert!((work.rate.value - 30.0).abs() < 1e-6 && (work.mean.value - 0.004).abs() < 1e-6);
    let (before, after) = (plain.limits().unwrap(), model.limits().unwrap());
    assert!((after.saturation.value / before.saturation.value - 0.88).abs() < 0.005, "{after:?}");
    let again = Model::from_toml(&model.to_toml().unwrap()).unwrap();
    assert_eq!(again.classes[0].background, model.classes[0].background);
}

/// Replies that fall behind while no device is to blame say what the link carries.
#[test]
fn a_link_is_known_by_what_falls_behind() {
    let (_, service) = laws().remove(0);
    let system = simulated(service);
    let light = system.step(system.rate(0.2), 60.0, 5);
    let mut stuck = system.step(system.rate(0.4), 60.0, 6);
    let mut behind = 0.0;
    for window in &mut stuck.load {
        behind += window.completions as f64 / 5.0;
        window.completions = window.completions * 4 / 5;
        window.bytes = window.bytes * 4 / 5;
        window.length_integral_s += behind * window.length_s;
    }
    let rate = 0.8 * system.rate(0.4);
    let steps = [light.clone(), stuck.clone()];
    let model = fit(&steps, &Options::default()).unwrap();
    assert_eq!(model.fitted.len(), 1, "a step that stood still is not fitted as a load");
    let front = model.front.as_ref().unwrap();
    let link = front.link_bytes_per_s.as_ref().unwrap();
    assert!((link.value / (rate * 10_000.0) - 1.0).abs() < 0.02, "{link:?}");
    assert!((front.bytes_mean.unwrap() - 10_000.0).abs() < 1.0 && front.bytes_scv < 1e-6);
    assert!(model.warnings.iter().any(|w| w.contains("the link carries")), "{:?}", model.warnings);
    let limits = model.limits().unwrap();
    assert!((limits.saturation.value / rate - 1.0).abs() < 0.02, "{limits:?}");
    assert_eq!(limits.breaks_first, Some(crate::storage::Limit::Link));
    assert!(matches!(model.predict(1.05 * rate, &[0.05]), Err(Error::Unstable { .. })));
    let near = &model.predict(0.97 * rate, &[0.05]).unwrap().points[0].concertina;
    assert!(near.high - near.low > 0.0);
    let again = Model::from_toml(&model.to_toml().unwrap()).unwrap();
    assert_eq!((&again.front, &again.replicates), (&model.front, &model.replicates));
    // Ten times the link: the devices break first again.
    let wider = again.with_front(Some(10.0 * link.value), None, None).unwrap();
    assert_eq!(wider.limits().unwrap().breaks_first, Some(crate::storage::Limit::Devices));
    let few = wider.with_front(None, None, Some(2)).unwrap().limits().unwrap();
    assert_eq!(few.breaks_first, Some(crate::storage::Limit::Workers));
    // A model that knows of none is asked the same.
    let plain = fit(std::slice::from_ref(&light), &Options::default()).unwrap();
    let what_if = plain.with_front(Some(1e6), Some(2_000.0), None).unwrap();
    assert!((what_if.limits().unwrap().saturation.value - 500.0).abs() < 1e-6);
    assert!(what_if.predict(400.0, &[0.05]).is_ok());
    assert!(plain.with_front(Some(-1.0), None, None).is_err());
    assert!(plain.with_front(None, Some(2_000.0), None).is_err(), "bytes, and no link");
    assert!(matches!(fit(&[stuck], &Options::default()), Err(Error::Stalled { .. })));
}

#[test]
fn real_imbalance_is_kept_and_chance_is_not() {
    let exponential = Exp::new(1.0).unwrap();
    let service = move |r: &mut StdRng| exponential.sample(r);
    let system = Simulated { hot: 2.0, ..simulated(Box::new(service)) };
    let step = system.step(system.rate(0.3), 60.0, 5);
    let model = fit(&[step], &Options::default()).unwrap();
    let busiest = model.devices.iter().max_by(|a, b| a.share.total_cmp(&b.share)).unwrap();
    assert_eq!(busiest.count, 1);
    assert!((busiest.share - 2.0 / 16.0).abs() < 0.005, "{busiest:?}");
    assert!(model.warnings.iter().any(|w| w.contains("same load")), "{:?}", model.warnings);
    let alpha = &model.requests.alpha;
    assert!(alpha.value == 0.0 && alpha.low < -1e-4 && alpha.high > 1e-4);
}

#[test]
fn devices_that_differ_are_told_apart() {
    let gamma = Gamma::new(4.0, 0.25).unwrap();
    let system = simulated(Box::new(move |r: &mut StdRng| gamma.sample(r)));
    let slow =
        Simulated { mean: 0.012, ..simulated(Box::new(move |r: &mut StdRng| gamma.sample(r))) };
    let rate = system.rate(0.3);
    let mut step = system.step(rate, 60.0, 5);
    step.devices[3] = slow.step(rate, 60.0, 6).devices.swap_remove(3);
    let model = fit(&[step], &Options::default()).unwrap();
    let slowest = model.devices.iter().max_by(|a, b| a.factor.total_cmp(&b.factor)).unwrap();
    assert_eq!(slowest.count, 1);
    let factor = slowest.factor * model.classes[0].service.mean.value / 0.012;
    assert!((factor - 1.0).abs() < 0.03, "{slowest:?}");
    assert!((model.classes[0].service.scv.value - 0.25).abs() < 0.02);
    assert!(model.warnings.iter().any(|w| w.contains("differ")));
}

#[test]
fn joins_are_fitted_against_the_queue_length() {
    let step = |length: f64, joined: f64, counted: bool| Sums {
        time: 100.0,
        arrivals: 10_000.0,
        requests: 10_000.0,
        memory: 10_000.0 * (0.6 - joined),
        client_device_n: 10_000.0 * (0.4 + joined),
        reads: 4_000.0,
        joined: if counted { 10_000.0 * joined } else { 0.0 },
        device_time: 400.0,
        node_time: 100.0,
        length_integral: 100.0 * length,
        busy: 100.0,
        completions: 1e4,
        response_n: 1e4,
        response_s: 100.0,
        classes: vec![sums::ClassSums { n: 1e4, sum: 100.0, squares: 2.0, ..Default::default() }],
        ..Sums::default()
    };
    for counted in [true, false] {
        let steps = [step(1.0, 0.01, counted), step(3.0, 0.03, counted)];
        let found = estimate::estimate(&steps, 4, QueueName::Load).unwrap();
        assert!((found.joining - 0.01).abs() < 1e-9, "{found:?}");
        assert!((found.q0 - 0.6).abs() < 1e-9 && found.alpha == 0.0, "{found:?}");
        assert_eq!(found.joining_knee, estimate::NO_KNEE);
        // What a replayed trace showed: j·k·ln(1 + L/k) with k = 4.7 fits loads from 30 to 90 %.
        let bent = |length: f64| step(length, 0.052 * (length / 4.7).ln_1p(), counted);
        let found =
            estimate::estimate(&[bent(4.0), bent(10.0), bent(25.0)], 4, QueueName::Load).unwrap();
        let at = |l: f64| found.joining * found.joining_knee * (l / found.joining_knee).ln_1p();
        assert!((at(90.0) - 0.052 * (90f64 / 4.7).ln_1p()).abs() < 0.005, "{found:?}");
    }
    let none = [step(1.0, 0.0, false), step(3.0, 0.0, false)];
    assert_eq!(estimate::estimate(&none, 4, QueueName::Load).unwrap().joining, 0.0);
}

#[test]
fn what_is_missing_is_named() {
    let exponential = Exp::new(1.0).unwrap();
    let system = simulated(Box::new(move |r: &mut StdRng| exponential.sample(r)));
    let good = system.step(system.rate(0.3), 10.0, 5);
    let check = |damage: &dyn Fn(&mut Step), expected: &str| {
        let mut step = good.clone();
        damage(&mut step);
        let error = fit(&[good.clone(), step], &Options::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&|s| s.load.clear(), "no windows of `load`");
    check(&|s| s.devices.clear(), "no windows of any `device/N`");
    check(&|s| s.devices.truncate(3), "3 device queues where the first step has 16");
    check(&|s| s.devices[2][0].servers = 0, "queue device/2");
    check(&|s| s.devices[1].iter_mut().for_each(|w| w.busy_s = w.length_s), "utilisation 1.000");
    assert_eq!(fit(&[], &Options::default()), Err(Error::NoSteps));
    let mut idle = good.clone();
    for window in idle.devices.iter_mut().flatten() {
        *window = Window::new(&window.queue, window.start_unix_us, 1, &[]);
        window.length_s = 1.0;
    }
    assert_eq!(fit(&[idle], &Options::default()), Err(Error::NoCompletions));
}

#[test]
fn a_device_that_serves_several_at_once_is_an_announced_approximation() {
    let exponential = Exp::new(1.0).unwrap();
    let system = simulated(Box::new(move |r: &mut StdRng| exponential.sample(r)));
    let mut step = system.step(system.rate(0.3), 20.0, 5);
    step.devices.iter_mut().flatten().for_each(|w| w.servers = 2);
    let model = fit(&[step], &Options::default()).unwrap();
    assert!(model.warnings.iter().any(|w| w.contains("2 reads at once")), "{:?}", model.warnings);
    assert!(model.predict(system.rate(1.2), &[0.05]).unwrap().utilisation_mean.value < 0.7);
}

/// A hot device that is still empty serves more reads at once than the others; it must not lend its servers to them.
#[test]
fn a_device_that_served_nothing_says_nothing_of_the_servers_of_others() {
    let exponential = Exp::new(1.0).unwrap();
    let system = simulated(Box::new(move |r: &mut StdRng| exponential.sample(r)));
    let alone = system.step(system.rate(0.5), 20.0, 5);
    let mut beside = alone.clone();
    let idle = beside.devices[0].iter().map(|window| {
        let mut idle = Window::new("device/16", window.start_unix_us, 8, &[]);
        idle.length_s = window.length_s;
        idle
    });
    beside.devices.push(idle.collect());
    let share = |step: Step| {
        let model = fit(&[step], &Options::default()).unwrap();
        assert!(model.classes.iter().all(|class| class.servers == 1), "{:?}", model.classes);
        model.predict(system.rate(0.8), &[0.05]).unwrap().points[0].concertina.value
    };
    let (alone, beside) = (share(alone), share(beside));
    assert!((alone - beside).abs() < 0.005, "{alone} {beside}");
}

#[test]
fn devices_of_a_class_that_differ_in_servers_are_taken_for_the_least_of_them() {
    let exponential = Exp::new(1.0).unwrap();
    let system = simulated(Box::new(move |r: &mut StdRng| exponential.sample(r)));
    let mut step = system.step(system.rate(0.3), 20.0, 5);
    step.devices[3].iter_mut().for_each(|w| w.servers = 4);
    let model = fit(&[step], &Options::default()).unwrap();
    assert!(model.warnings.iter().any(|w| w.contains("1 to 4 reads")), "{:?}", model.warnings);
    assert_eq!(model.classes[0].servers, 1);
}

#[test]
fn hostile_windows_are_errors_or_models() {
    let exponential = Exp::new(1.0).unwrap();
    let system = simulated(Box::new(move |r: &mut StdRng| exponential.sample(r)));
    let good = system.step(system.rate(0.3), 5.0, 5);
    let damages: [&dyn Fn(&mut Window); 10] = [
        &|w| w.dispersion.sum_of_squares = u64::MAX,
        &|w| w.arrivals = u64::MAX,
        &|w| w.refusals = u64::MAX,
        &|w| w.times.iter_mut().for_each(|t| t.within = vec![u64::MAX; 5]),
        &|w| w.length_s = f64::NAN,
        &|w| w.length_s = -1.0,
        &|w| w.start_unix_us = u64::MAX,
        &|w| w.busy_s = f64::INFINITY,
        &|w| w.length_integral_s = f64::NAN,
        &|w| w.arrivals = 0,
    ];
    for damage in damages {
        for client in [true, false] {
            let mut step = good.clone();
            let into = if client { &mut step.load } else { &mut step.devices[0] };
            into.iter_mut().for_each(damage);
            if let Ok(model) = fit(&[step], &Options { replicates: 5, ..Options::default() })
                && let Ok(prediction) = model.predict(100.0, &[0.05])
            {
                assert!(!prediction.points[0].concertina.value.is_nan());
                model.to_toml().unwrap();
            }
        }
    }
}

#[test]
fn what_the_front_adds_is_found_from_memory_hits() {
    let queue = |name: &str, response: f64, count: usize| -> Vec<Window> {
        let visit = |i: usize| {
            let at = i as f64 * 0.01 + 0.001;
            // A hit takes its time on average; device reads, which take 50 ms, are not looked at.
            let spread = if i.is_multiple_of(4) { 1.5e-4 } else { -0.5e-4 };
            let device = i.is_multiple_of(7);
            let response = if device { 0.05 } else { response + spread };
            let outcome = if device { Outcome::BulkDevice } else { Outcome::Memory };
            (at, at, at + response, response, outcome)
        };
        let visits: Vec<Visit> = (0..count).map(visit).collect();
        windows(name, 0, &visits, count as f64 * 0.01 + 1.0)
    };
    let step = |name: &str| FrontStep {
        name: name.to_owned(),
        client: queue("load", 0.0009, 4000),
        nodes: vec![queue("gateway", 0.0005, 4000), queue("gateway", 0.0005, 4000)],
    };
    let delay = front_delay(&[step("one"), step("two")]).unwrap();
    assert!((delay.value - 0.0004).abs() < 1e-8, "{delay:?}");
    assert!(delay.low <= delay.value && delay.value <= delay.high);
    assert!(delay.high - delay.low < 1e-6, "{delay:?}");
    let reversed =
        FrontStep { nodes: vec![step("x").client], client: step("x").nodes.remove(0), ..step("x") };
    assert_eq!(front_delay(&[reversed]).unwrap().value, 0.0, "never below 0");
    assert_eq!(front_delay(&[]), Err(Error::NoSteps));
    let blind = FrontStep { nodes: Vec::new(), ..step("blind") };
    assert_eq!(front_delay(&[blind]), Err(Error::NoClientWindows { step: "blind".to_owned() }));
}
