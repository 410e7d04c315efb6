//! Drives the engine's node: passes events in, and carries out its actions on devices, the origin
//! and waiting requests.
//!
//! The node is behind one mutex, which is never held during input, output or an `await`. An event
//! holds it for 0.1 to 0.5 µs, so two cores hardly contend for it. (A node per core was rejected:
//! keys would have to be routed between cores, and misses would be coalesced only within a core.)
//! Waiting requests are behind the same mutex, because another thread may produce the answer before
//! the requesting thread has released the lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use engine::invariant::Invariants;
use engine::node::{
    Action, Asker, Checked, Contents, Event, Failure, FailureKind, Fetched, Hit, HotDirectory,
    Node, Part, PeerStatus, Reply, RequestId, RestoredSegment, Settings, Stages, Take, Warmed,
};
use engine::route::{LoadReport, NodeId};
use ground::Key;
use ground::window::{Nanos, Window};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::info;

use super::events::EventLog;
use super::handover::stage::Handover;
use super::peers::connections::Peers;
use device::disk::{DeviceFolder, Disks, EventSink, FoundOn, FoundSegment, Opened, side_by_side};
use device::object::Object;
use origin::{Error, Metadata, Origin, StoredObject};
use record::clock;
use store::origin_reads::{LargeObjects, collect};
use wire::traces::TraceParent;

/// The engine's answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// The reply, with the times of its stages.
    Reply(Reply<Object>, Stages),
    /// The write has its turn.
    Turn,
    /// A write has ended and every node of its key has taken note of it. `certain` says whether the
    /// write may be acknowledged.
    Done {
        /// Whether the write may be acknowledged.
        certain: bool,
    },
}

/// A read of an object.
pub struct Get {
    /// The object's key.
    pub key: Key,
    /// Who asks.
    pub asker: Asker,
    /// When nobody waits for it any more.
    pub deadline: Option<Nanos>,
    /// How an object that memory does not have is taken.
    pub take: Take,
    /// The place in a trace of what another node is asked for it.
    pub trace: Option<TraceParent>,
}

/// An answer that is ready, or one to wait for.
pub enum EngineAnswer {
    /// Ready.
    Now(Answer),
    /// Follows when a device, the origin or a peer has replied, or when the write's turn comes.
    Later(oneshot::Receiver<Answer>),
}

pub(super) struct State {
    pub(super) node: Node<Object>,
    waiters: HashMap<RequestId, oneshot::Sender<Answer>>,
    log: Option<EventLog>,
}

/// The node, with everything that its actions need.
pub struct Drive {
    state: Mutex<State>,
    disks: OnceLock<Disks>,
    origin: Arc<dyn Origin>,
    timeout: Duration,
    object_bytes_max: u64,
    next_request: AtomicU64,
    runtimes: OnceLock<Vec<Handle>>,
    next_runtime: AtomicUsize,
    peers: Option<Arc<Peers>>,
    /// What its fetches told lately of objects that are too large for it.
    pub large: LargeObjects,
    /// How far this node is that hands over.
    pub handover: Handover,
}

impl Drive {
    /// An empty node. Set its devices and runtimes before the first request.
    pub fn new(
        settings: Settings,
        origin: Arc<dyn Origin>,
        timeout: Duration,
        peers: Option<Arc<Peers>>,
        log: Option<EventLog>,
        now: Nanos,
    ) -> Drive {
        let object_bytes_max = settings.object_bytes_max;
        let node = Node::new(settings, now);
        Drive {
            state: Mutex::new(State { node, waiters: HashMap::new(), log }),
            disks: OnceLock::new(),
            origin,
            timeout,
            object_bytes_max,
            next_request: AtomicU64::new(0),
            runtimes: OnceLock::new(),
            next_runtime: AtomicUsize::new(0),
            peers,
            large: LargeObjects::default(),
            handover: Handover::default(),
        }
    }

