//! The checksums that a client states when it completes an upload in parts: those of the parts, and of the whole. They
//! are verified as the parts pass on to the object.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use bytes::Bytes;
use origin::{BoxFuture, Chunks, Error};
use s3s::checksum::ChecksumHasher;
use s3s::dto::Checksum;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::checksums::{ALGORITHMS, hasher, set_value, type_of, value};
use super::messages::{INVALID_PART, error};

/// A checksum of the whole object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WholeChecksum {
    /// That of its bytes.
    Full(&'static str, String),
    /// That of the checksums of its parts, with their number.
    Composite(&'static str, String),
}

/// What a client states.
#[derive(Debug, Default)]
pub struct Stated {
    /// Of each part: its bytes, and its checksums.
    parts: VecDeque<(u64, Checksum)>,
    whole: Option<WholeChecksum>,
}

impl Stated {
    /// What is stated of parts, with their sizes, and of the whole.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` if the checksum of the whole is not of the type that is stated with it, or of another number of
    /// parts.
    pub fn new(
        parts: VecDeque<(u64, Checksum)>,
        whole: &Checksum,
        kind: Option<&str>,
    ) -> S3Result<Stated> {
        let found = ALGORITHMS.iter().find_map(|of| Some((*of, value(whole, of)?)));
        let Some((of, text)) = found else { return Ok(Stated { parts, whole: None }) };
        let count = text.split_once('-').map(|(_, count)| count);
        let wrong = match count {
            Some(count) => kind == Some("FULL_OBJECT") || count.parse() != Ok(parts.len()),
            None => false,
        };
        if wrong {
            let what = format!("Value for x-amz-checksum-{of} header is invalid.");
            return Err(error(S3ErrorCode::InvalidRequest, what));
        }
        let whole = match (count, kind) {
            // The number of parts may be left out.
            (None, Some("COMPOSITE")) => {
                WholeChecksum::Composite(of, format!("{text}-{}", parts.len()))
            }
            (Some(_), _) => WholeChecksum::Composite(of, text.to_owned()),
            (None, _) => WholeChecksum::Full(of, text.to_owned()),
        };
        Ok(Stated { parts, whole: Some(whole) })
    }
}

impl Stated {
    /// The checksum of the whole that is stated, in full.
    pub fn whole_checksum(&self) -> Checksum {
        let mut checksum = Checksum::default();
        if let Some(WholeChecksum::Full(of, text) | WholeChecksum::Composite(of, text)) =
            &self.whole
        {
            set_value(&mut checksum, of, text.clone());
            checksum.checksum_type = type_of(&checksum);
        }
        checksum
    }

    /// Judges the checksum of the whole by the one that follows from those of the parts: it needs no more verifying then.
    ///
    /// # Errors
    ///
    /// `BadDigest` if they differ.
    pub fn settle(&mut self, computed: &str) -> S3Result<()> {
        match self.whole.take() {
            Some(WholeChecksum::Full(of, text) | WholeChecksum::Composite(of, text))
                if text != computed =>
            {
                Err(bad_digest(of))
            }
            _ => Ok(()),
        }
    }
}

fn bad_digest(of: &str) -> S3Error {
    let of = of.to_ascii_uppercase();
    let what = format!("The {of} you specified did not match the calculated checksum.");
    error(S3ErrorCode::BadDigest, what)
}

/// Why the bytes are not those that the client states, for those who sent them on.
#[derive(Clone, Default)]
pub struct Verdict(Arc<Mutex<Option<S3Error>>>);

impl Verdict {
    /// The error of a checksum, or otherwise `other`.
    pub fn or(&self, other: S3Error) -> S3Error {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(other)
    }
}

/// The bytes of all parts, verified as they pass. The last are passed on only if all are as stated.
pub struct Verified {
    bytes: Box<dyn Chunks>,
    stated: Stated,
    /// Bytes of the first of the stated parts that have passed.
    passed: u64,
    part: ChecksumHasher,
    full: ChecksumHasher,
    /// The checksums of the parts, one after another.
    sums: Vec<u8>,
    count: usize,
    held: Option<Bytes>,
    ended: bool,
    verdict: Verdict,
}

impl Verified {
    /// Verifies bytes, which end where a part ends or within it, and never go beyond.
    pub fn new(bytes: Box<dyn Chunks>, stated: Stated) -> Verified {
        let full = match &stated.whole {
            Some(WholeChecksum::Full(of, _)) => hasher(|one| one == *of),
            _ => hasher(|_| false),
        };
        let mut verified = Verified {
            bytes,
            stated,
            passed: 0,
            part: hasher(|_| false),
            full,
            sums: Vec::new(),
            count: 0,
            held: None,
            ended: false,
            verdict: Verdict::default(),
        };
        verified.begin();
        verified
    }

    /// See [`Verdict`].
    pub fn verdict(&self) -> Verdict {
        self.verdict.clone()
    }

    /// Begins with the checksums of the next part.
    fn begin(&mut self) {
        let Some((_, sums)) = self.stated.parts.front() else { return };
        let of_whole = match &self.stated.whole {
            Some(WholeChecksum::Composite(of, _)) => Some(*of),
            _ => None,
        };
        self.passed = 0;
        self.part = hasher(|of| value(sums, of).is_some() || of_whole == Some(of));
    }

    /// Judges the parts that have passed as a whole.
    fn judge_parts(&mut self) -> Result<(), S3Error> {
        while let Some((size, _)) = self.stated.parts.front()
            && self.passed >= *size
        {
            let Some((_, sums)) = self.stated.parts.pop_front() else { break };
            let computed = std::mem::take(&mut self.part).finalize();
            for of in ALGORITHMS {
                let (Some(is), Some(said)) = (value(&computed, of), value(&sums, of)) else {
                    continue;
                };
                if is != said {
                    return Err(error(S3ErrorCode::InvalidPart, INVALID_PART));
                }
            }
            if let Some(WholeChecksum::Composite(of, _)) = &self.stated.whole {
                let sum = value(&computed, of).and_then(|sum| BASE64.decode(sum).ok());
                self.sums.extend(sum.unwrap_or_default());
            }
            self.count += 1;
            self.begin();
        }
        Ok(())
    }

    fn judge_whole(&mut self) -> Result<(), S3Error> {
        let (of, said, is) = match &self.stated.whole {
            None => return Ok(()),
            Some(WholeChecksum::Full(of, said)) => {
                let computed = std::mem::take(&mut self.full).finalize();
                (*of, said, value(&computed, of).unwrap_or("").to_owned())
            }
            Some(WholeChecksum::Composite(of, said)) => {
                let mut sums = hasher(|one| one == *of);
                sums.update(&self.sums);
                let computed = sums.finalize();
                (*of, said, format!("{}-{}", value(&computed, of).unwrap_or(""), self.count))
            }
        };
        if *said == is {
            return Ok(());
        }
        Err(bad_digest(of))
    }

    fn refuse(&mut self, refused: S3Error) -> Error {
        self.ended = true;
        let what = refused.message().unwrap_or("a checksum does not match").to_owned();
        *self.verdict.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
        Error::Upload(what)
    }
}

impl Chunks for Verified {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move {
            loop {
                if self.ended {
                    return None;
                }
                match self.bytes.next().await {
                    None => {
                        let judged = self.judge_parts().and_then(|()| self.judge_whole());
                        if let Err(refused) = judged {
                            return Some(Err(self.refuse(refused)));
                        }
                        self.ended = true;
                        return self.held.take().map(Ok);
                    }
                    Some(Err(error)) => {
                        self.ended = true;
                        return Some(Err(error));
                    }
                    Some(Ok(piece)) if piece.is_empty() => {}
                    Some(Ok(piece)) => {
                        // Of an empty part nothing passes.
                        if let Err(refused) = self.judge_parts() {
                            return Some(Err(self.refuse(refused)));
                        }
                        self.passed += piece.len() as u64;
                        self.part.update(&piece);
                        self.full.update(&piece);
                        if let Some(held) = self.held.replace(piece) {
                            return Some(Ok(held));
                        }
                    }
                }
            }
        })
    }

    fn bytes_left(&self) -> Option<u64> {
        let held = self.held.as_ref().map_or(0, |held| held.len() as u64);
        self.bytes.bytes_left().map(|left| left + held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces, as a store sends them.
    struct Pieces(VecDeque<Bytes>);

    impl Chunks for Pieces {
        fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
            Box::pin(std::future::ready(self.0.pop_front().map(Ok)))
        }
        fn bytes_left(&self) -> Option<u64> {
            Some(self.0.iter().map(|piece| piece.len() as u64).sum())
        }
    }

    fn crc32(text: Option<&str>) -> Checksum {
        Checksum { checksum_crc32: text.map(str::to_owned), ..Checksum::default() }
    }

    /// The bytes that pass, and the error.
    fn run(
        pieces: &[&'static str],
        parts: &[(u64, Option<&str>)],
        whole: Option<&str>,
        kind: Option<&str>,
    ) -> (String, Option<S3ErrorCode>) {
        let parts = parts.iter().map(|(size, sum)| (*size, crc32(*sum))).collect();
        let stated = match Stated::new(parts, &crc32(whole), kind) {
            Ok(stated) => stated,
            Err(error) => return (String::new(), Some(error.code().clone())),
        };
        let bytes =
            Pieces(pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect());
        let mut verified = Verified::new(Box::new(bytes), stated);
        let verdict = verified.verdict();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut passed = String::new();
            while let Some(piece) = verified.next().await {
                match piece {
                    Ok(piece) => passed += std::str::from_utf8(&piece).unwrap(),
                    Err(_) => {
                        let error = verdict.or(S3Error::new(S3ErrorCode::InternalError));
                        return (passed, Some(error.code().clone()));
                    }
                }
            }
            (passed, None)
        })
    }

    // CRC-32 of "ab", "cde" and "abcde" by Python's zlib, in base64; and of the first two one after another.
    const AB: &str = "noNIbQ==";
    const CDE: &str = "iZmXHw==";
    const ABCDE: &str = "hYfYZQ==";
    const COMPOSITE: &str = "teTZ3g==-2";

    #[test]
    fn checksums_of_parts_and_of_the_whole_are_verified() {
        use S3ErrorCode::{BadDigest, InvalidPart, InvalidRequest};
        let pieces = &["a", "b", "cd", "e"];
        let parts = &[(2, Some(AB)), (3, Some(CDE))];
        let all = "abcde".to_owned();
        assert_eq!(run(pieces, parts, None, None), (all.clone(), None));
        assert_eq!(
            run(pieces, &[(2, None), (3, Some(CDE))], Some(ABCDE), None),
            (all.clone(), None)
        );
        assert_eq!(run(pieces, parts, Some(ABCDE), Some("FULL_OBJECT")), (all.clone(), None));
        assert_eq!(run(pieces, parts, Some(COMPOSITE), None), (all.clone(), None));
        let none = &[(2, None), (3, None)];
        let bare = COMPOSITE.strip_suffix("-2");
        assert_eq!(run(pieces, none, bare, Some("COMPOSITE")), (all.clone(), None));
        assert_eq!(run(pieces, none, Some(COMPOSITE), Some("COMPOSITE")), (all.clone(), None));
        let empty = &[(0, Some("AAAAAA==")), (2, Some(AB)), (3, Some(CDE)), (0, Some("AAAAAA=="))];
        assert_eq!(run(pieces, empty, Some(ABCDE), None), (all.clone(), None));
        assert_eq!(run(&[], &[(0, Some("AAAAAA=="))], None, None), (String::new(), None));
        // What is wrong never passes as a whole.
        for (parts, whole, kind, expected) in [
            (&[(2, Some(CDE)), (3, Some(CDE))], None, None, InvalidPart),
            (&[(2, Some(AB)), (3, Some(AB))], None, None, InvalidPart),
            (parts, Some(AB), None, BadDigest),
            (parts, Some(ABCDE), Some("COMPOSITE"), BadDigest),
            (parts, Some(COMPOSITE), Some("FULL_OBJECT"), InvalidRequest),
            (parts, Some("hYfYZQ==-2"), None, BadDigest),
            (parts, Some("hYfYZQ==-3"), None, InvalidRequest),
        ] {
            let (passed, error) = run(pieces, parts, whole, kind);
            assert_eq!(error, Some(expected), "{parts:?} {whole:?} {kind:?}");
            assert!(passed.len() < 5, "{passed}");
        }
    }
}
