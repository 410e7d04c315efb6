//! Requests copied to another pool, for instance to try new servers under the real load.
//!
//! A copy is sent when its request begins. Nobody waits for its reply, and its failure concerns only
//! the server that it was sent to: that server gets no further ones until it answers a ping. A
//! server that is slower than the load gets at most [`COPIES_MAX`] at once; others are left out.

use super::event::{Action, Command, KeyHash, Operation, Part, RequestId, ServerId};
use super::state::{Attempt, Pools, Request, Role};
use crate::mutant::{self, Mutant};

/// Copies under way at one server.
pub(super) const COPIES_MAX: u32 = 1000;

impl Pools {
    /// Sends copies of a request to the pool that its route names for them.
    pub(super) fn copy(&mut self, id: RequestId, request: &Request, actions: &mut Vec<Action>) {
        let keys = request.keys.as_slice();
        let Some(first) = keys.first() else { return };
        let route = self.settings.routes.get(usize::from(first.route));
        let Some(pool) = route.and_then(|route| route.copy_to) else { return };
        let mut groups: Vec<(ServerId, Vec<u16>)> = Vec::new();
        for (place, key) in keys.iter().enumerate() {
            for server in self.copy_servers(pool, key, request.operation) {
                match groups.iter_mut().find(|(other, _)| *other == server) {
                    Some((_, places)) => places.push(place as u16),
                    None => groups.push((server, vec![place as u16])),
                }
            }
        }
        for (server, places) in groups {
            if self.servers[server].copies >= COPIES_MAX {
                self.pools[request.pool].counts.copies_left_out += 1;
                continue;
            }
            self.send_copy(id, request, server, places, actions);
        }
    }

    /// The servers that get a copy: of a write all of the key's, else one. None that cannot be
    /// reached.
    fn copy_servers(&mut self, pool: usize, key: &KeyHash, operation: Operation) -> Vec<ServerId> {
        let Some(state) = self.pools.get(pool) else { return Vec::new() };
        let settings = &state.settings;
        let replicas = settings.routing.replicas(settings.servers.len());
        let of = |local: usize| settings.servers.get(local).copied();
        let up = |server: &ServerId| self.servers[*server].is_up(self.now, &self.settings.health);
        let all = settings.ring.replicas(key.ring, replicas);
        let most = if operation == Operation::Write { replicas } else { 1 };
        all.iter().filter_map(of).filter(up).take(most).collect()
    }

    fn send_copy(
        &mut self,
        id: RequestId,
        request: &Request,
        server: ServerId,
        places: Vec<u16>,
        actions: &mut Vec<Action>,
    ) {
        self.serial += 1;
        let (attempt, now) = (self.serial, self.now);
        let timeout = self.pools[request.pool].settings.timeout;
        let state = &mut self.servers[server];
        let sent = state.endpoint.send(now, timeout);
        state.copies += 1;
        self.pools[request.pool].counts.copies += 1;
        let counted = Attempt {
            request: id,
            part: 0,
            server,
            role: if mutant::is(Mutant::PoolCopyCounts) { Role::Write } else { Role::Copied },
            sent,
            keys: places.len() as u32,
            late: false,
        };
        self.attempts.insert(attempt, counted);
        let whole = places.len() == request.keys.as_slice().len();
        let keys = if whole { Part::Whole } else { Part::Places(places.into()) };
        let command = Command::Original;
        actions.push(Action::Send { request: id, attempt, server, part: 0, keys, command });
    }

    /// A copy has its reply, or has failed.
    pub(super) fn copy_ended(&mut self, attempt: &Attempt) {
        let state = &mut self.servers[attempt.server];
        state.copies = state.copies.saturating_sub(1);
    }
}
