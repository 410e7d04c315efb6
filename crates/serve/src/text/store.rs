//! Writes.

use bytes::Bytes;
use engine::node::Event;
use ground::window::{Operation, Outcome};
use http::header::{HeaderMap, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderName, Method, StatusCode};
use memcached::{Drops, Request, Verb};
use origin::{Attributes, Metadata};
use record::clock;

use super::{Session, unix_s};
use crate::objects::refuse_reserved;
use crate::writes;
use wire::problem::Problem;

/// The names of the metadata that hold what memcached keeps beside a value.
const FLAGS: &str = "memcached-flags";
const EXPIRES: &str = "memcached-expires";

/// Expiry times up to this count from now, in seconds; larger ones are dates.
const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;

fn noted<'m>(metadata: &'m Metadata, name: &str) -> Option<&'m str> {
    let mut user = metadata.attributes.user.iter();
    user.find_map(|(other, value)| (other == name).then_some(&**value))
}

/// The number that the client stored with the value.
pub(super) fn flags(metadata: &Metadata) -> u32 {
    noted(metadata, FLAGS).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// When the value expires, in seconds since 1970; `None` if it does not.
pub(super) fn expires(metadata: &Metadata) -> Option<i64> {
    noted(metadata, EXPIRES).and_then(|text| text.parse().ok())
}

pub(super) fn is_expired(metadata: &Metadata) -> bool {
    expires(metadata).is_some_and(|at| at <= unix_s())
}

/// The compare-and-swap number of a version.
pub(super) fn cas_of(etag: &str) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(etag.as_bytes()).as_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// What has to hold for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Nothing.
    Set,
    /// That there is no value.
    Add,
    /// That there is one.
    Replace,
    /// That it has this number.
    Cas(u64),
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// It is in the origin, with this number.
    Yes(u64),
    /// There is a value, or there is none.
    No,
    /// The value has another number.
    Exists,
    /// There is no value to compare with.
    NotFound,
}

fn condition(name: HeaderName, value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
    headers
}

impl Session {
    /// Stores a value.
    pub(super) async fn write(
        &self,
        key: &[u8],
        value: &[u8],
        flags: u32,
        exptime: i64,
        mode: Mode,
    ) -> Result<Stored, Problem> {
        refuse_reserved(&Method::PUT, key, true)?;
        let conditional = match self.condition_of(key, mode).await? {
            Ok(conditional) => conditional,
            Err(refused) => return Ok(refused),
        };
        let mut user = Vec::new();
        let expires = match exptime {
            0 => None,
            ..0 => Some(0),
            1..=RELATIVE_MAX => Some(unix_s().saturating_add(exptime)),
            date => Some(date),
        };
        if let Some(at) = expires {
            user.push((EXPIRES.to_owned(), at.to_string()));
        }
        if flags > 0 {
            user.push((FLAGS.to_owned(), flags.to_string()));
        }
        let attributes = Attributes { content_type: None, user };
        let mut seen = self.lane.received(Operation::Put, key);
        seen.size = value.len() as u64;
        let bytes = Bytes::copy_from_slice(value);
        let (result, stages) =
            writes::store(&self.shared, key.into(), attributes, bytes, conditional).await;
        seen.stages = stages;
        match result {
            Ok(etag) => {
                seen.outcome = self.written();
                Ok(Stored::Yes(etag.map_or(0, |etag| cas_of(&etag))))
            }
            Err(problem) if problem.status() == StatusCode::PRECONDITION_FAILED => {
                seen.outcome = Outcome::Miss;
                Ok(if matches!(mode, Mode::Cas(_)) { Stored::Exists } else { Stored::No })
            }
            Err(problem) => Err(problem),
        }
    }

