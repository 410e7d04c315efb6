//! The loop of a process: its live model, and the changes that the process makes by itself.
//!
//! The observing thread passes the windows of all queues to [`LiveModel::push`]. A separate thread of low
//! priority feeds them to [`model::live`], fits when a fit is due, and publishes the predictions
//! ([`LiveModel::shown`]). Requests never wait for this thread. If it falls behind, windows are dropped and
//! counted.
//!
//! Every part that makes changes by itself calls [`LiveModel::propose`] first: [`engine::act`] decides, and
//! the journal records the decision. These parts are the layer manager (`datasets::layers`), `bounds`, `hot` (copies on hot
//! devices), `memory` (the division of memory between objects and layers), and a gateway's bound of requests
//! (`gateway::knobs`).
//!
//! What was predicted and measured over a day is kept for the page (`history`), and the model that was fitted last answers
//! what-if questions (`what_if`).
//!
//! A gateway has no devices. Its nodes report the windows of theirs (`told`), so that its model covers them.

mod bounds;
mod controls;
mod copy_state;
mod error;
mod history;
mod hot;
pub mod http;
mod journal;
pub mod memory;
mod metrics;
mod told;
mod what_if;

pub use controls::Controls;
pub use error::Error;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use engine::act::{Entry, Governor, Knob, Mode, NotDecided, Proposal, Status, Verdict};
use engine::status::ModelReport;
use ground::window::{Nanos, QueueName, Window};
use model::live::{FittedModel, Live, Station};
use record::clock;
use tracing::{info, warn};

use configuration::Config;
use copy_state::CopyState;
use history::History;
use journal::Journal;
use told::HEARD_MAX;
pub use told::{DeviceWindows, PATH as WINDOWS_PATH, WindowIntake};

/// Intervals that wait for the thread; one more is dropped. A fit takes less than a second.
const WAITING_MAX: usize = 64;
/// Why an operator cannot have a weight changed where members are in the configuration.
const WEIGHTS_FIXED: &str = "the members are in the configuration: write the weight that is advised into member.N.weight of \
                             every process's file, and start them again";
/// Weight of the newest window in a queue's average length.
const SMOOTHING: f64 = 0.3;

/// The governor, and the file of its journal.
struct Acting {
    governor: Governor,
    journal: Option<Journal>,
    unix_offset_ns: i128,
}

/// The loop of a process.
pub struct LiveModel {
    shown: Mutex<Arc<ModelReport>>,
    lengths: Mutex<HashMap<String, f64>>,
    acting: Mutex<Acting>,
    windows: Mutex<Option<SyncSender<Vec<Window>>>>,
    stopping: AtomicBool,
    dropped: AtomicU64,
    node: Mutex<Option<Weak<dyn Controls>>>,
    /// Bytes of the layers of each shard.
    footprints: Mutex<BTreeMap<String, u64>>,
    objective_s: f64,
    /// The bounds last proposed for the devices' queues.
    bounds: Mutex<HashMap<usize, u32>>,
    /// The windows of this node's devices, for gateways.
    recent: Mutex<told::Recent>,
    /// Windows of nodes' devices that a gateway was told of since the last interval.
    heard: Mutex<Vec<Window>>,
    /// Figures of targets that are not queues of this process, for judging changes.
    noted: Mutex<HashMap<String, f64>>,
    /// Whether the node's engine copies to hot devices, and whether it may.
    copies: Mutex<CopyState>,
    /// Why an operator cannot have a weight changed here; `None`: it can be.
    weights_fixed: Option<&'static str>,
    /// The share of the objective.
    objective_share: f64,
    /// The model that was fitted last, for what-if questions.
    fitted: Mutex<Option<FittedModel>>,
    /// What was predicted and measured over a day.
    history: Mutex<History>,
    what_ifs: what_if::WhatIfs,
}

