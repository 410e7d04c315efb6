//! Streams: many slow readers at a bit rate, as players of music or video, and how often they stall.
//!
//! A stream reads object after object on one connection. Its player starts when it has
//! [`Streams::start_s`] seconds of bytes, plays at the bit rate, and *stalls* when it has played all
//! that came; it goes on when it has as many seconds again. The stream reads at most
//! [`Streams::ahead_s`] seconds ahead of the player, so that the server meets a slow reader.
//!
//! Threads share the streams and look at each when it is due: a stream that reads as far ahead as it may, when
//! there is room for a quarter of that again; one that waits for bytes, after a quarter of what its player has left, and
//! at least every second. So thousands of streams cost a thread little, and a stall is seen within [`LOOK`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ground::window::{Nanos, Operation, SECOND};
use record::clock;
use serde::Serialize;

use super::arrivals::Part;
use super::client::Target;
use super::error::Error;
use super::keys::KeySource;
use super::plan::Plan;
use super::reach::check_reachable;
use super::run::raise_files;

/// The shortest time between two looks at a stream.
pub const LOOK: Duration = Duration::from_millis(50);
/// The longest time between two looks at a stream that waits for bytes.
const LOOK_MAX: Nanos = SECOND;
/// The part of what a stream may read ahead for which it reads again.
const PART: f64 = 0.25;
/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// The longest head of a reply.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A load of streams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streams {
    /// Number of streams.
    pub count: usize,
    /// Bits per second of each.
    pub bits_per_s: f64,
    /// How long they play, seconds. They begin evenly over the first quarter.
    pub seconds: f64,
    /// Seconds of bytes with which a player starts, and goes on after a stall.
    pub start_s: f64,
    /// Seconds that a stream reads ahead of its player.
    pub ahead_s: f64,
}

/// What the players met.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stalls {
    /// Streams that began.
    pub streams: u64,
    /// Streams that played to the end without a stall.
    pub without_stall: u64,
    /// Stalls of all streams.
    pub stalls: u64,
    /// Seconds in which a player stalled, of all streams.
    pub stalled_s: f64,
    /// Seconds that players played, of all streams.
    pub played_s: f64,
    /// Streams that ended by an error.
    pub failed: u64,
    /// The first error.
    pub error: Option<String>,
    /// Bytes of objects that were received.
    pub bytes: u64,
    /// Objects that were received to their end.
    pub objects: u64,
    /// The longest time from a request to its reply's first byte, seconds.
    pub first_byte_max_s: f64,
}

/// Plays streams of the keys of a plan. `stop` ends them early.
///
/// # Errors
/// If the plan's service is not plain HTTP, its keys cannot be read, or the numbers make no sense.
pub fn streams(plan: &Plan, streams: Streams, stop: &AtomicBool) -> Result<Stalls, Error> {
    let invalid = |reason: String| Err(Error::Streams { reason });
    if streams.count == 0 {
        return invalid("at least one stream".to_owned());
    }
    for (name, value) in [
        ("the bit rate", streams.bits_per_s),
        ("the duration", streams.seconds),
        ("the seconds at the start", streams.start_s),
    ] {
        if !value.is_finite() || value <= 0.0 {
            return invalid(format!("{name} must be above 0, not {value}"));
        }
    }
    if streams.ahead_s.is_nan() || streams.ahead_s < streams.start_s {
        return invalid("a stream must read ahead as much as it starts with".to_owned());
    }
    let target = plan.target()?;
    let http = !target.is_memcached() && target.files().is_none();
    if !http || target.is_secure() || target.streams().is_some() || !plan.http.requests.is_empty() {
        return invalid(
            "streams need a service at http://, by HTTP/1.1 and without a list of requests"
                .to_owned(),
        );
    }
    check_reachable(&target)?;
    let (fit, complaint) = raise_files(streams.count);
    if fit < streams.count {
        return invalid(complaint.unwrap_or_default());
    }
    let keys = KeySource::open(&plan.keys, 1)?;
    let threads = plan.threads.clamp(1, streams.count);
    let start = clock::now();
    let parts = std::thread::scope(|scope| {
        let run = |thread: usize| {
            let (target, keys) = (&target, &keys);
            scope.spawn(move || {
                let own = (thread..streams.count).step_by(threads);
                let run = Run { plan, streams, target, keys, start };
                run.play(own.collect(), stop)
            })
        };
        let threads: Vec<_> = (0..threads).map(run).collect();
        threads.into_iter().map(|thread| thread.join().ok()).collect::<Option<Vec<Stalls>>>()
    });
    let mut all = Stalls::default();
    parts.ok_or(Error::Panicked)?.iter().for_each(|part| all.add(part));
    Ok(all)
}

