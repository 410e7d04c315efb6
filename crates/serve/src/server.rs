//! The process: its parts in the order in which they are started.
//!
//! A part that others need is started before them, and ends after them ([`Components`]): clients' fronts last, since they are
//! to find everything there; the log of events, the live model and the observer first, since the windows and changes of
//! the very end are to be written too.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use configuration::Config;
use datasets::Datasets;
use device::disk::Opened;
use front::observe::{Observed, Observer};
use front::traces::TraceExporter;
use front::{Front, Running};
use ground::window::{self, Nanos, QueueName};
use live::{Controls, LiveModel};
use membership::{Common, Follower, Membership};
use origin::{IdentityRecord, Origin, Sharing};
use record::clock;
use record::{FORMAT, Machine, Run, RunWriter};
use wire::tls::Tls;

use super::components::{Component, Components};
use super::middleware::Middleware;
use super::monitor;
use cluster::Mismatches;
use cluster::identity;
use gateway::Gateway;
use memcached_front::Memcached;
use node::Node;
use node::drive::Drive;
use node::events::EventLog;
use node::handover;
use node::peers::{Beat, Peers};
use node::settings::{folders_of, place_of, settings_of};
use store::Store;

/// Address space for larger objects, times the memory tier's budget and more: room for those that are on
/// their way, and for gaps.
const ARENA_TIMES: u64 = 2;
const ARENA_BYTES_MORE: u64 = 256 << 20;

/// `drain_s` over the time for which objects that wait for a device are still written when the process ends.
const DRAIN_OVER_WRITES: f64 = 5.0;

/// A running server.
pub struct Server {
    components: Components,
    pub(crate) membership: Option<Arc<Membership>>,
    /// Pools of a proxy, those of etcd included.
    pub(crate) pools: usize,
    middleware: Option<Arc<Middleware>>,
    address: SocketAddr,
    memcached: Option<String>,
    s3: Option<SocketAddr>,
}

/// The sockets that a configuration names. They are taken before anything is opened: who has the port already is told at
/// once, and nothing was changed then.
struct Listeners {
    node: Option<TcpListener>,
    memcached: Option<TcpListener>,
    s3: Option<TcpListener>,
    gateway: Option<TcpListener>,
}

impl Listeners {
    fn open(config: &Config) -> anyhow::Result<Listeners> {
        let listen = |address: &str, key: &'static str, wanted: bool| {
            wanted.then(|| front::listen(address, key)).transpose()
        };
        let memcached = config.memcached.node_listen.as_deref();
        Ok(Listeners {
            node: listen(config.node_address(), key_of_address(config), config.is_node())?,
            memcached: memcached
                .map(|it| front::listen(it, "memcached.node_listen"))
                .transpose()?,
            s3: config.s3.listen.as_deref().map(|it| front::listen(it, "s3.listen")).transpose()?,
            gateway: listen(&config.serve.listen, "serve.listen", config.is_gateway())?,
        })
    }
}

/// Which key of the configuration has the address of the node.
fn key_of_address(config: &Config) -> &'static str {
    match (config.is_clustered(), config.is_in_etcd()) {
        (false, _) => "serve.listen",
        (true, false) => "member.N.address",
        (true, true) => "membership.address",
    }
}

