//! Which route a key takes: the one with the longest prefix of the key.

use ground::window::key_hash;

use super::event::{KeyHash, RouteId};
use super::hash::{Hash, tagged};
use super::settings::{Route, Settings};

/// The routes of [`Settings`], prepared for look-ups. It never changes: a driver uses it outside the
/// lock of [`super::Pools`].
///
/// Prefixes are in ascending order, each with the longest shorter one. The last prefix at or before
/// a key, or one of those that it begins with, is the key's. Cost of a look-up: a binary search and
/// a comparison for each of the latter; nothing is allocated.
#[derive(Clone, Debug)]
pub struct Routes {
    prefixes: Vec<Prefix>,
    /// The hash function and the hash tag of each route's pool.
    hashes: Vec<(Hash, Option<[u8; 2]>)>,
}

#[derive(Clone, Debug)]
struct Prefix {
    bytes: Box<[u8]>,
    route: RouteId,
    /// Index of the longest of the others that this one begins with.
    parent: Option<usize>,
}

impl Routes {
    /// Prepares the routes of some settings.
    pub fn new(settings: &Settings) -> Routes {
        let of = |(at, route): (usize, &Route)| (route.prefix.clone(), at as RouteId);
        let mut sorted: Vec<_> = settings.routes.iter().enumerate().map(of).collect();
        sorted.sort();
        sorted.dedup_by(|later, first| later.0 == first.0);
        let mut prefixes: Vec<Prefix> = Vec::with_capacity(sorted.len());
        for (bytes, route) in sorted {
            let mut parent = prefixes.len().checked_sub(1);
            while let Some(at) = parent.filter(|&at| !bytes.starts_with(&prefixes[at].bytes)) {
                parent = prefixes[at].parent;
            }
            prefixes.push(Prefix { bytes, route, parent });
        }
        let pool = |route: &Route| settings.pools.get(route.pool);
        let hash = |route| pool(route).map(|pool| pool.ring.hash()).unwrap_or_default();
        Routes { prefixes, hashes: settings.routes.iter().map(hash).collect() }
    }

    /// The route of a key; `None` only if no route has the empty prefix.
    pub fn route(&self, key: &[u8]) -> Option<RouteId> {
        if let [Prefix { bytes, route, .. }] = &*self.prefixes
            && bytes.is_empty()
        {
            return Some(*route);
        }
        let after = self.prefixes.partition_point(|prefix| *prefix.bytes <= *key);
        let mut at = after.checked_sub(1);
        while let Some(prefix) = at.and_then(|at| self.prefixes.get(at)) {
            if key.starts_with(&prefix.bytes) {
                return Some(prefix.route);
            }
            at = prefix.parent;
        }
        None
    }

    /// What the engine sees of a key; `None` only if no route has the empty prefix.
    pub fn key(&self, key: &[u8]) -> Option<KeyHash> {
        let route = self.route(key)?;
        let (hash, tag) = self.hashes.get(usize::from(route))?;
        let ring = hash.digest(tag.map_or(key, |tag| tagged(key, tag)));
        Some(KeyHash { route, ring, id: key_hash(key) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::settings;
    use super::*;
    use crate::pool::{Route, Routing};

    fn routes(prefixes: &[String]) -> Settings {
        let mut settings = settings(2, Routing::Hash);
        settings.routes = prefixes.iter().map(|prefix| Route::new(prefix, 0)).collect();
        settings
    }

    #[test]
    fn the_longest_prefix_counts() {
        let settings = routes(&["", "a", "ab", "abc", "b"].map(str::to_owned));
        let routes = Routes::new(&settings);
        for (key, expected) in
            [("", 0), ("a", 1), ("ac", 1), ("ab", 2), ("abb", 2), ("abcd", 3), ("abd", 2), ("c", 0)]
        {
            assert_eq!(routes.route(key.as_bytes()), Some(expected), "{key}");
        }
    }

    proptest! {
        /// The naive twin compares all prefixes.
        #[test]
        fn routes_agree_with_the_twin(
            mut prefixes in prop::collection::btree_set("[ab]{0,5}", 1..12),
            keys in prop::collection::vec("[abc]{0,8}", 20),
            whole in any::<bool>(),
        ) {
            if whole {
                prefixes.insert(String::new());
            }
            let settings = routes(&prefixes.into_iter().rev().collect::<Vec<_>>());
            let routes = Routes::new(&settings);
            for key in keys {
                let found = routes.key(key.as_bytes());
                prop_assert_eq!(found.map(|key| key.route), settings.route(key.as_bytes()));
                if let Some(found) = found {
                    prop_assert_eq!(found.ring, settings.pools[0].ring.position(key.as_bytes()));
                }
            }
        }
    }
}
