//! The hash functions by which clients and proxies of memcached place keys.
//!
//! They are those of twemproxy (`src/hashkit`, after libmemcached's hashkit), bit for bit, its
//! peculiarities included: a key must stay on the server where it was found before. Where the C code
//! reads keys as `char`, bytes above 127 are negative (as on x86-64). Cost: about a nanosecond per byte, `md5` some hundred nanoseconds for a key.

use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};

/// A hash function of keys.
///
/// ```
/// use engine::pool::Hash;
/// assert_eq!(Hash::Fnv1a64.digest(b"apple"), 1_488_911_807);
/// assert_eq!(Hash::Md5.digest(b"apple"), 3_195_025_439);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hash {
    /// Jenkins's one-at-a-time hash; libmemcached's default.
    OneAtATime,
    /// The first four bytes of the MD5 digest, the least significant first.
    Md5,
    /// 15 bits of the CRC-32, as libmemcached has it: 32,768 different values in all.
    Crc32,
    /// The whole CRC-32.
    Crc32a,
    /// CRC-16 (XMODEM's) in 32 bits, of which twemproxy never drops the upper ones: its own, not that of Redis Cluster.
    Crc16,
    /// The lower half of FNV-1 with 64 bits.
    #[serde(rename = "fnv1_64")]
    Fnv1x64,
    /// FNV-1a with the lower halves of the 64-bit constants; twemproxy's default.
    #[default]
    #[serde(rename = "fnv1a_64")]
    Fnv1a64,
    /// FNV-1 with 32 bits.
    #[serde(rename = "fnv1_32")]
    Fnv1x32,
    /// FNV-1a with 32 bits.
    #[serde(rename = "fnv1a_32")]
    Fnv1a32,
    /// MurmurHash2 with a seed that depends on the key's length.
    Murmur,
    /// Paul Hsieh's SuperFastHash.
    Hsieh,
    /// Bob Jenkins's lookup3 with the initial value 13.
    Jenkins,
}

const FNV_64_INIT: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_64_PRIME: u64 = 0x0000_0100_0000_01b3;
const FNV_32_INIT: u32 = 0x811c_9dc5;
const FNV_32_PRIME: u32 = 0x0100_0193;

impl Hash {
    /// Every hash function.
    pub const ALL: [Hash; 12] = [
        Hash::OneAtATime,
        Hash::Md5,
        Hash::Crc32,
        Hash::Crc32a,
        Hash::Crc16,
        Hash::Fnv1x64,
        Hash::Fnv1a64,
        Hash::Fnv1x32,
        Hash::Fnv1a32,
        Hash::Murmur,
        Hash::Hsieh,
        Hash::Jenkins,
    ];

    /// Its name in twemproxy's configuration and in ours.
    pub fn as_str(self) -> &'static str {
        match self {
            Hash::OneAtATime => "one_at_a_time",
            Hash::Md5 => "md5",
            Hash::Crc32 => "crc32",
            Hash::Crc32a => "crc32a",
            Hash::Crc16 => "crc16",
            Hash::Fnv1x64 => "fnv1_64",
            Hash::Fnv1a64 => "fnv1a_64",
            Hash::Fnv1x32 => "fnv1_32",
            Hash::Fnv1a32 => "fnv1a_32",
            Hash::Murmur => "murmur",
            Hash::Hsieh => "hsieh",
            Hash::Jenkins => "jenkins",
        }
    }

    /// The hash of some bytes.
    pub fn digest(self, bytes: &[u8]) -> u32 {
        match self {
            Hash::OneAtATime => one_at_a_time(bytes),
            Hash::Md5 => md5_words(bytes)[0],
            Hash::Crc32 => crc32fast::hash(bytes) >> 16 & 0x7fff,
            Hash::Crc32a => crc32fast::hash(bytes),
            Hash::Fnv1x64 => {
                let step = |hash: u64, &byte: &u8| hash.wrapping_mul(FNV_64_PRIME) ^ wide(byte);
                bytes.iter().fold(FNV_64_INIT, step) as u32
            }
            Hash::Fnv1a64 => fnv1a(bytes, FNV_64_INIT as u32, FNV_64_PRIME as u32),
            Hash::Fnv1x32 => {
                let step =
                    |hash: u32, &byte: &u8| hash.wrapping_mul(FNV_32_PRIME) ^ wide(byte) as u32;
                bytes.iter().fold(FNV_32_INIT, step)
            }
            Hash::Fnv1a32 => fnv1a(bytes, FNV_32_INIT, FNV_32_PRIME),
            Hash::Murmur => murmur(bytes),
            Hash::Crc16 => crc16(bytes),
            Hash::Hsieh => hsieh(bytes),
            Hash::Jenkins => jenkins(bytes),
        }
    }
}

