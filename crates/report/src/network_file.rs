//! Reads networks of queues from TOML: stations and classes that people can write and edit.

use std::collections::BTreeMap;

use model::fork_join::FanOut;
use model::network::{Class, Network, Station};
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::{Spanned, Table, Value};

use crate::error::{Context as _, Error, Result, bail};

/// The contents of a file, before validation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: Option<String>,
    #[serde(default)]
    station: BTreeMap<String, StationKeys>,
    #[serde(default)]
    class: BTreeMap<String, ClassKeys>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StationKeys {
    kind: Option<Kind>,
    servers: Option<u32>,
    rates: Option<Vec<f64>>,
    curve: Option<Vec<(u32, f64)>>,
    fork: Option<u32>,
    needed: Option<u32>,
    scv: Option<f64>,
    room: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Queue,
    Delay,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassKeys {
    customers: Option<u32>,
    #[serde(default)]
    think_ms: f64,
    rate: Option<f64>,
    #[serde(default)]
    service_ms: BTreeMap<String, f64>,
    #[serde(default)]
    demand_ms: BTreeMap<String, f64>,
    #[serde(default)]
    visits: BTreeMap<String, f64>,
}

/// Where the file has its stations and classes: their order in all output. `--set` adds none.
#[derive(Debug, Deserialize)]
struct Order {
    #[serde(default)]
    station: BTreeMap<String, Spanned<IgnoredAny>>,
    #[serde(default)]
    class: BTreeMap<String, Spanned<IgnoredAny>>,
}

/// The names in the order of the file.
fn in_order(places: &BTreeMap<String, Spanned<IgnoredAny>>) -> Vec<&str> {
    let mut names: Vec<(&str, usize)> =
        places.iter().map(|(name, place)| (name.as_str(), place.span().start)).collect();
    names.sort_by_key(|(_, start)| *start);
    names.into_iter().map(|(name, _)| name).collect()
}

/// A network and its name.
pub struct Described {
    /// The title that the file gives.
    pub title: Option<String>,
    /// The network.
    pub network: Network,
}

/// Reads a file.
///
/// # Errors
/// If the file cannot be read.
pub fn read(path: &std::path::Path) -> Result<String> {
    record::file::read_text(path).context(|| format!("cannot read the network {}", path.display()))
}

/// Parses a network; `name` identifies it in errors. `changes` are those of `--set`: `station.disk.servers=4`.
///
/// # Errors
/// What is wrong with the text or a change.
pub fn parse(text: &str, name: &str, changes: &[String]) -> Result<Described> {
    let file: File = toml::from_str(text).context(|| name.to_owned())?;
    let order: Order = toml::from_str(text).context(|| name.to_owned())?;
    if changes.is_empty() {
        return described(file, &order).context(|| name.to_owned());
    }
    let mut table: Table = text.parse().context(|| name.to_owned())?;
    for (i, change) in changes.iter().enumerate() {
        let key = key_of(change);
        if changes[..i].iter().any(|earlier| key_of(earlier) == key) {
            bail!("--set {key} is given twice: give each key once");
        }
        set(&mut table, change).context(|| format!("--set {change}"))?;
    }
    let what = || format!("{name} with --set {}", changes.join(" --set "));
    let file: File = table.try_into().context(what)?;
    described(file, &order).context(what)
}

/// What a change sets.
fn key_of(change: &str) -> &str {
    change.split_once('=').map_or(change, |(key, _)| key).trim()
}

/// The keys that give a station its kind.
const KINDS: [&str; 5] = ["kind", "servers", "rates", "curve", "fork"];

/// Applies `station.NAME.key=value` or `class.NAME.key=value`. Unknown stations and classes are
/// errors.
fn set(table: &mut Table, change: &str) -> Result<()> {
    let Some((path, value)) = change.split_once('=') else {
        bail!("missing `=`; write it as station.NAME.servers=4");
    };
    let value = match format!("v = {value}").parse::<Table>() {
        Ok(mut parsed) if parsed.len() == 1 => parsed.remove("v"),
        _ => None,
    };
    let value = value.unwrap_or_else(|| Value::String(value_of(change).to_owned()));
    let parts: Vec<&str> = path.trim().split('.').collect();
    let (kind, name, keys) = match parts[..] {
        [kind @ ("station" | "class"), name, ref keys @ ..] if matches!(keys.len(), 1 | 2) => {
            (kind, name, keys)
        }
        _ => bail!(
            "write it as station.NAME.servers=4, class.NAME.customers=100 or class.NAME.visits.STATION=2"
        ),
    };
    let known = |table: &Table| table.keys().cloned().collect::<Vec<_>>().join(", ");
    let Some(all) = table.get_mut(kind).and_then(Value::as_table_mut) else {
        bail!("the file has no {kind}");
    };
    if !all.contains_key(name) {
        bail!("there is no {kind} `{name}`; there are: {}", known(all));
    }
    let Some(mut at) = all.get_mut(name).and_then(Value::as_table_mut) else {
        bail!("`{kind}.{name}` is not a section");
    };
    let (last, middle) = keys.split_last().ok_or_else(|| Error::input("missing key"))?;
    if let [section] = middle {
        let entry = at.entry(*section).or_insert_with(|| Value::Table(Table::new()));
        at = entry
            .as_table_mut()
            .ok_or_else(|| Error::input(format!("`{section}` is not a section")))?;
    }
    at.insert((*last).to_owned(), value);
    // A station has one kind, so the new one replaces the old; `needed` belongs to `fork`, `scv` to servers.
    if kind == "station" && !["needed", "scv", "room"].contains(last) {
        for other in KINDS.iter().filter(|key| *key != last) {
            at.remove(*other);
        }
        if *last != "fork" {
            at.remove("needed");
        }
    }
    Ok(())
}

fn value_of(change: &str) -> &str {
    change.split_once('=').map_or("", |(_, value)| value)
}

fn described(file: File, order: &Order) -> Result<Described> {
    if file.station.is_empty() {
        bail!("the file has no stations; add a section like [station.disk]");
    }
    if file.class.is_empty() {
        bail!("the file has no classes; add a section like [class.clients]");
    }
    let mut stations = Vec::new();
    let stations_in_order = in_order(&order.station);
    let given = |name: &str| file.station.get_key_value(name);
    for (name, keys) in stations_in_order.iter().filter_map(|name| given(name)) {
        stations.push(station(name, keys).context(|| format!("station.{name}"))?);
    }
    let mut classes = Vec::new();
    let given = |name: &str| file.class.get_key_value(name);
    for (name, keys) in in_order(&order.class).into_iter().filter_map(given) {
        classes.push(
            class(name, keys, &file.station, &stations_in_order)
                .context(|| format!("class.{name}"))?,
        );
    }
    Ok(Described { title: file.title, network: Network::new(stations, classes)? })
}

fn station(name: &str, keys: &StationKeys) -> Result<Station> {
    let StationKeys { kind, servers, rates, curve, fork, needed, scv, room } = keys;
    if let Some(room) = room {
        let m = servers.unwrap_or(1);
        bail!(
            "a queue with room for {room} loses requests, and which of the other stations these have visited is not \
             described here; solve it by itself: concertina network --queue M/M/{m}/{room} --service TIME --rate RATE \
             (erlang-b:{m} where nobody waits), or leave room out"
        );
    }
    let given = [servers.is_some(), rates.is_some(), curve.is_some(), fork.is_some()];
    let kinds = given.into_iter().chain([kind == &Some(Kind::Delay)]);
    if kinds.filter(|kind| *kind).count() > 1 {
        bail!("several kinds given; use one of kind = \"delay\", servers, rates, curve, fork");
    }
    if let Some(parts) = *fork {
        if scv.is_some() {
            bail!("service at a station that forks is exponential; leave scv out");
        }
        return Ok(Station::fork(name, FanOut::new(parts, needed.unwrap_or(parts))?));
    }
    if needed.is_some() {
        bail!(
            "needed is the number of parts of a fork that must answer; give fork, the number of parts, too"
        );
    }
    let station = match (servers, rates, curve) {
        (Some(m), ..) => Station::servers(name, *m)?,
        (_, Some(rates), _) => Station::load_dependent(name, rates)?,
        (.., Some(curve)) => Station::flow_equivalent(name, curve)?,
        _ if kind == &Some(Kind::Delay) => Station::delay(name),
        _ => Station::queue(name),
    };
    Ok(match scv {
        Some(scv) => station.with_scv(*scv)?,
        None => station,
    })
}

fn class(
    name: &str,
    keys: &ClassKeys,
    stations: &BTreeMap<String, StationKeys>,
    order: &[&str],
) -> Result<Class> {
    let parts = [
        ("service_ms", &keys.service_ms),
        ("demand_ms", &keys.demand_ms),
        ("visits", &keys.visits),
    ];
    for (part, values) in parts {
        if let Some(unknown) = values.keys().find(|name| !stations.contains_key(*name)) {
            let known: Vec<&str> = stations.keys().map(String::as_str).collect();
            bail!("{part}.{unknown}: there is no such station; there are: {}", known.join(", "));
        }
    }
    let (mut demands, mut visits) = (Vec::new(), Vec::new());
    for (name, station) in order.iter().filter_map(|name| stations.get_key_value(*name)) {
        let (service, demand) = (keys.service_ms.get(name), keys.demand_ms.get(name));
        let default = if service.is_some() || demand.is_some() || station.curve.is_some() {
            1.0
        } else {
            0.0
        };
        let count = keys.visits.get(name).copied().unwrap_or(default);
        let demand = match (service, demand) {
            (Some(_), Some(_)) => {
                bail!(
                    "use either service_ms.{name} or demand_ms.{name}; a demand is visits × service time"
                )
            }
            (Some(_), None) | (None, Some(_)) if station.curve.is_some() => {
                bail!("{name} has a measured curve, which determines its speed; remove its times")
            }
            (Some(service), None) => service * 1e-3 * count,
            (None, Some(demand)) => demand * 1e-3,
            (None, None) if station.curve.is_some() => count,
            (None, None) if count > 0.0 => bail!("visits.{name} needs a service_ms.{name} too"),
            (None, None) => 0.0,
        };
        demands.push(demand);
        visits.push(count);
    }
    let class = match (keys.customers, keys.rate) {
        (Some(customers), None) => Class::closed(name, customers, keys.think_ms * 1e-3, &demands)?,
        (None, Some(rate)) if keys.think_ms == 0.0 => Class::open(name, rate, &demands)?,
        (None, Some(_)) => bail!("think_ms is for customers; an open class (rate) does not think"),
        _ => bail!("give either customers (closed) or rate in requests/s (open)"),
    };
    Ok(class.with_visits(&visits)?)
}
