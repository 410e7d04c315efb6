//! The serving process: sockets, the engine behind them, and what is observed.
//!
//! A process is a node, a gateway, or both; each has its own `front::Front`: address, threads and
//! connections.

mod admin;
mod arena;
mod body;
mod browser;
mod cluster;
mod condition;
pub mod config;
mod datasets;
pub mod disk;
mod drive;
pub mod events;
mod exposition;
mod front;
mod gateway;
mod headers;
mod http;
mod lane;
mod list;
mod live;
mod metrics;
mod middleware;
mod object;
mod objects;
mod observe;
mod pace;
pub mod peer;
mod quick;
mod range;
mod refusal;
mod s3;
mod socket;
mod text;
mod tiers;
mod tls;
mod trim;
mod writes;

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use engine::invariant::Invariants;
use engine::node::{ClusterSettings, DeviceSettings, OriginSettings, Restored, Settings};
use hyper::body::Incoming;
use hyper::{Request, Response};
use model::window::{self, Nanos, Outcome, QueueName, Window};
use tracing::{info, warn};

pub use object::Object;

use crate::config::{Class, Config};
use crate::disk::{DeviceFolder, Disks, Told};
use body::{Budget, ReplyBody};
use cluster::{Beat, Membership, Mismatches, Peers, Static};
use datasets::Datasets;
use drive::Drive;
use events::EventLog;
use front::{Front, Running};
use gateway::Access;
use lane::Lane;
use live::Loop;
use middleware::Middleware;
use observe::{Observed, Observer};
use origin::{self, Origin, Sharing};
use record::clock;
use record::{FORMAT, Machine, Run, RunWriter};
use text::Text;

/// Address space for larger objects, times the memory tier's budget and more: room for those that are on
/// their way, and for gaps.
const ARENA_TIMES: u64 = 2;
const ARENA_BYTES_MORE: u64 = 256 << 20;

/// What all threads of a node share.
pub struct Shared {
    front: Front,
    drive: Arc<Drive>,
    mismatches: Arc<Mismatches>,
    datasets: Option<Arc<Datasets>>,
    uploads: Arc<Budget>,
    writes: AtomicUsize,
}

impl Deref for Shared {
    type Target = Front;
    fn deref(&self) -> &Front {
        &self.front
    }
}

impl http::Service for Shared {
    async fn answer(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        request: Request<Incoming>,
    ) -> Response<ReplyBody> {
        http::answer(self, lane, request).await
    }

    fn under_way(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}

impl Observed for Shared {
    fn front(&self) -> &Front {
        &self.front
    }

    fn windows(&self, now: Nanos, flush: bool) -> Vec<Window> {
        let mut windows = self.drive.windows(now, flush);
        windows.extend(self.datasets.iter().flat_map(|datasets| datasets.windows(now, flush)));
        windows
    }

