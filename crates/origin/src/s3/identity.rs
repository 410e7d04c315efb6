//! Which bucket an origin is, and whether its store evaluates conditions: an object with a random
//! number, whose name no key has.
//!
//! An object that is missing means "no such object" only in the bucket (and prefix) that was opened. A
//! bucket that was emptied, or another bucket of the same name, lacks the marker or has another number,
//! and what it does not hold is then [`Error::Lost`]. The marker is read once per absent object that is
//! looked at, and at most every two seconds otherwise.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ground::origin::{OriginId, Place, Refusal, Verdict};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tracing::warn;

use super::attributes;
use super::client::Attempts;
use super::errors::{Access, Trouble};
use super::failure::Failure;
use super::name::ESCAPED;
use super::object_reader::ObjectReader;
use super::operations::{NewObject, OpenObject};
use super::pieces::Payload;
use super::precondition::Precondition;
use super::store::{Look, Store, StoreProperties};
use crate::error::Error;

/// The marker's name after the prefix and [`ESCAPED`]: no key's name, since `y` is not a digit.
const NAME: &str = "identity";
/// What is escaped in the marker's name, and in no other: buckets have markers whose prefix was written so by earlier versions.
const ESCAPED_IN_PREFIX: &AsciiSet = &CONTROLS
    .add(b'\\')
    .add(b'{')
    .add(b'^')
    .add(b'}')
    .add(b'%')
    .add(b'`')
    .add(b']')
    .add(b'"')
    .add(b'>')
    .add(b'[')
    .add(b'~')
    .add(b'<')
    .add(b'#')
    .add(b'|')
    .add(b'*')
    .add(b'?');
/// What precedes the number.
const START: &str = "concertina-origin 1 ";
/// The most bytes that are read of a marker.
const BYTES_MAX: u64 = 256;
/// How long a look at the bucket is believed by writes and by [`check`](crate::store::Origin::check).
pub(super) const LOOK_LASTS: Duration = Duration::from_secs(2);

impl Store {
    /// Learns the identity and the store's abilities, once. The first request to a store that did not
    /// reply when it was opened does it.
    pub(super) async fn learn(&self) -> Result<(), Trouble> {
        let mut looks = self.looks.lock().await;
        if looks.known.is_none() {
            let start = Instant::now();
            looks.known = Some(self.learn_properties().await?);
            looks.seen = Some(start);
        }
        Ok(())
    }

    /// A look that began at `since` or later.
    /// [`Error::Lost`] if the bucket is missing, emptied or another one.
    pub(super) async fn look(&self, since: Instant) -> Result<Look, Error> {
        let arrived = Instant::now();
        let mut looks = self.looks.lock().await;
        let fresh = looks.seen.filter(|at| *at >= since);
        if let (Some(known), Some(began)) = (&looks.known, fresh) {
            return Ok(Look { began, conditions: known.conditions });
        }
        if let Some((at, error)) = &looks.failed
            && *at >= arrived
        {
            return Err(error.clone());
        }
        let began = Instant::now();
        let found = match &looks.known {
            None => self.learn_properties().await.map(Some).map_err(|trouble| trouble.error),
            Some(known) => self.look_again(known).await.map(|()| None),
        };
        match found {
            Ok(learnt) => {
                (looks.seen, looks.failed) = (Some(began), None);
                looks.known = learnt.or(looks.known.take());
                let conditions = looks.known.as_ref().is_none_or(|known| known.conditions);
                Ok(Look { began, conditions })
            }
            Err(error) => {
                if matches!(error, Error::Lost(_)) {
                    // What was read or written since the last look may be another bucket's, also once the right one is back.
                    self.known.distrust();
                }
                looks.failed = Some((began, error.clone()));
                Err(error)
            }
        }
    }

    /// What each operation needs before it relies on the bucket: an identity that this process has taken.
    pub(super) async fn ready(&self) -> Result<(), Error> {
        if self.record.id().is_none() {
            self.look_lately().await?;
        }
        self.record.check()
    }

    /// As [`Store::look`], with a look of the last two seconds.
    pub(super) async fn look_lately(&self) -> Result<Look, Error> {
        let since = Instant::now().checked_sub(LOOK_LASTS).unwrap_or_else(Instant::now);
        let known = self.look(since).await?;
        self.record.check()?;
        Ok(known)
    }

