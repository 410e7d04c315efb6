//! A write: its staged bytes, and what must hold when it is committed.

use std::sync::Arc;

use super::chunks::BoxFuture;
use super::error::Error;
use super::metadata::Metadata;
use ground::Etag;

/// A condition that must hold when a write is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key has no object.
    Absent,
    /// The object has this etag.
    Is(Etag),
}

impl Condition {
    /// Returns [`Error::Condition`] unless the condition holds for the present `object`.
    pub fn judge(&self, object: Option<&Metadata>) -> Result<(), Error> {
        match (self, object) {
            (Condition::Absent, None) => Ok(()),
            (Condition::Is(etag), Some(object)) if object.etag == *etag => Ok(()),
            (_, None) => Err(Error::Condition("the object does not exist".to_owned())),
            (_, Some(object)) => {
                Err(Error::Condition(format!("the object has the etag {}", object.etag)))
            }
        }
    }
}

/// Whether a write may still be made. It is asked after each look at what the write replaces, and the
/// write then replaces that and nothing else: so it cannot follow the write of a process that has taken over
/// the key's order since.
pub type Fence = Arc<dyn Fn() -> bool + Send + Sync>;

/// The error of a write that its fence forbids; it was not made.
pub(crate) fn fenced() -> Error {
    let what = "another process orders the object's writes now; nothing was written";
    Error::Fenced(what.to_owned())
}

/// A write whose bytes have all been received. Dropping it discards the write.
pub trait Staged: Send {
    /// The metadata that the object will have.
    fn metadata(&self) -> &Metadata;
    /// Has [`Staged::commit`] without a condition ask a fence.
    fn fence(&mut self, fence: Fence) {
        let _ = fence;
    }
    /// Replaces the key's object durably, if the condition holds. The check and the replacement are
    /// atomic with respect to all writers, in this process and others.
    ///
    /// After an error the previous object is unchanged; after [`Error::Failed`] and
    /// [`Error::TimedOut`] it is unknown whether it was replaced.
    fn commit(
        self: Box<Self>,
        condition: Option<Condition>,
    ) -> BoxFuture<'static, Result<(), Error>>;
}
