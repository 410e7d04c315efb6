//! Listings of a bucket, in the order of keys, with common prefixes.
//!
//! The origin lists keys with their metadata, and groups them by the delimiter.

use std::time::{Duration, UNIX_EPOCH};

use ground::hex;
use origin::{Entry, KEY_BYTES_MAX, KeyRange, Listed, behind};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use s3s::auth::Credentials;
use s3s::dto::{
    CommonPrefix, ETag, ListObjectVersionsInput, ListObjectVersionsOutput, ListObjectsInput,
    ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output, Object, ObjectStorageClass,
    ObjectVersion, ObjectVersionStorageClass, Owner, Timestamp,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::errors::of_origin;
use super::headers;
use super::hidden::{HIDDEN, is_hidden};
use super::inner::Inner;
use super::messages::error;
use super::objects::{NULL_VERSION, only_version};

/// The most entries of a page.
const PAGE_MAX: usize = 1000;

/// The characters of a key that stand for themselves where clients ask for encoded ones.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/').remove(b'*');

/// What is listed.
struct ListRequest<'a> {
    bucket: &'a str,
    prefix: &'a str,
    delimiter: Option<&'a str>,
    /// Only keys after this, with the bucket's prefix.
    after: Option<Vec<u8>>,
    max: usize,
}

/// A page.
#[derive(Default)]
struct Page {
    objects: Vec<(String, Listed)>,
    prefixes: Vec<String>,
    /// Where the next page begins, if there is one.
    next: Option<Vec<u8>>,
    /// The last entry.
    last: String,
}

impl Page {
    fn length(&self) -> usize {
        self.objects.len() + self.prefixes.len()
    }
}

/// The time of a write.
pub fn time(unix_us: u64) -> Timestamp {
    Timestamp::from(UNIX_EPOCH + Duration::from_micros(unix_us))
}

impl Inner {
    async fn page(&self, wanted: ListRequest<'_>) -> S3Result<Page> {
        let bucket = self.bucket(wanted.bucket)?.prefix.as_bytes();
        let prefix = [bucket, wanted.prefix.as_bytes()].concat();
        let delimiter = wanted.delimiter.unwrap_or_default().as_bytes();
        let mut range = KeyRange::new(&prefix).grouped(delimiter).after(wanted.after);
        let mut page = Page::default();
        if wanted.max == 0 {
            return Ok(page);
        }
        loop {
            // One more than fits tells whether there is a next page.
            let limit = (wanted.max + 1 - page.length()).min(PAGE_MAX);
            let entries = self.entries(&range, limit).await?;
            let last = entries.len() < limit;
            for entry in entries {
                let before = range.after.replace(entry.end());
                if is_hidden(entry.key()) {
                    range.after = Some(behind(HIDDEN));
                    continue;
                }
                if matches!(entry, Entry::Group(_)) && !self.is_seen(entry.key()).await? {
                    continue;
                }
                // Keys that are not text cannot be named by S3's clients.
                let key = entry.key().get(bucket.len()..);
                let key = key.and_then(|key| std::str::from_utf8(key).ok());
                // Nor can the object whose key is the prefix that makes the bucket, such as the marker of its folder.
                let Some(key) = key.filter(|key| !key.is_empty()) else { continue };
                let key = key.to_owned();
                if page.length() == wanted.max {
                    page.next = before;
                    return Ok(page);
                }
                page.last.clone_from(&key);
                match entry {
                    Entry::Object(one) => page.objects.push((key, one)),
                    Entry::Group(_) => page.prefixes.push(key),
                }
            }
            if last {
                return Ok(page);
            }
        }
    }

    async fn entries(&self, range: &KeyRange, limit: usize) -> S3Result<Vec<Entry>> {
        let listing = self.store.origin().entries(range, limit);
        let entries = origin::within(self.timeout, "a listing", listing).await;
        entries.map_err(|error| of_origin(&error))
    }

    /// Whether a group has keys beside those that are hidden.
    async fn is_seen(&self, group: &[u8]) -> S3Result<bool> {
        if !HIDDEN.starts_with(group) {
            return Ok(true);
        }
        let mut range = KeyRange::new(group);
        loop {
            let first = self.entries(&range, 1).await?;
            let Some(first) = first.first() else { return Ok(false) };
            if !is_hidden(first.key()) {
                return Ok(true);
            }
            range.after = Some(behind(HIDDEN));
        }
    }

