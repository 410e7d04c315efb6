//! The node of a process as a store.

use engine::node::{Event, Hit};
use ground::window::Nanos;
use ground::{Etag, Key};
use origin::{BoxFuture, Origin};
use record::clock;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::runtime::Handle;

use super::state::Node;
use device::object::Object;
use front::Front;
use store::{DeleteRequest, Error, FoundObject, MemoryUse, PutRequest, ReadRequest, Store};
use wire::lane::RequestRecord;

impl Store for Node {
    fn front(&self) -> &Front {
        self
    }

    fn origin(&self) -> &Arc<dyn Origin> {
        self.drive.origin()
    }

    fn get<'a>(
        &'a self,
        read: &'a ReadRequest,
        record: &'a mut RequestRecord,
    ) -> BoxFuture<'a, Result<FoundObject, Error>> {
        Box::pin(self.read(read, record))
    }

    fn put<'a>(
        &'a self,
        put: PutRequest,
        record: &'a mut RequestRecord,
    ) -> BoxFuture<'a, Result<Etag, Error>> {
        Box::pin(self.write(put, record))
    }

    fn delete<'a>(
        &'a self,
        delete: DeleteRequest,
        record: &'a mut RequestRecord,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(self.remove(delete, record))
    }

    fn has_memory(&self) -> bool {
        true
    }

    fn memory(&self) -> Option<MemoryUse> {
        let (contents, _) = self.drive.contents();
        Some(MemoryUse {
            objects: contents.memory_objects,
            bytes: contents.memory_bytes,
            bytes_max: contents.memory_bytes_max,
        })
    }

    fn hit(&self, now: Nanos, key: &[u8]) -> Option<Hit<Object>> {
        self.drive.hit(now, key)
    }

    /// A cache has nothing to compare with: what it forgot would be gone.
    fn revalidate(&self, key: &Key) {
        if self.drive.is_durable() {
            self.drive.tell(clock::now(), Event::Invalidate { key: key.clone() });
        }
    }

    fn clear(&self) -> Result<(), Error> {
        self.drive.tell(clock::now(), Event::Clear);
        Ok(())
    }

    fn under_way(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    fn read_on(&self, runtimes: &[Handle]) {
        self.drive.read_on(runtimes);
    }
}
