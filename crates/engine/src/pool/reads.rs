//! Reads: which servers get a request's keys, hedges, failover.

use ground::window::{Nanos, Outcome};

use super::event::{
    Action, Answer, AttemptId, Command, KeyHash, Operation, Refusal, RequestId, ServerId,
};
use super::settings::{MultiGet, PoolSettings, Routing};
use super::state::{Attempt, PartState, Pools, Request, Role};
use crate::mutant::{self, Mutant};
use crate::route::REPLICAS_MAX;

/// A server that is expected to take more than this times as long as another of a key's servers
/// gets no share of a get that is shared among servers.
const SPREAD_MAX: f64 = 3.0;

impl Pools {
    pub(super) fn begin_read(
        &mut self,
        id: RequestId,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        let all: Vec<u16> = match request.keys.as_slice().len() {
            1 => Vec::new(),
            n => (0..n as u16).collect(),
        };
        if !self.dispatch(id, request, &all, &[], None, actions) {
            self.refuse(id, request, Refusal::NoServer, actions);
        }
    }

    /// Sends the keys at some places (none: the request's only key) to servers that were not tried.
    /// `beside`: as a hedge of that part. Returns whether every key has a server; otherwise nothing
    /// was sent.
    fn dispatch(
        &mut self,
        id: RequestId,
        request: &mut Request,
        places: &[u16],
        tried: &[ServerId],
        beside: Option<usize>,
        actions: &mut Vec<Action>,
    ) -> bool {
        let keys = request.keys.as_slice();
        let first = self.asks_first(request);
        let part = |server: ServerId, places: Option<Box<[u16]>>, keys: usize| PartState {
            keys: keys as u32,
            places,
            live: None,
            answer: None,
            beside,
            hedge_at: Nanos::MAX,
            over: false,
            server,
            before: tried.to_vec(),
        };
        if places.is_empty() {
            let chosen = keys.first().and_then(|key| match first {
                true => self.update_server(key, tried),
                false => self.choose(key, tried),
            });
            let Some(server) = chosen else { return false };
            self.send_part(id, request, part(server, None, 1), actions);
            return true;
        }
        let mut groups: Vec<(ServerId, Vec<u16>)> = Vec::new();
        let found = match first {
            true => self.group_by_first(keys, places, tried, &mut groups),
            false => self.group(keys, places, tried, &mut groups),
        };
        if !found {
            return false;
        }
        let whole = groups.len() == 1 && places.len() == keys.len();
        for (server, places) in groups {
            let count = places.len();
            let places = (!whole).then(|| places.into());
            self.send_part(id, request, part(server, places, count), actions);
        }
        true
    }

    /// Sends a part of a read to its server.
    fn send_part(
        &mut self,
        id: RequestId,
        request: &mut Request,
        part: PartState,
        actions: &mut Vec<Action>,
    ) {
        let (at, server) = (request.parts.len(), part.server);
        let hedge_at = self.hedge_at(request, server, part.beside);
        request.parts.push(PartState { hedge_at, ..part });
        let (role, command) = (Role::Read, Command::Original);
        let attempt = self.send(id, request, at, server, role, command, actions);
        request.parts[at].live = Some(attempt);
    }

    fn hedge_at(&self, request: &Request, server: ServerId, beside: Option<usize>) -> Nanos {
        let (pool, first) = (request.pool, self.asks_first(request));
        let settings = &self.pools[pool].settings;
        let alone = settings.routing == Routing::Hash || settings.hedge.is_none();
        if alone || first || beside.is_some() {
            return Nanos::MAX;
        }
        let pool = self.servers[server].pool.unwrap_or(pool);
        self.now.saturating_add(self.pools[pool].hedge_after)
    }

    /// A server's quantile has changed.
    pub(super) fn update_hedge_after(&mut self, pool: usize) {
        let pool = &mut self.pools[pool];
        let of = pool.settings.servers.iter().filter_map(|&server| self.servers.get(server));
        let mut all: Vec<Nanos> = of.map(|server| server.endpoint.hedge_after).collect();
        all.retain(|&after| after < Nanos::MAX);
        let middle = all.len().saturating_sub(1) / 2;
        pool.hedge_after = match all.is_empty() {
            true => Nanos::MAX,
            false => *all.select_nth_unstable(middle).1,
        };
    }