    async fn look_again(&self, known: &StoreProperties) -> Result<(), Error> {
        let Some(expected) = &known.identity else {
            return self.probe().await.map_err(|trouble| trouble.error);
        };
        match self.marker().await.map_err(|trouble| trouble.error)? {
            Some(found) if found == *expected => Ok(()),
            Some(_) => Err(Error::Lost(format!(
                "the object {} of {} has another number than when it was opened: this is another \
                 bucket; point origin.endpoint and origin.bucket to the right one",
                self.marker_name(),
                self.place
            ))),
            None => Err(Error::Lost(format!(
                "the object {} of {} is missing: the bucket was emptied, or another one took its \
                 place; restore it, or start once with --create-origin to begin with what is there",
                self.marker_name(),
                self.place
            ))),
        }
    }

    fn marker_name(&self) -> String {
        self.marker_below("")
    }

    /// The marker's name with a text before its last part.
    pub(super) fn marker_below(&self, between: &str) -> String {
        marker_name(&self.prefix, between)
    }

    async fn learn_properties(&self) -> Result<StoreProperties, Trouble> {
        self.probe().await?;
        if let Some(text) = self.marker().await? {
            // Before anything is written: the bucket may be another's.
            self.judge(Place::Origin(id_of(&text)))?;
            let conditions = self.evaluates_conditions(&text).await?;
            // Where conditions are ignored, the process that put the marker could not rely on it, and took the stated one.
            self.record.take(if conditions { id_of(&text) } else { self.stated_id() });
            return Ok(StoreProperties { identity: Some(text), conditions });
        }
        self.judge(Place::Empty)?;
        let drawn = format!("{START}{:032x}\n", rand::random::<u128>());
        if let Err(failure) = self.put_marker(&drawn, &Precondition::Absent).await {
            let trouble = self.trouble(&failure, "the bucket's marker", Access::Write);
            match trouble {
                Trouble { error: Error::ReadOnly(reason), .. } => {
                    warn!(
                        "{reason}; without the object {}, a bucket that is emptied looks like one \
                         without objects",
                        self.marker_name()
                    );
                    self.record.take(self.stated_id());
                    return Ok(StoreProperties { identity: None, conditions: true });
                }
                // Another process created it at the same moment, or the store has no conditions.
                Trouble { status: Some(304 | 409 | 412 | 501), .. } => {}
                trouble => return Err(trouble),
            }
        }
        let text = self.marker().await?.unwrap_or_else(|| drawn.clone());
        let conditions = self.evaluates_conditions(&text).await?;
        // Without conditions, two processes that start at once may each have put a marker: the one of
        // an earlier start is compared.
        let identity = (conditions || text != drawn).then_some(text);
        self.record.take(identity.as_deref().map_or_else(|| self.stated_id(), id_of));
        Ok(StoreProperties { identity, conditions })
    }

    /// The identity of a bucket whose marker cannot be written: where it is, as the configuration states it.
    fn stated_id(&self) -> OriginId {
        hashed_id(&format!("{} {:?}", self.place, self.prefix))
    }

    /// [`Error::Lost`] unless this process may use what is there, and make a marker where none is.
    fn judge(&self, place: Place) -> Result<(), Trouble> {
        let refusal = match self.record.judge(place) {
            Verdict::Take(_) | Verdict::Create => return Ok(()),
            Verdict::Refuse(refusal) => refusal,
        };
        match refusal {
            // Recorded before this process, or another one, could write the marker.
            Refusal::Missing(Some(remembered)) | Refusal::Another { remembered, .. }
                if remembered == self.stated_id() =>
            {
                Ok(())
            }
            refusal => {
                let place = format!("the object {} of {}", self.marker_name(), self.place);
                Err(Trouble::without_reply(self.record.lost(refusal, &place)))
            }
        }
    }

    /// When the marker was put, microseconds since 1970.
    pub(super) async fn created_unix_us(&self) -> Option<u64> {
        Some(self.client.head(&self.marker_name()).await.ok()?.modified_unix_us)
    }