    /// The position after a key, or after a common prefix that was the last entry of a page.
    fn after(
        &self,
        bucket: &str,
        marker: &str,
        prefix: &str,
        delimiter: Option<&str>,
    ) -> S3Result<Vec<u8>> {
        let bucket = self.bucket(bucket)?.prefix.as_bytes();
        let whole = [bucket, marker.as_bytes()].concat();
        let rest = marker.strip_prefix(prefix).unwrap_or("");
        let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty());
        let is_common = delimiter.is_some_and(|delimiter| {
            rest.find(delimiter).is_some_and(|at| at + delimiter.len() == rest.len())
        });
        Ok(if is_common { behind(&whole) } else { whole })
    }

    pub(super) async fn list_v1(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let owner = owner_of(request.credentials.as_ref());
        let input = request.input;
        let (prefix, delimiter) = (input.prefix.unwrap_or_default(), input.delimiter);
        let marker = input.marker.filter(|marker| !marker.is_empty());
        let after =
            marker.as_deref().map(|m| self.after(&input.bucket, m, &prefix, delimiter.as_deref()));
        let max = max_of(input.max_keys)?;
        let page = self
            .page(ListRequest {
                bucket: &input.bucket,
                prefix: &prefix,
                delimiter: delimiter.as_deref(),
                after: after.transpose()?,
                max,
            })
            .await?;
        let encode = encoder(input.encoding_type.as_ref().map(|one| one.as_str()))?;
        Ok(S3Response::new(ListObjectsOutput {
            name: Some(input.bucket),
            is_truncated: Some(page.next.is_some()),
            next_marker: page.next.is_some().then(|| encode(&page.last)),
            marker: Some(encode(marker.as_deref().unwrap_or(""))),
            max_keys: Some(max as i32),
            contents: Some(objects_of(page.objects, owner.as_ref(), &encode)),
            common_prefixes: Some(prefixes_of(&page.prefixes, &encode)),
            prefix: Some(encode(&prefix)),
            delimiter: delimiter.as_deref().filter(|one| !one.is_empty()).map(&encode),
            encoding_type: input.encoding_type,
            ..ListObjectsOutput::default()
        }))
    }

    pub(super) async fn list_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let wants_owner = request.input.fetch_owner == Some(true);
        let owner = owner_of(request.credentials.as_ref()).filter(|_| wants_owner);
        let input = request.input;
        let prefix = input.prefix.unwrap_or_default();
        let wrong = || {
            let what = "the continuation token is not one of this server's";
            S3Error::with_message(S3ErrorCode::InvalidArgument, what)
        };
        let after = match (&input.continuation_token, &input.start_after) {
            (Some(token), _) => Some(key_of(token).ok_or_else(wrong)?),
            (None, Some(start)) if !start.is_empty() => {
                // A common prefix that is not after it is left out.
                let rest = start.strip_prefix(&*prefix).unwrap_or("");
                let delimiter = input.delimiter.as_deref().filter(|one| !one.is_empty());
                let common = delimiter.and_then(|one| Some(rest.find(one)? + one.len()));
                let start = common.map_or(start.as_str(), |at| &start[..prefix.len() + at]);
                Some(self.after(&input.bucket, start, &prefix, delimiter)?)
            }
            _ => None,
        };
        let max = max_of(input.max_keys)?;
        let page = self
            .page(ListRequest {
                bucket: &input.bucket,
                prefix: &prefix,
                delimiter: input.delimiter.as_deref(),
                after,
                max,
            })
            .await?;
        let encode = encoder(input.encoding_type.as_ref().map(|one| one.as_str()))?;
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            key_count: Some(page.length() as i32),
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next.as_deref().map(hex::encode),
            continuation_token: input.continuation_token,
            max_keys: Some(max as i32),
            contents: Some(objects_of(page.objects, owner.as_ref(), &encode)),
            common_prefixes: Some(prefixes_of(&page.prefixes, &encode)),
            prefix: Some(encode(&prefix)),
            delimiter: input.delimiter.as_deref().filter(|one| !one.is_empty()).map(&encode),
            start_after: input.start_after.as_deref().map(&encode),
            encoding_type: input.encoding_type,
            ..ListObjectsV2Output::default()
        }))
    }

    /// Objects as their only versions, which is how S3 lists a bucket whose versions are not kept.
    pub(super) async fn list_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let owner = owner_of(request.credentials.as_ref());
        let input = request.input;
        let (prefix, delimiter) = (input.prefix.unwrap_or_default(), input.delimiter);
        let delimiter = delimiter.as_deref();
        let marker = input.key_marker.filter(|marker| !marker.is_empty());
        let version = input.version_id_marker.filter(|version| !version.is_empty());
        if version.is_some() && marker.is_none() {
            let what = "A version-id marker cannot be specified without a key marker.";
            return Err(error(S3ErrorCode::InvalidArgument, what));
        }
        // With or without the version: a key has no other, and the page begins after it.
        only_version(version.as_deref())?;
        let after = marker.as_deref().map(|m| self.after(&input.bucket, m, &prefix, delimiter));
        let max = max_of(input.max_keys)?;
        let (bucket, after) = (&input.bucket, after.transpose()?);
        let wanted = ListRequest { bucket, prefix: &prefix, delimiter, after, max };
        let page = self.page(wanted).await?;
        let encode = encoder(input.encoding_type.as_ref().map(|one| one.as_str()))?;
        let ends_in_version = page.objects.last().is_some_and(|(key, _)| *key == page.last);
        let more = page.next.is_some();
        Ok(S3Response::new(ListObjectVersionsOutput {
            name: Some(input.bucket.clone()),
            is_truncated: Some(more),
            next_key_marker: more.then(|| encode(&page.last)),
            next_version_id_marker: (more && ends_in_version).then(|| NULL_VERSION.to_owned()),
            key_marker: Some(encode(marker.as_deref().unwrap_or(""))),
            version_id_marker: Some(version.unwrap_or_default()),
            max_keys: Some(max as i32),
            versions: Some(versions_of(page.objects, owner.as_ref(), &encode)),
            common_prefixes: Some(prefixes_of(&page.prefixes, &encode)),
            prefix: Some(encode(&prefix)),
            delimiter: delimiter.filter(|one| !one.is_empty()).map(&encode),
            encoding_type: input.encoding_type,
            ..ListObjectVersionsOutput::default()
        }))
    }
}

