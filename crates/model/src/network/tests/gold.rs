//! Tests against the gold numbers: 120-digit convolutions, octave-queueing, PDQ, and the ASL
//! report.

use serde_json::Value;

use crate::error::Error;
use crate::gold::{json as gold, text};
use crate::network::*;

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().map(|v| v.as_f64().unwrap()).collect(),
        one => vec![one.as_f64().unwrap()],
    }
}

fn rows(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().unwrap().iter().map(numbers).collect()
}

/// The largest relative difference; values below `tiny` count as equal.
fn off(found: &[f64], expected: &[f64], tiny: f64) -> f64 {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected);
    let each =
        |(a, b): (&f64, &f64)| if b.abs() < tiny { (a - b).abs() } else { (a / b - 1.0).abs() };
    pairs.map(each).fold(0.0, f64::max)
}

fn table(rate: impl Fn(f64) -> f64, n: usize) -> Vec<f64> {
    (1..=n).map(|i| rate(i as f64)).collect()
}

fn exact_closed(name: &str) {
    let Some(file) = gold(&format!("exact_closed/{name}.json")) else { return };
    let n = file["N"].as_u64().unwrap() as usize;
    let z = file["Z"].as_f64().unwrap();
    let mut stations = Vec::new();
    let mut demands = Vec::new();
    for (k, s) in file["stations"].as_array().unwrap().iter().enumerate() {
        let name = format!("s{k}");
        let f = |key: &str| s[key].as_f64().unwrap();
        demands.push(f("D"));
        stations.push(match s["type"].as_str().unwrap() {
            "multi" => Station::servers(&name, f("m") as u32).unwrap(),
            "usl" => {
                let (sigma, kappa) = (f("sigma"), f("kappa"));
                let rate = |n: f64| n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0));
                Station::load_dependent(&name, &table(rate, n)).unwrap()
            }
            // Service takes a + b·k ms with k busy, as a multiple of the demand.
            "linear_w" => {
                let (a, b, m) = (f("a"), f("b"), f("m"));
                let rate = |n: f64| n.min(m) / (a + b * n.min(m));
                Station::load_dependent(&name, &table(rate, n)).unwrap()
            }
            _ => Station::queue(&name),
        });
    }
    let class = Class::closed("c", n as u32, z, &demands).unwrap();
    let network = Network::new(stations, vec![class]).unwrap();
    let found = network.solve().unwrap();
    assert!(found.method.is_exact());
    let class = &found.classes[0];
    let field = |of: fn(&StationResult) -> f64| found.stations.iter().map(of).collect::<Vec<_>>();
    let mut worst = off(&[class.throughput], &numbers(&file["X"]), 0.0);
    worst = worst.max(off(&[class.response_s], &numbers(&file["R_total"]), 0.0));
    worst = worst.max(off(&field(|s| s.number), &numbers(&file["Q"]), 0.0));
    worst = worst.max(off(&field(|s| s.utilisation), &numbers(&file["U"]), 0.0));
    for k in 0..found.stations.len() {
        let p = network.distribution(k).unwrap();
        worst = worst.max(off(&p[..1], &numbers(&file["p0"][k]), 0.0));
        for (from, expected) in file["p_ge"][k].as_object().unwrap() {
            let tail: f64 = p[from.parse().unwrap()..].iter().sum();
            worst = worst.max(off(&[tail], &numbers(expected), 0.0));
        }
    }
    println!("{name}: worst relative error {worst:.1e}");
    assert!(worst < 1e-10, "{name}: off by {worst:e}");
}

#[test]
fn networks_that_break_other_solvers_are_exact() {
    for name in
        ["asl21_96", "asl21_192", "asl21_288", "linw_48", "mach_rep_192", "multi3_200", "usl_60"]
    {
        exact_closed(name);
    }
}

/// A single-class network of octave's: N, S, V, m, Z.
fn octave_single(args: &Value) -> Network {
    let service = numbers(&args[1]);
    let visits = numbers(&args[2]);
    let servers = args.get(3).map_or(vec![1.0; service.len()], numbers);
    let z = args.get(4).map_or(0.0, |z| z.as_f64().unwrap());
    let make = |(k, m): (usize, &f64)| match *m {
        m if m < 1.0 => Station::delay(&format!("s{k}")),
        m => Station::servers(&format!("s{k}"), m as u32).unwrap(),
    };
    let stations = servers.iter().enumerate().map(make).collect();
    let demands: Vec<f64> = service.iter().zip(&visits).map(|(s, v)| s * v).collect();
    let class = Class::closed("c", args[0].as_u64().unwrap() as u32, z, &demands).unwrap();
    Network::new(stations, vec![class.with_visits(&visits).unwrap()]).unwrap()
}