/// What the parts of a process are made with, and those that have been started.
struct Process<'a> {
    config: &'a Config,
    origin: Arc<dyn Origin>,
    record: Arc<IdentityRecord>,
    membership: Option<Arc<Membership>>,
    live: Arc<LiveModel>,
    windows: window::Settings,
    now: Nanos,
    components: Components,
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
        let (common, config) = Common::load(config)?;
        peer::bound_idle(wire::descriptors::prepare(&config)?);
        let started = match config.is_proxy() {
            true => Server::start_proxy(&config, common),
            false => Server::start_parts(&config, common, origin, create_origin),
        };
        started.map_err(|error| match device::system::shortage(&*error) {
            Some(lacking) => error.context(lacking),
            None => error,
        })
    }

    fn start_parts(
        config: &Config,
        common: Option<Common>,
        origin: Option<Arc<dyn Origin>>,
        create_origin: bool,
    ) -> anyhow::Result<Server> {
        let listeners = Listeners::open(config)?;
        let sharing = if config.is_clustered() { Sharing::Cluster } else { Sharing::Alone };
        let membership = Membership::start(config, common)?;
        let record = identity::record(config, membership.as_deref(), create_origin)?;
        let origin = match origin {
            Some(origin) => origin,
            None => monitor::open(&config.origin, sharing, record.clone())?,
        };
        let (now, unix_offset_ns) = (clock::now(), clock::unix_offset_ns());
        let run = create_run(config, now, unix_offset_ns)?;
        let windows = windows_of(config, unix_offset_ns);
        let live = LiveModel::start(config, unix_offset_ns)?;
        let components = Components::default();
        let mut process =
            Process { config, origin, record, membership, live, windows, now, components };
        process.settle_sockets();
        let node = listeners.node.is_some().then(|| process.make_node()).transpose()?;
        let gateway = listeners.gateway.is_some().then(|| process.make_gateway()).transpose()?;
        let mut observed: Vec<Arc<dyn Observed>> = Vec::new();
        observed.extend(node.iter().map(|node| node.clone() as Arc<dyn Observed>));
        observed.extend(gateway.iter().flatten().map(|it| it.clone() as Arc<dyn Observed>));
        process.observe(observed, run)?;
        process.follow_members();
        let mut addresses = Vec::new();
        if let (Some(node), Some(listener)) = (&node, listeners.node) {
            addresses.push(process.run_node(node, listener)?);
            process.run_work_beside(node)?;
        }
        let gateway = gateway.flatten();
        if let (Some(gateway), Some(listener)) = (&gateway, listeners.gateway) {
            addresses.push(process.run_gateway(gateway, listener)?);
        }
        let store: Option<Arc<dyn Store>> = match (gateway, &node) {
            (Some(gateway), _) => Some(gateway),
            (None, Some(node)) => Some(node.clone()),
            (None, None) => None,
        };
        let memcached = listeners.memcached.zip(store.clone());
        let memcached = memcached.map(|(listener, store)| process.run_text(store, listener));
        let memcached = memcached.transpose()?;
        let s3 = listeners.s3.zip(store);
        let s3 = s3.map(|(listener, store)| process.run_s3(store, listener)).transpose()?;
        let Some(&address) = addresses.last() else { anyhow::bail!("there is nothing to serve") };
        process.hand_over_first(node.as_ref());
        wire::inherited::close_others();
        let Process { membership, components, .. } = process;
        let memcached = memcached.map(|it: SocketAddr| it.to_string());
        let (pools, middleware) = (0, None);
        Ok(Server { components, membership, pools, middleware, address, memcached, s3 })
    }

    /// Starts a proxy for memcached's protocol. It needs no origin and no devices.
    fn start_proxy(config: &Config, common: Option<Common>) -> anyhow::Result<Server> {
        let listener = front::listen(&config.serve.listen, key_of_address(config))?;
        let follower = common.map(|common| Follower::alone(config, common)).transpose()?;
        let (now, unix_offset_ns) = (clock::now(), clock::unix_offset_ns());
        let run = create_run(config, now, unix_offset_ns)?;
        let windows = windows_of(config, unix_offset_ns);
        let mut settings = config.proxy(windows.clone(), rand::random())?;
        settings.connections_max = wire::descriptors::allowance(config).proxied;
        let live = LiveModel::start(config, unix_offset_ns)?;
        let middleware =
            Arc::new(Middleware::start(config, settings, windows, &live, follower, now)?);
        let observer = Observer::start(vec![middleware.clone()], run, live.clone(), now)?;
        let running = front::run(&middleware, listener)?;
        let address = running.address();
        let memcached = Some(middleware.address().to_string());
        let pools = config.pools.len();
        let kept = Some(middleware.clone());
        let mut components = Components::default();
        components.add(Component::new("passed-on sockets").end(wire::inherited::settle));
        components.add(Component::new("live model").end(move || live.stop()));
        components.add(Component::new("observer").end(|| observer.stop()));
        components
            .add(Component::new("proxy").tell(move || middleware.end()).end(|| running.stop()));
        wire::inherited::close_others();
        let (membership, s3, middleware) = (None, None, kept);
        Ok(Server { components, membership, pools, middleware, address, memcached, s3 })
    }

    /// Where clients that speak memcached's protocol connect, if any.
    pub fn memcached(&self) -> Option<String> {
        self.memcached.clone()
    }

    /// Where S3's clients connect, if any.
    pub fn s3(&self) -> Option<SocketAddr> {
        self.s3
    }

    /// Takes what can change while it runs from a configuration that was read again: of a proxy its pools, routes and
    /// limits. Returns whether there is anything of the kind.
    ///
    /// # Errors
    /// What it names cannot be used; what was in use still is.
    pub fn reload(&self, config: &Config) -> anyhow::Result<bool> {
        let Some(middleware) = &self.middleware else { return Ok(false) };
        middleware.reload(config)?;
        Ok(true)
    }

    /// Whether [`Server::reload`] takes the value of a key, as [`Config::differences`] names it. Any other counts from the next
    /// start on. `memcached.connections_max` is one of those: it was made to fit the limit of open files.
    pub fn reloads(&self, key: &str) -> bool {
        let section = key.split('.').next().unwrap_or(key);
        self.middleware.is_some()
            && matches!(section, "memcached" | "pool" | "route")
            && !matches!(key, "memcached.connections_max" | "memcached.node_listen")
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
        self.components.end();
    }
}

