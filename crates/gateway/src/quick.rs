//! Plain reads at a gateway: sent on a kept connection, and the node's reply passed on as it came.
//!
//! The engine decides as for any other read. As soon as anything but one whole reply to the first
//! attempt happens (no connection is kept, the engine hedges or gives up, the reply is an error or
//! large), the read goes on the usual way, from where it is.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use engine::gateway::{Action, AttemptId, Head, Operation, Status};
use engine::node::Stages;
use engine::route::NodeId;
use ground::Key;
use ground::window::{self, Outcome};
use http::Request;
use http::header::{
    CONNECTION, CONTENT_LENGTH, DATE, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use hyper::body::Incoming;
use record::clock;

use super::gateway::Gateway;
use super::nodes::Nodes;
use super::nodes::reply::GATHERED_BYTES_MAX;
use super::pending::Pending;
use super::request::NodeRequest;
use super::verify;
use front::http::authorize;
use front::quick;
use front::quick::{Content, Facts, Quick, ReadStart, Record};
use objects::read_request;
use peer::PendingGet;
use store::Recorded;
use wire::date::add_date;
use wire::head::Line;
use wire::headers;
use wire::lane::{Replier, RequestRecord, ThreadRecorder};
use wire::limits::Limits;
use wire::problem::Problem;

/// Header lines of a reply that is passed on as it came.
const HEADERS_MAX: usize = 64;

impl Quick for Gateway {
    type Flight = Flight;

    fn ends(&self) -> bool {
        self.is_stopping()
    }

    fn approve(&self, given: &HeaderMap) -> Option<Facts> {
        authorize(self, None, given).ok()?;
        // Ranges and conditions are not plain for anybody.
        let usual = [&headers::DEADLINE_MS, &headers::STAGES];
        let facts = Facts { parent: self.trace_parent(given), ..Facts::default() };
        (!usual.iter().any(|name| given.contains_key(*name))).then_some(facts)
    }

    fn limits(&self) -> Option<&Limits> {
        self.limits.get()
    }

    fn begin(
        self: &Arc<Self>,
        lane: &Arc<ThreadRecorder>,
        line: &Line<'_>,
        facts: Facts,
        _head: &mut Vec<u8>,
    ) -> ReadStart<Flight> {
        if line.is_head {
            return ReadStart::Usual;
        }
        let key = Key::from(line.key);
        let mut seen = lane.received(window::Operation::Get, &key);
        seen.join(facts.parent);
        let patience = self.router.backend.deadline.as_nanos() as u64;
        let deadline = seen.received.saturating_add(patience);
        let mut pending =
            Pending::begin(&self.router, &key, Operation::Read, seen.received, deadline);
        let sent = match pending.todo.front() {
            Some(&Action::Send { attempt, node, avoid, deadline, .. }) => {
                let left = deadline.saturating_sub(seen.received);
                let trace = seen.passed_on();
                let kept = self.router.backend.send_kept(node, line.path, avoid, left, trace);
                kept.map(|kept| Sent { attempt, node, kept })
            }
            _ => None,
        };
        match sent {
            Some(sent) => {
                pending.todo.pop_front();
                let resumed = Resumed { pending, sent: Some(sent), seen };
                ReadStart::Flight(Flight { access: self.clone(), resumed: Some(resumed) })
            }
            None => ReadStart::Resume(Resumed { pending, sent: None, seen }),
        }
    }
}

/// An attempt that waits for its reply.
struct Sent {
    attempt: AttemptId,
    node: NodeId,
    kept: PendingGet,
}

/// A read that the engine knows.
pub struct Resumed {
    pending: Pending<Nodes>,
    sent: Option<Sent>,
    seen: RequestRecord,
}

/// A read that waits for a node.
pub struct Flight {
    access: Arc<Gateway>,
    resumed: Option<Resumed>,
}

/// What has arrived of a reply.
enum Arrived {
    Part,
    /// Not what is passed on here.
    Other,
    Whole {
        body: usize,
        length: usize,
        head: Head,
        keep_alive: bool,
    },
}

impl quick::Flight for Flight {
    type Resumed = Resumed;

    fn poll(
        &mut self,
        context: &mut Context<'_>,
        head: &mut Vec<u8>,
        scratch: &mut [u8],
    ) -> Poll<Option<(Content, Record)>> {
        let Some(resumed) = &mut self.resumed else { return Poll::Ready(None) };
        if let Poll::Ready(action) = resumed.pending.mailbox.poll(context) {
            resumed.pending.todo.push_back(action);
        }
        let Some(sent) = resumed.sent.as_mut().filter(|_| resumed.pending.todo.is_empty()) else {
            return Poll::Ready(None);
        };
        let arrived = loop {
            let bytes = match ready!(sent.kept.poll_arrived(context, scratch)) {
                Ok(bytes) if !bytes.is_empty() => bytes,
                // The usual way reads again, and finds the same end.
                _ => return Poll::Ready(None),
            };
            let verifies = self.access.router.backend.verifies;
            let (arrived, count) = (look(bytes, head, verifies), bytes.len());
            if !matches!(arrived, Arrived::Whole { .. }) && !sent.kept.is_buffered() {
                sent.kept.keep(&scratch[..count]);
            }
            match arrived {
                Arrived::Part => {}
                Arrived::Other => return Poll::Ready(None),
                whole => break whole,
            }
        };
        Poll::Ready(self.land(arrived, head))
    }

    fn resume(self) -> Option<Resumed> {
        self.resumed
    }
}

impl Flight {
    /// Tells the engine of a whole reply; passes it on if the engine chooses it.
    fn land(&mut self, arrived: Arrived, head: &mut Vec<u8>) -> Option<(Content, Record)> {
        let Arrived::Whole { body, length, head: judged, keep_alive } = arrived else {
            return None;
        };
        let Resumed { mut pending, sent, mut seen } = self.resumed.take()?;
        let Sent { attempt, node, kept } = sent?;
        let buffered = kept.is_buffered();
        let outcome = judged.outcome;
        let served = clock::now();
        if !pending.replied_at(served, attempt, judged, true) {
            // The first reply to a read is the engine's choice: nothing is left that could go on.
            self.resumed = Some(Resumed { pending, sent: None, seen });
            return None;
        }
        let bytes = kept.end(keep_alive);
        seen.outcome = outcome;
        seen.stages = Some(Stages {
            received: seen.received,
            queued: seen.received,
            started: seen.received,
            served,
            ..Stages::default()
        });
        (seen.size, seen.bytes) = (length as u64, length as u64);
        let backend = &self.access.router.backend;
        let name = backend.roll.header(node);
        if seen.passed_on().is_some() {
            let replier = name.map(|name| Box::new(Replier { name: name.clone(), stages: None }));
            seen.replier = replier;
        }
        let name = name.map(|name| name.as_bytes()).unwrap_or_default();
        for part in [headers::NODE.as_str().as_bytes(), b": ", name, b"\r\n"] {
            head.extend_from_slice(part);
        }
        add_date(served, head);
        head.extend_from_slice(b"\r\n");
        let range = body..body + length;
        let content =
            if buffered { Content::Bytes(bytes.slice(range)) } else { Content::Scratch(range) };
        Some((content, Record::Request(seen)))
    }
}

/// Looks at what has arrived of a reply; writes the lines of a whole one that the client gets.
fn look(bytes: &[u8], out: &mut Vec<u8>, verifies: bool) -> Arrived {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut lines);
    let body = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < GATHERED_BYTES_MAX as usize => {
            return Arrived::Part;
        }
        _ => return Arrived::Other,
    };
    if response.code != Some(200) {
        return Arrived::Other;
    }
    out.clear();
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    let mut length = None;
    let mut head =
        Head { status: Status::Final, outcome: Outcome::Unknown, node_length: 0, warm: 0 };
    let (mut queue_length, mut node_length) = (None, None);
    let mut keep_alive = response.version == Some(1);
    for line in response.headers.iter() {
        let (name, value) = (line.name, line.value);
        let is = |other: &HeaderName| name.eq_ignore_ascii_case(other.as_str());
        let text = || std::str::from_utf8(value).ok();
        if is(&DATE) {
            continue;
        } else if is(&CONNECTION) {
            keep_alive &= value.eq_ignore_ascii_case(b"keep-alive");
            continue;
        } else if is(&CONTENT_LENGTH) {
            let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
            let said = text().filter(|_| digits).and_then(|text| text.parse::<usize>().ok());
            if length.is_some() || said.is_none() {
                return Arrived::Other;
            }
            length = said;
        } else if is(&TRANSFER_ENCODING) {
            return Arrived::Other;
        } else if is(&headers::OUTCOME) {
            head.outcome = text().and_then(Outcome::parse).unwrap_or(Outcome::Unknown);
        } else if is(&headers::NODE_LENGTH) {
            node_length = text().and_then(|text| text.parse().ok());
            continue;
        } else if is(&headers::WARM) {
            head.warm = text().and_then(|text| text.parse().ok()).unwrap_or(0);
            continue;
        } else if is(&headers::QUEUE_LENGTH) {
            queue_length = text().and_then(|text| text.parse().ok());
        }
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    head.node_length = node_length.or(queue_length).unwrap_or(0);
    match length {
        Some(length) if length as u64 > GATHERED_BYTES_MAX => Arrived::Other,
        Some(length) if bytes.len() == body + length => {
            // The usual way finds the same, and asks another node.
            if verifies && !is_its_etags(response.headers, &bytes[body..]) {
                return Arrived::Other;
            }
            Arrived::Whole { body, length, head, keep_alive }
        }
        Some(length) if bytes.len() < body + length => Arrived::Part,
        _ => Arrived::Other,
    }
}

