//! A server's bytes in any chunking: the scanner agrees with its naive twin, and what reads whole
//! replies reads any bytes.

#![no_main]

#[path = "../../crates/memcached/tests/naive/mod.rs"]
mod naive;

use libfuzzer_sys::fuzz_target;
use memcached::{Expect, Limits, Parsed};

// Input: `[expected kind and bounds, chunk]`, then the stream.
fuzz_target!(|data: &[u8]| {
    let [first, second, stream @ ..] = data else { return };
    let limits = if first & 1 == 0 { naive::SMALL } else { Limits::default() };
    let expect = match first >> 1 & 7 {
        0 => Expect::Values,
        1 => Expect::Line,
        2 => Expect::Lines,
        3 => Expect::Meta { get: true },
        _ => Expect::Meta { get: false },
    };
    let cuts = [usize::from(first >> 4) + 1, usize::from(*second) + 1];
    let said = naive::first_reply(stream, expect, &limits);
    assert_eq!(naive::first_reply_in_chunks(stream, expect, &cuts, &limits), said);
    if let (naive::FirstReply::Reply(reply), Expect::Values) = (said, expect) {
        let values: Vec<_> = memcached::values(&stream[..reply.bytes]).collect();
        assert_eq!(values.len(), reply.hits as usize);
    }
    let mut sent = Vec::new();
    if memcached::put_copy(stream, b"key", false, first & 1 == 0, &mut sent) {
        let unbounded = Limits { value_bytes_max: 1 << 30, ..Limits::default() };
        let Parsed::Request(request) = memcached::parse(&sent, &unbounded) else {
            panic!("{}", sent.escape_ascii());
        };
        assert_eq!(request.whole.len(), sent.len());
    } else {
        assert!(sent.is_empty());
    }
});
