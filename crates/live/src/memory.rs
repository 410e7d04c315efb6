//! The memory that objects and layers of a node share: the driver of [`engine::budget`].
//!
//! A thread of its own asks the node what its memory tier is used for, takes what the layers' watch thread
//! last reported, and resizes the memory tier. The watch thread fetches the layers' limit when it looks at its
//! shards ([`Memory::exchange`]): what it reports and the limit that it gets change hands at once, so that
//! the engine always knows of the limit that is in force.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::act::{Effect, Knob, Proposal, Status};
use engine::budget::{Divider, Layers, Move, Objects, Party, Settings};
use engine::node::MemoryUse;
use engine::status::MemoryDivision;
use ground::window::{Nanos, SECOND};
use origin::Size;
use record::clock;

use super::error::Error;
use super::{Controls, LiveModel};

/// The name of the budget in the journal.
const TARGET: &str = "memory";
/// The memory tier gives up its bytes in pieces of this size: requests are served in between.
const PIECE_BYTES: u64 = 1 << 20;
/// Weight of the newest interval in the averages that are shown and that changes are judged by.
const SMOOTHING: f64 = 0.2;

/// The budget of a node, and who has its bytes.
pub struct Memory {
    state: Mutex<State>,
    live: Arc<LiveModel>,
    interval: Duration,
}

struct State {
    divider: Divider,
    /// What the layers reported last.
    layers: Layers,
    /// Seconds of service per second of the shards.
    shards_busy: f64,
    /// The node's counts at the last look.
    before: Option<(Nanos, MemoryUse)>,
    /// Seconds of service per second of retrievals and shards, averaged.
    service: f64,
    held_bytes: u64,
}

/// The threads of a [`Memory`], running.
pub struct Running {
    stopping: Arc<(Mutex<bool>, Condvar)>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Memory {
    /// A budget that objects have the least bytes of.
    pub fn new(settings: Settings, live: Arc<LiveModel>) -> Arc<Memory> {
        let interval = Duration::from_nanos(settings.interval);
        let state = State {
            divider: Divider::new(settings),
            layers: Layers::default(),
            shards_busy: 0.0,
            before: None,
            service: 0.0,
            held_bytes: 0,
        };
        Arc::new(Memory { state: Mutex::new(state), live, interval })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is half changed between two statements that may panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the layers hold and lack, and returns their limit, which is in force from now on.
    /// `shards_busy` are the seconds of service per second of all shards.
    pub fn exchange(&self, layers: Layers, shards_busy: f64) -> u64 {
        let mut state = self.lock();
        let bytes_max = state.divider.layers_bytes();
        state.layers = Layers { bytes_max, ..layers };
        state.shards_busy = shards_busy;
        bytes_max
    }

    /// Who has the bytes.
    pub fn division(&self) -> MemoryDivision {
        let state = self.lock();
        let divider = &state.divider;
        let (objects, layers) = (divider.objects_bytes(), divider.layers_bytes());
        let bytes_max = divider.settings().bytes_max;
        MemoryDivision {
            bytes_max,
            objects_bytes_max: objects,
            objects_bytes: state.held_bytes,
            layers_bytes_max: layers,
            layers_bytes: state.layers.held_bytes,
            free_bytes: bytes_max.saturating_sub(objects.saturating_add(layers)),
            moved_bytes: divider.moved_bytes(),
            moving: divider.moving().cloned(),
            objects_saved_s: divider.saved_s(objects),
            service_s: state.service,
        }
    }

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(self: &Arc<Memory>, node: &Arc<dyn Controls>) -> Result<Running, Error> {
        node.sample_reuse();
        let (memory, node) = (self.clone(), node.clone());
        let stopping = Arc::new((Mutex::new(false), Condvar::new()));
        let (stop, stopped) = (stopping.clone(), Arc::new(AtomicBool::new(false)));
        let ended = stopped.clone();
        let thread = std::thread::Builder::new().name("memory".to_owned());
        let thread = thread.spawn(move || {
            let (is_stopping, told) = &*stop;
            loop {
                let guard = is_stopping.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = told.wait_timeout_while(guard, memory.interval, |stop| !*stop);
                if waited.map_or_else(|error| *error.into_inner().0, |(stop, _)| *stop) {
                    return;
                }
                memory.look(&node, &ended);
            }
        });
        let thread = thread.map_err(|source| Error::Thread { name: "memory", source })?;
        Ok(Running { stopping, stopped, thread: Some(thread) })
    }

    /// One decision: what both hold is compared, and the memory tier gets its limit.
    fn look(&self, node: &Arc<dyn Controls>, stopped: &AtomicBool) {
        let now = clock::now();
        let sizes = self.lock().divider.sizes();
        let Some(found) = node.memory_use(&sizes) else { return };
        let (proposed, objects_max) = {
            let mut state = self.lock();
            let objects = state.objects(now, &found);
            let layers = state.layers.clone();
            let proposed = state.divider.observe(now, &objects, &layers);
            self.live.note(TARGET, state.service);
            (proposed.map(|of| (proposal(&of, state.service), of)), state.divider.objects_bytes())
        };
        if let Some((proposal, of)) = proposed {
            let made = self.live.propose(&proposal) == Some(Status::Made);
            let divider = &mut self.lock().divider;
            if made { divider.begin(now, of) } else { divider.refuse(now) }
        }
        resize(node, found.held_bytes, found.bytes_max, objects_max, stopped);
    }
}

/// Gives the memory tier its limit: a smaller one in pieces.
fn resize(node: &Arc<dyn Controls>, held: u64, before: u64, bytes_max: u64, stopped: &AtomicBool) {
    let mut bytes = before.min(held);
    while bytes > bytes_max && !stopped.load(Ordering::Relaxed) {
        bytes = bytes.saturating_sub(PIECE_BYTES).max(bytes_max);
        node.clone().set_memory_bytes(bytes);
    }
    if bytes <= bytes_max && before != bytes_max {
        node.clone().set_memory_bytes(bytes_max);
    }
}

impl State {
    /// What the memory tier holds and saves, from its counts now and at the last look.
    fn objects(&mut self, now: Nanos, found: &MemoryUse) -> Objects {
        self.held_bytes = found.held_bytes;
        let before = self.before.replace((now, found.clone()));
        let (since, before) = before.unwrap_or_else(|| (now, found.clone()));
        let seconds = now.saturating_sub(since) as f64 / SECOND as f64;
        let per_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let reads = per_second(found.reads.saturating_sub(before.reads) as f64);
        let retrieved = per_second(found.retrieved_s - before.retrieved_s);
        self.service += SMOOTHING * (retrieved + self.shards_busy - self.service);
        let saved_s = found.hit_ratios.iter().map(|ratio| reads * ratio * found.saved_s).collect();
        Objects { held_bytes: found.held_bytes, bytes_max: found.bytes_max, saved_s }
    }
}

/// A move as a proposal.
fn proposal(of: &Move, service: f64) -> Proposal {
    let bytes = Size(of.bytes);
    let change = match of.to {
        Party::Free => format!("takes {bytes} back from {}", of.from),
        to => format!("moves {bytes} from {} to {to}", of.from),
    };
    Proposal {
        knob: Knob::Memory,
        target: TARGET.to_owned(),
        kind: format!("{} to {}", of.from, of.to),
        change,
        reason: of.to_string(),
        expected: Effect {
            quantity: "service of retrievals and shards, s/s".to_owned(),
            before: service,
            after: (service - of.gain_s + of.loss_s).max(0.0),
        },
        must: false,
    }
}

impl Running {
    /// Stops the thread.
    pub fn stop(mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        *self.stopping.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopping.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
