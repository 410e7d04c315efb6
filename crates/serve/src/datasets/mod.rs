//! Datasets that a node serves: found in the origin, copied, searched, appended to.
//!
//! `ask` is what can be asked, `served` one dataset, `station` the queue before each of its parts, `layers` what
//! makes shards faster while there is memory, `http` the requests.

pub mod ask;
mod complaints;
pub mod http;
mod layers;
pub mod served;
mod station;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use engine::Key;
use engine::node::ClusterSettings;
use model::window::{self, Nanos, Operation, Window};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::lane::{Lane, Seen};
use crate::config::Config;
use crate::pace::Pace;
use complaints::Complaints;
use dataset::{Info, remote};
use layers::Layers;
use origin::{Error, Origin};
use record::clock;
use served::{Common, Served};

/// Names that were asked for and are not there are looked up in the origin again, but not more often.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Names that are remembered so; while there are as many, no other is looked up.
const NAMES_MAX: usize = 1000;

/// How many times as long as it took there is no listing of the origin after one: a folder reads all its names
/// for it, those of objects too. A dataset that is asked for is looked for at once in any case, and so are
/// all when their list is asked for.
const LISTING_PAUSE: u32 = 50;

/// Says of keys which are somebody's.
type Whose = Box<dyn Fn(&Key) -> bool + Send + Sync>;

/// When the datasets of the origin began to be listed, and what came of it.
type Listing = (Nanos, Result<Arc<Vec<Value>>, String>);

/// All datasets of a node.
pub struct Datasets {
    common: Arc<Common>,
    /// What tells of a dataset without its shards.
    outline: Arc<Common>,
    /// The last list that was asked for. Held while another is made.
    listing: tokio::sync::Mutex<Option<Listing>>,
    served: RwLock<BTreeMap<String, Arc<Served>>>,
    refresh: Duration,
    /// How long a silent client that appends is waited for.
    pace: Pace,
    /// Bytes of appends that there is room for.
    appends: Arc<Semaphore>,
    /// Requests of clients and gateways, beside those for objects.
    lane: Arc<Lane>,
    layers: Arc<Layers>,
    /// Nodes of a shard, of which each has it.
    replicas: u32,
    /// A node makes copies of what there is before it is asked; a gateway learns of it when it is asked.
    looks_for_all: bool,
    /// When a name was looked up in vain.
    looked: std::sync::Mutex<BTreeMap<String, (Nanos, Option<String>)>>,
    complaints: Complaints,
}

/// What runs for them.
pub struct Running {
    layers: layers::Running,
    refreshing: Option<tokio::task::JoinHandle<()>>,
}

