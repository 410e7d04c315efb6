//! The bytes of an object that is read in pieces, for the replies that get them meanwhile.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::watch;

use crate::arena;
use origin::{BoxFuture, Chunks, Error};

/// How far the readers of an assembly may go.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    pieces: usize,
    /// Whether no piece follows, and whether all were valid.
    ended: Option<bool>,
}

#[derive(Debug, Default)]
struct Read {
    pieces: Vec<Bytes>,
    ended: Option<bool>,
}

/// The verified bytes of a part of an object, as they are read.
#[derive(Debug)]
pub struct Assembly {
    /// Offset of the first byte in the object.
    start: u64,
    read: Mutex<Read>,
    progress: watch::Sender<Progress>,
}

impl Assembly {
    pub(crate) fn new(start: u64) -> Arc<Assembly> {
        let progress = watch::Sender::new(Progress::default());
        Arc::new(Assembly { start, read: Mutex::default(), progress })
    }

    fn lock(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, piece: Bytes, last: bool) {
        let mut read = self.lock();
        read.pieces.push(piece);
        read.ended = last.then_some(true);
    }

    /// Lets readers have what was read: at the end of a held read, not before.
    pub fn release(&self) {
        let read = self.lock();
        self.progress.send_replace(Progress { pieces: read.pieces.len(), ended: read.ended });
    }

    pub(crate) fn fail(&self) {
        self.lock().ended.get_or_insert(false);
        self.release();
    }

    pub(crate) fn joined(&self) -> Bytes {
        let read = self.lock();
        if let [all] = &read.pieces[..] {
            return all.clone();
        }
        let length = read.pieces.iter().map(Bytes::len).sum();
        if let Some(mut space) = arena::space(length) {
            let mut rest = &mut space[..];
            for piece in &read.pieces {
                let (to, after) = rest.split_at_mut(piece.len());
                to.copy_from_slice(piece);
                rest = after;
            }
            return space.freeze();
        }
        let mut bytes = BytesMut::with_capacity(length);
        read.pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes.freeze()
    }

    /// A reader of some bytes of the object.
    pub fn reader(self: &Arc<Self>, bytes: &Range<u64>) -> Box<dyn Chunks> {
        Box::new(Reader {
            skip: bytes.start.checked_sub(self.start),
            left: bytes.end - bytes.start,
            next: 0,
            progress: self.progress.subscribe(),
            assembly: self.clone(),
        })
    }
}

struct Reader {
    assembly: Arc<Assembly>,
    progress: watch::Receiver<Progress>,
    /// Index of the next piece.
    next: usize,
    /// Bytes of it that are not wanted; `None`: they precede what is read.
    skip: Option<u64>,
    left: u64,
}

impl Reader {
    async fn read(&mut self) -> Option<Result<Bytes, Error>> {
        let cut = || Some(Err(Error::Damaged("the rest of a record cannot be read".to_owned())));
        while self.left > 0 {
            let Some(skip) = self.skip else { return cut() };
            let next = self.next;
            let ready = |progress: &Progress| progress.pieces > next || progress.ended.is_some();
            let Ok(progress) = self.progress.wait_for(ready).await.map(|progress| *progress) else {
                return cut();
            };
            let piece = self.assembly.lock().pieces.get(next).cloned();
            let Some(piece) = piece.filter(|_| progress.pieces > next) else { return cut() };
            self.next += 1;
            let from = skip.min(piece.len() as u64);
            self.skip = Some(skip - from);
            let wanted = piece.len() as u64 - from;
            let end = from + wanted.min(self.left);
            if end > from {
                self.left -= end - from;
                return Some(Ok(piece.slice(from as usize..end as usize)));
            }
        }
        None
    }
}

impl Chunks for Reader {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(self.read())
    }
    fn bytes_left(&self) -> Option<u64> {
        Some(self.left)
    }
}
