//! Layers of the shards of a node, as [`engine::layers`] decides: what it observes, and what is done.
//!
//! One thread looks at all queues once an interval. Layers are dropped at once; those that are added are
//! made by another, a shard after the other, and published when they are whole. Datasets that were given
//! a fixed number of bytes have layers for that, whatever their queues.
//!
//! A step of memory is a pair, one layer more of the suffix array and one of its inverse, or the text layer:
//! the cheapest that there is not comes first, the dearest that there is goes first.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::layers::{Change, Manager, Settings, Shard as Observed, ShardId};
use serde::Serialize;
use shard::layers::{Array, Budget, Footprint, Layers as OfShard, Rates, TextBuild, TextOptions};
use shard::{Error, Text};
use tracing::{info, warn};

use super::Datasets;
use super::ask::part_of;
use super::station::Station;
use dataset::part::Part;
use record::clock;

/// Segments of a sweep between two looks at whether it is still wanted, and blocks of a text layer.
const SEGMENTS: usize = 16;
const BLOCKS: usize = 256;

/// What a text layer is expected to take of the text (`shard::layers` has what was measured), and how many
/// times as much it may turn out to be. Of a text that takes more it has the beginning.
const TEXT_SHARE: f64 = 0.3;
const TEXT_EXCESS: f64 = 1.3;

/// A shard of fewer bytes gets no text layer: its records are read soon enough.
const TEXT_BYTES_MIN: usize = 256 << 10;

/// One step of memory.
#[derive(Clone, Debug)]
enum Step {
    /// A layer of each array.
    Pair(Rates),
    /// The text layer, of so many bytes at most.
    Text(u64),
}

/// What a shard's layers are.
#[derive(Clone, Debug, Serialize)]
pub struct Held {
    /// Sampling rates of its layers of the suffix array.
    pub sa: Vec<u32>,
    /// Sampling rates of its layers of the inverse suffix array.
    pub isa: Vec<u32>,
    /// Bytes of its text layer.
    pub text_bytes: usize,
    /// Bytes of the text that this has, from the first on.
    pub text_covered_bytes: usize,
    /// Bytes of all of them.
    pub bytes: usize,
}

