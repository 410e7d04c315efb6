//! Keys whose servers cannot be reached: where their writes go, and what is left there afterwards.
//!
//! A key without a server of its own moves to the server that follows on the ring ([`OnFailure::Move`]), or to the
//! route's gutter. Once a server of its own takes writes again, what the key left elsewhere grows old, and it may be
//! read: as long as the server is still to be emptied, and the next time that the key moves. So every later write
//! of the key deletes it wherever it may have been, before the write is acknowledged; a server that cannot
//! be told is emptied before it is read. The same holds for what a key left on the servers of an earlier ring (`inherit`).

use super::event::{Action, Command, KeyHash, RequestId, ServerId};
use super::settings::OnFailure;
use super::state::{Pools, Request, Role};
use crate::mutant::{self, Mutant};

impl Pools {
    /// The servers of a pool in the order in which a key moves from one to the next, its own first.
    fn steps(&self, pool: usize, key: &KeyHash) -> Vec<ServerId> {
        let Some(pool) = self.pools.get(pool) else { return Vec::new() };
        let settings = &pool.settings;
        let mut steps: Vec<ServerId> = Vec::new();
        for local in settings.ring.walk(key.ring) {
            let Some(&server) = settings.servers.get(local) else { continue };
            if !steps.contains(&server) {
                steps.push(server);
            }
            if steps.len() == settings.servers.len() {
                break;
            }
        }
        steps
    }

    /// A key's own servers in a pool.
    fn own(&self, pool: usize, key: &KeyHash) -> Vec<ServerId> {
        let Some(pool) = self.pools.get(pool) else { return Vec::new() };
        let settings = &pool.settings;
        let replicas = settings.routing.replicas(settings.servers.len());
        let of = |local: usize| settings.servers.get(local).copied();
        settings.ring.replicas(key.ring, replicas).iter().filter_map(of).collect()
    }

    /// The servers that a write of a key goes to, the first of the ring first. Those that cannot be
    /// reached miss it.
    pub(super) fn targets(&mut self, key: &KeyHash) -> Vec<ServerId> {
        let Some(route) = self.settings.routes.get(usize::from(key.route)) else {
            return Vec::new();
        };
        let (pool, gutter) = (route.pool, route.gutter);
        for at in [Some(pool), gutter].into_iter().flatten() {
            let all = self.own(at, key);
            // One that rests, but answers, takes part: what it misses would have to be flushed.
            let mut reached: Vec<ServerId> =
                all.iter().copied().filter(|server| self.is_reached(*server)).collect();
            if reached.is_empty() && self.moves(at) {
                let steps = self.steps(at, key).into_iter();
                if let Some(server) = steps.clone().find(|server| self.is_reached(*server)) {
                    self.note_move(&all, steps.clone().position(|step| step == server));
                    reached.push(server);
                }
            }
            if !reached.is_empty() {
                if at != pool {
                    (self.pools[at].used, self.moved) = (true, true);
                }
                for server in all.into_iter().filter(|server| !reached.contains(server)) {
                    if !mutant::is(Mutant::PoolMissedWriteIgnored) {
                        self.misses(server);
                    }
                }
                return reached;
            }
            if gutter.is_some() {
                // The gutter takes the write: what these servers have is old from now on.
                all.into_iter().for_each(|server| self.misses(server));
            }
        }
        Vec::new()
    }

    /// The server where an update of a key runs, so that a compare-and-swap number is its number: the first of
    /// [`Pools::targets`] that is not stale.
    pub(super) fn update_server(&self, key: &KeyHash, tried: &[ServerId]) -> Option<ServerId> {
        let route = self.settings.routes.get(usize::from(key.route))?;
        for at in [Some(route.pool), route.gutter].into_iter().flatten() {
            let settings = &self.pools.get(at)?.settings;
            let replicas = settings.routing.replicas(settings.servers.len());
            let mut any = false;
            for local in settings.ring.replicas(key.ring, replicas).iter() {
                let Some(&server) = settings.servers.get(local) else { continue };
                if self.is_reached(server) {
                    any = true;
                    if !self.servers[server].stale {
                        // Not the next one, whose number would mean nothing here.
                        return (!tried.contains(&server)).then_some(server);
                    }
                }
            }
            if any {
                // Updates of the key run nowhere else.
                return None;
            }
            if let Some(server) = self.moves_to(at, key, tried) {
                return Some(server);
            }
        }
        None
    }

    fn is_reached(&self, server: ServerId) -> bool {
        let state = &self.servers[server];
        state.is_up(self.now, &self.settings.health) || state.health.answers()
    }

    fn moves(&self, pool: usize) -> bool {
        let settings = self.pools.get(pool).map(|pool| &pool.settings);
        settings.is_some_and(|settings| settings.on_failure == OnFailure::Move)
    }

    /// Where a pool's key is read that none of its own servers can be read for.
    pub(super) fn moves_to(
        &self,
        pool: usize,
        key: &KeyHash,
        tried: &[ServerId],
    ) -> Option<ServerId> {
        if !self.moves(pool) {
            return None;
        }
        let may = |server: &ServerId| !tried.contains(server) && self.is_readable(*server, false);
        self.steps(pool, key).into_iter().find(may)
    }

    fn note_move(&mut self, own: &[ServerId], step: Option<usize>) {
        let step = u8::try_from(step.unwrap_or(0)).unwrap_or(u8::MAX);
        self.moved = true;
        for &server in own {
            let moved = &mut self.servers[server].moved;
            *moved = step.max(*moved);
        }
    }

    /// A write went to some servers: deletes what its key has left where it was moved to before.
    pub(super) fn drop_moved(
        &mut self,
        id: RequestId,
        request: &mut Request,
        written: &[ServerId],
        actions: &mut Vec<Action>,
    ) {
        // Most proxies never moved a key.
        if !self.moved || mutant::is(Mutant::PoolMovedValueKept) {
            return;
        }
        let Some(key) = request.keys.as_slice().first().copied() else { return };
        let Some(route) = self.settings.routes.get(usize::from(key.route)) else { return };
        let (pool, gutter) = (route.pool, route.gutter);
        let mut left: Vec<ServerId> = Vec::new();
        for at in [Some(pool), gutter].into_iter().flatten() {
            let used = at != pool && self.pools.get(at).is_some_and(|pool| pool.used);
            if at != pool && !used {
                continue;
            }
            let own = self.own(at, &key);
            let moved = own.iter().map(|&server| self.servers[server].moved).max().unwrap_or(0);
            if moved > 0 {
                left.extend(self.steps(at, &key).into_iter().take(usize::from(moved) + 1));
            }
            if used {
                left.extend(own);
            }
            if let Some(pool) = self.pools.get(at) {
                left.extend(pool.former.iter().flat_map(|ring| ring.servers(key.ring)));
            }
        }
        left.sort_unstable();
        left.dedup();
        // One that is being emptied too: a write that is still on its way to it may come after that.
        left.retain(|server| !written.contains(server));
        for server in left {
            if self.is_reached(server) {
                self.send(id, request, 0, server, Role::Drop, Command::Delete, actions);
            } else {
                self.misses(server);
            }
        }
    }
}
