//! The list of members as it stands in etcd: one value, read strictly and changed as a whole.

use std::collections::HashSet;
use std::net::SocketAddr;

use engine::route::{self, REPLICAS_MAX, Ring, RingError};
use serde::{Deserialize, Serialize};

use configuration::is_name;

/// Version of the value's format, which says where keys are too: in format 1 they were placed by another rule.
const FORMAT: u32 = 2;

/// That of a list with hot nodes, so that no process takes them for nodes with keys that does not know
/// what they are.
const FORMAT_HOT: u32 = 3;

/// Maximum bytes of the value; etcd's own limit for a request is 1.5 MB.
pub const BYTES_MAX: usize = 512 << 10;

/// Maximum members, those that have left included: a member keeps its number for good.
pub const MEMBERS_MAX: usize = 1024;

/// Maximum epoch: what every reader of JSON keeps exactly.
pub const EPOCH_MAX: u64 = 1 << 53;

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has keys.
    In,
    /// It serves until it is stopped, and has no keys any more.
    Draining,
    /// It was drained and has ended; its number stays its own.
    Left,
}

impl State {
    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            State::In => "in",
            State::Draining => "draining",
            State::Left => "left",
        }
    }
}

/// One member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Where it listens for gateways and the other nodes.
    pub address: SocketAddr,
    /// Its share of the keys in proportion to the other weights.
    pub weight: f64,
    /// Whether it is a hot node: it has no keys, and its weight is its share of the hot copies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hot: bool,
    /// What it does.
    pub state: State,
    /// Whether it lives.
    pub live: bool,
    /// Whether it handed over before it ceased to live: nobody need wait for what it does.
    #[serde(default)]
    pub handed_over: bool,
    /// Which process it is: another one under the same name has another instance.
    pub instance: String,
}

/// The members, by number, and how keys are placed on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Roster {
    /// Version of the value's format.
    pub format: u32,
    /// Increases by 1 with each change.
    pub epoch: u64,
    /// Nodes that each key belongs to.
    pub replicas: usize,
    /// The members in the order in which they joined first.
    pub members: Vec<Entry>,
}

impl Entry {
    fn has_keys(&self) -> bool {
        self.state == State::In && !self.hot
    }
}

impl Roster {
    /// A list without members, before the first change.
    pub fn empty(replicas: usize) -> Roster {
        Roster { format: FORMAT, epoch: 0, replicas, members: Vec::new() }
    }

    /// Reads a value of etcd's.
    ///
    /// # Errors
    ///
    /// What is wrong with it. Costs nothing beyond [`BYTES_MAX`].
    pub fn parse(bytes: &[u8]) -> Result<Roster, String> {
        if bytes.len() > BYTES_MAX {
            return Err(format!("it has {} bytes, more than {BYTES_MAX}", bytes.len()));
        }
        let mut roster: Roster =
            serde_json::from_slice(bytes).map_err(|error| format!("it is no list: {error}"))?;
        // Its processes and those of this version would place keys differently.
        if roster.format == 1 && roster.members.iter().all(|member| !member.live) {
            roster.format = FORMAT;
        }
        roster.check()?;
        Ok(roster)
    }

    fn format_needed(&self) -> u32 {
        if self.members.iter().any(|member| member.hot) { FORMAT_HOT } else { FORMAT }
    }

    fn check(&self) -> Result<(), String> {
        let Roster { format, epoch, replicas, members } = self;
        if *format != self.format_needed() {
            return Err(format!(
                "its format is {format}, this version reads {FORMAT}, and {FORMAT_HOT} of a list with hot nodes: stop the processes of the other version; \
                 those of an earlier one that ended without a word are taken off by deleting the list"
            ));
        }
        if !(1..EPOCH_MAX).contains(epoch) {
            return Err(format!("its epoch {epoch} is out of range"));
        }
        if !(1..=REPLICAS_MAX).contains(replicas) {
            return Err(format!("its number of replicas {replicas} is out of range"));
        }
        if members.is_empty() || members.len() > MEMBERS_MAX {
            return Err(format!("it has {} members, not 1 to {MEMBERS_MAX}", members.len()));
        }
        let (mut names, mut addresses) = (HashSet::new(), HashSet::new());
        for Entry { name, address, weight, state, live, handed_over, instance, .. } in members {
            let shown: String = name.chars().take(64).collect();
            let wrong = |what: String| Err(format!("member {shown:?}: {what}"));
            if !is_name(name) {
                return wrong("its name is invalid".to_owned());
            }
            if !names.insert(name.as_str()) {
                return wrong("its name is there twice".to_owned());
            }
            if address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast() {
                return wrong(format!("nobody can connect to its address {address}"));
            }
            if *live && !addresses.insert(address) {
                return wrong(format!("its address {address} is another member's too"));
            }
            if !(*weight > 0.0 && *weight <= 1e9) {
                return wrong(format!("its weight {weight} is out of range"));
            }
            if *live && *state == State::Left {
                return wrong("it has left and lives".to_owned());
            }
            if *live && *handed_over {
                return wrong("it has handed over and lives".to_owned());
            }
            if instance.len() > 64 || !instance.bytes().all(|b| b.is_ascii_alphanumeric()) {
                return wrong("its instance is invalid".to_owned());
            }
        }
        if !members.iter().any(Entry::has_keys) {
            return Err("no member has keys".to_owned());
        }
        Ok(())
    }