    /// Starts the devices, and restores the segments found on them. Those that cannot be used are out.
    ///
    /// # Errors
    ///
    /// Those of [`Disks::start`].
    pub fn start_disks(
        self: &Arc<Self>,
        folders: &[DeviceFolder],
        devices: Opened,
    ) -> Result<(), device::Error> {
        let drive = Arc::downgrade(self);
        let told: EventSink = Arc::new(move |now, event| {
            if let Some(drive) = drive.upgrade() {
                drive.tell(now, event);
            }
        });
        let (disks, found) = Disks::start(folders, devices, told)?;
        self.restore(folders.len(), &found);
        let _ = self.disks.set(disks);
        Ok(())
    }

    fn restore(&self, devices: usize, found: &FoundOn) {
        let mut state = self.lock();
        let mut segments = Vec::new();
        for device in 0..devices {
            let Some(on_device) = found.get(&device) else {
                if let Some(log) = &mut state.log {
                    log.unusable(device);
                }
                state.node.unusable(device);
                continue;
            };
            for FoundSegment { number, records } in on_device {
                if let Some(log) = &mut state.log {
                    log.restored(device, *number, records);
                }
                segments.push(RestoredSegment { device, segment: *number, records });
            }
        }
        let begun = clock::now();
        state.node.restore(&segments, side_by_side);
        let records: usize = segments.iter().map(|segment| segment.records.len()).sum();
        if records > 0 {
            let ms = (clock::now() - begun) / 1_000_000;
            info!(
                "{records} records of {} segments are in the index after {ms} ms",
                segments.len()
            );
        }
    }

    /// Lets the threads of serving runtimes read from devices.
    pub fn read_on(&self, runtimes: &[Handle]) {
        if let Some(disks) = self.disks.get() {
            runtimes.iter().for_each(|runtime| drop(runtime.spawn(disks.on_thread())));
        }
    }

    /// Sets the runtimes for requests to the origin. Their threads read from devices too.
    pub fn set_runtimes(&self, runtimes: Vec<Handle>) {
        self.read_on(&runtimes);
        let _ = self.runtimes.set(runtimes);
    }

    /// Those runtimes; none before they are set.
    pub fn runtimes(&self) -> &[Handle] {
        self.runtimes.get().map_or(&[], Vec::as_slice)
    }

    /// The devices.
    pub fn disks(&self) -> Option<&Disks> {
        self.disks.get()
    }

    /// The origin.
    pub fn origin(&self) -> &Arc<dyn Origin> {
        &self.origin
    }

    /// The metadata of an object as a write's condition sees it: from the origin, or from the tiers of a
    /// cache, which counts as a read.
    pub async fn head(self: &Arc<Self>, key: &Key) -> Result<Option<Metadata>, Error> {
        if self.origin.is_durable() {
            return self.within("a condition", self.origin.head(key)).await;
        }
        let failed = |why: &str| Err(Error::Failed(why.to_owned()));
        let (asker, take) = (Asker::Client { avoid: None }, Take::Part(Part::Metadata));
        let get = Get { key: key.clone(), asker, deadline: None, take, trace: None };
        let answer = match self.get(clock::now(), get) {
            EngineAnswer::Now(answer) => answer,
            EngineAnswer::Later(answer) => match answer.await {
                Ok(answer) => answer,
                Err(_) => return failed("the process stops"),
            },
        };
        match answer {
            Answer::Reply(Reply::Found { payload, .. } | Reply::Opened { payload, .. }, _) => {
                Ok(Some(payload.metadata()))
            }
            Answer::Reply(Reply::NotFound, _) => Ok(None),
            Answer::Reply(Reply::Busy { queue }, _) => {
                failed(&format!("the queue {queue} is full"))
            }
            _ => failed("the tiers did not answer"),
        }
    }

    /// Whether what is written outlives the tiers.
    pub fn is_durable(&self) -> bool {
        self.origin.is_durable()
    }

    /// Size of the largest object that the tiers take, in bytes.
    pub fn object_bytes_max(&self) -> u64 {
        self.object_bytes_max
    }

