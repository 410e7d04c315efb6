//! The checksum that an upload in parts gets: its algorithm and its type, as CreateMultipartUpload names them, and the
//! checksum of the whole object from those of its parts.
//!
//! A composite checksum is that of the checksums of the parts, one after another, with their number. The checksum of all
//! bytes follows from those of the parts for CRCs alone: for `a` followed by `b`, `crc(ab) = crc(a)·x^(8·len(b)) + crc(b)` over the
//! field of two elements, modulo the polynomial (zlib's `crc32_combine`). The power of x is computed once for each size, so that
//! 10,000 parts of one size take 10,000 multiplications, each of at most 64 steps.

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use s3s::dto::{Checksum, ChecksumAlgorithm, ChecksumType};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::asked::sum_bytes;
use super::checksums::{ALGORITHMS, hasher, set_value, value};
use super::messages::error;

/// Algorithms that AWS has beyond those here.
const NOT_HERE: [&str; 5] = ["sha512", "md5", "xxhash64", "xxhash3", "xxhash128"];

/// Algorithm and type of an upload's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadChecksum {
    /// As in headers after `x-amz-checksum-`.
    pub algorithm: &'static str,
    /// Whether it is made of the checksums of the parts, and not of all bytes.
    pub is_composite: bool,
}

/// A polynomial of a reflected CRC whose register begins and ends inverted.
#[derive(Clone, Copy)]
struct Polynomial {
    bits: u32,
    /// Reflected, without the highest power.
    terms: u64,
}

impl Polynomial {
    fn of_algorithm(algorithm: &str) -> Option<Polynomial> {
        match algorithm {
            "crc32" => Some(Polynomial { bits: 32, terms: 0xedb8_8320 }),
            "crc32c" => Some(Polynomial { bits: 32, terms: 0x82f6_3b78 }),
            "crc64nvme" => Some(Polynomial { bits: 64, terms: 0x9a6c_9329_ac4b_c9b5 }),
            _ => None,
        }
    }

    /// The product of two polynomials, modulo this one. The highest bit is x⁰.
    fn product(self, a: u64, mut b: u64) -> u64 {
        let (mut product, mut mask) = (0, 1 << (self.bits - 1));
        while mask != 0 {
            if a & mask != 0 {
                product ^= b;
            }
            b = if b & 1 == 0 { b >> 1 } else { (b >> 1) ^ self.terms };
            mask >>= 1;
        }
        product
    }

    /// x to the power of 8 times a number of bytes.
    fn power_of_bytes(self, mut bytes: u64) -> u64 {
        let one = 1 << (self.bits - 1);
        let (mut power, mut base) = (one, one >> 8);
        while bytes > 0 {
            if bytes & 1 == 1 {
                power = self.product(power, base);
            }
            base = self.product(base, base);
            bytes >>= 1;
        }
        power
    }
}

impl UploadChecksum {
    /// What a request for an upload names; `None` if it names nothing.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` for names that are unknown or do not go together, `NotImplemented` for algorithms that there are not here.
    pub fn of_request(
        algorithm: Option<&ChecksumAlgorithm>,
        kind: Option<&ChecksumType>,
    ) -> S3Result<Option<UploadChecksum>> {
        let invalid = |what: String| Err(error(S3ErrorCode::InvalidRequest, what));
        let kind = kind.map(|kind| kind.as_str().to_ascii_uppercase());
        if kind.as_ref().is_some_and(|kind| !["COMPOSITE", "FULL_OBJECT"].contains(&kind.as_str()))
        {
            return invalid("Value for x-amz-checksum-type header is invalid.".to_owned());
        }
        let Some(named) = algorithm.map(|named| named.as_str().to_ascii_lowercase()) else {
            if kind.is_none() {
                return Ok(None);
            }
            let what = "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header.";
            return invalid(what.to_owned());
        };
        if NOT_HERE.contains(&named.as_str()) {
            let what = format!("the checksum {named} is not supported here");
            return Err(error(S3ErrorCode::NotImplemented, what));
        }
        let Some(algorithm) = ALGORITHMS.into_iter().find(|of| *of == named) else {
            let what = "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, \
                CRC32C, CRC64NVME, SHA1, SHA256]";
            return invalid(what.to_owned());
        };
        // As at AWS: CRC-64/NVME has no composite checksum, and hashes of parts say nothing of all bytes.
        let is_composite = kind.as_ref().map_or(algorithm != "crc64nvme", |it| it == "COMPOSITE");
        let fits = if is_composite {
            algorithm != "crc64nvme"
        } else {
            Polynomial::of_algorithm(algorithm).is_some()
        };
        if !fits {
            let kind = if is_composite { "COMPOSITE" } else { "FULL_OBJECT" };
            return invalid(format!(
                "The {kind} checksum type cannot be used with the {algorithm} checksum algorithm."
            ));
        }
        Ok(Some(UploadChecksum { algorithm, is_composite }))
    }