impl Process<'_> {
    /// Whether clients come to a gateway of this process, which needs its node until they have left.
    fn is_behind_gateway(&self) -> bool {
        self.config.is_gateway() && self.config.is_node()
    }

    /// The sockets that the process before this one passed on, and those that this one passes on, are the last to go.
    fn settle_sockets(&mut self) {
        self.components.add(Component::new("passed-on sockets").end(wire::inherited::settle));
    }

    /// A node that is not running yet, with its devices.
    fn make_node(&mut self) -> anyhow::Result<Arc<Node>> {
        let node = self.node()?;
        let controls: Arc<dyn Controls> = node.drive.clone();
        self.live.set_node(&controls);
        let drive = node.drive.clone();
        self.components.add(Component::new("log of events").end(move || drive.close_log()));
        Ok(node)
    }

    fn node(&self) -> anyhow::Result<Arc<Node>> {
        let (config, windows) = (self.config, &self.windows);
        let place = |membership: &Arc<Membership>| {
            let ring = membership.members().ring.clone();
            membership.me().map(|me| place_of(config, ring, me, membership.lag()))
        };
        let cluster = self.membership.as_ref().and_then(place);
        let memory_most = config.node.memory_bytes.0.max(config.node.memory_shared_bytes.0);
        let arena_bytes = ARENA_TIMES.saturating_mul(memory_most).saturating_add(ARENA_BYTES_MORE);
        device::arena::open(arena_bytes);
        let memory =
            config.node.shared().map(|of| live::memory::Memory::new(of, self.live.clone()));
        let mismatches = Arc::new(Mismatches::default());
        let datasets = Datasets::new(
            config,
            self.origin.clone(),
            self.membership.clone(),
            windows.clone(),
            &self.live,
            memory.as_ref(),
            self.now,
        )?;
        if let Some(copies) = &config.datasets.path {
            self.record.add_folder(copies);
        }
        let peers = cluster.as_ref().zip(self.membership.clone());
        let peers = peers.map(|(cluster, of)| {
            Peers::new(config, cluster, of, mismatches.clone(), self.record.clone())
        });
        let peers = peers.transpose()?.map(Arc::new);
        let mut settings = settings_of(config, cluster, windows.clone());
        let folders = folders_of(config);
        let devices = Opened::open(&folders, config.cluster.name.as_deref(), &self.record)?;
        devices.settle(&folders, &mut settings.devices);
        let log = match &config.observe.run_dir {
            Some(dir) if config.observe.events => {
                Some(EventLog::create(&dir.join("events"), &settings, self.now)?)
            }
            _ => None,
        };
        let timeout = Duration::from_secs_f64(config.origin.timeout_s);
        let origin = self.origin.clone();
        let drive = Arc::new(Drive::new(settings, origin, timeout, peers, log, self.now));
        drive.start_disks(&folders, devices)?;
        // In one process with a gateway, whose queue is the clients'.
        let queue = if config.is_gateway() { QueueName::NodeHttp } else { QueueName::Gateway };
        let front = Front::new(config, queue, windows.clone(), &self.live, self.now);
        Ok(Arc::new(Node::new(front, drive, mismatches, datasets, memory)))
    }

    /// A gateway that is not running yet; `None` without members.
    fn make_gateway(&self) -> anyhow::Result<Option<Arc<Gateway>>> {
        let Some(membership) = self.membership.clone() else { return Ok(None) };
        let (origin, record) = (self.origin.clone(), self.record.clone());
        let (windows, live) = (self.windows.clone(), &self.live);
        let gateway =
            Gateway::new(self.config, membership, windows, origin, record, live, self.now)?;
        Ok(Some(Arc::new(gateway)))
    }

    /// Starts what writes down the windows and changes of all others, and so ends after them.
    fn observe(
        &mut self,
        observed: Vec<Arc<dyn Observed>>,
        run: Option<RunWriter>,
    ) -> anyhow::Result<()> {
        let live = self.live.clone();
        self.components.add(Component::new("live model").end(move || live.stop()));
        let traces = TraceExporter::start(self.config, &observed)?;
        let observer = Observer::start(observed, run, self.live.clone(), self.now)?;
        self.components.add(Component::new("observer").end(|| observer.stop()));
        if let Some(traces) = traces {
            self.components.add(Component::new("traces").end(|| traces.stop()));
        }
        Ok(())
    }

    /// Leaves the members once nothing is served any more. A node has left before, when it handed over.
    fn follow_members(&mut self) {
        if let Some(membership) = self.membership.clone() {
            let leave = move || membership.leave(false);
            self.components.add(Component::new("membership").end(leave));
        }
    }

    /// Runs the front of a node, with its devices and what keeps its leases.
    fn run_node(&mut self, node: &Arc<Node>, listener: TcpListener) -> anyhow::Result<SocketAddr> {
        self.belong(node);
        let tls = match self.config.is_clustered() {
            false => for_clients(self.config, node)?,
            true => encrypt_between(self.config, node)?,
        };
        let devices = node.clone();
        let within = Duration::from_secs_f64(self.config.serve.drain_s / DRAIN_OVER_WRITES);
        self.components.add(Component::new("devices").end(move || {
            if let Some(disks) = devices.drive.disks() {
                disks.stop(within);
            }
        }));
        let running = front::run(node, listener)?;
        let (address, runtimes) = (running.address(), running.runtimes());
        node.drive.set_runtimes(runtimes);
        keep_current(tls, &running);
        if let Some(membership) = &self.membership {
            let tick = Duration::from_secs_f64(self.config.cluster.lease_s / 10.0);
            let beat = Beat::start(node.drive.clone(), membership.clone(), tick)?;
            membership.serve();
            self.components.add(Component::new("leases").end(|| beat.stop()));
        }
        let front = Component::new("node");
        let (told, ended) = (node.clone(), node.clone());
        let stopping = running.stopping();
        let front = match self.is_behind_gateway() {
            // The gateway's clients are served to the end.
            true => front,
            false => front.tell(move || {
                told.stop();
                stopping.begin();
            }),
        };
        self.components.add(front.end(move || {
            ended.stop();
            running.stop();
        }));
        Ok(address)
    }

    /// Starts what a node does beside requests: layers of shards, and the division of memory.
    fn run_work_beside(&mut self, node: &Arc<Node>) -> anyhow::Result<()> {
        let runtimes = node.drive.runtimes();
        if let Some(datasets) = &node.datasets {
            let running = datasets.start(runtimes.first())?;
            self.components.add(Component::new("datasets").end(|| running.stop()));
        }
        if let Some(memory) = &node.memory {
            let controls: Arc<dyn Controls> = node.drive.clone();
            let running = memory.start(&controls)?;
            self.components.add(Component::new("division of memory").end(|| running.stop()));
        }
        Ok(())
    }

    /// Runs memcached's protocol before a store.
    fn run_text(
        &mut self,
        store: Arc<dyn Store>,
        listener: TcpListener,
    ) -> anyhow::Result<SocketAddr> {
        let running = front::run(&Memcached::new(store.clone()), listener)?;
        store.read_on(&running.runtimes());
        let address = running.address();
        self.add_front("memcached's protocol", running);
        Ok(address)
    }

    /// Runs the front of a gateway.
    fn run_gateway(
        &mut self,
        gateway: &Arc<Gateway>,
        listener: TcpListener,
    ) -> anyhow::Result<SocketAddr> {
        self.belong(gateway);
        let tls = for_clients(self.config, gateway)?;
        let running = front::run(gateway, listener)?;
        if let Some(runtime) = running.runtimes().first() {
            runtime.spawn(gateway.clone().run());
        }
        keep_current(tls, &running);
        let (address, stopping, told) = (running.address(), running.stopping(), gateway.clone());
        let tell = move || {
            told.stop();
            stopping.begin();
        };
        self.components.add(Component::new("gateway").tell(tell).end(|| running.stop()));
        Ok(address)
    }

    /// Runs S3's protocol before a store.
    fn run_s3(
        &mut self,
        store: Arc<dyn Store>,
        listener: TcpListener,
    ) -> anyhow::Result<SocketAddr> {
        let s3 = s3::S3::new(self.config, store)?;
        let running = front::run(&s3, listener)?;
        s3.read_on(&running.runtimes());
        if let Some(runtime) = running.runtimes().first() {
            runtime.spawn(s3.run());
        }
        let address = running.address();
        self.add_front("S3's protocol", running);
        Ok(address)
    }

    /// A front whose connections are counted together with those of its store, which waits for all of them: it is told too.
    fn add_front(&mut self, name: &'static str, running: Running) {
        let stopping = running.stopping();
        let front = Component::new(name).tell(move || stopping.begin());
        self.components.add(front.end(|| running.stop()));
    }

    /// Has a node hand its keys over before anything else ends: it serves until the others know.
    fn hand_over_first(&mut self, node: Option<&Arc<Node>>) {
        let leased = self.membership.clone().filter(|membership| membership.is_leased());
        let (Some(node), Some(membership)) = (node.cloned(), leased) else { return };
        let within = Duration::from_secs_f64(self.config.serve.drain_s / 2.0);
        let hand_over = move || handover::hand_over(&node.drive, &membership, within);
        self.components.add(Component::new("handover").tell(hand_over));
    }

    /// Tells a front which cluster it belongs to.
    fn belong(&self, front: &Front) {
        if let Some(membership) = &self.membership {
            let _ = front.cluster.set(membership.clone());
        }
    }
}

