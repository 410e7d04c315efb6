//! Values as objects: what is kept beside the bytes, and how values are written.

use std::borrow::Cow;

use bytes::Bytes;
use ground::Key;
use ground::window::{Operation, Outcome};
use memcached::{Drops, Request, Verb};
use origin::{Attributes, Metadata, SingleChunk};

use super::{Session, unix_s};
use store::{
    DeleteRequest, Error, Freshness, PutRequest, ReadRequest, WriteTerms, refuse_reserved,
};
use wire::body::RequestBody;
use wire::condition::Conditions;
use wire::lane::RequestRecord;

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
    // 63 bits: libmemcached (1.0.16, of pylibmc 1.6.3) has no room for 20 digits, and fails with "MEMORY ALLOCATION FAILURE".
    u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1
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

/// A value to be stored, as the client gives it.
pub(super) struct NewValue<'a> {
    pub(super) bytes: Cow<'a, [u8]>,
    pub(super) flags: u32,
    /// In memcached's form.
    pub(super) exptime: i64,
}

impl NewValue<'_> {
    fn attributes(&self) -> Attributes {
        let expires = match self.exptime {
            0 => None,
            ..0 => Some(0),
            1..=RELATIVE_MAX => Some(unix_s().saturating_add(self.exptime)),
            date => Some(date),
        };
        // In the order of their names, as they are hashed into the version.
        let mut user = Vec::new();
        if let Some(at) = expires {
            user.push((EXPIRES.to_owned(), at.to_string()));
        }
        if self.flags > 0 {
            user.push((FLAGS.to_owned(), self.flags.to_string()));
        }
        Attributes { content_type: None, user }
    }
}

impl Session {
    /// Stores a value.
    pub(super) async fn write(
        &self,
        key: &[u8],
        value: &NewValue<'_>,
        mode: Mode,
    ) -> Result<Stored, Error> {
        refuse_reserved(key)?;
        let key = Key::from(key);
        let mut record = self.lane.received(Operation::Put, &key);
        let conditions = match self.conditions_of(&key, mode, &mut record).await? {
            Ok(conditions) => conditions,
            Err(refused) => {
                record.outcome = Outcome::Miss;
                return Ok(refused);
            }
        };
        record.size = value.bytes.len() as u64;
        let body = SingleChunk::new(Bytes::copy_from_slice(&value.bytes));
        let put = PutRequest {
            key,
            attributes: value.attributes(),
            body: RequestBody::Stream(Box::new(body)),
            sha256: None,
            terms: WriteTerms { conditions, ..WriteTerms::default() },
        };
        match self.store.put(put, &mut record).await {
            Ok(etag) => {
                record.outcome = self.written();
                Ok(Stored::Yes(cas_of(&etag)))
            }
            Err(Error::PreconditionFailed(_)) => {
                record.outcome = Outcome::Miss;
                Ok(if matches!(mode, Mode::Cas(_)) { Stored::Exists } else { Stored::No })
            }
            Err(error) => Err(error),
        }
    }

    /// The condition under which the origin takes a write, or what the client is told at once. The
    /// write's turn checks it again, since another write may come first.
    async fn conditions_of(
        &self,
        key: &Key,
        mode: Mode,
        record: &mut RequestRecord,
    ) -> Result<Result<Conditions, Stored>, Error> {
        if mode == Mode::Set {
            return Ok(Ok(Conditions::default()));
        }
        // As the origin has it: it decides. A copy that is looked at seldom could refuse a client for long.
        let read = ReadRequest { freshness: Freshness::Origin, ..ReadRequest::head(key.clone()) };
        let found = match self.store.get(&read, record).await {
            Ok(found) => Some(found.version),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        let live = found.as_ref().filter(|version| !is_expired(version));
        if let Mode::Cas(number) = mode
            && live.is_none_or(|version| cas_of(&version.etag) != number)
        {
            // Another process may have written it: a copy here would be compared in vain until it is looked at again.
            self.store.revalidate(key);
        }
        Ok(match (mode, live, &found) {
            (Mode::Add, Some(_), _) | (Mode::Replace, None, _) => Err(Stored::No),
            (Mode::Cas(_), None, _) => Err(Stored::NotFound),
            (Mode::Cas(number), Some(version), _) if cas_of(&version.etag) != number => {
                Err(Stored::Exists)
            }
            (Mode::Add, None, None) => Ok(Conditions::is_absent()),
            // In place of one that has expired.
            (_, None, Some(version)) => Ok(Conditions::is_version(&version.etag)),
            (Mode::Cas(_), Some(version), _) => Ok(Conditions::is_version(&version.etag)),
            _ => Ok(Conditions::exists()),
        })
    }

    /// Where writes end.
    fn written(&self) -> Outcome {
        if self.store.is_durable() { Outcome::Origin } else { Outcome::Memory }
    }

    /// Deletes a value; returns whether it was there.
    pub(super) async fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        refuse_reserved(key)?;
        let mut record = self.lane.received(Operation::Delete, key);
        let delete = DeleteRequest { key: Key::from(key), terms: WriteTerms::default() };
        let there = self.store.delete(delete, &mut record).await?;
        record.outcome = if there { self.written() } else { Outcome::Miss };
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
        let value = NewValue { bytes: request.value().into(), flags, exptime };
        let stored = self.write(request.key(), &value, mode).await;
        let line: &[u8] = match stored {
            Ok(Stored::Yes(_)) => b"STORED\r\n",
            Ok(Stored::No) => b"NOT_STORED\r\n",
            Ok(Stored::Exists) => b"EXISTS\r\n",
            Ok(Stored::NotFound) => b"NOT_FOUND\r\n",
            Err(error) => return self.fail(&error),
        };
        self.out.extend_from_slice(line);
    }

    /// `delete KEY`.
    pub(super) async fn delete(&mut self, request: &Request<'_>) {
        match self.remove(request.key()).await {
            Ok(true) => self.out.extend_from_slice(b"DELETED\r\n"),
            Ok(false) => self.out.extend_from_slice(b"NOT_FOUND\r\n"),
            Err(error) => self.fail(&error),
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
