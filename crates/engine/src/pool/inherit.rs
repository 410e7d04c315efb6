//! What pools that take the place of others know from them: which servers fail or may have missed writes, and where keys
//! may have left values.
//!
//! A key leaves values behind where a failure moved it ([`super::moved`]), and where its pool's ring placed it
//! before the ring was another. Both grow old with the next write of the key, and a later failure or another reload may lead
//! reads there. So later writes delete them, at the cost of a further request; what cannot be found that way is emptied.

use std::collections::BTreeSet;

use super::event::ServerId;
use super::former::FormerRing;
use super::state::{PoolState, Pools, Role};
use crate::mutant::{self, Mutant};

/// Maximum number of former rings of a pool: each costs a look-up for every write. With more, the servers of the oldest are
/// emptied.
const FORMER_MAX: usize = 32;

impl FormerRing {
    fn from_pool(pool: &PoolState, pools: &Pools) -> FormerRing {
        let servers = pool.settings.servers.iter().filter_map(|&at| pools.servers.get(at));
        FormerRing {
            ring: pool.settings.ring.clone(),
            routing: pool.settings.routing,
            names: servers.clone().map(|server| server.name.clone()).collect(),
            places: Vec::new(),
            moved: servers.map(|server| server.moved).collect(),
        }
    }
}

impl Pools {
    /// Takes over what the pools before knew, by the names of servers and pools. No request may be under way but
    /// those that were given up.
    ///
    /// A server that fails goes on failing until it answers a ping. One that may have missed writes, or that an earlier
    /// configuration had and a later one had not, is emptied before it is read. Counters go on.
    pub fn inherit(&mut self, before: &Pools) {
        self.serial = before.serial;
        self.retired.clone_from(&before.retired);
        self.retired.extend(before.servers.iter().map(|server| server.name.clone()));
        for at in 0..self.servers.len() {
            self.inherit_server(at, before);
        }
        for at in 0..self.pools.len() {
            self.inherit_pool(at, before);
        }
        let has_former = |pool: &PoolState| pool.used || !pool.former.is_empty();
        self.moved |=
            self.pools.iter().any(has_former) || self.servers.iter().any(|server| server.moved > 0);
        self.servers_due = self.now;
    }

    fn inherit_server(&mut self, at: usize, before: &Pools) {
        let pool_name = |pools: &Pools, pool: Option<usize>| {
            pool.and_then(|pool| pools.pools.get(pool)).map(|pool| pool.settings.name.clone())
        };
        let own = pool_name(self, self.servers[at].pool);
        let server = &mut self.servers[at];
        let same_name: Vec<_> =
            before.servers.iter().enumerate().filter(|(_, it)| it.name == server.name).collect();
        // Two pools may have servers of one name.
        let in_pool = same_name.iter().find(|(_, known)| pool_name(before, known.pool) == own);
        if let Some((_, known)) = in_pool.or(same_name.first()) {
            server.health = known.health.clone();
            server.failures = known.failures;
            server.flushes = known.flushes;
        }
        // A write that was given up at the reload may have been carried out or not.
        let is_given_up = |at: ServerId| {
            let mut attempts = before.attempts.values();
            attempts.any(|it| it.server == at && !matches!(it.role, Role::Read | Role::Copied))
        };
        let is_stale = match &*same_name {
            [] => before.retired.contains(&server.name),
            known => known.iter().any(|(at, known)| known.stale || is_given_up(*at)),
        };
        if is_stale {
            self.misses(at);
        }
    }

    fn inherit_pool(&mut self, at: usize, before: &Pools) {
        let name = &self.pools[at].settings.name;
        if let Some(known) = before.pools.iter().find(|known| known.settings.name == *name) {
            self.pools[at].counts = known.counts.clone();
            self.pools[at].further.count_from(known.further.counts());
        }
        if mutant::is(Mutant::PoolFormerRingForgotten) {
            return;
        }
        let now = FormerRing::from_pool(&self.pools[at], self);
        let mut emptied = BTreeSet::new();
        let mut rings: Vec<FormerRing> = Vec::new();
        let (mut shares, mut was_used) = (false, false);
        for known in &before.pools {
            let last = FormerRing::from_pool(known, before);
            let has_shared = last.shares_servers(&now);
            shares |= has_shared;
            was_used |= known.used && has_shared;
            rings.extend(known.former.iter().cloned().chain([last]));
        }
        rings.retain(|ring| ring.shares_servers(&now));
        for ring in rings {
            if ring.ring.hash() == now.ring.hash() {
                self.add_former(at, &now, ring, &mut emptied);
            } else if !(ring.is_everywhere() && now.is_everywhere()) {
                // Where a key was cannot be told from its present hash.
                emptied.extend(ring.names);
            }
        }
        // The gutter of other routes than before may have been the own pool of their keys.
        let name = &self.pools[at].settings.name;
        let (routes, earlier) = (self.routes_with_gutter(name), before.routes_with_gutter(name));
        self.pools[at].used = !routes.is_empty() && shares && (was_used || routes != earlier);
        for &server in &self.pools[at].settings.servers.clone() {
            if emptied.contains(&self.servers[server].name) {
                self.misses(server);
            }
        }
    }

    /// Notes where a pool's keys were by a ring, beside that of now.
    fn add_former(
        &mut self,
        at: usize,
        now: &FormerRing,
        mut ring: FormerRing,
        emptied: &mut BTreeSet<String>,
    ) {
        if ring.places_as(now) {
            for (&server, moved) in self.pools[at].settings.servers.iter().zip(ring.moved) {
                let state = &mut self.servers[server];
                state.moved = state.moved.max(moved);
            }
            return;
        }
        let is =
            |at: ServerId, name: &String| self.servers.get(at).is_some_and(|it| it.name == *name);
        let own = &self.pools[at].settings.servers;
        let place = |name: &String| {
            let own = own.iter().copied().find(|&at| is(at, name));
            own.or_else(|| (0..self.servers.len()).find(|&at| is(at, name)))
        };
        ring.places = ring.names.iter().map(place).collect();
        let former = &mut self.pools[at].former;
        if let Some(same) = former.iter_mut().find(|former| former.places_as(&ring)) {
            for (moved, more) in same.moved.iter_mut().zip(ring.moved) {
                *moved = more.max(*moved);
            }
            return;
        }
        former.push(ring);
        if former.len() > FORMER_MAX {
            emptied.extend(former.remove(0).names);
        }
    }

    /// The routes that have a pool as their gutter: their prefixes, and the names of their own pools.
    fn routes_with_gutter(&self, gutter: &str) -> BTreeSet<(&[u8], &str)> {
        let name = |at: usize| self.pools.get(at).map_or("", |pool| &*pool.settings.name);
        let routes = self.settings.routes.iter();
        let routes = routes.filter(|route| route.gutter.is_some_and(|at| name(at) == gutter));
        routes.map(|route| (&*route.prefix, name(route.pool))).collect()
    }
}
