//! Distance: a relay of TCP connections that passes what clients send a constant time later, in
//! order, and what servers send at once.
//!
//! The kernel's own tool for this, `netem`, is not in every kernel. Three threads for each
//! connection, all blocking: a side that does not read makes the other side wait, and at most
//! [`PIECES`] pieces are on the way.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;

use anyhow::Context as _;
use record::clock;

/// The most pieces of a connection that are on the way.
const PIECES: usize = 4096;
/// The largest piece.
const PIECE_BYTES: usize = 64 * 1024;

/// The relay's arguments.
#[derive(clap::Args)]
pub struct Distance {
    /// Where clients connect
    listen: String,
    /// Where the server is
    to: String,
    /// How much later requests arrive, in microseconds
    delay_us: u64,
}

impl Distance {
    /// Relays until the process is ended.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn run(&self) -> anyhow::Result<()> {
        let listener = TcpListener::bind(&self.listen)
            .with_context(|| format!("cannot listen on {}", self.listen))?;
        println!("ready");
        self.accept(&listener)
    }

    fn accept(&self, listener: &TcpListener) -> anyhow::Result<()> {
        loop {
            let (client, _) = listener.accept().context("cannot accept a connection")?;
            let (to, delay_us) = (self.to.clone(), self.delay_us);
            std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
                // An end of either side is the end of both.
                if let Err(error) = relay(client, &to, delay_us * 1000) {
                    eprintln!("distance: {error:#}");
                }
            })?;
        }
    }
}

/// Relays one connection until a side closes it.
fn relay(mut client: TcpStream, to: &str, delay_ns: u64) -> anyhow::Result<()> {
    let mut server = TcpStream::connect(to).with_context(|| format!("cannot connect to {to}"))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    let small = || std::thread::Builder::new().stack_size(256 * 1024);
    small().spawn(move || {
        let mut piece = vec![0; PIECE_BYTES];
        while let Ok(count @ 1..) = from_server.read(&mut piece) {
            if to_client.write_all(&piece[..count]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
        let _ = from_server.shutdown(Shutdown::Both);
    })?;
    let (sender, receiver) = sync_channel::<(u64, Vec<u8>)>(PIECES);
    small().spawn(move || {
        clock::precise_thread();
        for (due, piece) in receiver {
            clock::sleep_until(due);
            if server.write_all(&piece).is_err() {
                break;
            }
        }
        // What the server still has to say passes.
        let _ = server.shutdown(Shutdown::Write);
    })?;
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(count @ 1..) = client.read(&mut piece) {
        if sender.send((clock::now() + delay_ns, piece[..count].to_vec())).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// A server that sends back what it gets, and the relay before it.
    fn echo(delay_us: u64) -> String {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = server.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for connection in server.incoming() {
                let mut connection = connection.unwrap();
                std::thread::spawn(move || {
                    let mut other = connection.try_clone().unwrap();
                    std::io::copy(&mut connection, &mut other)
                });
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = listener.local_addr().unwrap().to_string();
        let distance = Distance { listen: listen.clone(), to, delay_us };
        std::thread::spawn(move || distance.accept(&listener));
        listen
    }

    #[test]
    fn requests_arrive_later_and_in_order_and_side_by_side() {
        let address = echo(50_000);
        let mut connection = TcpStream::connect(&address).unwrap();
        let begun = Instant::now();
        // A thousand requests on the way at once take the time of one.
        let sent: Vec<u8> = (0..1000u32).flat_map(u32::to_le_bytes).collect();
        for piece in sent.chunks(4) {
            connection.write_all(piece).unwrap();
        }
        let mut back = vec![0; sent.len()];
        connection.read_exact(&mut back).unwrap();
        let took = begun.elapsed();
        assert_eq!(back, sent);
        assert!(took >= Duration::from_millis(50), "{took:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }

    #[test]
    fn an_end_of_the_client_ends_the_server_side_after_the_last_byte() {
        let address = echo(1000);
        let mut connection = TcpStream::connect(&address).unwrap();
        connection.write_all(b"last").unwrap();
        connection.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        connection.read_to_end(&mut back).unwrap();
        assert_eq!(back, b"last");
        // No server behind: the client's connection is closed.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = listener.local_addr().unwrap().to_string();
        let distance =
            Distance { listen: listen.clone(), to: "127.0.0.1:1".to_owned(), delay_us: 0 };
        std::thread::spawn(move || distance.accept(&listener));
        let mut connection = TcpStream::connect(listen).unwrap();
        assert!(matches!(connection.read(&mut [0; 8]), Ok(0) | Err(_)));
    }
}
