//! The list of uploads in parts: by key, then by id.
//!
//! The origin has their descriptions in the order of their ids, so a page looks at all of them and keeps its own in memory.
//! Uploads that are under way are few: those abandoned are removed ([`abandoned`](super::abandoned)).

use std::collections::BTreeMap;

use origin::Listed;
use s3s::dto::{
    CommonPrefix, ListMultipartUploadsInput, ListMultipartUploadsOutput, MultipartUpload,
    StorageClass,
};
use s3s::{S3Request, S3Response, S3Result};

use super::hidden::BEGUN;
use super::inner::Inner;
use super::listing::{encoder, max_of, time};
use super::multipart::decoded;
use super::upload_checksum::UploadChecksum;

/// The descriptions that are read at a time.
const PAGE: usize = 1000;

/// An upload.
struct UploadInProgress {
    bucket: String,
    key: String,
    id: String,
    since_unix_us: u64,
    checksum: Option<UploadChecksum>,
}

impl UploadInProgress {
    /// What a description says; `None` if it is malformed.
    fn read(listed: &Listed) -> Option<UploadInProgress> {
        let Listed { key, metadata } = listed;
        let user = &metadata.attributes.user;
        let value = |of: &str| user.iter().find(|(name, _)| name == of).map(|(_, v)| decoded(v));
        Some(UploadInProgress {
            bucket: value("bucket")?,
            key: value("key")?,
            id: String::from_utf8_lossy(key.get(BEGUN.len()..)?).into_owned(),
            since_unix_us: metadata.modified_unix_us,
            checksum: value("checksum").and_then(|words| UploadChecksum::of_words(&words)),
        })
    }
}

/// A page of a listing.
struct Page<'a> {
    prefix: &'a str,
    delimiter: &'a str,
    /// It begins after this key, and after this id of it.
    after: Option<(&'a str, Option<&'a str>)>,
    max: usize,
    /// By key or common prefix, then id (a prefix has none): the time of the upload, and its checksum. One more than the page, at
    /// most.
    found: BTreeMap<(String, Option<String>), (u64, Option<UploadChecksum>)>,
}

impl Page<'_> {
    fn add(&mut self, upload: UploadInProgress) {
        let Some(rest) = upload.key.strip_prefix(self.prefix) else { return };
        let cut = rest.find(self.delimiter).filter(|_| !self.delimiter.is_empty());
        let entry = match cut {
            Some(at) => {
                let end = upload.key.len() - rest.len() + at + self.delimiter.len();
                (upload.key[..end].to_owned(), None)
            }
            None => (upload.key, Some(upload.id)),
        };
        let is_after = match self.after {
            None => true,
            Some((key, id)) => {
                let later = matches!((&entry.1, id), (Some(of), Some(id)) if **of > *id);
                *entry.0 > *key || (entry.0 == key && later)
            }
        };
        if is_after {
            self.found.insert(entry, (upload.since_unix_us, upload.checksum));
            if self.found.len() > self.max + 1 {
                self.found.pop_last();
            }
        }
    }
}

