//! The parts of uploads that are under way: objects of the origin, with the checksums that they were sent with.
//!
//! The checksum that the upload has been begun with is among a part's metadata where it came in a header. Where it is known only
//! once all bytes have passed, which is after the metadata, it is an object of its own beside the part, with the part's etag:
//! that of a part that was sent anew in between does not fit, and is passed by.

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use bytes::Bytes;
use ground::Key;
use http::header::CONTENT_RANGE;
use origin::{Attributes, BoxFuture, Chunks, Error, Listed, Metadata, SingleChunk};
use s3s::checksum::ChecksumHasher;
use s3s::dto::{
    Checksum, CopyPartResult, ETag, ListPartsInput, ListPartsOutput, Part, StorageClass,
    UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use super::asked::copied_range;
use super::checksums::{ALGORITHMS, claimed, hasher, set_value, value, with_checksums};
use super::headers;
use super::hidden::PARTS;
use super::inner::Inner;
use super::kept_parts::PARTS_MAX;
use super::listing::{max_of, not_negative, time};
use super::messages::error;
use super::objects::{Sent, Upload};
use super::parameters::check_number;
use super::upload_checksum::{UploadChecksum, decode};
use wire::body;
use wire::body::{Budget, RequestBody};
use wire::pace::Pace;

/// How the key of the checksum of a part ends, after the part's.
const SUM_END: &str = ".sum";
/// The name of the metadata of a checksum with the etag of the part that it is of.
const SUM_OF: &str = "of";
/// Names on a page of a listing.
const PAGE: usize = 1000;

/// A part of an upload.
#[derive(Clone)]
pub struct UploadedPart {
    /// Its number.
    pub number: i32,
    /// The object of the origin that it is.
    pub listed: Listed,
    /// Its checksum, if the upload has one: the algorithm, and the bytes.
    pub sum: Option<(&'static str, Vec<u8>)>,
}

impl UploadedPart {
    fn checksum(&self) -> Checksum {
        let mut checksum = Checksum::default();
        if let Some((of, sum)) = &self.sum {
            set_value(&mut checksum, of, BASE64.encode(sum));
        }
        checksum
    }
}

fn part_name(upload: &str, number: i32) -> String {
    format!("{PARTS}{upload}/{number:05}")
}

fn part_key(upload: &str, number: i32) -> Key {
    Key::from(part_name(upload, number).into_bytes())
}

fn sum_key(upload: &str, number: i32) -> Key {
    Key::from(format!("{}{SUM_END}", part_name(upload, number)).into_bytes())
}

fn etag_of(metadata: &Metadata) -> ETag {
    ETag::Strong(headers::etag(&metadata.etag))
}

/// The checksum in the metadata of a part, or in that of the object beside it.
fn sum_in(attributes: &Attributes) -> Option<(&'static str, Vec<u8>)> {
    attributes.user.iter().find_map(|(name, text)| {
        let algorithm = ALGORITHMS.into_iter().find(|of| of == name)?;
        Some((algorithm, decode(algorithm, text)?))
    })
}

/// Adds what is listed, in order: parts, and checksums after theirs.
fn add(all: &mut Vec<UploadedPart>, listed: Listed) {
    let name = std::str::from_utf8(&listed.key).ok().and_then(|key| key.rsplit('/').next());
    let Some(name) = name else { return };
    if let Some(number) = name.strip_suffix(SUM_END).and_then(|name| name.parse::<i32>().ok()) {
        let attributes = &listed.metadata.attributes;
        let of = attributes.user.iter().find(|(name, _)| name == SUM_OF).map(|(_, of)| of.as_str());
        let part = all.last_mut().filter(|part| part.number == number);
        if let Some(part) = part.filter(|part| of == Some(&*part.listed.metadata.etag)) {
            part.sum = sum_in(attributes);
        }
    } else if let Ok(number) = name.parse() {
        let sum = sum_in(&listed.metadata.attributes);
        all.push(UploadedPart { number, listed, sum });
    }
}

/// Bytes whose checksum is computed as they pass.
struct Summed {
    bytes: Box<dyn Chunks>,
    hasher: ChecksumHasher,
}

impl Chunks for Summed {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move {
            let piece = self.bytes.next().await;
            if let Some(Ok(piece)) = &piece {
                self.hasher.update(piece);
            }
            piece
        })
    }
    fn bytes_left(&self) -> Option<u64> {
        self.bytes.bytes_left()
    }
}

impl Inner {
    /// The parts of an upload after one, in order, at most `max`.
    pub(super) async fn parts(
        &self,
        upload: &str,
        after: i32,
        max: usize,
    ) -> S3Result<Vec<UploadedPart>> {
        let mut all = Vec::new();
        let mut position = part_key(upload, after.clamp(0, 99_999)).to_vec();
        // Until one more is there than wanted: the checksum of the last follows it.
        while all.len() <= max {
            let limit = (2 * (max - all.len()) + 2).min(PAGE);
            let page = self.page_of_parts(upload, &position, limit).await?;
            let is_last = page.len() < limit;
            if let Some(one) = page.last() {
                position = one.key.to_vec();
            }
            page.into_iter().for_each(|listed| add(&mut all, listed));
            if is_last {
                break;
            }
        }
        all.truncate(max);
        Ok(all)
    }

