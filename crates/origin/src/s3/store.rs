//! The state that all requests to the store share, and what it says of an object.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use ::http::StatusCode;
use tokio::sync::{Mutex, OnceCell, Semaphore};
use tracing::warn;

use super::attributes;
use super::client::Client;
use super::described::Described;
use super::errors::{Access, Trouble, trouble};
use super::failure::{Failure, FailureKind};
use super::known::{EtagTable, Seal};
use super::name::Naming;
use super::stored::StoredHead;
use super::thread::Thread;
use crate::error::Error;
use crate::identity_record::IdentityRecord;
use crate::metadata::Metadata;

/// The most attempts of a write whose condition is refused because the object changed meanwhile.
pub(super) const ORDER_ATTEMPTS: usize = 5;

/// State shared by all requests.
pub(super) struct Store {
    pub(super) client: Arc<Client>,
    pub(super) thread: Thread,
    /// The prefix of all names.
    pub(super) prefix: String,
    /// Bucket and endpoint, for messages.
    pub(super) place: String,
    /// The most concurrent requests of one listing.
    pub(super) parallel: usize,
    /// The memory left for uploads, KiB.
    pub(super) held_kib: Arc<Semaphore>,
    pub(super) held_bytes_max: u64,
    pub(super) looks: Mutex<Looks>,
    /// What this process remembers of its origin.
    pub(super) record: Arc<IdentityRecord>,
    pub(super) known: EtagTable,
    pub(super) naming: OnceCell<Naming>,
    pub(super) described: Described,
    /// Writes that may be sent while they arrive.
    pub(super) sendings: Arc<Semaphore>,
    /// Whether a listing has passed over a name of no key, which is logged once.
    pub(super) passed_over: AtomicBool,
}

/// The store's reply to a HEAD.
pub(super) struct Head {
    pub(super) stored: StoredHead,
    pub(super) metadata: Metadata,
}

impl Store {
    pub(super) fn trouble(&self, failure: &Failure, what: &str, access: Access) -> Trouble {
        trouble(failure, &self.place, what, access)
    }

    pub(super) fn failed(&self, failure: &Failure, what: &str, access: Access) -> Error {
        self.trouble(failure, what, access).error
    }

    /// What the store has under a name; `None` if that is nothing, or the bucket is missing.
    pub(super) async fn stored(&self, name: &str) -> Result<Option<StoredHead>, Error> {
        match self.client.head(name).await {
            Ok(stored) => Ok(Some(stored)),
            Err(Failure::Status { status: StatusCode::NOT_FOUND, .. }) => Ok(None),
            Err(Failure::Transport { kind: FailureKind::Unreadable, text }) => {
                Err(Error::Damaged(format!(
                    "the store's reply to a look at {name} at {} cannot be read ({text}): another tool may have stored metadata that \
                     no header can have; write the object again",
                    self.place
                )))
            }
            Err(failure) => Err(self.failed(&failure, &format!("a look at {name}"), Access::Read)),
        }
    }

    pub(super) async fn head(&self, name: &str) -> Result<Option<Head>, Error> {
        match self.stored(name).await? {
            Some(stored) => {
                let metadata = self.judge_metadata(name, &stored).await?;
                Ok(Some(Head { stored, metadata }))
            }
            // The answer to a HEAD has no text: it does not say whether the object or the bucket is missing.
            None => {
                self.look(Instant::now()).await?;
                Ok(None)
            }
        }
    }

    /// The metadata of an object that was read. Remembers its etag, for a write of it that may follow. What another tool
    /// wrote and left our metadata with is that tool's object.
    pub(super) async fn judge_metadata(
        &self,
        name: &str,
        stored: &StoredHead,
    ) -> Result<Metadata, Error> {
        let metadata = attributes::from_store(stored);
        let Some(etag) = &stored.etag else { return Ok(metadata) };
        if self.known.had_other_size(name, etag, metadata.size) {
            self.check_size(name, etag, metadata.size).await?;
        }
        let seal = Seal::of_metadata(&metadata);
        match self.known.is_rewritten(name, etag, seal) {
            None => return Ok(metadata),
            Some(false) => {}
            // While a write is under way, a store that keeps metadata apart from bytes may pair those before it with the etag
            // after it (as for `consistent_head`). A second look does not find that pair again.
            Some(true) => {
                let again = self.client.head(name).await;
                let again = again.map_err(|failure| {
                    self.failed(&failure, &format!("a look at {name}"), Access::Read)
                })?;
                let now = Seal::of_metadata(&attributes::from_store(&again));
                if (&again.etag, now) != (&stored.etag, seal) {
                    if let Some(etag) = again.etag {
                        self.known.set(name, etag, Some(now));
                    }
                    return Ok(metadata);
                }
                warn!(
                    "another tool wrote {name} at {} and kept Concertina's metadata; it is served as that tool's object",
                    self.place
                );
            }
        }
        Ok(attributes::of_another_tool(stored, metadata))
    }

    /// Asks for the length of an object that was read with another one than before, under the same etag. Bytes of versions that
    /// are hashes are compared with these; those of others have only this.
    async fn check_size(&self, name: &str, etag: &str, size: u64) -> Result<(), Error> {
        let again = self.client.head(name).await;
        let again = again
            .map_err(|failure| self.failed(&failure, &format!("a look at {name}"), Access::Read))?;
        if again.etag.as_deref() == Some(etag) && again.size != size {
            return Err(Error::Failed(format!(
                "the store at {} sends {name} with {size} bytes and says that it has {}; a proxy before it may cut \
                 replies off",
                self.place, again.size
            )));
        }
        Ok(())
    }
}

/// The most writes that are sent while they arrive. Those beyond are sent when all their bytes are there.
pub const SENDINGS_MAX: usize = 64;

/// What was learnt of the store when it was opened.
#[derive(Debug)]
pub(super) struct StoreProperties {
    /// The marker's text; `None` where it is missing and cannot be created.
    pub(super) identity: Option<String>,
    pub(super) conditions: bool,
}

/// A look that found the bucket that was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// When it began: the bucket was there then or later.
    pub began: Instant,
    /// Whether the store refuses a PUT whose condition does not hold.
    pub conditions: bool,
}

/// What is known, and the last looks.
#[derive(Default)]
pub(super) struct Looks {
    pub(super) known: Option<StoreProperties>,
    /// When the last look that found the bucket began.
    pub(super) seen: Option<Instant>,
    /// The last failure, and when that attempt began. Those who came before it share it.
    pub(super) failed: Option<(Instant, Error)>,
}
