//! The speed of the simulator on one core, by the number of nodes: requests per second of processor time, and memory.
//!
//!     cargo bench -p engine --bench simulator [-- NODES…]
//!
//! With 1 node also M/M/3 and a node with drawn hits, and with 1,000 a cluster of them.
//!
//! Each case is a cluster as `concertina simulate` makes it from its defaults: three replicas, one gateway in front of several
//! nodes, leases of half a second, windows of one second. The load of all nodes together is the same in each case, or 50
//! requests/s for each node, so that what is done for every node at every moment shows as fewer requests a second.

use std::sync::Arc;

use engine::node::{ClusterSettings, DeviceSettings, OriginSettings, TierSettings};
use engine::route::{Member, NodeId, Ring};
use engine::sim::drawn::{self, DrawnCluster, Hits};
use engine::sim::{
    Arrivals, Clients, DeviceFaults, Law, Network, Origin, Popularity, Settings, Simulation,
};
use engine::tier::Eviction;
use engine::{gateway, node};
use ground::window::{self, Nanos, Outcome, SECOND};

/// Distinct keys; each has an object of 4 KiB.
const KEYS: u32 = 100_000;
/// Part of the objects that fit in the memory of all nodes together.
const IN_MEMORY: f64 = 0.1;
/// Part of the time that a device is busy if half of the requests miss memory.
const UTILISATION: f64 = 0.5;

/// A cluster and its load.
struct Case {
    nodes: usize,
    /// Requests/s of all clients.
    rate: f64,
    /// Virtual time, seconds.
    seconds: u64,
}

impl Case {
    fn settings(&self) -> Settings {
        let member = |i: usize| Member::new(format!("node-{i:04}"), 1.0);
        let ring = Ring::new((0..self.nodes).map(member).collect(), 3.min(self.nodes));
        let ring = Arc::new(ring.expect("the names differ"));
        let service = Law::exponential(UTILISATION * self.nodes as f64 / (self.rate * 0.5));
        let gateway = gateway::Settings::new(ring.clone());
        Settings {
            seed: 1,
            nodes: (0..self.nodes).map(|me| self.node(&ring, me)).collect(),
            devices: vec![vec![service]; self.nodes],
            gateways: if self.nodes > 1 { vec![gateway] } else { Vec::new() },
            ring,
            clients: Clients {
                rate: self.rate,
                course: None,
                until: self.seconds * SECOND,
                keys: KEYS,
                popularity: Popularity::Zipf(0.99),
                write_share: 0.0,
                delete_share: 0.0,
                bytes: (4096, 4096),
                deadline: Nanos::MAX / 4,
                any_node: 0.0,
            },
            network: Network { delay: Law::constant(1e-4), ..Network::default() },
            origin: Origin::default(),
            membership: None,
            device_faults: DeviceFaults::default(),
            clocks: Vec::new(),
            faults: Vec::new(),
            breakage: None,
            check: false,
            windows: window::Settings::default(),
        }
    }

    fn node(&self, ring: &Arc<Ring>, me: NodeId) -> node::Settings {
        let device = DeviceSettings {
            name: "device/0".into(),
            outcome: Outcome::BulkDevice,
            servers: 1,
            queue_length_max: 1_000_000,
            bytes_max: 1 << 40,
            segment_bytes: 1 << 30,
            segments_max: 0,
            piece_bytes: 0,
            servers_max: 0,
        };
        let memory = f64::from(KEYS) * 4300.0 * IN_MEMORY / self.nodes as f64;
        node::Settings {
            memory_bytes_max: memory as u64,
            eviction: Eviction::default(),
            object_bytes_max: 1 << 20,
            revalidate: None,
            stale_if_error: 0,
            devices: vec![device],
            tiers: TierSettings::default(),
            origin: OriginSettings { servers: 16, queue_length_max: 1 << 20 },
            appends_bytes_max: 1 << 40,
            writes_waiting_max: 1000,
            cluster: (self.nodes > 1).then(|| ClusterSettings {
                ring: ring.clone(),
                me,
                lease: SECOND / 2,
                view_lag: 0,
                peers: OriginSettings { servers: 64, queue_length_max: 1024 },
                replicate_bytes_per_s: 10 << 20,
                warm_bytes_per_s: 0,
                hot_load_min: 0.0,
            }),
            windows: window::Settings::default(),
        }
    }

