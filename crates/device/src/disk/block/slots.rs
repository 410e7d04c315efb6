//! The slots of a block device: which segment each has, and what the summaries say of it.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use engine::node::Restored;
use engine::tier::Location;
use ground::Key;
use rustix::fs::{Advice, fadvise};
use tracing::{info, warn};

use super::superblock::{BLOCK, Superblock};
use super::writer::SlotWriter;
use crate::disk::format::Entry;
use crate::disk::place::{FoundSegment, Listed, Place, Slots, Writer, block_of, restored};
use crate::disk::record::{HEADER_BYTES, Header, RECORD_VERSION};
use crate::disk::scan::{Bounds, scan};
use crate::disk::segment::Segment;
use crate::disk::start::side_by_side;
use crate::disk::summary;
use crate::error::Unusable;
use ::record::clock;
use origin::{KEY_BYTES_MAX, Lock};

/// A block device.
pub(in crate::disk) struct BlockDevice {
    pub(super) name: String,
    pub(super) superblock: Superblock,
    /// For writes and for reads at a start, through the page cache.
    pub(super) file: Arc<File>,
    /// For other reads, past the page cache, unless that is refused.
    pub(super) direct: io::Result<Arc<File>>,
    pub(super) slots: Mutex<InUse>,
    /// Number of slots that can be read, known after the start.
    pub(super) usable: OnceLock<u64>,
    pub(super) _lock: Lock,
}

/// Which slots have a segment.
#[derive(Default)]
pub(super) struct InUse {
    slots: HashMap<u64, u32>,
    /// The others, that which is to be used next in front, each with the reads that may still be in progress of the
    /// segment that was in it.
    free: VecDeque<(u32, Weak<Segment>)>,
}

impl InUse {
    /// Takes a free slot: the one that is free for the longest time and of which no read is in progress. If there
    /// is none such, reads in progress will find another segment's records, and fail.
    fn take(&mut self, segment: u64) -> Option<u32> {
        let unread = self.free.iter().position(|(_, readers)| readers.strong_count() == 0);
        let (slot, _) = self.free.remove(unread.unwrap_or(0))?;
        self.slots.insert(segment, slot);
        Some(slot)
    }
}

/// What a slot was found to have at a start.
enum SlotContent {
    Nothing,
    Sealed(u64, Vec<Restored>),
    Scanned(u64, Vec<Entry>),
    Later(u8),
}

impl BlockDevice {
    fn in_use(&self) -> MutexGuard<'_, InUse> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, segment: u64) -> io::Result<u32> {
        self.in_use().slots.get(&segment).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn bounds(&self, slot: u32, segment: u64) -> Bounds {
        let base = self.superblock.segment_at(slot);
        let (length, mark) = (self.superblock.segment_bytes, self.superblock.mark(segment));
        Bounds { base, length, mark, is_reused: true }
    }

    /// What the summaries say of a slot: the number of its segment, and its records; none if it has to be
    /// scanned.
    fn summary(&self, slot: u32) -> io::Result<Option<(u64, Vec<Restored>)>> {
        let at = self.superblock.summary_at(slot);
        let mut bytes = vec![0; BLOCK as usize];
        self.file.read_exact_at(&mut bytes, at)?;
        let Some((mark, length)) = summary::head(&bytes) else { return Ok(None) };
        let Some(segment) = self.superblock.number(mark) else { return Ok(None) };
        if length as u64 > self.superblock.summary_bytes {
            return Ok(Some((segment, Vec::new())));
        }
        let there = bytes.len().min(length);
        bytes.resize(length, 0);
        if let Some(rest) = bytes.get_mut(there..).filter(|rest| !rest.is_empty()) {
            self.file.read_exact_at(rest, at + there as u64)?;
        }
        let block = summary::decode(&bytes).0.pop();
        let block = block.filter(|block| block.segment_bytes <= self.superblock.segment_bytes);
        // Of a block that is not whole, as after a crash, a scan finds out whether it names the right segment.
        Ok(Some((segment, block.map(|block| block.records).unwrap_or_default())))
    }

