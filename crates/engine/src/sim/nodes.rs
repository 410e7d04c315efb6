//! The driver of a node: carries out its actions, and replies to callers.

use ground::window::{Nanos, Outcome};

use super::disk::unread;
use super::happening::{
    Call, Caller, ClientReply, Condition, Happening, Life, Put, Reader, ReplyKind, etag,
    key_number, parse_etag,
};
use super::law::{Law, slowed};
use super::network::ask_failed;
use super::origin::{found_answer, write_answer};
use super::settings::{Breakage, CLIENTS, Process};
use super::state::{Incoming, Simulation, Write};
use crate::gateway::{Failed, Head, Status};
use crate::node::{Action, Event, Extent, Fetched, JobId, PeerReply, Reply, Stages};
use crate::{Size, gateway};
use ground::Key;

impl Simulation {
    pub(super) fn tell_node(&mut self, at: usize, event: Event<Size>) {
        let now = self.local(at);
        let mut actions = std::mem::take(&mut self.node_actions);
        let process = &mut self.nodes[at];
        match &mut process.log {
            None => process.node.handle(now, event, &mut actions),
            Some(log) => {
                process.node.handle(now, event.clone(), &mut actions);
                log.push((now, event, actions.clone()));
            }
        }
        for action in actions.drain(..) {
            if self.trace.is_some() {
                self.note(|| format!("    node {at}: {action:?}"));
            }
            // Those that were asked for before this action are sent before it.
            if self.batch.holds_requests() && !matches!(action, Action::AskLease { .. }) {
                self.send_lease_requests();
            }
            self.node_act(at, action);
        }
        self.send_lease_requests();
        self.node_actions = actions;
    }

    pub(super) fn node_event(&mut self, at: usize, event: Event<Size>) {
        let event = match (self.settings.breakage, event) {
            (Some(Breakage::LeaseForEver), Event::LeaseGranted { peer, term, .. }) => {
                Event::LeaseGranted { peer, asked: Nanos::MAX / 2, term }
            }
            (Some(Breakage::LeaseFromArrival), Event::LeaseGranted { peer, term, .. }) => {
                Event::LeaseGranted { peer, asked: self.local(at), term }
            }
            (Some(Breakage::VoidIgnored), event) => {
                if let Event::Fetched { job, .. } | Event::Answered { job, .. } = &event {
                    self.nodes[at].fills.remove(job);
                }
                event
            }
            (_, event) => event,
        };
        self.tell_node(at, event);
    }

    pub(super) fn node_tick(&mut self, node: usize, life: Life) {
        let Some(cluster) = &self.settings.nodes[node].cluster else { return };
        self.schedule.push(self.now + cluster.tick(), Happening::NodeTick { node, life });
        self.tell_node(node, Event::Tick);
    }

    /// Handles a call that arrived at a live node.
    pub(super) fn call_at_node(&mut self, at: usize, from: Caller, call: Call) {
        if !self.same_origin(at, from) {
            return self.refuse_origin(at, from);
        }
        match call {
            Call::Get { key, asker, wait } => {
                let deadline = wait.map(|wait| self.local(at).saturating_add(wait));
                let (write, opened) = (None, None);
                let incoming = Incoming { from, key: key.clone(), write, streams: false, opened };
                let request = self.nodes[at].incoming.insert(incoming);
                let take = self.take(at, request, asker);
                self.tell_node(at, Event::Get { request, key, asker, deadline, take });
            }
            call @ Call::Write { .. } => self.write_at_node(at, from, call),
            Call::Ping { hot_version } => self.ping_at_node(at, from, hot_version),
            Call::Lease => {
                let Caller::Lease { node, life, asked, epoch } = from else { return };
                self.nodes[at].lease_asker = Some((node, life, asked));
                self.tell_node(at, Event::LeaseAsked { peer: node, epoch: Some(epoch) });
                self.nodes[at].lease_asker = None;
            }
            Call::Invalidate { key } => {
                let Caller::Invalidation { node, life, request } = from else { return };
                let lied = self.settings.breakage == Some(Breakage::InvalidationLied);
                let ignored = lied
                    || self.settings.breakage == Some(Breakage::VoidIgnored)
                        && self.nodes[at].fills.values().any(|&fill| fill == key_number(&key));
                if !ignored {
                    self.tell_node(at, Event::Invalidate { key });
                }
                let event = Event::Invalidated { request, peer: at, done: true };
                let what = Happening::Node { node, life, event };
                self.send(at as Process, node as Process, what);
            }
            Call::Return => {
                let Caller::TakeBack { node, life } = from else { return };
                self.tell_node(at, Event::Return { peer: node });
                let event = Event::Returned { peer: at, done: true };
                let what = Happening::Node { node, life, event };
                self.send(at as Process, node as Process, what);
            }
            Call::Offer { key } => self.tell_node(at, Event::Offered { key }),
            Call::Reads { peer, told } => self.tell_node(at, Event::ReadsTold { peer, told }),
        }
    }

