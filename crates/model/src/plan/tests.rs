use proptest::prelude::*;

use super::search::{Judge, Verdict};
use super::site::Changes;
use super::*;
use crate::model_file::{
    About, Arrivals, ClassParameters, Devices, FORMAT, Law, Parameter, Replicates, Requests,
    SpotifyParameters,
};
use crate::queue::Discipline;
use crate::storage::{Cluster, Member, Popularity};
use crate::trust::HeldOut;

mod known;

fn exact(value: f64) -> Parameter {
    Parameter::exact(value, "1")
}

/// A law of 25 pieces: exponential but for the tail.
fn law(mean: f64) -> Law {
    let piece = |i: i32| {
        let low = f64::from(i) * 0.3;
        [low + 0.15, 0.15, (-low).exp() - (-low - 0.3).exp()]
    };
    Law { mean: exact(mean), scv: exact(1.0), shape: (0..25).map(piece).collect() }
}

fn class(name: &str, mean: f64) -> ClassParameters {
    ClassParameters {
        name: name.to_owned(),
        servers: 1,
        discipline: Discipline::Fifo,
        service: law(mean),
        background: None,
        in_order: None,
        by_load: None,
        by_number: None,
        solved: Default::default(),
    }
}

fn devices(class: &str, count: u32, share: f64) -> Devices {
    Devices { class: class.to_owned(), count, share: share / f64::from(count), factor: 1.0 }
}

/// A server with memory, two hot devices with a third of the reads, and four bulk ones.
fn model(q0: f64, alpha: f64) -> Model {
    let bulk = [
        Devices { share: 0.3 / 2.0, ..devices("bulk_device", 2, 1.0) },
        Devices { share: 0.37 / 2.0, factor: 1.1, ..devices("bulk_device", 2, 1.0) },
    ];
    Model {
        format: FORMAT,
        warnings: Vec::new(),
        about: About::default(),
        requests: Requests {
            q0: exact(q0),
            alpha: exact(alpha),
            other_share: exact(0.0),
            front_delay: exact(0.0003),
            front_delay_scv: None,
            joining: exact(1e-4),
            joining_knee: exact(1e9),
            rate_low: 50.0,
            rate_high: 800.0,
        },
        spotify: SpotifyParameters {
            q0: exact(q0),
            alpha: exact(alpha),
            mu_d: exact(125.0),
            n_d: 6,
        },
        memory: None,
        other: None,
        classes: vec![class("bulk_device", 0.008), class("hot_device", 0.002)],
        devices: vec![bulk[0].clone(), bulk[1].clone(), devices("hot_device", 2, 0.33)],
        evidence: Vec::new(),
        hypotheses: Vec::new(),
        kinds: Vec::new(),
        rates: None,
        front: None,
        arrivals: None,
        assumed_arrivals: None,
        unknown_beyond: None,
        fitted: Vec::new(),
        held_out: Vec::new(),
        replicates: Replicates::default(),
    }
}

/// Arrivals in bursts: c² and ω.
fn bursts(variation: f64, change_rate: f64) -> Arrivals {
    Arrivals {
        dispersion: Vec::new(),
        scv: exact(3.0),
        variation: Some(exact(variation)),
        change_rate: Some(Parameter::exact(change_rate, "1/s")),
    }
}

/// The same with 40 replicates that differ by `spread` in service and hits.
fn with_replicates(mut model: Model, spread: f64) -> Model {
    let (q0, alpha) = (model.requests.q0.value, model.requests.alpha.value);
    let row = |i: i32| {
        let k = 1.0 + f64::from(i - 20) / 20.0 * spread;
        let q = q0 * (2.0 - k);
        vec![q, alpha, 0.0, 0.0003, 1e-4, 1e9, q, alpha, 125.0 / k, 0.008 * k, 1.0, 0.002 * k, 1.0]
    };
    let moments = ["bulk_device", "hot_device"]
        .map(|class| [format!("mean_s.{class}"), format!("scv.{class}")])
        .concat();
    model.replicates.columns =
        Replicates::COLUMNS.map(String::from).into_iter().chain(moments).collect();
    model.replicates.rows = (0..=40).map(row).collect();
    model
}

