//! The serving process: sockets, the engine behind them, and what is observed.
//!
//! One current-thread runtime for each core serves connections; a hit never leaves its thread. One
//! listener hands connections to the thread that has fewest: with a listener for each thread
//! (`SO_REUSEPORT`) the kernel would spread a dozen connections unevenly by their hash, and a second
//! process could listen on the same port without an error.

mod admin;
mod body;
mod cluster;
mod condition;
mod drive;
pub mod events;
mod headers;
mod http;
mod lane;
mod list;
mod metrics;
mod object;
mod objects;
mod observe;
mod range;
mod writes;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use engine::node::{ClusterSettings, DeviceSettings, OriginSettings, Restored, Settings};
use model::window::{self, Nanos, Outcome};
use socket2::{Domain, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{mpsc as queue, watch};
use tracing::{info, warn};

pub use object::Object;

use crate::clock;
use crate::config::{Class, Config};
use crate::disk::{DeviceFolder, Disks, Told};
use crate::origin::{self, Origin, Sharing};
use crate::record::{FORMAT, Machine, Run, RunWriter};
use body::Budget;
use cluster::{Beat, Membership, Mismatches, Peers, Static};
use drive::Drive;
use events::EventLog;
use lane::Lane;
use metrics::Metrics;
use observe::Observer;

/// What all threads share.
pub struct Shared {
    config: Config,
    asked: toml::Table,
    token: Option<blake3::Hash>,
    drive: Arc<Drive>,
    lanes: Vec<Arc<Lane>>,
    metrics: Metrics,
    mismatches: Arc<Mismatches>,
    uploads: Arc<Budget>,
    connections: AtomicUsize,
    writes: AtomicUsize,
    stopping: AtomicBool,
}

/// Counts a write under way, so that the end of the process waits for it.
struct Writing(Arc<Shared>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.writes.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn writing(self: &Arc<Shared>) -> Writing {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Writing(self.clone())
    }
}

/// A serving thread as the listener sees it.
struct Worker {
    streams: queue::UnboundedSender<std::net::TcpStream>,
    connections: Arc<AtomicUsize>,
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    stopping: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    beat: Option<Beat>,
    observer: Observer,
}

/// A node's place in the cluster of a configuration; `None` alone.
pub(crate) fn cluster_of(config: &Config, view_lag: Nanos) -> Option<ClusterSettings> {
    let (ring, me, cluster) = (config.ring()?, config.me()?, &config.cluster);
    Some(ClusterSettings {
        ring,
        me,
        lease: (cluster.lease_s * 1e9) as Nanos,
        view_lag,
        peers: OriginSettings {
            servers: cluster.peers_parallel,
            queue_length_max: cluster.peers_queue_length_max,
        },
        replicate_bytes_per_s: cluster.replicate_bytes.0,
    })
}

/// The engine's settings of a configuration.
pub(crate) fn settings_of(
    config: &Config,
    cluster: Option<ClusterSettings>,
    unix_offset_ns: i128,
) -> Settings {
    let mut devices = Vec::new();
    for group in &config.devices {
        for _ in 0..group.count {
            devices.push(DeviceSettings {
                name: format!("device/{}", devices.len()),
                outcome: match group.class {
                    Class::Hot => Outcome::HotDevice,
                    Class::Bulk => Outcome::BulkDevice,
                },
                servers: group.servers(),
                queue_length_max: group.queue_length_max,
                bytes_max: group.bytes.0,
                segment_bytes: group.segment(),
            });
        }
    }
    let node = &config.node;
    Settings {
        memory_bytes_max: node.memory_bytes.0,
        object_bytes_max: node.object_bytes_max.0,
        revalidate: (node.revalidate_s > 0.0).then_some((node.revalidate_s * 1e9) as Nanos),
        stale_if_error: (node.stale_if_error_s * 1e9) as Nanos,
        cluster,
        devices,
        origin: OriginSettings {
            servers: config.origin.parallel,
            queue_length_max: config.origin.queue_length_max,
        },
        appends_bytes_max: node.appends_bytes_max.0,
        writes_waiting_max: node.writes_waiting_max,
        windows: window::Settings {
            window_ns: (config.observe.window_s * 1e9) as Nanos,
            objectives_ms: config.observe.objectives_ms.clone(),
            unix_offset_ns,
        },
    }
}

fn folders_of(config: &Config) -> Vec<DeviceFolder> {
    let mut folders = Vec::new();
    for group in &config.devices {
        for (index, folder) in group.folders().into_iter().enumerate() {
            let service = group.service.clone().map(|service| (service, index as u64));
            folders.push(DeviceFolder { folder, parallel: group.servers(), service });
        }
    }
    folders
}

fn listen(config: &Config) -> anyhow::Result<TcpListener> {
    let address: SocketAddr = config.node_address().parse()?;
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
            "cannot listen on {address}; if another process has the port, stop it or choose another: \
             --set serve.listen={}:PORT, or in a cluster the member's address in every process",
            address.ip()
        )
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// As many files as the kernel lets this process open: each segment of a device is one.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!("cannot raise the limit of open files: {error}");
    }
}

