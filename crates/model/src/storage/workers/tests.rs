//! Against a discrete simulation of a pool of workers before memory and devices.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::distribution::{Empirical, Piece};
use crate::error::Error;
use crate::queue::{ArrivalLaw, Mmm, Queue};
use crate::storage::{Class as DeviceClass, Delay, HitRatio, Limit};

/// A pool before a service. Times are in seconds, works and memory's times exponential.
#[derive(Clone, Copy, Debug)]
struct Pool {
    rate: f64,
    workers: u32,
    hits: f64,
    memory_s: f64,
    delay_s: f64,
    devices: u32,
    servers: u32,
    work_s: f64,
}

/// Two servers of 20 ms without anything else.
const LINE: Pool = Pool {
    rate: 80.0,
    workers: 3,
    hits: 0.0,
    memory_s: 0.0,
    delay_s: 0.0,
    devices: 1,
    servers: 2,
    work_s: 0.02,
};

fn exponential(mean: f64) -> Empirical {
    let pieces = (0..400).map(|i| {
        let (low, high) = (f64::from(i) * 0.04, f64::from(i + 1) * 0.04);
        let (centre, half_width) = (mean * 0.5 * (low + high), mean * 0.02);
        Piece { centre, half_width, share: (-low).exp() - (-high).exp() }
    });
    Empirical::from_pieces(pieces.collect()).unwrap()
}

fn node(pool: &Pool, workers: Option<u32>) -> Node {
    let share = 1.0 / f64::from(pool.devices);
    Node {
        hit_ratio: HitRatio::new(pool.hits, 0.0).unwrap(),
        memory: (pool.memory_s > 0.0).then(|| exponential(pool.memory_s)),
        other_share: 0.0,
        other: None,
        delay: Delay::constant(pool.delay_s),
        joining: 0.0,
        joining_knee: f64::INFINITY,
        link: None,
        workers,
        arrivals: ArrivalLaw::Poisson,
        classes: vec![DeviceClass::new(exponential(pool.work_s), pool.servers)],
        groups: vec![DeviceGroup { class: 0, count: pool.devices, share, factor: 1.0 }],
    }
}

/// What happens next in the simulation, of the request with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives,
    ReachesDevice,
    LeavesDevice,
    LeavesMemory,
}

/// The simulation: each request waits for a worker in the order of arrival, then for its device in the order at that.
struct Simulation {
    pool: Pool,
    random: StdRng,
    /// Nanoseconds, what, which request.
    next: BinaryHeap<Reverse<(u64, Event, usize)>>,
    free: u32,
    waiting: VecDeque<usize>,
    lines: Vec<VecDeque<usize>>,
    busy: Vec<u32>,
    /// The device of each request; `None` for memory.
    devices: Vec<Option<usize>>,
}

impl Simulation {
    fn exponential(&mut self, mean_s: f64) -> u64 {
        (-mean_s * 1e9 * (1.0 - self.random.random::<f64>()).ln()) as u64
    }

    fn push(&mut self, at: u64, event: Event, request: usize) {
        self.next.push(Reverse((at, event, request)));
    }

    fn start(&mut self, now: u64, request: usize) {
        if self.devices[request].is_some() {
            self.push(now + (self.pool.delay_s * 1e9) as u64, Event::ReachesDevice, request);
        } else {
            let taken = self.exponential(self.pool.memory_s);
            self.push(now + taken, Event::LeavesMemory, request);
        }
    }

    fn serve(&mut self, now: u64, request: usize) {
        let taken = self.exponential(self.pool.work_s);
        self.push(now + taken, Event::LeavesDevice, request);
    }

    /// Handles an event; whether the request is answered.
    fn happen(&mut self, now: u64, event: Event, request: usize) -> bool {
        let device = self.devices[request].unwrap_or(0);
        match event {
            Event::Arrives if self.free == 0 => self.waiting.push_back(request),
            Event::Arrives => {
                self.free -= 1;
                self.start(now, request);
            }
            Event::ReachesDevice if self.busy[device] == self.pool.servers => {
                self.lines[device].push_back(request);
            }
            Event::ReachesDevice => {
                self.busy[device] += 1;
                self.serve(now, request);
            }
            Event::LeavesDevice | Event::LeavesMemory => {
                if event == Event::LeavesDevice {
                    match self.lines[device].pop_front() {
                        Some(next) => self.serve(now, next),
                        None => self.busy[device] -= 1,
                    }
                }
                match self.waiting.pop_front() {
                    Some(next) => self.start(now, next),
                    None => self.free += 1,
                }
                return true;
            }
        }
        false
    }
}

