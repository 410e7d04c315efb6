//! What every server of the process has in common, whatever protocol it speaks: a listener, threads and
//! connections. What is said on a connection is a [`Protocol`].
//!
//! One current-thread runtime for each core serves connections; a hit never leaves its thread. One
//! listener hands connections to the thread that has fewest: with a listener for each thread
//! (`SO_REUSEPORT`) the kernel would spread a dozen connections unevenly by their hash, and a second
//! process could listen on the same port without an error.

use std::net::{SocketAddr, TcpListener};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use model::window::{Nanos, QueueName, Settings};
use socket2::{Domain, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{mpsc as queue, watch};
use tracing::warn;

use super::lane::Lane;
use super::metrics::Metrics;
use crate::config::Config;

/// What the threads behind one address share.
pub struct Front {
    /// The process's configuration.
    pub config: Config,
    /// The same as it is shown.
    pub asked: toml::Table,
    /// The hash of what clients must show.
    pub token: Option<blake3::Hash>,
    /// One for each thread.
    pub lanes: Vec<Arc<Lane>>,
    /// What was observed so far.
    pub metrics: Metrics,
    /// Those that are open.
    pub connections: AtomicUsize,
    stopping: AtomicBool,
}

impl Front {
    /// A front whose lanes record a queue.
    pub fn new(config: &Config, queue: QueueName<'_>, windows: Settings, now: Nanos) -> Front {
        let threads = match config.serve.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n as usize,
        };
        let one_in = config.observe.sample_one_in;
        let lane = || Arc::new(Lane::new(&queue.to_string(), windows.clone(), one_in, now));
        Front {
            config: config.clone(),
            asked: config.asked(),
            token: config.serve.token.as_ref().map(|token| blake3::hash(token.as_bytes())),
            lanes: (0..threads).map(|_| lane()).collect(),
            metrics: Metrics::default(),
            connections: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    /// Whether the end has begun.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Begins the end: it is not ready any more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }
}

/// What a server says on its connections.
pub trait Protocol: Deref<Target = Front> + Send + Sync + 'static {
    /// The bytes that a client receives whose connection is one too many.
    const TOO_MANY: &'static [u8];

    /// Serves one connection until it closes, or until `stop` turns true and no request is in flight.
    fn connection(
        self: Arc<Self>,
        lane: Arc<Lane>,
        stream: TcpStream,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send;

    /// The work that the end of the process waits for, beside connections.
    fn under_way(&self) -> usize;
}

/// A serving thread as the listener sees it.
struct Worker {
    streams: queue::UnboundedSender<std::net::TcpStream>,
    connections: Arc<AtomicUsize>,
}

/// Listens on an address, which the configuration has under `key`.
pub fn listen(address: &str, key: &str) -> anyhow::Result<TcpListener> {
    let address: SocketAddr = address.parse()?;
    let bind = || -> std::io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        // The standard library's 128 overflow when a thousand clients connect at once; each that is
        // dropped then tries again after a second.
        socket.listen(4096)?;
        Ok(socket.into())
    };
    let listener = bind().with_context(|| {
        format!(
            "cannot listen on {address}; if another process has the port, stop it or choose another \
             with --set {key}={}:PORT",
            address.ip()
        )
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Threads that serve.
pub struct Running {
    address: SocketAddr,
    stopping: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    runtimes: Vec<Handle>,
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

    /// Takes no further connections, and waits for requests in flight for at most `drain_s`.
    pub fn stop(self) {
        let _ = self.stopping.send(true);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// Starts the threads of a service.
pub fn run<P: Protocol>(shared: &Arc<P>, listener: TcpListener) -> anyhow::Result<Running> {
    let address = listener.local_addr()?;
    let (stopping, stop) = watch::channel(false);
    let (send_handle, handles) = mpsc::channel();
    let mut workers = Vec::new();
    let mut threads = Vec::new();
    let mut streams_of = Vec::new();
    for _ in &shared.lanes {
        // Bounded by `serve.connections_max`, of all threads together.
        let (streams, receive) = queue::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        workers.push(Worker { streams, connections: connections.clone() });
        streams_of.push((receive, connections));
    }
    let mut accepting = Some((listener, workers));
    for (index, (streams, connections)) in streams_of.into_iter().enumerate() {
        let thread = Thread {
            shared: shared.clone(),
            lane: shared.lanes[index].clone(),
            accepting: accepting.take(),
            streams,
            connections,
            stop: stop.clone(),
        };
        let send_handle = send_handle.clone();
        let spawned = std::thread::Builder::new()
            .name(format!("serve/{index}"))
            .spawn(move || thread.run(send_handle))?;
        threads.push(spawned);
    }
    drop(send_handle);
    let runtimes: Vec<Handle> = handles.iter().collect();
    if runtimes.len() < threads.len() {
        bail!("a runtime did not start");
    }
    Ok(Running { address, stopping, threads, runtimes })
}

/// One serving thread.
struct Thread<P: Protocol> {
    shared: Arc<P>,
    lane: Arc<Lane>,
    accepting: Option<(TcpListener, Vec<Worker>)>,
    streams: queue::UnboundedReceiver<std::net::TcpStream>,
    connections: Arc<AtomicUsize>,
    stop: watch::Receiver<bool>,
}

/// Counts a connection while it is open.
struct Open<P: Protocol>(Arc<P>, Arc<AtomicUsize>);

impl<P: Protocol> Drop for Open<P> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
        self.1.fetch_sub(1, Ordering::Relaxed);
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
        if let Some((listener, workers)) = self.accepting.take() {
            let (shared, stop) = (self.shared.clone(), self.stop.clone());
            tokio::spawn(accept(shared, listener, workers, stop));
        }
        let mut stop = self.stop.clone();
        loop {
            let stream = tokio::select! {
                stream = self.streams.recv() => stream,
                _ = stop.wait_for(|stop| *stop) => None,
            };
            let Some(stream) = stream else { break };
            let open = Open(self.shared.clone(), self.connections.clone());
            let Ok(stream) = TcpStream::from_std(stream) else { continue };
            let (shared, lane, stop) = (self.shared.clone(), self.lane.clone(), self.stop.clone());
            tokio::spawn(async move {
                let _open = open;
                shared.connection(lane, stream, stop).await;
            });
        }
        self.drain().await;
    }

    /// Waits for requests in flight; then for writes whose client was told, or has left.
    async fn drain(&self) {
        let drain = Duration::from_secs_f64(self.shared.config.serve.drain_s);
        let start = Instant::now();
        let busy = || self.shared.connections.load(Ordering::Relaxed) + self.shared.under_way();
        while busy() > 0 && start.elapsed() < drain {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn accept<P: Protocol>(
    shared: Arc<P>,
    listener: TcpListener,
    workers: Vec<Worker>,
    mut stop: watch::Receiver<bool>,
) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return warn!("cannot accept connections: {error}"),
    };
    let max = shared.config.serve.connections_max as usize;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of files, most likely: those who are connected go on.
                warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        if shared.connections.load(Ordering::Relaxed) >= max {
            tokio::spawn(refuse(stream, P::TOO_MANY));
            continue;
        }
        let least = workers.iter().min_by_key(|w| w.connections.load(Ordering::Relaxed));
        if let (Some(worker), Ok(stream)) = (least, stream.into_std()) {
            shared.connections.fetch_add(1, Ordering::Relaxed);
            worker.connections.fetch_add(1, Ordering::Relaxed);
            let _ = worker.streams.send(stream);
        }
    }
}

/// Tells a client that its connection is one too many, and closes it.
async fn refuse(mut stream: TcpStream, reply: &[u8]) {
    let write = async {
        stream.write_all(reply).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), write).await;
}
