//! `DeleteObject` and `DeleteObjects`, with their conditions.
//!
//! The store knows the condition on an etag. Those on size and time are judged by what is there now, and the object is then
//! removed only if it is still that version.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use ground::Key;
use ground::window::Operation;
use s3s::dto::{
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject,
    ObjectIdentifier, Timestamp,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::errors::of_error;
use super::headers;
use super::inner::Inner;
use super::messages::{MALFORMED_XML, PRECONDITION_FAILED};
use super::objects::{lane_of, only_version};
use super::traced::received;
use store::{DeleteRequest, ReadRequest, Version, WriteTerms};
use wire::condition::Conditions;
use wire::lane::ThreadRecorder;

/// Objects of a multi-delete that are deleted at a time.
const DELETES: usize = 16;
/// The most objects of a multi-delete.
const DELETED_MAX: usize = 1000;
/// How often a removal is tried while others write the object between the look at it and its removal.
const ATTEMPTS: usize = 5;

/// What an object must be like to be removed.
#[derive(Default)]
struct Terms {
    /// Conditions on the etag.
    conditions: Conditions,
    size_bytes: Option<i64>,
    modified: Option<Timestamp>,
}

impl Terms {
    fn need_a_look(&self) -> bool {
        self.size_bytes.is_some() || self.modified.is_some()
    }

    /// Whether size and time are as they must be. Times are those of `Last-Modified`, in whole seconds.
    fn hold_for(&self, version: &Version) -> bool {
        let size = self.size_bytes.is_none_or(|size| u64::try_from(size) == Ok(version.size));
        let modified = Timestamp::from(
            std::time::UNIX_EPOCH
                + std::time::Duration::from_secs(version.modified_unix_us / 1_000_000),
        );
        size && self.modified.as_ref().is_none_or(|time| *time == modified)
    }
}

impl Inner {
    /// Removes an object if the terms hold. One that is not there is as good as removed, but for a condition on its etag.
    async fn remove(&self, lane: &Arc<ThreadRecorder>, key: &Key, terms: Terms) -> S3Result<()> {
        if !terms.need_a_look() {
            return self.remove_if(lane, key, terms.conditions).await;
        }
        for _ in 0..ATTEMPTS {
            let conditions = terms.conditions.clone();
            let look = ReadRequest { conditions, ..ReadRequest::head(key.clone()) };
            let version = match self.read(lane, &look).await {
                Ok(answer) => answer.version,
                Err(error) if *error.code() == S3ErrorCode::NoSuchKey => return Ok(()),
                Err(error) => return Err(error),
            };
            if !terms.hold_for(&version) {
                let code = S3ErrorCode::PreconditionFailed;
                return Err(S3Error::with_message(code, PRECONDITION_FAILED));
            }
            match self.remove_if(lane, key, Conditions::is_version(&version.etag)).await {
                // Another write came between.
                Err(error) if *error.code() == S3ErrorCode::PreconditionFailed => {}
                removed => return removed,
            }
        }
        let what = "the object is written by others all the time: try again";
        Err(S3Error::with_message(S3ErrorCode::OperationAborted, what))
    }

    async fn remove_if(
        &self,
        lane: &Arc<ThreadRecorder>,
        key: &Key,
        conditions: Conditions,
    ) -> S3Result<()> {
        let mut record = received(lane, Operation::Delete, key);
        let terms = WriteTerms { conditions, ..WriteTerms::default() };
        match self.store.delete(DeleteRequest { key: key.clone(), terms }, &mut record).await {
            Ok(_) | Err(store::Error::NotFound) => Ok(()),
            Err(error) => Err(of_error(&error)),
        }
    }

    pub(super) async fn delete(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let conditions = headers::conditions(&request.headers, "")?;
        let input = request.input;
        only_version(input.version_id.as_deref())?;
        let key = self.key(&input.bucket, &input.key)?;
        let lane = lane_of(&request.extensions)?;
        let (size_bytes, modified) = (input.if_match_size, input.if_match_last_modified_time);
        self.remove(&lane, &key, Terms { conditions, size_bytes, modified }).await?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    /// Removes an object of a list; returns its key as well.
    async fn delete_one(
        &self,
        lane: &Arc<ThreadRecorder>,
        bucket: &str,
        object: ObjectIdentifier,
    ) -> (ObjectIdentifier, S3Result<()>) {
        let removed = async {
            only_version(object.version_id.as_deref())?;
            let key = self.key(bucket, &object.key)?;
            let etag = object.e_tag.as_ref().map(|etag| headers::our_etag(etag.value()));
            let conditions = etag.map(Conditions::is_version).unwrap_or_default();
            let (size_bytes, modified) = (object.size, object.last_modified_time.clone());
            self.remove(lane, &key, Terms { conditions, size_bytes, modified }).await
        };
        let removed: S3Result<()> = removed.await;
        (object, removed)
    }

    pub(super) async fn delete_several(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let input = request.input;
        self.bucket(&input.bucket)?;
        let quiet = input.delete.quiet.unwrap_or(false);
        if input.delete.objects.len() > DELETED_MAX {
            let what = "at most 1000 objects are deleted at once";
            return Err(S3Error::with_message(S3ErrorCode::MalformedXML, what));
        }
        if input.delete.objects.iter().any(|object| object.key.is_empty()) {
            return Err(S3Error::with_message(S3ErrorCode::MalformedXML, MALFORMED_XML));
        }
        let lane = &lane_of(&request.extensions)?;
        let bucket = input.bucket.as_str();
        let each = input.delete.objects.into_iter();
        let each = each.map(|object| self.delete_one(lane, bucket, object));
        let all: Vec<_> = stream::iter(each).buffered(DELETES).collect().await;
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for (object, removed) in all {
            let (key, version_id) = (Some(object.key), object.version_id);
            match removed {
                Ok(()) if quiet => {}
                Ok(()) => {
                    deleted.push(DeletedObject { key, version_id, ..DeletedObject::default() })
                }
                Err(error) => errors.push(s3s::dto::Error {
                    code: Some(error.code().as_str().to_owned()),
                    key,
                    message: error.message().map(str::to_owned),
                    version_id,
                }),
            }
        }
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: Some(deleted),
            errors: Some(errors),
            ..DeleteObjectsOutput::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use origin::Metadata;

    use super::*;

    #[test]
    fn terms_are_those_of_the_version() {
        let metadata = Metadata {
            size: 5,
            etag: "e".into(),
            modified_unix_us: 7_900_000,
            attributes: Default::default(),
        };
        let version = Version::from(metadata);
        let at = |seconds| Some(Timestamp::from(UNIX_EPOCH + Duration::from_secs(seconds)));
        for (size_bytes, modified, expected) in [
            (None, None, true),
            (Some(5), None, true),
            (Some(4), None, false),
            (Some(-5), None, false),
            (None, at(7), true),
            (None, at(8), false),
            (Some(5), at(7), true),
            (Some(6), at(7), false),
        ] {
            let terms = Terms { size_bytes, modified, ..Terms::default() };
            assert_eq!(terms.hold_for(&version), expected, "{size_bytes:?}");
        }
    }
}
