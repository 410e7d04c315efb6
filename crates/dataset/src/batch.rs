//! Many records at a time: bytes of a shard that are extracted together come several times as fast as one by one.

use super::Dataset;
use super::error::{Error, Result};

impl Dataset {
    /// Passes records, byte for byte as they were added, to `take`: those of a shard are extracted together, a megabyte at a
    /// time. Those of a shard must stand before those of the next, as a search returns them.
    ///
    /// # Errors
    ///
    /// If no record has one of the ids, and those of `take`.
    pub fn get_each<E: From<Error>>(
        &self,
        ids: &[u64],
        take: &mut dyn FnMut(u64, Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        const BYTES_AT_ONCE: usize = 1 << 20;
        let mut ids = ids;
        while let Some(first) = ids.first() {
            let after = self.parts.partition_point(|part| part.entry().first_id <= *first);
            let part = after.checked_sub(1).and_then(|at| self.parts.get(at));
            let some = match part.filter(|part| part.ids().contains(first)) {
                Some(part) => {
                    let of_part = ids.partition_point(|id| *id < part.ids().end);
                    let (of_part, _) = ids.split_at(of_part);
                    if of_part.iter().any(|id| self.deleted.contains(id)) {
                        return Err(
                            Error::Missing("one of the records was deleted".to_owned()).into()
                        );
                    }
                    part.stored_all(of_part, BYTES_AT_ONCE)?
                }
                None => vec![self.stored(*first)?],
            };
            let (now, later) = ids.split_at(some.len());
            for (id, stored) in now.iter().zip(some) {
                take(*id, self.schema().original(&stored).to_vec())?;
            }
            ids = later;
        }
        Ok(())
    }
}
