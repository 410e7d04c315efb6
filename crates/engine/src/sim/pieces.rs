//! The driver of a node reads records in pieces.

use rand::RngExt;

use super::disk::unread;
use super::law::slowed;
use super::settings::Breakage;
use super::state::{InPieces, Simulation};
use crate::Size;
use crate::node::{Asker, DeviceId, Event, Extent, JobId, Part, Take, Unread};
use crate::tier::Location;
use ground::Key;

impl Simulation {
    /// How a request takes its object: in turn in every way, where records are read in pieces.
    pub(super) fn take(&self, at: usize, request: u64, asker: Asker) -> Take {
        let devices = &self.settings.nodes[at].devices;
        if asker == Asker::Peer || devices.iter().all(|device| device.piece_bytes == 0) {
            return Take::Whole;
        }
        match request % 4 {
            0 => Take::Whole,
            1 => Take::Part(Part::Bytes { first: 20, last: Some(119) }),
            2 => Take::Part(Part::Metadata),
            _ => Take::Pieces,
        }
    }

    pub(super) fn read_piece(
        &mut self,
        at: usize,
        device: DeviceId,
        location: Location,
        key: &Key,
        job: JobId,
        extent: Extent,
    ) {
        let fails = self.device_fails();
        let begun = match extent {
            Extent::First { part, .. } => self.begin_pieces(at, device, location, key, part),
            _ => self.nodes[at].pieces.remove(&job).ok_or_else(unread),
        };
        let process = &mut self.nodes[at];
        let service = process.laws[device].draw(&mut self.random.service);
        let service = slowed(service, process.slow);
        let (Extent::First { bytes, .. } | Extent::Next { bytes }) = extent else { return };
        let event = match begun {
            Err(why) => Event::Read { job, result: Err(why), left: 0 },
            Ok(mut read) => {
                read.left = read.left.saturating_sub(bytes);
                let left = read.left;
                let damaged = read.fails_at.is_some_and(|fails_at| left <= fails_at);
                let result =
                    if fails || damaged { Err(unread()) } else { Ok(read.payload.clone()) };
                if result.is_ok() && left > 0 {
                    process.pieces.insert(job, read);
                }
                Event::Read { job, result, left }
            }
        };
        self.own(at, service, event);
    }

    fn begin_pieces(
        &mut self,
        at: usize,
        device: DeviceId,
        location: Location,
        key: &Key,
        part: Option<Part>,
    ) -> Result<InPieces, Unread> {
        let disk = &self.nodes[at].disks[device];
        let breakage = self.settings.breakage;
        if matches!(breakage, Some(Breakage::ChecksumIgnored | Breakage::KeyIgnored)) {
            let payload = disk.read(location, key, breakage)?;
            return Ok(InPieces { left: payload.bytes, payload, fails_at: None });
        }
        let (payload, damaged) = disk.look(location, key)?;
        let left = part.map_or(payload.bytes, |part| {
            let part = part.range_in(payload.bytes);
            part.end - part.start
        });
        let fails_at = damaged.then(|| self.random.faults.random_range(0..=left));
        Ok(InPieces { payload, left, fails_at })
    }

    /// A node begins a reply.
    pub(super) fn opened(&mut self, at: usize, request: u64, payload: Size) {
        let Some(incoming) = self.nodes[at].incoming.get_mut(request) else { return };
        assert!(incoming.opened.is_none(), "a reply that began twice");
        incoming.opened = Some(payload);
    }
}
