//! What the fuzz targets (`fuzz/`) call of the parsers that are this crate's own.

use http::HeaderMap;

pub use crate::condition::{Verdict, check, is_conditional, judge, range_holds};
use crate::config::{Config, Mistakes};
pub use crate::live::Told;
pub use crate::membership::{Document, etcd_pairs};
pub use crate::range::{Asked, parse as range, part};

/// The configuration of a process on which a document's settings are laid.
///
/// # Errors
///
/// What is wrong with the whole.
pub fn with_shared(own: &Config, document: &Document) -> Result<Config, Mistakes> {
    own.with_shared(&document.settings)
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
}

/// The lines of headers that were approved last on a connection.
#[derive(Default)]
pub struct Approved(crate::quick::head::Approved<()>);

/// Looks at the front of some bytes.
pub fn front(bytes: &[u8], approved: &mut Approved, bytes_max: usize) -> Front {
    use crate::quick::head::{Front as Quick, front};
    let approve = |headers: &HeaderMap| (!headers.contains_key("no")).then_some(());
    match front(bytes, &mut approved.0, bytes_max, approve, |_, _, _| None) {
        Quick::Part => Front::Part,
        Quick::Plain { line, length, .. } => Front::Plain(line.is_head, line.key.to_vec(), length),
        Quick::Other { length } => Front::Other(length),
        Quick::Unknown => Front::Unknown,
        Quick::Ambiguous => Front::Ambiguous,
    }
}
