//! Where a pool's keys are: the ring of servers, as twemproxy and libmemcached place it.
//!
//! Each server has points on a circle of 32-bit numbers; a key belongs to the server of the first
//! point at or after the key's hash. A pool that is moved from another proxy or client library must
//! find each key where it was, so points are computed as there, in single precision too. Sources:
//! twemproxy 0.5 (`src/hashkit/nc_ketama.c`, `nc_modula.c`), libmemcached 1.1
//! (`src/libmemcached/hosts.cc`, `hash.cc`).
//!
//! A look-up is a binary search of some hundred points per server. [`crate::route::Ring`] is better
//! balanced and costs less; it serves where nobody else has placed the keys before.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::hash::{Hash, md5_words, tagged};
use crate::route::Replicas;

/// Points of a server of average weight.
const POINTS_PER_SERVER: f32 = 160.0;
/// Points that one MD5 digest gives.
const POINTS_PER_DIGEST: u32 = 4;
/// Points of a server with [`Distribution::Consistent`].
const POINTS_UNWEIGHTED: u32 = 100;
/// The port that is not part of a server's name on the ring.
const DEFAULT_PORT: &str = ":11211";
/// Maximum number of servers of a ring.
const SERVERS_MAX: usize = 4096;
/// Maximum sum of weights with [`Distribution::Modula`], which has a place for each unit.
const PLACES_MAX: u64 = 1 << 20;

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its name in messages, metrics and on the ring (`host:port` unless another is given).
    pub name: String,
    /// Its share of the ring, relative to other servers.
    pub weight: u32,
}

/// How servers are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", try_from = "DistributionName")]
pub enum Distribution {
    /// Some 160 points per server in proportion to its weight, four from each MD5 digest of
    /// `name-0`, `name-1` …: twemproxy's `ketama`, libmemcached's weighted ketama.
    #[default]
    Ketama,
    /// 100 points per server, from the key's own hash function of `name-0` …: libmemcached's
    /// `MEMCACHED_DISTRIBUTION_CONSISTENT` without weights. With any weight above 1 it is
    /// [`Distribution::Ketama`], as there.
    Consistent,
    /// The remainder of the hash divided by the sum of weights, servers in the order of their names (shorter
    /// names first): twemproxy's `modula`, which sorts the servers of a pool so.
    Modula,
    /// As [`Distribution::Modula`], with the servers as they are listed: libmemcached's default,
    /// `MEMCACHED_DISTRIBUTION_MODULA`.
    ModulaListed,
}

/// What a configuration may call a distribution.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum DistributionName {
    Ketama,
    Consistent,
    Modula,
    ModulaListed,
    Random,
}

impl TryFrom<DistributionName> for Distribution {
    type Error = &'static str;
    fn try_from(name: DistributionName) -> Result<Distribution, &'static str> {
        Ok(match name {
            DistributionName::Ketama => Distribution::Ketama,
            DistributionName::Consistent => Distribution::Consistent,
            DistributionName::Modula => Distribution::Modula,
            DistributionName::ModulaListed => Distribution::ModulaListed,
            DistributionName::Random => {
                return Err(
                    "`random` is not supported: it sends every request of a key to a server drawn anew, so that a value \
                            is found only by chance; write \"ketama\" (keys start cold), or routing = \"replicated\" if every \
                            server has every key",
                );
            }
        })
    }
}

/// An invalid ring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KetamaError {
    /// The ring has no servers.
    #[error("the pool has no servers")]
    Empty,
    /// The ring has too many servers.
    #[error("the pool has {0} servers; at most {SERVERS_MAX} are possible")]
    TooMany(usize),
    /// Two servers have the same name.
    #[error("the pool has two servers named {0:?}")]
    Duplicate(String),
    /// A weight is 0.
    #[error("invalid weight 0 of the server {0:?}: it must be positive")]
    Weight(String),
    /// The sum of weights is too large.
    #[error("the weights sum up to {0}; with modula, at most {PLACES_MAX} are possible")]
    Weights(u64),
}