fn check_octave(name: &str, file: &Value, found: &Solution, tolerance: f64) {
    let field = |of: fn(&StationResult) -> f64| found.stations.iter().map(of).collect::<Vec<_>>();
    let mut worst = 0.0f64;
    for (key, found) in [
        ("U", field(|s| s.utilisation)),
        ("R", field(|s| s.response_s)),
        ("Q", field(|s| s.number)),
        ("X", field(|s| s.throughput)),
    ] {
        worst = worst.max(off(&found, &numbers(&file["out"][key]), 0.0));
    }
    println!("{name}: worst relative error {worst:.1e} ({})", found.method.name());
    assert!(worst < tolerance, "{name}: off by {worst:e}");
}

#[test]
fn one_class_agrees_with_octave() {
    for name in ["cs_jain1", "cs_lazowska", "cs_delay", "cs_multi", "csconv_a"] {
        let Some(file) = gold(&format!("octave/{name}.json")) else { return };
        let network = octave_single(&file["args"]);
        check_octave(name, &file, &network.solve().unwrap(), 1e-12);
        let convolved = network.solve_by(Method::Convolution).unwrap();
        check_octave(name, &file, &convolved, 1e-12);
    }
    let Some(file) = gold("octave/csap_a.json") else { return };
    let near = octave_single(&file["args"]).solve_by(Method::Schweitzer).unwrap();
    check_octave("csap_a", &file, &near, 1e-4);
}

#[test]
fn load_dependent_stations_agree_with_octave() {
    let network = |services: &[Vec<f64>], visits: &[f64], n: &Value, z: &Value| {
        let mut stations = Vec::new();
        let mut demands = Vec::new();
        for (k, row) in services.iter().enumerate() {
            let rates: Vec<f64> = row.iter().map(|s| row[0] / s).collect();
            stations.push(Station::load_dependent(&format!("s{k}"), &rates).unwrap());
            demands.push(row[0] * visits[k]);
        }
        let (n, z) = (n.as_u64().unwrap() as u32, z.as_f64().unwrap());
        let class = Class::closed("c", n, z, &demands).unwrap();
        Network::new(stations, vec![class.with_visits(visits).unwrap()]).unwrap()
    };
    let Some(file) = gold("octave/csld_a.json") else { return };
    let args = &file["args"];
    let found = network(&rows(&args[1]), &numbers(&args[2]), &args[0], &args[3]).solve();
    check_octave("csld_a", &file, &found.unwrap(), 1e-12);
    let Some(file) = gold("octave/cscmva_a.json") else { return };
    let args = &file["args"];
    let mut services: Vec<Vec<f64>> = numbers(&args[1]).iter().map(|s| vec![*s]).collect();
    services.push(numbers(&args[2]));
    let found = network(&services, &numbers(&args[3]), &args[0], &args[4]).solve();
    check_octave("cscmva_a", &file, &found.unwrap(), 1e-12);
}

/// A multi-class network of octave's: N, S, V, m, Z.
fn octave_multi(args: &Value, servers: Option<u32>) -> Network {
    let (customers, service, visits) = (numbers(&args[0]), rows(&args[1]), rows(&args[2]));
    let think = args.get(4).map_or(vec![0.0; customers.len()], numbers);
    let make = |k| match servers {
        Some(m) => Station::servers(&format!("s{k}"), m).unwrap(),
        None => Station::queue(&format!("s{k}")),
    };
    let class = |c: usize| {
        let demands: Vec<f64> = service[c].iter().zip(&visits[c]).map(|(s, v)| s * v).collect();
        let class = Class::closed(&format!("c{c}"), customers[c] as u32, think[c], &demands);
        class.unwrap().with_visits(&visits[c]).unwrap()
    };
    let stations = (0..service[0].len()).map(make).collect();
    Network::new(stations, (0..customers.len()).map(class).collect()).unwrap()
}