    /// What was written as [`UploadChecksum::words`].
    pub fn of_words(words: &str) -> Option<UploadChecksum> {
        let (algorithm, kind) = words.split_once(' ')?;
        let algorithm = ALGORITHMS.into_iter().find(|of| *of == algorithm)?;
        Some(UploadChecksum { algorithm, is_composite: kind == "COMPOSITE" })
    }

    /// Algorithm and type, as they are kept.
    pub fn words(self) -> String {
        format!("{} {}", self.algorithm, self.kind_text())
    }

    /// The algorithm, as XML has it.
    pub fn name(self) -> ChecksumAlgorithm {
        ChecksumAlgorithm::from(self.algorithm.to_ascii_uppercase())
    }

    /// The type, as XML has it.
    pub fn kind(self) -> ChecksumType {
        ChecksumType::from_static(self.kind_text())
    }

    /// The same, as a text.
    pub fn kind_text(self) -> &'static str {
        if self.is_composite { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT }
    }

    /// Refuses a part whose checksum is of another algorithm than the upload's, or missing where the upload's is made of those
    /// of the parts.
    ///
    /// # Errors
    ///
    /// `InvalidRequest`.
    pub fn takes_part(self, with: Option<&str>) -> S3Result<()> {
        let fits = match with {
            Some(of) => of == self.algorithm,
            None => !self.is_composite,
        };
        if fits {
            return Ok(());
        }
        let what = format!(
            "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
            self.algorithm,
            with.unwrap_or("null")
        );
        Err(error(S3ErrorCode::InvalidRequest, what))
    }

    /// The checksum of the whole from the sizes and the checksums of all parts, in order; `None` if it does not follow from
    /// them.
    pub fn of_parts<'a>(self, parts: impl Iterator<Item = (u64, &'a [u8])>) -> Option<Checksum> {
        let text = match self.is_composite {
            true => {
                let (mut all, mut count) = (hasher(|of| of == self.algorithm), 0);
                for (_, sum) in parts {
                    all.update(sum);
                    count += 1;
                }
                format!("{}-{count}", value(&all.finalize(), self.algorithm)?)
            }
            false => BASE64.encode(self.full(parts)?),
        };
        let mut whole = Checksum { checksum_type: Some(self.kind()), ..Checksum::default() };
        set_value(&mut whole, self.algorithm, text);
        Some(whole)
    }

    fn full<'a>(self, parts: impl Iterator<Item = (u64, &'a [u8])>) -> Option<Vec<u8>> {
        let polynomial = Polynomial::of_algorithm(self.algorithm)?;
        let bytes = sum_bytes(self.algorithm)?;
        // The checksum of nothing is 0.
        let (mut whole, mut of_size) = (0, (0, polynomial.power_of_bytes(0)));
        for (size, sum) in parts {
            let mut wide = [0; 8];
            wide.get_mut(8 - bytes..)?.copy_from_slice(sum.get(..bytes)?);
            if of_size.0 != size {
                of_size = (size, polynomial.power_of_bytes(size));
            }
            whole = polynomial.product(of_size.1, whole) ^ u64::from_be_bytes(wide);
        }
        Some(whole.to_be_bytes()[8 - bytes..].to_vec())
    }
}

/// A checksum's bytes; `None` if the text is not a checksum of this algorithm.
pub fn decode(algorithm: &str, text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok().filter(|sum| Some(sum.len()) == sum_bytes(algorithm))
}

