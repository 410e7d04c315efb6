//! What etcd holds of a cluster at one revision.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::common::Document;
use super::etcd::Pair;
use super::roster::{Entry, Roster};
use configuration::is_name;

/// Maximum number of members that watch one.
pub const WATCHERS_MAX: usize = 5;

/// A node's own key: it ends with the node's lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alive {
    /// Which process it is.
    pub instance: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// For how long it acts on what etcd last confirmed, seconds; earlier versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_s: Option<f64>,
}

/// What etcd holds.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The list with its revision; `None`: there is none. `Err`: why it is refused.
    pub roster: Option<Result<Roster, String>>,
    /// The list's revision; 0 without one.
    pub revision: i64,
    /// The common configuration; `None`: there is none. `Err`: why it is refused.
    pub config: Option<Result<Document, String>>,
    /// Its revision; 0 without one.
    pub config_revision: i64,
    /// The nodes that renew their leases, each with its key's revision and lease.
    pub alive: BTreeMap<String, (Alive, i64, i64)>,
    /// Who is suspected by whom.
    pub suspects: BTreeMap<String, BTreeSet<String>>,
    /// Keys that are none of ours, or whose values are refused, and why.
    pub refused: Vec<String>,
}

impl Snapshot {
    /// Reads the keys below `PREFIX/`.
    pub fn from_pairs(prefix: &str, pairs: Vec<Pair>) -> Snapshot {
        let mut it = Snapshot::default();
        for pair in pairs {
            let key = String::from_utf8_lossy(&pair.key).into_owned();
            let rest = key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/'));
            let parts: Vec<&str> = rest.unwrap_or_default().split('/').collect();
            let shown = || key.chars().take(200).collect::<String>();
            match parts[..] {
                ["view"] => {
                    it.roster = Some(Roster::parse(&pair.value));
                    it.revision = pair.revision;
                }
                ["config"] => {
                    it.config = Some(Document::parse(&pair.value));
                    it.config_revision = pair.revision;
                }
                ["live", name] if is_name(name) => match serde_json::from_slice(&pair.value) {
                    Ok(alive) => {
                        it.alive.insert(name.to_owned(), (alive, pair.revision, pair.lease));
                    }
                    Err(error) => it.refused.push(format!("{}: {error}", shown())),
                },
                ["suspect", whom, by] if is_name(whom) && is_name(by) => {
                    it.suspects.entry(whom.to_owned()).or_default().insert(by.to_owned());
                }
                _ => it.refused.push(format!("{}: not a key of this version", shown())),
            }
        }
        it
    }

    /// Why a process that starts cannot be a member beside those that live: each waits `valid_s` before it takes another's
    /// place, and would wait too little for one that acts for longer.
    pub fn disagreement(&self, roster: &Roster, name: &str, alive: &Alive) -> Option<String> {
        let ours = alive.valid_s?;
        let differs = |(other, (theirs, ..)): (&String, &(Alive, i64, i64))| {
            // One that was refused itself is no member.
            let entry = &roster.members[roster.find(other)?];
            if entry.instance != theirs.instance {
                return None;
            }
            let theirs = theirs.valid_s.filter(|theirs| *theirs != ours && other != name)?;
            Some(format!(
                "membership.valid_s is {ours} here and {theirs} at member {other:?}: it must be the same everywhere; \
                 stop all nodes before it is changed"
            ))
        };
        self.alive.iter().find_map(differs)
    }

    /// Takes off a list who has an address that a process starts with, if it does not renew its lease: it cannot listen
    /// there any more, and after a failure of all nodes nobody else says so.
    pub fn free(&self, roster: &mut Roster, name: &str, address: SocketAddr) {
        let had = |entry: &&mut Entry| entry.live && entry.name != name && entry.address == address;
        for entry in roster.members.iter_mut().filter(had) {
            let there = self.alive.get(&entry.name);
            entry.live = there.is_some_and(|(alive, ..)| alive.instance == entry.instance);
        }
    }