impl Datasets {
    /// Those of a configuration; `None` if it serves none.
    ///
    /// # Errors
    ///
    /// If the folder of copies cannot be made.
    pub fn new(
        config: &Config,
        cluster: Option<&ClusterSettings>,
        origin: Arc<dyn Origin>,
        windows: window::Settings,
        now: Nanos,
    ) -> anyhow::Result<Option<Arc<Datasets>>> {
        let Some(path) = &config.datasets.path else { return Ok(None) };
        std::fs::create_dir_all(path)
            .map_err(|error| anyhow::anyhow!("cannot make {}: {error}", path.display()))?;
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            // A seal that a crash broke off.
            if entry.file_name().to_string_lossy().starts_with(served::SEALING) {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        let place = cluster.map(|cluster| (cluster.ring.clone(), cluster.me));
        let nodes = place.clone();
        let is_mine = move |key: &Key| match &nodes {
            Some((ring, me)) => ring.replicas(key).iter().any(|node| node == *me),
            None => true,
        };
        let seals = move |key: &Key| match &place {
            Some((ring, me)) => ring.replicas(key).iter().next() == Some(*me),
            None => true,
        };
        let copies = path.clone();
        let mut all =
            Self::of(config, copies, origin, windows, Box::new(is_mine), Box::new(seals), now)?;
        all.looks_for_all = true;
        Ok(Some(Arc::new(all)))
    }

    /// Those of a gateway: their manifests and logs, and no shards.
    ///
    /// # Errors
    ///
    /// Settings of layers that cannot hold.
    pub fn without_shards(
        config: &Config,
        origin: Arc<dyn Origin>,
        windows: window::Settings,
        now: Nanos,
    ) -> anyhow::Result<Arc<Datasets>> {
        let no: fn(&Key) -> bool = |_| false;
        let copies = PathBuf::new();
        Self::of(config, copies, origin, windows, Box::new(no), Box::new(no), now).map(Arc::new)
    }

    fn of(
        config: &Config,
        copies: PathBuf,
        origin: Arc<dyn Origin>,
        windows: window::Settings,
        is_mine: Whose,
        seals: Whose,
        now: Nanos,
    ) -> anyhow::Result<Datasets> {
        let one_in = config.observe.sample_one_in;
        let common = |copies: PathBuf, is_mine: Whose, seals: Whose| {
            Arc::new(Common {
                origin: origin.clone(),
                copies,
                queue_length_max: config.datasets.queue_length_max,
                windows: windows.clone(),
                is_mine,
                seals,
            })
        };
        let no: fn(&Key) -> bool = |_| false;
        Ok(Datasets {
            lane: Arc::new(Lane::new("datasets", windows.clone(), one_in, now)),
            outline: common(PathBuf::new(), Box::new(no), Box::new(no)),
            common: common(copies, is_mine, seals),
            listing: tokio::sync::Mutex::default(),
            served: RwLock::default(),
            refresh: Duration::from_secs_f64(config.datasets.refresh_s),
            pace: Pace::of(&config.serve),
            appends: Arc::new(Semaphore::new(http::APPENDS_BYTES_MAX)),
            layers: Layers::new(config.datasets.layers())?,
            replicas: if config.members.is_empty() { 1 } else { config.cluster.replicas.min(8) },
            looks_for_all: false,
            looked: std::sync::Mutex::default(),
            complaints: Complaints::default(),
        })
    }

    /// Begins to look for datasets in the origin, and to manage layers.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started.
    pub fn start(self: &Arc<Datasets>, runtime: Option<&Handle>) -> anyhow::Result<Running> {
        let datasets = self.clone();
        let refreshing = runtime.map(|runtime| runtime.spawn(datasets.keep_current()));
        Ok(Running { layers: self.layers.start(self)?, refreshing })
    }

    /// A request came.
    pub fn received(&self, operation: Operation, name: &str) -> Seen {
        self.lane.received(operation, name.as_bytes())
    }

    /// All that were found.
    pub fn all(&self) -> Vec<Arc<Served>> {
        let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
        served.values().cloned().collect()
    }

    /// Looks at the origin from time to time, for ever.
    pub async fn keep_current(self: Arc<Self>) {
        let mut next_listing = Instant::now();
        loop {
            let start = Instant::now();
            let mut names = Vec::new();
            if self.looks_for_all && start >= next_listing {
                match remote::names(&self.common.origin).await {
                    Ok(found) => {
                        names = found;
                        next_listing = start + LISTING_PAUSE * start.elapsed();
                    }
                    Err(error) => warn!("the datasets of the origin cannot be listed: {error}"),
                }
            }
            self.refresh_all(names).await;
            tokio::time::sleep(self.refresh).await;
        }
    }

    /// Refreshes the datasets of these names, and those that are known.
    async fn refresh_all(&self, mut names: Vec<String>) {
        names.extend(self.all().iter().map(|served| served.name().to_owned()));
        names.sort();
        names.dedup();
        for name in names {
            let served = self.add(&name);
            let before = served.view().map(|view| view.current.manifest.id.clone());
            let refreshed = served.refresh().await.map_err(|error| format!("{error:#}"));
            let error = refreshed.as_ref().err().map(String::as_str);
            if self.complaints.is_news(&name, error, Instant::now()) {
                match &refreshed {
                    Err(error) => warn!("{error}"),
                    Ok(()) => info!("dataset {name} can be read again"),
                }
            }
            if refreshed.is_err() {
                continue;
            }
            match served.view() {
                Some(view) if before.as_ref() != Some(&view.current.manifest.id) => {
                    let (here, all) =
                        (view.dataset.parts().len(), view.current.manifest.shards.len());
                    info!("dataset {name} is served: {here} of {all} shards");
                }
                Some(_) => {}
                None => self.forget(&name),
            }
            served.seal_if_large();
        }
    }

    /// The datasets that the origin has now: each with its name and what it takes, or why that is not known. One
    /// list is made at a time; who asks meanwhile waits for the next, which is for all who do.
    ///
    /// # Errors
    ///
    /// If the origin cannot be listed.
    pub async fn listed(&self) -> anyhow::Result<Arc<Vec<Value>>> {
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
        found.map_err(anyhow::Error::msg)
    }

    async fn list_all(&self) -> Result<Vec<Value>, Error> {
        let mut names = remote::names(&self.common.origin).await?;
        names.sort();
        let mut all = Vec::with_capacity(names.len());
        for name in names {
            // From here on it is kept current, for which a node makes its copies.
            let served = self.add(&name);
            match self.info(&served).await {
                Ok(Some(info)) => all.push(json!({ "name": name, "info": info })),
                Ok(None) => self.forget(&name),
                Err(error) => all.push(json!({ "name": name, "error": format!("{error:#}") })),
            }
        }
        Ok(all)
    }

    /// What a dataset takes. Copies of shards are not waited for.
    async fn info(&self, served: &Arc<Served>) -> anyhow::Result<Option<Info>> {
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

    /// A dataset by name: one that is not known is looked for in the origin.
    ///
    /// # Errors
    ///
    /// Those of the origin.
    pub async fn find(&self, name: &str) -> anyhow::Result<Option<Arc<Served>>> {
        let known = {
            let served = self.served.read().unwrap_or_else(PoisonError::into_inner);
            served.get(name).cloned()
        };
        if let Some(served) = known.as_ref().filter(|served| served.view().is_some()) {
            return Ok(Some(served.clone()));
        }
        // One that is being read for the first time is waited for.
        if !dataset::is_name(name) || (known.is_none() && !self.may_look(name)?) {
            return Ok(None);
        }
        let served = self.add(name);
        let view = served.first_view().await;
        if served.view().is_none() {
            self.forget(name);
        }
        match view {
            Ok(Some(_)) => return Ok(Some(served)),
            Ok(None) => self.looked_in_vain(name, None),
            Err(error) => {
                self.looked_in_vain(name, Some(format!("{error:#}")));
                return Err(error);
            }
        }
        Ok(None)
    }

    /// Whether it is some time since a name was looked up in vain.
    ///
    /// # Errors
    ///
    /// What that look-up failed of.
    fn may_look(&self, name: &str) -> anyhow::Result<bool> {
        let now = clock::now();
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let again = LOOK_AGAIN.as_nanos() as Nanos;
        looked.retain(|_, (at, _)| now.saturating_sub(*at) < again);
        match looked.get(name) {
            Some((_, Some(failed))) => anyhow::bail!("{failed}"),
            Some((_, None)) => Ok(false),
            None => Ok(looked.len() < NAMES_MAX),
        }
    }

    fn looked_in_vain(&self, name: &str, failed: Option<String>) {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.len() < NAMES_MAX {
            looked.insert(name.to_owned(), (clock::now(), failed));
        }
    }

    /// The windows of all queues.
    pub fn windows(&self, now: Nanos, flush: bool) -> Vec<Window> {
        let (mut windows, _) = self.lane.take(now, flush);
        for served in self.all() {
            windows.extend(served.windows(now, flush));
        }
        windows
    }
}

impl Running {
    /// Ends what runs.
    pub fn stop(self) {
        if let Some(refreshing) = self.refreshing {
            refreshing.abort();
        }
        self.layers.stop();
    }
}
