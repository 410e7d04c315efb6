//! The result of a request that was sent.

use ground::window::{Operation, Outcome};

use crate::client::Reply;

/// How an exchange ended.
pub(super) struct Completion {
    pub outcome: Outcome,
    pub refused: bool,
    /// Bytes of the reply's body.
    pub bytes: u64,
    /// The size that the reply's head announced.
    pub announced: Option<u64>,
    /// The queue length that the request met, as reported by the service.
    pub length_met: Option<u32>,
    /// The error message, if the exchange failed.
    pub fault: Option<String>,
}

impl Completion {
    /// An exchange that ended without a reply.
    pub fn failed(fault: String) -> Completion {
        Completion {
            outcome: Outcome::Error,
            refused: false,
            bytes: 0,
            announced: None,
            length_met: None,
            fault: Some(fault),
        }
    }

    /// An exchange that ended with a reply. `wrong`: its bytes differ from the expected ones.
    /// `error_text` is the service's own message, if it sent one. 404 and 410 are misses, but for a
    /// write (`operation`), which then was not stored.
    pub fn from_reply(
        operation: Operation,
        reply: &Reply,
        error_text: Option<&str>,
        wrong: bool,
    ) -> Completion {
        let (outcome, fault) = match reply.status {
            _ if wrong => (Outcome::Error, Some("wrong bytes in a reply".to_owned())),
            200..300 | 304 => (reply.outcome.unwrap_or(Outcome::Unknown), None),
            404 | 410 if operation != Operation::Put => (Outcome::Miss, None),
            status => {
                let text = error_text.map_or_else(|| format!("status {status}"), str::to_owned);
                (Outcome::Error, Some(text))
            }
        };
        Completion {
            outcome,
            refused: matches!(reply.status, 503 | 429),
            bytes: reply.body_bytes,
            announced: reply.content_length,
            length_met: reply.queue_length,
            fault,
        }
    }
}