/// Has a front of clients keep to their limits, and encrypt their connections if the configuration has a
/// certificate.
fn for_clients(config: &Config, front: &Front) -> anyhow::Result<Option<Arc<Tls>>> {
    if let Some(limits) = wire::limits::Limits::from_settings(&config.serve) {
        let _ = front.limits.set(limits);
    }
    let (Some(certificate), Some(key)) = (&config.serve.tls_certificate, &config.serve.tls_key)
    else {
        return Ok(None);
    };
    let tls = Tls::open(certificate, key, None)?;
    let _ = front.tls.set(tls.clone());
    Ok(Some(tls))
}

/// Has a node encrypt the connections of its cluster's processes, if the configuration has certificates for
/// them: who has none is refused.
fn encrypt_between(config: &Config, front: &Front) -> anyhow::Result<Option<Arc<Tls>>> {
    let Some((ca, (certificate, key))) = config.cluster.certificates() else { return Ok(None) };
    let tls = Tls::open(certificate, key, Some(ca))?;
    let _ = front.tls.set(tls.clone());
    Ok(Some(tls))
}

/// Keeps a certificate as its file is.
fn keep_current(tls: Option<Arc<Tls>>, running: &Running) {
    if let (Some(tls), Some(runtime)) = (tls, running.runtimes().first()) {
        runtime.spawn(tls.keep_current());
    }
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
        machine: Machine::describe(),
        asked: config.as_table(),
    };
    Ok(Some(RunWriter::create(dir, &run)?))
}
