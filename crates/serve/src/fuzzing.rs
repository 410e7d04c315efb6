//! What the fuzz targets (`fuzz/`) call of the parsers that are this crate's own.

use engine::act::replicas::{Room, ShardReport};
use http::HeaderMap;

pub use cluster::parse_report;
use configuration::{Config, Mistakes};
use datasets::copies::ShardsTold;
use gateway::Picture;
pub use live::{DeviceWindows, WindowIntake};
pub use membership::{Document, etcd_pairs, parse_change_reply};
pub use wire::condition::{Conditions, Verdict};
pub use wire::range::{ByteRange, SelectedRange};

/// The configuration of a process on which a document's settings are laid.
///
/// # Errors
///
/// What is wrong with the whole.
pub fn with_shared(own: &Config, document: &Document) -> Result<Config, Mistakes> {
    own.with_shared(&document.settings)
}

/// What a gateway knows of shards and nodes after each of its nodes has told of its shards as JSON; each shard belongs to the
/// first node.
pub fn shards_told(told: &[&[u8]]) -> (Vec<ShardReport>, Vec<Room>) {
    let told: Vec<Option<ShardsTold>> =
        told.iter().map(|json| serde_json::from_slice(json).ok()).collect();
    let picture = Picture::from_reports(&told, |_| vec![0]);
    (picture.shards, picture.rooms)
}

/// What stands at the front of a connection's bytes, as the path of plain reads sees it.
#[derive(Debug, PartialEq, Eq)]
pub enum Front {
    /// A part of a head.
    Part,
    /// A plain read of a key, with the length of its head.
    Plain(bool, Vec<u8>, usize),
    /// Another request of so many bytes.
    Other(u64),
    /// Something whose end is not known here.
    Unknown,
    /// A request that gives its end more than once.
    Ambiguous,
    /// A request that breaks a rule of HTTP, by the status of the reply.
    Refused(u16),
}

/// The lines of headers that were approved last on a connection.
#[derive(Default)]
pub struct Approved(wire::head::Approved<()>);

/// Looks at the front of some bytes.
pub fn front(bytes: &[u8], approved: &mut Approved, bytes_max: usize) -> Front {
    use wire::head::{Front as Quick, front};
    let approve = |headers: &HeaderMap| (!headers.contains_key("no")).then_some(());
    match front(bytes, &mut approved.0, bytes_max, approve, |_, _, _| None) {
        Quick::Part => Front::Part,
        Quick::Plain { line, length, .. } => Front::Plain(line.is_head, line.key.to_vec(), length),
        Quick::Other { length } => Front::Other(length),
        Quick::Unknown => Front::Unknown,
        Quick::Ambiguous => Front::Ambiguous,
        Quick::Refused(refusal) => Front::Refused(refusal.status.as_u16()),
    }
}
