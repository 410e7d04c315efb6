//! The serving process: sockets, the engine behind them, and what is observed.
//!
//! A process is a node, a gateway, or both; each has its own `front::Front`: address, threads and
//! connections.

mod admin;
mod announce;
mod cluster;
mod drive;
pub mod events;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod handover;
mod identity;
mod list;
mod middleware;
mod node_reads;
mod node_store;
mod objects;
mod origin_reads;
mod reads;
mod routes;
mod s3;
mod settings;
mod store;
mod text;
mod tiers;
mod writes;

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use engine::invariant::Invariants;
use ground::window::{self, Nanos, QueueName, Window};
use hyper::body::Incoming;
use hyper::{Request, Response};

pub use announce::announce;
pub use device::object::Object;
pub use s3::{keys, seal};
pub use settings::{cluster_of, settings_of};

use cluster::{Beat, Mismatches, Peers};
use configuration::Config;
use datasets::Datasets;
use device::disk::Opened;
use drive::Drive;
use events::EventLog;
use front::observe::{Observed, Observer};
use front::{Front, Running};
use gateway::Access;
use live::LiveModel;
use membership::{Common, Follower, Membership};
use middleware::Middleware;
use origin::{self, IdentityRecord, Origin, Sharing};
use record::clock;
use record::{FORMAT, Machine, Run, RunWriter};
use settings::{folders_of, place_of};
use store::Store;
use text::Text;
use wire::body::{Budget, ReplyBody};
use wire::lane::Lane;

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
    /// The memory that objects and layers share, if they do.
    memory: Option<Arc<live::memory::Memory>>,
    uploads: Arc<Budget>,
    writes: Arc<AtomicUsize>,
}

impl Deref for Shared {
    type Target = Front;
    fn deref(&self) -> &Front {
        &self.front
    }
}