    /// The condition under which the origin takes a write, or what the client is told at once. The
    /// write's turn checks it again, since another write may come first.
    async fn condition_of(
        &self,
        key: &[u8],
        mode: Mode,
    ) -> Result<Result<Option<HeaderMap>, Stored>, Problem> {
        if mode == Mode::Set {
            return Ok(Ok(None));
        }
        let quoted = |etag: &str| format!("\"{etag}\"");
        let found = self.shared.drive.head(&key.into()).await;
        let found = found.map_err(|error| crate::objects::origin_problem(&error))?;
        let live = found.as_ref().filter(|metadata| !is_expired(metadata));
        if let Mode::Cas(number) = mode
            && live.is_none_or(|metadata| cas_of(&metadata.etag) != number)
            && self.shared.drive.is_durable()
        {
            // Another process may have written it: a copy here would be compared in vain until it is looked at again.
            self.shared.drive.tell(clock::now(), Event::Invalidate { key: key.into() });
        }
        Ok(match (mode, live, &found) {
            (Mode::Add, Some(_), _) | (Mode::Replace, None, _) => Err(Stored::No),
            (Mode::Cas(_), None, _) => Err(Stored::NotFound),
            (Mode::Cas(number), Some(metadata), _) if cas_of(&metadata.etag) != number => {
                Err(Stored::Exists)
            }
            (Mode::Add, None, None) => Ok(Some(condition(IF_NONE_MATCH, "*"))),
            // In place of one that has expired.
            (_, None, Some(metadata)) => Ok(Some(condition(IF_MATCH, &quoted(&metadata.etag)))),
            (Mode::Cas(_), Some(metadata), _) => {
                Ok(Some(condition(IF_MATCH, &quoted(&metadata.etag))))
            }
            _ => Ok(Some(condition(IF_MATCH, "*"))),
        })
    }

    /// Where writes end.
    fn written(&self) -> Outcome {
        if self.shared.drive.is_durable() { Outcome::Origin } else { Outcome::Memory }
    }

    /// Deletes a value; returns whether it was there.
    pub(super) async fn remove(&self, key: &[u8]) -> Result<bool, Problem> {
        refuse_reserved(&Method::DELETE, key, true)?;
        let mut seen = self.lane.received(Operation::Delete, key);
        let (result, stages) = writes::remove(&self.shared, key.into(), None).await;
        seen.stages = stages;
        let there = result?;
        seen.outcome = if there { self.written() } else { Outcome::Miss };
        Ok(there)
    }

    /// `set KEY FLAGS EXPTIME BYTES` and its kin.
    pub(super) async fn store(&mut self, request: &Request<'_>) {
        let words: Vec<&[u8]> = request.arguments().split(|byte| *byte == b' ').collect();
        let words: Vec<&str> = words
            .into_iter()
            .filter(|word| !word.is_empty())
            .map(|word| std::str::from_utf8(word).unwrap_or_default())
            .collect();
        let number = |at: usize| words.get(at).copied().unwrap_or_default();
        let (flags, exptime) = (number(0).parse().unwrap_or(0), number(1).parse().unwrap_or(0));
        let mode = match request.verb {
            Verb::Add => Mode::Add,
            Verb::Replace => Mode::Replace,
            Verb::Cas => Mode::Cas(number(3).parse().unwrap_or(0)),
            _ => Mode::Set,
        };
        let stored = self.write(request.key(), request.value(), flags, exptime, mode).await;
        let line: &[u8] = match stored {
            Ok(Stored::Yes(_)) => b"STORED\r\n",
            Ok(Stored::No) => b"NOT_STORED\r\n",
            Ok(Stored::Exists) => b"EXISTS\r\n",
            Ok(Stored::NotFound) => b"NOT_FOUND\r\n",
            Err(problem) => return self.fail(&problem),
        };
        self.out.extend_from_slice(line);
    }

    /// `delete KEY`.
    pub(super) async fn delete(&mut self, request: &Request<'_>) {
        match self.remove(request.key()).await {
            Ok(true) => self.out.extend_from_slice(b"DELETED\r\n"),
            Ok(false) => self.out.extend_from_slice(b"NOT_FOUND\r\n"),
            Err(problem) => self.fail(&problem),
        }
    }

    /// Deletes the value of which a client has sent one that is too large.
    pub(super) async fn drop_value(&mut self, drops: &Drops<'_>) {
        let mut key = Vec::new();
        if !drops.base64 || !memcached::decode_base64(drops.key, &mut key) {
            key = drops.key.to_vec();
        }
        // The client is told that its value is too large, whatever becomes of the old one.
        let _ = self.remove(&key).await;
    }
}
