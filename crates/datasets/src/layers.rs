//! Carries out the decisions of [`engine::layers`] on the shards of a node.
//!
//! The *watch* thread observes all queues once per interval and drops layers at once. A layer of an
//! array that is added is *marked*: it is there at once, and queries fill it with what they compute anyway. The
//! *worker*, a thread of low priority, makes it whole where a processor is idle (`worker`). Text layers it
//! builds one after the other, and publishes each when it is complete. [`Fill`] restricts this to one of the two.
//! A dataset with a fixed number of bytes gets layers of that size, whatever the lengths
//! of its queues.
//!
//! Memory grows and shrinks in steps. A step is one more layer of the suffix array, one more of its
//! inverse, or the text layer. Added is what saves most of the work that queries lately were, for each byte,
//! and dropped what saves least (`steps`).

mod room;
mod steps;
mod worker;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use configuration::Fill;
use engine::act::{Effect, Knob, Proposal, Status};
use engine::layers::fill::Filler;
use engine::layers::mix::Layer;
use engine::layers::{Change, Manager, Settings, Shard as Observed, ShardId, Why, relieved};
use ground::window::Nanos;
use serde::Serialize;
use shard::Text;
use shard::layers::{Array, Budget, Layers as OfShard};
use tracing::warn;

use super::ask::part_of;
use super::error::Result;
use super::leases::Copies;
use super::served::Served;
use super::station::Station;
use dataset::part::Part;
use live::LiveModel;
use live::memory::Memory;
use record::{IdleSampler, clock};
use steps::{Demand, Order, Step, drop_layer, held_bytes, text_guess};

/// The layers that a shard has.
#[derive(Clone, Debug, Serialize)]
pub struct LayerSummary {
    /// Sampling rates of its layers of the suffix array.
    pub sa: Vec<u32>,
    /// Sampling rates of its layers of the inverse suffix array.
    pub isa: Vec<u32>,
    /// Bytes of its text layer.
    pub text_bytes: usize,
    /// Bytes of the text that the text layer covers: the regions that were read most when it was made.
    pub text_covered_bytes: usize,
    /// Bytes of all layers together.
    pub bytes: usize,
    /// The part of the values of its layers of samples that are known; 1 without such layers.
    pub filled: f64,
}

/// The layers that a shard has now.
pub fn summary_of_layers(part: &Part) -> LayerSummary {
    let layers = part.shard().index().layers();
    let footprint = layers.footprint();
    let samples = || footprint.sa.iter().chain(&footprint.isa);
    let values: usize = samples().map(|layer| layer.values).sum();
    let known: usize = samples().map(|layer| layer.known).sum();
    LayerSummary {
        sa: footprint.sa.iter().map(|layer| layer.rate).collect(),
        isa: footprint.isa.iter().map(|layer| layer.rate).collect(),
        text_bytes: footprint.text_bytes,
        text_covered_bytes: layers.view().text_len(),
        bytes: footprint.total_bytes(),
        filled: if values > 0 { known as f64 / values as f64 } else { 1.0 },
    }
}

/// Layers under construction.
struct Filling {
    bytes: u64,
    cancelled: Arc<AtomicBool>,
}

struct State {
    manager: Manager,
    fill: Fill,
    /// The manager's id of each queue, by the queue's name.
    ids: HashMap<String, ShardId>,
    next_id: ShardId,
    filling: HashMap<ShardId, Filling>,
    /// Whose marked layers the worker fills, and the shards that have such.
    filler: Filler,
    marked: HashMap<ShardId, Arc<Part>>,
    /// Seconds that the worker spent on marked layers since the last look, and when that was.
    worked_s: f64,
    looked: Nanos,
    /// What queries asked of each shard.
    asked: HashMap<ShardId, Demand>,
    /// Descriptions of the latest changes, newest last.
    changes: Vec<String>,
    /// Bytes that layers and copies of shards may take together.
    total_bytes: u64,
    /// Bytes of that which nothing took at the last look, and copies since.
    room_bytes: u64,
    /// The shards that could be given a further layer at the last look, or were being given one.
    can_grow: HashSet<ShardId>,
}

/// Maximum number of changes remembered.
const CHANGES_MAX: usize = 32;

/// Manages the layers of all shards of a process.
pub struct Layers {
    state: Mutex<State>,
    /// What knows the load to come, and decides whether a change is made.
    live: Arc<LiveModel>,
    /// The budget, if objects share it.
    memory: OnceLock<Arc<Memory>>,
    /// Copies of shards, which take bytes of the same budget.
    copies: OnceLock<Arc<Copies>>,
    interval: Duration,
    stopping: AtomicBool,
}