impl front::http::Service for Shared {
    async fn answer(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        request: Request<Incoming>,
    ) -> Response<ReplyBody> {
        routes::answer(self, lane, request).await
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
struct Writing(Arc<AtomicUsize>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn writing(&self) -> Writing {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Writing(self.writes.clone())
    }
}

/// A running server.
pub struct Server {
    node: Option<(Arc<Shared>, Running, Option<Beat>)>,
    membership: Option<Arc<Membership>>,
    text: Option<Running>,
    datasets: Option<datasets::Running>,
    memory: Option<live::memory::Running>,
    gateway: Option<(Arc<Access>, Running)>,
    s3: Option<Running>,
    middleware: Option<(Arc<Middleware>, Running)>,
    address: SocketAddr,
    observer: Observer,
    live: Arc<LiveModel>,
}

impl Server {
    /// Starts a server. `origin` replaces that of the configuration (tests put faulty ones there).
    ///
    /// # Errors
    ///
    /// If something that the configuration names cannot be used; the message says what, and what to do.
    pub fn start(config: Config, origin: Option<Arc<dyn Origin>>) -> anyhow::Result<Server> {
        Server::start_with(config, origin, false)
    }

    /// As [`Server::start`]. With `create_origin`, an operator orders to take the configured origin whatever is remembered of
    /// another one, and to make it if it is missing.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub fn start_with(
        config: Config,
        origin: Option<Arc<dyn Origin>>,
        create_origin: bool,
    ) -> anyhow::Result<Server> {
        device::system::prepare();
        Server::start_parts(config, origin, create_origin).map_err(device::system::explained)
    }

    fn start_parts(
        config: Config,
        origin: Option<Arc<dyn Origin>>,
        create_origin: bool,
    ) -> anyhow::Result<Server> {
        let (common, config) = Common::of(config)?;
        peer::bound_idle(wire::descriptors::prepare(&config)?);
        let key = match (config.is_clustered(), config.is_in_etcd()) {
            (false, _) => "serve.listen",
            (true, false) => "member.N.address",
            (true, true) => "membership.address",
        };
        let listen = |wanted: bool, address: &str, key: &str| {
            wanted.then(|| front::listen(address, key)).transpose()
        };
        let node_listener = listen(config.is_node(), config.node_address(), key)?;
        if config.is_proxy() {
            return Server::start_proxy(&config, front::listen(&config.serve.listen, key)?, common);
        }
        let text_listener = match &config.memcached.node_listen {
            Some(address) => Some(front::listen(address, "memcached.node_listen")?),
            None => None,
        };
        let s3_listener = match &config.s3.listen {
            Some(address) => Some(front::listen(address, "s3.listen")?),
            None => None,
        };
        let gateway_listener = listen(config.is_gateway(), &config.serve.listen, "serve.listen")?;
        let sharing = if config.is_clustered() { Sharing::Cluster } else { Sharing::Alone };
        let membership = Membership::start(&config, common)?;
        let record = identity::record(&config, membership.as_deref(), create_origin)?;
        let origin = match origin {
            Some(origin) => origin,
            None => origin::open(&config.origin, sharing, record.clone())?,
        };
        let (now, unix_offset_ns) = (clock::now(), clock::unix_offset_ns());
        let run = create_run(&config, now, unix_offset_ns)?;
        let windows = windows_of(&config, unix_offset_ns);
        let live = LiveModel::start(&config, unix_offset_ns)?;
        let mut observed: Vec<Arc<dyn Observed>> = Vec::new();
        let mut addresses = Vec::new();
        let (mut node, mut datasets, mut memory) = (None, None, None);
        if let Some(listener) = node_listener {
            let of = (origin.clone(), &live, membership.clone());
            let shared = start_node(&config, windows.clone(), of, &record, now)?;
            let controls: Arc<dyn live::Controls> = shared.drive.clone();
            live.set_node(&controls);
            belong(&shared, membership.as_ref());
            let tls = match config.is_clustered() {
                false => for_clients(&config, &shared)?,
                true => encrypt_between(&config, &shared)?,
            };
            let running = front::run(&shared, listener)?;
            shared.drive.set_runtimes(running.runtimes());
            addresses.push(running.address());
            observed.push(shared.clone());
            keep_current(tls, &running);
            let beat = match &membership {
                Some(membership) => {
                    let tick = Duration::from_secs_f64(config.cluster.lease_s / 10.0);
                    let beat = Beat::start(shared.drive.clone(), membership.clone(), tick)?;
                    membership.serve();
                    Some(beat)
                }
                None => None,
            };
            let runtimes = running.runtimes();
            let start = |datasets: &Arc<Datasets>| datasets.start(runtimes.first());
            datasets = shared.datasets.as_ref().map(start).transpose()?;
            let start = |of: &Arc<live::memory::Memory>| of.start(&controls);
            memory = shared.memory.as_ref().map(start).transpose()?;
            node = Some((shared, running, beat));
        }
        let mut gateway = None;
        if let (Some(listener), Some(membership)) = (gateway_listener, &membership) {
            let of = membership.clone();
            let access = Arc::new(Access::new(&config, of, windows, origin, record, &live, now)?);
            belong(&access, Some(membership));
            let tls = for_clients(&config, &access)?;
            let running = front::run(&access, listener)?;
            if let Some(runtime) = running.runtimes().first() {
                runtime.spawn(access.clone().run());
            }
            addresses.push(running.address());
            observed.push(access.clone());
            keep_current(tls, &running);
            gateway = Some((access, running));
        }
        let store: Option<Arc<dyn Store>> = match (&gateway, &node) {
            (Some((access, _)), _) => Some(access.clone()),
            (None, Some((shared, ..))) => Some(shared.clone()),
            (None, None) => None,
        };
        let text = match (text_listener, &store) {
            (Some(listener), Some(store)) => Some(start_text(store, listener)?),
            _ => None,
        };
        let s3 = match (s3_listener, store) {
            (Some(listener), Some(store)) => Some(start_s3(&config, store, listener)?),
            _ => None,
        };
        let Some(&address) = addresses.last() else { anyhow::bail!("there is nothing to serve") };
        let observer = Observer::start(observed, run, live.clone(), now)?;
        let middleware = None;
        wire::inherited::close_others();
        Ok(Server {
            node,
            membership,
            text,
            datasets,
            memory,
            gateway,
            s3,
            middleware,
            address,
            observer,
            live,
        })
    }

    /// Starts a proxy for memcached's protocol. It needs no origin and no devices.
    fn start_proxy(
        config: &Config,
        listener: std::net::TcpListener,
        common: Option<Common>,
    ) -> anyhow::Result<Server> {
        let follower = common.map(|common| Follower::alone(config, common)).transpose()?;
        let (now, unix_offset_ns) = (clock::now(), clock::unix_offset_ns());
        let run = create_run(config, now, unix_offset_ns)?;
        let windows = windows_of(config, unix_offset_ns);
        let mut settings = config.proxy(windows.clone(), rand::random())?;
        settings.connections_max = wire::descriptors::allowance(config).proxied;
        let live = LiveModel::start(config, unix_offset_ns)?;
        let middleware =
            Arc::new(Middleware::start(config, settings, windows, (&live, follower), now)?);
        let running = front::run(&middleware, listener)?;
        let address = running.address();
        let observer = Observer::start(vec![middleware.clone()], run, live.clone(), now)?;
        wire::inherited::close_others();
        let middleware = Some((middleware, running));
        Ok(Server {
            node: None,
            membership: None,
            text: None,
            datasets: None,
            memory: None,
            gateway: None,
            s3: None,
            middleware,
            address,
            observer,
            live,
        })
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

    /// Returns when this process cannot go on, with the reason: it has lost its place among the members for good. End it, and
    /// start it again.
    pub async fn lost(&self) -> String {
        match &self.membership {
            Some(membership) => membership.lost().await,
            None => std::future::pending().await,
        }
    }

    /// Where clients are served: at the gateway, if there is one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Hands a node's keys over where others can take them, takes no further connections, lets requests in
    /// flight end within `drain_s`, writes the last windows and seals the segments.
    pub fn stop(self) {
        if let (Some((shared, ..)), Some(membership)) = (&self.node, &self.membership)
            && membership.is_leased()
        {
            let within = Duration::from_secs_f64(shared.config.serve.drain_s / 2.0);
            handover::hand_over(&shared.drive, membership, within);
        }
        if let Some((middleware, running)) = self.middleware {
            middleware.end();
            middleware.stop();
            running.stop();
        }
        // What speaks to clients counts its connections together, and each waits for all of them: all are told first.
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
        [&self.s3, &self.text].into_iter().flatten().for_each(Running::begin_to_stop);
        [self.s3, self.text].into_iter().flatten().for_each(Running::stop);
        if let Some((access, running)) = self.gateway {
            access.stop();
            running.stop();
        }
        if let Some(datasets) = self.datasets {
            datasets.stop();
        }
        if let Some(memory) = self.memory {
            memory.stop();
        }
        let node = self.node.map(|(shared, running, beat)| {
            shared.stop();
            running.stop();
            if let Some(beat) = beat {
                beat.stop();
            }
            if let Some(disks) = shared.drive.disks() {
                disks.stop();
            }
            shared
        });
        // Of a gateway; a node has left.
        if let Some(membership) = &self.membership {
            membership.leave(false);
        }
        self.observer.stop();
        self.live.stop();
        if let Some(shared) = node {
            shared.drive.close_log();
        }
        wire::inherited::settle();
    }
}

/// A node that is not running yet.
fn start_node(
    config: &Config,
    windows: window::Settings,
    (origin, live, membership): (Arc<dyn Origin>, &Arc<LiveModel>, Option<Arc<Membership>>),
    record: &Arc<IdentityRecord>,
    now: Nanos,
) -> anyhow::Result<Arc<Shared>> {
    let place = |membership: &Arc<Membership>| {
        let ring = membership.known().ring.clone();
        membership.me().map(|me| place_of(config, ring, me, membership.lag()))
    };
    let cluster = membership.as_ref().and_then(place);
    let memory_most = config.node.memory_bytes.0.max(config.node.memory_shared_bytes.0);
    device::arena::open(ARENA_TIMES.saturating_mul(memory_most).saturating_add(ARENA_BYTES_MORE));
    let memory = config.node.shared().map(|of| live::memory::Memory::new(of, live.clone()));
    let mismatches = Arc::new(Mismatches::default());
    let (place, windows_of) = (membership.clone(), windows.clone());
    let (of, to) = ((origin.clone(), place), (live, memory.as_ref()));
    let datasets = Datasets::new(config, of, windows_of, to, now)?;
    if let Some(copies) = &config.datasets.path {
        record.add_folder(copies);
    }
    let peers = cluster.as_ref().zip(membership.clone());
    let peers = peers
        .map(|(cluster, of)| Peers::new(config, cluster, of, mismatches.clone(), record.clone()));
    let peers = peers.transpose()?.map(Arc::new);
    let mut settings = settings_of(config, cluster, windows.clone());
    let folders = folders_of(config);
    let devices = Opened::open(&folders, config.cluster.name.as_deref(), record)?;
    devices.settle(&folders, &mut settings.devices);
    let log = match &config.observe.run_dir {
        Some(dir) if config.observe.events => {
            Some(EventLog::create(&dir.join("events"), &settings, now)?)
        }
        _ => None,
    };
    let timeout = Duration::from_secs_f64(config.origin.timeout_s);
    let drive = Arc::new(Drive::new(settings, origin, timeout, peers, log, now));
    drive.start_disks(&folders, devices)?;
    // In one process with a gateway, whose queue is the clients'.
    let queue = if config.is_gateway() { QueueName::NodeHttp } else { QueueName::Gateway };
    Ok(Arc::new(Shared {
        front: Front::new(config, queue, windows, live, now),
        drive,
        mismatches,
        datasets,
        memory,
        uploads: Budget::new(config.serve.uploads_bytes_max.0),
        writes: Arc::default(),
    }))
}

/// Has a front of clients keep to their limits, and encrypt their connections if the configuration has a
/// certificate.
fn for_clients(config: &Config, front: &Front) -> anyhow::Result<Option<Arc<wire::tls::Tls>>> {
    if let Some(limits) = wire::limits::Limits::of(&config.serve) {
        let _ = front.limits.set(limits);
    }
    let (Some(certificate), Some(key)) = (&config.serve.tls_certificate, &config.serve.tls_key)
    else {
        return Ok(None);
    };
    let tls = wire::tls::Tls::open(certificate, key, None)?;
    let _ = front.tls.set(tls.clone());
    Ok(Some(tls))
}

/// Has a node encrypt the connections of its cluster's processes, if the configuration has certificates for
/// them: who has none is refused.
fn encrypt_between(config: &Config, front: &Front) -> anyhow::Result<Option<Arc<wire::tls::Tls>>> {
    let Some((ca, (certificate, key))) = config.cluster.certificates() else { return Ok(None) };
    let tls = wire::tls::Tls::open(certificate, key, Some(ca))?;
    let _ = front.tls.set(tls.clone());
    Ok(Some(tls))
}

/// Tells a front which cluster it belongs to.
fn belong(front: &Front, membership: Option<&Arc<Membership>>) {
    if let Some(membership) = membership {
        let _ = front.cluster.set(membership.clone());
    }
}

/// Keeps a certificate as its file is.
fn keep_current(tls: Option<Arc<wire::tls::Tls>>, running: &Running) {
    if let (Some(tls), Some(runtime)) = (tls, running.runtimes().first()) {
        runtime.spawn(tls.keep_current());
    }
}

/// Starts the front for memcached's clients.
fn start_text(store: &Arc<dyn Store>, listener: std::net::TcpListener) -> anyhow::Result<Running> {
    let running = front::run(&Text::new(store.clone()), listener)?;
    store.read_on(&running.runtimes());
    Ok(running)
}

/// Starts the front for S3's clients.
fn start_s3(
    config: &Config,
    store: Arc<dyn Store>,
    listener: std::net::TcpListener,
) -> anyhow::Result<Running> {
    let shared = s3::S3::new(config, store)?;
    let running = front::run(&shared, listener)?;
    shared.read_on(&running.runtimes());
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