/// The servers of a pool on their ring. Servers are numbered in the order in which they are given.
///
/// ```
/// use engine::pool::{Distribution, Hash, Ketama, Server};
/// let server = |name: &str| Server { name: name.to_owned(), weight: 1 };
/// let servers = [server("10.0.0.1:11211"), server("10.0.0.2:11211"), server("10.0.0.3:11211")];
/// let ring = Ketama::new(Distribution::Ketama, Hash::Fnv1a64, None, &servers)?;
/// let position = ring.position(b"key");
/// let replicas: Vec<usize> = ring.replicas(position, 2).iter().collect();
/// assert_eq!(replicas[0], ring.server(position));
/// # Ok::<(), engine::pool::KetamaError>(())
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Ketama {
    parts: Parts,
    /// The points in ascending order; empty for [`Distribution::Modula`].
    points: Vec<u32>,
    /// The server of each point or place.
    servers: Vec<u16>,
}

/// What a ring is made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Parts {
    distribution: Distribution,
    hash: Hash,
    tag: Option<[u8; 2]>,
    servers: Vec<Server>,
}

impl TryFrom<Parts> for Ketama {
    type Error = KetamaError;
    fn try_from(parts: Parts) -> Result<Ketama, KetamaError> {
        Ketama::new(parts.distribution, parts.hash, parts.tag, &parts.servers)
    }
}

impl From<Ketama> for Parts {
    fn from(ring: Ketama) -> Parts {
        ring.parts
    }
}

/// Omits the points, which follow from the rest.
impl fmt::Debug for Ketama {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.fmt(f)
    }
}

impl Ketama {
    /// The ring of some servers. With a `tag` such as `{}`, only the part of a key between these
    /// two characters is hashed, if the key has one.
    ///
    /// A server whose name ends in `:11211` is placed under its name without the port, as in both
    /// sources.
    ///
    /// # Errors
    /// If there are no or too many servers, or a name repeats, or a weight is 0.
    pub fn new(
        distribution: Distribution,
        hash: Hash,
        tag: Option<[u8; 2]>,
        servers: &[Server],
    ) -> Result<Ketama, KetamaError> {
        if servers.is_empty() {
            return Err(KetamaError::Empty);
        }
        if servers.len() > SERVERS_MAX {
            return Err(KetamaError::TooMany(servers.len()));
        }
        let mut names = BTreeSet::new();
        for server in servers {
            if !names.insert(&server.name) {
                return Err(KetamaError::Duplicate(server.name.clone()));
            }
            if server.weight == 0 {
                return Err(KetamaError::Weight(server.name.clone()));
            }
        }
        let total: u64 = servers.iter().map(|server| u64::from(server.weight)).sum();
        let weighted = servers.iter().any(|server| server.weight > 1);
        let (points, placed) = match distribution {
            Distribution::Modula | Distribution::ModulaListed if total > PLACES_MAX => {
                return Err(KetamaError::Weights(total));
            }
            Distribution::Modula => (Vec::new(), places(&by_name(servers))),
            Distribution::ModulaListed => (Vec::new(), places(&numbered(servers))),
            Distribution::Consistent if !weighted => {
                sorted(servers, |name, _| unweighted(name, hash))
            }
            Distribution::Ketama | Distribution::Consistent => {
                let n = servers.len() as f32;
                sorted(servers, |name, weight| {
                    let share = weight as f32 / total as f32;
                    // The sources add the small number in double and in single precision; the
                    // result is the same.
                    let digests = share * POINTS_PER_SERVER / POINTS_PER_DIGEST as f32 * n;
                    let digests = (f64::from(digests) + 1e-10) as f32;
                    weighted_points(name, digests.floor() as u32)
                })
            }
        };
        let parts = Parts { distribution, hash, tag, servers: servers.to_vec() };
        Ok(Ketama { parts, points, servers: placed })
    }

    /// The position of a key on the ring: its hash.
    pub fn position(&self, key: &[u8]) -> u32 {
        let key = self.parts.tag.map_or(key, |tag| tagged(key, tag));
        self.parts.hash.digest(key)
    }

