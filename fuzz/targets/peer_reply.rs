//! Any bytes as the head of another process's reply, in any two pieces: it ends the same, within the limits.

#![no_main]

/// What the client has.
mod limits {
    pub struct Limits {
        pub head_bytes_max: usize,
        pub body_bytes_max: u64,
    }
}

/// What the client has.
mod fault {
    #[derive(Debug)]
    pub enum Fault {
        Malformed(String),
    }
}

use fault::Fault;
use limits::Limits;

// By its path, because the crate of the servers would be most of the build.
#[path = "../../crates/peer/src/reply.rs"]
mod reply;

/// The end of a head that arrives in pieces: `None` if it is not there yet or malformed.
fn head(pieces: &[&[u8]], bodiless: bool) -> Option<(u16, usize, u64, bool, usize)> {
    let limits = Limits { head_bytes_max: 256, body_bytes_max: 1 << 40 };
    let mut buffer = bytes::BytesMut::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        let before = buffer.len();
        match reply::parse(&mut buffer, bodiless, &limits) {
            Ok(None) => {}
            Ok(Some(head)) => {
                assert!(head.length <= limits.body_bytes_max);
                assert!(head.headers.len() <= reply::HEADERS_MAX);
                assert!(!bodiless || head.length == 0);
                let taken = before - buffer.len();
                assert!((1..=limits.head_bytes_max).contains(&taken));
                let of = (head.status.as_u16(), head.headers.len(), head.length);
                return Some((of.0, of.1, of.2, head.keep_alive, taken));
            }
            Err(Fault::Malformed(what)) => {
                assert!(!what.is_empty());
                return None;
            }
        }
    }
    None
}

use libfuzzer_sys::fuzz_target;

// Input: where it is cut and whether it is the reply to a HEAD, then the bytes.
fuzz_target!(|data: &[u8]| {
    let [first, bytes @ ..] = data else { return };
    let (bodiless, cut) = (first & 1 == 1, usize::from(first >> 1) % (bytes.len() + 1));
    let whole = head(&[bytes], bodiless);
    let (one, two) = bytes.split_at(cut);
    if let Some(whole) = whole {
        assert_eq!(head(&[one, two], bodiless), Some(whole));
    }
});
