//! A node's plain reads: objects in memory at once, others when a device, another node or the origin has
//! brought them.

use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use engine::node::{Asker, Reply, Take};
use ground::Key;
use ground::window::{Operation, Outcome};
use http::header::HeaderMap;
use record::clock;
use tokio::time::{Sleep, sleep};

use crate::drive::{Answer, EngineAnswer, Get};
use crate::node_reads::PendingRead;
use crate::peers::{self, Sender};
use crate::state::Node;
use device::object::add_source;
use front::http::authorize;
use front::quick::{Content, Facts, Flight, Quick, ReadStart, Record};
use wire::date::add_date;
use wire::head::Line;
use wire::headers;
use wire::lane::Passed;
use wire::lane::ThreadRecorder;
use wire::limits::Limits;

/// The line before the header lines of a whole object.
const OK: &[u8] = b"HTTP/1.1 200 OK\r\n";

impl Quick for Node {
    type Flight = Read;

    fn ends(&self) -> bool {
        self.is_stopping()
    }

    fn approve(&self, given: &HeaderMap) -> Option<Facts> {
        authorize(self, None, given).ok()?;
        let sender = peers::sender(self, given).ok()?;
        let patience = cluster::deadline(given, 0).ok()?;
        let usual = [&headers::FILL, &headers::AVOID, &headers::NOT_AFTER_NS];
        let usual = usual.into_iter().any(|name| given.contains_key(name));
        let usual = usual || given.contains_key(&headers::STAGES);
        let parent = self.trace_parent(given);
        (!usual).then_some(Facts { internal: sender != Sender::Client, patience, parent })
    }

    fn limits(&self) -> Option<&Limits> {
        self.limits.get()
    }

    fn begin(
        self: &Arc<Self>,
        lane: &Arc<ThreadRecorder>,
        line: &Line<'_>,
        facts: Facts,
        head: &mut Vec<u8>,
    ) -> ReadStart<Read> {
        let received = clock::now();
        let Some(hit) = self.drive.hit(received, line.key) else {
            return if line.is_head { ReadStart::Usual } else { self.ask(lane, line.key, facts) };
        };
        let object = hit.payload;
        head.extend_from_slice(OK);
        object.write_head(head);
        if facts.internal {
            add_internal(head, hit.length, hit.warm);
        }
        add_date(received, head);
        head.extend_from_slice(b"\r\n");
        let body = if line.is_head { Bytes::new() } else { object.body() };
        let passed = Passed {
            operation: if line.is_head { Operation::Head } else { Operation::Get },
            outcome: Outcome::Memory,
            hash: lane.hash_of(line.key),
            received,
            size: object.size(),
            bytes: body.len() as u64,
            parent: facts.parent,
        };
        ReadStart::Reply(Content::Bytes(body), Record::Passed(passed))
    }
}

impl Node {
    /// Asks for an object that memory does not have.
    fn ask(
        self: &Arc<Self>,
        lane: &Arc<ThreadRecorder>,
        key: &[u8],
        facts: Facts,
    ) -> ReadStart<Read> {
        let key = Key::from(key);
        let mut record = lane.received(Operation::Get, &key);
        record.internal = facts.internal;
        record.join(facts.parent);
        let asker = Asker::Client { avoid: None };
        let deadline = facts.patience.map(|patience| record.received.saturating_add(patience));
        let read = Get { key, asker, deadline, take: Take::Pieces, trace: record.passed_on() };
        let answer = self.drive.get(record.received, read);
        let is_late = matches!(answer, EngineAnswer::Later(_));
        let waiting = PendingRead { record, deadline, answer: Some(answer) };
        if !is_late {
            return ReadStart::Resume(waiting);
        }
        let timer = facts.patience.map(|patience| Box::pin(sleep(Duration::from_nanos(patience))));
        ReadStart::Flight(Read { waiting: Some(waiting), timer })
    }
}

/// A plain read that waits for the engine's answer.
pub struct Read {
    waiting: Option<PendingRead>,
    /// Runs until nobody waits for it, if that is limited.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Flight for Read {
    type Resumed = PendingRead;

    fn poll(
        &mut self,
        context: &mut Context<'_>,
        head: &mut Vec<u8>,
        _: &mut [u8],
    ) -> Poll<Option<(Content, Record)>> {
        let Some(waiting) = &mut self.waiting else { return Poll::Ready(None) };
        let Some(EngineAnswer::Later(receiver)) = &mut waiting.answer else {
            return Poll::Ready(None);
        };
        let answer = match Pin::new(receiver).poll(context) {
            Poll::Ready(answer) => answer,
            Poll::Pending => {
                let timer = self.timer.as_mut().map(|timer| timer.as_mut().poll(context));
                // The usual way finds it late too.
                return if timer.is_some_and(|timer| timer.is_ready()) {
                    Poll::Ready(None)
                } else {
                    Poll::Pending
                };
            }
        };
        waiting.answer = answer.ok().map(EngineAnswer::Now);
        let Some(EngineAnswer::Now(Answer::Reply(reply, stages))) = &waiting.answer else {
            return Poll::Ready(None);
        };
        let Reply::Found { payload, outcome, warm, .. } = reply else { return Poll::Ready(None) };
        head.extend_from_slice(OK);
        payload.write_head_common(head);
        add_source(head, *outcome, stages.length_left);
        if waiting.record.internal {
            add_internal(head, stages.node_length, *warm);
        }
        add_date(clock::now(), head);
        head.extend_from_slice(b"\r\n");
        let (outcome, stages, body) = (*outcome, *stages, payload.body());
        let Some(PendingRead { mut record, .. }) = self.waiting.take() else {
            return Poll::Ready(None);
        };
        (record.outcome, record.stages) = (outcome, Some(stages));
        (record.size, record.bytes) = (body.len() as u64, body.len() as u64);
        Poll::Ready(Some((Content::Bytes(body), Record::Request(record))))
    }

    fn resume(self) -> Option<PendingRead> {
        self.waiting
    }
}

/// Adds the lines for gateways and nodes: how many requests wait at this node, and which of the key's nodes have
/// the object.
fn add_internal(head: &mut Vec<u8>, length: u32, warm: u8) {
    // Writing to a vector does not fail.
    let _ = write!(head, "{}: {length}\r\n", headers::NODE_LENGTH);
    if warm != 0 {
        let _ = write!(head, "{}: {warm}\r\n", headers::WARM);
    }
}