    /// The marker's text; `None` if there is none.
    async fn marker(&self) -> Result<Option<String>, Trouble> {
        match self.read_marker().await {
            Ok(bytes) => match std::str::from_utf8(&bytes).ok().filter(|t| t.starts_with(START)) {
                Some(text) => Ok(Some(text.to_owned())),
                None => Err(Trouble::without_reply(Error::Lost(format!(
                    "the object {} of {} is not an origin's marker; remove it if this is the right \
                     bucket",
                    self.marker_name(),
                    self.place
                )))),
            },
            Err(failure) => {
                let trouble = self.trouble(&failure, "a look at the bucket", Access::Read);
                let missing = trouble.status == Some(404) && trouble.code != "NoSuchBucket";
                if missing { Ok(None) } else { Err(trouble) }
            }
        }
    }

    /// The marker's bytes; none of an object that is too large for one.
    async fn read_marker(&self) -> Result<Vec<u8>, Failure> {
        let (client, name) = (self.client.clone(), self.marker_name());
        let mut attempts = Attempts::new();
        let OpenObject { part, body } = client.get(&name, None, &mut attempts).await?;
        let mut bytes = Vec::new();
        if part.head.size <= BYTES_MAX {
            let (etag, rest) = (part.head.etag, part.range);
            let mut reader = ObjectReader { client, name, etag, body, rest, attempts };
            while let Some(piece) = reader.next().await? {
                bytes.extend_from_slice(&piece);
            }
        }
        Ok(bytes)
    }

    /// Whether a PUT is refused if the object exists, and if its etag is another. Both are tried on the
    /// marker with its own text, so that a store that ignores them changes nothing.
    async fn evaluates_conditions(&self, text: &str) -> Result<bool, Trouble> {
        for condition in [Precondition::Absent, Precondition::Is("\"0\"".to_owned())] {
            let accepted = match self.put_marker(text, &condition).await {
                Ok(()) => true,
                Err(failure) => {
                    let trouble = self.trouble(&failure, "a conditional write", Access::Write);
                    match (trouble.status, &trouble.error) {
                        (Some(304 | 409 | 412), _) => false,
                        (Some(400 | 501), _) => true,
                        // Who may not write has no need to know.
                        (_, Error::ReadOnly(_)) => return Ok(true),
                        _ => return Err(trouble),
                    }
                }
            };
            if accepted {
                warn!(
                    "{} does not evaluate If-Match and If-None-Match of a PUT: a write that is under \
                     way when its node dies may land after a later write",
                    self.place
                );
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn put_marker(&self, text: &str, condition: &Precondition) -> Result<(), Failure> {
        let payload = Payload::from_iter([Bytes::from(text.to_owned())]);
        let sha256 = payload.sha256();
        let marker = NewObject { payload, sha256, headers: attributes::of_marker() };
        self.client.put(&self.marker_name(), marker, condition).await.map(|_| ())
    }
}

fn marker_name(prefix: &str, between: &str) -> String {
    format!("{}{ESCAPED}{between}{NAME}", utf8_percent_encode(prefix, ESCAPED_IN_PREFIX))
}

/// The identity in a marker's text. One of a form that this version does not write is compared all the same.
fn id_of(text: &str) -> OriginId {
    let number = text.strip_prefix(START).and_then(|number| number.trim_end().parse().ok());
    number.unwrap_or_else(|| hashed_id(text))
}

fn hashed_id(text: &str) -> OriginId {
    let hash = *blake3::hash(text.as_bytes()).as_bytes();
    let (half, _) = hash.split_at(16);
    OriginId::new(half.iter().fold(0, |number, byte| number << 8 | u128::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::super::name::key_of;
    use super::*;

    #[test]
    fn the_marker_is_no_keys_object() {
        for prefix in ["", "some/where/"] {
            assert_eq!(marker_name(prefix, ""), format!("{prefix}{ESCAPED}{NAME}"));
            assert_eq!(key_of(&marker_name(prefix, ""), prefix), None);
        }
        // As the crate `object_store` wrote it, through which earlier versions reached the store.
        assert_eq!(marker_name("a~ b/ä%/", ""), "a%7E b/%C3%A4%25/!key/identity");
    }
}