/// The running threads of a [`Layers`].
pub struct Running {
    layers: Arc<Layers>,
    threads: Vec<JoinHandle<()>>,
}

struct Candidate {
    id: ShardId,
    station: Arc<Station>,
    part: Arc<Part>,
    /// Bytes of layers that the shard is to have, if that number is fixed.
    fixed_bytes: Option<u64>,
}

impl Layers {
    /// A manager without observations.
    ///
    /// # Errors
    ///
    /// If the settings are invalid.
    pub fn new(settings: Settings, fill: Fill, live: Arc<LiveModel>) -> Result<Arc<Layers>> {
        let interval = Duration::from_nanos(settings.interval);
        let total_bytes = settings.budget_bytes;
        let state = State {
            manager: Manager::new(settings)?,
            fill,
            ids: HashMap::new(),
            next_id: 0,
            filling: HashMap::new(),
            filler: Filler::default(),
            marked: HashMap::new(),
            worked_s: 0.0,
            looked: clock::now(),
            asked: HashMap::new(),
            changes: Vec::new(),
            total_bytes,
            room_bytes: 0,
            can_grow: HashSet::new(),
        };
        Ok(Arc::new(Layers {
            state: Mutex::new(state),
            live,
            memory: OnceLock::new(),
            copies: OnceLock::new(),
            interval,
            stopping: AtomicBool::new(false),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the layers share a budget with objects, before they are started.
    pub fn share(&self, memory: Arc<Memory>) {
        let _ = self.memory.set(memory);
    }

    /// Maximum bytes of the layers of all shards together.
    pub fn budget_bytes(&self) -> u64 {
        self.lock().manager.settings().budget_bytes
    }

    /// The exponentially averaged length of a queue; `None` before its first observation.
    pub fn average(&self, station: &Station) -> Option<f64> {
        let state = self.lock();
        state.manager.average(*state.ids.get(station.name())?)
    }

    /// Descriptions of the latest changes with their reasons, newest last.
    pub fn changes(&self) -> Vec<String> {
        self.lock().changes.clone()
    }

    /// Starts the watch thread, which looks at the datasets that `served` returns, and the worker.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started.
    pub fn start(
        self: &Arc<Layers>,
        served: impl Fn() -> Vec<Arc<Served>> + Send + 'static,
    ) -> Result<Running> {
        let (orders, receive) = mpsc::channel::<Order>();
        let (watcher, worker) = (self.clone(), self.clone());
        let watch =
            std::thread::Builder::new().name("layers/watch".to_owned()).spawn(move || {
                let mut idle = IdleSampler::start();
                while !watcher.stopping.load(Ordering::Relaxed) {
                    watcher.look_at_idle(idle.sample());
                    watcher.look(&served(), &orders);
                    std::thread::sleep(watcher.interval);
                }
            })?;
        let work =
            std::thread::Builder::new().name("layers/worker".to_owned()).spawn(move || {
                // Queries have priority. If lowering the priority fails, they share the processor.
                if let Err(error) = rustix::process::nice(10) {
                    warn!("cannot lower the priority of the thread that builds layers: {error}");
                }
                worker.work(&receive);
            })?;
        Ok(Running { layers: self.clone(), threads: vec![watch, work] })
    }

    /// Tells how many processors were idle since the last time.
    fn look_at_idle(&self, idle: Option<f64>) {
        let mut state = self.lock();
        let now = clock::now();
        let passed = now.saturating_sub(std::mem::replace(&mut state.looked, now));
        let worked_s = std::mem::take(&mut state.worked_s);
        state.filler.look(idle, worked_s / (passed.max(1) as f64 * 1e-9));
    }

    /// Observes all shards once, and starts or carries out what the manager decides.
    fn look(&self, all: &[Arc<Served>], orders: &mpsc::Sender<Order>) {
        let mut state = self.lock();
        let mut candidates = Vec::new();
        for served in all {
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
        let State { ids, filling, filler, marked, asked, .. } = &mut *state;
        let by_id: HashMap<ShardId, &Candidate> = candidates.iter().map(|c| (c.id, c)).collect();
        ids.retain(|_, id| by_id.contains_key(id));
        filler.retain(|id| by_id.contains_key(&id));
        marked.retain(|id, _| by_id.contains_key(id));
        asked.retain(|id, _| by_id.contains_key(id));
        filling.retain(|id, filling| {
            let there = by_id.contains_key(id);
            if !there {
                filling.cancelled.store(true, Ordering::Relaxed);
            }
            there
        });
        let now = clock::now();
        let mut managed = Vec::new();
        let mut footprints = BTreeMap::new();
        let all: Vec<Observed> = candidates.iter().map(|c| state.observed(c)).collect();
        let fixed_part = self.take_limit(&mut state, &candidates, &all);
        for (candidate, observed) in candidates.iter().zip(all) {
            footprints.insert(candidate.station.name().to_owned(), observed.held_bytes);
            let Some(bytes) = candidate.fixed_bytes else {
                self.tell(&mut state.manager, now, candidate, &observed);
                managed.push(observed);
                continue;
            };
            state.keep(candidate, (bytes as f64 * fixed_part) as u64, orders);
        }
        self.live.set_footprints(footprints);
        state.look_at_room(now, &managed, self.live.makes(Knob::Layers));
        for change in state.manager.observe(now, &managed) {
            let Some(&candidate) = by_id.get(&change.shard()) else { continue };
            let name = candidate.station.name();
            let average = state.manager.average(candidate.id).unwrap_or(0.0);
            let what = state.describe(candidate, &change);
            if self.live.propose(&proposal(name, &change, &what, average)) == Some(Status::Made) {
                state.carry_out(candidate, &change, orders);
            }
        }
    }

    /// Tells the manager how fast a shard was, and how long its queue is expected to be. Where the
    /// objective is expected to be missed, the queue counts as too long, whatever its length.
    fn tell(&self, manager: &mut Manager, now: Nanos, candidate: &Candidate, observed: &Observed) {
        let (count, busy_s) = candidate.station.take_served();
        manager.busy(candidate.id, busy_s);
        // What is served while a layer is being made is of neither footprint.
        if !observed.growing {
            manager.served(now, candidate.id, observed.held_bytes, count, busy_s);
        }
        let expected = self.live.advised(candidate.station.name()).map(|(station, share)| {
            let length = station.length_ahead.unwrap_or(f64::INFINITY);
            let missed = station.within_ahead.is_some_and(|within| within < share);
            if missed { length.max(manager.settings().high * 1.001) } else { length }
        });
        manager.expect(candidate.id, expected);
    }
}

/// A change as a proposal. A layer is expected to make a shard twice as fast; a fold beyond the budget is
/// made in any case.
fn proposal(name: &str, change: &Change, what: &str, average: f64) -> Proposal {
    let (kind, change_said, factor) = match change {
        Change::Grow { bytes, .. } => ("grow", format!("grows by {bytes} bytes ({what})"), 2.0),
        Change::Fold { bytes, .. } => ("fold", format!("folds by {bytes} bytes ({what})"), 0.5),
    };
    Proposal {
        knob: Knob::Layers,
        target: name.to_owned(),
        kind: kind.to_owned(),
        change: change_said,
        reason: change.why().to_string(),
        expected: Effect {
            quantity: "mean queue length".to_owned(),
            before: average,
            after: relieved(average, factor),
        },
        must: matches!(change.why(), Why::OverBudget { .. }),
    }
}

/// Drops the `sa` lowest layers of the suffix array and the `isa` lowest of its inverse.
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

    /// The step that a shard lacks and that saves most, and its bytes.
    fn next(&self, candidate: &Candidate) -> Option<(Step, u64)> {
        self.asked.get(&candidate.id)?.next(candidate.part.shard().index(), self.fill)
    }

    /// The layer that a shard drops first, and its bytes.
    fn first_dropped(&self, candidate: &Candidate) -> Option<(Layer, u64)> {
        self.asked.get(&candidate.id)?.first_dropped(candidate.part.shard().index(), self.fill)
    }

    /// Which layer a change adds or drops.
    fn describe(&self, candidate: &Candidate, change: &Change) -> String {
        let dropped = |(layer, _)| match layer {
            Layer::Sa(rate) => format!("SA rate {rate}"),
            Layer::Isa(rate) => format!("ISA rate {rate}"),
            Layer::Text { .. } => "text".to_owned(),
        };
        let what = match change {
            Change::Grow { .. } => self.next(candidate).map(|(step, _)| step.to_string()),
            Change::Fold { .. } if self.filling.contains_key(&candidate.id) => None,
            Change::Fold { .. } => self.first_dropped(candidate).map(dropped),
        };
        what.unwrap_or_else(|| "what is being filled".to_owned())
    }

    fn observed(&mut self, candidate: &Candidate) -> Observed {
        let index = candidate.part.shard().index();
        let filling = self.filling.get(&candidate.id);
        let asked = self.asked.entry(candidate.id).or_default();
        asked.look(clock::now(), index, filling.is_some());
        let held_bytes = held_bytes(&index.layers().footprint(), self.fill);
        let next = if filling.is_none() { self.next(candidate) } else { None };
        let lowest_bytes = match filling {
            Some(filling) => Some(filling.bytes),
            None => self.first_dropped(candidate).map(|(_, bytes)| bytes),
        };
        Observed {
            id: candidate.id,
            queue_length: candidate.station.take_length(clock::now()),
            held_bytes: held_bytes + filling.map_or(0, |f| f.bytes),
            next_bytes: next.map(|(_, bytes)| bytes),
            lowest_bytes,
            growing: filling.is_some() || self.filler.fills(candidate.id),
        }
    }

    fn carry_out(&mut self, candidate: &Candidate, change: &Change, orders: &mpsc::Sender<Order>) {
        let name = candidate.station.name();
        let said = match change {
            Change::Grow { bytes, why, .. } => {
                // Queries may have ended a layer meanwhile, so that the next one is larger than what was granted.
                let step = self.next(candidate).filter(|(_, needed)| needed <= bytes);
                if step.is_some() {
                    // Else a copy of a shard could be granted the same bytes before the next look.
                    self.room_bytes = self.room_bytes.saturating_sub(*bytes);
                }
                match step {
                    Some((Step::Arrays(rates), _)) if self.fill != Fill::Sweep => {
                        self.mark(candidate, &rates);
                    }
                    Some((step, _)) => self.build(candidate, step, *bytes, orders),
                    None => {}
                }
                format!("{name} grows by {bytes} bytes: {why}")
            }
            Change::Fold { bytes, why, .. } => {
                let layers = candidate.part.shard().index().layers();
                if let Some(filling) = self.filling.remove(&candidate.id) {
                    filling.cancelled.store(true, Ordering::Relaxed);
                } else if let Some((layer, _)) = self.first_dropped(candidate) {
                    drop_layer(layers, layer);
                }
                format!("{name} folds by {bytes} bytes: {why}")
            }
        };
        if self.changes.len() >= CHANGES_MAX {
            self.changes.remove(0);
        }
        self.changes.push(said);
    }

    /// Moves a shard towards the layers that fit in a fixed number of `bytes`: a text layer if half
    /// of `bytes` is enough for it, and half of the remainder for each array.
    ///
    /// An existing text layer is kept while it takes at most three quarters of `bytes`, because
    /// building one takes long and a shard's share of the dataset's bytes falls as shards are
    /// added. A text layer that covers only part of the text is rebuilt once twice its bytes are
    /// available.
    fn keep(&mut self, candidate: &Candidate, bytes: u64, orders: &mpsc::Sender<Order>) {
        if self.filling.contains_key(&candidate.id) {
            return;
        }
        let layers = candidate.part.shard().index().layers();
        let text = layers.footprint().text_bytes as u64;
        let text = if text <= bytes / 4 * 3 { text } else { 0 };
        let is_whole = layers.view().text_len() == candidate.part.shard().index().len();
        let is_less = text == 0 || (!is_whole && text <= bytes / 4);
        let guess = text_guess(candidate.part.shard().index())
            .filter(|guess| is_less && *guess <= bytes / 2);
        let for_text = if guess.is_some() { bytes / 2 } else { text };
        let half = usize::try_from((bytes - for_text) / 2).unwrap_or(usize::MAX);
        let text_bytes = usize::try_from(for_text).unwrap_or(usize::MAX);
        let changes = layers.changes(&Budget { sa_bytes: half, isa_bytes: half, text_bytes });
        drop_lowest(layers, changes.drop_sa, changes.drop_isa);
        if changes.drop_text {
            drop(layers.drop_text());
        }
        // Arrays first: a sweep takes a fraction of a text layer's time, and speeds up searches
        // too.
        if !changes.add.is_empty() {
            self.build(candidate, Step::Arrays(changes.add), bytes - for_text, orders);
        } else if let Some(guess) = guess {
            let index = candidate.part.shard().index();
            let asked = self.asked.get(&candidate.id);
            let of = |asked: &Demand| Step::Text(asked.all_text(index, bytes / 2));
            let step = asked.map_or_else(|| of(&Demand::default()), of);
            self.build(candidate, step, guess, orders);
        }
    }

    fn build(
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
    /// Stops the threads. A build in progress is abandoned.
    pub fn stop(self) {
        self.layers.stopping.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}