    fn write_at_node(&mut self, at: usize, from: Caller, call: Call) {
        let Call::Write { key, write: what, life, epoch, until } = call else { return };
        if life != self.life(at) {
            return self.fail_call(at, from, Failed::Broken);
        }
        let breakage = self.settings.breakage;
        if until <= self.now && breakage != Some(Breakage::LateWriteBegun) {
            return self.answer_from(at, from, &ClientReply::FAILED, None);
        }
        let write =
            Write { what, turn: false, over: false, done: false, fenced: false, told: false };
        let incoming =
            Incoming { from, key: key.clone(), write: Some(write), streams: false, opened: None };
        let request = self.nodes[at].incoming.insert(incoming);
        if self.faulty {
            let late = until.min(self.now + self.settings.origin.timeout).max(self.now + 1);
            let timeout = Happening::WriteTimeout { node: at, life, request };
            self.schedule.push(late, timeout);
        }
        self.tell_node(at, Event::WriteBegin { request, key, epoch });
    }

    fn ping_at_node(&mut self, at: usize, from: Caller, hot_version: u64) {
        let Caller::Ping { gateway, life } = from else { return };
        let load = self.nodes[at].node.load(self.now);
        let event = gateway::Event::Ponged { node: at, load, fits: true };
        let what = Happening::Gateway { gateway, life, event, answer: None };
        self.send(at as Process, self.gateway_end(gateway), what);
        let directory = self.nodes[at].node.hot_directory();
        if let Some(directory) = directory.filter(|it| it.version != hot_version) {
            let event = gateway::Event::HotKeys { node: at, directory };
            let what = Happening::Gateway { gateway, life, event, answer: None };
            self.send(at as Process, self.gateway_end(gateway), what);
        }
    }

    fn node_act(&mut self, at: usize, action: Action<Size>) {
        match action {
            Action::Reply { request, reply, stages } => self.replied(at, request, reply, &stages),
            Action::WriteTurn { request } => self.write_turn(at, request),
            Action::WriteDone { request, certain } => self.write_done(at, request, certain),
            Action::HandedOver => self.handed_over(at),
            Action::Fetch { key, job } => self.read_origin(at, key, false, job),
            Action::Check { key, job } => self.read_origin(at, key, true, job),
            action => self.device_act(at, action),
        }
    }

    /// Carries out what devices do; all else is for peers.
    fn device_act(&mut self, at: usize, action: Action<Size>) {
        match action {
            Action::Read { device, location, key, job, extent, .. } if extent != Extent::Record => {
                self.read_piece(at, device, location, &key, job, extent);
            }
            Action::CloseRead { job, .. } => drop(self.nodes[at].pieces.remove(&job)),
            Action::Read { device, location, key, job, .. } => {
                let breakage = self.settings.breakage;
                let found = self.nodes[at].disks[device].read(location, &key, breakage);
                let fails = self.device_fails();
                let process = &self.nodes[at];
                let service = process.laws[device].draw(&mut self.random.service);
                let service = slowed(service, process.slow);
                let result = if fails { Err(unread()) } else { found };
                self.own(at, service, Event::Read { job, result, left: 0 });
            }
            Action::Append { device, location, key, payload, job } => {
                let full = self.nodes[at].full > 0;
                let written = !self.device_fails() && !full;
                let lies = self.device_lies();
                let after = self.device_delay();
                if written && !lies {
                    let durable = self.now + after;
                    self.nodes[at].disks[device].write(location, key, payload, durable);
                }
                self.own(at, after, Event::Appended { job, written, full });
            }
            Action::SealSegment { .. } => {}
            Action::DropSegment { device, segment } => self.nodes[at].disks[device].drop(segment),
            Action::List { device, segment } => {
                let keys = self.nodes[at].disks[device].keys(segment);
                let after = self.device_delay();
                self.own(at, after, Event::Listed { device, segment, keys });
            }
            action => self.peer_act(at, action),
        }
    }

