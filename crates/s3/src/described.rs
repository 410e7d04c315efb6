//! `GetObjectAttributes`: what is known of an object, without its bytes.

use s3s::dto::{
    GetObjectAttributesInput, GetObjectAttributesOutput, ObjectAttributes, StorageClass,
};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use super::errors::unsupported;
use super::listing::time;
use super::messages::{NO_ATTRIBUTES, error};
use super::objects::{lane_of, only_version, type_of};
use super::{Inner, headers};

/// What can be asked for. Which parts made an object is not kept, and a reply is right without them.
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
        let mut checksum = headers::checksums(&answer.version.attributes);
        checksum.checksum_type = type_of(&checksum);
        let sum = checksum.checksum_type.is_some();
        Ok(S3Response::new(GetObjectAttributesOutput {
            checksum: Some(checksum).filter(|_| sum && wants(ObjectAttributes::CHECKSUM)),
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