    async fn page_of_parts(
        &self,
        upload: &str,
        after: &[u8],
        limit: usize,
    ) -> S3Result<Vec<Listed>> {
        let prefix = format!("{PARTS}{upload}/");
        let listing = self.store.origin().list(prefix.as_bytes(), Some(after), limit);
        self.within_timeout(listing).await
    }

    /// All that is kept of an upload's parts: they, and their checksums.
    pub(super) async fn objects_of(&self, upload: &str) -> S3Result<Vec<Listed>> {
        let (mut all, mut position) = (Vec::new(), part_key(upload, 0).to_vec());
        while all.len() < 2 * PARTS_MAX {
            let page = self.page_of_parts(upload, &position, PAGE).await?;
            let is_last = page.len() < PAGE;
            if let Some(one) = page.last() {
                position = one.key.to_vec();
            }
            all.extend(page);
            if is_last {
                break;
            }
        }
        Ok(all)
    }

    async fn keep_part(
        &self,
        upload: &str,
        number: i32,
        attributes: Attributes,
        body: &mut dyn Chunks,
    ) -> S3Result<Metadata> {
        self.keep(&part_key(upload, number), attributes, body).await
    }

    fn paced(&self, body: Box<dyn Chunks>) -> body::Upload {
        let pace = Pace::from_settings(&self.store.front().config.serve);
        body::Upload::new(RequestBody::Stream(body), pace, 0, Budget::new(0))
    }

    /// Keeps a checksum beside the part that it is of.
    async fn keep_sum(
        &self,
        upload: &str,
        number: i32,
        part: &Metadata,
        sum: (&str, &str),
    ) -> S3Result<()> {
        let (algorithm, text) = sum;
        let mut user = vec![
            (algorithm.to_owned(), text.to_owned()),
            (SUM_OF.to_owned(), part.etag.to_string()),
        ];
        user.sort();
        let attributes = Attributes { content_type: None, user };
        let mut body = SingleChunk::new(Bytes::new());
        self.keep(&sum_key(upload, number), attributes, &mut body).await.map(|_| ())
    }

