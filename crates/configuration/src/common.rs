//! The keys that the processes of a cluster may share through etcd, on top of each process's own configuration.

use origin::{Checks, Mistake};
use toml::{Table, Value};

use super::config::Config;
use super::mistakes::Mistakes;
use super::read;

/// The sections whose keys may be shared, and of each the keys that may not: those that name a place of one machine or
/// that open something. No section that says where to listen, whom to trust or where objects are durable is among them.
const SHARED: &[(&str, &[&str])] = &[
    ("gateway", &[]),
    ("tiers", &["pins"]),
    ("model", &[]),
    ("act", &["journal", "journal_bytes_max"]),
    ("pool", &[]),
    ("route", &[]),
];

/// Keys of other sections.
const SHARED_KEYS: &[(&str, &[&str])] = &[
    ("cluster", &["replicate_bytes", "warm_bytes", "hot_load"]),
    ("memcached", &["deadline_s", "stall_s", "ping_s", "ping_timeout_s", "recovery_s"]),
];

/// Whether a key may be shared.
fn may_be_shared(section: &str, key: &str) -> bool {
    let of = |list: &[(&str, &'static [&'static str])]| {
        list.iter().find(|(name, _)| *name == section).map(|(_, keys)| *keys)
    };
    match (of(SHARED), of(SHARED_KEYS)) {
        (Some(but), _) => !but.contains(&key),
        (None, Some(keys)) => keys.contains(&key),
        (None, None) => false,
    }
}

/// What is wrong with shared settings whatever else is configured: keys that may not be shared.
///
/// # Errors
///
/// The first of them, by name.
pub fn check_shared(settings: &Table) -> Result<(), String> {
    let shown = |text: &str| text.chars().take(64).collect::<String>();
    for (section, value) in settings {
        let keys: Vec<&String> = match value {
            Value::Table(table) if !matches!(section.as_str(), "pool" | "route") => {
                table.keys().collect()
            }
            Value::Array(list) if matches!(section.as_str(), "pool" | "route") => {
                list.iter().filter_map(Value::as_table).flat_map(Table::keys).collect()
            }
            _ => return Err(format!("{:?} is not a section that can be shared", shown(section))),
        };
        let mut refused = keys.iter().filter(|key| !may_be_shared(section, key));
        let whole = !may_be_shared(section, "");
        let listed = SHARED_KEYS.iter().any(|(name, _)| name == section);
        if whole && !listed {
            return Err(format!("{:?} cannot be shared; each process has its own", shown(section)));
        }
        if let Some(key) = refused.next() {
            let key = format!("{}.{}", shown(section), shown(key));
            return Err(format!("{key:?} cannot be shared; each process has its own"));
        }
    }
    Ok(())
}

impl Config {
    /// This configuration with shared settings on top: keys replace keys, and the lists of pools and of routes replace the
    /// lists.
    ///
    /// # Errors
    ///
    /// A key that may not be shared; all mistakes of the whole otherwise.
    pub fn with_shared(&self, settings: &Table) -> Result<Config, Mistakes> {
        let place = |what| Mistakes(vec![Mistake { place: "shared settings".to_owned(), what }]);
        check_shared(settings).map_err(place)?;
        if settings.is_empty() {
            return Ok(self.clone());
        }
        let mut whole = self.table();
        for (section, value) in settings {
            match (whole.get_mut(section), value) {
                (Some(Value::Table(own)), Value::Table(shared)) => {
                    own.extend(shared.iter().map(|(key, value)| (key.clone(), value.clone())));
                }
                _ => _ = whole.insert(section.clone(), value.clone()),
            }
        }
        // A table of a configuration has no secrets; no key of a secret can be shared, so these are the process's own.
        for secret in self.secrets() {
            if let Some(value) = secret.value {
                let path: Vec<&str> = secret.place.split('.').collect();
                let mut at = Value::Table(std::mem::take(&mut whole));
                let done = read::put(&mut at, &path, Value::String(value.expose().to_owned()));
                done.map_err(place)?;
                if let Value::Table(table) = at {
                    whole = table;
                }
            }
        }
        let config = read::config(whole).map_err(Mistakes)?;
        let mut mistakes = Vec::new();
        config.check(&mut Checks::new(&mut mistakes));
        if mistakes.is_empty() { Ok(config) } else { Err(Mistakes(mistakes)) }
    }
}

/// Puts `section.key=value` on top of shared settings, for the command line.
///
/// # Errors
///
/// What is wrong with it.
pub fn set_shared(settings: &mut Table, text: &str) -> Result<(), String> {
    read::override_with(settings, text)?;
    check_shared(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    #[test]
    fn shared_settings_lie_on_top_of_each_process() {
        let own = Config::parse("[gateway]\nretry_burst = 7\n", "t", &[]).unwrap();
        let shared = table("[gateway]\nhedge_share = 0.5\n[[pool]]\nservers = [\"127.0.0.1:1\"]\n");
        let both = own.with_shared(&shared).unwrap();
        assert_eq!((both.gateway.retry_burst, both.gateway.hedge_share), (7, 0.5));
        assert_eq!(both.pools.len(), 1);
        assert_eq!(
            both.with_shared(&table("[[pool]]\nservers = [\"127.0.0.1:2\"]\n"))
                .unwrap()
                .pools
                .len(),
            1
        );
        assert_eq!(own.with_shared(&Table::new()).unwrap(), own);
    }

    #[test]
    fn what_opens_something_cannot_be_shared() {
        let own = Config::default();
        for (text, says) in [
            ("[serve]\nlisten = \"0.0.0.0:1\"", "\"serve\" cannot be shared"),
            ("[cluster]\ntoken = \"x\"", "\"cluster.token\" cannot be shared"),
            ("[cluster]\nreplicas = 1", "\"cluster.replicas\" cannot be shared"),
            ("[origin]\npath = \"/\"", "\"origin\" cannot be shared"),
            ("[act]\njournal = \"/etc/passwd\"", "\"act.journal\" cannot be shared"),
            ("[memcached]\nlisten = \"0.0.0.0:1\"", "\"memcached.listen\" cannot be shared"),
            ("device = []", "is not a section"),
            ("[[gateway]]\nhedge_share = 0.5", "is not a section"),
            ("[gateway]\nhedge_share = 7", "gateway.hedge_share"),
            ("[gateway]\nhedge_shore = 0.5", "did you mean `hedge_share`"),
            ("[[pool]]\nservers = []", "pool.0.servers"),
        ] {
            let refused = own.with_shared(&table(text)).unwrap_err().to_string();
            assert!(refused.contains(says), "{text}: {refused}");
        }
    }
}