    /// Carries out what is sent to other nodes.
    fn peer_act(&mut self, at: usize, action: Action<Size>) {
        let life = self.life(at);
        match action {
            Action::Ask { peer, key, job } => {
                if self.settings.breakage == Some(Breakage::VoidIgnored) {
                    self.nodes[at].fills.insert(job, key_number(&key));
                }
                let asker = crate::node::Asker::Peer;
                let from = Caller::Peer { node: at, life, job };
                let what = Happening::Call {
                    node: peer,
                    from,
                    call: Call::Get { key, asker, wait: None },
                };
                let failed = Happening::Node { node: at, life, event: ask_failed(job) };
                self.call(at, peer, what, Some(failed));
            }
            Action::AskLease { peer, asked, epoch } => {
                if self.batches_leases() {
                    return self.batch_lease_request(at, peer, asked, epoch);
                }
                let from = Caller::Lease { node: at, life, asked, epoch };
                self.call(at, peer, Happening::Call { node: peer, from, call: Call::Lease }, None);
            }
            Action::Grant { peer, term } => {
                let Some((node, life, asked)) = self.nodes[at].lease_asker else { return };
                if self.batch_grant(at, peer, term) {
                    return;
                }
                let event = Event::LeaseGranted { peer: at, asked, term };
                let what = Happening::Node { node, life, event };
                self.send(at as Process, peer as Process, what);
            }
            Action::Invalidate { peer, key, request } => {
                let over = |done| {
                    let event = Event::Invalidated { request, peer, done };
                    Happening::Node { node: at, life, event }
                };
                if self.settings.breakage == Some(Breakage::NoInvalidation) {
                    return self.schedule.push(self.now, over(true));
                }
                let from = Caller::Invalidation { node: at, life, request };
                let what = Happening::Call { node: peer, from, call: Call::Invalidate { key } };
                self.call(at, peer, what, Some(over(false)));
            }
            Action::TakeBack { peer } => {
                let from = Caller::TakeBack { node: at, life };
                let event = Event::Returned { peer, done: false };
                let failed = Happening::Node { node: at, life, event };
                let what = Happening::Call { node: peer, from, call: Call::Return };
                self.call(at, peer, what, Some(failed));
            }
            Action::Offer { peer, key } => {
                let from = Caller::Offer;
                let what = Happening::Call { node: peer, from, call: Call::Offer { key } };
                self.call(at, peer, what, None);
            }
            Action::TellReads { peer, told } => {
                let call = Call::Reads { peer: at, told };
                let what = Happening::Call { node: peer, from: Caller::Offer, call };
                self.call(at, peer, what, None);
            }
            other => unreachable!("the simulation does not carry out {other:?}"),
        }
    }

    /// The time of what a device does beside reads.
    fn device_delay(&mut self) -> Nanos {
        if self.faulty { Law::exponential(0.001).draw(&mut self.random.service) } else { 0 }
    }

    /// Schedules an event of a node's own, such as a timeout.
    pub(super) fn own(&mut self, node: usize, after: Nanos, event: Event<Size>) {
        let life = self.life(node);
        self.schedule.push(self.now + after, Happening::Node { node, life, event });
    }

    pub(super) fn device_fails(&mut self) -> bool {
        use rand::RngExt;
        let failures = self.settings.device_faults.failures;
        failures > 0.0 && self.random.faults.random_bool(failures)
    }

    /// Whether a device reports a write as done that it did not do.
    fn device_lies(&mut self) -> bool {
        use rand::RngExt;
        let lies = self.settings.device_faults.lies;
        lies > 0.0 && self.random.faults.random_bool(lies)
    }

    fn read_origin(&mut self, at: usize, key: Key, check: bool, job: JobId) {
        let life = self.life(at);
        if self.settings.breakage == Some(Breakage::VoidIgnored) {
            self.nodes[at].fills.insert(job, key_number(&key));
        }
        if self.faulty {
            let failure = crate::node::Failure::timed_out("the origin timed out");
            let event = match check {
                false => Event::Fetched { job, result: Fetched::Unavailable(failure) },
                true => {
                    let result = crate::node::Checked::Unavailable(failure);
                    Event::Checked { job, result }
                }
            };
            self.own(at, self.settings.origin.timeout, event);
        }
        let from = Reader::Fetch { node: at, life, job };
        self.send_to_origin(at, Happening::OriginRead { from, key, check });
    }