impl Inner {
    pub(super) async fn list_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let input = request.input;
        self.bucket(&input.bucket)?;
        let prefix = input.prefix.unwrap_or_default();
        let delimiter = input.delimiter.unwrap_or_default();
        let encode = encoder(input.encoding_type.as_ref().map(|one| one.as_str()))?;
        let max = max_of(input.max_uploads)?;
        let key = input.key_marker.as_deref().filter(|key| !key.is_empty());
        // Without a key, an id means nothing, as at AWS.
        let id = input.upload_id_marker.as_deref().filter(|id| key.is_some() && !id.is_empty());
        let after = key.map(|key| (key, id));
        let found = BTreeMap::new();
        let mut page = Page { prefix: &prefix, delimiter: &delimiter, after, max, found };
        let mut position: Option<Vec<u8>> = None;
        loop {
            let listing = self.store.origin().list(BEGUN.as_bytes(), position.as_deref(), PAGE);
            let listed = self.within_timeout(listing).await?;
            let uploads = listed.iter().filter_map(UploadInProgress::read);
            uploads.filter(|one| one.bucket == input.bucket).for_each(|one| page.add(one));
            match listed.last() {
                Some(last) if listed.len() == PAGE => position = Some(last.key.to_vec()),
                _ => break,
            }
        }
        let is_longer = page.found.len() > max;
        if is_longer {
            page.found.pop_last();
        }
        // A page of no uploads says no more: it has no marker to go on from.
        let more = is_longer && max > 0;
        let last = page.found.last_key_value().filter(|_| more);
        let last = last.map(|((key, id), _)| (encode(key), id.clone().unwrap_or_default()));
        let (mut uploads, mut prefixes) = (Vec::new(), Vec::new());
        for ((key, id), (since, checksum)) in page.found {
            match id {
                None => prefixes.push(CommonPrefix { prefix: Some(encode(&key)) }),
                Some(id) => uploads.push(MultipartUpload {
                    key: Some(encode(&key)),
                    upload_id: Some(id),
                    initiated: Some(time(since)),
                    checksum_algorithm: checksum.map(UploadChecksum::name),
                    checksum_type: checksum.map(UploadChecksum::kind),
                    storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
                    ..MultipartUpload::default()
                }),
            }
        }
        let (next_key_marker, next_upload_id_marker) = last.unzip();
        Ok(S3Response::new(ListMultipartUploadsOutput {
            next_upload_id_marker,
            next_key_marker,
            bucket: Some(input.bucket),
            prefix: Some(encode(&prefix)),
            delimiter: Some(encode(&delimiter)).filter(|_| !delimiter.is_empty()),
            key_marker: key.map(encode),
            upload_id_marker: id.map(str::to_owned),
            is_truncated: Some(more),
            max_uploads: Some(max as i32),
            uploads: Some(uploads),
            common_prefixes: Some(prefixes).filter(|prefixes| !prefixes.is_empty()),
            encoding_type: input.encoding_type,
            ..ListMultipartUploadsOutput::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELIMITERS: [&str; 3] = ["", "/", "b"];

    fn upload((key, id): &(String, u8)) -> UploadInProgress {
        UploadInProgress {
            bucket: String::new(),
            key: key.clone(),
            id: format!("{id:02x}"),
            since_unix_us: u64::from(*id),
            checksum: None,
        }
    }

    /// The naive twin: all entries in order, then those after the marker.
    fn naive(
        uploads: &[(String, u8)],
        prefix: &str,
        delimiter: &str,
        after: Option<(&str, Option<&str>)>,
    ) -> Vec<(String, Option<String>)> {
        let mut all = Vec::new();
        for (key, id) in uploads {
            let Some(rest) = key.strip_prefix(prefix) else { continue };
            all.push(match rest.split_once(delimiter).filter(|_| !delimiter.is_empty()) {
                Some((first, _)) => (format!("{prefix}{first}{delimiter}"), None),
                None => (key.clone(), Some(format!("{id:02x}"))),
            });
        }
        all.sort();
        all.dedup();
        let Some((key, id)) = after else { return all };
        let is_after = |entry: &(String, Option<String>)| {
            if entry.0 != key {
                return *entry.0 > *key;
            }
            entry.1.is_some() && id.is_some_and(|id| entry.1.as_deref() > Some(id))
        };
        all.into_iter().filter(is_after).collect()
    }

    proptest::proptest! {
        #[test]
        fn pages_are_those_of_the_sorted_list(
            uploads in proptest::collection::vec(("[ab/]{1,4}", 0u8..5), 0..20),
            prefix in "[ab/]{0,2}",
            delimiter in 0usize..3,
            max in 1usize..5,
        ) {
            let delimiter = DELIMITERS[delimiter];
            let mut after: Option<(String, Option<String>)> = None;
            let mut all = Vec::new();
            loop {
                let marker = after.as_ref().map(|(key, id)| (key.as_str(), id.as_deref()));
                let found = BTreeMap::new();
                let mut page = Page { prefix: &prefix, delimiter, after: marker, max, found };
                uploads.iter().for_each(|one| page.add(upload(one)));
                let expected = naive(&uploads, &prefix, delimiter, marker);
                let found: Vec<_> = page.found.into_keys().collect();
                proptest::prop_assert_eq!(&found, &expected[..expected.len().min(max + 1)]);
                let more = found.len() > max;
                all.extend(found.into_iter().take(max));
                if !more {
                    break;
                }
                after = all.last().cloned();
            }
            proptest::prop_assert_eq!(all, naive(&uploads, &prefix, delimiter, None));
        }
    }
}