impl Server {
    /// Starts a server. `origin` replaces that of the configuration (tests put faulty ones there).
    pub fn start(config: Config, origin: Option<Arc<dyn Origin>>) -> anyhow::Result<Server> {
        if !config.is_node() {
            bail!("serve.role is \"gateway\": that is no node");
        }
        raise_file_limit();
        let listener = listen(&config)?;
        let address = listener.local_addr()?;
        let sharing = if config.members.is_empty() { Sharing::Alone } else { Sharing::Cluster };
        let origin = match origin {
            Some(origin) => origin,
            None => origin::open(&config.origin, sharing)?,
        };
        let (now, unix_offset_ns) = (clock::now(), clock::unix_offset_ns());
        let membership: Arc<dyn Membership> = Arc::new(Static::new(config.members.len()));
        let cluster = cluster_of(&config, membership.lag());
        let mismatches = Arc::new(Mismatches::default());
        let peers = cluster.as_ref().map(|c| Peers::new(&config, c, mismatches.clone()));
        let peers = peers.transpose()?.map(Arc::new);
        let tick = cluster.as_ref().map(|cluster| Duration::from_nanos(cluster.tick()));
        let settings = settings_of(&config, cluster, unix_offset_ns);
        let run = create_run(&config, now, unix_offset_ns)?;
        let log = match &config.observe.run_dir {
            Some(dir) if config.observe.events => {
                Some(EventLog::create(&dir.join("events"), &settings, now)?)
            }
            _ => None,
        };
        let windows = settings.windows.clone();
        let timeout = Duration::from_secs_f64(config.origin.timeout_s);
        let drive = Arc::new(Drive::new(settings, origin, timeout, peers, log, now));
        open_disks(&config, &drive)?;
        let threads = match config.serve.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n as usize,
        };
        let one_in = config.observe.sample_one_in;
        let lane = || Arc::new(Lane::new(windows.clone(), one_in, now));
        let shared = Arc::new(Shared {
            asked: config.asked(),
            token: config.serve.token.as_ref().map(|token| blake3::hash(token.as_bytes())),
            drive,
            lanes: (0..threads).map(|_| lane()).collect(),
            metrics: Metrics::default(),
            mismatches,
            uploads: Budget::new(config.serve.uploads_bytes_max.0),
            connections: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            config,
        });
        let (stopping, threads) = start_threads(&shared, listener)?;
        let beat =
            tick.map(|tick| Beat::start(shared.drive.clone(), membership, tick)).transpose()?;
        let observer = Observer::start(shared.clone(), run, now)?;
        Ok(Server { address, shared, stopping, threads, beat, observer })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no further connections, lets requests in flight end within `drain_s`, writes the last
    /// windows and seals the segments.
    pub fn stop(self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        let _ = self.stopping.send(true);
        for thread in self.threads {
            let _ = thread.join();
        }
        if let Some(beat) = self.beat {
            beat.stop();
        }
        if let Some(disks) = self.shared.drive.disks() {
            disks.stop();
        }
        self.observer.stop();
        self.shared.drive.close_log();
    }
}

