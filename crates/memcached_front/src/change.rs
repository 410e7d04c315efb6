//! Commands that change a value in place. Each reads the value and writes the new one on the condition
//! that the value is still the one that was read; otherwise it begins again.

use std::borrow::Cow;

use ground::Key;
use memcached::{Request, Verb};

use super::values::{self, Mode, NewValue, Stored};
use super::{END, Session, Then, To, Value};
use store::{Error, Freshness, ReadRequest};

/// How often a change begins again: so many others would have to change the value meanwhile.
const ATTEMPTS: u32 = 1000;

/// What becomes of a value.
enum Change<'a> {
    /// Another value with the flags and the expiry of the old one; and what the client is told.
    Value(Cow<'a, [u8]>),
    /// The same value with this expiry.
    Expiry(i64),
    /// Nothing: the client is told so.
    Refused(&'static [u8]),
}

/// The longest value that is taken for a number.
const NUMBER_BYTES_MAX: usize = 20;

/// What became of a change.
struct Changed {
    /// The value that was read.
    old: Value,
    /// The refusal, if there was one.
    refused: Option<&'static [u8]>,
}

impl Session {
    /// Changes a value; `None` if there is none.
    async fn change<'a>(
        &self,
        key: &[u8],
        to: impl Fn(&Value) -> Change<'a>,
    ) -> Result<Option<Changed>, Error> {
        let mut read = ReadRequest::get(Key::from(key));
        for attempt in 0..ATTEMPTS {
            // What is held may be behind what others have written to the origin, and would be compared in vain.
            if attempt > 1 {
                read.freshness = Freshness::Origin;
            }
            let Some(old) = self.read(&read).await? else { return Ok(None) };
            let (flags, expires) =
                (values::flags(&old.version), values::expires(&old.version).unwrap_or(0));
            let mode = Mode::Cas(values::cas_of(&old.version.etag));
            let new = match to(&old) {
                Change::Refused(line) => return Ok(Some(Changed { old, refused: Some(line) })),
                Change::Value(bytes) => NewValue { bytes, flags, exptime: expires },
                Change::Expiry(exptime) => {
                    NewValue { bytes: Cow::Borrowed(&old.bytes), flags, exptime }
                }
            };
            match self.write(key, &new, mode).await? {
                Stored::Yes(_) => return Ok(Some(Changed { old, refused: None })),
                Stored::NotFound => return Ok(None),
                Stored::No | Stored::Exists => {}
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

    /// `append`, `prepend`: the flags and the expiry of the request do not count.
    pub(super) async fn join(&mut self, request: &Request<'_>) {
        let max = self.store.front().config.memcached.value_bytes_max.0 as usize;
        let change = |value: &Value| {
            let (old, more): (&[u8], &[u8]) = (&value.bytes, request.value());
            if old.len() + more.len() > max {
                return Change::Refused(b"SERVER_ERROR object too large for cache\r\n");
            }
            let parts = if request.verb == Verb::Append { [old, more] } else { [more, old] };
            Change::Value(parts.concat().into())
        };
        let changed = self.change(request.key(), change).await;
        self.tell(&changed, b"STORED\r\n", b"NOT_STORED\r\n");
    }

    /// `incr`, `decr`.
    pub(super) async fn count(&mut self, request: &Request<'_>) {
        let delta = number(request.arguments()).unwrap_or(0);
        let next = |value: &Value| {
            // As memcached: what is longer is no number, whatever blanks are behind it.
            let text = Some(&value.bytes[..]).filter(|text| text.len() <= NUMBER_BYTES_MAX)?;
            let old = number(text.trim_ascii_end())?;
            Some(match request.verb {
                Verb::Incr => old.wrapping_add(delta),
                _ => old.saturating_sub(delta),
            })
        };
        let change = |value: &Value| match next(value) {
            // As memcached: a number that became shorter keeps its length.
            Some(number) => {
                let width = value.bytes.len();
                Change::Value(format!("{number:<width$}").into_bytes().into())
            }
            None => {
                Change::Refused(b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n")
            }
        };
        let changed = self.change(request.key(), change).await;
        let old = changed.as_ref().ok().and_then(Option::as_ref).map(|changed| &changed.old);
        let number = old.and_then(next);
        let line = number.map(|number| format!("{number}\r\n")).unwrap_or_default();
        self.tell(&changed, line.as_bytes(), b"NOT_FOUND\r\n");
    }

    /// `touch KEY EXPTIME`.
    pub(super) async fn touch(&mut self, request: &Request<'_>) {
        let exptime = exptime(request);
        let changed = self.change(request.key(), |_| Change::Expiry(exptime)).await;
        self.tell(&changed, b"TOUCHED\r\n", b"NOT_FOUND\r\n");
    }

    /// `gat EXPTIME KEY*`, `gats EXPTIME KEY*`.
    pub(super) async fn get_and_touch(&mut self, request: &Request<'_>, to: &mut To<'_>) -> Then {
        let (mut start, exptime) = (self.out.len(), exptime(request));
        for key in request.keys() {
            let changed = match self.change(key, |_| Change::Expiry(exptime)).await {
                Ok(None) => continue,
                // With the number that the value has now.
                Ok(Some(Changed { old, .. })) if request.verb == Verb::Gats => {
                    let new = self.read(&ReadRequest::get(Key::from(key))).await;
                    new.map(|new| new.unwrap_or(old))
                }
                Ok(Some(Changed { old, .. })) => Ok(old),
                Err(error) => Err(error),
            };
            match changed {
                Ok(value) => self.put_value(key, &value, request.verb == Verb::Gats),
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

    /// `flush_all`: drops a node's copies. A cache is empty then; what is in the origin remains.
    pub(super) fn flush(&mut self, request: &Request<'_>) {
        let delay = std::str::from_utf8(request.arguments().trim_ascii()).unwrap_or_default();
        if !matches!(delay, "" | "0") {
            let line = b"CLIENT_ERROR a Concertina node has no delayed flush_all\r\n";
            return self.out.extend_from_slice(line);
        }
        match self.store.clear() {
            Ok(()) => self.out.extend_from_slice(b"OK\r\n"),
            Err(error) => {
                let line = format!("CLIENT_ERROR {}\r\n", error.text());
                self.out.extend_from_slice(line.as_bytes());
            }
        }
    }
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii_end();
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| plain)?.parse().ok()
}

fn exptime(request: &Request<'_>) -> i64 {
    let text = std::str::from_utf8(request.arguments().trim_ascii()).unwrap_or_default();
    text.parse().unwrap_or(0)
}
