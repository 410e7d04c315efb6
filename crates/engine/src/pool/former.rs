//! Where a pool's keys were by an earlier configuration.

use super::event::ServerId;
use super::ketama::Ketama;
use super::settings::Routing;

/// Where a pool's keys were before its servers, their weights or its routing changed.
#[derive(Clone, Debug)]
pub(super) struct FormerRing {
    pub(super) ring: Ketama,
    pub(super) routing: Routing,
    /// The names of the ring's servers, by their place in it.
    pub(super) names: Vec<String>,
    /// Their places now, of those that still are servers.
    pub(super) places: Vec<Option<ServerId>>,
    /// How many steps keys had moved from each, as `ServerState::moved`.
    pub(super) moved: Vec<u8>,
}

impl FormerRing {
    pub(super) fn replicas(&self) -> usize {
        self.routing.replicas(self.names.len())
    }

    /// Whether keys are on the same servers by both rings.
    pub(super) fn places_as(&self, other: &FormerRing) -> bool {
        self.ring == other.ring && self.names == other.names && self.replicas() == other.replicas()
    }

    /// Whether every key is on every server, whatever its hash.
    pub(super) fn is_everywhere(&self) -> bool {
        self.replicas() >= self.names.len()
    }

    pub(super) fn shares_servers(&self, other: &FormerRing) -> bool {
        self.names.iter().any(|name| other.names.contains(name))
    }

    /// The servers that may have a value of a key at a position.
    pub(super) fn servers(&self, position: u32) -> Vec<ServerId> {
        let own = self.ring.replicas(position, self.replicas());
        let moved = own.iter().filter_map(|local| self.moved.get(local)).max().copied();
        let mut steps: Vec<usize> = own.iter().collect();
        if let Some(moved) = moved.filter(|moved| *moved > 0) {
            for local in self.ring.walk(position) {
                if steps.len() > usize::from(moved) + self.replicas() {
                    break;
                }
                if !steps.contains(&local) {
                    steps.push(local);
                }
            }
        }
        steps.into_iter().filter_map(|local| self.places.get(local).copied().flatten()).collect()
    }
}
