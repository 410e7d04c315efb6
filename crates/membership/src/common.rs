//! The configuration that the processes of a cluster share: one value in etcd, read strictly and replaced as a whole.
//!
//! It has the members' weights, and settings that lie on top of each process's own configuration. Each process watches it.
//! A version that is malformed, not newer than the one that was taken, or of no use to this process is refused by name, and
//! the one that was taken last stays. Weights become part of the list of members, and so of its one sequence of views
//! ([`super::agent`]); settings count from a process's next start on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::status::SharedConfiguration;
use ground::with_causes;
use serde::{Deserialize, Serialize};
use toml::Table;
use tracing::{info, warn};

use super::error::Error;
use super::etcd::Etcd;
use super::roster::{EPOCH_MAX, MEMBERS_MAX, Roster, State};
use configuration::{Config, check_shared, is_name};
use wire::exposition::{Exposition, Kind};

/// Version of the value's format.
const FORMAT: u32 = 1;

/// Maximum bytes of the value.
pub const BYTES_MAX: usize = 128 << 10;

/// The value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Version of the value's format.
    pub format: u32,
    /// Increases by 1 with each change; 0 before the first.
    pub version: u64,
    /// Weights of members by name, in place of those that the members have of their own.
    #[serde(default)]
    pub weights: BTreeMap<String, f64>,
    /// Settings on top of each process's own, by section.
    #[serde(default)]
    pub settings: Table,
}

impl Default for Document {
    fn default() -> Document {
        Document { format: FORMAT, version: 0, weights: BTreeMap::new(), settings: Table::new() }
    }
}

impl Document {
    /// Reads a value of etcd's, or of a client's.
    ///
    /// # Errors
    ///
    /// What is wrong with it. Costs nothing beyond [`BYTES_MAX`].
    pub fn parse(bytes: &[u8]) -> Result<Document, String> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        if bytes.len() > BYTES_MAX {
            return Err(format!("it has {} bytes, more than {BYTES_MAX}", bytes.len()));
        }
        let malformed = |error: serde_json::Error| format!("it is malformed: {error}");
        // Another format may have other fields.
        let Format { format } = serde_json::from_slice(bytes).map_err(malformed)?;
        if format != FORMAT {
            return Err(format!("its format is {format}, this version reads {FORMAT}"));
        }
        let document: Document = serde_json::from_slice(bytes).map_err(malformed)?;
        document.check()?;
        Ok(document)
    }

    fn check(&self) -> Result<(), String> {
        let Document { version, weights, settings, .. } = self;
        if !(1..EPOCH_MAX).contains(version) {
            return Err(format!("its version {version} is out of range"));
        }
        if weights.len() > MEMBERS_MAX {
            return Err(format!("it has {} weights, more than {MEMBERS_MAX}", weights.len()));
        }
        for (name, weight) in weights {
            let shown: String = name.chars().take(64).collect();
            if !is_name(name) {
                return Err(format!("weight of {shown:?}: that is not a member's name"));
            }
            if !(*weight > 0.0 && *weight <= 1e9) {
                return Err(format!(
                    "weight of {shown:?}: must be above 0 and at most 1e9, not {weight}"
                ));
            }
        }
        check_shared(settings)
    }

    /// The value for etcd.
    ///
    /// # Errors
    ///
    /// If [`Document::parse`] would refuse it.
    pub fn write(&self) -> Result<Vec<u8>, String> {
        self.check()?;
        let bytes = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        match bytes.len() {
            ..=BYTES_MAX => Ok(bytes),
            more => Err(format!("it would have {more} bytes, more than {BYTES_MAX}")),
        }
    }
}

/// Why a new version was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotWritten {
    /// It is wrong.
    Invalid(String),
    /// It does not follow the present version, or cannot be written here.
    Conflict(String),
    /// etcd does not answer; whether it was written is not known.
    Unknown(String),
}

#[derive(Default)]
struct Shared {
    /// The version that was taken last.
    taken: Option<Document>,
    /// The settings that this process was started with.
    started: Table,
    /// Why what etcd holds now is not taken.
    refused: Option<String>,
    /// Values that were refused since the start.
    refusals: u64,
}

/// The common configuration as this process has it.
pub struct Common {
    /// This process's own configuration, without what is shared.
    own: Config,
    shared: Mutex<Shared>,
}

