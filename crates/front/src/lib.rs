//! What every server of the process has in common, whatever protocol it speaks: a listener, threads and
//! connections. What is said on a connection is a [`Protocol`].
//!
//! One current-thread runtime for each core serves connections; a hit never leaves its thread. One
//! listener hands connections to the thread that has fewest: with a listener for each thread
//! (`SO_REUSEPORT`) the kernel would spread a dozen connections unevenly by their hash, and a second
//! process could listen on the same port without an error.

mod connection;
mod error;
pub mod health;
pub mod http;
mod lending;
pub mod metrics;
pub mod observe;
pub mod quick;
pub(crate) mod socket;
pub mod traces;

use std::net::{Shutdown, SocketAddr, TcpListener};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ground::window::{Nanos, QueueName, Settings};
use hyper::HeaderMap;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{mpsc as queue, watch};
use tracing::warn;

use configuration::Config;
use configuration::token;
pub use error::Error;
use live::LiveModel;
use membership::Membership;
use metrics::Metrics;
use wire::connections::{Activity, Connections, Evictable, Place};
use wire::descriptors;
use wire::inherited;
use wire::lane::ThreadRecorder;
use wire::limits::Limits;
use wire::tls::Tls;
use wire::traces::{TraceParent, Traces};

/// Pause after the kernel had no file for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What the threads behind one address share.
pub struct Front {
    /// The process's configuration.
    pub config: Config,
    /// The same as it is shown.
    pub asked: toml::Table,
    /// The hash of what clients must show.
    pub token: Option<blake3::Hash>,
    /// The hash of what the other processes of the cluster must show.
    pub cluster_token: Option<blake3::Hash>,
    /// The certificate for its connections, if they are encrypted.
    pub tls: OnceLock<Arc<Tls>>,
    /// What one client may have.
    pub limits: OnceLock<Limits>,
    /// The cluster that the process belongs to.
    pub cluster: OnceLock<Arc<Membership>>,
    /// The queue that its lanes record.
    pub queue: String,
    /// One for each thread.
    pub lanes: Vec<Arc<ThreadRecorder>>,
    /// Spans of sampled requests that wait for the exporter, if there is one.
    pub traces: Option<Arc<Traces>>,
    /// What was observed so far.
    pub metrics: Metrics,
    /// The live model, and what the process changes by itself.
    pub live: Arc<LiveModel>,
    /// Those that are open.
    pub connections: Connections,
    stopping: AtomicBool,
}

impl Front {
    /// The cluster that the process belongs to.
    pub fn membership(&self) -> Option<&Membership> {
        self.cluster.get().map(|membership| &**membership)
    }

    /// A front whose lanes record a queue.
    pub fn new(
        config: &Config,
        queue: QueueName<'_>,
        windows: Settings,
        live: &Arc<LiveModel>,
        now: Nanos,
    ) -> Front {
        let threads = match config.serve.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n as usize,
        };
        let one_in = config.observe.sample_one_in;
        let hash = |text: &str| token::hash_of(text).unwrap_or(blake3::hash(text.as_bytes()));
        let waiting_max = config.traces.waiting_max as usize;
        let traces = config.traces.endpoint.as_ref().map(|_| Arc::new(Traces::new(waiting_max)));
        let lane = || {
            let lane = ThreadRecorder::new(&queue.to_string(), windows.clone(), one_in, now);
            Arc::new(lane.with_traces(traces.clone()))
        };
        Front {
            config: config.clone(),
            asked: config.as_table(),
            token: config.serve.token.as_ref().map(|token| hash(token.expose())),
            cluster_token: config
                .cluster
                .token
                .as_ref()
                .map(|token| blake3::hash(token.expose().as_bytes())),
            tls: OnceLock::new(),
            limits: OnceLock::new(),
            cluster: OnceLock::new(),
            queue: queue.to_string(),
            lanes: (0..threads).map(|_| lane()).collect(),
            traces: traces.clone(),
            metrics: Metrics::new(traces),
            live: live.clone(),
            connections: Connections::new(&descriptors::allowance(config)),
            stopping: AtomicBool::new(false),
        }
    }

    /// The place in a trace that the headers of a request name; `None` if no request has spans.
    pub fn trace_parent(&self, headers: &HeaderMap) -> Option<TraceParent> {
        self.traces.as_ref().and_then(|_| TraceParent::from_headers(headers))
    }

    /// Whether the end has begun.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// How long connections without a request stay open at the end. Where another process serves after this one (it gets
    /// the sockets, or connections are balanced), a client may just be sending its next request: it gets its reply, and is told
    /// to connect anew.
    pub fn lingers(&self) -> Duration {
        let others = inherited::any() || inherited::keeps();
        let seconds = if others { self.config.serve.drain_s / 2.0 } else { 0.0 };
        Duration::from_secs_f64(self.config.serve.linger_s.max(seconds))
    }

    /// Begins the end: it is not ready any more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

