//! Commands that change a value in place. Each reads the value and writes the new one on the condition
//! that the value is still the one that was read; otherwise it begins again.

use std::sync::PoisonError;
use std::time::Duration;

use bytes::Bytes;
use ground::Key;
use memcached::{Request, Verb};

use super::counts::Count;
use super::notes::{Notes, expiry, number_of, unix_s};
use super::values::{Mode, NewValue, Stored};
use super::{END, Session, Then, To, Value};
use store::{Error, Freshness, ReadRequest};

/// How often a change begins again: so many others would have to change the value meanwhile.
const ATTEMPTS: u32 = 1000;

pub(super) const NOT_NUMERIC: &[u8] =
    b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
pub(super) const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";

/// What becomes of a value.
pub(super) enum Change {
    /// This is stored in its place.
    Into(NewValue),
    /// Nothing: the client is told so.
    Refused(&'static [u8]),
}

/// What became of a change.
pub(super) struct Changed {
    /// The value that was read.
    pub(super) old: Value,
    /// The number that the value has now.
    pub(super) number: u64,
    /// The refusal, if there was one.
    pub(super) refused: Option<&'static [u8]>,
}

impl Value {
    /// The same bytes with other notes. Copied: the old ones may be a part of a larger buffer, which they would keep.
    pub(super) fn with(&self, notes: Notes) -> NewValue {
        NewValue { bytes: Bytes::copy_from_slice(&self.bytes), notes }
    }

    /// The same value that expires at another time; with its number, as in memcached, whose `touch` does not change it.
    pub(super) fn touched(&self, expires: Option<i64>) -> NewValue {
        let number = Some(number_of(&self.version));
        self.with(Notes { expires, number, ..Notes::read(&self.version) })
    }

    /// Other bytes with the flags and the expiry of the old ones.
    pub(super) fn replaced(&self, bytes: Vec<u8>) -> NewValue {
        let Notes { flags, expires, .. } = Notes::read(&self.version);
        NewValue { bytes: bytes.into(), notes: Notes { flags, expires, ..Notes::default() } }
    }

    /// The bytes with others behind them (or before them).
    pub(super) fn joined(&self, more: &[u8], behind: bool, bytes_max: usize) -> Change {
        if self.bytes.len() + more.len() > bytes_max {
            return Change::Refused(TOO_LARGE);
        }
        let parts = if behind { [&self.bytes[..], more] } else { [more, &self.bytes[..]] };
        Change::Into(self.replaced(parts.concat()))
    }
}

impl Session {
    /// Changes a value; `None` if there is none.
    pub(super) async fn change(
        &self,
        key: &[u8],
        to: impl Fn(&Value) -> Change,
    ) -> Result<Option<Changed>, Error> {
        let mut read = ReadRequest::get(Key::from(key));
        for attempt in 0..ATTEMPTS {
            // What is held may be behind what others have written to the origin, and would be compared in vain.
            if attempt > 1 {
                read.freshness = Freshness::Origin;
            }
            let Some(old) = self.read(&read).await? else { return Ok(None) };
            let new = match to(&old) {
                Change::Refused(line) => {
                    let number = number_of(&old.version);
                    return Ok(Some(Changed { old, number, refused: Some(line) }));
                }
                Change::Into(new) => new,
            };
            let mode = Mode::Version(old.version.etag.clone());
            if let Stored::Yes(number) = self.write(key, new, &mode).await? {
                return Ok(Some(Changed { old, number, refused: None }));
            }
        }
        Err(Error::busy("writes"))
    }

    fn tell(&mut self, changed: &Result<Option<Changed>, Error>, done: &[u8], none: &[u8]) {
        let line = match changed {
            Ok(Some(changed)) => changed.refused.unwrap_or(done),
            Ok(None) => none,
            Err(error) => return self.fail(error),
        };
        self.out.extend_from_slice(line);
    }

    /// The longest value that is stored.
    pub(super) fn stored_bytes_max(&self) -> usize {
        self.store.front().config.memcached.value_bytes_max.0 as usize
    }

    /// `append`, `prepend`: the flags and the expiry of the request do not count.
    pub(super) async fn join(&mut self, request: &Request<'_>) {
        let (behind, max) = (request.verb == Verb::Append, self.stored_bytes_max());
        let change = |value: &Value| value.joined(request.value(), behind, max);
        let changed = self.change(request.key(), change).await;
        self.tell(&changed, b"STORED\r\n", b"NOT_STORED\r\n");
    }

    /// `incr`, `decr`.
    pub(super) async fn count(&mut self, request: &Request<'_>) {
        let text = std::str::from_utf8(request.arguments().trim_ascii()).unwrap_or_default();
        let (up, delta) = (request.verb == Verb::Incr, text.parse().unwrap_or(0));
        let change = |value: &Value| value.counted(up, delta);
        let changed = self.change(request.key(), change).await;
        let old = changed.as_ref().ok().and_then(Option::as_ref).map(|changed| &changed.old);
        let number = old.and_then(|value| next_number(&value.bytes, up, delta));
        let line = number.map(|number| format!("{number}\r\n")).unwrap_or_default();
        self.tell(&changed, line.as_bytes(), b"NOT_FOUND\r\n");
    }

