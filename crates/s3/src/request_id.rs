//! The id of a request, by which a client and the log speak of the same one: in the reply's header, in the body of an error, in the
//! log.

use std::cell::Cell;

use http::{HeaderName, HeaderValue};

/// The header with the id of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// What is added for each request: odd, so that a thread repeats no id, and without a pattern in the digits (2⁶⁴ over the golden
/// ratio, as in SplitMix64).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

thread_local! {
    /// The last id of this thread. Each begins at a random place, so that threads and processes do not meet.
    static LAST: Cell<u64> = Cell::new(rand::random());
}

/// 16 hexadecimal digits. Drawn for each GET that memory answers, and so without an allocation and without a lock: a random number
/// and its text took more than the rest of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId([u8; 16]);

impl RequestId {
    /// The next id.
    pub fn draw() -> RequestId {
        let number = LAST.get().wrapping_add(STEP);
        LAST.set(number);
        let mut digits = [b'0'; 16];
        for (at, digit) in digits.iter_mut().enumerate() {
            let nibble = (number >> (60 - 4 * at)) as usize & 0xf;
            *digit = b"0123456789ABCDEF"[nibble];
        }
        RequestId(digits)
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        // They are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Its text in a header.
    pub fn header(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(&self.0).ok()
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_differ_and_are_sixteen_digits() {
        let thread = || {
            std::thread::spawn(|| {
                (0..1000).map(|_| RequestId::draw().to_string()).collect::<Vec<_>>()
            })
        };
        let ids = [thread(), thread()].into_iter().flat_map(|it| it.join().unwrap());
        let all: HashSet<String> = ids.collect();
        assert_eq!(all.len(), 2000);
        for id in &all {
            assert!(
                id.len() == 16
                    && id.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b)),
                "{id}"
            );
        }
        let id = RequestId::draw();
        LAST.set(LAST.get().wrapping_sub(STEP));
        assert_eq!(id, RequestId::draw());
        assert_eq!(id.as_str(), format!("{:016X}", LAST.get()));
        assert_eq!(id.header().unwrap(), id.as_str());
    }
}
