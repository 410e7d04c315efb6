//! Operations on the tags of objects.
//!
//! A change of tags writes the object again, on the condition that it is still the one that was read.

use std::sync::Arc;

use ground::Key;
use s3s::dto::{
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingInput,
    GetObjectTaggingOutput, PutObjectTaggingInput, PutObjectTaggingOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::headers;
use super::inner::Inner;
use super::objects::{lane_of, only_version};
use super::tags::Tags;
use store::ReadRequest;
use wire::condition::Conditions;
use wire::lane::ThreadRecorder;

/// How often a change of tags is tried while others write the object.
const ATTEMPTS: usize = 5;

impl Inner {
    pub(super) async fn get_tags(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        let input = &request.input;
        only_version(input.version_id.as_deref())?;
        let key = self.key(&input.bucket, &input.key)?;
        let lane = lane_of(&request.extensions)?;
        let answer = self.look(&lane, &key).await?;
        let tag_set = Tags::of_object(&answer.version.attributes).into_set();
        Ok(S3Response::new(GetObjectTaggingOutput { tag_set, version_id: None }))
    }

    pub(super) async fn put_tags(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        let input = request.input;
        only_version(input.version_id.as_deref())?;
        let key = self.key(&input.bucket, &input.key)?;
        let tags = Tags::of_set(input.tagging.tag_set)?;
        self.replace_tags(&lane_of(&request.extensions)?, &key, &tags).await?;
        Ok(S3Response::new(PutObjectTaggingOutput::default()))
    }

    pub(super) async fn delete_tags(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        let input = &request.input;
        only_version(input.version_id.as_deref())?;
        let key = self.key(&input.bucket, &input.key)?;
        self.replace_tags(&lane_of(&request.extensions)?, &key, &Tags::default()).await?;
        Ok(S3Response::new(DeleteObjectTaggingOutput::default()))
    }

    /// Gives an object other tags: writes it again with its bytes and the rest of its metadata.
    async fn replace_tags(
        &self,
        lane: &Arc<ThreadRecorder>,
        key: &Key,
        tags: &Tags,
    ) -> S3Result<()> {
        for _ in 0..ATTEMPTS {
            let answer = self.read(lane, &ReadRequest::get(key.clone())).await?;
            let mut wanted = answer.version.attributes.clone();
            if Tags::of_object(&wanted) == *tags {
                return Ok(());
            }
            headers::keep_tags(&mut wanted, tags);
            let unchanged = Conditions::is_version(&answer.version.etag);
            match self.write(lane, key, wanted, unchanged, answer.sent()).await {
                // Another write came between.
                Err(error) if *error.code() == S3ErrorCode::PreconditionFailed => {}
                written => return written.map(|_| ()),
            }
        }
        let what = "the object is written by others all the time: try again";
        Err(S3Error::with_message(S3ErrorCode::OperationAborted, what))
    }
}