    /// `touch KEY EXPTIME`.
    pub(super) async fn touch(&mut self, request: &Request<'_>) {
        let expires = expiry(exptime(request));
        let change = |value: &Value| Change::Into(value.touched(expires));
        let changed = self.change(request.key(), change).await;
        self.tell(&changed, b"TOUCHED\r\n", b"NOT_FOUND\r\n");
    }

    /// `gat EXPTIME KEY*`, `gats EXPTIME KEY*`.
    pub(super) async fn get_and_touch(&mut self, request: &Request<'_>, to: &mut To<'_>) -> Then {
        let (mut start, expires) = (self.out.len(), expiry(exptime(request)));
        for key in request.keys() {
            let touched = self.change(key, |value| Change::Into(value.touched(expires))).await;
            match touched {
                Ok(None) => {
                    self.note(Count::GetMiss, 1);
                    self.note(Count::TouchMiss, 1);
                    continue;
                }
                Ok(Some(Changed { old, number, .. })) => {
                    self.note(Count::GetHit, 1);
                    self.note(Count::TouchHit, 1);
                    self.put_value(key, &old, (request.verb == Verb::Gats).then_some(number));
                }
                Err(error) => {
                    self.out.truncate(start);
                    self.fail(&error);
                    return Then::GoOn;
                }
            }
            if self.send_much(to, &mut start).await == Then::Close {
                return Then::Close;
            }
        }
        self.out.extend_from_slice(END);
        Then::GoOn
    }

    /// `flush_all [DELAY]`: drops a node's copies, at once or later. A cache is empty then; what is in the origin remains.
    pub(super) fn flush(&mut self, request: &Request<'_>) {
        let delay = match exptime(request) {
            ..=0 => 0,
            exptime => expiry(exptime).map_or(0, |at| (at - unix_s()).max(0)),
        };
        let mut pending = self.shared.flush.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = pending.take() {
            earlier.abort();
        }
        // Where nothing can be dropped the client is told so now.
        if delay == 0 || !self.store.has_memory() {
            drop(pending);
            if let Err(error) = self.store.clear() {
                let line = format!("CLIENT_ERROR {}\r\n", error.text());
                return self.out.extend_from_slice(line.as_bytes());
            }
        } else {
            let store = self.store.clone();
            let later = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(delay.unsigned_abs())).await;
                // A node has no reason to refuse it.
                let _ = store.clear();
            });
            *pending = Some(later.abort_handle());
        }
        self.out.extend_from_slice(b"OK\r\n");
    }
}

impl Value {
    /// The value after `incr` or `decr`.
    pub(super) fn counted(&self, up: bool, delta: u64) -> Change {
        match next_number(&self.bytes, up, delta) {
            // As memcached: a number that became shorter keeps its length.
            Some(number) => Change::Into(self.replaced(padded(number, self.bytes.len()))),
            None => Change::Refused(NOT_NUMERIC),
        }
    }
}

/// A number with blanks up to a length. (A width of `format!` panics from 65,536 on.)
fn padded(number: u64, length: usize) -> Vec<u8> {
    let mut text = number.to_string().into_bytes();
    text.resize(text.len().max(length), b' ');
    text
}

/// The number that follows the one in a value: past the largest it begins again, below 0 it stays there.
pub(super) fn next_number(value: &[u8], up: bool, delta: u64) -> Option<u64> {
    let old = leading_number(value)?;
    Some(if up { old.wrapping_add(delta) } else { old.saturating_sub(delta) })
}

/// The number at the beginning of a value, as memcached's `safe_strtoull` reads it: white space and a plus sign may precede
/// it, white space with anything behind it may follow. (Values that have white space alone are 0 to memcached by an accident of
/// C, and negative ones that wrap; here both are no numbers.)
fn leading_number(value: &[u8]) -> Option<u64> {
    // `isspace` of C, which has the vertical tab too.
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = value.iter().position(|byte| !is_space(byte))?;
    let text = &value[start..];
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let (digits, rest) = text.split_at(text.iter().take_while(|b| b.is_ascii_digit()).count());
    if !rest.first().is_none_or(is_space) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The expiry of `touch` and `gat`, or the delay of `flush_all`.
fn exptime(request: &Request<'_>) -> i64 {
    let text = std::str::from_utf8(request.arguments().trim_ascii()).unwrap_or_default();
    text.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{leading_number, next_number, padded};

    #[test]
    fn a_number_is_read_as_memcached_reads_it() {
        let rows: [(&[u8], Option<u64>); 14] = [
            (b"41", Some(41)),
            (b" 41", Some(41)),
            (b"\t\n\x0b 41  ", Some(41)),
            (b"+41", Some(41)),
            (b"0000000000000000000000041", Some(41)),
            (b"1 2", Some(1)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"", None),
            (b"  ", None),
            (b"-1", None),
            (b"1a", None),
            (b"a", None),
            (b"+ 1", None),
        ];
        for (value, expected) in rows {
            assert_eq!(leading_number(value), expected, "{value:?}");
        }
        assert_eq!(next_number(b"18446744073709551615", true, 2), Some(1));
        assert_eq!(next_number(b"10", false, 11), Some(0));
    }

    #[test]
    fn a_number_keeps_its_length_whatever_that_is() {
        assert_eq!(padded(9, 2), b"9 ");
        assert_eq!(padded(100, 2), b"100");
        for length in [65_535, 65_536, 1 << 20] {
            let text = padded(6, length);
            assert_eq!((text.len(), &text[..2]), (length, &b"6 "[..]));
        }
    }
}
