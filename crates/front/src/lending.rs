//! Pages of this process that a socket sends without a copy.
//!
//! `vmsplice` puts references to the pages of a buffer into a pipe, `splice` moves them on to the socket. A thread has one pipe,
//! which is empty between two calls. Beside `sendfile` from an anonymous file a node takes 0.70 times the processor time for
//! 80 KiB and 0.64 times for 1 MiB, and a receiver on the same machine takes less, too (docs/decisions/0006).

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use rustix::pipe::{
    IoSliceRaw, PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, vmsplice,
};

/// Bytes lent by one call. What the socket does not take has been looked up for nothing, so not as much as a pipe can hold;
/// with half of this, a raw server took a tenth more for 1 MiB, with four times as much no less.
const CALL_BYTES_MAX: usize = 256 << 10;

/// A pipe has a place for each page, and a buffer need not begin with one. A system may refuse, for one user's many
/// pipes; then a call lends what 16 places hold.
const PIPE_BYTES: usize = 512 << 10;

/// Whether the system has refused a pipe or the call: a sandbox may. Then bytes are copied for good.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static PIPE: RefCell<Option<Pipe>> = const { RefCell::new(None) };
}

/// Pages on their way to a socket.
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

impl Pipe {
    fn open() -> rustix::io::Result<Pipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
        Ok(Pipe { read, write })
    }

    /// Puts the pages of some of the bytes into the pipe.
    fn fill(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        let slice = IoSlice::new(&bytes[..bytes.len().min(CALL_BYTES_MAX)]);
        #[expect(unsafe_code, reason = "lending pages to a pipe")]
        // SAFETY: this is the pipe's end for writing, so the bytes are only read. Their pages are not written again
        // while a socket has them, which the arena sees to (`Arena::lend`).
        unsafe {
            vmsplice(&self.write, &[IoSliceRaw::from_slice(&slice)], SpliceFlags::NONBLOCK)
        }
    }
}

/// Whether [`send`] has a chance: the system has not refused it before.
pub(crate) fn is_possible() -> bool {
    !IS_REFUSED.load(Ordering::Relaxed)
}

/// Gives a socket the pages of some of the bytes, which lie in the arena and are lent (`Arena::lend`). Returns their number, as a write
/// does.
///
/// # Errors
///
/// Those of a write: `WouldBlock` where the socket takes nothing. Where the system has no pipe or refuses the calls, the bytes are
/// copied, by this call and all later ones.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    PIPE.with_borrow_mut(|kept| {
        let pipe = match kept.take().map_or_else(Pipe::open, Ok) {
            Ok(pipe) => pipe,
            Err(error) => return refused(error, socket, bytes),
        };
        let filled = match pipe.fill(bytes) {
            Ok(filled) => filled,
            Err(error) => return refused(error, socket, bytes),
        };
        let more = if filled < bytes.len() { SpliceFlags::MORE } else { SpliceFlags::empty() };
        let flags = SpliceFlags::NONBLOCK | more;
        match splice(&pipe.read, None, socket, None, filled, flags) {
            Ok(sent) if sent == filled => *kept = Some(pipe),
            // What is left in the pipe must never reach another socket, so the pipe is closed with it. A socket that is full costs a new
            // pipe; emptying this one would take a call as well.
            Ok(sent) => return Ok(sent),
            Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => {
                return refused(Errno::NOSYS, socket, bytes);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(filled)
    })
}

/// Copies from now on, and says so once.
fn refused(error: Errno, socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // Files have run out: that passes.
    let passes = matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM);
    if !passes && !IS_REFUSED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "the system refuses to lend pages to a socket ({error}); objects are copied"
        );
    }
    Ok(rustix::net::send(socket, bytes, rustix::net::SendFlags::NOSIGNAL)?)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use bytes::Bytes;
    use device::arena;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        // Less than one call lends, so that most calls find the socket full at some point.
        rustix::net::sockopt::set_socket_send_buffer_size(&near, CALL_BYTES_MAX / 4).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// Bytes that tell where they come from, in the arena, as for the second time that they are sent.
    fn object(seed: u8, length: usize) -> Bytes {
        let bytes = (0..length).map(|i| (i % 251) as u8 ^ seed).collect::<Vec<_>>();
        let kept = arena::keep(bytes.into());
        let arena = arena::get().unwrap();
        let at = arena.place(&kept).unwrap();
        arena.copied(at);
        assert!(arena.lend(at, kept.len()));
        kept
    }

    /// Two sockets that are full again and again take turns on one thread: each gets its own bytes, all of them, in order, though
    /// every object is dropped as soon as it is sent, and another takes its place.
    #[test]
    fn full_sockets_in_turn_get_their_own_bytes() {
        arena::open(64 << 20);
        let length = (3 << 20) + 12_345;
        let (sockets, readers): (Vec<_>, Vec<_>) = (0..2u8)
            .map(|socket| {
                let (near, mut far) = pair();
                let read = move || {
                    let mut got = Vec::new();
                    far.read_to_end(&mut got).map(|_| got)
                };
                ((socket, near), std::thread::spawn(read))
            })
            .unzip();
        let mut parts = 0;
        let mut left = sockets
            .into_iter()
            .map(|(socket, near)| (near, (0..4u8).map(move |i| socket * 16 + i), Bytes::new()))
            .collect::<Vec<_>>();
        while !left.is_empty() {
            left.retain_mut(|(near, seeds, bytes)| {
                if bytes.is_empty() {
                    let Some(seed) = seeds.next() else { return false };
                    *bytes = object(seed, length);
                }
                match send(near.as_fd(), bytes) {
                    Ok(sent) => {
                        parts += u32::from(sent < bytes.len().min(CALL_BYTES_MAX));
                        drop(bytes.split_to(sent));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => panic!("{error}"),
                }
                true
            });
        }
        assert!(parts > 0, "no socket was full in the middle of a call");
        assert!(is_possible(), "this system refuses to lend pages");
        for (socket, reader) in readers.into_iter().enumerate() {
            let got = reader.join().unwrap().unwrap();
            assert_eq!(got.len(), 4 * length);
            for (i, part) in got.chunks(length).enumerate() {
                let seed = (socket * 16 + i) as u8;
                let wrong =
                    part.iter().zip(0..length).position(|(&b, at)| b != (at % 251) as u8 ^ seed);
                assert_eq!(wrong, None, "socket {socket}, object {i}");
            }
        }
    }

    #[test]
    fn a_closed_socket_is_an_error() {
        arena::open(64 << 20);
        let bytes = object(7, 80 << 10);
        let (near, far) = pair();
        drop(far);
        let error = (0..1_000).find_map(|_| match send(near.as_fd(), &bytes) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Some(error),
            _ => None,
        });
        let kind = error.map(|error| error.kind());
        assert!(
            matches!(kind, Some(io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)),
            "{kind:?}"
        );
    }
}