    /// Says in the summaries what a slot has. What does not fit is not said: the segment counts as begun.
    fn summarise(&self, slot: u32, segment: u64, records: &[Restored]) -> io::Result<()> {
        let mut bytes = block_of(self.superblock.mark(segment), records).encode();
        if bytes.len() as u64 > self.superblock.summary_bytes {
            return Ok(());
        }
        bytes.resize(bytes.len().next_multiple_of(BLOCK as usize), 0);
        self.file.write_all_at(&bytes, self.superblock.summary_at(slot))
    }

    fn look(&self, slot: u32) -> io::Result<SlotContent> {
        Ok(match self.summary(slot)? {
            None => SlotContent::Nothing,
            Some((number, records)) if records.is_empty() => {
                match scan(&self.file, self.bounds(slot, number))? {
                    Ok(entries) if entries.is_empty() => SlotContent::Nothing,
                    Ok(entries) => SlotContent::Scanned(number, entries),
                    Err(version) => SlotContent::Later(version),
                }
            }
            Some((number, records)) => SlotContent::Sealed(number, records),
        })
    }

    /// Looks at all slots at once.
    fn look_at_all(&self) -> Vec<io::Result<SlotContent>> {
        let mut seen: Vec<io::Result<SlotContent>> =
            (0..self.superblock.slots).map(|_| Ok(SlotContent::Nothing)).collect();
        let work = (0..).zip(&mut seen).map(|(slot, seen)| {
            Box::new(move || *seen = self.look(slot)) as engine::tier::Work<'_>
        });
        side_by_side(work.collect());
        seen
    }

    /// The key of a record of which the summary has this.
    fn key(&self, bounds: Bounds, record: Restored) -> Option<Key> {
        let length = (HEADER_BYTES + KEY_BYTES_MAX).min(record.bytes as usize);
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, bounds.base + u64::from(record.offset)).ok()?;
        let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let header = Header::decode(head).filter(|header| header.segment == bounds.mark)?;
        let key = Key::from(rest.get(..usize::from(header.key_bytes))?);
        // Its checksum is that of the whole record; its hash is in the summary.
        let same = Restored::new(&key, u64::from(record.offset), u64::from(record.bytes));
        (same == Some(record)).then_some(key)
    }

    fn list(&self, slot: u32, segment: u64) -> io::Result<Vec<Listed>> {
        let bounds = self.bounds(slot, segment);
        let location = |offset, bytes| Location::new(segment, offset, bytes);
        let listed = match self.summary(slot)? {
            Some((number, records)) if number == segment && !records.is_empty() => {
                let (mut listed, mut damaged) = (Vec::with_capacity(records.len()), 0);
                for record in records {
                    let location = location(u64::from(record.offset), u64::from(record.bytes));
                    match self.key(bounds, record) {
                        Some(key) => listed.push(Listed { key, location }),
                        None => damaged += 1,
                    }
                }
                if damaged > 0 {
                    warn!(
                        "{}: segment {segment}: {damaged} record(s) with a damaged head; they are dropped when they \
                         are read",
                        self.name
                    );
                }
                listed
            }
            _ => {
                let listed =
                    |entry: Entry| Listed { location: entry.location(segment), key: entry.key };
                scan(&self.file, bounds)?.unwrap_or_default().into_iter().map(listed).collect()
            }
        };
        let length = std::num::NonZeroU64::new(bounds.length);
        let _ = fadvise(&*self.file, bounds.base, length, Advice::DontNeed);
        Ok(listed)
    }
}