    /// Groups keys by server. Returns whether every key has one.
    fn group(
        &mut self,
        keys: &[KeyHash],
        places: &[u16],
        tried: &[ServerId],
        groups: &mut Vec<(ServerId, Vec<u16>)>,
    ) -> bool {
        let Some(pool) = keys.first().and_then(|key| self.pool_of(key)) else { return false };
        let settings = &self.pools[pool].settings;
        let (routing, mode) = (settings.routing, settings.multi_get);
        let servers = settings.servers.len();
        let spread = match mode {
            MultiGet::Whole => false,
            MultiGet::Sharded => true,
            MultiGet::Auto => {
                let most = routing.replicas(servers);
                self.pools[pool].costs.shares(places.len(), most) > 1
            }
        };
        for &place in places {
            let Some(key) = keys.get(usize::from(place)) else { return false };
            let (candidates, count) = self.candidates(key, tried);
            let candidates = &candidates[..count];
            let held = |server: &ServerId| groups.iter().position(|(other, _)| other == server);
            let at = if spread {
                // The candidate that has fewest of the keys, of those that are not slow.
                let of = |server: &ServerId| held(server).map_or(0, |at| groups[at].1.len());
                let expected = candidates.iter().map(|&server| self.expected_s(server));
                let best = expected.fold(f64::INFINITY, f64::min);
                candidates
                    .iter()
                    .filter(|server| self.expected_s(**server) <= best * SPREAD_MAX)
                    .min_by_key(|server| of(server))
                    .map(|server| held(server).ok_or(*server))
            } else {
                match candidates.iter().find_map(held) {
                    Some(at) => Some(Ok(at)),
                    None => self.choose(key, tried).map(Err),
                }
            };
            match at {
                Some(Ok(at)) => groups[at].1.push(place),
                Some(Err(server)) => groups.push((server, vec![place])),
                None => return false,
            }
        }
        true
    }

    /// Groups keys by the server where their updates run. Returns whether every key has one.
    fn group_by_first(
        &self,
        keys: &[KeyHash],
        places: &[u16],
        tried: &[ServerId],
        groups: &mut Vec<(ServerId, Vec<u16>)>,
    ) -> bool {
        for &place in places {
            let key = keys.get(usize::from(place));
            let Some(server) = key.and_then(|key| self.update_server(key, tried)) else {
                return false;
            };
            match groups.iter_mut().find(|(other, _)| *other == server) {
                Some((_, places)) => places.push(place),
                None => groups.push((server, vec![place])),
            }
        }
        true
    }

    /// Whether a read goes to the server where updates of its keys run, and nowhere beside it.
    fn asks_first(&self, request: &Request) -> bool {
        match request.operation {
            Operation::ReadFirst => !mutant::is(Mutant::PoolNumberOfAny),
            Operation::ReadMarked => {
                self.is_marked(request) && !mutant::is(Mutant::PoolMissNotAskedAtFirst)
            }
            _ => false,
        }
    }

    /// Whether another server's miss does not count as one: the item of a marked read may be at its first server alone.
    fn may_be_marked(&self, request: &Request, part: usize) -> bool {
        let PoolSettings { routing, servers, .. } = &self.pools[request.pool].settings;
        if request.operation != Operation::ReadMarked
            || routing.replicas(servers.len()) < 2
            || mutant::is(Mutant::PoolMissNotAskedAtFirst)
        {
            return false;
        }
        let Some(key) = request.keys.as_slice().first() else { return false };
        if self.is_overtaken(request) {
            // There it might read what its client wrote later.
            return false;
        }
        let first = self.update_server(key, &[]);
        first.is_some_and(|first| request.parts.iter().all(|part| part.server != first))
            && request.parts[part].beside.is_none()
    }

    /// The servers that may answer a read of a key, in the order of its ring.
    fn candidates(&self, key: &KeyHash, tried: &[ServerId]) -> ([ServerId; REPLICAS_MAX], usize) {
        let mut found = [0; REPLICAS_MAX];
        let Some(route) = self.settings.routes.get(usize::from(key.route)) else {
            return (found, 0);
        };
        for at in [Some(route.pool), route.gutter].into_iter().flatten() {
            let Some(pool) = self.pools.get(at) else { continue };
            let settings = &pool.settings;
            let replicas = settings.routing.replicas(settings.servers.len());
            let of = |local: usize| settings.servers.get(local).copied();
            for resting in [false, true] {
                let mut count = 0;
                for server in settings.ring.replicas(key.ring, replicas).iter().filter_map(of) {
                    if !tried.contains(&server) && self.is_readable(server, resting) {
                        found[count] = server;
                        count += 1;
                    }
                }
                if count > 0 {
                    return (found, count);
                }
            }
            if let Some(server) = self.moves_to(at, key, tried) {
                found[0] = server;
                return (found, 1);
            }
        }
        (found, 0)
    }