fn check_classes(name: &str, file: &Value, found: &Solution, tolerance: f64) {
    type Field = (&'static str, fn(&Share) -> f64);
    let mut worst = 0.0f64;
    let fields: [Field; 4] = [
        ("U", |s| s.utilisation),
        ("R", |s| s.response_s),
        ("Q", |s| s.number),
        ("X", |s| s.throughput),
    ];
    for (key, of) in fields {
        for (c, row) in rows(&file["out"][key]).iter().enumerate() {
            let found: Vec<f64> = found.stations.iter().map(|s| of(&s.classes[c])).collect();
            worst = worst.max(off(&found, row, 0.0));
        }
    }
    println!("{name}: worst relative error {worst:.1e} ({})", found.method.name());
    assert!(worst < tolerance, "{name}: off by {worst:e}");
}

#[test]
fn several_classes_agree_with_octave() {
    for name in ["cm2_a", "cm2_z", "cm3"] {
        let Some(file) = gold(&format!("octave/{name}.json")) else { return };
        let network = octave_multi(&file["args"], None);
        check_classes(name, &file, &network.solve().unwrap(), 1e-12);
        check_classes(name, &file, &network.solve_by(Method::Convolution).unwrap(), 1e-12);
        let near = network.solve_by(Method::Linearizer).unwrap();
        check_classes(name, &file, &near, 0.02);
    }
    let Some(file) = gold("octave/cmbs_a.json") else { return };
    let near = octave_multi(&file["args"], None).solve_by(Method::Schweitzer).unwrap();
    check_classes("cmbs_a", &file, &near, 1e-4);
}

#[test]
fn open_and_mixed_networks_agree_with_octave() {
    for name in ["os_a", "os_m"] {
        let Some(file) = gold(&format!("octave/{name}.json")) else { return };
        let args = &file["args"];
        let (service, visits) = (numbers(&args[1]), numbers(&args[2]));
        let servers = args.get(3).map_or(vec![1.0; service.len()], numbers);
        let make = |(k, m): (usize, &f64)| match *m {
            m if m < 1.0 => Station::delay(&format!("s{k}")),
            m => Station::servers(&format!("s{k}"), m as u32).unwrap(),
        };
        let demands: Vec<f64> = service.iter().zip(&visits).map(|(s, v)| s * v).collect();
        let class = Class::open("c", args[0].as_f64().unwrap(), &demands).unwrap();
        let class = class.with_visits(&visits).unwrap();
        let network = Network::new(servers.iter().enumerate().map(make).collect(), vec![class]);
        check_octave(name, &file, &network.unwrap().solve().unwrap(), 1e-12);
    }
    let Some(file) = gold("octave/om_a.json") else { return };
    let args = &file["args"];
    let (rates, service, shares) = (numbers(&args[0]), rows(&args[1]), rows(&args[2]));
    let total: f64 = rates.iter().sum();
    let class = |c: usize| {
        // Octave's visits of a class are multiplied by its share of the arrivals.
        let visits: Vec<f64> = shares[c].iter().map(|v| v * total / rates[c]).collect();
        let demands: Vec<f64> = service[c].iter().zip(&visits).map(|(s, v)| s * v).collect();
        Class::open(&format!("c{c}"), rates[c], &demands).unwrap().with_visits(&visits).unwrap()
    };
    let stations = vec![Station::queue("a"), Station::queue("b")];
    let network = Network::new(stations, vec![class(0), class(1)]).unwrap();
    check_classes("om_a", &file, &network.solve().unwrap(), 1e-10);
    // Octave answers this one, whose open classes saturate a station, with NaN.
    let Some(file) = gold("octave/mix_a.json") else { return };
    let service = rows(&file["args"][2]);
    let open = |c: usize, rate| Class::open(&format!("c{c}"), rate, &service[c]).unwrap();
    let closed = |c: usize| Class::closed(&format!("c{c}"), 1, 0.0, &service[c]).unwrap();
    let classes = vec![open(0, 1.0), open(1, 0.5), closed(2), closed(3)];
    let stations = vec![Station::queue("a"), Station::queue("b")];
    let error = Network::new(stations, classes).unwrap().solve().unwrap_err();
    assert!(
        matches!(error, Error::StationUnstable { ref station, .. } if station == "b"),
        "{error}"
    );
}

#[test]
fn bounds_agree_with_octave() {
    type Kind = (&'static str, fn(&Bounds) -> Limits);
    let names: [Kind; 4] = [
        ("aba_a", |b| b.asymptotic),
        ("bsb_a", |b| b.balanced),
        ("pb_a", |b| b.proportional),
        ("gb_a", |b| b.geometric),
    ];
    for (name, of) in names {
        let Some(file) = gold(&format!("octave/{name}.json")) else { return };
        let network = octave_single(&file["args"]);
        let found = of(&network.bounds(0).unwrap());
        let out = |key: &str, other: &str| {
            file["out"].get(key).or(file["out"].get(other)).unwrap().as_f64().unwrap()
        };
        let (a, b) = (out("Rl", "Rl_or_Ru"), out("Ru", "Ru_or_Rl"));
        let expected = [out("Xl", ""), out("Xu", ""), a.min(b), a.max(b)];
        let found = [
            found.throughput_low,
            found.throughput_high,
            found.response_low_s,
            found.response_high_s,
        ];
        let worst = off(&found, &expected, 0.0);
        println!("{name}: worst relative error {worst:.1e}");
        assert!(worst < 1e-12, "{name}: {found:?} {expected:?}");
    }
    let Some(file) = gold("octave/cmcb_a.json") else { return };
    let service = rows(&file["args"][1]);
    let customers = numbers(&file["args"][0]);
    let class =
        |c: usize| Class::closed(&format!("c{c}"), customers[c] as u32, 0.0, &service[c]).unwrap();
    let stations = (0..4).map(|k| Station::queue(&format!("s{k}"))).collect();
    let found =
        Network::new(stations, vec![class(0), class(1)]).unwrap().composite_bounds().unwrap();
    let column = |of: fn(&Limits) -> f64| found.iter().map(of).collect::<Vec<_>>();
    for (key, found) in [
        ("Xl", column(|l| l.throughput_low)),
        ("Xu", column(|l| l.throughput_high)),
        ("Rl", column(|l| l.response_low_s)),
        ("Ru", column(|l| l.response_high_s)),
    ] {
        let worst = off(&found, &numbers(&file["out"][key]), 0.0);
        assert!(worst < 1e-12, "cmcb_a {key}: off by {worst:e}");
    }
}

#[test]
fn a_saturated_station_of_pdq_agrees() {
    let Some(file) = gold("pdq/aws_tomcat.json") else { return };
    let f = |key: &str| file[key].as_f64().unwrap();
    let stations = vec![Station::servers("threads", f("m") as u32).unwrap()];
    let class = Class::closed("c", f("N") as u32, f("Z"), &[f("S")]).unwrap();
    let network = Network::new(stations, vec![class]).unwrap();
    let found = network.solve().unwrap();
    assert!((found.classes[0].throughput - f("X")).abs() < 1e-4);
    assert!((found.classes[0].response_s - f("R")).abs() < 1e-4);
    assert!((found.stations[0].number - f("Q")).abs() < 1e-9);
    let bottleneck = network.bottleneck(0).unwrap();
    assert!((bottleneck.throughput_max - f("max_tp")).abs() < 1e-4);
    assert!((bottleneck.knee - f("n_opt")).abs() < 1e-9);
}

/// Tables 21 to 24 of the ASL report: the inputs that its printed utilisations and queue lengths
/// imply, solved. Where the report's solver broke (192 and 288 clients) the measured throughputs
/// are met.
#[test]
fn the_asl_network_is_solved_where_its_report_broke() {
    let Some(file) = text("seeds/asl_netq_derived_inputs.csv") else { return };
    let mut lines = file.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| head.iter().position(|h| *h == name).unwrap();
    let mut worst = 0.0f64;
    for line in lines {
        let cells: Vec<f64> = line.split(',').map(|c| c.parse().unwrap()).collect();
        let cell = |name: &str| cells[column(name)];
        let (n, middlewares) = (cell("N") as u32, cell("middlewares"));
        let threads = cell("threads_per_mw") as u32;
        // Printed utilisations have three decimals, so the first of them give the service time to
        // some per cent (and throughput to 0.2 %); it is no longer than the response time.
        let service = cell("S_ms_from_util").min(cell("R_mw_ms_from_qlen")) * 1e-3;
        // Each request goes to one middleware.
        let count = middlewares as usize;
        let stations = (0..count).map(|k| Station::servers(&format!("mw{k}"), threads).unwrap());
        let demands = vec![service / middlewares; count];
        let class =
            Class::closed("clients", n, cell("rest_ms_(RTT+net)") * 1e-3, &demands).unwrap();
        let found = Network::new(stations.collect(), vec![class]).unwrap().solve().unwrap();
        let (x, expected) = (found.classes[0].throughput, cell("stable_solver_tp_same_inputs"));
        worst = worst.max((x / expected - 1.0).abs());
        println!("table {} N {n}: {x:.1}, expected {expected}", cell("table"));
        assert!((x / expected - 1.0).abs() < 2.5e-3, "N {n}: {x} {expected}");
        let measured = cell("measured_tp");
        match n {
            192 => assert!((x - 10_852.0).abs() < 3.0 && (x / measured - 1.0).abs() < 0.028),
            288 => assert!((x - 10_601.0).abs() < 3.0 && (x / measured - 1.0).abs() < 0.005),
            _ => {}
        }
    }
    println!("ASL tables 21-24: worst difference {worst:.1e}");
}