/// Whether a body is that of the etag among some lines.
fn is_its_etags(lines: &[httparse::Header<'_>], body: &[u8]) -> bool {
    let line = |line: &httparse::Header<'_>| {
        let name = HeaderName::from_bytes(line.name.as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(line.value).ok()?))
    };
    let headers: Option<Vec<_>> = lines.iter().map(line).collect();
    headers.is_some_and(|headers| verify::holds(&headers.into_iter().collect(), body))
}

impl Gateway {
    /// Goes on with a plain read the usual way; returns also whether the times of its stages are wanted.
    pub(super) async fn go_on(
        &self,
        resumed: Resumed,
        key: Key,
        request: &Request<Incoming>,
    ) -> Result<(Recorded, bool), Problem> {
        let Resumed { pending, sent, seen: mut record } = resumed;
        let read = match read_request(key, request.method(), request.headers(), &record) {
            Ok(read) => read,
            Err(problem) => return Err(problem.with_record(record)),
        };
        let wanted = NodeRequest::read(&read).within(record.passed_on());
        let nodes = &self.router.backend;
        let under_way = sent.map(|Sent { attempt, node, kept }| {
            (
                attempt,
                Some(node),
                Box::pin(nodes.ended(node, kept)) as super::attempts::Attempt<'_, _>,
            )
        });
        let found = match self.router.read_on(pending, under_way, &wanted, &[]).await {
            Ok((reply, pending)) => {
                self.result_of_read(reply, pending, &wanted, &read, &mut record)
            }
            Err(refused) => {
                let (patience, _) = self.patience(read.deadline, &record);
                Err(self.error(refused, &read.key, patience))
            }
        };
        Ok(((found, record), read.is_timed))
    }
}