    /// The timeout of requests to the origin.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The other nodes, in a cluster.
    pub fn peers(&self) -> Option<&Arc<Peers>> {
        self.peers.as_ref()
    }

    /// A new request identifier.
    pub fn request(&self) -> RequestId {
        self.next_request.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside the engine is a broken invariant. The node's state cannot be trusted
        // afterwards, so every later request must fail rather than be answered from it.
        #[expect(clippy::expect_used, reason = "see above")]
        self.state.lock().expect("the node failed")
    }

    /// Reads an object.
    pub fn get(self: &Arc<Self>, now: Nanos, get: Get) -> EngineAnswer {
        let request = self.request();
        let Get { key, asker, deadline, take, trace } = get;
        self.ask(now, request, Event::Get { request, key, asker, deadline, take }, trace)
    }

    /// Reads an object that memory holds and may serve as it is; `None`: ask [`Drive::get`]. Nothing
    /// is allocated for it. Where events are logged the answer is always `None`, because the log has
    /// reads as events.
    pub fn hit(self: &Arc<Self>, now: Nanos, key: &[u8]) -> Option<Hit<Object>> {
        let mut actions = Vec::new();
        let mut state = self.lock();
        if state.log.is_some() {
            return None;
        }
        let hit = state.node.hit(now, key, &mut actions);
        self.carry_out(state, actions);
        hit
    }

    /// Handles a peer's request for a lease; returns the lease's duration if it is granted.
    pub fn lease_asked(
        self: &Arc<Self>,
        now: Nanos,
        peer: NodeId,
        epoch: Option<u64>,
    ) -> Option<Nanos> {
        let mut actions = Vec::new();
        let mut state = self.lock();
        state.handle(now, Event::LeaseAsked { peer, epoch }, &mut actions);
        let grant = |action: &Action<Object>| match action {
            Action::Grant { peer: to, term } if *to == peer => Some(*term),
            _ => None,
        };
        let term = actions.iter().find_map(grant);
        self.carry_out(state, actions);
        term
    }

    /// The directory of this node's hot keys; `None` without hot nodes.
    pub fn hot_directory(&self) -> Option<Arc<HotDirectory>> {
        self.lock().node.hot_directory()
    }

    /// Requests a turn in a key's order of writes. A caller that gets the turn must end it with
    /// [`Drive::write_end`] or [`Event::WriteGivenUp`]. `epoch`: see [`Event::WriteBegin`].
    pub fn write_begin(
        self: &Arc<Self>,
        now: Nanos,
        request: RequestId,
        key: Key,
        epoch: Option<u64>,
    ) -> EngineAnswer {
        self.ask(now, request, Event::WriteBegin { request, key, epoch }, None)
    }

    /// Whether a write that has its turn may be made now, after a look at what it replaces.
    pub fn may_write(&self, request: RequestId, key: &Key) -> bool {
        self.lock().node.may_write(clock::now(), request, key)
    }

    /// Ends a write that had its turn; the answer is [`Answer::Done`].
    pub fn write_end(
        self: &Arc<Self>,
        now: Nanos,
        request: RequestId,
        key: Key,
        payload: Option<Object>,
    ) -> EngineAnswer {
        self.ask(now, request, Event::WriteEnd { request, key, payload }, None)
    }

    /// Passes on an event that has an answer. A node that is asked at once for this request gets `trace`; one that is asked when
    /// another queue has been waited for does not.
    fn ask(
        self: &Arc<Self>,
        now: Nanos,
        request: RequestId,
        event: Event<Object>,
        trace: Option<TraceParent>,
    ) -> EngineAnswer {
        let mut actions = Vec::with_capacity(4);
        let mut state = self.lock();
        state.handle(now, event, &mut actions);
        let own = actions.iter().position(|action| is_answer(action, request));
        let own = own.map(|index| actions.remove(index));
        let answer = match own.map(answer_of) {
            Some(Ok((_, answer))) => EngineAnswer::Now(answer),
            Some(Err(_)) | None => {
                let (send, receive) = oneshot::channel();
                state.waiters.insert(request, send);
                EngineAnswer::Later(receive)
            }
        };
        if let Some(trace) = trace
            && let Some(at) = actions.iter().position(|it| matches!(it, Action::Ask { .. }))
        {
            let asked = actions.remove(at);
            self.carry_out(state, actions);
            self.call(asked, Some(trace));
            return answer;
        }
        self.carry_out(state, actions);
        answer
    }