/// The only algorithm of which there is a value.
///
/// # Errors
///
/// `InvalidArgument` if there are several, or the value is malformed: of a part that a completion names.
pub fn single(checksum: &Checksum) -> Result<Option<(&'static str, Vec<u8>)>, S3Error> {
    let mut there = ALGORITHMS.iter().filter_map(|of| Some((*of, value(checksum, of)?)));
    let Some((algorithm, text)) = there.next() else { return Ok(None) };
    match decode(algorithm, text).filter(|_| there.next().is_none()) {
        Some(sum) => Ok(Some((algorithm, sum))),
        None => {
            let what = "Invalid Base64 or multiple checksums present in request";
            Err(error(S3ErrorCode::InvalidArgument, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum_of(algorithm: &str, bytes: &[u8]) -> Vec<u8> {
        let mut hasher = hasher(|of| of == algorithm);
        hasher.update(bytes);
        decode(algorithm, value(&hasher.finalize(), algorithm).unwrap()).unwrap()
    }

    #[test]
    fn algorithms_and_types_go_together_as_at_aws() {
        let asked = |algorithm: Option<&str>, kind: Option<&str>| {
            let algorithm = algorithm.map(|it| ChecksumAlgorithm::from(it.to_owned()));
            let kind = kind.map(|it| ChecksumType::from(it.to_owned()));
            let found = UploadChecksum::of_request(algorithm.as_ref(), kind.as_ref());
            found.map(|it| it.map(UploadChecksum::words)).map_err(|it| it.code().clone())
        };
        assert_eq!(asked(None, None), Ok(None));
        for (algorithm, kind, words) in [
            ("crc32", None, "crc32 COMPOSITE"),
            ("CRC32C", Some("full_object"), "crc32c FULL_OBJECT"),
            ("Crc64Nvme", None, "crc64nvme FULL_OBJECT"),
            ("SHA1", None, "sha1 COMPOSITE"),
            ("SHA256", Some("COMPOSITE"), "sha256 COMPOSITE"),
        ] {
            let found = asked(Some(algorithm), kind).unwrap().unwrap();
            assert_eq!(found, words);
            assert_eq!(UploadChecksum::of_words(&found).unwrap().words(), words);
        }
        for (algorithm, kind, code) in [
            (None, Some("COMPOSITE"), S3ErrorCode::InvalidRequest),
            (Some("crc32"), Some("other"), S3ErrorCode::InvalidRequest),
            (Some("crc33"), None, S3ErrorCode::InvalidRequest),
            (Some("SHA1"), Some("FULL_OBJECT"), S3ErrorCode::InvalidRequest),
            (Some("SHA256"), Some("FULL_OBJECT"), S3ErrorCode::InvalidRequest),
            (Some("CRC64NVME"), Some("COMPOSITE"), S3ErrorCode::InvalidRequest),
            (Some("SHA512"), None, S3ErrorCode::NotImplemented),
        ] {
            assert_eq!(asked(algorithm, kind), Err(code), "{algorithm:?} {kind:?}");
        }
        assert_eq!(UploadChecksum::of_words("crc32"), None);
        assert_eq!(UploadChecksum::of_words("md5 COMPOSITE"), None);
    }

    #[test]
    fn a_composite_checksum_is_that_of_ceph() {
        // Ceph's test_multipart_checksum_sha256: 1,024 times `A` as the only part.
        let part = sum_of("sha256", &[b'A'; 1024]);
        let upload = UploadChecksum { algorithm: "sha256", is_composite: true };
        let whole = upload.of_parts([(1024, part.as_slice())].into_iter()).unwrap();
        let expected = "Ok6Cs5b96ux6+MWQkJO7UBT5sKPBeXBLwvj/hK89smg=-1";
        assert_eq!(whole.checksum_sha256.as_deref(), Some(expected));
        assert_eq!(whole.checksum_type.unwrap().as_str(), "COMPOSITE");
    }

    #[test]
    fn parts_have_at_most_one_checksum_each() {
        let of = |crc32: Option<&str>, sha1: Option<&str>| {
            let (crc32, sha1) = (crc32.map(str::to_owned), sha1.map(str::to_owned));
            single(&Checksum { checksum_crc32: crc32, checksum_sha1: sha1, ..Checksum::default() })
        };
        assert!(of(None, None).unwrap().is_none());
        assert_eq!(of(Some("AAAAAQ=="), None).unwrap(), Some(("crc32", vec![0, 0, 0, 1])));
        for (crc32, sha1) in
            [(Some("x"), None), (Some("AAAA"), None), (Some("AAAAAQ=="), Some("AAAAAQ=="))]
        {
            assert_eq!(of(crc32, sha1).unwrap_err().code(), &S3ErrorCode::InvalidArgument);
        }
    }

    proptest! {
        /// The naive twin hashes all bytes.
        #[test]
        fn crcs_of_parts_are_combined(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            at in 0usize..3,
        ) {
            let algorithm = ["crc32", "crc32c", "crc64nvme"][at];
            let sums: Vec<_> = parts.iter().map(|part| sum_of(algorithm, part)).collect();
            let sized = parts.iter().map(|part| part.len() as u64).zip(sums.iter().map(Vec::as_slice));
            let upload = UploadChecksum { algorithm, is_composite: false };
            let whole = upload.of_parts(sized).unwrap();
            let whole = decode(algorithm, value(&whole, algorithm).unwrap());
            prop_assert_eq!(whole, Some(sum_of(algorithm, &parts.concat())));
        }
    }
}
