//! A store of objects, as the fronts see it.
//!
//! A front (HTTP, S3, memcached's protocol) translates its requests into those of [`Store`] and the results back, once. The
//! node and the gateway of a process are stores; a front does not know which it has. Between processes requests are HTTP's:
//! a gateway's store writes them for nodes, a node's front reads them.
//!
//! The front makes the record of a request before it calls, the store notes in it where the reply came from and when, and
//! the front keeps it until the reply has been sent.

mod checks;
mod error;
mod found;
pub mod origin_reads;
mod problem;
mod request;
mod target;
mod version;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use engine::node::Hit;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use ground::window::Nanos;
use ground::{Etag, Key};
use origin::{BoxFuture, Listed, Origin};
use tokio::runtime::Handle;

use device::object::Object;
use front::Front;
use wire::lane::RequestRecord;

pub use checks::{check_attributes, header_text, refuse_reserved};
pub use error::Error;
pub use found::{Body, FoundObject, noted};
pub use problem::{failure_kind, problem_of};
pub use request::{DeleteRequest, Freshness, PutRequest, ReadRequest, WriteTerms};
pub use target::{escaped, key_of};
pub use version::Version;

/// Reads of a multi-get that are under way at a time: each may hold a value in memory.
const PARALLEL: usize = 16;

/// The result of a read, with its record.
pub type Recorded = (Result<FoundObject, Error>, RequestRecord);

/// What a process holds in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Objects.
    pub objects: usize,
    /// Their bytes, overhead included.
    pub bytes: u64,
    /// The bytes that they may have at present.
    pub bytes_max: u64,
}

/// Objects that can be read, written and listed.
pub trait Store: Send + Sync + 'static {
    /// What the threads behind the process's address share.
    fn front(&self) -> &Front;

    /// Where objects are durable. Parts of uploads are written there, past all caches.
    fn origin(&self) -> &Arc<dyn Origin>;

    /// Reads an object, or what is known of it.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from being read.
    fn get<'a>(
        &'a self,
        read: &'a ReadRequest,
        record: &'a mut RequestRecord,
    ) -> BoxFuture<'a, Result<FoundObject, Error>>;

    /// Writes an object; returns its version. It is in the origin then, and no later read returns an older one.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from being written.
    fn put<'a>(
        &'a self,
        put: PutRequest,
        record: &'a mut RequestRecord,
    ) -> BoxFuture<'a, Result<Etag, Error>>;

    /// Removes an object; returns whether it was there.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from being removed.
    fn delete<'a>(
        &'a self,
        delete: DeleteRequest,
        record: &'a mut RequestRecord,
    ) -> BoxFuture<'a, Result<bool, Error>>;

    /// Whether this process holds objects in memory itself.
    fn has_memory(&self) -> bool {
        false
    }

    /// What this process holds in memory; `None` where it holds no objects itself.
    fn memory(&self) -> Option<MemoryUse> {
        None
    }

    /// An object that memory holds and may serve as it is.
    fn hit(&self, _now: Nanos, _key: &[u8]) -> Option<Hit<Object>> {
        None
    }

    /// Has the next read of a key compare what is held with the origin, where others may have written.
    fn revalidate(&self, _key: &Key) {}

    /// Drops what is held of all keys. What is in the origin remains.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where other processes hold it too.
    fn clear(&self) -> Result<(), Error>;

    /// Whether what is written outlives what is held.
    fn is_durable(&self) -> bool {
        self.origin().is_durable()
    }

    /// The work that the end of the process waits for, beside connections.
    fn under_way(&self) -> usize {
        0
    }

    /// Lets a front's threads read from devices.
    fn read_on(&self, _runtimes: &[Handle]) {}
}

impl dyn Store {
    /// Reads several objects at a time; the results come in the order of the requests.
    pub fn multi_get<'a>(
        &'a self,
        reads: impl Iterator<Item = (ReadRequest, RequestRecord)> + Send + 'a,
    ) -> BoxStream<'a, Recorded> {
        let one = async move |(read, mut record): (ReadRequest, RequestRecord)| {
            let found = self.get(&read, &mut record).await;
            (found, record)
        };
        stream::iter(reads.map(one)).buffered(PARALLEL).boxed()
    }

    /// The objects whose keys begin with `prefix` and follow `after`, at most `limit`.
    ///
    /// # Errors
    ///
    /// If the origin does not list them in time.
    pub async fn list(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Listed>, Error> {
        let listing = self.origin().list(prefix, after, limit);
        self.within_timeout("a listing", listing).await
    }

    /// Waits for a request to the origin as long as the configuration allows.
    async fn within_timeout<T>(
        &self,
        what: &str,
        request: impl Future<Output = Result<T, origin::Error>>,
    ) -> Result<T, Error> {
        let timeout = Duration::from_secs_f64(self.front().config.origin.timeout_s);
        Ok(origin::within(timeout, what, request).await?)
    }
}
