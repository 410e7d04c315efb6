//! The parts of an object that was uploaded in parts: their sizes, and their checksums.
//!
//! They are part of the object's metadata, so that every tier has them with the object, as long as they are short. Longer ones
//! (10,000 parts with SHA-256 take 430 KB, and an S3 store behind takes 2 KB of metadata) are an object of their own in the
//! origin, below [`MADE`], which the metadata names; it never changes, and is removed once the object does not name it any more
//! ([`abandoned`](super::abandoned)).
//!
//! The text: runs of sizes (`3*8388608,17`), and, if there are checksums, `;`, their algorithm, `;`, and all of them in base64,
//! one after another.

use std::collections::VecDeque;
use std::fmt::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use bytes::Bytes;
use ground::Key;
use origin::{Attributes, Error, SingleChunk};
use s3s::S3Result;
use s3s::dto::Checksum;

use super::Inner;
use super::asked::sum_bytes;
use super::checksums::{ALGORITHMS, set_value};
use super::errors::of_origin;
use super::headers;
use super::multipart::encoded;
use super::upload_checksum::UploadChecksum;
use store::Version;

/// How the keys begin of the objects that have the parts of others.
pub const MADE: &str = "!s3/made/";
/// The most parts of an object.
pub const PARTS_MAX: usize = 10_000;
/// The most bytes of names and values of an object's metadata, with its parts. An S3 store takes 2 KiB, of which the rest is for
/// tags that come later, and for what is kept with every object.
const INLINE_BYTES_MAX: usize = 1024;
/// The longest text: 10,000 sizes of 20 digits, and checksums of 32 bytes.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Objects whose parts are remembered: a client that reads part after part asks for them each time.
const REMEMBERED: usize = 16;

/// The parts of an object, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptParts {
    sizes: Vec<u64>,
    algorithm: Option<&'static str>,
    /// The checksums of the parts, one after another.
    sums: Vec<u8>,
}

/// A part of an object.
pub struct KeptPart {
    /// Where its bytes are in the object.
    pub range: Range<u64>,
    /// Its checksum.
    pub checksum: Checksum,
}

impl KeptParts {
    /// Parts by their sizes, without checksums unless each has one of the same algorithm.
    pub fn new(sizes: Vec<u64>, algorithm: Option<&'static str>, sums: &[Vec<u8>]) -> KeptParts {
        let bytes = algorithm.and_then(sum_bytes);
        let all = sums.len() == sizes.len() && sums.iter().all(|sum| Some(sum.len()) == bytes);
        match algorithm.filter(|_| all) {
            Some(of) => KeptParts { sizes, algorithm: Some(of), sums: sums.concat() },
            None => KeptParts { sizes, algorithm: None, sums: Vec::new() },
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.sizes.len()
    }

    /// The bytes of all.
    fn size(&self) -> Option<u64> {
        self.sizes.iter().try_fold(0_u64, |sum, size| sum.checked_add(*size))
    }

    /// A part by its number, from 1 on; `None` if there is none of that number.
    pub fn part(&self, number: usize) -> Option<KeptPart> {
        let at = number.checked_sub(1)?;
        let size = *self.sizes.get(at)?;
        let first: u64 = self.sizes[..at].iter().sum();
        let mut checksum = Checksum::default();
        if let Some((of, sum)) = self.algorithm.zip(self.sum(at)) {
            set_value(&mut checksum, of, BASE64.encode(sum));
        }
        Some(KeptPart { range: first..first + size, checksum })
    }

    fn sum(&self, at: usize) -> Option<&[u8]> {
        let bytes = sum_bytes(self.algorithm?)?;
        self.sums.get(at * bytes..(at + 1) * bytes)
    }

    /// The checksum of all bytes, if it follows from those of the parts.
    pub fn full(&self) -> Option<Checksum> {
        self.whole(UploadChecksum { algorithm: self.algorithm?, is_composite: false })
    }

    /// The checksum of the object, if it follows from those of the parts.
    pub fn whole(&self, upload: UploadChecksum) -> Option<Checksum> {
        if self.algorithm != Some(upload.algorithm) {
            return None;
        }
        let parts: Option<Vec<_>> =
            self.sizes.iter().enumerate().map(|(at, size)| Some((*size, self.sum(at)?))).collect();
        upload.of_parts(parts?.into_iter())
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (at, run) in self.sizes.chunk_by(|a, b| a == b).enumerate() {
            let before = if at == 0 { "" } else { "," };
            let times = if run.len() == 1 { String::new() } else { format!("{}*", run.len()) };
            let _ = write!(text, "{before}{times}{}", run[0]);
        }
        if let Some(algorithm) = self.algorithm {
            let _ = write!(text, ";{algorithm};{}", BASE64.encode(&self.sums));
        }
        text
    }

    /// What [`KeptParts::text`] has written; `None` for another text, or for parts of an object of another size. (Any tool can write
    /// such metadata.)
    fn of_text(text: &str, object_bytes: u64) -> Option<KeptParts> {
        let (runs, sums) = text.split_once(';').map_or((text, None), |(a, b)| (a, Some(b)));
        let mut sizes = Vec::new();
        for run in runs.split(',') {
            let (times, size) = run.split_once('*').unwrap_or(("1", run));
            let (times, size) = (times.parse::<usize>().ok()?, size.parse::<u64>().ok()?);
            if times == 0 || times > PARTS_MAX - sizes.len() {
                return None;
            }
            sizes.resize(sizes.len() + times, size);
        }
        let mut parts = KeptParts { sizes, algorithm: None, sums: Vec::new() };
        if let Some(sums) = sums {
            let (algorithm, sums) = sums.split_once(';')?;
            let algorithm = ALGORITHMS.into_iter().find(|of| *of == algorithm)?;
            parts.algorithm = Some(algorithm);
            parts.sums = BASE64.decode(sums).ok()?;
            if Some(parts.sums.len()) != sum_bytes(algorithm).map(|one| one * parts.count()) {
                return None;
            }
        }
        (parts.size() == Some(object_bytes)).then_some(parts)
    }
}

/// The parts of a few objects, by the names of the objects of the origin that have them.
#[derive(Default)]
pub struct Remembered(Mutex<VecDeque<(String, Arc<KeptParts>)>>);

impl Remembered {
    fn get(&self, name: &str) -> Option<Arc<KeptParts>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(of, _)| of == name).map(|(_, parts)| parts.clone())
    }

    fn put(&self, name: &str, parts: Arc<KeptParts>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back((name.to_owned(), parts));
        if all.len() > REMEMBERED {
            all.pop_front();
        }
    }
}

