//! What was asked of the cluster and what it answered: the history that the checker judges.

use model::window::Nanos;

/// Who was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A gateway of the cluster, by its number.
    Gateway(u8),
    /// The origin alone, after the cluster ended.
    Origin,
}

/// What a read showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The bytes of a version.
    Version(u32),
    /// No bytes: one of the versions that are empty.
    Empty,
    /// The reply was that the object does not exist.
    Nothing,
}

/// How a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// With an answer.
    Saw(Seen),
    /// The bytes are not a version of the key.
    Wrong,
    /// With another status.
    Refused(u16),
    /// Without a reply.
    Failed,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Acknowledged.
    Acknowledged,
    /// With another status: it may have taken effect all the same, or may do so yet.
    Refused(u16),
    /// Without a reply: the same.
    Unknown,
}

/// What a version is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// An object with bytes.
    Bytes,
    /// An object without.
    Empty,
    /// A deletion.
    Deleted,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// GET.
    Read(Read),
    /// PUT or DELETE of a version; a key's versions are counted from 1 by its only writer.
    Write(u32, Content, Written),
}

/// One request and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Before the first byte was sent, on the machine's monotonic clock.
    pub began: Nanos,
    /// After the last byte of the reply.
    pub ended: Nanos,
    /// Which key.
    pub key: u32,
    /// Who was asked.
    pub place: Place,
    /// What, and how it ended.
    pub action: Action,
}

impl Operation {
    /// Whether it is a read that got an answer, right or wrong.
    pub fn is_answered_read(&self) -> bool {
        matches!(self.action, Action::Read(Read::Saw(_) | Read::Wrong))
    }

    /// Whether it is a read without an answer.
    pub fn is_failed_read(&self) -> bool {
        matches!(self.action, Action::Read(Read::Refused(_) | Read::Failed))
    }

    /// Whether it is a read.
    pub fn is_read(&self) -> bool {
        matches!(self.action, Action::Read(_))
    }
}

/// Names of the columns of [`row`].
pub const COLUMNS: &str = "began_ms,ended_ms,key,place,operation,version,result\n";

/// A line of CSV; times in milliseconds since `start`.
pub fn row(operation: &Operation, start: Nanos) -> String {
    let ms = |at: Nanos| at.saturating_sub(start) as f64 / 1e6;
    let place = match operation.place {
        Place::Gateway(number) => format!("gateway-{number}"),
        Place::Origin => "origin".to_owned(),
    };
    let (what, version, result) = match operation.action {
        Action::Read(read) => {
            let (version, result) = match read {
                Read::Saw(Seen::Version(version)) => (version.to_string(), "bytes".to_owned()),
                Read::Saw(Seen::Empty) => (String::new(), "empty".to_owned()),
                Read::Saw(Seen::Nothing) => (String::new(), "not found".to_owned()),
                Read::Wrong => (String::new(), "wrong bytes".to_owned()),
                Read::Refused(status) => (String::new(), format!("refused {status}")),
                Read::Failed => (String::new(), "failed".to_owned()),
            };
            ("get", version, result)
        }
        Action::Write(version, content, written) => {
            let what = if content == Content::Deleted { "delete" } else { "put" };
            let result = match written {
                Written::Acknowledged => "acknowledged".to_owned(),
                Written::Refused(status) => format!("refused {status}"),
                Written::Unknown => "unknown".to_owned(),
            };
            (what, version.to_string(), result)
        }
    };
    let (began, ended) = (ms(operation.began), ms(operation.ended));
    format!("{began:.3},{ended:.3},{},{place},{what},{version},{result}\n", operation.key)
}