/// Response times in seconds of `count` requests, without the first tenth.
fn simulated(pool: &Pool, count: usize) -> Vec<f64> {
    let devices = pool.devices as usize;
    let mut all = Simulation {
        pool: *pool,
        random: StdRng::seed_from_u64(17),
        next: BinaryHeap::new(),
        free: pool.workers,
        waiting: VecDeque::new(),
        lines: vec![VecDeque::new(); devices],
        busy: vec![0; devices],
        devices: Vec::new(),
    };
    let (mut now, mut arrivals) = (0, Vec::new());
    for request in 0..count {
        now += all.exponential(1.0 / pool.rate);
        arrivals.push(now);
        all.push(now, Event::Arrives, request);
        let is_hit = all.random.random::<f64>() < pool.hits;
        let device = all.random.random_range(0..devices);
        all.devices.push((!is_hit).then_some(device));
    }
    let mut responses = vec![0.0; count];
    while let Some(Reverse((now, event, request))) = all.next.pop() {
        if all.happen(now, event, request) {
            responses[request] = (now - arrivals[request]) as f64 * 1e-9;
        }
    }
    responses.split_off(count / 10)
}

#[test]
fn responses_are_those_of_a_simulated_pool() {
    let hits = Pool { rate: 250.0, workers: 4, hits: 0.7, memory_s: 0.001, ..LINE };
    let disks = Pool {
        rate: 150.0,
        workers: 6,
        delay_s: 0.001,
        devices: 4,
        servers: 1,
        work_s: 0.01,
        ..LINE
    };
    let pools = [
        LINE,
        Pool { workers: 8, ..LINE },
        // Fewer workers than servers, which are those then.
        Pool { rate: 50.0, workers: 2, servers: 8, ..LINE },
        Pool { delay_s: 0.005, ..LINE },
        Pool { rate: 30.0, delay_s: 0.05, ..LINE },
        hits,
        Pool { rate: 280.0, workers: 12, ..hits },
        disks,
        Pool { rate: 400.0, workers: 12, hits: 0.5, memory_s: 0.002, ..disks },
    ];
    for pool in pools {
        let responses = simulated(&pool, 150_000);
        let node = node(&pool, Some(pool.workers));
        let mean = responses.iter().sum::<f64>() / responses.len() as f64;
        let at = node.operating(pool.rate).unwrap();
        let off = at.response_mean / mean - 1.0;
        assert!(off.abs() < 0.08, "{pool:?}: {} of {mean}", at.response_mean);
        for t in [0.01, 0.02, 0.05, 0.1, 0.2] {
            let share =
                responses.iter().filter(|r| **r <= t).count() as f64 / responses.len() as f64;
            let found = node.cdf(pool.rate, &[t]).unwrap()[0];
            assert!((found - share).abs() < 0.045, "{pool:?} {t}: {found} of {share}");
        }
    }
}

#[test]
fn workers_before_a_single_queue_change_nothing_while_they_are_as_many_as_its_servers() {
    for workers in [2, 3, 5, 100] {
        let (with, without) = (node(&LINE, Some(workers)), node(&LINE, None));
        for t in [0.01, 0.05, 0.2] {
            let [a, b] = [&with, &without].map(|node| node.cdf(80.0, &[t]).unwrap()[0]);
            assert!((a - b).abs() < 1e-3, "{workers} {t}: {a} {b}");
        }
        let (saturation, limit) = with.breaks_first().unwrap();
        assert!((saturation - 100.0).abs() < 0.1 && limit == Limit::Devices, "{saturation}");
    }
    // One worker is one server.
    let one = node(&LINE, Some(1));
    let queue = Mmm::new(40.0, 50.0, 1).unwrap();
    assert!(
        (one.operating(40.0).unwrap().response_mean / queue.response_mean() - 1.0).abs() < 1e-3
    );
    assert!((one.saturation() - 50.0).abs() < 0.01);
    assert!(matches!(one.operating(51.0), Err(Error::Unstable { .. })));
}

/// By the definition of the convolution, and by the throughputs of closed networks, which `crate::network` solves.
#[test]
fn weights_are_those_of_closed_networks() {
    use crate::network::{Class, Network, Station};
    let pool = Pool { rate: 40.0, hits: 0.4, memory_s: 0.003, delay_s: 0.004, devices: 2, ..LINE };
    let node = node(&pool, None);
    let at = node.operating(pool.rate).unwrap();
    let reads = node.reads(&at);
    let besides = node.held_besides(&at, reads.service);
    let weights = node.weights(9, &at, besides);
    for n in [1u32, 2, 5, 9] {
        let stations = (0..2).map(|i| Station::servers(&i.to_string(), 2).unwrap()).collect();
        let demands = [reads.service * 0.3; 2];
        let class = Class::closed("requests", n, besides, &demands).unwrap();
        let exact = Network::new(stations, vec![class]).unwrap().solve().unwrap();
        let found = pool.rate * weights[n as usize - 1] / weights[n as usize];
        let exact = exact.classes[0].throughput;
        assert!((found / exact - 1.0).abs() < 1e-6, "{n}: {found} {exact}");
    }
}