    fn write_turn(&mut self, at: usize, request: u64) {
        let life = self.life(at);
        let Some(incoming) = self.nodes[at].incoming.get_mut(request) else { return };
        let Some(write) = &mut incoming.write else { return };
        write.turn = true;
        let (key, write) = (key_number(&incoming.key), write.what);
        let extra = self.late_put();
        let condition = Condition::None;
        let put = Put { node: at, life, request, key, write, retries: 2, condition, sent: false };
        if self.settings.origin.conditional {
            self.look_before_put(put, extra);
        } else {
            self.send_put(put, extra);
        }
        if self.faulty && self.settings.breakage == Some(Breakage::TurnGivenUp) {
            let given_up = Happening::PutOver { node: at, life, request, done: false };
            self.schedule.push(self.now + self.settings.origin.timeout, given_up);
        }
    }

    /// A write took too long: tells its client. A write that waits for its turn leaves the queue. A
    /// write that has its turn keeps it until its outcome at the origin is certain; otherwise it
    /// could land after the next write.
    pub(super) fn write_timeout(&mut self, at: usize, request: u64) {
        let Some(incoming) = self.nodes[at].incoming.get_mut(request) else { return };
        let (key, from) = (incoming.key.clone(), incoming.from);
        let Some(write) = &mut incoming.write else { return };
        if std::mem::replace(&mut write.told, true) {
            return;
        }
        if !write.turn {
            self.nodes[at].incoming.remove(request);
            self.tell_node(at, Event::WriteGivenUp { request, key });
        }
        self.answer_from(at, from, &ClientReply::FAILED, None);
    }

    pub(super) fn put_over(&mut self, at: usize, request: u64, done: bool) {
        let Some(incoming) = self.nodes[at].incoming.get_mut(request) else { return };
        let (key, from) = (incoming.key.clone(), incoming.from);
        let Some(write) = incoming.write.as_mut().filter(|write| !write.over) else { return };
        (write.over, write.done) = (true, done);
        let (number, what, told) = (key_number(&key), write.what, write.told);
        let bytes = what.bytes.filter(|_| done);
        let stored = bytes.map(|bytes| self.origin.payload_of(number, what.version, bytes));
        let event = Event::WriteEnd { request, key, payload: stored };
        if let (Some(Breakage::LateWriteEnd(late)), true) = (self.settings.breakage, done) {
            if let Some(write) = &mut incoming.write {
                write.told = true;
            }
            self.own(at, late, event);
            if !told {
                self.answer_from(at, from, &write_answer(true), None);
            }
            return;
        }
        self.tell_node(at, event);
    }

    /// A write may not be made any more: another node may order its key.
    pub(super) fn put_fenced(&mut self, put: Put) {
        let Put { node, request, .. } = put;
        let incoming = self.nodes[node].incoming.get_mut(request);
        if let Some(write) = incoming.and_then(|incoming| incoming.write.as_mut()) {
            write.fenced = !put.sent;
        }
        self.put_over(node, request, false);
    }

    fn write_done(&mut self, at: usize, request: u64, certain: bool) {
        let Some(incoming) = self.nodes[at].incoming.remove(request) else { return };
        let Some(write) = incoming.write else { return };
        if !write.told {
            let answer = write_answer(write.done && certain);
            // Nothing was sent to the origin: a gateway may send it to another node.
            let status = Status::Misdirected;
            let refused = Head { status, outcome: answer.outcome, node_length: 0, warm: 0 };
            let head = write.fenced.then_some(refused);
            self.answer_from(at, incoming.from, &answer, head);
        }
    }

    /// The object that a peer sends; with [`Breakage::StalePeer`] the version before it.
    fn peers_version(&self, payload: Size) -> Size {
        let older = |payload: &Size| {
            let (key, version) = parse_etag(&payload.etag)?;
            self.checker.before(key, version)
        };
        match older(&payload).filter(|_| self.settings.breakage == Some(Breakage::StalePeer)) {
            None => payload,
            Some((key, version, bytes)) => Size { bytes, etag: etag(key, version), ..payload },
        }
    }