fn objective(share: f64, within_s: f64) -> Objective {
    Objective { share, within_s }
}

fn choices() -> Choices {
    let power = |s| SizeLaw::Power(Popularity::new(s).unwrap());
    let device = |class: &str, counts: &[u32], price, holds, reads| DeviceChoice {
        class: class.to_owned(),
        counts: counts.to_vec(),
        price,
        holds,
        reads,
        service_s: None,
    };
    Choices {
        servers: vec![1, 2, 3, 5],
        server_price: 100.0,
        memory: Memory {
            fitted: 64.0,
            sizes: vec![32.0, 64.0, 160.0],
            price: 1.0,
            hits: power(0.4),
        },
        devices: vec![
            device("hot_device", &[0, 2, 4], 60.0, Some(100.0), Some(power(0.5))),
            device("bulk_device", &[2, 4, 8], 20.0, Some(1000.0), None),
        ],
        replicas: vec![1, 2],
        replica_price: 5.0,
        catalogue: Catalogue { servers: Some(2.0), size: Some(3000.0) },
        curves: None,
    }
}

/// The naive twin: every configuration, looked at through the model's own prediction.
fn brute_force(site: &Site, question: &Question, rate: f64, top: usize) -> Vec<u32> {
    let (choices, t_s) = (site.choices, question.within_s());
    let mut digits = Digits::new();
    let mut holding = Vec::new();
    for index in 0..choices.configurations().unwrap() {
        choices.digits(index, &mut digits);
        let c = choices.configuration(&digits);
        let n = f64::from(c.servers);
        let bulk = f64::from(c.devices[1].count);
        if c.replicas > c.servers || n * bulk * 1000.0 < 3000.0 * f64::from(c.replicas) {
            continue;
        }
        let server = |part: f64| {
            let mut changes = Changes::default();
            site.changes(&digits, part, &mut changes).then(|| site.model(&changes))
        };
        let share = |model: &Model, rate: f64| model.cdf(rate, &[t_s]).map_or(0.0, |p| p[0]);
        let Some(whole) = server(1.0) else { continue };
        let in_time = share(&whole, rate / n);
        let limit = match question.limit {
            LimitRule::None => f64::INFINITY,
            LimitRule::Ours => whole.cluster_limit_mg1(c.servers).unwrap(),
            LimitRule::Published => whole.spotify().unwrap().cluster_confidence_limit(c.servers),
        };
        let lost = match (c.servers, c.replicas) {
            (1, _) => 0.0,
            (_, 1) => in_time * (n - 1.0) / n,
            _ => share(&server(n / (n - 1.0)).unwrap(), rate / (n - 1.0)),
        };
        let least = if question.with_one_lost { in_time.min(lost) } else { in_time };
        if least >= question.objective.share && rate <= limit {
            holding.push((c.cost, -in_time, index as u32));
        }
    }
    holding.sort_by(|a, b| a.partial_cmp(b).unwrap());
    holding.iter().take(top).map(|h| h.2).collect()
}