/// What a server says on its connections.
pub trait Protocol: Deref<Target = Front> + Send + Sync + 'static {
    /// The bytes that a client receives whose connection is one too many.
    fn too_many() -> Vec<u8>;

    /// Serves one connection until it closes, or until `stop` turns true and no request is in flight.
    fn connection(
        self: Arc<Self>,
        lane: Arc<ThreadRecorder>,
        stream: TcpStream,
        activity: Arc<Activity>,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send;

    /// The work that the end of the process waits for, beside connections.
    fn under_way(&self) -> usize;
}

/// A serving thread as the listener sees it.
struct Worker<P: Protocol> {
    streams: queue::UnboundedSender<Accepted<P>>,
    connections: Arc<AtomicUsize>,
}

/// Listens on an address, which the configuration has under `key`.
pub fn listen(address: &str, key: &'static str) -> Result<TcpListener, Error> {
    let text = address;
    let unusable = |source| Error::Address { key, text: text.to_owned(), source };
    let address: SocketAddr = text.parse().map_err(unusable)?;
    if let Some(listener) = inherited::take(address) {
        listener.set_nonblocking(true).map_err(Error::Listener)?;
        return Ok(listener);
    }
    let bind = || -> std::io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        // The standard library's 128 overflow when a thousand clients connect at once; each that is
        // dropped then tries again after a second.
        socket.listen(4096)?;
        Ok(socket.into())
    };
    let listener = bind().map_err(|source| Error::Port { address, key, source })?;
    listener.set_nonblocking(true).map_err(Error::Listener)?;
    Ok(listener)
}

/// Threads that serve.
pub struct Running {
    address: SocketAddr,
    stopping: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    runtimes: Vec<Handle>,
}

/// Tells all connections of a front to end, without waiting for any.
pub struct Stopping(watch::Sender<bool>);

impl Stopping {
    /// From now on requests in flight are answered and no others.
    pub fn begin(&self) {
        let _ = self.0.send(true);
    }
}

impl Running {
    /// Where they listen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Their runtimes.
    pub fn runtimes(&self) -> Vec<Handle> {
        self.runtimes.clone()
    }

    /// What tells all connections to end.
    pub fn stopping(&self) -> Stopping {
        Stopping(self.stopping.clone())
    }