impl Place for BlockDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn mark(&self, segment: u64) -> u64 {
        self.superblock.mark(segment)
    }

    fn find(&self) -> Result<Vec<FoundSegment>, Unusable> {
        let begun = clock::now();
        let (mut found, mut in_use) = (Vec::new(), InUse::default());
        let (mut free, mut lost, mut newest) = (Vec::new(), 0, None);
        for (slot, seen) in (0u32..).zip(self.look_at_all()) {
            let (number, records) = match seen {
                Ok(SlotContent::Nothing) => {
                    free.push(slot);
                    continue;
                }
                Ok(SlotContent::Sealed(number, records)) => (number, records),
                Ok(SlotContent::Scanned(number, entries)) => {
                    let name = &self.name;
                    info!("{name}: scanned segment {number}: {} records", entries.len());
                    let records = restored(&entries);
                    if let Err(error) = self.summarise(slot, number, &records) {
                        warn!(
                            "{name}: cannot write a summary: {error}; the next start takes longer"
                        );
                    }
                    (number, records)
                }
                Ok(SlotContent::Later(version)) => {
                    let why = format!(
                        "a record in slot {slot} has format version {version}, and this program knows {}; use the program \
                         that wrote it, or format the device again",
                        RECORD_VERSION
                    );
                    return Err(Unusable::Raw(self.name.clone(), why));
                }
                Err(error) => {
                    warn!(
                        "{}: slot {slot} is not used, because it cannot be read: {error}",
                        self.name
                    );
                    lost += 1;
                    continue;
                }
            };
            if in_use.slots.contains_key(&number) {
                warn!("{}: two slots have segment {number}; one is dropped", self.name);
                free.push(slot);
                continue;
            }
            in_use.slots.insert(number, slot);
            newest = newest.max(Some((number, slot)));
            found.push(FoundSegment { number, records });
        }
        found.sort_unstable_by_key(|segment| segment.number);
        // On from the newest, as if the process had not ended.
        let next = newest.map_or(0, |(_, slot)| free.partition_point(|&free| free < slot));
        free.rotate_left(next);
        in_use.free.extend(free.into_iter().map(|slot| (slot, Weak::new())));
        *self.in_use() = in_use;
        let usable = self.superblock.slots - lost;
        let _ = self.usable.set(usable);
        let ms = (clock::now() - begun) / 1_000_000;
        info!("{}: {usable} slots, {} segments found in {ms} ms", self.name, found.len());
        Ok(found)
    }

    fn reader(&self, segment: u64, direct: bool) -> io::Result<(Arc<File>, u64)> {
        let base = self.superblock.segment_at(self.slot(segment)?);
        let file = match &self.direct {
            Ok(file) if direct => file,
            // Whatever the reason: reads then go through the page cache.
            Err(error) if direct => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, error.to_string()));
            }
            _ => &self.file,
        };
        Ok((file.clone(), base))
    }

    fn writer(&self, segment: u64) -> io::Result<Box<dyn Writer>> {
        let taken = self.in_use().slots.get(&segment).copied();
        let slot = taken.or_else(|| self.in_use().take(segment));
        let slot = slot.ok_or_else(|| io::Error::other("no slot is free"))?;
        // Before anything of what was in the slot is overwritten.
        let begun = self.summarise(slot, segment, &[]);
        if let Err(error) = begun.and_then(|()| self.file.sync_data()) {
            self.remove(segment, Weak::new());
            return Err(error);
        }
        let (base, length) = (self.superblock.segment_at(slot), self.superblock.segment_bytes);
        Ok(Box::new(SlotWriter::new(self.file.clone(), base, length)))
    }

    fn seal(&self, segment: u64, entries: &[Entry]) -> io::Result<()> {
        self.summarise(self.slot(segment)?, segment, &restored(entries))
    }

    fn entries(&self, segment: u64) -> Vec<Listed> {
        let listed = self.slot(segment).and_then(|slot| self.list(slot, segment));
        listed.unwrap_or_else(|error| {
            warn!("{}: cannot list segment {segment}: {error}", self.name);
            Vec::new()
        })
    }

    fn remove(&self, segment: u64, readers: Weak<Segment>) {
        let Some(slot) = self.in_use().slots.remove(&segment) else { return };
        let nothing = [0; BLOCK as usize];
        if let Err(error) = self.file.write_all_at(&nothing, self.superblock.summary_at(slot)) {
            warn!(
                "{}: cannot drop segment {segment}: {error}; a start may find it again",
                self.name
            );
        }
        self.in_use().free.push_back((slot, readers));
    }

    fn slots(&self) -> Option<Slots> {
        let usable = self.usable.get().copied().unwrap_or(self.superblock.slots);
        let segment_bytes = self.superblock.segment_bytes.min(u64::from(u32::MAX));
        Some(Slots { segment_bytes, segments_max: usable.saturating_sub(1).max(1) })
    }
}