    /// The server that a read of a key is sent to.
    fn choose(&mut self, key: &KeyHash, tried: &[ServerId]) -> Option<ServerId> {
        let (mut servers, mut count) = self.candidates(key, tried);
        if count <= 1 {
            return (count == 1).then(|| servers[0]);
        }
        let (now, health) = (self.now, &self.settings.health);
        // A server that came back gets its share by and by.
        let mut kept = 0;
        for at in 0..count {
            let share = self.servers[servers[at]].health.share(now, health);
            if self.balancer.grants(share) {
                servers[kept] = servers[at];
                kept += 1;
            }
        }
        if kept > 0 {
            count = kept;
        }
        let policy = self.pools[self.pool_of(key)?].settings.policy;
        let loads = servers[..count].iter().map(|&server| &self.servers[server].endpoint.load);
        let chosen = self.balancer.choose(now, policy, 0.0, loads);
        servers.get(chosen).copied()
    }

    /// The expected response of a read that is sent to a server now.
    fn expected_s(&self, server: ServerId) -> f64 {
        let prior_s = self.balancer.prior_s().unwrap_or(0.0);
        self.servers[server].endpoint.load.expected_s(self.now, prior_s)
    }

    /// Sends the parts that take longer than usual to other servers too.
    pub(super) fn hedge(
        &mut self,
        id: RequestId,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        let now = self.now;
        for part in 0..request.parts.len() {
            let state = &mut request.parts[part];
            if state.over || state.hedge_at > now {
                continue;
            }
            state.hedge_at = Nanos::MAX;
            if state.live.is_none() {
                continue;
            }
            let places = places_of(request, part);
            let tried = request.parts[part].tried();
            let pool = request.pool;
            let overtaken = self.is_overtaken(request) && !mutant::is(Mutant::PoolHedgesPastWrite);
            if !self.pools[pool].further.may_hedge(!overtaken) {
                continue;
            }
            if self.dispatch(id, request, &places, &tried, Some(part), actions) {
                self.pools[pool].further.count_hedge();
            }
        }
    }

    pub(super) fn read_answered(
        &mut self,
        name: AttemptId,
        attempt: &Attempt,
        request: &mut Request,
        answer: Answer,
        hits: u32,
        actions: &mut Vec<Action>,
    ) {
        let Some(part) = request.parts.get_mut(attempt.part) else {
            return self.invariants.broken();
        };
        part.live = None;
        if answer == Answer::Error {
            // The server answers, but cannot serve this: others may.
            return self.read_failed_with(attempt, request, Some((name, answer)), actions);
        }
        part.answer = Some((name, answer, hits));
        let first = part.beside.unwrap_or(attempt.part);
        self.resolve(attempt.request, first, request, actions);
    }

    pub(super) fn read_failed(
        &mut self,
        attempt: &Attempt,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        if let Some(part) = request.parts.get_mut(attempt.part) {
            part.live = None;
        }
        self.read_failed_with(attempt, request, None, actions);
    }

    /// A part's attempt failed. `said`: the server's error, which the client gets if nobody else can
    /// serve the part.
    fn read_failed_with(
        &mut self,
        attempt: &Attempt,
        request: &mut Request,
        said: Option<(AttemptId, Answer)>,
        actions: &mut Vec<Action>,
    ) {
        let id = attempt.request;
        let part = attempt.part;
        if let Some(first) = request.parts[part].beside {
            // A hedge that failed: its reply cannot come, the first attempt's may.
            for other in hedges_of(request, first) {
                request.parts[other].over = true;
                self.cancel(id, request, other, actions);
            }
            if request.parts[first].live.is_some() || request.parts[first].answer.is_some() {
                return self.resolve(id, first, request, actions);
            }
            return self.retry(id, first, request, said, actions);
        }
        if hedges_of(request, part).next().is_some() {
            return self.resolve(id, part, request, actions);
        }
        self.retry(id, part, request, said, actions);
    }

    /// Sends a part that failed to other servers, if there are any and the budget allows.
    fn retry(
        &mut self,
        id: RequestId,
        part: usize,
        request: &mut Request,
        said: Option<(AttemptId, Answer)>,
        actions: &mut Vec<Action>,
    ) {
        let places = places_of(request, part);
        let tried = request.parts[part].tried();
        let overtaken = self.is_overtaken(request) && !mutant::is(Mutant::PoolRetriesPastWrite);
        let allowed = self.pools[request.pool].further.may_retry(!overtaken);
        if allowed && self.dispatch(id, request, &places, &tried, None, actions) {
            self.pools[request.pool].further.count_retry();
            request.parts[part].over = true;
            return;
        }
        if let Some((attempt, answer)) = said {
            request.parts[part].answer = Some((attempt, answer, 0));
            return self.resolve(id, part, request, actions);
        }
        self.refuse_failed(id, request, actions);
    }