    fn invariants(&self) -> Invariants {
        self.drive.invariants()
    }
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

/// A running server.
pub struct Server {
    node: Option<(Arc<Shared>, Running, Option<Beat>)>,
    text: Option<Running>,
    datasets: Option<datasets::Running>,
    gateway: Option<(Arc<Access>, Running)>,
    s3: Option<Running>,
    middleware: Option<(Arc<Middleware>, Running)>,
    address: SocketAddr,
    observer: Observer,
    whole: Arc<Loop>,
}

/// A node's place in the cluster of a configuration; `None` alone.
pub fn cluster_of(config: &Config, view_lag: Nanos) -> Option<ClusterSettings> {
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
pub fn settings_of(
    config: &Config,
    cluster: Option<ClusterSettings>,
    windows: window::Settings,
) -> Settings {
    let mut devices = Vec::new();
    for group in &config.devices {
        for _ in 0..group.count {
            devices.push(DeviceSettings {
                name: QueueName::of_device(devices.len()),
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
        eviction: node.memory_eviction,
        object_bytes_max: node.object_bytes_max.0,
        // A cache has nothing to compare with.
        revalidate: (node.revalidate_s > 0.0 && config.origin.kind != origin::Kind::None)
            .then_some((node.revalidate_s * 1e9) as Nanos),
        stale_if_error: (node.stale_if_error_s * 1e9) as Nanos,
        cluster,
        devices,
        tiers: config.tiers.settings(),
        origin: OriginSettings {
            servers: config.origin.parallel,
            queue_length_max: config.origin.queue_length_max,
        },
        appends_bytes_max: node.appends_bytes_max.0,
        writes_waiting_max: node.writes_waiting_max,
        windows,
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
        raise_file_limit();
        let key = if config.members.is_empty() { "serve.listen" } else { "member.N.address" };
        let listen = |wanted: bool, address: &str, key: &str| {
            wanted.then(|| front::listen(address, key)).transpose()
        };
        let node_listener = listen(config.is_node(), config.node_address(), key)?;
        if config.is_proxy() {
            return Server::start_proxy(&config, front::listen(&config.serve.listen, key)?);
        }
        let text_listener = match &config.memcached.node_listen {
            Some(address) => listen(config.is_node(), address, "memcached.node_listen")?,
            None => None,
        };
        let s3_listener = match &config.s3.listen {
            Some(address) => Some(front::listen(address, "s3.listen")?),
            None => None,
        };
        let gateway_listener = listen(config.is_gateway(), &config.serve.listen, "serve.listen")?;
        let sharing = if config.members.is_empty() { Sharing::Alone } else { Sharing::Cluster };
        let origin = match origin {
            Some(origin) => origin,
            None => origin::open(&config.origin, sharing)?,
        };
        let (now, unix_offset_ns) = (clock::now(), clock::unix_offset_ns());
        let run = create_run(&config, now, unix_offset_ns)?;
        let windows = windows_of(&config, unix_offset_ns);
        let whole = Loop::start(&config, unix_offset_ns)?;
        let mut observed: Vec<Arc<dyn Observed>> = Vec::new();
        let mut addresses = Vec::new();
        let (mut node, mut datasets, mut text) = (None, None, None);
        if let Some(listener) = node_listener {
            let membership: Arc<dyn Membership> = Arc::new(Static::new(config.members.len()));
            let cluster = cluster_of(&config, membership.lag());
            let tick = cluster.as_ref().map(|cluster| Duration::from_nanos(cluster.tick()));
            let of = (origin.clone(), &whole);
            let shared = start_node(&config, cluster, windows.clone(), of, now)?;
            whole.set_drive(&shared.drive);
            let tls = match config.members.is_empty() {
                true => encrypt(&config, &shared)?,
                false => None,
            };
            let running = front::run(&shared, listener)?;
            shared.drive.set_runtimes(running.runtimes());
            addresses.push(running.address());
            observed.push(shared.clone());
            keep_current(tls, &running);
            let beat = |tick| Beat::start(shared.drive.clone(), membership, tick);
            let beat = tick.map(beat).transpose()?;
            let runtimes = running.runtimes();
            let start = |datasets: &Arc<Datasets>| datasets.start(runtimes.first());
            datasets = shared.datasets.as_ref().map(start).transpose()?;
            text = text_listener.map(|it| front::run(&Text::new(&shared), it)).transpose()?;
            node = Some((shared, running, beat));
        }
        let mut gateway = None;
        if let (Some(listener), Some(ring)) = (gateway_listener, config.ring()) {
            let access = Arc::new(Access::new(&config, ring, windows, origin, &whole, now)?);
            let tls = encrypt(&config, &access)?;
            let running = front::run(&access, listener)?;
            if let Some(runtime) = running.runtimes().first() {
                runtime.spawn(access.clone().run());
            }
            addresses.push(running.address());
            observed.push(access.clone());
            keep_current(tls, &running);
            gateway = Some((access, running));
        }
        let behind = match (&gateway, &node) {
            (Some((access, _)), _) => Some(s3::Behind::Gateway(access.clone())),
            (None, Some((shared, ..))) => Some(s3::Behind::Node(shared.clone())),
            (None, None) => None,
        };
        let s3 = match (s3_listener, behind) {
            (Some(listener), Some(behind)) => Some(start_s3(&config, behind, listener)?),
            _ => None,
        };
        let Some(&address) = addresses.last() else { anyhow::bail!("there is nothing to serve") };
        let observer = Observer::start(observed, run, whole.clone(), now)?;
        Ok(Server { node, text, datasets, gateway, s3, middleware: None, address, observer, whole })
    }

    /// Starts a proxy for memcached's protocol. It needs no origin and no devices.
    fn start_proxy(config: &Config, listener: std::net::TcpListener) -> anyhow::Result<Server> {
        let (now, unix_offset_ns) = (clock::now(), clock::unix_offset_ns());
        let run = create_run(config, now, unix_offset_ns)?;
        let windows = windows_of(config, unix_offset_ns);
        let settings = config.proxy(windows.clone(), rand::random())?;
        let whole = Loop::start(config, unix_offset_ns)?;
        let middleware = Arc::new(Middleware::start(config, settings, windows, &whole, now)?);
        let running = front::run(&middleware, listener)?;
        let address = running.address();
        let observer = Observer::start(vec![middleware.clone()], run, whole.clone(), now)?;
        let middleware = Some((middleware, running));
        let (node, text, datasets, gateway, s3) = (None, None, None, None, None);
        Ok(Server { node, text, datasets, gateway, s3, middleware, address, observer, whole })
    }

    /// Where clients that speak memcached's protocol connect, if any.
    pub fn memcached(&self) -> Option<String> {
        let node = self.text.as_ref().map(|running| running.address().to_string());
        node.or_else(|| {
            self.middleware.as_ref().map(|(middleware, _)| middleware.address().to_string())
        })
    }

    /// Where S3's clients connect, if any.
    pub fn s3(&self) -> Option<SocketAddr> {
        self.s3.as_ref().map(Running::address)
    }

    /// Where clients are served: at the gateway, if there is one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no further connections, lets requests in flight end within `drain_s`, writes the last
    /// windows and seals the segments.
    pub fn stop(self) {
        if let Some((middleware, running)) = self.middleware {
            middleware.end();
            middleware.stop();
            running.stop();
        }
        if let Some(s3) = self.s3 {
            // It counts its connections together with those of HTTP's clients, and waits for all of them.
            match (&self.gateway, &self.node) {
                (Some((access, running)), _) => {
                    access.stop();
                    running.begin_to_stop();
                }
                (None, Some((shared, running, _))) => {
                    shared.stop();
                    running.begin_to_stop();
                }
                (None, None) => {}
            }
            s3.stop();
        }
        if let Some((access, running)) = self.gateway {
            access.stop();
            running.stop();
        }
        if let Some(datasets) = self.datasets {
            datasets.stop();
        }
        let node = self.node.map(|(shared, running, beat)| {
            shared.stop();
            if let Some(text) = self.text {
                text.stop();
            }
            running.stop();
            if let Some(beat) = beat {
                beat.stop();
            }
            if let Some(disks) = shared.drive.disks() {
                disks.stop();
            }
            shared
        });
        self.observer.stop();
        self.whole.stop();
        if let Some(shared) = node {
            shared.drive.close_log();
        }
    }
}

/// A node that is not running yet.
fn start_node(
    config: &Config,
    cluster: Option<ClusterSettings>,
    windows: window::Settings,
    (origin, whole): (Arc<dyn Origin>, &Arc<Loop>),
    now: Nanos,
) -> anyhow::Result<Arc<Shared>> {
    arena::open(ARENA_TIMES * config.node.memory_bytes.0 + ARENA_BYTES_MORE);
    let mismatches = Arc::new(Mismatches::default());
    let (place, windows_of) = (cluster.as_ref(), windows.clone());
    let datasets = Datasets::new(config, place, origin.clone(), windows_of, whole, now)?;
    let peers = cluster.as_ref().map(|c| Peers::new(config, c, mismatches.clone()));
    let peers = peers.transpose()?.map(Arc::new);
    let settings = settings_of(config, cluster, windows.clone());
    let log = match &config.observe.run_dir {
        Some(dir) if config.observe.events => {
            Some(EventLog::create(&dir.join("events"), &settings, now)?)
        }
        _ => None,
    };
    let timeout = Duration::from_secs_f64(config.origin.timeout_s);
    let drive = Arc::new(Drive::new(settings, origin, timeout, peers, log, now));
    open_disks(config, &drive)?;
    // In one process with a gateway, whose queue is the clients'.
    let queue = if config.is_gateway() { QueueName::NodeHttp } else { QueueName::Gateway };
    Ok(Arc::new(Shared {
        front: Front::new(config, queue, windows, whole, now),
        drive,
        mismatches,
        datasets,
        uploads: Budget::new(config.serve.uploads_bytes_max.0),
        writes: AtomicUsize::new(0),
    }))
}

/// Has a front encrypt its connections, if the configuration has a certificate.
fn encrypt(config: &Config, front: &Front) -> anyhow::Result<Option<Arc<tls::Tls>>> {
    let (Some(certificate), Some(key)) = (&config.serve.tls_certificate, &config.serve.tls_key)
    else {
        return Ok(None);
    };
    let tls = tls::Tls::open(certificate, key)?;
    let _ = front.tls.set(tls.clone());
    Ok(Some(tls))
}

/// Keeps a certificate as its file is.
fn keep_current(tls: Option<Arc<tls::Tls>>, running: &Running) {
    if let (Some(tls), Some(runtime)) = (tls, running.runtimes().first()) {
        runtime.spawn(tls.keep_current());
    }
}

/// Starts the front for S3's clients.
fn start_s3(
    config: &Config,
    behind: s3::Behind,
    listener: std::net::TcpListener,
) -> anyhow::Result<Running> {
    let shared = s3::S3::new(config, behind)?;
    let running = front::run(&shared, listener)?;
    if let Some(runtime) = running.runtimes().first() {
        runtime.spawn(shared.run());
    }
    Ok(running)
}

fn windows_of(config: &Config, unix_offset_ns: i128) -> window::Settings {
    window::Settings {
        window_ns: (config.observe.window_s * 1e9) as Nanos,
        objectives_ms: config.observe.objectives_ms.clone(),
        unix_offset_ns,
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
            let record = |entry: disk::format::Entry| Restored {
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

/// Logs what a server was started with.
pub fn announce(config: &Config, server: &Server) {
    let address = server.address();
    if let Some(memcached) = server.memcached() {
        info!("memcached's protocol at {memcached}, {} pool(s)", config.pools.len());
        info!("metrics at http://{address}/metrics, status at http://{address}/admin/status");
        return;
    }
    info!("objects at http://{address}/objects/KEY");
    if let Some(s3) = server.s3() {
        info!("S3's protocol at http://{s3}");
    }
    if config.is_gateway() {
        info!("gateway to {} node(s)", config.members.len());
    }
    if !config.is_node() {
        return;
    }
    let devices: u32 = config.devices.iter().map(|group| group.count).sum();
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
        config.origin.in_words()
    );
    if let Some(laboratory) = config.laboratory() {
        info!("EMULATED: {laboratory}");
    }
    if let Some(dir) = &config.observe.run_dir {
        info!("run folder {}", dir.display());
    }
}