    fn measure(&self) {
        let begun_s = processor_s();
        let mut simulation = Simulation::new(self.settings());
        simulation.preload(false);
        let made_s = processor_s() - begun_s;
        let begun_s = processor_s();
        let mut windows = 0;
        for second in 1..=self.seconds {
            simulation.run_to(second * SECOND);
            windows += simulation.windows(false).iter().map(Vec::len).sum::<usize>();
        }
        let run_s = processor_s() - begun_s;
        let counts = simulation.counts();
        let hits = counts.reads.get(&Outcome::Memory).copied().unwrap_or(0);
        println!(
            "{:>5} nodes, {:>7.0}/s: {:>9.0} requests/s ({} requests in {run_s:.2} s, made in {made_s:.2} s; hit ratio {:.2}, \
             {windows} windows, {} MB at most)",
            self.nodes,
            self.rate,
            counts.requests as f64 / run_s,
            counts.requests,
            hits as f64 / counts.requests as f64,
            peak_mb(),
        );
    }
}

/// A cluster whose hits are drawn.
struct DrawnCase {
    nodes: usize,
    /// Requests/s of all clients.
    rate: f64,
    /// Share of reads from memory.
    memory: f64,
    /// Reads that a device serves in parallel, and how much of the time they are busy.
    servers: u32,
    utilisation: f64,
    requests: f64,
}

impl DrawnCase {
    fn measure(&self) {
        let member = |i: usize| Member::new(format!("node-{i:04}"), 1.0);
        let ring = Ring::new((0..self.nodes).map(member).collect(), 3.min(self.nodes));
        let reads = self.rate * (1.0 - self.memory) / self.nodes as f64;
        let device = drawn::DeviceSettings {
            name: "device/0".to_owned(),
            outcome: Outcome::BulkDevice,
            servers: self.servers,
            queue_length_max: 1_000_000,
            law: Law::exponential(self.utilisation * f64::from(self.servers) / reads),
            weight: 1.0,
        };
        let seconds = self.requests / self.rate;
        let windows = window::Settings {
            window_ns: ((seconds / 20.0).max(1.0) * SECOND as f64) as Nanos,
            ..window::Settings::default()
        };
        let settings = drawn::Settings {
            seed: 1,
            ring: Arc::new(ring.expect("the names differ")),
            devices: vec![device],
            origin: OriginSettings { servers: 16, queue_length_max: 1 << 20 },
            origin_half: Law::exponential(0.0025),
            hits: Hits { memory: self.memory, ..Hits::default() },
            memory: Law::constant(0.0),
            delay: Law::constant(0.0),
            arrivals: Arrivals::Poisson(self.rate),
            until: (seconds * SECOND as f64) as Nanos,
            write_share: 0.0,
            bytes: 4096,
            network: 100_000,
            gateways: 1,
            spread: gateway::Spread::Primary,
            policy: engine::route::Policy::default(),
            ping_interval: SECOND / 10,
            faults: Vec::new(),
            windows,
        };
        let end = settings.until + SECOND;
        let mut drawn = DrawnCluster::new(settings);
        let begun_s = processor_s();
        drawn.run_to(end);
        let windows = drawn.windows(true).iter().map(Vec::len).sum::<usize>();
        let run_s = processor_s() - begun_s;
        let requests = drawn.counts().requests;
        println!(
            "{:>5} nodes, {:>7.0}/s, drawn, {:.0} % from memory, {} servers {:.0} % busy: {:>9.0} requests/s ({requests} in \
             {run_s:.2} s, {windows} windows, {} MB at most)",
            self.nodes,
            self.rate,
            100.0 * self.memory,
            self.servers,
            100.0 * self.utilisation,
            requests as f64 / run_s,
            peak_mb(),
        );
    }
}

/// The time that this thread has run, seconds: what others do on the machine counts little.
#[allow(clippy::disallowed_methods, reason = "the speed of the simulator itself is measured")]
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) * 1e-9
}

/// The most memory that the process has had, MB; 0 where the system does not say it.
#[allow(clippy::disallowed_methods, reason = "the memory of the simulator itself is measured")]
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0)
        / 1024
}

fn main() {
    let only: Vec<usize> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let drawn = |nodes, rate, memory, servers, utilisation| {
        DrawnCase { nodes, rate, memory, servers, utilisation, requests: 5e6 }.measure();
    };
    for nodes in [1, 10, 100, 1000] {
        if !only.is_empty() && !only.contains(&nodes) {
            continue;
        }
        match nodes {
            1 => {
                drawn(1, 240.0, 0.0, 3, 0.8);
                drawn(1, 1000.0, 0.7, 1, 0.7);
            }
            1000 => drawn(1000, 50_000.0, 0.7, 1, 0.7),
            _ => {}
        }
        Case { nodes, rate: 5_000.0, seconds: 100 }.measure();
        Case { nodes, rate: 50.0 * nodes as f64, seconds: (500_000 / (50 * nodes)) as u64 }
            .measure();
    }
}