/// What a shard's layers are now.
pub fn held(part: &Part) -> Held {
    let layers = part.shard().index().layers();
    let footprint = layers.footprint();
    Held {
        sa: footprint.sa.iter().map(|layer| layer.rate).collect(),
        isa: footprint.isa.iter().map(|layer| layer.rate).collect(),
        text_bytes: footprint.text_bytes,
        text_covered_bytes: layers.view().text_len(),
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
    step: Step,
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
                    sweeper.make(&order);
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

    /// Makes what was ordered, and publishes it.
    fn make(&self, order: &Order) {
        let made = match &order.step {
            Step::Pair(rates) => self.sweep(order, rates),
            Step::Text(bytes_max) => self.compress(order, *bytes_max),
        };
        match made {
            Ok(Some(what)) => info!("{} has {what} more", order.name),
            Ok(None) => {}
            Err(error) => warn!("{} gets no layer: {error}", order.name),
        }
        let mut state = self.lock();
        let same = |filling: &Filling| Arc::ptr_eq(&filling.cancelled, &order.cancelled);
        if state.filling.get(&order.id).is_some_and(same) {
            state.filling.remove(&order.id);
        }
    }

    fn is_off(&self, order: &Order) -> bool {
        order.cancelled.load(Ordering::Relaxed) || self.stopping.load(Ordering::Relaxed)
    }

    /// What was published; `None` if it was given up.
    fn sweep(&self, order: &Order, rates: &Rates) -> Result<Option<String>, Error> {
        let index = order.part.shard().index();
        let mut sweep = index.layers().sweep(rates)?;
        while !self.is_off(order) {
            if sweep.step(index, SEGMENTS).is_finished() {
                index.layers().publish(sweep)?;
                return Ok(Some(format!("layers of the rates {:?} and {:?}", rates.sa, rates.isa)));
            }
        }
        Ok(None)
    }

    /// The same of a text layer.
    fn compress(&self, order: &Order, bytes_max: u64) -> Result<Option<String>, Error> {
        let index = order.part.shard().index();
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let mut build = TextBuild::new(index, TextOptions { bytes_max, ..TextOptions::default() })?;
        while !self.is_off(order) {
            if build.step(index, BLOCKS)?.is_finished() {
                index.layers().publish_text(build)?;
                let bytes = index.layers().footprint().text_bytes;
                return Ok(Some(format!("a text layer of {bytes} bytes")));
            }
        }
        Ok(None)
    }
}

/// Bytes that a text layer will take, by guess; `None` if the shard is too small for one.
fn text_guess(part: &Part) -> Option<u64> {
    let len = part.shard().index().len();
    (len >= TEXT_BYTES_MIN).then_some((len as f64 * TEXT_SHARE) as u64)
}

/// The pair that was added last, or the text layer: the dearer one, and its bytes.
fn dearest(footprint: &Footprint) -> (bool, u64) {
    let lowest = footprint.sa.last().into_iter().chain(footprint.isa.last());
    let pair: usize = lowest.map(|layer| layer.bytes).sum();
    (footprint.text_bytes > pair, footprint.text_bytes.max(pair) as u64)
}

/// Drops the lowest layer of each array, so often.
fn drop_lowest(layers: &OfShard, sa: usize, isa: usize) {
    for (count, array) in [(sa, Array::Sa), (isa, Array::Isa)] {
        for _ in 0..count {
            drop(layers.drop_lowest(array));
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

    /// The cheapest step that a shard does not have yet, and its bytes.
    fn next(candidate: &Candidate) -> Option<(Step, u64)> {
        let layers = candidate.part.shard().index().layers();
        let (rates, bytes) = layers.next_rates();
        let pair = (!rates.is_empty()).then_some((Step::Pair(rates), bytes as u64));
        let most = |guess: u64| (guess as f64 * TEXT_EXCESS) as u64;
        let text = text_guess(&candidate.part)
            .filter(|_| layers.footprint().text_bytes == 0)
            .map(|guess| (Step::Text(most(guess)), most(guess)));
        pair.into_iter().chain(text).min_by_key(|(_, bytes)| *bytes)
    }

    fn observed(&self, candidate: &Candidate) -> Observed {
        let footprint = candidate.part.shard().index().layers().footprint();
        let filling = self.filling.get(&candidate.id);
        let next = if filling.is_none() { Self::next(candidate) } else { None };
        let lowest_bytes = match filling {
            Some(filling) => Some(filling.bytes),
            None => Some(dearest(&footprint).1).filter(|bytes| *bytes > 0),
        };
        Observed {
            id: candidate.id,
            queue_length: f64::from(candidate.station.length()),
            held_bytes: footprint.total_bytes() as u64 + filling.map_or(0, |f| f.bytes),
            next_bytes: next.map(|(_, bytes)| bytes),
            lowest_bytes,
            growing: filling.is_some(),
        }
    }

    fn carry_out(&mut self, candidate: &Candidate, change: &Change, orders: &mpsc::Sender<Order>) {
        let name = candidate.station.name();
        let said = match change {
            Change::Grow { bytes, why, .. } => {
                if let Some((step, _)) = Self::next(candidate) {
                    self.fill(candidate, step, *bytes, orders);
                }
                format!("{name} grows by {bytes} bytes: {why}")
            }
            Change::Fold { bytes, why, .. } => {
                let layers = candidate.part.shard().index().layers();
                if let Some(filling) = self.filling.remove(&candidate.id) {
                    filling.cancelled.store(true, Ordering::Relaxed);
                } else if dearest(&layers.footprint()).0 {
                    drop(layers.drop_text());
                } else {
                    drop_lowest(layers, 1, 1);
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

    /// Leads to the layers that `bytes` hold: of the text if half of them are enough, and for each array half
    /// of what is left. A text layer stays until it takes three quarters of them: making one takes long, and a
    /// shard's share of a dataset's bytes falls as others come. One of a part of the text is made anew for twice its bytes.
    fn keep(&mut self, candidate: &Candidate, bytes: u64, orders: &mpsc::Sender<Order>) {
        if self.filling.contains_key(&candidate.id) {
            return;
        }
        let layers = candidate.part.shard().index().layers();
        let text = layers.footprint().text_bytes as u64;
        let text = if text <= bytes / 4 * 3 { text } else { 0 };
        let is_whole = layers.view().text_len() == candidate.part.shard().index().len();
        let is_less = text == 0 || (!is_whole && text <= bytes / 4);
        let guess = text_guess(&candidate.part).filter(|guess| is_less && *guess <= bytes / 2);
        let for_text = if guess.is_some() { bytes / 2 } else { text };
        let half = usize::try_from((bytes - for_text) / 2).unwrap_or(usize::MAX);
        let text_bytes = usize::try_from(for_text).unwrap_or(usize::MAX);
        let changes = layers.changes(&Budget { sa_bytes: half, isa_bytes: half, text_bytes });
        drop_lowest(layers, changes.drop_sa, changes.drop_isa);
        if changes.drop_text {
            drop(layers.drop_text());
        }
        // A sweep takes a fraction of the time of a text layer, and helps searches too.
        if !changes.add.is_empty() {
            self.fill(candidate, Step::Pair(changes.add), bytes - for_text, orders);
        } else if let Some(guess) = guess {
            self.fill(candidate, Step::Text(bytes / 2), guess, orders);
        }
    }

    fn fill(
        &mut self,
        candidate: &Candidate,
        step: Step,
        bytes: u64,
        orders: &mpsc::Sender<Order>,
    ) {
        let cancelled = Arc::new(AtomicBool::new(false));
        let filling = Filling { bytes, cancelled: cancelled.clone() };
        self.filling.insert(candidate.id, filling);
        let (id, name) = (candidate.id, candidate.station.name().to_owned());
        let order = Order { id, name, part: candidate.part.clone(), step, cancelled };
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
