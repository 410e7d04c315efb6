//! A client's bytes in any chunking: the parser agrees with its naive twin.

#![no_main]

#[path = "../../crates/memcached/tests/naive/mod.rs"]
mod naive;

use libfuzzer_sys::fuzz_target;
use memcached::Limits;

// Input: `[bounds and chunk, chunk]`, then the stream.
fuzz_target!(|data: &[u8]| {
    let [first, second, stream @ ..] = data else { return };
    let limits = if first & 1 == 0 { naive::SMALL } else { Limits::default() };
    let cuts = [usize::from(first >> 1) + 1, usize::from(*second) + 1];
    let expected = naive::items(stream, &limits);
    assert_eq!(naive::in_chunks(stream, &cuts, &limits), expected);
    for item in &expected {
        let naive::Item::Request { whole, .. } = item else { continue };
        let memcached::Parsed::Request(request) = memcached::parse(whole, &limits) else {
            panic!("not a request by itself");
        };
        // What a server is sent is one request too, to which it replies.
        let mut sent = Vec::new();
        request.put_answered(&mut sent);
        let memcached::Parsed::Request(again) = memcached::parse(&sent, &limits) else {
            panic!("{}", sent.escape_ascii());
        };
        assert!(again.whole.len() == sent.len() && !again.noreply && !again.quiet);
        assert!(again.verb == request.verb && again.keys().eq(request.keys()));
        assert_eq!(again.value(), request.value());
    }
});