    /// The server of a position.
    pub fn server(&self, position: u32) -> usize {
        self.walk(position).next().unwrap_or(0)
    }

    /// The server of a position and the next different ones, `n` in all or as many as there are; at
    /// most [`crate::route::REPLICAS_MAX`].
    pub fn replicas(&self, position: u32, n: usize) -> Replicas {
        let mut replicas = Replicas::default();
        let n = n.min(self.len());
        for server in self.walk(position) {
            if replicas.len() >= n || !replicas.add(server) {
                break;
            }
        }
        replicas
    }

    /// The servers of the points from a position on, once around the ring. A server occurs as often
    /// as it has points.
    pub fn walk(&self, position: u32) -> impl Iterator<Item = usize> + '_ {
        let first = match self.parts.distribution {
            Distribution::Modula | Distribution::ModulaListed => {
                position as usize % self.servers.len().max(1)
            }
            _ => self.points.partition_point(|&point| point < position),
        };
        let (before, after) = self.servers.split_at(first.min(self.servers.len()));
        after.iter().chain(before).map(|&server| usize::from(server))
    }

    /// The number of servers.
    pub fn len(&self) -> usize {
        self.parts.servers.len()
    }

    /// Whether there are no servers; never true.
    pub fn is_empty(&self) -> bool {
        self.parts.servers.is_empty()
    }

    /// The hash function of keys, and the hash tag.
    pub fn hash(&self) -> (Hash, Option<[u8; 2]>) {
        (self.parts.hash, self.parts.tag)
    }
}

/// The points of all servers in order, and the server of each; of equal points the lower server's
/// first.
fn sorted(servers: &[Server], points: impl Fn(&str, u32) -> Vec<u32>) -> (Vec<u32>, Vec<u16>) {
    let mut all: Vec<(u32, u16)> = Vec::new();
    for (number, server) in servers.iter().enumerate() {
        all.extend(
            points(name_on_ring(server), server.weight)
                .into_iter()
                .map(|point| (point, number as u16)),
        );
    }
    all.sort_unstable();
    all.into_iter().unzip()
}

fn unweighted(name: &str, hash: Hash) -> Vec<u32> {
    (0..POINTS_UNWEIGHTED).map(|i| hash.digest(format!("{name}-{i}").as_bytes())).collect()
}

fn weighted_points(name: &str, digests: u32) -> Vec<u32> {
    (0..digests).flat_map(|i| md5_words(format!("{name}-{i}").as_bytes())).collect()
}

/// A server's name without the default port.
fn name_on_ring(server: &Server) -> &str {
    server.name.strip_suffix(DEFAULT_PORT).unwrap_or(&server.name)
}

fn numbered(servers: &[Server]) -> Vec<(u16, &Server)> {
    (0..).zip(servers).collect()
}

/// Servers in twemproxy's order: `string_compare` of `nc_string.c` compares lengths first.
fn by_name(servers: &[Server]) -> Vec<(u16, &Server)> {
    let mut sorted = numbered(servers);
    let key = |server: &Server| (name_on_ring(server).len(), name_on_ring(server).to_owned());
    sorted.sort_by_key(|(_, server)| key(server));
    sorted
}

