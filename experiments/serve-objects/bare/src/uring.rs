//! The least that a server by io_uring can do: one thread, one ring, the same bytes for every request. What sockets by io_uring
//! would bring a node at most, beside the raw server by epoll of the same records.
//!
//! Submissions of a round enter the kernel together; sockets are registered, so that no request looks one up; a receive waits for
//! data before it tries, because a client in a closed loop has sent nothing yet when its reply has just gone out.

use std::net::TcpListener;
use std::os::fd::AsRawFd;

use anyhow::{Context, ensure};
use io_uring::types::Fixed;
use io_uring::{IoUring, cqueue, opcode, squeue};

/// Most connections: places in the kernel's table of registered sockets.
const CONNECTIONS_MAX: usize = 1024;
/// Bytes of a request.
const REQUEST_MAX: usize = 4096;
/// `IORING_RECVSEND_POLL_FIRST`.
const POLL_FIRST: u16 = 1;
/// `MSG_WAITALL`: the kernel sends all of a reply before it completes.
const WAIT_ALL: i32 = 0x100;
/// `MSG_NOSIGNAL`.
const NO_SIGNAL: i32 = 0x4000;

/// What a completion is of, in its user data: the place of the connection, and one of these.
const RECEIVED: u64 = 0;
const SENT: u64 = 1;
const ACCEPTED: u64 = u64::MAX;

struct Connection {
    stream: std::net::TcpStream,
    request: Box<[u8; REQUEST_MAX]>,
}

struct Server {
    ring: IoUring,
    reply: Vec<u8>,
    connections: Vec<Option<Connection>>,
}

/// Answers every request on `address` with `reply`, for ever.
///
/// # Errors
/// If it cannot listen, or the kernel has no io_uring.
pub fn serve(address: &str, reply: Vec<u8>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address);
    let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(4096)
        .build(2048)
        .context("the kernel gives no io_uring (6.1 is needed)")?;
    ring.submitter().register_files_sparse(CONNECTIONS_MAX as u32)?;
    let connections = (0..CONNECTIONS_MAX).map(|_| None).collect();
    let mut server = Server { ring, reply, connections };
    server.accept(&listener)?;
    let mut completed: Vec<cqueue::Entry> = Vec::new();
    loop {
        server.ring.submit_and_wait(1)?;
        completed.extend(server.ring.completion());
        for completion in completed.drain(..) {
            let (of, result) = (completion.user_data(), completion.result());
            if of == ACCEPTED {
                server.accept(&listener)?;
                continue;
            }
            let place = (of >> 1) as usize;
            match of & 1 {
                // A client that leaves is not an error here.
                _ if result <= 0 => server.close(place)?,
                RECEIVED => server.send(place)?,
                SENT if result as usize == server.reply.len() => server.receive(place)?,
                _ => server.close(place)?,
            }
        }
    }
}

impl Server {
    fn push(&mut self, entry: &squeue::Entry) -> anyhow::Result<()> {
        #[expect(unsafe_code, reason = "buffers live in `self` for as long as the ring uses them")]
        // SAFETY: a reply is never changed, and a connection's buffer is freed after its one operation has completed.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.context("more operations than the ring has places")
    }

    /// Takes what waits to be accepted, and waits for more by the ring.
    fn accept(&mut self, listener: &TcpListener) -> anyhow::Result<()> {
        listener.set_nonblocking(true)?;
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nodelay(true)?;
            let place = self.connections.iter().position(Option::is_none);
            let place = place.context("too many connections")?;
            let registered = [stream.as_raw_fd()];
            ensure!(self.ring.submitter().register_files_update(place as u32, &registered)? == 1);
            let request = Box::new([0; REQUEST_MAX]);
            self.connections[place] = Some(Connection { stream, request });
            self.receive(place)?;
        }
        let fd = io_uring::types::Fd(listener.as_raw_fd());
        // Readable.
        self.push(&opcode::PollAdd::new(fd, 1).build().user_data(ACCEPTED))
    }

    fn receive(&mut self, place: usize) -> anyhow::Result<()> {
        let Some(connection) = &mut self.connections[place] else { return Ok(()) };
        let (buffer, length) = (connection.request.as_mut_ptr(), REQUEST_MAX as u32);
        let receive = opcode::Recv::new(Fixed(place as u32), buffer, length).ioprio(POLL_FIRST);
        self.push(&receive.build().user_data((place as u64) << 1 | RECEIVED))
    }

    fn send(&mut self, place: usize) -> anyhow::Result<()> {
        let (reply, length) = (self.reply.as_ptr(), self.reply.len() as u32);
        let send = opcode::Send::new(Fixed(place as u32), reply, length);
        let send = send.flags(WAIT_ALL | NO_SIGNAL);
        self.push(&send.build().user_data((place as u64) << 1 | SENT))
    }

    fn close(&mut self, place: usize) -> anyhow::Result<()> {
        self.ring.submitter().register_files_update(place as u32, &[-1])?;
        if let Some(connection) = self.connections[place].take() {
            connection.stream.shutdown(std::net::Shutdown::Both).ok();
        }
        Ok(())
    }
}
