//! Requests to a store.

use engine::node::Asker;
use ground::Key;
use ground::window::Nanos;
use origin::Attributes;

use wire::body::RequestBody;
use wire::condition::Conditions;
use wire::range::ByteRange;

/// How old a read's answer may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// As the configuration has it: not older than an acknowledged write of this cluster, and than `revalidate_s` where others
    /// write to the origin.
    #[default]
    Configured,
    /// As the origin has it now.
    Origin,
}

/// A read of an object, or of what is known of it.
#[derive(Clone, Debug, Default)]
pub struct ReadRequest {
    /// The object's key.
    pub key: Key,
    /// Whether only what is known of it is wanted, without bytes.
    pub is_head: bool,
    /// The bytes wanted; `None`: all.
    pub range: Option<ByteRange>,
    /// What must hold.
    pub conditions: Conditions,
    /// How old the answer may be.
    pub freshness: Freshness,
    /// When nobody waits for it any more.
    pub deadline: Option<Nanos>,
    /// The process that asks; `None`: a client.
    pub asker: Option<Asker>,
    /// Whether the reply tells the times of its stages.
    pub is_timed: bool,
}

impl ReadRequest {
    /// A read of a whole object, whatever its version.
    pub fn get(key: Key) -> ReadRequest {
        ReadRequest { key, ..ReadRequest::default() }
    }

    /// A read of what is known of an object.
    pub fn head(key: Key) -> ReadRequest {
        ReadRequest { key, is_head: true, ..ReadRequest::default() }
    }
}

/// What binds a write beside its bytes.
#[derive(Clone, Debug, Default)]
pub struct WriteTerms {
    /// What must hold of the object that it replaces.
    pub conditions: Conditions,
    /// When it must not begin any more.
    pub deadline: Option<Nanos>,
    /// The epoch of the view by which a gateway chose this node for it.
    pub epoch: Option<u64>,
    /// Whether the reply tells the times of its stages.
    pub is_timed: bool,
}

/// A write of an object.
pub struct PutRequest {
    /// The object's key.
    pub key: Key,
    /// Its type and user metadata.
    pub attributes: Attributes,
    /// Its bytes, as they arrive.
    pub body: RequestBody,
    /// The SHA-256 that a gateway says they have.
    pub sha256: Option<[u8; 32]>,
    /// What binds it.
    pub terms: WriteTerms,
}

/// A removal of an object.
pub struct DeleteRequest {
    /// The object's key.
    pub key: Key,
    /// What binds it.
    pub terms: WriteTerms,
}
