//! `GetObjectAttributes`: what is known of an object, without its bytes.

use s3s::dto::{
    GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts,
    ObjectAttributes, ObjectPart, StorageClass,
};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use super::checksums::with_checksums;
use super::errors::unsupported;
use super::headers;
use super::inner::Inner;
use super::kept_parts::KeptParts;
use super::listing::{max_of, not_negative, time};
use super::messages::{NO_ATTRIBUTES, error};
use super::objects::{lane_of, only_version};

/// What can be asked for.
const NAMES: [&str; 5] = [
    ObjectAttributes::CHECKSUM,
    ObjectAttributes::ETAG,
    ObjectAttributes::OBJECT_PARTS,
    ObjectAttributes::OBJECT_SIZE,
    ObjectAttributes::STORAGE_CLASS,
];

impl Inner {
    pub(super) async fn attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        let input = &request.input;
        only_version(input.version_id.as_deref())?;
        unsupported(input.sse_customer_key.is_some(), "encryption with keys of the client")?;
        let key = self.key(&input.bucket, &input.key)?;
        // `s3s` takes a list in one line for one name.
        let wanted = input.object_attributes.iter().flat_map(|one| one.as_str().split(','));
        let wanted: Vec<&str> = wanted.map(str::trim).filter(|name| !name.is_empty()).collect();
        if wanted.is_empty() {
            return Err(error(S3ErrorCode::InvalidRequest, NO_ATTRIBUTES));
        }
        if wanted.iter().any(|name| !NAMES.contains(name)) {
            let what = "Invalid attribute name specified.";
            return Err(error(S3ErrorCode::InvalidArgument, what));
        }
        let wants = |name: &str| wanted.contains(&name);
        let lane = lane_of(&request.extensions)?;
        let answer = self.look(&lane, &key).await?;
        let checksum = headers::checksums(&answer.version.attributes);
        let object_parts = match wants(ObjectAttributes::OBJECT_PARTS) {
            true => {
                let after = input.part_number_marker.unwrap_or(0);
                not_negative(after)?;
                let (after, max) = (after as usize, max_of(input.max_parts)?);
                let parts = self.parts_of(&answer.version).await?;
                parts.map(|parts| page_of(&parts, after, max))
            }
            false => None,
        };
        let sum = checksum.checksum_type.is_some();
        Ok(S3Response::new(GetObjectAttributesOutput {
            checksum: Some(checksum).filter(|_| sum && wants(ObjectAttributes::CHECKSUM)),
            object_parts,
            e_tag: wants(ObjectAttributes::ETAG).then(|| answer.e_tag()),
            // In whole seconds, as in `Last-Modified`.
            last_modified: Some(time(answer.version.modified_unix_us / 1_000_000 * 1_000_000)),
            object_size: i64::try_from(answer.version.size)
                .ok()
                .filter(|_| wants(ObjectAttributes::OBJECT_SIZE)),
            storage_class: Some(StorageClass::from_static(StorageClass::STANDARD))
                .filter(|_| wants(ObjectAttributes::STORAGE_CLASS)),
            ..GetObjectAttributesOutput::default()
        }))
    }
}

/// The parts of an object after one, at most `max`.
fn page_of(parts: &KeptParts, after: usize, max: usize) -> GetObjectAttributesParts {
    let last = parts.count().min(after.saturating_add(max));
    let numbered = (after + 1..=last).filter_map(|number| Some((number, parts.part(number)?)));
    let listed: Vec<_> = numbered
        .map(|(number, part)| {
            with_checksums!(part.checksum => ObjectPart {
                part_number: i32::try_from(number).ok(),
                size: i64::try_from(part.range.end - part.range.start).ok(),
            })
        })
        .collect();
    GetObjectAttributesParts {
        is_truncated: Some(max > 0 && last < parts.count()),
        max_parts: i32::try_from(max).ok(),
        next_part_number_marker: listed.last().and_then(|part| part.part_number).or(Some(0)),
        part_number_marker: i32::try_from(after).ok(),
        parts: Some(listed),
        total_parts_count: i32::try_from(parts.count()).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_parts_join_to_all() {
        let sizes: Vec<u64> = (1..=7).collect();
        let parts = KeptParts::new(sizes.clone(), None, &[]);
        for max in 1..9 {
            let (mut after, mut all) = (0, Vec::new());
            loop {
                let page = page_of(&parts, after, max);
                assert_eq!(page.total_parts_count, Some(7));
                all.extend(page.parts.unwrap().iter().map(|part| part.size.unwrap() as u64));
                after = page.next_part_number_marker.unwrap() as usize;
                if page.is_truncated != Some(true) {
                    break;
                }
            }
            assert_eq!(all, sizes, "{max}");
        }
        for (after, max) in [(7, 5), (9_999_999, 1000), (0, 0)] {
            let page = page_of(&parts, after, max);
            assert_eq!((page.is_truncated, page.parts.unwrap().len()), (Some(false), 0));
        }
    }
}
