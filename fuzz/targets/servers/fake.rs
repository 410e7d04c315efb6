//! A server in this process that replies what an input says.

#![allow(dead_code, reason = "not every target uses everything")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The replies of one server.
#[derive(Default)]
pub struct Replies {
    next: Mutex<Vec<u8>>,
    asked: AtomicU64,
}

impl Replies {
    /// From here on this is the reply.
    pub fn set(&self, reply: Vec<u8>) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = reply;
    }

    /// How many requests were replied to.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    fn next(&self) -> Vec<u8> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.next.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Starts a server: `usual` says how long the request is that begins some bytes, and what is replied to it; `None` if
/// that is what the input says.
pub fn start(
    replies: &Arc<Replies>,
    usual: impl Fn(&[u8]) -> Option<(usize, Option<Vec<u8>>)> + Clone + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let replies = replies.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (replies, usual) = (replies.clone(), usual.clone());
            std::thread::spawn(move || serve(stream, &replies, usual));
        }
    });
    address
}

fn serve(
    mut stream: TcpStream,
    replies: &Replies,
    usual: impl Fn(&[u8]) -> Option<(usize, Option<Vec<u8>>)>,
) {
    let (mut came, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        while let Some((length, reply)) = usual(&came) {
            came.drain(..length.min(came.len()));
            let known = reply.is_some();
            let reply = reply.unwrap_or_else(|| replies.next());
            // What ends early shows by the connection's end: the caller need not wait for its patience.
            let ends = !known && reply.last().is_none_or(|last| last % 2 == 0);
            if stream.write_all(&reply).is_err() || ends {
                return;
            }
        }
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => came.extend_from_slice(&piece[..count]),
            _ => return,
        }
    }
}