fn limits() -> impl Strategy<Value = LimitRule> {
    prop_oneof![Just(LimitRule::None), Just(LimitRule::Ours), Just(LimitRule::Published)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn the_search_is_exact(
        q0 in 0.0f64..0.8, alpha in 0.0f64..2e-4, rate in 100.0f64..3e3, share in 0.5f64..0.999,
        t_s in 0.005f64..0.1, limit in limits(), with_one_lost: bool, top in 1usize..6,
        shared: bool, flat: bool, bursty: bool,
    ) {
        let mut model = model(q0, alpha);
        if bursty {
            model.arrivals = Some(bursts(0.1, 2.0));
        }
        let mut choices = choices();
        if !shared {
            choices.catalogue.servers = None;
        }
        if flat {
            // All cost the same, so that the order is that of the shares.
            (choices.server_price, choices.memory.price, choices.replica_price) = (0.0, 0.0, 0.0);
            choices.devices.iter_mut().for_each(|d| d.price = 0.0);
        }
        let question = Question { limit, with_one_lost, ..Question::new(objective(share, t_s), rate) };
        let site = Site::new(&model, &choices).unwrap();
        let found = cheapest(&site, &question, &by_cost(&site).unwrap(), rate, top);
        prop_assert_eq!(&found.ranked, &brute_force(&site, &question, rate, top));
        prop_assert!(found.ranked.len() < top || found.evaluated <= 216);
    }

    #[test]
    fn any_question_gets_a_plan_or_an_error(
        rate in any::<f64>(), share in any::<f64>(), t_s in any::<f64>(), price in any::<f64>(),
        growth in any::<f64>(), size in any::<f64>(), delay_s in any::<f64>(), top in 0usize..3,
    ) {
        let model = model(0.5, 0.0);
        let mut choices = choices();
        choices.memory.sizes = vec![64.0, size];
        choices.server_price = price;
        let question = Question {
            growth: Some(Growth { per_month: growth, months: 3 }),
            delay_s,
            top,
            ..Question::new(objective(share, t_s), rate)
        };
        if let Ok(plan) = plan(&model, &question, &choices) {
            prop_assert!(!format!("{plan:?}").contains("NaN"), "{plan:?}");
        }
    }
}

#[test]
fn the_published_dimensioning_comes_out() {
    // Table II, "Spotify": six disks of 150/s behind q = 0.815 − 0.000501 λ.
    let mut model = model(0.815, 0.000_501);
    model.spotify.mu_d = exact(150.0);
    model.classes = vec![class("bulk_device", 1.0 / 150.0)];
    model.devices = vec![devices("bulk_device", 6, 1.0)];
    let servers = |rate: f64| {
        let choices =
            Choices { servers: (1..=40).collect(), server_price: 1.0, ..Choices::default() };
        let question = Question {
            limit: LimitRule::Published,
            top: 1,
            ..Question::new(objective(0.9, 0.1), rate)
        };
        let plan = plan(&model, &question, &choices).unwrap();
        let best = &plan.ranked[0];
        assert_eq!(best.breaks_first.cause, Cause::Limit);
        assert!(best.like_fitted);
        (best.configuration.servers, best.breaks_first.rate.round())
    };
    assert_eq!(servers(12_000.0).0, 17);
    assert_eq!(servers(17_900.0), (25, 17_904.0));
    assert_eq!(servers(17_905.0).0, 26);
    assert_eq!(servers(22_130.0), (31, 22_137.0));
    assert_eq!(servers(22_138.0).0, 32);
}

#[test]
fn changes_are_those_of_a_cluster() {
    let model = model(0.5, 1e-4);
    let mut choices = choices();
    choices.devices.clear();
    choices.catalogue = Catalogue::default();
    let site = Site::new(&model, &choices).unwrap();
    let popularity = Popularity::new(0.4).unwrap();
    let member = |name: &str, share: f64| Member {
        name: name.to_owned(),
        server: model.node().unwrap(),
        share,
    };
    let cluster =
        Cluster { members: vec![member("a", 0.4), member("b", 0.3), member("c", 0.3)], delay: 0.0 };
    let close = |found: &crate::storage::Node, expected: &crate::storage::Node| {
        assert!((found.hit_ratio.q0() - expected.hit_ratio.q0()).abs() < 1e-12);
        assert!((found.joining - expected.joining).abs() < 1e-15);
        assert_eq!(found.groups, expected.groups);
    };
    let server = |digits: &[usize], part: f64| {
        let mut changes = Changes::default();
        assert!(site.changes(digits, part, &mut changes));
        site.model(&changes).node().unwrap()
    };
    // Three servers, 160 GiB instead of 64.
    let more = cluster.with_memory("a", 2.5, popularity).unwrap();
    close(&server(&[2, 2, 0], 1.0), &more.members[0].server);
    // One of them is lost: the others have a part 4/3 as large.
    let lost = cluster.without("a", &[0.4, 0.6], popularity).unwrap();
    close(&server(&[2, 1, 1], 4.0 / 3.0), &lost.members[0].server);
}

#[test]
fn devices_take_their_shares() {
    let (model, choices) = (model(0.5, 0.0), choices());
    let site = Site::new(&model, &choices).unwrap();
    let shares = |hot: usize, bulk: usize| {
        let mut changes = Changes::default();
        assert!(site.changes(&[1, 1, hot, bulk, 0], 1.0, &mut changes));
        let node = site.model(&changes).node().unwrap();
        let of = |class: usize| {
            let groups = node.groups.iter().filter(|g| g.class == class);
            groups.map(|g| f64::from(g.count) * g.share).sum::<f64>()
        };
        (of(0), of(1), node.devices())
    };
    let close = |found: (f64, f64, u32), expected: (f64, f64, u32)| {
        assert!((found.0 - expected.0).abs() < 1e-12 && (found.1 - expected.1).abs() < 1e-12);
        assert_eq!(found.2, expected.2);
    };
    close(shares(1, 1), (0.67, 0.33, 6));
    close(shares(0, 1), (1.0, 0.0, 4));
    let hot = 0.33 * 2f64.sqrt();
    close(shares(2, 2), (1.0 - hot, hot, 12));
    let mut changes = Changes::default();
    assert!(site.changes(&[1, 1, 1, 1, 0], 1.0, &mut changes) && site.is_fitted(&changes));
    assert_eq!(site.busiest(&changes), "bulk_device");
    assert!(site.changes(&[1, 1, 2, 1, 0], 1.0, &mut changes) && !site.is_fitted(&changes));
}

#[test]
fn a_plan_says_what_holds_what_breaks_and_what_to_buy() {
    let model = with_replicates(model(0.5, 1e-4), 0.02);
    let choices = choices();
    let question = Question { top: 3, ..Question::new(objective(0.95, 0.05), 1_500.0) };
    let plan = plan(&model, &question, &choices).unwrap();
    assert_eq!((plan.ranked.len(), plan.configurations), (3, 4 * 3 * 3 * 3 * 2));
    assert!(plan.now.is_none() && plan.nearest.is_none());
    let costs: Vec<f64> = plan.ranked.iter().map(|p| p.configuration.cost).collect();
    assert!(costs.is_sorted(), "{costs:?}");
    let site = Site::new(&model, &choices).unwrap();
    for planned in &plan.ranked {
        let within = &planned.forecast.within;
        assert!(within.value >= 0.95 && within.low < within.value && within.value < within.high);
        let rate = &planned.objective_rate;
        assert!(rate.low < rate.value && rate.value < rate.high, "{rate:?}");
        let times: Vec<f64> = planned.forecast.quantiles.iter().map(|q| q.time_s).collect();
        assert!(times.is_sorted() && times[1] <= 0.05, "{times:?}");
        assert_eq!(planned.breaks_first.cause, Cause::Objective);
        assert!((planned.headroom * 1_500.0 - rate.value).abs() < 1e-9 * rate.value);
        assert!(planned.headroom >= 1.0 && planned.breaks_first.utilisation < 1.0);
        // The objective holds just below the load that is said, and not above.
        let mut digits = Digits::new();
        let index = (0..plan.configurations).find(|&i| {
            choices.digits(i, &mut digits);
            choices.configuration(&digits) == planned.configuration
        });
        choices.digits(index.unwrap(), &mut digits);
        let at = |rate| Judge::new(&site, &question, rate).judge(&digits);
        assert!(matches!(at(rate.value * 0.9999), Verdict::Holds(_)));
        assert!(matches!(at(rate.value * 1.0001), Verdict::Fails(_)));
    }
    let worth: Vec<f64> = plan.purchases.iter().filter_map(|p| p.gain_per_price).collect();
    assert!(!worth.is_empty() && worth.is_sorted_by(|a, b| a >= b), "{worth:?}");
    let json = serde_json::to_string(&plan).unwrap();
    assert!(!json.contains("null,\"low\"") && json.contains("\"cause\":\"objective\""), "{json}");

    // The same with one server lost costs more, and then nothing is missed.
    let safe = Question { with_one_lost: true, ..question };
    let safe = super::plan(&model, &safe, &choices).unwrap();
    assert!(safe.ranked[0].configuration.cost > plan.ranked[0].configuration.cost);
    assert!(safe.ranked.iter().all(|p| p.one_lost.holds && p.configuration.replicas == 2));
    let lost = safe.ranked[0].one_lost.forecast.as_ref().unwrap();
    assert!(lost.servers == safe.ranked[0].configuration.servers - 1 && lost.within.value >= 0.95);
}

#[test]
fn growth_ends_in_the_month_that_is_said() {
    let (model, choices) = (model(0.5, 1e-4), choices());
    let growth = Growth { per_month: 0.1, months: 8 };
    let question =
        Question { growth: Some(growth), top: 1, ..Question::new(objective(0.95, 0.05), 700.0) };
    let plan = plan(&model, &question, &choices).unwrap();
    let (best, now) = (&plan.ranked[0], plan.now.as_ref().unwrap());
    assert!((plan.design_rate - 700.0 * 1.1f64.powi(8)).abs() < 1e-9);
    assert!(now.configuration.cost < best.configuration.cost);
    assert!(best.ends_in_month.unwrap() > 8 && (1..=8).contains(&now.ends_in_month.unwrap()));
    for planned in [best, now] {
        let month = planned.ends_in_month.unwrap() as i32;
        let load = |month: i32| 700.0 * 1.1f64.powi(month);
        let most = planned.breaks_first.rate;
        assert!(load(month) > most && load(month - 1) <= most, "{month} {most}");
    }
}

#[test]
fn what_cannot_be_held_says_what_is_reached() {
    let (model, choices) = (model(0.2, 1e-4), choices());
    let ask = |share, within_s, rate| {
        plan(&model, &Question::new(objective(share, within_s), rate), &choices).unwrap()
    };
    // Too fast: no load holds it.
    let plan = ask(0.999, 0.001, 500.0);
    let reach = plan.nearest.unwrap();
    assert!(plan.ranked.is_empty() && reach.forecast.unwrap().within.value < 0.999);
    assert_eq!(reach.breaks_first.rate, 0.0);
    // Too much: the largest of all is the nearest, and its queues grow without bound.
    let plan = ask(0.9, 0.05, 1e6);
    let reach = plan.nearest.unwrap();
    assert_eq!(reach.forecast, None);
    let c = &reach.configuration;
    assert_eq!((c.servers, c.memory, c.devices[0].count, c.devices[1].count), (5, 160.0, 4, 8));
    assert!(reach.breaks_first.rate > 1_000.0 && reach.breaks_first.rate < 1e6);
    // A single server has none to lose.
    let alone = Choices { servers: vec![1], replicas: vec![1], ..choices.clone() };
    let question = Question::new(objective(0.5, 0.1), 50.0);
    let single = super::plan(&model, &question, &alone).unwrap();
    assert!(!single.ranked[0].one_lost.holds && single.ranked[0].one_lost.unreachable == 1.0);
    // Without replicas what one held is late, however fast the others are.
    let four = Choices { servers: vec![5], replicas: vec![1], ..choices };
    let plain = super::plan(&model, &question, &four).unwrap();
    let lost = &plain.ranked[0].one_lost;
    assert!((lost.unreachable - 0.2).abs() < 1e-12);
    assert!(lost.forecast.as_ref().unwrap().within.value <= 0.8);
}

#[test]
fn hostile_choices_are_errors_that_say_what() {
    let model = model(0.5, 0.0);
    let question = Question::new(objective(0.9, 0.05), 500.0);
    type Damage = fn(&mut Choices);
    let rows: [(Damage, &str); 14] = [
        (|c| c.servers.clear(), "no number of servers"),
        (|c| c.servers = vec![0, 1], "0 servers"),
        (|c| c.servers = vec![2, 1], "ascend"),
        (|c| c.servers = vec![2_000_000], "at most"),
        (|c| c.server_price = f64::NAN, "price of a server"),
        (|c| c.memory.sizes.clear(), "sizes of memory"),
        (|c| c.memory.fitted = 0.0, "memory of the fitted server"),
        (|c| c.memory.hits = SizeLaw::Table(vec![(1.0, 0.5), (2.0, 0.4)]), "not falling"),
        (|c| c.memory.hits = SizeLaw::Table(Vec::new()), "fitted size"),
        (|c| c.devices[0].class = "tape".to_owned(), "\"tape\""),
        (|c| c.devices[1].class = "hot_device".to_owned(), "twice"),
        (|c| c.devices[0].price = -1.0, "price of a device"),
        (|c| c.catalogue.size = Some(f64::INFINITY), "size of the catalogue"),
        (|c| c.servers = (1..=1_000_000).collect(), "configurations"),
    ];
    for (damage, says) in rows {
        let mut choices = choices();
        damage(&mut choices);
        let error = plan(&model, &question, &choices).unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    for question in [
        Question { rate: 0.0, ..question },
        Question { delay_s: 0.06, ..question },
        Question { top: 0, ..question },
        Question { objective: objective(1.5, 0.05), ..question },
    ] {
        assert!(plan(&model, &question, &choices()).is_err());
    }
}

/// Curves say what memory and hot devices of all servers serve, and hot devices are added to a server
/// that has none.
#[test]
fn curves_give_hit_ratios_and_reads_of_hot_devices() {
    let fitted = |hot: bool| {
        let mut model = model(0.4, 0.0);
        if !hot {
            model.classes.retain(|class| class.name == "bulk_device");
            model.devices.retain(|devices| devices.class == "bulk_device");
            let share: f64 = model.devices.iter().map(|d| f64::from(d.count) * d.share).sum();
            model.devices.iter_mut().for_each(|devices| devices.share /= share);
        }
        model
    };
    let curves = Curves {
        memory_bytes: vec![0.0, 128.0, 256.0],
        hot_bytes: vec![0.0, 400.0, 800.0],
        memory_share: vec![0.0, 0.4, 0.6],
        hot_share: vec![vec![0.0, 0.5, 0.6], vec![0.0, 0.3, 0.4], vec![0.0, 0.1, 0.2]],
    };
    let mut choices = choices();
    choices.curves = Some(SizedCurves { curves, unit_bytes: 1.0 });
    choices.memory.sizes = vec![64.0, 128.0];
    choices.servers = vec![2, 4];
    choices.devices[0].reads = None;
    choices.devices[0].service_s = Some(0.0005);
    // Two servers with 64 of memory each, as fitted, and two hot devices of 100 each.
    let at = |model: &Model, digits: &[usize], part: f64| {
        let site = Site::new(model, &choices).unwrap();
        let mut changes = Changes::default();
        assert!(site.changes(digits, part, &mut changes));
        let node = site.model(&changes).node().unwrap();
        let hot = node.classes.iter().position(|class| {
            (crate::distribution::ServiceTime::mean(&class.service) - 0.0005).abs() < 1e-9
        });
        let of = node.groups.iter().filter(|group| Some(group.class) == hot);
        let share: f64 = of.map(|group| f64::from(group.count) * group.share).sum();
        (node.hit_ratio.q0(), share, site.is_fitted(&changes))
    };
    let close = |found: (f64, f64, bool), expected: (f64, f64, bool)| {
        assert!((found.0 - expected.0).abs() < 1e-9, "{found:?} {expected:?}");
        assert!((found.1 - expected.1).abs() < 1e-9, "{found:?} {expected:?}");
        assert_eq!(found.2, expected.2);
    };
    let bulk = fitted(false);
    close(at(&bulk, &[0, 0, 0, 1, 0], 1.0), (0.4, 0.0, true));
    // Hot devices added, memory doubled, servers doubled with both.
    close(at(&bulk, &[0, 0, 1, 1, 0], 1.0), (0.4, 0.3 / 0.6, false));
    close(at(&bulk, &[0, 1, 0, 1, 0], 1.0), (0.6, 0.0, false));
    close(at(&bulk, &[1, 0, 1, 1, 0], 1.0), (0.6, 0.2 / 0.4, false));
    // One of two lost: half of the memory and of the hot bytes is left.
    close(at(&bulk, &[0, 0, 1, 1, 0], 2.0), (0.2, (0.5 + 0.3) / 4.0 / 0.8, false));
    // A class of the model keeps its own law and, beside what the curves say, its own share.
    let plan = plan(&bulk, &Question::new(objective(0.9, 0.05), 400.0), &choices).unwrap();
    assert!(plan.ranked.iter().any(|planned| planned.configuration.devices[0].count > 0));

    let listed = Choices { devices: vec![choices.devices[1].clone()], ..choices.clone() };
    let error = Site::new(&fitted(true), &listed).err().map(|error| error.to_string());
    assert!(error.unwrap_or_default().contains("add the class"));
    let alone = Choices { catalogue: Catalogue::default(), ..choices.clone() };
    let error = Site::new(&bulk, &alone).err().map(|error| error.to_string());
    assert!(error.unwrap_or_default().contains("how many shared the catalogue"));
}

#[test]
fn past_the_trusted_load_is_said() {
    let mut model = with_replicates(model(0.5, 0.0), 0.01);
    let choices = Choices { servers: vec![1, 2, 4], ..Choices::default() };
    let question = Question::new(objective(0.5, 0.1), 900.0);
    let marks = |model: &Model| {
        let plan = plan(model, &question, &choices).unwrap();
        let marks = plan.ranked.iter().map(|p| (p.configuration.servers, p.forecast.beyond_trust));
        let mut marks: Vec<_> = marks.collect();
        marks.sort_unstable();
        marks
    };
    // Nothing was held out, and 800 requests/s of a server is the largest fitted load.
    assert_eq!(marks(&model), [(1, true), (2, false), (4, false)]);
    let held = |rate, error_points| HeldOut {
        name: String::new(),
        rate,
        within_s: 0.05,
        error_points,
        half_width_points: Some(0.5),
    };
    model.held_out = vec![held(900.0, 1.0)];
    assert_eq!(marks(&model), [(1, false), (2, false), (4, false)]);
    model.held_out = vec![held(300.0, -6.0)];
    assert_eq!(marks(&model), [(1, true), (2, true), (4, true)]);
}

#[test]
fn bursts_cost_servers() {
    let mut model = with_replicates(model(0.5, 0.0), 0.01);
    let choices = Choices { servers: (1..=40).collect(), server_price: 1.0, ..Choices::default() };
    let question = Question::new(objective(0.99, 0.06), 9_000.0);
    let servers = |model: &Model| {
        let plan = plan(model, &question, &choices).unwrap();
        let best = &plan.ranked[0];
        assert!(best.breaks_first.rate >= 9_000.0 && best.forecast.within.value >= 0.99);
        (
            best.configuration.servers,
            best.forecast.confidence_limit / f64::from(best.forecast.servers),
        )
    };
    let poisson = servers(&model);
    model.arrivals = Some(bursts(0.2, 0.5));
    let bursty = servers(&model);
    assert!(bursty.0 > poisson.0 && bursty.1 < poisson.1, "{bursty:?} {poisson:?}");
}

/// `cargo test --release -p model --lib plan::tests::speed -- --ignored --nocapture`
#[test]
#[ignore = "measures; says nothing of what is right"]
#[allow(clippy::disallowed_methods)] // The clock is what this is about.
fn speed_of_a_million_configurations() {
    let model = with_replicates(model(0.5, 1e-4), 0.02);
    let mut choices = choices();
    choices.servers = (1..=100).collect();
    choices.memory.sizes = (1..=20).map(|i| 16.0 * f64::from(i)).collect();
    choices.devices[0].counts = (0..16).collect();
    choices.devices[1].counts = (2..18).collect();
    choices.replicas = vec![1, 2];
    for (what, share, exponent) in [("holds", 0.95, 0.4), ("never holds", 0.9999, 0.0)] {
        choices.memory.hits = SizeLaw::Power(Popularity::new(exponent).unwrap());
        let question = Question::new(objective(share, 0.01), 20_000.0);
        let start = std::time::Instant::now();
        let plan = plan(&model, &question, &choices).unwrap();
        let (all, looked, held) = (plan.configurations, plan.evaluated, plan.ranked.len());
        let took = start.elapsed();
        println!("{what}: {all} configurations, {looked} looked at, {held} shown: {took:.2?}");
    }
}
