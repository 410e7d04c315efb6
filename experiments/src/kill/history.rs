//! The history that the checker judges: every request to the cluster, and its reply.

use ground::window::Nanos;

/// The process that a request was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A gateway of the cluster, by its number.
    Gateway(u8),
    /// The origin alone, after the cluster ended.
    Origin,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadResult {
    /// The bytes of a version.
    Version(u32),
    /// No bytes: one of the empty versions.
    Empty,
    /// The reply was that the object does not exist.
    Nothing,
}

/// How a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// With a result.
    Saw(ReadResult),
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
    /// With another status: the write may have taken effect nevertheless, or may still do so.
    Refused(u16),
    /// Without a reply: likewise.
    Unknown,
}

/// The kind of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// An object with bytes.
    Bytes,
    /// An empty object.
    Empty,
    /// A deletion.
    Deleted,
}

/// An operation.
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
    /// The number of the key.
    pub key: u32,
    /// The process that a request was sent to.
    pub place: Place,
    /// The operation, and how it ended.
    pub action: Action,
}

impl Operation {
    /// Whether this is a read with a result, right or wrong.
    pub fn is_answered_read(&self) -> bool {
        matches!(self.action, Action::Read(Read::Saw(_) | Read::Wrong))
    }

    /// Whether this is a read without a result.
    pub fn is_failed_read(&self) -> bool {
        matches!(self.action, Action::Read(Read::Refused(_) | Read::Failed))
    }

    /// Whether this is a read.
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
                Read::Saw(ReadResult::Version(version)) => {
                    (version.to_string(), "bytes".to_owned())
                }
                Read::Saw(ReadResult::Empty) => (String::new(), "empty".to_owned()),
                Read::Saw(ReadResult::Nothing) => (String::new(), "not found".to_owned()),
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