/// The key of the object with the parts that a completion with this mark named.
fn made_key(mark: &str) -> Key {
    Key::from(format!("{MADE}{mark}").into_bytes())
}

/// The mark of the completion that an object's metadata name.
pub fn named_mark(attributes: &Attributes) -> Option<&str> {
    let name = headers::parts(attributes)?.strip_prefix('@')?;
    let plain = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then_some(name)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_short_and_others_are_refused() {
        let parts = KeptParts::new(vec![8 << 20; 9_999], None, &[]);
        assert_eq!(parts.text(), "9999*8388608");
        let sums = [vec![0; 4], vec![255; 4]];
        let parts = KeptParts::new(vec![5, 3], Some("crc32"), &sums);
        assert_eq!(parts.text(), "5,3;crc32;AAAAAP////8=");
        let part = parts.part(2).unwrap();
        assert_eq!(part.range, 5..8);
        assert_eq!(part.checksum.checksum_crc32.as_deref(), Some("/////w=="));
        assert!(parts.part(0).is_none() && parts.part(3).is_none());
        // One part without a checksum, or with one of another length.
        for sums in [&sums[..1], &[vec![0; 4], vec![0; 8]]] {
            assert_eq!(KeptParts::new(vec![5, 3], Some("crc32"), sums).algorithm, None);
        }
        for (text, size) in [
            ("", 0),
            ("5,3", 9),
            ("x", 0),
            ("0*5", 0),
            ("10001*1", 10_001),
            ("9999*1,2*1", 10_001),
            ("2*18446744073709551615", u64::MAX),
            ("18446744073709551615*1", 1),
            ("5;crc32", 5),
            ("5;md5;AAAAAA==", 5),
            ("5;crc32;AAAA", 5),
            ("5;crc32;AAAAAA==;", 5),
            ("-1", 0),
        ] {
            assert_eq!(KeptParts::of_text(text, size), None, "{text}");
        }
    }

    #[test]
    fn only_marks_are_names() {
        let named = |text: &str| {
            let mut attributes = Attributes::default();
            headers::keep_parts(&mut attributes, text);
            named_mark(&attributes).map(str::to_owned)
        };
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(named(&format!("@{id}")).as_deref(), Some(id));
        for other in ["5,3", "@", "@../../x", &format!("@{id}0"), id] {
            assert_eq!(named(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn parts_come_back(
            runs in prop::collection::vec((0_u64..1 << 40, 1_usize..40), 1..9),
            at in 0_usize..6,
        ) {
            let sizes: Vec<u64> =
                runs.iter().flat_map(|(size, times)| std::iter::repeat_n(*size, *times)).collect();
            let algorithm = ALGORITHMS.get(at).copied();
            let bytes = algorithm.and_then(sum_bytes).unwrap_or(0);
            let sums: Vec<Vec<u8>> = (0..sizes.len()).map(|at| vec![at as u8; bytes]).collect();
            let parts = KeptParts::new(sizes.clone(), algorithm, &sums);
            let total = sizes.iter().sum();
            let back = KeptParts::of_text(&parts.text(), total).unwrap();
            prop_assert_eq!(&back, &parts);
            let mut first = 0;
            for (at, size) in sizes.iter().enumerate() {
                let part = back.part(at + 1).unwrap();
                prop_assert_eq!(part.range, first..first + size);
                first += size;
            }
            prop_assert!(KeptParts::of_text(&parts.text(), total + 1).is_none());
        }

        #[test]
        fn any_text_is_read(text in "[0-9,*;crc321=@]{0,40}", size in 0_u64..100) {
            let _ = KeptParts::of_text(&text, size);
        }
    }
}
