//! Layers of the shards of a node, as [`engine::layers`] decides: what it observes, and what is done.
//!
//! One thread looks at all queues once an interval. Layers are dropped at once; those that are added are
//! swept by another, a shard after the other, and published when they are whole. Datasets that were given
//! a fixed number of bytes have layers for that, whatever their queues.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::layers::{Change, Manager, Settings, Shard as Observed, ShardId};
use serde::Serialize;
use shard::layers::{Array, Budget, Rates};
use tracing::{info, warn};

use super::Datasets;
use super::ask::part_of;
use super::station::Station;
use crate::clock;
use crate::dataset::part::Part;

/// Segments of a sweep between two looks at whether it is still wanted.
const SEGMENTS: usize = 16;

/// What a shard's layers are.
#[derive(Clone, Debug, Serialize)]
pub struct Held {
    /// Sampling rates of its layers of the suffix array.
    pub sa: Vec<u32>,
    /// Sampling rates of its layers of the inverse suffix array.
    pub isa: Vec<u32>,
    /// Bytes of its text layer.
    pub text_bytes: usize,
    /// Bytes of all of them.
    pub bytes: usize,
}

/// What a shard's layers are now.
pub fn held(part: &Part) -> Held {
    let footprint = part.shard().index().layers().footprint();
    Held {
        sa: footprint.sa.iter().map(|layer| layer.rate).collect(),
        isa: footprint.isa.iter().map(|layer| layer.rate).collect(),
        text_bytes: footprint.text_bytes,
        bytes: footprint.total_bytes(),
    }
}

/// Layers that are being filled.
struct Filling {
    bytes: u64,
    cancelled: Arc<AtomicBool>,
}

struct Order {
    id: ShardId,
    name: String,
    part: Arc<Part>,
    rates: Rates,
    cancelled: Arc<AtomicBool>,
}

struct State {
    manager: Manager,
    /// A number for each queue's name.
    ids: HashMap<String, ShardId>,
    next_id: ShardId,
    filling: HashMap<ShardId, Filling>,
    /// What was done last, in words, the newest last.
    changes: Vec<String>,
}

/// Changes that are remembered.
const CHANGES_MAX: usize = 32;

/// The manager of the layers of a process.
pub struct Layers {
    state: Mutex<State>,
    interval: Duration,
    stopping: AtomicBool,
}

/// Its threads.
pub struct Running {
    layers: Arc<Layers>,
    threads: Vec<JoinHandle<()>>,
}

struct Candidate {
    id: ShardId,
    station: Arc<Station>,
    part: Arc<Part>,
    /// Bytes of layers that it is to have, if that is fixed.
    fixed_bytes: Option<u64>,
}

