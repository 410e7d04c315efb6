//! Completing an upload in parts: the parts that the client names are judged, and written one after another as the object.
//!
//! What the object keeps of its parts, and its checksum, are among its metadata, which precede the bytes: so they are made of the
//! checksums that the parts were sent with. A checksum that only the completion states is verified as the bytes pass, and the
//! last of them pass only if it is right.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use ground::Key;
use http::header::HOST;
use origin::{BoxFuture, Chunks, Error, Listed, Origin};
use s3s::dto::{
    Checksum, CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart, ETag,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::checksums::{ALGORITHMS, value, with_checksums};
use super::completed::{Stated, Verified};
use super::inner::Inner;
use super::kept_parts::{KeptParts, PARTS_MAX};
use super::messages::{INVALID_PART, MALFORMED_XML, PART_ORDER, TOO_SMALL, error};
use super::multipart::{begun_key, remove};
use super::objects::{Sent, lane_of};
use super::parameters::check_number;
use super::upload_checksum::{UploadChecksum, single};
use super::upload_parts::UploadedPart;
use super::{headers, repeated};
use wire::lane::ThreadRecorder;

/// The least bytes of a part that is not the last.
const PART_BYTES_MIN: u64 = 5 << 20;

/// The parts of an upload, one after another.
struct Joined {
    origin: Arc<dyn Origin>,
    parts: VecDeque<Listed>,
    current: Option<Box<dyn Chunks>>,
    left: u64,
}

impl Joined {
    async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(piece) = current.next().await.transpose()? {
                    self.left = self.left.saturating_sub(piece.len() as u64);
                    return Ok(Some(piece));
                }
                self.current = None;
            }
            let Some(part) = self.parts.pop_front() else { return Ok(None) };
            match self.origin.get(&part.key, None).await? {
                Some(found) if found.metadata.etag == part.metadata.etag => {
                    self.current = Some(found.body);
                }
                _ => return Err(Error::Failed("a part was replaced meanwhile".to_owned())),
            }
        }
    }
}

impl Chunks for Joined {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move { self.piece().await.transpose() })
    }
    fn bytes_left(&self) -> Option<u64> {
        Some(self.left)
    }
}

/// A part that a client names.
struct NamedPart {
    part: UploadedPart,
    /// What the client states of it.
    stated: Checksum,
}

/// What an object is made of.
struct Completion {
    parts: KeptParts,
    /// Its checksum, if there is one.
    checksum: Checksum,
    /// What remains to be verified as the bytes pass.
    stated: Stated,
}