impl Stalls {
    fn add(&mut self, other: &Stalls) {
        self.streams += other.streams;
        self.without_stall += other.without_stall;
        self.stalls += other.stalls;
        self.stalled_s += other.stalled_s;
        self.played_s += other.played_s;
        self.failed += other.failed;
        self.bytes += other.bytes;
        self.objects += other.objects;
        self.error = self.error.take().or_else(|| other.error.clone());
        self.first_byte_max_s = self.first_byte_max_s.max(other.first_byte_max_s);
    }
}

/// What all streams of a thread share.
struct Run<'a> {
    plan: &'a Plan,
    streams: Streams,
    target: &'a Target,
    keys: &'a KeySource,
    start: Nanos,
}

struct Stream {
    number: usize,
    begins: Nanos,
    connection: Option<TcpStream>,
    requests: u64,
    asked: Nanos,
    head: Vec<u8>,
    /// Bytes of the current object that are still to come; `None` before its head is read.
    left: Option<u64>,
    player: Player,
    first_byte_max: Nanos,
    bytes: u64,
    objects: u64,
    error: Option<String>,
}

/// Plays bytes at a rate.
#[derive(Debug)]
struct Player {
    bytes_per_s: f64,
    start_bytes: f64,
    received: f64,
    played: f64,
    playing: bool,
    /// It has started once: a wait from then on is a stall.
    started: bool,
    at: Nanos,
    stalls: u64,
    stalled: Nanos,
}

impl Player {
    fn new(streams: &Streams, now: Nanos) -> Player {
        let bytes_per_s = streams.bits_per_s / 8.0;
        Player {
            bytes_per_s,
            start_bytes: bytes_per_s * streams.start_s,
            received: 0.0,
            played: 0.0,
            playing: false,
            started: false,
            at: now,
            stalls: 0,
            stalled: 0,
        }
    }

    /// Time has passed, and then `bytes` came.
    fn advance(&mut self, now: Nanos, bytes: u64) {
        let past = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        if self.playing {
            let wanted = past as f64 / SECOND as f64 * self.bytes_per_s;
            let there = self.received - self.played;
            self.played += wanted.min(there);
            if wanted > there {
                self.playing = false;
                self.stalls += 1;
                self.stalled += ((wanted - there) / self.bytes_per_s * SECOND as f64) as Nanos;
            }
        } else if self.started {
            self.stalled += past;
        }
        self.received += bytes as f64;
        if !self.playing && self.received - self.played >= self.start_bytes {
            (self.playing, self.started) = (true, true);
        }
    }

    fn ahead_s(&self) -> f64 {
        (self.received - self.played) / self.bytes_per_s
    }
}

