//! Any bytes at the front of a connection: what the path of plain reads approved before changes nothing, and pieces
//! end as the whole does.

#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;
use serve::fuzzing::{Approved, Front, front};

const MAX: usize = 512;
const SEEDS: [&[u8]; 3] = [
    b"GET /objects/a/b-c HTTP/1.1\r\nhost: x\r\naccept: */*\r\n\r\nGET /objects/c HTTP/1.1\r\nhost: x\r\naccept: */*\r\n\r\n",
    b"PUT /objects/k HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nabcdeHEAD /objects/k HTTP/1.1\r\nhost: x\r\n\r\n",
    b"GET /objects/k HTTP/1.1\r\nhost: x\r\nrange: bytes=0-1\r\nconnection: keep-alive\r\n\r\n",
];

/// Everything that is seen on a connection whose bytes are all there.
fn fronts_seen(mut bytes: &[u8], approved: &mut Approved, fresh: bool) -> Vec<Front> {
    let mut all = Vec::new();
    loop {
        if fresh {
            *approved = Approved::default();
        }
        let found = front(bytes, approved, MAX);
        let length = match &found {
            Front::Plain(_, key, length) => {
                assert!(!key.is_empty() && *length <= bytes.len());
                *length
            }
            Front::Other(length) => usize::try_from(*length).unwrap_or(usize::MAX),
            _ => 0,
        };
        all.push(found);
        match bytes.get(length..) {
            Some(rest) if length > 0 && !rest.is_empty() => bytes = rest,
            _ => return all,
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let bytes = edits::edited(&SEEDS, data);
    let whole = fronts_seen(&bytes, &mut Approved::default(), true);
    assert_eq!(fronts_seen(&bytes, &mut Approved::default(), false), whole);
    // Of a part nothing else is said than of the whole, unless its end is not there yet.
    for end in [bytes.len() / 3, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        match front(&bytes[..end], &mut Approved::default(), MAX) {
            Front::Part => {}
            part => assert_eq!(Some(&part), whole.first()),
        }
    }
});