    pub(super) async fn part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let input = request.input;
        let (upload_id, number) = (input.upload_id, input.part_number);
        check_number(number)?;
        self.key(&input.bucket, &input.key)?;
        let begun = self.description_of(&upload_id, &input.bucket, &input.key).await?;
        let whole = begun.checksum();
        let stated = with_checksums!(input => Checksum {
            checksum_type: None,
        });
        let trailer = request.headers.get("x-amz-trailer").and_then(|it| it.to_str().ok());
        if let Some(whole) = whole {
            whole.takes_part(claimed(&stated, trailer.unwrap_or("")).first().copied())?;
        }
        let computed = whole.map(|whole| whole.algorithm);
        let in_header =
            computed.and_then(|of| Some((of.to_owned(), value(&stated, of)?.to_owned())));
        let upload = Upload {
            body: input.body,
            length: input.content_length,
            md5: input.content_md5,
            checksum: stated,
            trailers: request.trailing_headers,
            is_verified: true,
            computed,
        };
        let (checked, _) = upload.checked(&request.headers)?;
        let verdict = checked.verdict();
        let is_known = in_header.is_some();
        let attributes = Attributes { content_type: None, user: in_header.into_iter().collect() };
        let mut paced = self.paced(Box::new(checked));
        let kept = self.keep_part(&upload_id, number, attributes, &mut paced).await;
        let metadata = kept.map_err(|error| verdict.or(error))?;
        let checksum = verdict.checksum();
        if let Some(of) = computed.filter(|_| !is_known)
            && let Some(text) = value(&checksum, of)
        {
            self.keep_sum(&upload_id, number, &metadata, (of, text)).await?;
        }
        Ok(S3Response::new(with_checksums!(checksum => UploadPartOutput {
            e_tag: Some(etag_of(&metadata)),
            ..UploadPartOutput::default()
        })))
    }

    /// The bytes that a copy takes from its source.
    async fn copied_bytes(
        &self,
        request: &S3Request<UploadPartCopyInput>,
    ) -> S3Result<Box<dyn Chunks>> {
        let input = &request.input;
        let range = input.copy_source_range.as_deref();
        let ends = range.map(copied_range).transpose()?;
        let answer = self.source(request, &input.copy_source, range).await;
        let outside = |size: &str| {
            let what = format!("Range specified is not valid for source object of size: {size}");
            error(S3ErrorCode::InvalidArgument, what)
        };
        let answer = match answer {
            Err(error) if *error.code() == S3ErrorCode::InvalidRange => {
                let range = error.headers().and_then(|it| it.get(CONTENT_RANGE)?.to_str().ok());
                return Err(outside(
                    range.and_then(|it| it.rsplit('/').next()).unwrap_or("unknown"),
                ));
            }
            answer => answer?,
        };
        // A range that ends behind the object would be cut, and is an error at AWS.
        let length = Some(answer.length());
        if ends.is_some_and(|(first, last)| length != (last - first).checked_add(1)) {
            return Err(outside(&answer.version.size.to_string()));
        }
        Ok(match answer.sent() {
            Sent::Stream(body) => body,
            Sent::Whole(bytes) => Box::new(SingleChunk::new(bytes)),
        })
    }

    pub(super) async fn part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let input = &request.input;
        let (upload_id, number) = (&input.upload_id, input.part_number);
        check_number(number)?;
        self.key(&input.bucket, &input.key)?;
        let begun = self.description_of(upload_id, &input.bucket, &input.key).await?;
        let bytes = self.copied_bytes(&request).await?;
        let algorithm = begun.checksum().map(|whole: UploadChecksum| whole.algorithm);
        let paced = Box::new(self.paced(bytes));
        let mut summed = Summed { bytes: paced, hasher: hasher(|of| Some(of) == algorithm) };
        let kept = self.keep_part(upload_id, number, Attributes::default(), &mut summed).await;
        let metadata = kept?;
        let checksum = summed.hasher.finalize();
        if let Some(of) = algorithm
            && let Some(text) = value(&checksum, of)
        {
            self.keep_sum(upload_id, number, &metadata, (of, text)).await?;
        }
        let result = with_checksums!(checksum => CopyPartResult {
            e_tag: Some(etag_of(&metadata)),
            last_modified: Some(time(metadata.modified_unix_us)),
        });
        Ok(S3Response::new(UploadPartCopyOutput {
            copy_part_result: Some(result),
            ..UploadPartCopyOutput::default()
        }))
    }

    pub(super) async fn parts_page(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let input = request.input;
        let begun = self.description_of(&input.upload_id, &input.bucket, &input.key).await?;
        let marker = input.part_number_marker.unwrap_or(0);
        not_negative(marker)?;
        let max = max_of(input.max_parts)?;
        let mut listed = self.parts(&input.upload_id, marker, max + 1).await?;
        // A page of no parts says no more: it has no marker to go on from.
        let more = max > 0 && listed.len() > max;
        listed.truncate(max);
        let whole = begun.checksum();
        Ok(S3Response::new(ListPartsOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(input.upload_id),
            is_truncated: Some(more),
            next_part_number_marker: listed.last().map(|part| part.number),
            part_number_marker: Some(marker),
            max_parts: Some(max as i32),
            parts: Some(listed.iter().map(part_listed).collect()),
            storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
            checksum_algorithm: whole.map(UploadChecksum::name),
            checksum_type: whole.map(UploadChecksum::kind),
            ..ListPartsOutput::default()
        }))
    }
}

fn part_listed(part: &UploadedPart) -> Part {
    let (metadata, checksum) = (&part.listed.metadata, part.checksum());
    with_checksums!(checksum => Part {
        part_number: Some(part.number),
        e_tag: Some(etag_of(metadata)),
        last_modified: Some(time(metadata.modified_unix_us)),
        size: i64::try_from(metadata.size).ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, etag: &str, user: &[(&str, &str)]) -> Listed {
        let user = user.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let attributes = Attributes { content_type: None, user: user.collect() };
        let metadata = Metadata { size: 1, etag: etag.into(), modified_unix_us: 0, attributes };
        Listed { key: Key::from(format!("{PARTS}u/{name}").into_bytes()), metadata }
    }

    #[test]
    fn checksums_follow_their_parts() {
        let one = "AAAAAQ==";
        let mut all = Vec::new();
        for (name, etag, user) in [
            // Of a part that is not there any more.
            ("00001.sum", "s", &[("crc32", one), ("of", "a")][..]),
            ("00002", "b", &[("crc32", one)]),
            ("00003", "c", &[]),
            ("00003.sum", "s", &[("crc32", one), ("of", "c")]),
            // Of the part before it was sent anew.
            ("00004", "d", &[]),
            ("00004.sum", "s", &[("crc32", one), ("of", "b")]),
            ("00005", "e", &[("crc32", "AAAA")]),
            ("other", "f", &[]),
        ] {
            add(&mut all, listed(name, etag, user));
        }
        let found: Vec<_> = all.iter().map(|part| (part.number, part.sum.is_some())).collect();
        assert_eq!(found, [(2, true), (3, true), (4, false), (5, false)]);
        assert_eq!(all[1].checksum().checksum_crc32.as_deref(), Some(one));
    }
}
