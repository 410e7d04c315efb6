//! The datasets of a node or gateway: found in the origin, kept current, and looked up by name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use engine::dataset::{Lookup, Lookups};
use ground::Key;
use ground::window::{self, Nanos, Operation, Window};
use serde_json::{Value, json};
use shard::query::Limits;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinHandle, JoinSet};
use tracing::{info, warn};

use super::complaints::Complaints;
use super::error::{Error, Result};
use super::layers::{self, Layers};
use super::leases::Copies;
use super::room::{APPENDS_BYTES_MAX, Room};
use super::served::{Common, Served};
use super::station::Bound;
use super::view::View;
use configuration::Config;
use dataset::part::Work;
use dataset::{Info, remote};
use live::LiveModel;
use live::memory::Memory;
use membership::Membership;
use origin::{Origin, TimeLimited};
use record::clock;
use wire::lane::{RequestRecord, ThreadRecorder};
use wire::pace::Pace;

/// A name that was not found is not looked up in the origin again before this time has passed.
const LOOKUP_PAUSE: Nanos = 1_000_000_000;

/// Maximum number of failed look-ups remembered. While there are this many, no other unknown name
/// is looked up.
const FAILED_LOOKUPS_MAX: usize = 1000;

/// Pause after a listing of the origin, as a multiple of the listing's duration. A folder origin
/// reads all its names for a listing, those of objects too. The pause delays neither a request for
/// one dataset nor a request for the list: both read the origin at once.
const LISTING_PAUSE: u32 = 50;

/// Datasets that are compared with the origin at a time, each with its copies of shards under way: more would share the same link.
const REFRESHES_MAX: usize = 16;

/// Whether a key belongs to this process.
type Whose = Box<dyn Fn(&Key) -> bool + Send + Sync>;

/// Which keys of datasets this process has to do with.
struct Duties {
    /// Shards that it serves.
    is_mine: Whose,
    /// Datasets of which it seals the log.
    seals: Whose,
}

impl Duties {
    /// Those of a process that serves no shards.
    fn none() -> Duties {
        Duties { is_mine: Box::new(|_| false), seals: Box::new(|_| false) }
    }
}

/// What a query of one shard may cost.
fn query_work(config: &Config) -> Work {
    let bytes = config.datasets.query_read_bytes_max.0;
    let read_bytes_max = usize::try_from(bytes).unwrap_or(usize::MAX);
    Work { limits: Limits { read_bytes_max, ..Limits::default() }, watch: None }
}

/// When a listing of the origin's datasets began, and its result.
type Listing = (Nanos, Result<Arc<Vec<Value>>, String>);

/// All datasets of a node.
pub struct Datasets {
    pub(super) common: Arc<Common>,
    /// For reading a dataset's manifest and log without copying its shards.
    pub(super) outline: Arc<Common>,
    /// The result of the latest listing. Locked while a listing runs.
    pub(super) listing: tokio::sync::Mutex<Option<Listing>>,
    pub(super) served: RwLock<BTreeMap<String, Arc<Served>>>,
    pub(super) refresh: Duration,
    /// How long a silent client that appends is waited for.
    pub(super) pace: Pace,
    /// Bytes of appends that there is room for.
    pub(super) appends: Room,
    /// Records the requests of clients and gateways for datasets.
    pub(super) lane: Arc<ThreadRecorder>,
    pub(super) layers: Arc<Layers>,
    /// Copies of shards beside those of the ring.
    pub(super) copies: Arc<Copies>,
    /// The folder of all copies, which no other process uses meanwhile.
    pub(super) _folder: Option<dataset::copies::Copies>,
    /// Number of nodes that hold each shard.
    pub(super) replicas: u32,
    /// Whether to list the origin periodically. A node does, to copy shards before the first
    /// request; a gateway looks a dataset up when it is requested.
    pub(super) looks_for_all: bool,
    /// Names that were not found lately.
    pub(super) lookups: Mutex<Lookups>,
    pub(super) complaints: Complaints,
}

