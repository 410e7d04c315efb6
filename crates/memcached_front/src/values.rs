//! Values as objects: how they are written and removed.

use bytes::Bytes;
use ground::window::{Operation, Outcome};
use ground::{Etag, Key};
use memcached::{Drops, Request, Verb};
use origin::SingleChunk;

use super::Session;
use super::notes::{Notes, derived_number, number_of};
use store::{
    DeleteRequest, Error, Freshness, PutRequest, ReadRequest, WriteTerms, refuse_reserved,
};
use wire::body::RequestBody;
use wire::condition::Conditions;
use wire::lane::RequestRecord;

/// What has to hold for a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Nothing.
    Set,
    /// That there is no value.
    Add,
    /// That there is one.
    Replace,
    /// That it has this number.
    Cas(u64),
    /// That it is this version, which was just read.
    Version(Etag),
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

/// A value to be stored.
#[derive(Clone, Debug, Default)]
pub(super) struct NewValue {
    pub(super) bytes: Bytes,
    pub(super) notes: Notes,
}

impl NewValue {
    /// The value of a request.
    pub(super) fn sent(request: &Request<'_>, notes: Notes) -> NewValue {
        NewValue { bytes: Bytes::copy_from_slice(request.value()), notes }
    }
}

impl Session {
    /// Stores a value.
    pub(super) async fn write(
        &self,
        key: &[u8],
        value: NewValue,
        mode: &Mode,
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
        let put = PutRequest {
            key: key.clone(),
            attributes: value.notes.attributes(),
            body: RequestBody::Stream(Box::new(SingleChunk::new(value.bytes))),
            sha256: None,
            terms: WriteTerms { conditions, ..WriteTerms::default() },
        };
        match self.store.put(put, &mut record).await {
            Ok(etag) => {
                record.outcome = self.written();
                Ok(Stored::Yes(value.notes.number.unwrap_or_else(|| derived_number(&etag))))
            }
            Err(Error::PreconditionFailed(_)) => {
                record.outcome = Outcome::Miss;
                if let Mode::Version(_) = mode {
                    // A copy here would be compared in vain until it is looked at again.
                    self.store.revalidate(&key);
                }
                let is_compared = matches!(mode, Mode::Cas(_) | Mode::Version(_));
                Ok(if is_compared { Stored::Exists } else { Stored::No })
            }
            Err(error) => {
                self.drop_replaced(&key, &error, mode).await;
                Err(error)
            }
        }
    }

    /// Removes what a `set` that a cache had no room for was to replace, as memcached does: its client takes the old value for gone.
    async fn drop_replaced(&self, key: &Key, error: &Error, mode: &Mode) {
        let has_no_room = matches!(error, Error::TooLarge(_) | Error::Busy(..));
        if has_no_room && matches!(mode, Mode::Set) && !self.store.is_durable() {
            let delete = DeleteRequest { key: key.clone(), terms: WriteTerms::default() };
            let mut record = self.lane.received(Operation::Delete, key);
            let removed = self.store.delete(delete, &mut record).await;
            record.outcome = if removed.is_ok() { self.written() } else { Outcome::Error };
        }
    }

    /// The condition under which the origin takes a write, or what the client is told at once. The
    /// write's turn checks it again, since another write may come first.
    async fn conditions_of(
        &self,
        key: &Key,
        mode: &Mode,
        record: &mut RequestRecord,
    ) -> Result<Result<Conditions, Stored>, Error> {
        match mode {
            Mode::Set => return Ok(Ok(Conditions::default())),
            Mode::Version(etag) => return Ok(Ok(Conditions::is_version(etag))),
            Mode::Add | Mode::Replace | Mode::Cas(_) => {}
        }
        // As the origin has it: it decides. A copy that is looked at seldom could refuse a client for long.
        let read = ReadRequest { freshness: Freshness::Origin, ..ReadRequest::head(key.clone()) };
        let found = match self.store.get(&read, record).await {
            Ok(found) => Some(found.version),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        let live = found.as_ref().filter(|version| !Notes::read(version).is_expired());
        if let Mode::Cas(number) = mode
            && live.is_none_or(|version| number_of(version) != *number)
        {
            // Another process may have written it: a copy here would be compared in vain until it is looked at again.
            self.store.revalidate(key);
        }
        Ok(match (mode, live, &found) {
            (Mode::Add, Some(_), _) | (Mode::Replace, None, _) => Err(Stored::No),
            (Mode::Cas(_), None, _) => Err(Stored::NotFound),
            (Mode::Cas(number), Some(version), _) if number_of(version) != *number => {
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

    /// Deletes a value; returns whether there was one. One that has expired is removed, and was not there.
    pub(super) async fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        refuse_reserved(key)?;
        let mut record = self.lane.received(Operation::Delete, key);
        let mut delete = DeleteRequest { key: Key::from(key), terms: WriteTerms::default() };
        let read = ReadRequest::head(delete.key.clone());
        let expired = match self.store.get(&read, &mut record).await {
            Ok(found) if Notes::read(&found.version).is_expired() => Some(found.version),
            Ok(_) | Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        if let Some(version) = &expired {
            // Not a value that another client stores in its place just now.
            delete.terms.conditions = Conditions::is_version(&version.etag);
        }
        let there = match self.store.delete(delete, &mut record).await {
            Err(Error::PreconditionFailed(_)) if expired.is_some() => false,
            removed => removed? && expired.is_none(),
        };
        record.outcome = if there { self.written() } else { Outcome::Miss };
        Ok(there)
    }

    /// Deletes a value if it is a version that was just read; returns whether it was.
    pub(super) async fn remove_version(&self, key: &[u8], etag: &str) -> Result<bool, Error> {
        refuse_reserved(key)?;
        let mut record = self.lane.received(Operation::Delete, key);
        let conditions = Conditions::is_version(etag);
        let terms = WriteTerms { conditions, ..WriteTerms::default() };
        let delete = DeleteRequest { key: Key::from(key), terms };
        let there = match self.store.delete(delete, &mut record).await {
            Err(Error::PreconditionFailed(_)) => false,
            removed => removed?,
        };
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
        let notes = Notes::new(number(0).parse().unwrap_or(0), number(1).parse().unwrap_or(0));
        let mode = match request.verb {
            Verb::Add => Mode::Add,
            Verb::Replace => Mode::Replace,
            Verb::Cas => Mode::Cas(number(3).parse().unwrap_or(0)),
            _ => Mode::Set,
        };
        let stored = self.write(request.key(), NewValue::sent(request, notes), &mode).await;
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
