//! Commands that change a value in place. Each reads the value and writes the new one on the condition
//! that the value is still the one that was read; otherwise it begins again.

use std::borrow::Cow;

use engine::node::Event;
use ground::window::Operation;
use memcached::{Request, Verb};
use record::clock;

use super::store::{self, Mode, Stored};
use super::{END, Session, Then, To};
use device::object::Object;
use wire::problem::Problem;

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

/// What became of it: the value that was read, and the refusal if there was one.
type Changed = Option<(Object, Option<&'static [u8]>)>;

impl Session {
    /// Changes a value; `None` if there is none.
    async fn change<'a>(
        &self,
        key: &[u8],
        to: impl Fn(&Object) -> Change<'a>,
    ) -> Result<Changed, Problem> {
        for _ in 0..ATTEMPTS {
            let Some(object) = self.read(key, Operation::Get).await? else { return Ok(None) };
            let metadata = object.metadata();
            let (flags, expires) = (store::flags(metadata), store::expires(metadata).unwrap_or(0));
            let mode = Mode::Cas(store::cas_of(&metadata.etag));
            let stored = match to(&object) {
                Change::Refused(line) => return Ok(Some((object, Some(line)))),
                Change::Value(value) => self.write(key, &value, flags, expires, mode).await?,
                Change::Expiry(exptime) => {
                    self.write(key, object.body(), flags, exptime, mode).await?
                }
            };
            match stored {
                Stored::Yes(_) => return Ok(Some((object, None))),
                Stored::NotFound => return Ok(None),
                Stored::No | Stored::Exists => {}
            }
        }
        Err(crate::objects::busy("writes"))
    }

    fn tell(&mut self, changed: Result<Changed, Problem>, done: &[u8], none: &[u8]) {
        let line = match &changed {
            Ok(Some((_, refused))) => refused.unwrap_or(done),
            Ok(None) => none,
            Err(problem) => return self.fail(problem),
        };
        self.out.extend_from_slice(line);
    }

    /// `append`, `prepend`: the flags and the expiry of the request do not count.
    pub(super) async fn join(&mut self, request: &Request<'_>) {
        let max = self.shared.config.memcached.value_bytes_max.0 as usize;
        let change = |object: &Object| {
            let (old, more): (&[u8], &[u8]) = (object.body(), request.value());
            if old.len() + more.len() > max {
                return Change::Refused(b"SERVER_ERROR object too large for cache\r\n");
            }
            let parts = if request.verb == Verb::Append { [old, more] } else { [more, old] };
            Change::Value(parts.concat().into())
        };
        let changed = self.change(request.key(), change).await;
        self.tell(changed, b"STORED\r\n", b"NOT_STORED\r\n");
    }

    /// `incr`, `decr`.
    pub(super) async fn count(&mut self, request: &Request<'_>) {
        let delta = number(request.arguments()).unwrap_or(0);
        let next = |object: &Object| {
            // As memcached: what is longer is no number, whatever blanks are behind it.
            let text = Some(object.body()).filter(|text| text.len() <= NUMBER_BYTES_MAX)?;
            let old = number(text.trim_ascii_end())?;
            Some(match request.verb {
                Verb::Incr => old.wrapping_add(delta),
                _ => old.saturating_sub(delta),
            })
        };
        let change = |object: &Object| match next(object) {
            // As memcached: a number that became shorter keeps its length.
            Some(number) => {
                let width = object.body().len();
                Change::Value(format!("{number:<width$}").into_bytes().into())
            }
            None => {
                Change::Refused(b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n")
            }
        };
        let changed = self.change(request.key(), change).await;
        let number = changed.as_ref().ok().and_then(Option::as_ref).and_then(|(old, _)| next(old));
        let line = number.map(|number| format!("{number}\r\n")).unwrap_or_default();
        self.tell(changed, line.as_bytes(), b"NOT_FOUND\r\n");
    }

    /// `touch KEY EXPTIME`.
    pub(super) async fn touch(&mut self, request: &Request<'_>) {
        let exptime = exptime(request);
        let changed = self.change(request.key(), |_| Change::Expiry(exptime)).await;
        self.tell(changed, b"TOUCHED\r\n", b"NOT_FOUND\r\n");
    }

    /// `gat EXPTIME KEY*`, `gats EXPTIME KEY*`.
    pub(super) async fn get_and_touch(&mut self, request: &Request<'_>, to: &mut To<'_>) -> Then {
        let (mut start, exptime) = (self.out.len(), exptime(request));
        for key in request.keys() {
            let changed = match self.change(key, |_| Change::Expiry(exptime)).await {
                Ok(None) => continue,
                // With the number that the value has now.
                Ok(Some((old, _))) if request.verb == Verb::Gats => {
                    self.read(key, Operation::Get).await.map(|new| new.unwrap_or(old))
                }
                Ok(Some((old, _))) => Ok(old),
                Err(problem) => Err(problem),
            };
            match changed {
                Ok(object) => self.put_value(key, &object, request.verb == Verb::Gats),
                Err(problem) => {
                    self.out.truncate(start);
                    self.fail(&problem);
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

    /// `flush_all`: drops the node's copies. A cache is empty then; what is in the origin remains.
    pub(super) fn flush(&mut self, request: &Request<'_>) {
        let delay = std::str::from_utf8(request.arguments().trim_ascii()).unwrap_or_default();
        if !matches!(delay, "" | "0") {
            let line = b"CLIENT_ERROR a Concertina node has no delayed flush_all\r\n";
            return self.out.extend_from_slice(line);
        }
        self.shared.drive.tell(clock::now(), Event::Clear);
        self.out.extend_from_slice(b"OK\r\n");
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
