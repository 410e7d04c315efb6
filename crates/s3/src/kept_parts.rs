//! The parts of an object that was uploaded in parts: their sizes, and their checksums.
//!
//! The text that is kept ([`part_lists`](super::part_lists) says where): runs of sizes (`3*8388608,17`), and, if there are checksums, `;`, their algorithm, `;`, and all of them in base64,
//! one after another.

use std::collections::VecDeque;
use std::fmt::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use s3s::dto::Checksum;

use super::asked::sum_bytes;
use super::checksums::{ALGORITHMS, set_value};
use super::upload_checksum::UploadChecksum;

/// The most parts of an object.
pub const PARTS_MAX: usize = 10_000;
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
    pub fn size(&self) -> Option<u64> {
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
        self.checksum_of_object(UploadChecksum { algorithm: self.algorithm?, is_composite: false })
    }

    /// The checksum of the object, if it follows from those of the parts.
    pub fn checksum_of_object(&self, upload: UploadChecksum) -> Option<Checksum> {
        if self.algorithm != Some(upload.algorithm) {
            return None;
        }
        let parts: Option<Vec<_>> =
            self.sizes.iter().enumerate().map(|(at, size)| Some((*size, self.sum(at)?))).collect();
        upload.of_parts(parts?.into_iter())
    }

    /// The text that [`KeptParts::of_text`] reads.
    pub fn text(&self) -> String {
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
    pub fn of_text(text: &str, object_bytes: u64) -> Option<KeptParts> {
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
    /// The parts of a name.
    pub fn get(&self, name: &str) -> Option<Arc<KeptParts>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(of, _)| of == name).map(|(_, parts)| parts.clone())
    }

    /// Remembers the parts of a name, and forgets those of the one that was remembered longest ago.
    pub fn put(&self, name: &str, parts: Arc<KeptParts>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push_back((name.to_owned(), parts));
        if all.len() > REMEMBERED {
            all.pop_front();
        }
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
