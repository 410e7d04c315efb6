//! How long the models take: `cargo bench -p model`. `experiments/model-speed` compares the same tasks with other
//! tools.

use std::hint::black_box;

use criterion::Criterion;
use ground::window::Histogram;
use model::Model;
use model::design::{Bootstrap, Factorial, Form};
use model::distribution::{
    Empirical, Exponential, Gamma, Hyperexponential, Lognormal, ServiceTime,
};
use model::network::{Class, Network, Station};
use model::plan::{Choices, DeviceChoice, Objective, Question, plan};
use model::queue::{Gim1, Mg1, Mgm, Queue};
use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::Distribution as _;

fn network(customers: u32, servers: u32) -> f64 {
    let named = |k: u32| Station::servers(&format!("s{k}"), servers);
    let stations = (0..10).map(named).collect::<Result<_, _>>().expect("a server is enough");
    let demands: Vec<f64> = (0..10).map(|k| 0.001 + 0.0001 * f64::from(k)).collect();
    let class = Class::closed("work", customers, 0.0, &demands).expect("demands are positive");
    let network = Network::new(stations, vec![class]).expect("each station has a demand");
    network.solve().expect("it is small").classes[0].throughput
}

fn networks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("network");
    group.bench_function("mva 5000x10", |b| b.iter(|| network(black_box(5_000), 1)));
    group.sample_size(10);
    group.bench_function("load-dependent 5000x10", |b| b.iter(|| network(black_box(5_000), 4)));
}

/// 100,000 gamma times in a histogram.
fn empirical_gamma() -> Empirical {
    let gamma = rand_distr::Gamma::new(2.0, 0.5).expect("a shape and a scale");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut times = Histogram::default();
    for _ in 0..100_000 {
        let time: f64 = gamma.sample(&mut random);
        times.record((time * 1e9) as u64);
    }
    Empirical::from_histogram(&times).expect("there are times")
}

fn laws(criterion: &mut Criterion) {
    let times: Vec<f64> = (1..=1_000).map(|i| 0.02 * f64::from(i)).collect();
    let mut group = criterion.benchmark_group("cdf of 1000 points");
    let services: [(&str, Box<dyn ServiceTime>); 6] = [
        ("exponential", Box::new(Exponential::new(1.0).expect("a mean"))),
        ("gamma 0.25", Box::new(Gamma::new(1.0, 0.25).expect("moments"))),
        ("gamma 0.4", Box::new(Gamma::new(1.0, 0.4).expect("moments"))),
        ("hyperexponential 4", Box::new(Hyperexponential::balanced(1.0, 4.0).expect("moments"))),
        ("lognormal 4", Box::new(Lognormal::new(1.0, 4.0).expect("moments"))),
        ("measured", Box::new(empirical_gamma())),
    ];
    for (name, service) in &services {
        let rate = 0.8 / service.mean();
        let queue = Mg1::new(rate, service).expect("it is stable");
        group.bench_function(format!("m/g/1 {name}"), |b| {
            b.iter(|| queue.response_cdfs(black_box(&times)));
        });
        let queue = Mgm::new(4.0 * rate, 4, service).expect("it is stable");
        group.bench_function(format!("m/g/4 {name}"), |b| {
            b.iter(|| queue.response_cdfs(black_box(&times)));
        });
    }
    let gaps = Gamma::new(1.25, 4.0).expect("moments");
    group.bench_function("gi/m/1 gamma 4", |b| {
        let queue = || Gim1::new(black_box(&gaps), 1.0).expect("it is stable");
        b.iter(|| queue().response_cdfs(&times));
    });
    group.finish();
    let mut group = criterion.benchmark_group("m/g/m");
    let heavy = Lognormal::new(1.0, 4.0).expect("moments");
    for servers in [2, 8, 32] {
        let rate = 0.8 * f64::from(servers);
        group.bench_function(format!("new, {servers} servers"), |b| {
            b.iter(|| Mgm::new(black_box(rate), servers, &heavy));
        });
    }
}

fn designs(criterion: &mut Criterion) {
    let cell = |i: u32| [f64::from(i), f64::from(i) + 0.3, f64::from(i) - 0.2].to_vec();
    let cells: Vec<Vec<f64>> = (0..8).map(cell).collect();
    let design = Factorial::new(&cells, Form::Additive, 0.95).expect("eight cells");
    let mut group = criterion.benchmark_group("design");
    group.sample_size(10);
    group.bench_function("100000 bootstrap samples", |b| {
        b.iter(|| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            Bootstrap::new(black_box(&design), 100_000, &mut random)
        });
    });
}

const MODEL: &str = include_str!("../../../experiments/model-speed/model.toml");

fn plans(criterion: &mut Criterion) {
    let model = Model::from_toml(MODEL).expect("the file is a model");
    let choices = Choices {
        servers: (1..=1_000).collect(),
        server_price: 200.0,
        devices: vec![DeviceChoice {
            class: "bulk_device".to_owned(),
            counts: (1..=1_000).collect(),
            price: 40.0,
            holds: None,
            reads: None,
            service_s: None,
        }],
        ..Choices::default()
    };
    // None holds it, so each is looked at.
    let question = Question::new(Objective { share: 0.999_999, within_s: 1e-4 }, 20.0);
    let mut group = criterion.benchmark_group("plan");
    group.sample_size(10);
    group.bench_function("1000000 configurations", |b| {
        b.iter(|| plan(&model, black_box(&question), &choices));
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    networks(&mut criterion);
    laws(&mut criterion);
    designs(&mut criterion);
    plans(&mut criterion);
    criterion.final_summary();
}
