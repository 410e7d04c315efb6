//! Clients, servers with shared processors, and antagonists, in virtual time.
//!
//! A server's requests share its cores equally, at most one core each. Its cores are a guaranteed number,
//! more while antagonists leave some spare, and a little less while they do not. Requests past their
//! deadline are errors and leave. Replies and probes take no time, but a probe's reply is known only to
//! the *next* request of its client, as with asynchronous probes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use engine::route::{Load, LoadReport, Pool, PoolSettings, Probe, Speed, SplitMix64, c3_score};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1, StandardNormal};
use serde::Deserialize;

/// What is simulated: a section of `config.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setting {
    pub clients: usize,
    pub servers: usize,
    /// Guaranteed cores of a server.
    pub cores: f64,
    /// Mean (before the cut at 0) and standard deviation of a request's work.
    pub work_ms: f64,
    pub deadline_s: f64,
    /// Share of the time without spare cores.
    pub contended: f64,
    /// The least part of the guarantee that a server then has.
    pub isolation_min: f64,
    /// The most spare cores, as a multiple of the guarantee.
    pub spare_max: f64,
    /// Mean time until antagonists change.
    pub antagonists_s: f64,
    pub loads: Vec<f64>,
}

/// How a client chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Round robin. Weights by processor time for each request would be equal: requests are alike.
    RoundRobin,
    /// The fewest requests of this client.
    LeastLoaded,
    C3,
    Prequal,
    /// What gateways do: the smallest expected response, by [`Load`], of three servers, those of a request's key. They ping
    /// every server ten times a second, and servers report their lengths and speeds.
    Gateways,
    /// The same, but each client learns each server's speed from its own replies alone.
    Learnt,
}

impl Policy {
    pub const ALL: [Policy; 6] = [
        Policy::RoundRobin,
        Policy::LeastLoaded,
        Policy::C3,
        Policy::Prequal,
        Policy::Gateways,
        Policy::Learnt,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Policy::RoundRobin => "round robin",
            Policy::LeastLoaded => "least loaded",
            Policy::C3 => "C3",
            Policy::Prequal => "Prequal",
            Policy::Gateways => "gateways",
            Policy::Learnt => "gateways without reported speeds",
        }
    }
}

/// What came of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    pub requests: u64,
    pub errors: u64,
    pub p50_s: f64,
    /// Errors count as the deadline.
    pub p99_s: f64,
}

/// Probes for each request.
const PROBES: usize = 3;
/// Servers of a key, and the time between two pings of a server by a client: `cluster.replicas`, `gateway.ping_s`.
const REPLICAS: usize = 3;
const PING_S: f64 = 0.1;
/// Weight of the newest in C3's averages.
const C3_SMOOTHING: f64 = 0.1;
/// Latencies that a server remembers for each number in flight, and for how long: antagonists change.
const REMEMBERED: usize = 20;
const REMEMBERED_S: f64 = 5.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive,
    /// The next departure of a server, if its version is still this.
    Depart {
        server: usize,
        version: u64,
    },
    Antagonists {
        server: usize,
    },
    /// A client pings all servers.
    Ping {
        client: usize,
    },
    Deadline {
        server: usize,
        job: u64,
    },
}

#[derive(Clone, Debug)]
struct Job {
    id: u64,
    client: usize,
    /// Value of the server's progress at which it ends.
    ends_at: f64,
    arrived_s: f64,
    /// Requests in flight that it met.
    met: usize,
    work_s: f64,
}

/// A server.
struct Server {
    cores: f64,
    jobs: Vec<Job>,
    /// Work that each present job has got since the start.
    progress: f64,
    at_s: f64,
    version: u64,
    /// Latest latencies by number in flight met, each with its time.
    latencies: BTreeMap<usize, VecDeque<(f64, f64)>>,
    /// Response per unit of length.
    speed: Speed,
}

impl Server {
    fn rate(&self) -> f64 {
        (self.cores / self.jobs.len().max(1) as f64).min(1.0)
    }

    fn advance(&mut self, now_s: f64) {
        self.progress += self.rate() * (now_s - self.at_s);
        self.at_s = now_s;
    }

    /// The job that ends next, and when.
    fn next(&self) -> Option<(usize, f64)> {
        let jobs = self.jobs.iter().enumerate();
        let (index, job) = jobs.min_by(|a, b| a.1.ends_at.total_cmp(&b.1.ends_at))?;
        Some((index, self.at_s + (job.ends_at - self.progress).max(0.0) / self.rate()))
    }

