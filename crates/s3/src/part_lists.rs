//! Where the parts of an object are kept.
//!
//! They are part of the object's metadata, so that every tier has them with the object, as long as they are short. Longer ones
//! (10,000 parts with SHA-256 take 430 KB, and an S3 store behind takes 2 KB of metadata) are an object of their own in the
//! origin, below [`MADE`], which the metadata names; it never changes, and is removed once the object does not name it any more
//! ([`abandoned`](super::abandoned)).

use std::sync::Arc;

use bytes::Bytes;
use ground::Key;
use origin::{Attributes, Error, SingleChunk};
use s3s::S3Result;

use super::errors::of_origin;
use super::headers;
use super::hidden::MADE;
use super::inner::Inner;
use super::kept_parts::KeptParts;
use super::multipart::{encoded, named_mark};
use store::Version;

/// The most bytes of names and values of an object's metadata, with its parts. An S3 store takes 2 KiB, of which the rest is for
/// tags that come later, and for what is kept with every object.
const INLINE_BYTES_MAX: usize = 1024;
/// The longest text: 10,000 sizes of 20 digits, and checksums of 32 bytes.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// The key of the object with the parts that a completion with this mark named.
fn made_key(mark: &str) -> Key {
    Key::from(format!("{MADE}{mark}").into_bytes())
}

impl Inner {
    /// Keeps the parts of an object with its attributes, or in an object of their own, which they name then. That is written before
    /// the object, and stays if the object is not written: another completion with the same parts may have made it.
    pub(super) async fn keep_parts(
        &self,
        key: &Key,
        mark: &str,
        parts: &KeptParts,
        attributes: &mut Attributes,
    ) -> S3Result<()> {
        let text = parts.text();
        let rest: usize =
            attributes.user.iter().map(|(name, value)| name.len() + value.len()).sum();
        if rest + text.len() <= INLINE_BYTES_MAX {
            headers::keep_parts(attributes, &text);
            return Ok(());
        }
        let user = vec![("key".to_owned(), encoded(&String::from_utf8_lossy(key)))];
        let named = Attributes { content_type: None, user };
        let mut body = SingleChunk::new(Bytes::from(text));
        self.keep(&made_key(mark), named, &mut body).await?;
        headers::keep_parts(attributes, &format!("@{mark}"));
        Ok(())
    }

    /// The parts of an object; `None` if it was not uploaded in parts, or they are not kept.
    ///
    /// # Errors
    ///
    /// If the origin cannot be read.
    pub(super) async fn parts_of(&self, version: &Version) -> S3Result<Option<Arc<KeptParts>>> {
        let Some(text) = headers::parts(&version.attributes) else { return Ok(None) };
        let Some(mark) = named_mark(&version.attributes) else {
            return Ok(KeptParts::of_text(text, version.size).map(Arc::new));
        };
        if let Some(parts) = self.remembered.get(mark) {
            return Ok(Some(parts).filter(|parts| parts.size() == Some(version.size)));
        }
        let Some(text) = self.made_text(mark).await? else { return Ok(None) };
        let Some(parts) = KeptParts::of_text(&text, version.size).map(Arc::new) else {
            return Ok(None);
        };
        self.remembered.put(mark, parts.clone());
        Ok(Some(parts))
    }

    async fn made_text(&self, mark: &str) -> S3Result<Option<String>> {
        let key = made_key(mark);
        let reading = async {
            let Some(found) = self.store.origin().get(&key, None).await? else { return Ok(None) };
            let (mut body, mut text) = (found.body, Vec::new());
            while let Some(piece) = body.next().await {
                text.extend_from_slice(&piece?);
                if text.len() > TEXT_BYTES_MAX {
                    return Ok(None);
                }
            }
            Ok::<_, Error>(String::from_utf8(text).ok())
        };
        let read = origin::within(self.timeout, "a request", reading).await;
        read.map_err(|error| of_origin(&error))
    }
}