    /// Uses the reply of a part, or those of the hedges beside it, once it is known which is best.
    fn resolve(
        &mut self,
        id: RequestId,
        first: usize,
        request: &mut Request,
        actions: &mut Vec<Action>,
    ) {
        if request.parts[first].over {
            return;
        }
        let keys = request.parts[first].keys;
        let own = request.parts[first].answer.map(|(_, _, hits)| hits);
        let (mut beside, mut complete, mut any) = (0, true, false);
        for at in hedges_of(request, first) {
            any = true;
            match request.parts[at].answer {
                Some((_, _, hits)) => beside += hits,
                None => complete = false,
            }
        }
        let beside = (any && complete).then_some(beside);
        let waits_for_first = request.parts[first].live.is_some();
        let waits_for_hedges = any && !complete;
        let use_hedges = match (own, beside) {
            (Some(own), _) if own >= keys => false,
            (_, Some(beside)) if beside >= keys => true,
            (Some(own), Some(beside)) => beside > own,
            (Some(_), None) if !waits_for_hedges => false,
            (None, Some(_)) if !waits_for_first => true,
            _ => return,
        };
        let hedges: Vec<usize> = hedges_of(request, first).collect();
        let used: &[usize] = if use_hedges { &hedges } else { &[first] };
        if let [one] = *used
            && let Some((_, Answer::Miss, _)) = request.parts[one].answer
            && self.may_be_marked(request, first)
            && self.ask_first_too(id, request, first, actions)
        {
            return;
        }
        if let [one] = *used
            && let Some((attempt, Answer::Miss, _)) = request.parts[one].answer
            && self.may_warm(request)
        {
            for at in hedges.into_iter().chain([first]) {
                request.parts[at].over = true;
                self.cancel(id, request, at, actions);
            }
            return self.warm_read(id, request, attempt, actions);
        }
        for &at in used {
            let Some((attempt, _, hits)) = request.parts[at].answer else { continue };
            request.hits += hits;
            actions.push(Action::Use { request: id, part: at as u16, attempt });
        }
        if use_hedges {
            self.pools[request.pool].further.count_hedge_won();
        }
        for at in hedges.into_iter().chain([first]) {
            request.parts[at].over = true;
            self.cancel(id, request, at, actions);
        }
        if request.parts.iter().all(|part| part.over) {
            let outcome = if request.hits > 0 { Outcome::Memory } else { Outcome::Miss };
            self.done(id, request, outcome, actions);
        }
    }

    /// Asks the first server of a marked read's key what others do not have. Returns whether it is asked.
    fn ask_first_too(
        &mut self,
        id: RequestId,
        request: &mut Request,
        part: usize,
        actions: &mut Vec<Action>,
    ) -> bool {
        let key = request.keys.as_slice().first().copied();
        let Some(server) = key.and_then(|key| self.update_server(&key, &[])) else { return false };
        for at in hedges_of(request, part).chain([part]) {
            request.parts[at].over = true;
            self.cancel(id, request, at, actions);
        }
        let before = request.parts[part].tried();
        let state = PartState {
            places: None,
            keys: 1,
            live: None,
            answer: None,
            beside: None,
            hedge_at: Nanos::MAX,
            over: false,
            server,
            before,
        };
        self.send_part(id, request, state, actions);
        true
    }

    /// Cancels a part's attempt, if it is under way.
    fn cancel(
        &mut self,
        id: RequestId,
        request: &mut Request,
        part: usize,
        actions: &mut Vec<Action>,
    ) {
        let Some(attempt) = request.parts[part].live.take() else { return };
        request.live.retain(|live| *live != attempt);
        self.end(attempt, Outcome::Unknown, 0);
        actions.push(Action::Cancel { request: id, attempt });
    }
}

/// The places of a part's keys; none for a request of one key.
fn places_of(request: &Request, part: usize) -> Vec<u16> {
    match &request.parts[part].places {
        Some(places) => places.to_vec(),
        None if request.keys.as_slice().len() == 1 => Vec::new(),
        None => (0..request.keys.as_slice().len() as u16).collect(),
    }
}

/// The hedges beside a part that are not settled.
fn hedges_of(request: &Request, first: usize) -> impl Iterator<Item = usize> + use<> {
    let found: Vec<usize> = request
        .parts
        .iter()
        .enumerate()
        .filter(|(_, part)| part.beside == Some(first) && !part.over)
        .map(|(at, _)| at)
        .collect();
    found.into_iter()
}