impl Layers {
    /// A manager that has seen nothing yet.
    ///
    /// # Errors
    ///
    /// Settings that cannot hold.
    pub fn new(settings: Settings) -> anyhow::Result<Arc<Layers>> {
        let interval = Duration::from_nanos(settings.interval);
        let state = State {
            manager: Manager::new(settings)?,
            ids: HashMap::new(),
            next_id: 0,
            filling: HashMap::new(),
            changes: Vec::new(),
        };
        Ok(Arc::new(Layers {
            state: Mutex::new(state),
            interval,
            stopping: AtomicBool::new(false),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that the layers of all shards may take.
    pub fn budget_bytes(&self) -> u64 {
        self.lock().manager.settings().budget_bytes
    }

    /// The average length of a queue.
    pub fn average(&self, station: &Station) -> Option<f64> {
        let state = self.lock();
        state.manager.average(*state.ids.get(station.name())?)
    }

    /// What was done last, and why.
    pub fn changes(&self) -> Vec<String> {
        self.lock().changes.clone()
    }

    /// Starts its threads.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started.
    pub fn start(self: &Arc<Layers>, datasets: &Arc<Datasets>) -> anyhow::Result<Running> {
        let (orders, receive) = mpsc::channel::<Order>();
        let (watcher, sweeper) = (self.clone(), self.clone());
        let datasets = datasets.clone();
        let watch =
            std::thread::Builder::new().name("layers/watch".to_owned()).spawn(move || {
                while !watcher.stopping.load(Ordering::Relaxed) {
                    watcher.look(&datasets, &orders);
                    std::thread::sleep(watcher.interval);
                }
            })?;
        let sweep =
            std::thread::Builder::new().name("layers/sweep".to_owned()).spawn(move || {
                // Queries come first. Where that is not allowed, both have their share.
                if let Err(error) = rustix::process::nice(10) {
                    warn!("the sweeper of layers keeps its priority: {error}");
                }
                for order in receive {
                    sweeper.sweep(&order);
                }
            })?;
        Ok(Running { layers: self.clone(), threads: vec![watch, sweep] })
    }

    /// One interval.
    fn look(&self, datasets: &Datasets, orders: &mpsc::Sender<Order>) {
        let mut state = self.lock();
        let mut candidates = Vec::new();
        for served in datasets.all() {
            let Some(view) = served.view() else { continue };
            let all: u64 = view.dataset.parts().iter().map(|p| p.entry().input_bytes).sum();
            for part in view.dataset.parts() {
                let name = part_of(&part.entry().file);
                let Some(station) = view.stations.get(name).cloned() else { continue };
                let share = part.entry().input_bytes as f64 / all.max(1) as f64;
                let fixed_bytes = served.fixed_bytes().map(|bytes| (bytes as f64 * share) as u64);
                let id = state.id_of(station.name());
                candidates.push(Candidate { id, station, part: part.clone(), fixed_bytes });
            }
        }
        let State { ids, filling, .. } = &mut *state;
        ids.retain(|_, id| candidates.iter().any(|c| c.id == *id));
        filling.retain(|id, filling| {
            let there = candidates.iter().any(|c| c.id == *id);
            if !there {
                filling.cancelled.store(true, Ordering::Relaxed);
            }
            there
        });
        let mut managed = Vec::new();
        for candidate in &candidates {
            match candidate.fixed_bytes {
                Some(bytes) => state.keep(candidate, bytes, orders),
                None => managed.push(state.observed(candidate)),
            }
        }
        for change in state.manager.observe(clock::now(), &managed) {
            if let Some(candidate) = candidates.iter().find(|c| c.id == change.shard()) {
                state.carry_out(candidate, &change, orders);
            }
        }
    }

    fn sweep(&self, order: &Order) {
        let index = order.part.shard().index();
        let layers = index.layers();
        let stopped =
            || order.cancelled.load(Ordering::Relaxed) || self.stopping.load(Ordering::Relaxed);
        let swept = layers.sweep(&order.rates).and_then(|mut sweep| {
            while !stopped() {
                if sweep.step(index, SEGMENTS).is_finished() {
                    return layers.publish(sweep).map(|()| true);
                }
            }
            Ok(false)
        });
        match swept {
            Ok(true) => info!(
                "{} has layers of the rates {:?} and {:?} more",
                order.name, order.rates.sa, order.rates.isa
            ),
            Ok(false) => {}
            Err(error) => warn!("{} gets no layer: {error}", order.name),
        }
        let mut state = self.lock();
        let same = |filling: &Filling| Arc::ptr_eq(&filling.cancelled, &order.cancelled);
        if state.filling.get(&order.id).is_some_and(same) {
            state.filling.remove(&order.id);
        }
    }
}

impl State {
    fn id_of(&mut self, name: &str) -> ShardId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        self.next_id += 1;
        self.ids.insert(name.to_owned(), self.next_id);
        self.next_id
    }

    fn observed(&self, candidate: &Candidate) -> Observed {
        let layers = candidate.part.shard().index().layers();
        let footprint = layers.footprint();
        let filling = self.filling.get(&candidate.id);
        let (rates, bytes) = layers.next_rates();
        let lowest = footprint.sa.last().into_iter().chain(footprint.isa.last());
        let lowest: usize = lowest.map(|layer| layer.bytes).sum();
        let lowest_bytes = match filling {
            Some(filling) => Some(filling.bytes),
            None => (lowest > 0).then_some(lowest as u64),
        };
        Observed {
            id: candidate.id,
            queue_length: f64::from(candidate.station.length()),
            held_bytes: footprint.total_bytes() as u64 + filling.map_or(0, |f| f.bytes),
            next_bytes: (filling.is_none() && !rates.is_empty()).then_some(bytes as u64),
            lowest_bytes,
            growing: filling.is_some(),
        }
    }

    fn carry_out(&mut self, candidate: &Candidate, change: &Change, orders: &mpsc::Sender<Order>) {
        let name = candidate.station.name();
        let said = match change {
            Change::Grow { bytes, why, .. } => {
                let (rates, _) = candidate.part.shard().index().layers().next_rates();
                self.fill(candidate, rates, *bytes, orders);
                format!("{name} grows by {bytes} bytes: {why}")
            }
            Change::Fold { bytes, why, .. } => {
                if let Some(filling) = self.filling.remove(&candidate.id) {
                    filling.cancelled.store(true, Ordering::Relaxed);
                } else {
                    let layers = candidate.part.shard().index().layers();
                    for array in [Array::Sa, Array::Isa] {
                        drop(layers.drop_lowest(array));
                    }
                }
                format!("{name} folds by {bytes} bytes: {why}")
            }
        };
        info!("{said}");
        if self.changes.len() >= CHANGES_MAX {
            self.changes.remove(0);
        }
        self.changes.push(said);
    }

    /// Leads to the layers that `bytes` hold, half of them for each array.
    fn keep(&mut self, candidate: &Candidate, bytes: u64, orders: &mpsc::Sender<Order>) {
        if self.filling.contains_key(&candidate.id) {
            return;
        }
        let half = usize::try_from(bytes / 2).unwrap_or(usize::MAX);
        let budget = Budget { sa_bytes: half, isa_bytes: half, text_bytes: 0 };
        let layers = candidate.part.shard().index().layers();
        let changes = layers.changes(&budget);
        for (count, array) in [(changes.drop_sa, Array::Sa), (changes.drop_isa, Array::Isa)] {
            for _ in 0..count {
                drop(layers.drop_lowest(array));
            }
        }
        if !changes.add.is_empty() {
            self.fill(candidate, changes.add, bytes, orders);
        }
    }

    fn fill(
        &mut self,
        candidate: &Candidate,
        rates: Rates,
        bytes: u64,
        orders: &mpsc::Sender<Order>,
    ) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let filling = Filling { bytes, cancelled: cancelled.clone() };
        self.filling.insert(candidate.id, filling);
        let (id, name) = (candidate.id, candidate.station.name().to_owned());
        let order = Order { id, name, part: candidate.part.clone(), rates, cancelled };
        if orders.send(order).is_err() {
            self.filling.remove(&candidate.id);
        }
    }
}

impl Running {
    /// Ends its threads. A sweep that is under way is given up.
    pub fn stop(self) {
        self.layers.stopping.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}