    /// Sends the node an event.
    pub fn tell(self: &Arc<Self>, now: Nanos, event: Event<Object>) {
        let mut actions = Vec::with_capacity(4);
        let mut state = self.lock();
        if let Event::WriteGivenUp { request, .. } = &event {
            // The write may still have been waiting for its turn.
            state.waiters.remove(request);
        }
        state.handle(now, event, &mut actions);
        self.carry_out(state, actions);
    }

    /// Finds the waiting requests under the lock, then releases it and sends the answers and
    /// carries out the other actions.
    fn carry_out(self: &Arc<Self>, mut state: MutexGuard<'_, State>, actions: Vec<Action<Object>>) {
        if actions.is_empty() {
            return;
        }
        let mut answers = Vec::new();
        let mut rest = Vec::new();
        for action in actions {
            match answer_of(action) {
                Ok((request, answer)) => {
                    let waiter = state.waiters.remove(&request);
                    answers.extend(waiter.map(|waiter| (waiter, answer)));
                }
                // Under the lock, to keep the order decided: two threads that released it first
                // could swap them.
                Err(
                    action @ (Action::Append { .. }
                    | Action::SealSegment { .. }
                    | Action::DropSegment { .. }
                    | Action::List { .. }),
                ) => self.begin(action),
                Err(action) => rest.push(action),
            }
        }
        drop(state);
        // Actions before answers: the service of a device's next read has already started.
        for action in rest {
            self.begin(action);
        }
        for (waiter, answer) in answers {
            // Ignored if the client has left.
            let _ = waiter.send(answer);
        }
    }

    fn begin(self: &Arc<Self>, action: Action<Object>) {
        let disks = self.disks.get();
        match (action, disks) {
            (Action::Read { device, location, key, job, start, extent }, Some(disks)) => {
                disks.read(device, location, key, job, start, extent);
            }
            (Action::CloseRead { device, job }, Some(disks)) => disks.close(device, job),
            (Action::Append { device, location, key, payload, job }, Some(disks)) => {
                disks.append(device, location, key, payload, job);
            }
            (Action::SealSegment { device, segment }, Some(disks)) => disks.seal(device, segment),
            (Action::DropSegment { device, segment }, Some(disks)) => disks.remove(device, segment),
            (Action::List { device, segment }, Some(disks)) => disks.list(device, segment),
            (Action::Fetch { key, job }, _) => {
                let drive = self.clone();
                self.spawn(async move {
                    let result = drive.fetch(&key).await;
                    drive.tell(clock::now(), Event::Fetched { job, result });
                });
            }
            (Action::Check { key, job }, _) => {
                let drive = self.clone();
                self.spawn(async move {
                    let result = drive.check(&key).await;
                    drive.tell(clock::now(), Event::Checked { job, result });
                });
            }
            (Action::HandedOver, _) => self.handover.end(),
            (other, _) => self.call(other, None),
        }
    }