    /// Compares the requests that wait at a node with those in its engine: a request that the
    /// engine lost would leave its client without a reply.
    pub(super) fn lost_requests(&self, at: usize) -> Option<String> {
        let process = &self.nodes[at];
        let (mut readers, mut writers) = (0, 0);
        for incoming in process.incoming.values() {
            match &incoming.write {
                Some(_) => writers += 1,
                None if incoming.streams => {}
                None => readers += 1,
            }
        }
        let contents = process.node.contents();
        let same = (contents.readers, contents.writers) == (readers, writers);
        let what = format!(
            "node {at} has {readers} reads and {writers} writes to answer, its engine knows of {} and {}",
            contents.readers, contents.writers
        );
        (!same).then_some(what)
    }

    fn replied(&mut self, at: usize, request: u64, reply: Reply<Size>, stages: &Stages) {
        if matches!(reply, Reply::Stream) {
            let life = self.life(at);
            let Some(incoming) = self.nodes[at].incoming.get_mut(request) else { return };
            incoming.streams = true;
            let key = incoming.key.clone();
            let from = Reader::Stream { node: at, life, request };
            if self.faulty {
                let answer = ClientReply::FAILED;
                let given_up = Happening::Streamed { node: at, life, request, answer };
                self.schedule.push(self.now + self.settings.origin.timeout, given_up);
            }
            return self.send_to_origin(at, Happening::OriginRead { from, key, check: false });
        }
        if let Reply::Opened { payload, .. } = reply {
            return self.opened(at, request, payload);
        }
        let Some(incoming) = self.nodes[at].incoming.remove(request) else { return };
        if let (Some(opened), Reply::Found { payload, .. }) = (&incoming.opened, &reply) {
            assert_eq!(
                opened.etag, payload.etag,
                "a reply began with another version than it ended"
            );
        }
        if let Caller::Peer { node, life, job } = incoming.from {
            let result = match reply {
                Reply::Found { payload, age, .. } => {
                    let payload = self.peers_version(payload);
                    PeerReply::Found { payload, age }
                }
                _ => PeerReply::NotHere,
            };
            let event = Event::Answered { job, result };
            let what = Happening::Node { node, life, event };
            return self.send(at as Process, node as Process, what);
        }
        let failed = |status| (status, ClientReply::FAILED, 0);
        let (status, answer, warm) = match reply {
            Reply::Found { payload, outcome, warm, .. } => {
                (Status::Final, found_answer(&payload, outcome), warm)
            }
            Reply::NotFound => {
                let kind = ReplyKind::NotFound;
                (Status::Final, ClientReply { kind, outcome: Outcome::Miss, bytes: 0 }, 0)
            }
            Reply::Busy { .. } => (Status::Busy, ClientReply::BUSY, 0),
            Reply::NotHere | Reply::NotMine | Reply::NotPrimary => failed(Status::Misdirected),
            Reply::TooLate => failed(Status::Final),
            Reply::Unavailable(_) | Reply::Stream | Reply::Opened { .. } => {
                failed(Status::Unavailable)
            }
        };
        let node_length = stages.node_length;
        let head = Head { status, outcome: answer.outcome, node_length, warm };
        self.answer_from(at, incoming.from, &answer, Some(head));
    }

    /// An object streamed by a node has reached its client.
    pub(super) fn answer_caller(&mut self, at: usize, request: u64, answer: ClientReply) {
        if let Some(incoming) = self.nodes[at].incoming.remove(request) {
            self.answer_from(at, incoming.from, &answer, None);
        }
    }

    pub(super) fn answer_from(
        &mut self,
        at: usize,
        to: Caller,
        answer: &ClientReply,
        head: Option<Head>,
    ) {
        let answer = *answer;
        match to {
            Caller::Client { request } => {
                self.send(at as Process, CLIENTS, Happening::ClientReply { request, answer });
            }
            Caller::Gateway { gateway, life, attempt } => {
                let status = match answer.kind {
                    ReplyKind::Failed => Status::Unavailable,
                    ReplyKind::Busy => Status::Busy,
                    _ => Status::Final,
                };
                let outcome = answer.outcome;
                let unknown = Head { status, outcome, node_length: 0, warm: 0 };
                let event = gateway::Event::Answered { attempt, head: head.unwrap_or(unknown) };
                let what = Happening::Gateway { gateway, life, event, answer: Some(answer) };
                self.send(at as Process, self.gateway_end(gateway), what);
            }
            _ => {}
        }
    }
}
