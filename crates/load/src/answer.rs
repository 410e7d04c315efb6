//! What came of a request that was sent.

use model::window::Outcome;

use crate::client::Reply;

/// How an exchange ended.
pub(super) struct Answer {
    pub outcome: Outcome,
    pub refused: bool,
    /// Bytes of the reply's body.
    pub bytes: u64,
    /// The size that the reply's head announced.
    pub announced: Option<u64>,
    /// The queue length that the service says was met.
    pub length_met: Option<u32>,
    /// What went wrong.
    pub fault: Option<String>,
}

impl Answer {
    /// No reply.
    pub fn none(fault: String) -> Answer {
        Answer {
            outcome: Outcome::Error,
            refused: false,
            bytes: 0,
            announced: None,
            length_met: None,
            fault: Some(fault),
        }
    }

    /// A reply, with other bytes than it must have if it is `wrong`; `words` are an error's own.
    pub fn of(reply: &Reply, words: Option<&str>, wrong: bool) -> Answer {
        let (outcome, fault) = match reply.status {
            _ if wrong => (Outcome::Error, Some("wrong bytes in a reply".to_owned())),
            200..300 | 304 => (reply.outcome.unwrap_or(Outcome::Unknown), None),
            404 | 410 => (Outcome::Miss, None),
            status => {
                let words = words.map_or_else(|| format!("status {status}"), str::to_owned);
                (Outcome::Error, Some(words))
            }
        };
        Answer {
            outcome,
            refused: matches!(reply.status, 503 | 429),
            bytes: reply.body_bytes,
            announced: reply.content_length,
            length_met: reply.queue_length,
            fault,
        }
    }
}