impl Run<'_> {
    fn play(&self, numbers: Vec<usize>, stop: &AtomicBool) -> Stalls {
        let seconds = |s: f64| (s * SECOND as f64) as Nanos;
        let ramp = self.streams.seconds / 4.0 / self.streams.count as f64;
        let mut streams: Vec<Stream> = numbers
            .into_iter()
            .map(|number| {
                let begins = self.start + seconds(ramp * number as f64);
                Stream {
                    number,
                    begins,
                    connection: None,
                    requests: 0,
                    asked: begins,
                    head: Vec::new(),
                    left: None,
                    player: Player::new(&self.streams, begins),
                    first_byte_max: 0,
                    bytes: 0,
                    objects: 0,
                    error: None,
                }
            })
            .collect();
        let end = self.start + seconds(self.streams.seconds);
        let mut buffer = vec![0; READ_BYTES];
        let mut due: BinaryHeap<Reverse<(Nanos, usize)>> =
            streams.iter().enumerate().map(|(place, s)| Reverse((s.begins, place))).collect();
        while let Some(&Reverse((at, place))) = due.peek()
            && !stop.load(Ordering::Relaxed)
        {
            let now = clock::now();
            if now >= end {
                break;
            }
            if at > now {
                std::thread::sleep(Duration::from_nanos(at.min(end) - now).min(LOOK));
                continue;
            }
            due.pop();
            let stream = &mut streams[place];
            match self.advance(stream, &mut buffer) {
                Ok(wait) => due.push(Reverse((clock::now() + wait, place))),
                Err(error) => {
                    stream.error = Some(error.to_string());
                    stream.connection = None;
                }
            }
        }
        let mut all = Stalls::default();
        for stream in
            streams.into_iter().filter(|stream| stream.requests > 0 || stream.error.is_some())
        {
            let sound =
                stream.error.is_none() && stream.player.stalls == 0 && stream.player.started;
            all.add(&Stalls {
                streams: 1,
                without_stall: u64::from(sound),
                stalls: stream.player.stalls,
                stalled_s: stream.player.stalled as f64 / SECOND as f64,
                played_s: stream.player.played / stream.player.bytes_per_s,
                failed: u64::from(stream.error.is_some()),
                error: stream.error,
                bytes: stream.bytes,
                objects: stream.objects,
                first_byte_max_s: stream.first_byte_max as f64 / SECOND as f64,
            });
        }
        all
    }

    /// Reads what came, as far as the stream reads ahead, and asks for the next object. Returns when to look again.
    fn advance(&self, stream: &mut Stream, buffer: &mut [u8]) -> io::Result<Nanos> {
        let look = LOOK.as_nanos() as Nanos;
        stream.player.advance(clock::now(), 0);
        if stream.connection.is_none() {
            let timeout = Duration::from_secs_f64(self.plan.timeout_s);
            let connection = TcpStream::connect_timeout(&self.target.addresses.current(), timeout)?;
            connection.set_nodelay(true)?;
            connection.set_nonblocking(true)?;
            stream.connection = Some(connection);
            self.ask(stream)?;
        }
        while stream.player.ahead_s() < self.streams.ahead_s {
            // No more than what is read ahead.
            let room = (self.streams.ahead_s - stream.player.ahead_s()) * stream.player.bytes_per_s;
            let most = (room as usize).clamp(1024, buffer.len());
            let connection = stream.connection.as_mut().ok_or(ErrorKind::NotConnected)?;
            let count = match connection.read(&mut buffer[..most]) {
                Ok(0) => return Err(io::Error::other("the server closed the connection")),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let waited = clock::now().saturating_sub(stream.asked) as f64 / SECOND as f64;
                    if stream.left.is_none() && waited >= self.plan.timeout_s {
                        let late = format!("no reply within {} s", self.plan.timeout_s);
                        return Err(io::Error::other(late));
                    }
                    let left = if stream.player.playing { stream.player.ahead_s() } else { 0.0 };
                    return Ok(((left * PART * SECOND as f64) as Nanos).clamp(look, LOOK_MAX));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.received(stream, &buffer[..count])?;
        }
        // It plays: what it starts with is less than what it reads ahead.
        Ok(((self.streams.ahead_s * PART * SECOND as f64) as Nanos).max(look))
    }

    fn ask(&self, stream: &mut Stream) -> io::Result<()> {
        let (mut key, mut head) = (Vec::new(), Vec::new());
        // Each stream has keys of its own, which do not depend on the threads.
        let index = stream.number as u64 + stream.requests * self.streams.count as u64;
        self.keys.request(Part::Measured, self.plan.seed, index, &mut key);
        self.target.write_head(&mut head, Operation::Get, &key, 0);
        stream.requests += 1;
        stream.asked = clock::now();
        (stream.left, stream.head) = (None, Vec::new());
        // A request is far smaller than an empty send buffer.
        stream.connection.as_mut().ok_or(ErrorKind::NotConnected)?.write_all(&head)?;
        Ok(())
    }

    fn received(&self, stream: &mut Stream, mut bytes: &[u8]) -> io::Result<()> {
        let now = clock::now();
        while !bytes.is_empty() {
            let Some(left) = stream.left else {
                if stream.head.is_empty() {
                    let waited = now.saturating_sub(stream.asked);
                    stream.first_byte_max = stream.first_byte_max.max(waited);
                }
                if stream.head.len() >= HEAD_BYTES_MAX {
                    return Err(io::Error::other("the head of a reply is too long"));
                }
                let before = stream.head.len();
                stream.head.extend_from_slice(bytes);
                let Some((end, length)) = body_of(&stream.head)? else { return Ok(()) };
                bytes = &bytes[end.saturating_sub(before)..];
                stream.left = Some(length);
                if length == 0 {
                    self.next(stream)?;
                }
                continue;
            };
            let part = left.min(bytes.len() as u64);
            stream.player.advance(now, part);
            stream.bytes += part;
            stream.left = Some(left - part);
            bytes = &bytes[part as usize..];
            if left == part {
                self.next(stream)?;
            }
        }
        Ok(())
    }

    fn next(&self, stream: &mut Stream) -> io::Result<()> {
        stream.objects += 1;
        self.ask(stream)
    }
}