fn create_run(
    config: &Config,
    now: Nanos,
    unix_offset_ns: i128,
) -> anyhow::Result<Option<RunWriter>> {
    let Some(dir) = &config.observe.run_dir else { return Ok(None) };
    let run = Run {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kind: "serve".to_owned(),
        start_unix_us: ((i128::from(now) + unix_offset_ns) / 1000).max(0) as u64,
        laboratory: config.laboratory(),
        machine: Machine::here(),
        asked: config.asked(),
    };
    RunWriter::create(dir, &run).map(Some)
}

fn open_disks(config: &Config, drive: &Arc<Drive>) -> anyhow::Result<()> {
    let told: Told = {
        let drive = Arc::downgrade(drive);
        Arc::new(move |now, event| {
            if let Some(drive) = drive.upgrade() {
                drive.tell(now, event);
            }
        })
    };
    let (disks, found) = Disks::open(&folders_of(config), told)?;
    let mut restored = Vec::new();
    for (device, segments) in found {
        for segment in segments {
            let record = |entry: crate::disk::format::Entry| Restored {
                location: entry.location(segment.number),
                key: entry.key,
                etag: entry.etag,
            };
            let records: Vec<Restored> = segment.entries.into_iter().map(record).collect();
            restored.push((device, segment.number, records));
        }
    }
    restored.sort_by_key(|(device, segment, _)| (*device, *segment));
    drive.set_disks(disks, restored);
    Ok(())
}

type Started = (watch::Sender<bool>, Vec<JoinHandle<()>>);

fn start_threads(shared: &Arc<Shared>, listener: TcpListener) -> anyhow::Result<Started> {
    let (stopping, stop) = watch::channel(false);
    let (send_handle, handles) = mpsc::channel();
    let mut workers = Vec::new();
    let mut threads = Vec::new();
    let mut streams_of = Vec::new();
    for _ in &shared.lanes {
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
    shared.drive.set_runtimes(runtimes);
    Ok((stopping, threads))
}

/// One serving thread.
struct Thread {
    shared: Arc<Shared>,
    lane: Arc<Lane>,
    accepting: Option<(TcpListener, Vec<Worker>)>,
    streams: queue::UnboundedReceiver<std::net::TcpStream>,
    connections: Arc<AtomicUsize>,
    stop: watch::Receiver<bool>,
}

/// Counts a connection while it is open.
struct Open(Arc<Shared>, Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Thread {
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
                http::connection(shared, lane, stream, stop).await;
            });
        }
        self.drain().await;
    }

    /// Waits for requests in flight; then for writes whose client was told, or has left.
    async fn drain(&self) {
        let drain = Duration::from_secs_f64(self.shared.config.serve.drain_s);
        let start = Instant::now();
        let busy = || {
            self.shared.connections.load(Ordering::Relaxed)
                + self.shared.writes.load(Ordering::Relaxed)
        };
        while busy() > 0 && start.elapsed() < drain {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn accept(
    shared: Arc<Shared>,
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
            tokio::spawn(refuse(stream));
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

/// Answers a connection too many.
async fn refuse(mut stream: TcpStream) {
    const REPLY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n\
        content-type: application/json\r\ncontent-length: 32\r\nconnection: close\r\n\r\n\
        {\"error\":\"too many connections\"}";
    let write = async {
        stream.write_all(REPLY).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), write).await;
}

/// Logs what a server was started with.
pub fn announce(config: &Config, address: SocketAddr) {
    let devices: u32 = config.devices.iter().map(|group| group.count).sum();
    info!("objects at http://{address}/objects/KEY");
    if let (Some(ring), Some(me)) = (config.ring(), config.me()) {
        info!(
            "node {} of {}, {} nodes for each key, ring {:016x}",
            ring.name(me),
            ring.members().len(),
            ring.replica_count(),
            ring.fingerprint()
        );
    }
    info!(
        "{} of memory, {devices} device(s), origin {}",
        config.node.memory_bytes,
        config.origin.path.display()
    );
    if let Some(laboratory) = config.laboratory() {
        info!("LABORATORY: {laboratory}");
    }
    if let Some(dir) = &config.observe.run_dir {
        info!("run folder {}", dir.display());
    }
}