/// The key of the common configuration.
pub fn key(prefix: &str) -> String {
    format!("{prefix}/config")
}

impl Common {
    /// What a process shares, if its members are in etcd, and the configuration that follows from both.
    ///
    /// # Errors
    ///
    /// As [`Common::start`].
    pub fn load(own: Config) -> Result<(Option<Common>, Config), Error> {
        match own.is_in_etcd() {
            true => Common::start(&own).map(|(common, config)| (Some(common), config)),
            false => Ok((None, own)),
        }
    }

    /// That of a process whose members are in etcd, as etcd has it now, with the configuration that follows from it. Waits
    /// for etcd at most `membership.start_s`.
    ///
    /// # Errors
    ///
    /// If etcd does not answer in that time. What is refused is logged, and the process's own configuration counts.
    fn start(own: &Config) -> Result<(Common, Config), Error> {
        let found = match first(own) {
            Ok(found) => found,
            // A proxy can do without the list of members.
            Err(error) if own.is_proxy() && !own.pools.is_empty() => {
                let why = with_causes(&error);
                warn!("starting with this process's own configuration: {why}");
                None
            }
            Err(error) => return Err(error),
        };
        let common = Common { own: own.clone(), shared: Mutex::default() };
        common.read(found.as_ref());
        let started = common.lock().taken.as_ref().map(|it| it.settings.clone());
        let started = started.unwrap_or_default();
        // It was read with them a moment ago.
        let config = own.with_shared(&started).unwrap_or_else(|_| own.clone());
        common.lock().started = started;
        Ok((common, config))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what etcd holds now, or refuses it.
    pub fn read(&self, found: Option<&Result<Document, String>>) {
        let mut shared = self.lock();
        let judged = match (found, &shared.taken) {
            (None, None) => Ok(None),
            (None, Some(taken)) => Err(format!("it is gone; version {} was taken", taken.version)),
            (Some(Err(why)), _) => Err(why.clone()),
            (Some(Ok(new)), Some(taken)) if new == taken => Ok(None),
            (Some(Ok(new)), Some(taken)) if new.version <= taken.version => Err(format!(
                "its version is {}, and version {} was taken",
                new.version, taken.version
            )),
            (Some(Ok(new)), _) => match self.own.with_shared(&new.settings) {
                Ok(_) => Ok(Some(new.clone())),
                Err(mistakes) => Err(format!("version {}: {mistakes}", new.version)),
            },
        };
        match judged {
            Ok(new) => {
                shared.refused = None;
                if let Some(new) = new {
                    info!("the cluster's configuration: version {} is taken", new.version);
                    shared.taken = Some(new);
                }
            }
            Err(why) if shared.refused.as_ref() == Some(&why) => {}
            Err(why) => {
                let stays = shared.taken.as_ref().map_or(0, |taken| taken.version);
                let key = key(&self.own.membership.prefix);
                warn!(
                    "the cluster's configuration in etcd ({key}) is refused: {why}; version {stays} stays"
                );
                shared.refusals += 1;
                shared.refused = Some(why);
            }
        }
    }

    /// What a node puts back: the version that was taken, if etcd holds none or an earlier one.
    pub fn lost(&self, found: Option<&Result<Document, String>>) -> Option<Document> {
        let taken = self.lock().taken.clone()?;
        match found {
            None => Some(taken),
            Some(Ok(there)) if there.version < taken.version => Some(taken),
            _ => None,
        }
    }

    /// The weights of members by name; `None` while what etcd holds is refused: then weights stay as the list has them.
    pub fn weights(&self) -> Option<BTreeMap<String, f64>> {
        let shared = self.lock();
        let taken = || shared.taken.as_ref().map(|taken| taken.weights.clone()).unwrap_or_default();
        shared.refused.is_none().then(taken)
    }

    /// The version that was taken last.
    pub fn current(&self) -> Document {
        self.lock().taken.clone().unwrap_or_default()
    }

    /// Whether a version may be written: it follows the present one, fits this process, and names members that are listed.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn may_write(&self, new: &Document, roster: Option<&Roster>) -> Result<(), NotWritten> {
        new.check().map_err(NotWritten::Invalid)?;
        let current = self.current();
        if new.version != current.version + 1 {
            return Err(NotWritten::Conflict(format!(
                "version {} does not follow the present one, {}; read that, and change it",
                new.version, current.version
            )));
        }
        if let Err(mistakes) = self.own.with_shared(&new.settings) {
            return Err(NotWritten::Invalid(mistakes.to_string()));
        }
        let Some(roster) = roster else { return Ok(()) };
        for name in new.weights.keys().filter(|name| !current.weights.contains_key(*name)) {
            let there = |entry: &super::roster::Entry| entry.state != State::Left;
            if !roster.find(name).is_some_and(|at| there(&roster.members[at])) {
                return Err(NotWritten::Invalid(format!("there is no member {name:?}")));
            }
        }
        Ok(())
    }