impl NamedPart {
    /// The checksum of an algorithm: the one that the part was sent with, or the one that is stated now. The latter is still to be
    /// verified, and is the second.
    fn sums(&self, of_upload: Option<UploadChecksum>) -> S3Result<(Option<Vec<u8>>, bool)> {
        let invalid = || S3Error::with_message(S3ErrorCode::InvalidPart, INVALID_PART);
        let stated = single(&self.stated)?;
        let number = self.part.number;
        match (&self.part.sum, &stated) {
            (Some((of, sum)), Some((stated_of, stated))) if of == stated_of && sum != stated => {
                return Err(invalid());
            }
            (Some((of, _)), Some((stated_of, _))) if of != stated_of => {
                let what = format!(
                    "The {stated_of} you specified for part {number} did not match what we received."
                );
                return Err(error(S3ErrorCode::BadDigest, what));
            }
            _ => {}
        }
        let wanted = of_upload.map(|upload| upload.algorithm);
        let of_wanted = |(of, _): &&(&'static str, Vec<u8>)| Some(*of) == wanted;
        let sent = self.part.sum.as_ref().filter(of_wanted);
        let sum = sent.or(stated.as_ref().filter(of_wanted)).map(|(_, sum)| sum.clone());
        Ok((sum, stated.is_some() && self.part.sum.is_none()))
    }
}

impl Completion {
    /// Judges what a client states of parts and of the whole. `agreed` is what the upload was begun with.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` for a checksum of another type than agreed, or one that is missing; `InvalidPart` and `BadDigest` for
    /// wrong ones, as far as they are known to be; `InvalidArgument` for malformed ones.
    fn judge(
        agreed: Option<UploadChecksum>,
        named: &[NamedPart],
        whole: &Checksum,
    ) -> S3Result<Completion> {
        let kind = whole.checksum_type.as_ref().map(|kind| kind.as_str());
        if let Some(agreed) =
            agreed.filter(|agreed| kind.is_some_and(|it| it != agreed.kind_text()))
        {
            let what = format!(
                "The upload was created using the {} checksum mode. The complete request must use the same checksum mode.",
                agreed.kind_text()
            );
            return Err(error(S3ErrorCode::InvalidRequest, what));
        }
        let is_sum = |of: &&str| value(whole, of).is_some();
        let stated_of = ALGORITHMS.into_iter().find(is_sum);
        let is_composite = kind == Some("COMPOSITE")
            || stated_of.and_then(|of| value(whole, of)).is_some_and(|text| text.contains('-'));
        let alone = stated_of.map(|algorithm| UploadChecksum { algorithm, is_composite });
        let upload = agreed.or(alone);
        let (mut sums, mut unverified) = (Vec::new(), VecDeque::new());
        for part in named {
            if agreed.is_some_and(|it| it.is_composite) && single(&part.stated)?.is_none() {
                let what = format!(
                    "The upload was created using a {} checksum. The complete request must include the checksum for each part. It \
                     was missing for part {} in the request.",
                    agreed.map_or("", |it| it.algorithm),
                    part.part.number
                );
                return Err(error(S3ErrorCode::InvalidRequest, what));
            }
            let (sum, is_unverified) = part.sums(upload)?;
            sums.extend(sum);
            let stated = if is_unverified { part.stated.clone() } else { Checksum::default() };
            unverified.push_back((part.part.listed.metadata.size, stated));
        }
        let sizes: Vec<u64> = unverified.iter().map(|(size, _)| *size).collect();
        let parts = KeptParts::new(sizes, upload.map(|upload| upload.algorithm), &sums);
        let kind = kind
            .or(agreed.filter(|it| Some(it.algorithm) == stated_of).map(UploadChecksum::kind_text));
        let mut stated = Stated::new(unverified, whole, kind)?;
        let computed = upload.and_then(|upload| parts.checksum_of_object(upload));
        let checksum = match computed {
            Some(computed) => {
                if let Some(of) = stated_of
                    && upload.is_some_and(|upload| upload.algorithm == of)
                {
                    stated.settle(value(&computed, of).unwrap_or(""))?;
                }
                computed
            }
            None if agreed.is_none() || agreed == alone => stated.whole_checksum(),
            None => Checksum::default(),
        };
        Ok(Completion { parts, checksum, stated })
    }
}

impl Inner {
    /// The parts that a client names, as they are.
    async fn named(&self, upload: &str, named: Vec<CompletedPart>) -> S3Result<Vec<NamedPart>> {
        let invalid = || S3Error::with_message(S3ErrorCode::InvalidPart, INVALID_PART);
        if named.is_empty()
            || named.iter().any(|part| part.e_tag.is_none() || part.part_number.is_none())
        {
            return Err(S3Error::with_message(S3ErrorCode::MalformedXML, MALFORMED_XML));
        }
        for part in &named {
            check_number(part.part_number.unwrap_or(0))?;
        }
        if !named.is_sorted_by(|a, b| a.part_number < b.part_number) {
            return Err(S3Error::with_message(S3ErrorCode::InvalidPartOrder, PART_ORDER));
        }
        let mut there = self.parts(upload, 0, PARTS_MAX).await?.into_iter();
        let (mut parts, last) = (Vec::with_capacity(named.len()), named.len() - 1);
        for (at, named) in named.into_iter().enumerate() {
            let number = named.part_number.unwrap_or(0);
            // Parts that are not named are left out.
            let part = there.find(|it| it.number >= number).filter(|it| it.number == number);
            let part = part.ok_or_else(invalid)?;
            let etag = named.e_tag.as_ref().map(ETag::value);
            if etag.is_some_and(|etag| headers::our_etag(etag) != &*part.listed.metadata.etag) {
                return Err(invalid());
            }
            if at < last && part.listed.metadata.size < PART_BYTES_MIN {
                return Err(S3Error::with_message(S3ErrorCode::EntityTooSmall, TOO_SMALL));
            }
            parts.push(NamedPart { part, stated: sums_of(&named) });
        }
        Ok(parts)
    }

