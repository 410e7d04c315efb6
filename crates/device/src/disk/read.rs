//! A read of a record, which a thread carries out.

use std::fs::File;
use std::sync::{Arc, PoisonError};

use engine::node::{Event, Extent, Failure, JobId, Unread};
use engine::tier::Location;
use ground::Key;
use ground::window::Nanos;
use tracing::warn;

use super::device::{Device, EventSink};
use super::pacer::Pacer;
use super::pieces::Piece;
use super::room::{Buffer, Span};
use super::segment::Segment;
use crate::assembly::Assembly;
use crate::object::Object;
use ::record::clock;

pub(super) struct Read {
    pub(super) device: Arc<Device>,
    pub(super) segment: Option<Arc<Segment>>,
    pub(super) location: Location,
    pub(super) key: Key,
    pub(super) job: JobId,
    pub(super) extent: Extent,
    /// For an emulated device, when the read completes: its start plus the drawn time.
    pub(super) held_to: Option<Nanos>,
}

impl Read {
    pub(super) fn carry_out(self, buffer: &mut Buffer, told: &EventSink, pacer: &Pacer<Done>) {
        let (job, held_to, device) = (self.job, self.held_to, self.device.clone());
        let read = self.read(buffer);
        if let Err(Unread::Failed(Failure { reason, .. })) = &read {
            warn!("{reason}; reading from elsewhere instead");
        }
        let (mut done, mut bytes) = (None, 0);
        let event = match read {
            Err(why) => Event::Read { job, result: Err(why), left: 0 },
            Ok(piece) => {
                let left = piece.left();
                (done, bytes) = (piece.assembly, piece.bytes);
                if let Some(rest) = piece.rest {
                    // Before the engine learns of it, which asks for the rest.
                    device.cursors.lock().unwrap_or_else(PoisonError::into_inner).insert(job, rest);
                }
                Event::Read { job, result: Ok(piece.object), left }
            }
        };
        let done = Done { event, assembly: done };
        let now = clock::now();
        match held_to.map(|at| at + device.transfer(bytes)) {
            Some(at) if at > now => pacer.schedule(at, done),
            Some(at) => {
                pacer.missed(at);
                done.tell(now, told);
            }
            None => done.tell(now, told),
        }
    }

    /// The file and its part, if that is read at once and nothing else is to be done.
    pub(super) fn at_once(&self) -> Option<(&File, Span)> {
        let whole = self.held_to.is_none() && self.extent == Extent::Record;
        let segment = self.segment.as_ref().filter(|_| whole)?;
        Some((segment.direct()?, segment.span(self.location).ok()?))
    }

    fn read(self, buffer: &mut Buffer) -> Result<Piece, Unread> {
        let Read { device, segment, location, key, job, extent, .. } = self;
        let segments = &device.segments;
        if let Extent::Next { bytes } = extent {
            let cursor = device.cursors.lock().unwrap_or_else(PoisonError::into_inner).remove(&job);
            let closed = || Failure::unavailable("a record was closed while it was read");
            let cursor = cursor.ok_or_else(|| Unread::Failed(closed()))?;
            return segments.read_next(cursor, bytes, buffer);
        }
        let segment = segment.ok_or(Unread::Gone)?;
        match extent {
            Extent::First { bytes, part } => {
                segments.read_first(&segment, location, &key, bytes, part, buffer)
            }
            _ => {
                let object = segments.read(&segment, location, &key, buffer)?;
                Ok(Piece::complete(object, location.bytes()))
            }
        }
    }
}

/// A read that ended.
pub(super) struct Done {
    pub(super) event: Event<Object>,
    pub(super) assembly: Option<Arc<Assembly>>,
}

impl Done {
    /// Lets the readers of a record in pieces have what was read, and tells the engine.
    pub(super) fn tell(self, at: Nanos, told: &EventSink) {
        if let Some(assembly) = self.assembly {
            assembly.release();
        }
        told(at, self.event);
    }
}