    /// Takes no further connections, and waits for requests in flight for at most `drain_s`.
    pub fn stop(self) {
        let _ = self.stopping.send(true);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// Starts the threads of a service.
pub fn run<P: Protocol>(shared: &Arc<P>, listener: TcpListener) -> Result<Running, Error> {
    let address = listener.local_addr().map_err(Error::Listener)?;
    let (stopping, stop) = watch::channel(false);
    let (send_handle, handles) = mpsc::channel();
    let mut workers = Vec::new();
    let mut threads = Vec::new();
    let mut streams_of = Vec::new();
    for _ in &shared.lanes {
        // Bounded by `Connections::max`, of all threads together.
        let (streams, receive) = queue::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        workers.push(Worker { streams, connections });
        streams_of.push(receive);
    }
    let kept = inherited::connections(address);
    let mut accepting = Some(Accepting { listener, kept, workers });
    for (index, streams) in streams_of.into_iter().enumerate() {
        let thread = Thread {
            shared: shared.clone(),
            lane: shared.lanes[index].clone(),
            accepting: accepting.take(),
            streams,
            stop: stop.clone(),
        };
        let send_handle = send_handle.clone();
        let name = format!("serve/{index}");
        let spawned = std::thread::Builder::new().name(name.clone());
        let spawned = spawned.spawn(move || thread.run(send_handle));
        threads.push(spawned.map_err(|source| Error::Thread { name, source })?);
    }
    drop(send_handle);
    let runtimes: Vec<Handle> = handles.iter().collect();
    if runtimes.len() < threads.len() {
        return Err(Error::Runtime);
    }
    Ok(Running { address, stopping, threads, runtimes })
}

/// One serving thread.
struct Thread<P: Protocol> {
    shared: Arc<P>,
    lane: Arc<ThreadRecorder>,
    accepting: Option<Accepting<P>>,
    streams: queue::UnboundedReceiver<Accepted<P>>,
    stop: watch::Receiver<bool>,
}

/// What the thread needs that accepts connections.
struct Accepting<P: Protocol> {
    listener: TcpListener,
    /// The connections that the process before this one has passed on.
    kept: Vec<std::net::TcpStream>,
    workers: Vec<Worker<P>>,
}

/// A connection on its way to a thread.
type Accepted<P> = (std::net::TcpStream, Open<P>);

/// Counts a connection while it is open.
struct Open<P: Protocol> {
    shared: Arc<P>,
    place: Place,
    of_thread: Arc<AtomicUsize>,
}

impl<P: Protocol> Drop for Open<P> {
    fn drop(&mut self) {
        self.shared.connections.leave(&self.place);
        self.of_thread.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<P: Protocol> Thread<P> {
    fn run(self, started: mpsc::Sender<Handle>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => {
                let _ = started.send(runtime.handle().clone());
                // Who waits for the handles waits until all senders are gone.
                drop(started);
                runtime.block_on(self.serve());
                runtime.shutdown_background();
            }
            Err(error) => warn!("cannot start a runtime: {error}"),
        }
    }

    async fn serve(mut self) {
        if let Some(accepting) = self.accepting.take() {
            let (shared, stop) = (self.shared.clone(), self.stop.clone());
            tokio::spawn(accept(shared, accepting, stop));
        }
        // Until the listener has ended: what it has taken is served.
        while let Some((stream, open)) = self.streams.recv().await {
            let Ok(stream) = TcpStream::from_std(stream) else { continue };
            let (shared, lane, stop) = (self.shared.clone(), self.lane.clone(), self.stop.clone());
            tokio::spawn(async move {
                let activity = open.place.activity.clone();
                let work = Box::pin(shared.connection(lane, stream, activity.clone(), stop));
                // The socket is closed with it, before its place is another's.
                Evictable::new(work, activity).await;
                drop(open);
            });
        }
        self.drain().await;
    }

    /// Waits for requests in flight; then for writes whose client was told, or has left.
    async fn drain(&self) {
        let drain = Duration::from_secs_f64(self.shared.config.serve.drain_s);
        let start = Instant::now();
        let busy = || self.shared.connections.count() + self.shared.under_way();
        while busy() > 0 && start.elapsed() < drain {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn accept<P: Protocol>(
    shared: Arc<P>,
    Accepting { listener, kept, workers }: Accepting<P>,
    mut stop: watch::Receiver<bool>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return warn!("cannot accept connections: {error}"),
    };
    for (stream, from) in kept.into_iter().filter_map(passed_on) {
        place(&shared, &workers, stream, from).await;
    }
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((stream, from)) => place(&shared, &workers, stream, from).await,
            Err(error) => {
                // Out of files, most likely, since something else took more than was kept for it: an idle connection
                // goes, and those at work go on. The listener stays readable: without a pause this would be a busy loop.
                warn!("cannot accept a connection: {error}");
                shared.connections.make_room();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A connection that the process before this one has passed on; `None` if it has ended since.
fn passed_on(stream: std::net::TcpStream) -> Option<(TcpStream, SocketAddr)> {
    stream.set_nonblocking(true).ok()?;
    let from = stream.peer_addr().ok()?;
    Some((TcpStream::from_std(stream).ok()?, from))
}

/// Hands a connection to the thread that has fewest.
async fn place<P: Protocol>(
    shared: &Arc<P>,
    workers: &[Worker<P>],
    stream: TcpStream,
    from: SocketAddr,
) {
    let from = from.ip().to_canonical();
    let Some(place) = shared.connections.place(from, &shared.config.serve).await else {
        return refuse(&stream, &P::too_many());
    };
    let least = workers.iter().min_by_key(|w| w.connections.load(Ordering::Relaxed));
    let Some(worker) = least else { return };
    worker.connections.fetch_add(1, Ordering::Relaxed);
    let of_thread = worker.connections.clone();
    let open = Open { shared: shared.clone(), place, of_thread };
    if let Ok(stream) = stream.into_std() {
        let _ = worker.streams.send((stream, open));
    }
}

/// Tells a client that its connection is one too many. It is closed at once: connections that are refused while they
/// wait for something would be without a bound. A new connection has room for the reply.
fn refuse(stream: &TcpStream, reply: &[u8]) {
    let socket = SockRef::from(stream);
    let _ = socket.send(reply);
    let _ = socket.shutdown(Shutdown::Write);
}