    pub(super) async fn complete(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let (bucket, key) = (request.input.bucket.clone(), request.input.key.clone());
        let upload = request.input.multipart_upload.as_ref();
        let parts = upload.and_then(|upload| upload.parts.as_deref()).unwrap_or_default();
        let mark = repeated::mark(&request.input.upload_id, parts);
        let lane = lane_of(&request.extensions)?;
        let host = request.headers.get(HOST).and_then(|host| host.to_str().ok());
        let encrypted = self.store.front().config.serve.tls_certificate.is_some();
        let scheme = if encrypted { "https" } else { "http" };
        let address = host.map(|host| format!("{scheme}://{host}")).unwrap_or_default();
        let location = format!("{address}/{bucket}/{}", store::escaped(key.as_bytes()));
        let whole = self.key(&bucket, &key)?;
        let mut output = match self.complete_once(request, &lane, &whole, &mark).await {
            Ok(output) => output,
            // Another request may have completed it.
            Err(error) => match self.made_by(&lane, &whole, &mark).await {
                Some(made) if *error.code() != S3ErrorCode::BadDigest => {
                    output_of(made.e_tag, made.checksum)
                }
                _ => return Err(error),
            },
        };
        output.location = Some(location);
        (output.bucket, output.key) = (Some(bucket), Some(key));
        Ok(S3Response::new(output))
    }

    async fn complete_once(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
        lane: &Arc<ThreadRecorder>,
        key: &Key,
        mark: &str,
    ) -> S3Result<CompleteMultipartUploadOutput> {
        let input = request.input;
        let begun = self.description_of(&input.upload_id, &input.bucket, &input.key).await?;
        let named = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let whole = with_checksums!(input => Checksum {
            checksum_type: input.checksum_type,
        });
        if let Some(size) = input.mpu_object_size.filter(|size| *size < 0) {
            let what = format!("Value for x-amz-mp-object-size header is less than zero: '{size}'");
            return Err(error(S3ErrorCode::InvalidRequest, what));
        }
        let named = self.named(&input.upload_id, named).await?;
        let left: u64 = named.iter().map(|part| part.part.listed.metadata.size).sum();
        if input.mpu_object_size.is_some_and(|size| u64::try_from(size) != Ok(left)) {
            let size = input.mpu_object_size.unwrap_or(0);
            let what = format!(
                "The provided 'x-amz-mp-object-size' header value {size} does not match what was computed: {left}"
            );
            return Err(error(S3ErrorCode::InvalidRequest, what));
        }
        let completion = Completion::judge(begun.checksum(), &named, &whole)?;
        let conditions = headers::conditions(&request.headers, "")?;
        let mut wanted = begun.attributes();
        headers::keep_mark(&mut wanted, mark);
        headers::keep_checksum(&mut wanted, &completion.checksum);
        let upload = input.upload_id;
        self.keep_parts(key, mark, &completion.parts, &mut wanted).await?;
        let origin = self.store.origin().clone();
        let parts = named.into_iter().map(|named| named.part.listed).collect();
        let joined = Joined { origin: origin.clone(), parts, current: None, left };
        let verified = Verified::new(Box::new(joined), completion.stated);
        let verdict = verified.verdict();
        let body = Sent::Stream(Box::new(verified));
        let written = self.write(lane, key, wanted, conditions, body).await;
        let e_tag = written.map_err(|error| verdict.or(error))?;
        self.within_timeout(origin.delete(&begun_key(&upload)?)).await?;
        let rest = self.objects_of(&upload).await?;
        tokio::spawn(async move { remove(&origin, rest).await });
        Ok(output_of(e_tag, completion.checksum))
    }
}

/// The reply about an object that was made.
fn output_of(e_tag: ETag, checksum: Checksum) -> CompleteMultipartUploadOutput {
    with_checksums!(checksum => CompleteMultipartUploadOutput {
        e_tag: Some(e_tag),
        checksum_type: checksum.checksum_type,
        ..CompleteMultipartUploadOutput::default()
    })
}

/// The checksums of a part that a completion names.
fn sums_of(part: &CompletedPart) -> Checksum {
    let part = part.clone();
    with_checksums!(part => Checksum {
        checksum_type: None,
    })
}