    /// The value for etcd.
    ///
    /// # Errors
    ///
    /// If [`Roster::parse`] would refuse it.
    pub fn write(&self) -> Result<Vec<u8>, String> {
        self.check()?;
        let bytes = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        if bytes.len() > BYTES_MAX {
            return Err(format!("it would have {} bytes, more than {BYTES_MAX}", bytes.len()));
        }
        Ok(bytes)
    }

    /// The members as a ring's.
    pub fn placed(&self) -> Vec<route::Member> {
        let weight = |entry: &Entry| if entry.state == State::In { entry.weight } else { 0.0 };
        let member = |entry: &Entry| route::Member {
            hot: entry.hot,
            ..route::Member::new(entry.name.clone(), weight(entry))
        };
        self.members.iter().map(member).collect()
    }

    /// The ring.
    ///
    /// # Errors
    ///
    /// None after [`Roster::parse`].
    pub fn ring(&self) -> Result<Ring, RingError> {
        Ring::listed(self.placed(), self.replicas)
    }

    /// The number of a member.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|member| member.name == name)
    }

    /// Enters a process that starts, not yet live. A member that was draining or had left has keys
    /// again.
    ///
    /// # Errors
    ///
    /// If its address is another member's, or all numbers are taken.
    pub fn enter(&mut self, entering: Entry) -> Result<(), String> {
        let there = |other: &&Entry| {
            other.name != entering.name && other.live && other.address == entering.address
        };
        if let Some(other) = self.members.iter().find(there) {
            return Err(format!("{} is the address of member {:?}", other.address, other.name));
        }
        match self.find(&entering.name) {
            Some(at) => self.members[at] = entering,
            None if self.members.len() < MEMBERS_MAX => self.members.push(entering),
            None => return Err(format!("there have been {MEMBERS_MAX} members already")),
        }
        self.format = self.format_needed();
        Ok(())
    }

    /// Takes a member's keys away, or gives them back.
    ///
    /// # Errors
    ///
    /// If there is no such member, or no other member would have keys.
    pub fn drain(&mut self, name: &str, drains: bool) -> Result<(), String> {
        let others = |entry: &Entry| entry.name != name && entry.has_keys();
        let alone = !self.members.iter().any(others);
        let Some(at) = self.find(name) else {
            return Err(format!("there is no member {name:?}"));
        };
        let entry = &mut self.members[at];
        entry.state = match (entry.state, drains) {
            (State::In, true) if alone && !entry.hot => {
                return Err(format!("{name:?} is the only member with keys"));
            }
            // A member that does not live cannot leave by itself later.
            (_, true) if !entry.live => State::Left,
            (State::In | State::Draining, true) => State::Draining,
            (State::In | State::Draining, false) => State::In,
            (State::Left, _) => return Err(format!("{name:?} has left; start it again")),
        };
        Ok(())
    }

    /// A member ends in order, having handed over or not. One that is lost already may have been so before it
    /// did.
    pub fn end(&mut self, name: &str, handed_over: bool) {
        if let Some(at) = self.find(name) {
            let entry = &mut self.members[at];
            // Said again, it stays as it was said first.
            if entry.live {
                entry.handed_over = handed_over;
            }
            entry.live = false;
            if entry.state == State::Draining {
                entry.state = State::Left;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(name: &str, port: u16) -> Entry {
        Entry {
            name: name.to_owned(),
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            weight: 1.0,
            hot: false,
            state: State::In,
            live: true,
            handed_over: false,
            instance: "1f".to_owned(),
        }
    }

    fn two() -> Roster {
        Roster { epoch: 7, members: vec![entry("b", 1), entry("a", 2)], ..Roster::empty(2) }
    }

    #[test]
    fn what_is_written_is_read() {
        let roster = two();
        assert_eq!(Roster::parse(&roster.write().unwrap()), Ok(roster));
    }

    #[test]
    fn a_list_of_format_1_is_taken_over_once_its_processes_have_ended() {
        let mut roster = two();
        roster.end("a", false);
        roster.end("b", false);
        let text = String::from_utf8(roster.write().unwrap()).unwrap();
        let earlier = text.replacen("\"format\":2", "\"format\":1", 1);
        assert!(earlier != text);
        assert_eq!(Roster::parse(earlier.as_bytes()), Ok(roster));
    }

    #[test]
    fn hostile_values_are_refused_by_name() {
        let good = String::from_utf8(two().write().unwrap()).unwrap();
        let refused = |text: &str| Roster::parse(text.as_bytes()).unwrap_err();
        let with = |from: &str, to: &str| {
            assert!(good.contains(from), "{good}");
            refused(&good.replacen(from, to, 1))
        };
        for (from, to, says) in [
            ("\"format\":2", "\"format\":3", "format is 3"),
            ("\"state\":\"in\"", "\"hot\":true,\"state\":\"in\"", "format is 2"),
            ("\"format\":2", "\"format\":1", "format is 1"),
            ("\"epoch\":7", "\"epoch\":0", "epoch 0"),
            ("\"epoch\":7", "\"epoch\":18446744073709551615", "epoch"),
            ("\"epoch\":7", "\"epoch\":-1", "no list"),
            ("\"replicas\":2", "\"replicas\":9", "replicas 9"),
            ("\"name\":\"a\"", "\"name\":\"b\"", "there twice"),
            ("\"name\":\"a\"", "\"name\":\"a\\r\\nx: y\"", "name is invalid"),
            ("\"name\":\"a\"", "\"name\":\"gateway\"", "name is invalid"),
            ("127.0.0.1:2", "127.0.0.1:1", "another member's too"),
            ("127.0.0.1:2", "0.0.0.0:2", "nobody can connect"),
            ("127.0.0.1:2", "127.0.0.1:0", "nobody can connect"),
            ("127.0.0.1:2", "etcd.example:2", "no list"),
            ("\"weight\":1.0", "\"weight\":-1.0", "weight"),
            ("\"weight\":1.0", "\"weight\":1e999", "no list"),
            ("\"state\":\"in\"", "\"state\":\"left\"", "has left and lives"),
            ("\"state\":\"in\"", "\"state\":\"away\"", "no list"),
            ("\"handed_over\":false", "\"handed_over\":true", "handed over and lives"),
            ("\"instance\":\"1f\"", "\"instance\":\"../x\"", "instance"),
        ] {
            let why = with(from, to);
            assert!(why.contains(says), "{to}: {why}");
        }
        for text in ["", "null", "[]", "{}", &"[".repeat(100_000), &good[..good.len() - 2]] {
            assert!(refused(text).contains("no list"), "{}", refused(text));
        }
        assert!(refused(&" ".repeat(BYTES_MAX + 1)).contains("more than"));
        let many = (0..=MEMBERS_MAX).map(|i| entry(&format!("n{i}"), 1 + i as u16)).collect();
        assert!(Roster { members: many, ..two() }.write().unwrap_err().contains("members"));
    }

    #[test]
    fn hot_nodes_have_no_keys_and_are_of_a_format_of_their_own() {
        let mut roster = two();
        roster.enter(Entry { hot: true, ..entry("h", 3) }).unwrap();
        assert_eq!(roster.format, FORMAT_HOT);
        let read = Roster::parse(&roster.write().unwrap()).unwrap();
        let ring = read.ring().unwrap();
        assert!(read == roster && ring.is_hot(2) && !ring.has_keys(2) && ring.hot_count() == 1);
        roster.drain("a", true).unwrap();
        assert!(roster.drain("b", true).unwrap_err().contains("only member with keys"));
        roster.drain("h", true).unwrap();
        assert_eq!(roster.ring().unwrap().hot_count(), 0);
    }

    #[test]
    fn members_enter_drain_and_leave_with_their_numbers() {
        let mut roster = two();
        roster.enter(entry("c", 3)).unwrap();
        assert!(roster.enter(entry("d", 3)).unwrap_err().contains("address of member \"c\""));
        roster.drain("b", true).unwrap();
        assert!(!roster.ring().unwrap().has_keys(0));
        roster.end("b", true);
        let ended = roster.clone();
        for handed_over in [true, false] {
            roster.end("b", handed_over);
            assert_eq!(roster, ended);
        }
        assert_eq!((roster.members[0].state, roster.members[0].live), (State::Left, false));
        assert!(roster.members[0].handed_over);
        assert!(roster.drain("b", false).unwrap_err().contains("has left"));
        // Another may take the address of one that has left, and a name comes back to its number.
        roster.enter(entry("d", 1)).unwrap();
        assert!(roster.enter(entry("b", 1)).is_err());
        roster.enter(entry("b", 9)).unwrap();
        assert!(!roster.members[0].handed_over);
        assert_eq!(roster.find("b"), Some(0));
        for name in ["a", "b", "c"] {
            roster.drain(name, true).unwrap();
        }
        assert!(roster.drain("d", true).unwrap_err().contains("only member"));
        assert!(roster.drain("e", true).unwrap_err().contains("no member"));
        Roster::parse(&roster.write().unwrap()).unwrap();
    }

    proptest! {
        #[test]
        fn bytes_never_end_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Roster::parse(&bytes);
        }

        #[test]
        fn damaged_values_are_refused_or_sound(at in 0usize..300, byte in any::<u8>()) {
            let mut bytes = two().write().unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(roster) = Roster::parse(&bytes) {
                prop_assert!(roster.ring().is_ok());
            }
        }
    }
}
