//! The completion of an upload in parts, once and again.
//!
//! A client whose reply was lost completes its upload again, and AWS answers as before. Parts and description are removed
//! then, so the object itself remembers which upload and which parts made it: a hash of them is among its metadata
//! until it is written anew.

use std::sync::Arc;

use ground::Key;
use ground::hex;
use ring::digest;
use s3s::dto::{Checksum, CompletedPart, ETag};

use super::headers;
use super::inner::Inner;
use wire::lane::ThreadRecorder;

/// The hash of an upload and of the parts that a client names, in hexadecimal.
pub fn mark(upload: &str, parts: &[CompletedPart]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(upload.as_bytes());
    for part in parts {
        let etag = part.e_tag.as_ref().map_or("", ETag::value);
        let number = part.part_number.unwrap_or(0);
        context.update(format!("\n{number} {}", headers::our_etag(etag)).as_bytes());
    }
    let hash = context.finish();
    hex::encode(&hash.as_ref()[..16])
}

/// An object that a completion made.
pub struct MadeObject {
    /// As clients see it.
    pub e_tag: ETag,
    /// What was kept with it.
    pub checksum: Checksum,
}

impl Inner {
    /// The etag of an object and its checksum, if the upload and the parts with this mark made it.
    pub(super) async fn made_by(
        &self,
        lane: &Arc<ThreadRecorder>,
        key: &Key,
        mark: &str,
    ) -> Option<MadeObject> {
        let answer = self.look(lane, key).await.ok()?;
        let made = headers::mark(&answer.version.attributes)? == mark;
        let checksum = headers::checksums(&answer.version.attributes);
        made.then(|| MadeObject { e_tag: answer.e_tag(), checksum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: i32, etag: &str) -> CompletedPart {
        let e_tag = Some(ETag::Strong(etag.to_owned()));
        CompletedPart { part_number: Some(number), e_tag, ..CompletedPart::default() }
    }

    #[test]
    fn a_mark_is_of_the_upload_and_of_all_its_parts() {
        let hash = "0123456789abcdef0123456789abcdef";
        let parts = [part(1, "h-1"), part(3, hash)];
        let first = mark("ab", &parts);
        assert_eq!(first, mark("ab", &[part(1, "h-1"), part(3, &format!("{hash}-1"))]));
        assert_eq!(first.len(), 32);
        for other in [
            mark("ac", &parts),
            mark("ab", &parts[..1]),
            mark("ab", &[part(1, "h-1"), part(2, hash)]),
            mark("ab", &[part(1, "h-2"), part(3, hash)]),
            mark("ab", &[]),
        ] {
            assert_ne!(first, other);
        }
    }
}
