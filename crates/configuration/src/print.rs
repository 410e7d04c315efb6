//! The configuration as text and as a table, its secrets, and how it differs from another.

use std::collections::{BTreeMap, BTreeSet};

use origin::{Secret, Section};
use serde::Serialize;
use toml::{Table, Value};

use super::cluster::Member;
use super::config::{Config, Explained, SECTIONS};
use super::memcached::{Pool, Route};

impl Config {
    /// All keys that are secrets, in the order of their sections.
    pub fn secrets(&self) -> Vec<SecretKey<'_>> {
        // Names every field, so that a new section does not compile until it is here.
        let Config {
            serve,
            node,
            devices,
            tiers,
            origin,
            datasets,
            observe,
            traces,
            model,
            act,
            members,
            cluster,
            membership,
            gateway,
            s3,
            memcached,
            pools,
            routes,
        } = self;
        let mut all = Vec::new();
        add_secrets(&mut all, "serve", serve);
        add_secrets(&mut all, "node", node);
        add_secrets_of_list(&mut all, "device", devices);
        add_secrets(&mut all, "tiers", tiers);
        add_secrets(&mut all, "origin", origin);
        add_secrets(&mut all, "datasets", datasets);
        add_secrets(&mut all, "observe", observe);
        add_secrets(&mut all, "traces", traces);
        add_secrets(&mut all, "model", model);
        add_secrets(&mut all, "act", act);
        add_secrets_of_list(&mut all, "member", members);
        add_secrets(&mut all, "cluster", cluster);
        add_secrets(&mut all, "membership", membership);
        add_secrets(&mut all, "gateway", gateway);
        add_secrets(&mut all, "s3", s3);
        add_secrets(&mut all, "memcached", memcached);
        add_secrets_of_list(&mut all, "pool", pools);
        add_secrets_of_list(&mut all, "route", routes);
        all
    }

    /// The configuration in full as TOML, each key with its explanation. Of a secret it says only that it is set: what is
    /// printed is not enough to start a server that has one.
    ///
    /// # Panics
    /// If a path is not UTF-8 or a number is above 2⁶³: neither can come from a file or an override.
    pub fn print(&self) -> String {
        let mut out = String::new();
        if self.devices.is_empty() {
            // Without the key there is one. It must stand before the first section.
            out += "device = []\n\n";
        }
        let table = self.table();
        let secrets = self.secrets();
        let set: Vec<&str> =
            secrets.iter().filter(|s| s.value.is_some()).map(|s| s.place.as_str()).collect();
        for &section in SECTIONS {
            match &table[section.0] {
                Value::Array(list) if list.is_empty() && section.0 != "device" => {
                    let example = match section.0 {
                        "pool" => as_value(&Pool::example()),
                        "route" => as_value(&Route::example()),
                        _ => as_value(&Member::example()),
                    };
                    let example =
                        printed(section, &format!("[[{}]]", section.0), &example, &|_| false);
                    example.lines().for_each(|line| out += &format!("# {line}\n"));
                    out.push('\n');
                }
                Value::Array(list) => {
                    let head = format!("[[{}]]", section.0);
                    for (index, one) in list.iter().enumerate() {
                        let is_set = |key: &str| {
                            set.contains(&format!("{}.{index}.{key}", section.0).as_str())
                        };
                        out += &(printed(section, &head, one, &is_set) + "\n");
                    }
                }
                one => {
                    let head = format!("[{}]", section.0);
                    let is_set = |key: &str| set.contains(&format!("{}.{key}", section.0).as_str());
                    out += &(printed(section, &head, one, &is_set) + "\n");
                }
            }
        }
        out.truncate(out.trim_end().len() + 1);
        out
    }

    /// The configuration in full as a table, for the record of a run. Secrets are not in it: their type cannot be
    /// written.
    ///
    /// # Panics
    /// As for [`Config::print`].
    pub fn as_table(&self) -> Table {
        self.table()
    }

    pub(super) fn table(&self) -> Table {
        match as_value(self) {
            Value::Table(table) => table,
            other => unreachable!("a struct is written as a table, not as {other}"),
        }
    }

    /// The keys whose values differ from those of another configuration, in the order of their names: `serve.listen`,
    /// `device.1.path`. Of a list with another number of entries it is the name alone. Secrets are compared, and not shown.
    ///
    /// # Panics
    /// As for [`Config::print`].
    ///
    /// # Examples
    /// ```
    /// let before = configuration::Config::load(None, &[]).unwrap();
    /// let set = ["serve.drain_s=3".to_owned(), "device=[]".to_owned()];
    /// let after = configuration::Config::load(None, &set).unwrap();
    /// assert_eq!(before.differences(&after), ["device", "serve.drain_s"]);
    /// ```
    pub fn differences(&self, other: &Config) -> Vec<String> {
        let mut different = BTreeSet::new();
        add_differences("", &self.table().into(), &other.table().into(), &mut different);
        let values = |config: &Config| -> BTreeMap<String, Option<String>> {
            let value = |key: SecretKey<'_>| key.value.map(|value| value.expose().to_owned());
            config.secrets().into_iter().map(|key| (key.place.clone(), value(key))).collect()
        };
        let after = values(other);
        let changed = values(self).into_iter().filter(|(place, value)| {
            // An entry that one of both does not have is told by the list's name.
            after.get(place).is_some_and(|other| other != value)
        });
        different.extend(changed.map(|(place, _)| place));
        different.into_iter().collect()
    }
}