    /// Prequal's estimate: the median of recent latencies of requests that met about as many.
    fn latency_s(&self, now_s: f64) -> f64 {
        let now = self.jobs.len();
        let recent = |latest: &VecDeque<(f64, f64)>| -> Vec<f64> {
            let new = latest.iter().filter(|(at_s, _)| at_s + REMEMBERED_S > now_s);
            new.map(|(_, latency_s)| *latency_s).collect()
        };
        let near = self.latencies.range(now.saturating_sub(1)..=now + 1);
        let mut sorted: Vec<f64> = near.flat_map(|(_, latest)| recent(latest)).collect();
        if sorted.is_empty() {
            let known = |(number, latest): (&usize, &VecDeque<(f64, f64)>)| {
                let of = recent(latest);
                (!of.is_empty()).then(|| (number.abs_diff(now), of))
            };
            let nearest = self.latencies.iter().filter_map(known).min_by_key(|of| of.0);
            sorted = nearest.map_or_else(Vec::new, |of| of.1);
        }
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }
}

/// What a client knows of a server, by C3.
#[derive(Clone, Copy, Debug, Default)]
struct ServerEstimate {
    response_s: f64,
    service_s: f64,
    queue: f64,
    outstanding: f64,
}

struct Client {
    turn: usize,
    known: Vec<ServerEstimate>,
    loads: Vec<Load>,
    pool: Pool,
}

/// The simulation.
struct World<'a> {
    setting: &'a Setting,
    policy: Policy,
    servers: Vec<Server>,
    clients: Vec<Client>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    random: SmallRng,
    draws: SmallRng,
    choices: SplitMix64,
    next_job: u64,
    responses: Vec<f64>,
    errors: u64,
    counted_from_s: f64,
}

fn nanos(s: f64) -> u64 {
    (s * 1e9) as u64
}

/// Mean of a normal law of mean and deviation 1, cut at 0 by drawing again.
const CUT_MEAN: f64 = 1.287_599_970;

/// Runs a policy at a load, a share of the guaranteed cores.
pub(super) fn run(
    setting: &Setting,
    policy: Policy,
    load: f64,
    warm_s: f64,
    measured_s: f64,
    seed: u64,
) -> Outcome {
    let client = |index: usize| Client {
        turn: index * 7919 % setting.servers,
        known: vec![ServerEstimate::default(); setting.servers],
        loads: match policy {
            Policy::Gateways | Policy::Learnt => vec![Load::new(0); setting.servers],
            _ => Vec::new(),
        },
        pool: Pool::new(PoolSettings {
            uses: PoolSettings::reuse(16, setting.servers, PROBES as f64, 1.0),
            ..PoolSettings::default()
        }),
    };
    let server = |_| Server {
        cores: setting.cores,
        jobs: Vec::new(),
        progress: 0.0,
        at_s: 0.0,
        version: 0,
        latencies: BTreeMap::new(),
        speed: Speed::default(),
    };
    let mut world = World {
        setting,
        policy,
        servers: (0..setting.servers).map(server).collect(),
        clients: (0..setting.clients).map(client).collect(),
        events: BinaryHeap::new(),
        sequence: 0,
        // Arrivals, works and antagonists are the same under every policy.
        random: SmallRng::seed_from_u64(seed),
        draws: SmallRng::seed_from_u64(seed ^ 0x5eed),
        choices: SplitMix64::new(seed),
        next_job: 0,
        responses: Vec::new(),
        errors: 0,
        counted_from_s: warm_s,
    };
    let mean_s = setting.work_ms * 1e-3 * CUT_MEAN;
    let rate = load * setting.cores * setting.servers as f64 / mean_s;
    world.schedule(0.0, Event::Arrive);
    (0..setting.servers).for_each(|server| world.schedule(0.0, Event::Antagonists { server }));
    if matches!(policy, Policy::Gateways | Policy::Learnt) {
        // Not all at once, as processes that started at different times.
        let first = |client: usize| PING_S * client as f64 / setting.clients as f64;
        (0..setting.clients)
            .for_each(|client| world.schedule(first(client), Event::Ping { client }));
    }
    world.go(rate, warm_s + measured_s);
    let mut sorted = world.responses;
    sorted.sort_by(f64::total_cmp);
    let at = |p: f64| sorted.get((p * sorted.len() as f64) as usize).copied().unwrap_or(f64::NAN);
    let (p50_s, p99_s) = (at(0.5), at(0.99));
    Outcome { requests: sorted.len() as u64, errors: world.errors, p50_s, p99_s }
}

