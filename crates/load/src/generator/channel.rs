//! What a request goes through: a connection of its own, or a stream of a shared one.

use ground::window::{Finished, Operation, Sample};

use super::exchange::Exchange;
use super::links::Links;
use crate::client::{Connection, Http2Stream, Reply};
use crate::completion::Completion;
use crate::keys::Request;

/// The way of a request and its reply.
pub(super) enum Channel {
    /// A connection that carries one request at a time.
    Own(Box<Connection>),
    /// A stream of the connection with this number.
    Stream { link: u32, stream: Box<Http2Stream> },
}

impl Channel {
    /// The reply as far as it has arrived.
    pub fn reply(&self) -> &Reply {
        match self {
            Channel::Own(connection) => connection.reply(),
            Channel::Stream { stream, .. } => stream.reply(),
        }
    }

    /// The service's error message, if the protocol has one.
    pub fn error_text(&self) -> Option<&str> {
        match self {
            Channel::Own(connection) => connection.error_text(),
            Channel::Stream { .. } => None,
        }
    }

    /// Whether the reply's bytes differ from the expected body.
    pub fn is_wrong(&self) -> bool {
        match self {
            Channel::Own(connection) => connection.is_wrong(),
            Channel::Stream { stream, .. } => stream.is_wrong(),
        }
    }

    /// Whether it can carry another request.
    pub fn is_reusable(&self) -> bool {
        match self {
            Channel::Own(connection) => connection.is_reusable(),
            Channel::Stream { .. } => false,
        }
    }

    /// Whether the connection has served before and no byte of this reply has arrived, as when the
    /// service closes an idle connection.
    pub fn is_stale(&self, links: &Links) -> bool {
        match self {
            Channel::Own(connection) => connection.is_used() && connection.is_unanswered(),
            Channel::Stream { link, stream } => links.has_served(*link) && stream.is_unanswered(),
        }
    }
}

/// The sample of a request that has ended.
pub(super) fn sample_of(
    exchange: &Exchange,
    completion: &Completion,
    finished: &Finished,
    offset: i128,
) -> Sample {
    let Exchange { job, request, length_met, .. } = exchange;
    Sample {
        key: request.hash,
        size: match request.operation {
            Operation::Put => request.size,
            Operation::Head => completion.announced.unwrap_or(0),
            _ => completion.bytes,
        },
        operation: request.operation,
        outcome: completion.outcome,
        received_unix_us: ((i128::from(job.intended) + offset) / 1000).max(0) as u64,
        queued_ns: 0,
        started_ns: finished.waiting,
        served_ns: finished.response,
        replied_ns: finished.response,
        length_met: completion.length_met.unwrap_or_else(|| (*length_met).min(1 << 31) as u32),
    }
}

/// Whether a get's reply differs from the generated object, in its bytes or its length.
pub(super) fn is_wrong(request: &Request, channel: &Channel) -> bool {
    let reply = channel.reply();
    let short = || request.expected.is_some_and(|size| size != reply.body_bytes);
    request.operation == Operation::Get && (channel.is_wrong() || reply.status == 200 && short())
}