/// The lock of a mutex that no panic leaves half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LiveModel {
    /// Opens the journal and starts the thread, if the configuration has a live model.
    ///
    /// # Errors
    ///
    /// If the journal cannot be opened, or the thread not be started.
    pub fn start(config: &Config, unix_offset_ns: i128) -> Result<Arc<LiveModel>, Error> {
        let act = &config.act;
        let mut governor = Governor::new(act.settings());
        let journal = match &act.journal {
            None => None,
            Some(path) => {
                let (journal, lines) = Journal::open(path, act.journal_bytes_max.0)?;
                governor.restore(lines);
                Some(journal)
            }
        };
        if governor.is_held() {
            warn!("changes are held, as they were before: `concertina resume` releases them");
        }
        let this = Arc::new(LiveModel {
            shown: Mutex::default(),
            lengths: Mutex::default(),
            acting: Mutex::new(Acting { governor, journal, unix_offset_ns }),
            windows: Mutex::new(None),
            stopping: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            node: Mutex::default(),
            footprints: Mutex::default(),
            objective_s: config.model.objective_ms * 1e-3,
            bounds: Mutex::default(),
            recent: Mutex::new(told::Recent::new(config.is_node() && config.is_clustered())),
            heard: Mutex::default(),
            noted: Mutex::default(),
            copies: Mutex::default(),
            weights_fixed: (!config.is_in_etcd()).then_some(WEIGHTS_FIXED),
            objective_share: config.model.share,
            fitted: Mutex::default(),
            history: Mutex::new(History::new()),
            what_ifs: what_if::WhatIfs::default(),
        });
        if config.model.live {
            let live = Live::new(config.model.settings())?;
            lock(&this.shown).clone_from(&Arc::new(ModelReport {
                model: live.state().clone(),
                ..ModelReport::default()
            }));
            let (sender, receiver) = sync_channel(WAITING_MAX);
            let (of, cost_max) = (Arc::downgrade(&this), config.model.cost_max);
            let thread = std::thread::Builder::new().name("live".to_owned());
            let started = thread.spawn(move || run(&of, live, &receiver, cost_max));
            started.map_err(|source| Error::Thread { name: "live", source })?;
            *lock(&this.windows) = Some(sender);
        }
        Ok(this)
    }

    /// Ends the thread, without waiting for a fit under way: at a low priority on a loaded machine that takes seconds. The
    /// thread then ends after the fit, and shows, changes and writes nothing more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        drop(lock(&self.windows).take());
        // Decisions hold this lock, so after it was free nothing more is written.
        drop(lock(&self.acting));
    }

    /// The node that is changed.
    pub fn set_node(&self, node: &Arc<dyn Controls>) {
        *lock(&self.node) = Some(Arc::downgrade(node));
        self.set_copying();
    }

    /// The node that is changed; `None` before [`set_node`](Self::set_node), in a process without a node, and at the end.
    fn node(&self) -> Option<Arc<dyn Controls>> {
        lock(&self.node).as_ref()?.upgrade()
    }

    /// Takes the windows of an interval, of all queues. Never waits.
    pub fn push(&self, windows: &[Window]) {
        if windows.is_empty() {
            return;
        }
        {
            let mut lengths = lock(&self.lengths);
            for window in windows {
                let now = window.length_mean();
                let average = lengths.entry(window.queue.clone()).or_insert(now);
                *average += SMOOTHING * (now - *average);
            }
        }
        lock(&self.recent).keep(windows);
        let mut windows = windows.to_vec();
        windows.append(&mut lock(&self.heard));
        if let Some(sender) = &*lock(&self.windows)
            && let Err(TrySendError::Full(_)) = sender.try_send(windows)
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes the bytes of the layers of each shard, by its queue. Shards that are not among them are gone, and with them what is known of
    /// their queues: a seal or a compaction makes a shard with a name of its own.
    pub fn set_footprints(&self, footprints: BTreeMap<String, u64>) {
        lock(&self.lengths)
            .retain(|queue, _| !QueueName::is_shard(queue) || footprints.contains_key(queue));
        *lock(&self.footprints) = footprints;
    }

    /// Notes the figures of all shards of the cluster, by their queues, that changes are judged by. Those that are not among them are gone.
    pub fn note_shards(&self, figures: BTreeMap<String, f64>) {
        let mut noted = lock(&self.noted);
        noted.retain(|target, _| !QueueName::is_shard(target));
        noted.extend(figures);
    }

    /// Notes a figure of a target that changes are judged by.
    pub fn note(&self, target: &str, value: f64) {
        lock(&self.noted).insert(target.to_owned(), value);
    }

    /// The newest predictions.
    pub fn report(&self) -> Arc<ModelReport> {
        lock(&self.shown).clone()
    }

    /// The objective.
    fn objective(&self) -> what_if::Objective {
        what_if::Objective { within_s: self.objective_s, share: self.objective_share }
    }

    /// The prediction for a queue, and the share of the objective; `None` while advice is withheld.
    pub fn advised(&self, queue: &str) -> Option<(Station, f64)> {
        let shown = self.report();
        if shown.model.withheld.is_some() {
            return None;
        }
        let found = shown.model.stations.iter().find(|station| station.queue == queue)?;
        Some((found.clone(), shown.model.share))
    }

    /// Asks whether to make a change, and writes the decision to the journal. The caller makes the change
    /// if the decision is [`Status::Made`]. After [`LiveModel::stop`] every change is refused.
    pub fn propose(&self, proposal: &Proposal) -> Option<Status> {
        let now = clock::now();
        let mut acting = lock(&self.acting);
        if self.stopping.load(Ordering::Acquire) {
            return None;
        }
        let unix_us = acting.unix_us(now);
        let status = acting.governor.propose(now, unix_us, proposal);
        // The log says if it fails: the decision stands.
        let _ = acting.write();
        if let Some(status) = &status {
            let Proposal { target, change, reason, .. } = proposal;
            info!("{target}: {change}: {reason} ({status})");
        }
        status
    }

    /// Takes an operator's decision on an entry of the journal: a change that is approved is made when the part of the process that
    /// proposed it proposes it again.
    ///
    /// # Errors
    ///
    /// If there is nothing to decide, or the change cannot be made here.
    pub fn decide(&self, id: u64, verdict: Verdict) -> Result<(), NotDecidedHere> {
        let now = clock::now();
        let mut acting = lock(&self.acting);
        let fixed = self.weights_fixed.filter(|_| {
            let mut entries = acting.governor.entries();
            let of_weights = entries.any(|entry| entry.id == id && entry.knob == Knob::Weights);
            of_weights && verdict == Verdict::Apply
        });
        if let Some(why) = fixed {
            return Err(NotDecidedHere::Fixed(why));
        }
        let unix_us = acting.unix_us(now);
        acting.governor.decide(now, unix_us, id, verdict).map_err(NotDecidedHere::Refused)?;
        // The log says if it fails: the decision stands.
        let _ = acting.write();
        let what = if verdict == Verdict::Apply { "approved" } else { "dismissed" };
        info!("entry {id} of the journal is {what} by an operator");
        Ok(())
    }

    /// Switches the kill switch.
    ///
    /// # Errors
    ///
    /// If the journal's file could not be written: the switch is as it was told, and a restart would forget it.
    pub fn hold(&self, on: bool) -> std::io::Result<()> {
        let mut acting = lock(&self.acting);
        let unix_us = acting.unix_us(clock::now());
        acting.governor.hold(unix_us, on);
        let written = acting.write();
        drop(acting);
        if on {
            self.end_ordered_copying();
        }
        self.set_copying();
        info!("{}", if on { "all changes are held" } else { "changes are made again" });
        written
    }

    /// Whether changes of a knob are made at present.
    pub fn makes(&self, knob: Knob) -> bool {
        let acting = lock(&self.acting);
        !acting.governor.is_held() && acting.governor.settings().modes.mode_of(knob) == Mode::Auto
    }

    /// Whether the kill switch is on.
    pub fn is_held(&self) -> bool {
        lock(&self.acting).governor.is_held()
    }

    /// Whether the kill switch is on, and the journal, oldest first.
    pub fn journal(&self) -> (bool, Vec<Entry>) {
        let acting = lock(&self.acting);
        (acting.governor.is_held(), acting.governor.entries().cloned().collect())
    }

    /// Adds the newest interval to the history, and after a fit what it predicts.
    fn note_interval(&self, live: &Live, is_fitted: bool) {
        if let Some(newest) = live.newest() {
            lock(&self.history).push(&newest);
        }
        if is_fitted {
            lock(&self.history).expect(live.state());
            lock(&self.fitted).clone_from(&live.fitted().cloned());
        }
    }

    /// Notes the realised effects of changes made a while ago.
    fn judge(&self) {
        let now = clock::now();
        let mut acting = lock(&self.acting);
        if self.stopping.load(Ordering::Acquire) {
            return;
        }
        let unix_us = acting.unix_us(now);
        acting.governor.expire(now, unix_us);
        while let Some((id, knob, target)) = acting.governor.due(now) {
            let value = match knob {
                Knob::Layers => lock(&self.lengths).get(&target).copied(),
                Knob::Bounds => self.longest_wait_s(&target),
                Knob::Concurrency | Knob::Memory | Knob::Hot | Knob::Weights | Knob::Replicas => {
                    lock(&self.noted).get(&target).copied()
                }
            };
            acting.governor.realise(id, value.unwrap_or(f64::NAN));
        }
        // The log says if it fails: the decision stands.
        let _ = acting.write();
    }

    /// The reply to a gateway: the windows of this node's devices.
    pub fn device_windows(&self) -> DeviceWindows {
        lock(&self.recent).reply()
    }

    /// Adds a node's reply; `now_unix_us` is the end of an interval by this process's clock.
    pub fn hear(
        &self,
        heard: &mut WindowIntake,
        node: &str,
        told: DeviceWindows,
        now_unix_us: u64,
    ) {
        let news = heard.news(node, told, now_unix_us);
        let mut waiting = lock(&self.heard);
        let room = HEARD_MAX.saturating_sub(waiting.len());
        waiting.extend(news.into_iter().take(room));
    }
}