impl World<'_> {
    fn schedule(&mut self, s: f64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((nanos(s), self.sequence, event)));
    }

    fn go(&mut self, rate: f64, until_s: f64) {
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            let now_s = time as f64 * 1e-9;
            if now_s > until_s {
                return;
            }
            match event {
                Event::Arrive => {
                    let gap: f64 = Exp1.sample(&mut self.random);
                    self.schedule(now_s + gap / rate, Event::Arrive);
                    self.arrive(now_s);
                }
                Event::Depart { server, version } => self.depart(now_s, server, version),
                Event::Antagonists { server } => self.antagonists(now_s, server),
                Event::Deadline { server, job } => self.expire(now_s, server, job),
                Event::Ping { client } => self.ping(now_s, client),
            }
        }
    }

    fn arrive(&mut self, now_s: f64) {
        let work_s = loop {
            let normal: f64 = StandardNormal.sample(&mut self.random);
            let work_ms = self.setting.work_ms * (1.0 + normal);
            if work_ms > 0.0 {
                break work_ms * 1e-3;
            }
        };
        let client = self.random.random_range(0..self.clients.len());
        let server = self.choose(now_s, client);
        self.clients[client].known[server].outstanding += 1.0;
        if let Some(load) = self.clients[client].loads.get_mut(server) {
            load.send();
        }
        let id = self.next_job;
        self.next_job += 1;
        let on = &mut self.servers[server];
        on.advance(now_s);
        let (ends_at, met) = (on.progress + work_s, on.jobs.len());
        on.jobs.push(Job { id, client, ends_at, arrived_s: now_s, met, work_s });
        self.schedule(now_s + self.setting.deadline_s, Event::Deadline { server, job: id });
        self.plan(server);
        self.probe(now_s, client);
    }

    /// Sends a client's probes; what they say counts from its next request on.
    fn probe(&mut self, now_s: f64, client: usize) {
        if self.policy != Policy::Prequal {
            return;
        }
        for _ in 0..PROBES {
            let node = self.choices.below(self.servers.len());
            let server = &self.servers[node];
            let (in_flight, latency_s) = (server.jobs.len() as f64, server.latency_s(now_s));
            self.clients[client].pool.add(nanos(now_s), Probe { node, in_flight, latency_s });
        }
    }

    /// A client's pings, and the next ones. The way takes no time here.
    fn ping(&mut self, now_s: f64, client: usize) {
        let now = nanos(now_s);
        let reports_speed = self.policy == Policy::Gateways;
        for (load, server) in self.clients[client].loads.iter_mut().zip(&self.servers) {
            let speed = server.speed.response_per_length(now).filter(|_| reports_speed);
            let length = server.jobs.len() as u32;
            load.pong(now, LoadReport { length, response_per_length: speed }, 0);
        }
        self.schedule(now_s + PING_S, Event::Ping { client });
    }

    fn choose(&mut self, now_s: f64, client: usize) -> usize {
        let count = self.servers.len();
        let clients = self.clients.len() as f64;
        let of = &mut self.clients[client];
        // The first of equals would be the same for all clients.
        let from = self.choices.below(count);
        let least = |value: &dyn Fn(usize) -> f64| {
            let around = (0..count).map(|step| (from + step) % count);
            around.min_by(|&a, &b| value(a).total_cmp(&value(b))).unwrap_or(0)
        };
        match self.policy {
            Policy::RoundRobin => {
                of.turn = (of.turn + 1) % count;
                of.turn
            }
            Policy::LeastLoaded => least(&|node| of.known[node].outstanding),
            Policy::C3 => least(&|node| {
                let ServerEstimate { response_s, service_s, queue, outstanding } = of.known[node];
                c3_score(response_s, service_s, queue, outstanding, clients)
            }),
            Policy::Prequal => of.pool.choose(nanos(now_s)).unwrap_or(from),
            Policy::Gateways | Policy::Learnt => {
                // A key's servers: neighbours would share their other clients.
                let count = REPLICAS.min(count);
                let mut key = vec![from];
                while key.len() < count {
                    let node = self.choices.below(of.loads.len());
                    if !key.contains(&node) {
                        key.push(node);
                    }
                }
                let expected = |node: usize| of.loads[node].expected_s(nanos(now_s), 1e-3);
                let best = key.into_iter().min_by(|&a, &b| expected(a).total_cmp(&expected(b)));
                best.unwrap_or(from)
            }
        }
    }

    /// Plans the next departure of a server after any change.
    fn plan(&mut self, server: usize) {
        let on = &mut self.servers[server];
        on.version += 1;
        let version = on.version;
        if let Some((_, at_s)) = on.next() {
            // Never before now: nanoseconds are cut.
            self.schedule(at_s + 1e-9, Event::Depart { server, version });
        }
    }

    fn depart(&mut self, now_s: f64, server: usize, version: u64) {
        let on = &mut self.servers[server];
        if on.version != version {
            return;
        }
        on.advance(now_s);
        let Some((index, _)) = on.next() else { return };
        let job = on.jobs.swap_remove(index);
        let response_s = now_s - job.arrived_s;
        let latencies = on.latencies.entry(job.met).or_default();
        if latencies.len() >= REMEMBERED {
            latencies.pop_front();
        }
        latencies.push_back((now_s, response_s));
        on.speed.respond(nanos(now_s), nanos(response_s), job.met as u32);
        let in_flight = on.jobs.len();
        self.tell_client(now_s, server, &job, response_s, in_flight);
        self.count(&job, response_s, false);
        self.plan(server);
    }

    /// Tells a client of a reply.
    fn tell_client(
        &mut self,
        now_s: f64,
        server: usize,
        job: &Job,
        response_s: f64,
        in_flight: usize,
    ) {
        let of = &mut self.clients[job.client];
        let known = &mut of.known[server];
        known.outstanding -= 1.0;
        let first = known.response_s == 0.0;
        let smooth =
            |old: f64, new: f64| if first { new } else { old + C3_SMOOTHING * (new - old) };
        known.response_s = smooth(known.response_s, response_s);
        known.service_s = smooth(known.service_s, job.work_s);
        known.queue = smooth(known.queue, in_flight as f64);
        if let Some(load) = of.loads.get_mut(server) {
            let now = nanos(now_s);
            load.leave();
            load.report(now, in_flight as u32);
            load.respond(now, nanos(response_s), job.met as f64);
        }
    }

    fn expire(&mut self, now_s: f64, server: usize, id: u64) {
        let on = &mut self.servers[server];
        let Some(index) = on.jobs.iter().position(|job| job.id == id) else { return };
        on.advance(now_s);
        let job = on.jobs.swap_remove(index);
        let in_flight = on.jobs.len();
        self.tell_client(now_s, server, &job, self.setting.deadline_s, in_flight);
        self.count(&job, self.setting.deadline_s, true);
        self.plan(server);
    }

    fn count(&mut self, job: &Job, response_s: f64, error: bool) {
        if job.arrived_s >= self.counted_from_s {
            self.responses.push(response_s);
            self.errors += u64::from(error);
        }
    }

    fn antagonists(&mut self, now_s: f64, server: usize) {
        let Setting { cores, contended, isolation_min, spare_max, antagonists_s, .. } =
            *self.setting;
        let share: f64 = self.draws.random();
        let part: f64 = self.draws.random();
        let on = &mut self.servers[server];
        on.advance(now_s);
        on.cores = cores
            * if share < contended {
                isolation_min + (1.0 - isolation_min) * part
            } else {
                1.0 + spare_max * part
            };
        let gap: f64 = Exp1.sample(&mut self.draws);
        self.schedule(now_s + gap * antagonists_s, Event::Antagonists { server });
        self.plan(server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_core() -> Setting {
        Setting {
            clients: 3,
            servers: 1,
            cores: 1.0,
            work_ms: 4.0,
            deadline_s: 5.0,
            contended: 0.0,
            isolation_min: 1.0,
            spare_max: 0.0,
            antagonists_s: 20.0,
            loads: vec![],
        }
    }

    #[test]
    fn one_shared_core_is_an_m_g_1_with_processor_sharing() {
        // The mean response of M/G/1-PS is that of M/M/1, whatever the law of work.
        let setting = one_core();
        let mut world = run(&setting, Policy::RoundRobin, 0.5, 10.0, 400.0, 3);
        assert!(world.requests > 30_000 && world.errors == 0, "{world:?}");
        let mean_s = 0.004 * CUT_MEAN / 0.5;
        // The median of processor sharing is below the mean; bounds, not a law.
        assert!(world.p50_s > 0.3 * mean_s && world.p50_s < mean_s, "{world:?}");
        world = run(&setting, Policy::RoundRobin, 1.2, 10.0, 60.0, 3);
        assert!(world.errors > 0, "overloaded: {world:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_figures() {
        let setting = Setting { servers: 4, ..one_core() };
        for policy in Policy::ALL {
            let figures = || {
                let outcome = run(&setting, policy, 0.7, 2.0, 10.0, 9);
                (outcome.requests, outcome.p99_s.to_bits())
            };
            assert_eq!(figures(), figures(), "{policy:?}");
        }
    }

    #[test]
    #[ignore = "minutes: figures of the published policies at 70 and 90 %"]
    fn figures_of_the_published_policies() {
        let setting = Setting {
            clients: 100,
            servers: 100,
            cores: 4.0,
            work_ms: 80.0,
            contended: 0.35,
            isolation_min: 0.85,
            spare_max: 4.0,
            ..one_core()
        };
        for load in [0.7, 0.9] {
            for policy in [Policy::C3, Policy::Prequal, Policy::Gateways, Policy::Learnt] {
                let p99 = |seed| run(&setting, policy, load, 10.0, 20.0, seed).p99_s * 1e3;
                println!("{load}, {}: {:.0} and {:.0} ms", policy.name(), p99(1), p99(2));
            }
        }
    }
}