/// The number of entries that are asked for.
///
/// # Errors
///
/// `InvalidArgument` for a negative one.
pub fn max_of(given: Option<i32>) -> S3Result<usize> {
    Ok((not_negative(given.unwrap_or(PAGE_MAX as i32))? as usize).min(PAGE_MAX))
}

/// A number of a request that may be 0.
///
/// # Errors
///
/// `InvalidArgument` for a negative one.
pub fn not_negative(given: i32) -> S3Result<u32> {
    u32::try_from(given).map_err(|_| {
        let what = format!("Argument {given} must be an integer between 0 and 2147483647");
        error(S3ErrorCode::InvalidArgument, what)
    })
}

/// How keys are written in a listing.
///
/// # Errors
///
/// `InvalidArgument` for an encoding other than `url`.
pub fn encoder(encoding: Option<&str>) -> S3Result<fn(&str) -> String> {
    match encoding {
        None | Some("") => Ok(str::to_owned),
        Some("url") => Ok(|text| percent_encode(text.as_bytes(), ENCODED).to_string()),
        _ => {
            Err(S3Error::with_message(S3ErrorCode::InvalidArgument, "the encoding can be url only"))
        }
    }
}

/// The owner of buckets and objects. The only name that anybody has here is that of an access key.
pub fn owner_of(shown: Option<&Credentials>) -> Option<Owner> {
    let id = shown.map(|shown| shown.access_key.clone());
    id.map(|id| Owner { display_name: Some(id.clone()), id: Some(id) })
}

fn objects_of(
    listed: Vec<(String, Listed)>,
    owner: Option<&Owner>,
    encode: &impl Fn(&str) -> String,
) -> Vec<Object> {
    let object = |(key, one): (String, Listed)| Object {
        key: Some(encode(&key)),
        e_tag: Some(ETag::Strong(headers::etag(&one.metadata.etag))),
        last_modified: Some(time(one.metadata.modified_unix_us)),
        owner: owner.cloned(),
        size: Some(one.metadata.size as i64),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        ..Object::default()
    };
    listed.into_iter().map(object).collect()
}

fn versions_of(
    listed: Vec<(String, Listed)>,
    owner: Option<&Owner>,
    encode: &impl Fn(&str) -> String,
) -> Vec<ObjectVersion> {
    let class = ObjectVersionStorageClass::STANDARD;
    let version = |(key, one): (String, Listed)| ObjectVersion {
        key: Some(encode(&key)),
        version_id: Some(NULL_VERSION.to_owned()),
        is_latest: Some(true),
        e_tag: Some(ETag::Strong(headers::etag(&one.metadata.etag))),
        last_modified: Some(time(one.metadata.modified_unix_us)),
        owner: owner.cloned(),
        size: Some(one.metadata.size as i64),
        storage_class: Some(ObjectVersionStorageClass::from_static(class)),
        ..ObjectVersion::default()
    };
    listed.into_iter().map(version).collect()
}

/// Common prefixes as a reply has them.
pub fn prefixes_of(prefixes: &[String], encode: &impl Fn(&str) -> String) -> Vec<CommonPrefix> {
    prefixes.iter().map(|prefix| CommonPrefix { prefix: Some(encode(prefix)) }).collect()
}

/// The key that a continuation token stands for.
fn key_of(token: &str) -> Option<Vec<u8>> {
    hex::decode(token).filter(|key| key.len() <= 2 * KEY_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        assert_eq!(key_of(&hex::encode(b"a/b")).unwrap(), b"a/b");
        assert_eq!(key_of(&"00".repeat(2 * KEY_BYTES_MAX + 1)), None);
    }

    proptest::proptest! {
        #[test]
        fn any_token_is_read_or_refused(text in ".{0,60}", max in proptest::prelude::any::<i32>()) {
            if let Some(bytes) = key_of(&text) {
                proptest::prop_assert!(hex::encode(&bytes).eq_ignore_ascii_case(&text));
            }
            proptest::prop_assert_eq!(max_of(Some(max)).is_ok(), max >= 0);
            let _ = encoder(Some(&text)).map(|encode| encode(&text));
        }
    }
}