/// The running threads and tasks of a [`Datasets`].
pub struct Running {
    layers: layers::Running,
    /// The comparison with the origin, and the upkeep of local copies; none without a runtime.
    tasks: Vec<JoinHandle<()>>,
}

impl Datasets {
    /// The datasets of a node; `None` if the configuration has no `datasets.path`.
    ///
    /// # Errors
    ///
    /// If the folder of local copies cannot be created or read, or the settings of layers are
    /// invalid.
    pub fn new(
        config: &Config,
        origin: Arc<dyn Origin>,
        membership: Option<Arc<Membership>>,
        windows: window::Settings,
        live: &Arc<LiveModel>,
        memory: Option<&Arc<Memory>>,
        now: Nanos,
    ) -> Result<Option<Arc<Datasets>>> {
        let Some(path) = &config.datasets.path else { return Ok(None) };
        let folder = dataset::copies::Copies::open(path, config.cluster.name.as_deref())
            .map_err(Error::Copies)?;
        let (nodes, leased) = (membership.clone(), Arc::new(Copies::default()));
        let more = leased.clone();
        let is_mine = move |key: &Key| match &nodes {
            Some(it) => {
                let own = it.members().ring.replicas(key).iter().any(|node| Some(node) == it.me());
                own || more.holds(window::key_hash(key))
            }
            None => true,
        };
        // Chunks and manifests are put by conditions, so that two that seal do no harm.
        let seals = move |key: &Key| match &membership {
            Some(it) => it.members().primary(key) == it.me(),
            None => true,
        };
        let mut all = Self::make(
            config,
            Some(path.clone()),
            origin,
            windows,
            Duties { is_mine: Box::new(is_mine), seals: Box::new(seals) },
            live,
            now,
        )?;
        all._folder = Some(folder);
        all.looks_for_all = true;
        all.copies = leased.clone();
        all.layers.count_copies(leased);
        // Without layers they have no part in it.
        if let Some(memory) = memory.filter(|_| config.datasets.layers_bytes.0 > 0) {
            all.layers.share(memory.clone());
        }
        Ok(Some(Arc::new(all)))
    }

    /// The datasets of a gateway: manifests and logs, without shards.
    ///
    /// # Errors
    ///
    /// If the settings of layers are invalid.
    pub fn without_shards(
        config: &Config,
        origin: Arc<dyn Origin>,
        windows: window::Settings,
        live: &Arc<LiveModel>,
        now: Nanos,
    ) -> Result<Arc<Datasets>> {
        Self::make(config, None, origin, windows, Duties::none(), live, now).map(Arc::new)
    }

    fn make(
        config: &Config,
        copies: Option<PathBuf>,
        origin: Arc<dyn Origin>,
        windows: window::Settings,
        duties: Duties,
        live: &Arc<LiveModel>,
        now: Nanos,
    ) -> Result<Datasets> {
        let one_in = config.observe.sample_one_in;
        let timeout = Duration::from_secs_f64(config.origin.timeout_s);
        let origin: Arc<dyn Origin> = Arc::new(TimeLimited::new(origin, timeout));
        let common = |copies: Option<PathBuf>, Duties { is_mine, seals }: Duties| {
            Arc::new(Common {
                origin: origin.clone(),
                copies,
                bound: Bound {
                    length_max: config.datasets.queue_length_max,
                    overload: config.datasets.overload,
                },
                work: query_work(config),
                windows: windows.clone(),
                is_mine,
                seals,
            })
        };
        Ok(Datasets {
            lane: Arc::new(ThreadRecorder::new("datasets", windows.clone(), one_in, now)),
            outline: common(None, Duties::none()),
            common: common(copies, duties),
            listing: tokio::sync::Mutex::default(),
            served: RwLock::default(),
            refresh: Duration::from_secs_f64(config.datasets.refresh_s),
            pace: Pace::from_settings(&config.serve),
            appends: Room::new(APPENDS_BYTES_MAX),
            layers: Layers::new(
                config.datasets.layers(),
                config.datasets.layers_fill,
                live.clone(),
            )?,
            copies: Arc::default(),
            _folder: None,
            replicas: if config.members.is_empty() { 1 } else { config.cluster.replicas.min(8) },
            looks_for_all: false,
            lookups: Mutex::new(Lookups::new(LOOKUP_PAUSE, FAILED_LOOKUPS_MAX)),
            complaints: Complaints::default(),
        })
    }

