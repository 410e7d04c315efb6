//! Why an operation of a device, a peer or the origin gave no result.

use serde::{Deserialize, Serialize};

/// Why an operation of a device, a peer or the origin failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind, which decides the status of the reply to the client. Logs of events that were recorded without it are read as
    /// [`FailureKind::Unavailable`].
    #[serde(default)]
    pub kind: FailureKind,
    /// A description, for logs and for the reply to the client.
    pub reason: String,
}

impl Failure {
    /// A failure that was reported: an error, a refusal or a broken connection.
    pub fn unavailable(reason: impl Into<String>) -> Failure {
        Failure { kind: FailureKind::Unavailable, reason: reason.into() }
    }

    /// A time limit that passed without a reply.
    pub fn timed_out(reason: impl Into<String>) -> Failure {
        Failure { kind: FailureKind::TimedOut, reason: reason.into() }
    }
}

/// What a client can do after a failure. After one that was reported it may repeat the request at once; after a time limit it has
/// waited already, and the operation may still take place; after a refusal for good a repetition fails as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The device, peer or origin reported it, or could not be reached: 503 in HTTP.
    #[default]
    Unavailable,
    /// No reply came within the time limit: 504 in HTTP.
    TimedOut,
    /// The origin does not allow the read: 502 in HTTP, `AccessDenied` in S3.
    Denied,
    /// The origin's copy is damaged: 502 in HTTP, `InternalError` in S3.
    Damaged,
}

impl FailureKind {
    /// Whether a repetition of the request, by whichever server, fails as well.
    pub fn is_final(self) -> bool {
        matches!(self, FailureKind::Denied | FailureKind::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_an_old_log_is_read() {
        let failure: Failure = serde_json::from_str(r#"{"reason":"no route to host"}"#).unwrap();
        assert_eq!(failure, Failure::unavailable("no route to host"));
    }
}