/// Where the body begins and how long it is; `None` if the head is not complete.
fn body_of(head: &[u8]) -> io::Result<Option<(usize, u64)>> {
    // A line has three bytes at least.
    let mut headers = vec![httparse::EMPTY_HEADER; head.len() / 3 + 1];
    let mut reply = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(end) = reply.parse(head).map_err(io::Error::other)? else {
        return Ok(None);
    };
    let status = reply.code.unwrap_or(0);
    if !matches!(status, 200 | 206) {
        return Err(io::Error::other(format!("the server replied {status}")));
    }
    let length = reply.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
    let length = length.ok_or_else(|| io::Error::other("a reply without content-length"))?;
    let length = std::str::from_utf8(length.value).map_err(io::Error::other)?;
    let length = length.trim().parse().map_err(io::Error::other)?;
    Ok(Some((end, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAMS: Streams =
        Streams { count: 1, bits_per_s: 8000.0, seconds: 10.0, start_s: 2.0, ahead_s: 5.0 };

    #[test]
    fn a_player_stalls_when_it_has_played_what_came() {
        let mut player = Player::new(&STREAMS, 0);
        player.advance(SECOND, 1999);
        assert!(!player.playing);
        player.advance(2 * SECOND, 1);
        assert!(player.playing && player.stalls == 0);
        player.advance(3 * SECOND, 500);
        assert_eq!((player.played, player.ahead_s()), (1000.0, 1.5));
        // It has 1.5 s left; half a second later it stalls, and goes on with two seconds more.
        player.advance(5 * SECOND, 0);
        assert_eq!((player.stalls, player.playing, player.stalled), (1, false, SECOND / 2));
        player.advance(6 * SECOND, 1000);
        assert_eq!(player.stalled, 3 * SECOND / 2);
        player.advance(7 * SECOND, 1000);
        assert!(player.playing);
        player.advance(8 * SECOND, 0);
        assert_eq!((player.stalls, player.played), (1, 3500.0));
    }

    #[test]
    fn heads_are_read_in_pieces_and_errors_are_told() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n";
        assert_eq!(body_of(&head[..20]).unwrap(), None);
        assert_eq!(body_of(head).unwrap(), Some((head.len(), 12)));
        let missing = body_of(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(missing.unwrap_err().to_string(), "the server replied 404");
        assert!(body_of(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