    /// The members that a member watches, from a list: those that follow it, in a circle of all that
    /// renew their leases.
    pub fn watched<'a>(&self, roster: &'a Roster, me: &str) -> Vec<(&'a str, SocketAddr)> {
        let circle: Vec<_> = roster
            .members
            .iter()
            .filter(|entry| entry.name == me || self.alive.contains_key(&entry.name))
            .collect();
        let Some(at) = circle.iter().position(|entry| entry.name == me) else { return Vec::new() };
        let after = circle.iter().cycle().skip(at + 1);
        let others = after.take((circle.len() - 1).min(WATCHERS_MAX));
        others.map(|entry| (entry.name.as_str(), entry.address)).collect()
    }

    /// Whether more than half of those that watch a member suspect it. Only those count that are live
    /// themselves.
    pub fn is_suspected(&self, roster: &Roster, name: &str) -> bool {
        let live = |entry: &&Entry| {
            entry.live && entry.name != name && self.alive.contains_key(&entry.name)
        };
        let others: Vec<&str> =
            roster.members.iter().filter(live).map(|entry| entry.name.as_str()).collect();
        let Some(by) = self.suspects.get(name) else { return false };
        let count = others.iter().filter(|other| by.contains(**other)).count();
        !others.is_empty() && count > others.len().min(WATCHERS_MAX) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::super::roster::State;
    use super::*;

    fn pair(key: &str, value: &str) -> Pair {
        Pair { key: key.into(), value: value.into(), revision: 3, lease: 9 }
    }

    fn world(live: &[bool], suspects: &[(&str, &str)]) -> (Snapshot, Roster) {
        let name = |at: usize| ["a", "b", "c", "d", "e", "f", "g", "h"][at].to_owned();
        let entry = |(at, &live): (usize, &bool)| Entry {
            name: name(at),
            address: SocketAddr::from(([127, 0, 0, 1], 1 + at as u16)),
            weight: 1.0,
            hot: false,
            state: State::In,
            live,
            handed_over: false,
            instance: "1".to_owned(),
        };
        let members = live.iter().enumerate().map(entry).collect();
        let roster = Roster { epoch: 1, members, ..Roster::empty(2) };
        let mut pairs = vec![pair("/p/view", &String::from_utf8(roster.write().unwrap()).unwrap())];
        for at in 0..live.len() {
            let value = format!(r#"{{"instance":"1","address":"127.0.0.1:{}"}}"#, at + 1);
            pairs.push(pair(&format!("/p/live/{}", name(at)), &value));
        }
        let suspect = |(whom, by): &(&str, &str)| pair(&format!("/p/suspect/{whom}/{by}"), "1");
        pairs.extend(suspects.iter().map(suspect));
        (Snapshot::from_pairs("/p", pairs), roster)
    }

    #[test]
    fn a_majority_of_those_that_watch_suspects() {
        let suspected = |live: &[bool], suspects: &[(&str, &str)]| {
            let (it, roster) = world(live, suspects);
            it.is_suspected(&roster, "a")
        };
        assert!(!suspected(&[true], &[("a", "a")]));
        // Of two members the first to be heard stays.
        assert!(suspected(&[true, true], &[("a", "b")]));
        assert!(!suspected(&[true, false], &[("a", "b")]));
        assert!(!suspected(&[true; 3], &[("a", "b")]));
        assert!(suspected(&[true; 3], &[("a", "b"), ("a", "c")]));
        assert!(!suspected(&[true; 8], &[("a", "b"), ("a", "c"), ("b", "d")]));
        assert!(suspected(&[true; 8], &[("a", "b"), ("a", "c"), ("a", "d")]));
    }

    #[test]
    fn each_is_watched_by_five_others() {
        let (it, roster) = world(&[true; 8], &[]);
        let mut times = BTreeMap::new();
        for entry in &roster.members {
            for (name, _) in it.watched(&roster, &entry.name) {
                assert_ne!(name, entry.name);
                *times.entry(name.to_owned()).or_insert(0) += 1;
            }
        }
        assert_eq!(times.values().copied().collect::<Vec<_>>(), [5; 8]);
    }

    #[test]
    fn hostile_keys_are_refused_by_name() {
        let pairs = vec![
            pair("/p/view", "[]"),
            pair("/p/live/a", "{\"instance\":\"1\",\"address\":\"nowhere\"}"),
            pair("/p/live/a\r\nb", "{}"),
            pair("/p/live/../x", "{}"),
            pair("/q/view", "{}"),
            pair("/p/suspect/a", "1"),
        ];
        let it = Snapshot::from_pairs("/p", pairs);
        assert!(it.roster.unwrap().is_err());
        assert_eq!((it.alive.len(), it.suspects.len(), it.refused.len()), (0, 0, 5));
        assert!(it.refused[0].starts_with("/p/live/a: "), "{:?}", it.refused);
    }
}