/// A `char` of C converted to an unsigned integer.
fn wide(byte: u8) -> u64 {
    byte as i8 as u64
}

fn fnv1a(bytes: &[u8], init: u32, prime: u32) -> u32 {
    bytes.iter().fold(init, |hash, &byte| (hash ^ wide(byte) as u32).wrapping_mul(prime))
}

fn one_at_a_time(bytes: &[u8]) -> u32 {
    let mut hash = 0u32;
    for &byte in bytes {
        hash = hash.wrapping_add(wide(byte) as u32);
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

fn murmur(bytes: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let length = bytes.len() as u32;
    let mut hash = 0xdead_beef_u32.wrapping_mul(length) ^ length;
    let (words, rest) = bytes.as_chunks::<4>();
    for &word in words {
        let mut k = u32::from_le_bytes(word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (i, &byte) in rest.iter().enumerate() {
            hash ^= u32::from(byte) << (8 * i);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}

fn crc16(bytes: &[u8]) -> u32 {
    let step = |crc: u32, &byte: &u8| {
        let mut entry = ((crc >> 8) ^ u32::from(byte)) << 8 & 0xff00;
        for _ in 0..8 {
            let carry = entry & 0x8000 != 0;
            entry = (entry << 1) ^ if carry { 0x1021 } else { 0 };
        }
        (crc << 8) ^ entry & 0xffff
    };
    bytes.iter().fold(0, step)
}

fn hsieh(bytes: &[u8]) -> u32 {
    let pair = |low: u8, high: u8| u32::from(u16::from_le_bytes([low, high]));
    let (words, rest) = bytes.as_chunks::<4>();
    let mut hash = 0u32;
    for &[a, b, c, d] in words {
        hash = hash.wrapping_add(pair(a, b));
        hash = (hash << 16) ^ (pair(c, d) << 11) ^ hash;
        hash = hash.wrapping_add(hash >> 11);
    }
    match *rest {
        [a, b, c] => {
            hash = hash.wrapping_add(pair(a, b));
            hash ^= hash << 16;
            hash ^= (wide(c) as u32) << 18;
            hash = hash.wrapping_add(hash >> 11);
        }
        [a, b] => {
            hash = hash.wrapping_add(pair(a, b));
            hash ^= hash << 11;
            hash = hash.wrapping_add(hash >> 17);
        }
        [a] => {
            hash = hash.wrapping_add(u32::from(a));
            hash ^= hash << 10;
            hash = hash.wrapping_add(hash >> 1);
        }
        _ => {}
    }
    hash ^= hash << 3;
    hash = hash.wrapping_add(hash >> 5);
    hash ^= hash << 4;
    hash = hash.wrapping_add(hash >> 17);
    hash ^= hash << 25;
    hash.wrapping_add(hash >> 6)
}

fn jenkins(bytes: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32).wrapping_add(13);
    let (mut a, mut b, mut c) = (start, start, start);
    // The last block, which has up to 12 bytes, is mixed otherwise.
    let blocks = bytes.len().saturating_sub(1) / 12;
    let (before, last) = bytes.split_at_checked(blocks * 12).unwrap_or((bytes, &[]));
    if last.is_empty() {
        return c;
    }
    let words = |block: &[u8]| -> [u32; 3] {
        std::array::from_fn(|word| {
            let byte = |i: usize| block.get(word * 4 + i).copied().unwrap_or(0);
            u32::from_le_bytes(std::array::from_fn(byte))
        })
    };
    for block in before.chunks(12) {
        let [x, y, z] = words(block);
        (a, b, c) = (a.wrapping_add(x), b.wrapping_add(y), c.wrapping_add(z));
        for (turn, other) in [(4, 6), (8, 16), (19, 4)] {
            a = a.wrapping_sub(c) ^ c.rotate_left(turn);
            c = c.wrapping_add(b);
            b = b.wrapping_sub(a) ^ a.rotate_left(other);
            a = a.wrapping_add(c);
            // The three words change places after each two steps.
            (a, b, c) = (c, a, b);
        }
    }
    let [x, y, z] = words(last);
    (a, b, c) = (a.wrapping_add(x), b.wrapping_add(y), c.wrapping_add(z));
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

/// The MD5 digest as four numbers, the least significant byte of each first.
pub(super) fn md5_words(bytes: &[u8]) -> [u32; 4] {
    let digest: [u8; 16] = Md5::digest(bytes).into();
    let (words, _) = digest.as_chunks::<4>();
    std::array::from_fn(|i| words.get(i).map_or(0, |word| u32::from_le_bytes(*word)))
}

/// The part of a key that is hashed, where a hash tag such as `{}` is set: the bytes between the
/// first of the tag's characters and the next of the second, if there are any; else the whole key.
///
/// Keys with the same tag lie on the same server.
pub(super) fn tagged(key: &[u8], tag: [u8; 2]) -> &[u8] {
    let Some(from) = memchr(tag[0], key) else { return key };
    let rest = &key[from + 1..];
    match memchr(tag[1], rest) {
        Some(length) if length > 0 => &rest[..length],
        _ => key,
    }
}

fn memchr(byte: u8, bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&b| b == byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Published in libmemcached's tests (`test/fixtures/hashes.hpp`), for the same functions.
    #[test]
    fn hashes_are_those_of_libmemcached() {
        let words: [&[u8]; 5] = [
            b"apple",
            b"beat",
            b"mushrooms",
            b"zip",
            b"The quick brown fox jumps over the lazy dog",
        ];
        for (hash, expected) in [
            (
                Hash::OneAtATime,
                [2_297_466_611, 3_902_465_932, 384_136_800, 2_509_838_425, 1_369_346_549],
            ),
            (
                Hash::Md5,
                [3_195_025_439, 2_556_848_621, 1_451_250_070, 2_042_482_093, 2_642_219_166],
            ),
            (Hash::Crc32, [10_542, 22_009, 11_313, 16_925, 16_719]),
            (
                Hash::Fnv1x64,
                [473_199_127, 4_148_981_457, 2_345_265_314, 1_801_941_682, 2_112_060_110],
            ),
            (
                Hash::Fnv1a64,
                [1_488_911_807, 2_500_855_813, 561_034_892, 2_272_238_452, 3_890_508_048],
            ),
            (Hash::Fnv1x32, [67_176_023, 1_190_179_409, 510_234_242, 1_180_552_018, 3_922_226_286]),
            (Hash::Fnv1a32, [280_767_167, 2_421_315_013, 3_654_473_228, 2_877_453_236, 76_545_936]),
            (Hash::Murmur, [4_142_305_122, 734_504_955, 2_321_988_328, 3_902_279_934, 818_385_189]),
            // twemproxy's own crc16, compiled from its source; libmemcached has none.
            (
                Hash::Crc16,
                [3_662_830_516, 1_367_196_201, 1_074_266_364, 3_743_076_588, 581_169_352],
            ),
            (
                Hash::Hsieh,
                [3_738_850_110, 3_636_226_060, 2_265_380_744, 3_395_453_351, 471_461_527],
            ),
            (
                Hash::Jenkins,
                [1_442_444_624, 4_253_821_186, 2_415_988_847, 2_629_893_356, 314_054_204],
            ),
        ] {
            let found: Vec<u32> = words.iter().map(|word| hash.digest(word)).collect();
            assert_eq!(found, expected, "{hash:?}");
        }
        // Bytes that are negative as `char` of C; from the same source.
        let high: [&[u8]; 2] = [b"\xff\xfe\xfd", b"a\xe9\xe8"];
        let found = |hash: Hash| high.map(|word| hash.digest(word));
        assert_eq!(found(Hash::Crc16), [504_217_887, 2_085_911_127]);
        assert_eq!(found(Hash::Hsieh), [3_649_655_134, 4_148_575_604]);
        assert_eq!(found(Hash::Jenkins), [573_299_006, 141_998_463]);
        // The check value of CRC-32.
        assert_eq!(Hash::Crc32a.digest(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_name_is_that_of_the_configuration() {
        for hash in Hash::ALL {
            assert_eq!(serde_json::to_value(hash).unwrap(), hash.as_str());
        }
    }

    #[test]
    fn a_tag_is_hashed_alone() {
        let check = |key: &str, expected: &str| {
            assert_eq!(tagged(key.as_bytes(), *b"{}"), expected.as_bytes(), "{key}");
        };
        check("user:{42}:name", "42");
        check("user:{42}:{43}", "42");
        check("user:{}:{43}", "user:{}:{43}");
        check("user:42", "user:42");
        check("user:{42", "user:{42");
        check("}user{42}", "42");
        check("{{a}", "{a");
        assert_eq!(tagged(b"a|b|c", *b"||"), b"b");
    }

    /// The same functions, written statement by statement after the C source.
    mod naive {
        pub fn fnv1a_64(key: &[u8]) -> u32 {
            let mut hash: u32 = 0x8422_2325;
            for x in key {
                let val = (*x as i8) as i32 as u32;
                hash ^= val;
                hash = hash.wrapping_mul(0x1b3);
            }
            hash
        }

        pub fn crc32(key: &[u8]) -> u32 {
            let mut crc: u32 = u32::MAX;
            for byte in key {
                let mut entry = (crc ^ u32::from(*byte)) & 0xff;
                for _ in 0..8 {
                    entry = if entry & 1 == 1 { entry >> 1 ^ 0xedb8_8320 } else { entry >> 1 };
                }
                crc = crc >> 8 ^ entry;
            }
            (!crc >> 16) & 0x7fff
        }

        pub fn murmur(key: &[u8]) -> u32 {
            let m: u32 = 0x5bd1_e995;
            let mut length = key.len();
            let seed = 0xdead_beef_u32.wrapping_mul(length as u32);
            let mut h = seed ^ length as u32;
            let mut data = 0;
            while length >= 4 {
                let mut k = u32::from(key[data])
                    | u32::from(key[data + 1]) << 8
                    | u32::from(key[data + 2]) << 16
                    | u32::from(key[data + 3]) << 24;
                k = k.wrapping_mul(m);
                k ^= k >> 24;
                k = k.wrapping_mul(m);
                h = h.wrapping_mul(m);
                h ^= k;
                data += 4;
                length -= 4;
            }
            if length == 3 {
                h ^= u32::from(key[data + 2]) << 16;
            }
            if length >= 2 {
                h ^= u32::from(key[data + 1]) << 8;
            }
            if length >= 1 {
                h ^= u32::from(key[data]);
                h = h.wrapping_mul(m);
            }
            h ^= h >> 13;
            h = h.wrapping_mul(m);
            h ^= h >> 15;
            h
        }
    }

    proptest! {
        #[test]
        fn hashes_agree_with_their_twins(key in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(Hash::Fnv1a64.digest(&key), naive::fnv1a_64(&key));
            prop_assert_eq!(Hash::Crc32.digest(&key), naive::crc32(&key));
            prop_assert_eq!(Hash::Murmur.digest(&key), naive::murmur(&key));
        }
    }
}
