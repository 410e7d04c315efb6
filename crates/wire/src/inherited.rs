//! Sockets that a process is given at its start, so that none of its clients finds the door shut while it is
//! restarted: who started it (systemd, by a `.socket` unit) keeps them open from one process to the next.
//!
//! The protocol is systemd's (`sd_listen_fds`): file descriptors from 3 on, their number in `LISTEN_FDS`, the
//! process that they are for in `LISTEN_PID`. A listening socket is used where the configuration has its address.
//!
//! Connections without a request are passed on in the same way, if who started the process keeps file descriptors
//! for the next one (`FileDescriptorStoreMax=` of a unit; `FDSTORE` says how many): the process sends them to
//! `NOTIFY_SOCKET` (`sd_pid_notify_with_fds`), and the next one gets them beside the listening sockets. What a client
//! sends meanwhile waits in the kernel. Encrypted connections stay here: their keys are this process's.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt};
use tracing::{info, warn};

/// The first of the file descriptors.
const FIRST: i32 = 3;
/// Maximum number of sockets.
const SOCKETS_MAX: i32 = 1 << 20;
/// How long the keeper of file descriptors may take for what it was sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// What this process was given and has not taken.
#[derive(Default)]
struct Inheritance {
    listeners: Vec<TcpListener>,
    connections: Vec<TcpStream>,
}

static GIVEN: LazyLock<Mutex<Inheritance>> = LazyLock::new(|| Mutex::new(inheritance()));

/// Who keeps connections for the next process.
struct Keeper {
    socket: UnixDatagram,
    /// Connections that it takes still.
    left: AtomicUsize,
    kept: AtomicUsize,
}

static KEEPER: LazyLock<Option<Keeper>> = LazyLock::new(|| {
    let left = number("FDSTORE").and_then(|max| usize::try_from(max).ok())?;
    let name = std::env::var_os("NOTIFY_SOCKET")?;
    match Keeper::reach(name.as_encoded_bytes(), left) {
        Ok(keeper) => Some(keeper),
        Err(error) => {
            warn!("connections cannot be kept for the next process: NOTIFY_SOCKET: {error}");
            None
        }
    }
});

fn number(name: &str) -> Option<i32> {
    std::env::var(name).ok()?.parse::<i32>().ok()
}

fn inheritance() -> Inheritance {
    let mine = number("LISTEN_PID").is_some_and(|pid| pid as u32 == std::process::id());
    let count = number("LISTEN_FDS").filter(|_| mine).unwrap_or(0).clamp(0, SOCKETS_MAX);
    let mut given = Inheritance::default();
    for descriptor in (FIRST..FIRST + count).map(owned) {
        match sockopt::socket_acceptconn(&descriptor) {
            Ok(true) => given.listeners.push(descriptor.into()),
            Ok(false) => given.connections.push(descriptor.into()),
            Err(error) => warn!("a file descriptor that this process was given: {error}"),
        }
    }
    if !given.connections.is_empty() {
        info!("{} connection(s) of the process before", given.connections.len());
        if let Some(keeper) = &*KEEPER
            && let Err(error) = keeper.send("FDSTOREREMOVE=1\nFDNAME=connection", None)
        {
            warn!("NOTIFY_SOCKET: {error}");
        }
    }
    given
}

fn owned(descriptor: i32) -> OwnedFd {
    #[expect(unsafe_code, reason = "the only way to a file descriptor that is known by its number")]
    // SAFETY: whoever set LISTEN_PID to this process gave it the descriptor, and nothing else here uses it:
    // this runs once.
    unsafe {
        OwnedFd::from_raw_fd(descriptor)
    }
}

impl Keeper {
    fn reach(name: &[u8], left: usize) -> io::Result<Keeper> {
        let address = match name.strip_prefix(b"@") {
            Some(name) => UnixAddr::from_abstract_name(name)?,
            None => UnixAddr::from_pathname(std::path::Path::new(&*String::from_utf8_lossy(name)))?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Keeper { socket, left: AtomicUsize::new(left), kept: AtomicUsize::new(0) })
    }

    fn send(&self, text: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.as_slice();
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let text = [IoSlice::new(text.as_bytes())];
        sendmsg(&self.socket, &text, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits until all that was sent was taken.
    fn settle(&self) -> io::Result<()> {
        let (ours, theirs) = io::pipe()?;
        self.send("BARRIER=1", Some(theirs.as_fd()))?;
        drop(theirs);
        let mut closed = [PollFd::new(&ours, PollFlags::IN)];
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut closed, Some(&patience))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }
}

/// Whether this process was given listening sockets, and another will be given them after it.
pub fn any() -> bool {
    static ANY: LazyLock<bool> = LazyLock::new(|| {
        let given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        !given.listeners.is_empty()
    });
    *ANY
}

/// The socket for an address, if this process was given one.
pub fn take(address: SocketAddr) -> Option<TcpListener> {
    if !any() {
        return None;
    }
    let given = &mut GIVEN.lock().unwrap_or_else(PoisonError::into_inner).listeners;
    let is_for = |listener: &TcpListener| listener.local_addr().is_ok_and(|it| it == address);
    let Some(at) = given.iter().position(is_for) else {
        let there: Vec<_> = given.iter().filter_map(|it| it.local_addr().ok()).collect();
        warn!("{address} is not among the sockets that this process was given: {there:?}");
        return None;
    };
    Some(given.swap_remove(at))
}

/// The connections of the process before to an address on which this one listens.
pub fn connections(address: SocketAddr) -> Vec<TcpStream> {
    let given = &mut GIVEN.lock().unwrap_or_else(PoisonError::into_inner).connections;
    let any = address.ip().is_unspecified();
    let is_to = |to: SocketAddr| to.port() == address.port() && (any || to.ip() == address.ip());
    given.extract_if(.., |stream| stream.local_addr().is_ok_and(is_to)).collect()
}

/// Closes the connections of the process before to addresses on which this one does not listen: nobody answers there.
pub fn close_others() {
    let given = &mut GIVEN.lock().unwrap_or_else(PoisonError::into_inner).connections;
    if !given.is_empty() {
        warn!("{} connection(s) to addresses that are not served any more are closed", given.len());
        given.clear();
    }
}

/// Whether connections are kept for the next process.
pub fn keeps() -> bool {
    KEEPER.as_ref().is_some_and(|keeper| keeper.left.load(Ordering::Relaxed) > 0)
}

/// Has a connection without a request kept for the next process. Returns whether it is; the caller closes its own
/// descriptor.
pub fn pass_on(connection: BorrowedFd<'_>) -> bool {
    let Some(keeper) = &*KEEPER else { return false };
    let one_less = |left: usize| left.checked_sub(1);
    if keeper.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
        return false;
    }
    match keeper.send("FDSTORE=1\nFDNAME=connection", Some(connection)) {
        Ok(()) => {
            keeper.kept.fetch_add(1, Ordering::Relaxed);
            true
        }
        Err(error) => {
            warn!("a connection is closed, and not kept for the next process: {error}");
            false
        }
    }
}

/// Waits until the connections that were passed on are kept: they are of a process that is known.
pub fn settle() {
    let Some(keeper) = &*KEEPER else { return };
    let kept = keeper.kept.load(Ordering::Relaxed);
    if kept == 0 {
        return;
    }
    match keeper.settle() {
        Ok(()) => info!("{kept} connection(s) are kept for the next process"),
        Err(error) => warn!("connections for the next process: NOTIFY_SOCKET: {error}"),
    }
}