/// Why an operator's decision on a change is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDecidedHere {
    /// The journal refuses it.
    Refused(NotDecided),
    /// The change cannot be made by this process, for this reason.
    Fixed(&'static str),
}

impl std::fmt::Display for NotDecidedHere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotDecidedHere::Refused(why) => why.fmt(f),
            NotDecidedHere::Fixed(why) => f.write_str(why),
        }
    }
}

impl Acting {
    fn unix_us(&self, now: Nanos) -> u64 {
        ((i128::from(now) + self.unix_offset_ns) / 1000).max(0) as u64
    }

    /// Writes what is new into the journal's file, if there is one. The log says if that fails.
    fn write(&mut self) -> std::io::Result<()> {
        let lines = self.governor.take_lines();
        self.journal.as_mut().map_or(Ok(()), |journal| journal.append(&lines))
    }
}

/// The loop, unless it was stopped.
fn running(of: &Weak<LiveModel>) -> Option<Arc<LiveModel>> {
    of.upgrade().filter(|this| !this.stopping.load(Ordering::Acquire))
}

/// Processor time of this thread, seconds.
fn thread_time_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// The thread: until the sender is gone, or the loop is stopped. It holds the loop only between fits.
fn run(of: &Weak<LiveModel>, mut live: Live, receiver: &Receiver<Vec<Window>>, cost_max: f64) {
    // Requests have priority. If lowering the priority fails, they share the processor.
    let _ = rustix::process::nice(10);
    while let Ok(windows) = receiver.recv() {
        if running(of).is_none() {
            return;
        }
        for change in live.push(windows) {
            info!("{change}");
        }
        let is_due = live.is_due();
        if is_due {
            let before = thread_time_s();
            live.refit();
            live.not_before((thread_time_s() - before) / cost_max);
        }
        let Some(this) = running(of) else { return };
        this.note_interval(&live, is_due);
        let dropped = this.dropped.load(Ordering::Relaxed);
        let model = live.state().clone();
        let shown =
            ModelReport { model, cost_s: thread_time_s(), dropped, ..ModelReport::default() };
        *lock(&this.shown) = Arc::new(shown);
        this.look_at_bounds();
        this.look_at_hot();
        this.judge();
    }
}