    /// Starts the management of layers and, on `runtime`, the periodic comparison with the origin.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started.
    pub fn start(self: &Arc<Datasets>, runtime: Option<&Handle>) -> Result<Running> {
        let datasets = self.clone();
        let layers = self.layers.start(move || datasets.all())?;
        let tasks = runtime.map_or_else(Vec::new, |runtime| {
            vec![
                runtime.spawn(self.clone().keep_copies()),
                runtime.spawn(self.clone().keep_current()),
            ]
        });
        Ok(Running { layers, tasks })
    }

    /// Begins the record of a request for the dataset `name`.
    pub fn received(&self, operation: Operation, name: &str) -> RequestRecord {
        self.lane.received(operation, name.as_bytes())
    }

    /// All known datasets.
    pub fn all(&self) -> Vec<Arc<Served>> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.values().cloned().collect()
    }

    /// Compares each known dataset with the origin `datasets.refresh_s` seconds after the last time; never returns.
    ///
    /// Each has a task of its own: one whose shards are being copied, or whose origin does not answer, must not make the others stale.
    pub async fn keep_current(self: Arc<Self>) {
        let mut next_listing = Instant::now();
        let mut refreshes = JoinSet::new();
        let mut under_way: HashMap<Id, String> = HashMap::new();
        let slots = Arc::new(Semaphore::new(REFRESHES_MAX));
        loop {
            let start = Instant::now();
            let mut names = Vec::new();
            if self.looks_for_all && start >= next_listing {
                match remote::names(&self.common.origin).await {
                    Ok(found) => {
                        names = found;
                        next_listing = start + LISTING_PAUSE * start.elapsed();
                    }
                    Err(error) => warn!("cannot list the datasets in the origin: {error}"),
                }
            }
            while let Some(ended) = refreshes.try_join_next_with_id() {
                under_way.remove(&ended.map_or_else(|error| error.id(), |(id, ())| id));
            }
            names.extend(self.all().iter().map(|served| served.name().to_owned()));
            names.sort();
            names.dedup();
            let busy: HashSet<&String> = under_way.values().collect();
            names.retain(|name| !busy.contains(name));
            for name in names {
                let (of, slots, own) = (self.clone(), slots.clone(), name.clone());
                let refresh = refreshes.spawn(async move {
                    let _slot = slots.acquire().await;
                    of.refresh_one(&own).await;
                });
                under_way.insert(refresh.id(), name);
            }
            tokio::time::sleep(self.refresh).await;
        }
    }

    /// Compares a dataset with the origin, and copies what belongs here.
    async fn refresh_one(&self, name: &str) {
        let served = self.add(name);
        let before = served.view().map(|view| view.current.manifest.id.clone());
        let mut refreshed = served.refresh().await;
        let lacks = |view: Arc<View>| served.lacks_some(&view);
        if refreshed.is_ok() && served.view().is_some_and(lacks) {
            info!("dataset {name}: further shards belong here now");
            refreshed = served.moved().await;
        }
        let refreshed = refreshed.map_err(|error| ground::with_causes(&error));
        let error = refreshed.as_ref().err().map(String::as_str);
        if self.complaints.is_news(name, error, Instant::now()) {
            match &refreshed {
                Err(error) => warn!("{error}"),
                Ok(()) => info!("dataset {name} can be read again"),
            }
        }
        if refreshed.is_err() {
            return;
        }
        match served.view() {
            Some(view) if before.as_ref() != Some(&view.current.manifest.id) => {
                let (here, all) = (view.dataset.parts().len(), view.current.manifest.shards.len());
                info!("serving dataset {name}: {here} of its {all} shards are here");
            }
            Some(_) => {}
            None => self.forget(name),
        }
    }

    /// Lists the datasets in the origin: each with its name and its [`Info`], or the error that
    /// prevented reading it. One listing runs at a time. Callers that arrive while it runs share
    /// the next one, so that every result is at least as new as its call.
    ///
    /// # Errors
    ///
    /// If the origin cannot be listed.
    pub async fn listed(&self) -> Result<Arc<Vec<Value>>> {
        let called = clock::now();
        let mut last = self.listing.lock().await;
        let made = last.as_ref().filter(|(begun, _)| *begun >= called);
        let found = match made.map(|(_, found)| found.clone()) {
            Some(found) => found,
            None => {
                let begun = clock::now();
                let all = self.list_all().await;
                let found = all.map(Arc::new).map_err(|error| error.to_string());
                *last = Some((begun, found.clone()));
                found
            }
        };
        found.map_err(Error::Shared)
    }

    async fn list_all(&self) -> Result<Vec<Value>, origin::Error> {
        let mut names = remote::names(&self.common.origin).await?;
        names.sort();
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            // A known dataset is kept current, for which a node copies its shards.
            let served = self.add(&name);
            match self.info(&served).await {
                Ok(Some(info)) => all.push(json!({ "name": name, "info": info })),
                Ok(None) => self.forget(&name),
                Err(error) => {
                    all.push(json!({ "name": name, "error": ground::with_causes(&error) }))
                }
            }
        }
        Ok(all)
    }

    /// A dataset's size and contents; `None` if it does not exist. Does not wait for shards to be
    /// copied.
    async fn info(&self, served: &Arc<Served>) -> Result<Option<Info>> {
        let mut read = served.clone();
        if served.view().is_none() {
            if self.looks_for_all {
                read = Served::new(served.name(), self.outline.clone());
            }
            read.refresh().await?;
        }
        Ok(read.view().map(|view| view.dataset.info()))
    }

    fn add(&self, name: &str) -> Arc<Served> {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Served::new(name, self.common.clone());
        served.entry(name.to_owned()).or_insert_with(new).clone()
    }

    fn forget(&self, name: &str) {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        if served.get(name).is_some_and(|served| served.view().is_none()) {
            served.remove(name);
        }
    }

    /// Finds a dataset by name; looks an unknown one up in the origin. `None` if it does not exist,
    /// or if it was not found less than a second ago.
    ///
    /// # Errors
    ///
    /// Those of the origin; a failed look-up is not repeated within a second.
    pub async fn find(&self, name: &str) -> Result<Option<Arc<Served>>> {
        let known = {
            let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
            served.get(name).cloned()
        };
        if let Some(served) = known.as_ref().filter(|served| served.view().is_some()) {
            return Ok(Some(served.clone()));
        }
        // A dataset that another request is opening is known but has no view: wait for that.
        if !dataset::is_name(name) {
            return Ok(None);
        }
        if known.is_none() {
            match self.lookups().may(clock::now(), name) {
                Lookup::Yes => {}
                Lookup::No => return Ok(None),
                Lookup::Failed(error) => return Err(Error::Shared(error.to_string())),
            }
        }
        let served = self.add(name);
        let view = served.first_view().await;
        if served.view().is_none() {
            self.forget(name);
        }
        match view {
            Ok(Some(_)) => return Ok(Some(served)),
            Ok(None) => self.lookups().failed(clock::now(), name, None),
            Err(error) => {
                let told = ground::with_causes(&error).into();
                self.lookups().failed(clock::now(), name, Some(told));
                return Err(error);
            }
        }
        Ok(None)
    }

    fn lookups(&self) -> MutexGuard<'_, Lookups> {
        self.lookups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The windows that ended by `now`, of all queues; with `flush`, the current ones too.
    pub fn windows(&self, now: Nanos, flush: bool) -> Vec<Window> {
        let (mut windows, _) = self.lane.take(now, flush);
        for served in self.all() {
            windows.extend(served.windows(now, flush));
        }
        windows
    }
}

impl Running {
    /// Stops the threads and the tasks. Tasks end first: they hand copies to the layers.
    pub fn stop(self) {
        for task in &self.tasks {
            task.abort();
        }
        self.layers.stop();
    }
}