fn as_value(value: &impl Serialize) -> Value {
    Value::try_from(value).expect("all keys have a form in TOML")
}

/// Adds the places below `place` at which two values differ.
fn add_differences(place: &str, one: &Value, other: &Value, different: &mut BTreeSet<String>) {
    let mut each = |key: &str, one: Option<&Value>, other: Option<&Value>| {
        let place = if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") };
        match (one, other) {
            (Some(one), Some(other)) => add_differences(&place, one, other, different),
            _ => drop(different.insert(place)),
        }
    };
    match (one, other) {
        (Value::Table(one), Value::Table(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            keys.into_iter().for_each(|key| each(key, one.get(key), other.get(key)));
        }
        (Value::Array(one), Value::Array(other))
            if one.len() == other.len() && one.iter().all(Value::is_table) =>
        {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                each(&index.to_string(), Some(one), Some(other));
            }
        }
        _ if one == other => {}
        _ => drop(different.insert(place.to_owned())),
    }
}

/// A key whose value is a secret.
#[derive(Clone, Debug)]
pub struct SecretKey<'a> {
    /// Where it stands: `serve.token`.
    pub place: String,
    /// Its value, if it is set.
    pub value: Option<&'a Secret>,
}

fn add_secrets<'a>(all: &mut Vec<SecretKey<'a>>, place: &str, section: &'a impl Section) {
    let of = section.secrets().into_iter();
    all.extend(of.map(|(key, value)| SecretKey { place: format!("{place}.{key}"), value }));
}

fn add_secrets_of_list<'a, S: Section>(
    all: &mut Vec<SecretKey<'a>>,
    place: &str,
    sections: &'a [S],
) {
    for (index, section) in sections.iter().enumerate() {
        add_secrets(all, &format!("{place}.{index}"), section);
    }
}

/// A section as TOML with explanations; keys that are not set are comments, and so are secrets, which `is_set` knows.
fn printed(
    (_, about, keys): Explained,
    head: &str,
    values: &Value,
    is_set: &dyn Fn(&str) -> bool,
) -> String {
    let mut out = format!("{about}{head}\n");
    for (key, explanation) in keys {
        let line = match values.get(key) {
            Some(value) => format!("{key} = {value}"),
            None if is_set(key) => format!("# {key} =   (set; not shown)"),
            None => format!("# {key} ="),
        };
        out += &format!("{explanation}{line}\n");
    }
    out
}
