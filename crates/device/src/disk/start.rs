//! What a start does in as many threads as there are processors.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use engine::tier::Work;

/// Maximum number of threads.
const THREADS_MAX: usize = 8;
/// Bytes of a file that one piece of work reads.
const PIECE_BYTES: usize = 4 << 20;

/// Carries out pieces of work and returns when all are done.
pub fn side_by_side(work: Vec<Work<'_>>) {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(work.len()).min(THREADS_MAX);
    let work = Mutex::new(work.into_iter());
    let carry_out = || {
        loop {
            let next = work.lock().unwrap_or_else(PoisonError::into_inner).next();
            match next {
                Some(work) => work(),
                None => return,
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // Without the thread, the others do its part.
            let _ = thread::Builder::new().name("start".to_owned()).spawn_scoped(scope, carry_out);
        }
        carry_out();
    });
}

/// Reads a file whose length does not change meanwhile.
///
/// # Errors
///
/// Those of the file system, or if the file became shorter.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let failed = Mutex::new(None);
    let pieces = (0u64..).zip(bytes.chunks_mut(PIECE_BYTES)).map(|(index, piece)| {
        let (file, failed) = (&file, &failed);
        let read = move || {
            if let Err(error) = file.read_exact_at(piece, index * PIECE_BYTES as u64) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        };
        Box::new(read) as Work<'_>
    });
    side_by_side(pieces.collect());
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(bytes),
    }
}