    /// The status.
    pub fn status(&self) -> SharedConfiguration {
        let shared = self.lock();
        let taken = shared.taken.clone().unwrap_or_default();
        let at_next_start = differing(&shared.started, &taken.settings);
        SharedConfiguration {
            version: taken.version,
            weights: taken.weights,
            settings: taken.settings,
            refused: shared.refused.clone(),
            at_next_start,
        }
    }
}

/// The names of the settings that differ between two tables of sections, in ascending order.
fn differing(a: &Table, b: &Table) -> Vec<String> {
    let (a, b) = (by_name(a), by_name(b));
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names.into_iter().filter(|name| a.get(*name) != b.get(*name)).cloned().collect()
}

/// Settings by `section.key`; lists, which are shared as a whole, by `section`.
fn by_name(settings: &Table) -> BTreeMap<String, &toml::Value> {
    let mut all = BTreeMap::new();
    for (section, value) in settings {
        match value.as_table() {
            Some(keys) => all.extend(keys.iter().map(|(key, v)| (format!("{section}.{key}"), v))),
            None => _ = all.insert(section.clone(), value),
        }
    }
    all
}

/// The value as etcd has it, from a thread of its own; `None` if there is none.
fn first(own: &Config) -> Result<Option<Result<Document, String>>, Error> {
    let work = || -> Result<Option<Result<Document, String>>, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::Thread)?;
        let of = &own.membership;
        let mut etcd = Etcd::new(of, Duration::from_secs_f64(of.valid_s.max(0.2)))?;
        let (key, began) = (key(&of.prefix), Instant::now());
        loop {
            match runtime.block_on(etcd.get(&key)) {
                Ok(pair) => return Ok(pair.map(|pair| Document::parse(&pair.value))),
                Err(error) if began.elapsed().as_secs_f64() >= of.start_s => {
                    return Err(Error::not_in_time(of, error));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    };
    std::thread::scope(|scope| scope.spawn(work).join().map_err(|_| Error::Ended)?)
}

/// Adds the metrics of a process's common configuration; those without one export 0.
pub fn add_metrics(page: &mut Exposition, common: Option<&Common>) {
    let (version, refused, refusals) = common.map_or((0, 0, 0), |common| {
        let shared = common.lock();
        let version = shared.taken.as_ref().map_or(0, |taken| taken.version);
        (version, u64::from(shared.refused.is_some()), shared.refusals)
    });
    for (name, kind, help, value) in [
        (
            "concertina_cluster_config_version",
            Kind::Gauge,
            "Version of the cluster's configuration that was taken last.",
            version,
        ),
        (
            "concertina_cluster_config_refused",
            Kind::Gauge,
            "1 while what etcd holds as the cluster's configuration is refused.",
            refused,
        ),
        (
            "concertina_cluster_config_refusals_total",
            Kind::Counter,
            "Values of the cluster's configuration that were refused.",
            refusals,
        ),
    ] {
        page.single(name, kind, help, value as f64);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn common() -> Common {
        Common { own: Config::default(), shared: Mutex::default() }
    }

    fn document(version: u64, weight: f64) -> Document {
        let weights = BTreeMap::from([("a".to_owned(), weight)]);
        let settings = "[gateway]\nhedge_share = 0.5".parse().unwrap();
        Document { version, weights, settings, ..Document::default() }
    }

    #[test]
    fn what_is_written_is_read() {
        let one = document(7, 0.5);
        assert_eq!(Document::parse(&one.write().unwrap()), Ok(one));
    }

    #[test]
    fn hostile_values_are_refused_by_name() {
        let good = String::from_utf8(document(7, 0.5).write().unwrap()).unwrap();
        for (from, to, says) in [
            ("\"format\":1", "\"format\":2,\"more\":1", "format is 2"),
            ("\"version\":7", "\"version\":0", "version 0"),
            ("\"version\":7", "\"version\":18446744073709551615", "out of range"),
            ("\"version\":7", "\"version\":7,\"more\":1", "malformed"),
            ("\"a\":0.5", "\"a\":0.0", "above 0"),
            ("\"a\":0.5", "\"a\":1e999", "malformed"),
            ("\"a\":0.5", "\"a\\r\\nx\":1.0", "not a member's name"),
            ("\"a\":0.5", "\"gateway\":1.0", "not a member's name"),
            ("hedge_share\":0.5", "hedge_share\":null", "malformed"),
            ("\"gateway\":{", "\"serve\":{", "\"serve\" cannot be shared"),
        ] {
            assert!(good.contains(from), "{good}");
            let why = Document::parse(good.replacen(from, to, 1).as_bytes()).unwrap_err();
            assert!(why.contains(says), "{to}: {why}");
        }
        for text in ["", "null", "[]", "{}", &"[".repeat(100_000), &good[..good.len() - 2]] {
            assert!(Document::parse(text.as_bytes()).unwrap_err().contains("malformed"));
        }
        let long = " ".repeat(BYTES_MAX + 1);
        assert!(Document::parse(long.as_bytes()).unwrap_err().contains("more than"));
    }

    #[test]
    fn the_last_good_version_stays() {
        let it = common();
        assert_eq!(it.weights(), Some(BTreeMap::new()));
        it.read(Some(&Ok(document(3, 0.5))));
        let taken = it.weights().unwrap();
        assert_eq!(taken["a"], 0.5);
        let unfit = Document {
            settings: "[gateway]\nhedge_share = 7.0".parse().unwrap(),
            ..document(9, 2.0)
        };
        for (bad, says) in [
            (None, "gone"),
            (Some(Err("hostile".to_owned())), "hostile"),
            (Some(Ok(document(2, 2.0))), "version is 2"),
            (Some(Ok(document(3, 2.0))), "version is 3"),
            (Some(Ok(unfit)), "gateway.hedge_share"),
        ] {
            it.read(bad.as_ref());
            let status = it.status();
            assert!(status.refused.as_ref().is_some_and(|why| why.contains(says)), "{says}");
            assert_eq!((status.version, &status.weights), (3, &taken));
            assert_eq!(it.weights(), None, "weights stay as the list has them");
            it.read(Some(&Ok(document(3, 0.5))));
            assert_eq!(it.weights().as_ref(), Some(&taken));
        }
        let lost = |found: Option<Document>| it.lost(found.map(Ok).as_ref()).map(|it| it.version);
        assert_eq!((lost(None), lost(Some(document(2, 1.0)))), (Some(3), Some(3)));
        assert_eq!((lost(Some(document(3, 0.5))), lost(Some(document(4, 0.5)))), (None, None));
        assert_eq!(it.status().at_next_start, ["gateway.hedge_share"]);
    }

    #[test]
    fn only_the_next_version_is_written() {
        let it = common();
        it.read(Some(&Ok(document(3, 0.5))));
        assert_eq!(it.may_write(&document(4, 1.0), None), Ok(()));
        for (version, weight) in [(3, 1.0), (5, 1.0)] {
            let refused = it.may_write(&document(version, weight), None);
            assert!(matches!(refused, Err(NotWritten::Conflict(_))), "{refused:?}");
        }
        let refused = it.may_write(&document(4, -1.0), None);
        assert!(matches!(refused, Err(NotWritten::Invalid(_))), "{refused:?}");
        let mut other = document(4, 1.0);
        other.weights.insert("nobody".to_owned(), 1.0);
        let refused = it.may_write(&other, Some(&Roster::empty(1)));
        assert!(matches!(refused, Err(NotWritten::Invalid(ref why)) if why.contains("nobody")));
    }

    proptest! {
        #[test]
        fn bytes_never_end_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Document::parse(&bytes);
        }

        #[test]
        fn damaged_values_are_refused_or_sound(at in 0usize..300, byte in any::<u8>()) {
            let mut bytes = document(7, 0.5).write().unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(read) = Document::parse(&bytes) {
                prop_assert!(read.weights.values().all(|weight| *weight > 0.0));
                let it = common();
                it.read(Some(&Ok(read)));
            }
        }
    }
}