    /// Runs a task on this thread's runtime if it has one, otherwise on one of the serving
    /// runtimes.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(task);
            return;
        }
        let runtimes = self.runtimes.get().map(Vec::as_slice).unwrap_or_default();
        let next = self.next_runtime.fetch_add(1, Ordering::Relaxed);
        if let Some(runtime) = runtimes.get(next % runtimes.len().max(1)) {
            runtime.spawn(task);
        }
    }

    /// Runs a request to the origin with the origin's timeout.
    pub async fn within<T>(
        &self,
        what: &str,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        origin::within(self.timeout, what, request).await
    }

    async fn fetch(&self, key: &Key) -> Fetched<Object> {
        let fetch = async {
            let Some(StoredObject { metadata, mut body }) = self.origin.get(key, None).await?
            else {
                return Ok(Fetched::NotFound);
            };
            if metadata.size > self.object_bytes_max {
                self.large.note(key, metadata);
                return Ok(Fetched::TooLarge);
            }
            let bytes = collect(body.as_mut()).await?;
            if bytes.len() as u64 != metadata.size {
                return Err(Error::Damaged(
                    "the number of bytes sent differs from its metadata".to_owned(),
                ));
            }
            Ok(Fetched::Found(Object::new(&metadata, bytes)))
        };
        let fetched = self.within("a read", fetch).await;
        fetched.unwrap_or_else(|e| Fetched::Unavailable(origin_failure(&e)))
    }

    async fn check(&self, key: &Key) -> Checked {
        match self.within("a comparison", self.origin.head(key)).await {
            Ok(Some(metadata)) => Checked::Version(metadata.etag),
            Ok(None) => Checked::Missing,
            Err(e) => Checked::Unavailable(origin_failure(&e)),
        }
    }

    /// The windows that ended by `now`; with `flush` also the open ones.
    pub fn windows(&self, now: Nanos, flush: bool) -> Vec<Window> {
        let mut state = self.lock();
        if flush { state.node.flush_windows(now) } else { state.node.windows(now) }
    }

    /// The broken invariants of the node's engine since the start.
    pub fn invariants(&self) -> Invariants {
        self.lock().node.invariants()
    }

    /// The node's contents, and the number of waiting requests.
    pub fn contents(&self) -> (Contents, usize) {
        let state = self.lock();
        (state.node.contents(), state.waiters.len())
    }

    /// What gateways are told of the node's load.
    pub fn load(&self, now: Nanos) -> LoadReport {
        self.lock().node.load(now)
    }

    /// The state of each peer as this node sees it.
    pub fn peers_status(&self, now: Nanos) -> Vec<PeerStatus> {
        self.lock().node.peers(now)
    }

    /// What was offered to nodes that were new to their keys.
    pub fn warmed(&self) -> Option<Warmed> {
        self.lock().node.warmed()
    }

    /// Closes the event log, so that all of it is in its file.
    pub fn close_log(&self) {
        let log = self.lock().log.take();
        if let Some(log) = log {
            log.close();
        }
    }
}

impl State {
    fn handle(&mut self, now: Nanos, event: Event<Object>, actions: &mut Vec<Action<Object>>) {
        let sizes = self.log.is_some().then(|| event.sizes());
        self.node.handle(now, event, actions);
        if let (Some(log), Some(sizes)) = (&mut self.log, sizes) {
            log.handled(now, sizes, actions.iter().map(Action::sizes).collect());
        }
    }
}

/// The engine's form of an error of the origin.
fn origin_failure(error: &Error) -> Failure {
    let kind = match error {
        Error::TimedOut(_) => FailureKind::TimedOut,
        Error::Denied(_) => FailureKind::Denied,
        Error::Damaged(_) => FailureKind::Damaged,
        _ => FailureKind::Unavailable,
    };
    Failure { kind, reason: error.to_string() }
}

fn is_answer(action: &Action<Object>, to: RequestId) -> bool {
    match action {
        Action::Reply { request, .. }
        | Action::WriteTurn { request }
        | Action::WriteDone { request, .. } => *request == to,
        _ => false,
    }
}

fn answer_of(action: Action<Object>) -> Result<(RequestId, Answer), Action<Object>> {
    match action {
        Action::Reply { request, reply, stages } => Ok((request, Answer::Reply(reply, stages))),
        Action::WriteTurn { request } => Ok((request, Answer::Turn)),
        Action::WriteDone { request, certain } => Ok((request, Answer::Done { certain })),
        other => Err(other),
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        if let Ok(state) = self.state.get_mut().map_err(PoisonError::into_inner) {
            state.waiters.clear();
        }
    }
}