/// A place for each unit of weight.
fn places(servers: &[(u16, &Server)]) -> Vec<u16> {
    let weight =
        |(number, server): &(u16, &Server)| std::iter::repeat_n(*number, server.weight as usize);
    servers.iter().flat_map(weight).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn servers(of: &[(&str, u32)]) -> Vec<Server> {
        of.iter().map(|&(name, weight)| Server { name: name.to_owned(), weight }).collect()
    }

    /// Published in libmemcached's tests (`test/fixtures/ketama.hpp`, `tests/memcached/ketama.cpp`).
    #[test]
    fn keys_lie_where_libmemcached_finds_them() {
        let weights = [600, 300, 200, 350, 1000, 800, 950, 100];
        let names: Vec<String> = (1..=8).map(|i| format!("10.0.1.{i}:11211")).collect();
        let of: Vec<(&str, u32)> = names.iter().map(String::as_str).zip(weights).collect();
        let ring = Ketama::new(Distribution::Ketama, Hash::Md5, None, &servers(&of)).unwrap();
        for (key, hash, host) in [
            (r"SVa_]_V41)", 443_691_461, 7),
            (r"*/Z;?V(.\8", 1_422_915_503, 1),
            (r"30C1*Z*S/_", 1_473_165_754, 2),
            (r"ERR:EC58G>", 2_148_406_511, 7),
            (r"1I=cTMNTKF", 2_882_686_667, 5),
            (r"]VG<`I*Z8)", 1_103_544_263, 5),
            (r"P1[Ma3=K1/", 1_989_324_036, 8),
            (r"D[HE+cFXDK", 2_117_036_136, 3),
            (r"EM75N0+[X1", 1_558_531_507, 4),
            (r"6,cEI`F_P>", 3_972_869_246, 6),
            (r"8*6a;Sc*X+", 4_223_431_086, 2),
            (r"VD6D0]ba_\", 3_842_502_950, 1),
        ] {
            assert_eq!(ring.position(key.as_bytes()), hash, "{key}");
            assert_eq!(ring.server(hash), host - 1, "{key}");
        }
        // It hashes past the last point.
        assert_eq!(ring.position(b"VDEAAAAA"), 0xfffc_d1b5);
        assert_eq!(ring.server(0xfffc_d1b5), usize::from(ring.servers[0]));
        assert_eq!(ring.points.len(), ring.servers.len());
    }

    #[test]
    fn the_default_port_is_not_part_of_a_name() {
        let ring = |names: [&str; 2]| {
            let of = names.map(|name| (name, 1));
            Ketama::new(Distribution::Ketama, Hash::Fnv1a64, None, &servers(&of)).unwrap()
        };
        assert_eq!(ring(["a:11211", "b:11211"]).points, ring(["a", "b"]).points);
        assert_ne!(ring(["a:11212", "b:11211"]).points, ring(["a", "b"]).points);
    }

    #[test]
    fn an_invalid_ring_is_refused() {
        let check = |of: &[(&str, u32)], expected: KetamaError| {
            let ring = Ketama::new(Distribution::Modula, Hash::Md5, None, &servers(of));
            assert_eq!(ring.err(), Some(expected));
        };
        check(&[], KetamaError::Empty);
        check(&[("a", 1), ("a", 2)], KetamaError::Duplicate("a".to_owned()));
        check(&[("a", 1), ("b", 0)], KetamaError::Weight("b".to_owned()));
        check(&[("a", u32::MAX)], KetamaError::Weights(u64::from(u32::MAX)));
    }

    #[test]
    fn a_ring_is_stored_without_its_points() {
        let of = servers(&[("a:1", 2), ("b:1", 1)]);
        let ring = Ketama::new(Distribution::Ketama, Hash::Murmur, Some(*b"{}"), &of).unwrap();
        let text = serde_json::to_string(&ring).unwrap();
        assert!(text.len() < 200, "{text}");
        assert_eq!(serde_json::from_str::<Ketama>(&text).unwrap(), ring);
        assert_eq!(ring.position(b"x{key}"), Hash::Murmur.digest(b"key"));
    }

    /// The placement, written statement by statement after the C sources, and a search from the
    /// first point on.
    fn naive(distribution: Distribution, hash: Hash, servers: &[Server], key: u32) -> usize {
        if distribution == Distribution::Modula {
            // `array_sort` by `conf_server_name_cmp`.
            let name = |at: usize| servers[at].name.trim_end_matches(":11211");
            let mut order: Vec<usize> = (0..servers.len()).collect();
            order.sort_by(|&a, &b| match name(a).len().cmp(&name(b).len()) {
                std::cmp::Ordering::Equal => name(a).cmp(name(b)),
                other => other,
            });
            let sorted: Vec<Server> = order.iter().map(|&at| servers[at].clone()).collect();
            return order[naive(Distribution::ModulaListed, hash, &sorted, key)];
        }
        let nserver = servers.len();
        let mut total_weight = 0u32;
        let mut is_weighted = distribution == Distribution::Ketama;
        for server in servers {
            total_weight += server.weight;
            is_weighted |= server.weight > 1;
        }
        let mut continuum: Vec<(u32, usize)> = Vec::new();
        for (server_index, server) in servers.iter().enumerate() {
            if distribution == Distribution::ModulaListed {
                for _ in 0..server.weight {
                    continuum.push((0, server_index));
                }
                continue;
            }
            let (host, port) = server.name.rsplit_once(':').unwrap();
            let name = if port == "11211" { host.to_owned() } else { format!("{host}:{port}") };
            if !is_weighted {
                for pointer_index in 1..=100 {
                    let sort_host = format!("{name}-{}", pointer_index - 1);
                    continuum.push((hash.digest(sort_host.as_bytes()), server_index));
                }
                continue;
            }
            let pct = server.weight as f32 / total_weight as f32;
            let exact = pct * 160f32 / 4f32 * nserver as f32;
            let pointer_per_server = (exact + 0.000_000_000_1f32).floor() as u32 * 4;
            for pointer_index in 1..=pointer_per_server / 4 {
                let digest =
                    <md5::Md5 as md5::Digest>::digest(format!("{name}-{}", pointer_index - 1));
                for x in 0..4 {
                    let value = u32::from(digest[3 + x * 4]) << 24
                        | u32::from(digest[2 + x * 4]) << 16
                        | u32::from(digest[1 + x * 4]) << 8
                        | u32::from(digest[x * 4]);
                    continuum.push((value, server_index));
                }
            }
        }
        if distribution == Distribution::ModulaListed {
            return continuum[key as usize % continuum.len()].1;
        }
        let mut found = None;
        for &(value, index) in &continuum {
            if value >= key && found.is_none_or(|best| (value, index) < best) {
                found = Some((value, index));
            }
        }
        let lowest = continuum.iter().min().unwrap();
        found.unwrap_or(*lowest).1
    }

    fn distributions() -> impl Strategy<Value = Distribution> {
        prop_oneof![
            Just(Distribution::Ketama),
            Just(Distribution::Consistent),
            Just(Distribution::Modula),
            Just(Distribution::ModulaListed)
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn places_agree_with_the_twin(
            distribution in distributions(),
            weights in prop::collection::vec((1u32..4, 11_210u16..11_213), 1..9),
            hash in prop::sample::select(&Hash::ALL[..]),
            equal in any::<bool>(),
            keys in prop::collection::vec(any::<u32>(), 20),
        ) {
            let of: Vec<Server> = (0..).zip(&weights).map(|(i, &(weight, port))| Server {
                // Not in the order of their names, nor all of one length.
                name: format!("10.0.{}.{}:{port}", 12 - i, 7 * i),
                weight: if equal { 1 } else { weight },
            }).collect();
            let ring = Ketama::new(distribution, hash, None, &of).unwrap();
            for key in keys.into_iter().chain([0, u32::MAX]) {
                prop_assert_eq!(ring.server(key), naive(distribution, hash, &of, key));
            }
        }

        #[test]
        fn replicas_are_the_next_different_servers(
            distribution in distributions(),
            n in 1usize..9,
            servers_ in 1usize..12,
            key in any::<u32>(),
        ) {
            let of: Vec<Server> = (0..servers_)
                .map(|i| Server { name: format!("s{i}:1"), weight: 1 })
                .collect();
            let ring = Ketama::new(distribution, Hash::Md5, None, &of).unwrap();
            let replicas: Vec<usize> = ring.replicas(key, n).iter().collect();
            prop_assert_eq!(replicas.len(), n.min(servers_));
            prop_assert_eq!(replicas[0], ring.server(key));
            let mut next: Vec<usize> = Vec::new();
            for server in ring.walk(key) {
                if !next.contains(&server) {
                    next.push(server);
                }
            }
            prop_assert_eq!(next.len(), servers_);
            prop_assert_eq!(&next[..replicas.len()], &replicas[..]);
        }
    }
}
