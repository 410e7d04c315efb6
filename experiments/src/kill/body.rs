//! Objects whose bytes encode their key, version and length, so that any wrong byte is detected.
//!
//! The bytes of a version are a function of its key and number: a header of 16 bytes (magic, key,
//! version, length, little endian), then the stream of [`client::Body`](load::client::Body) seeded
//! with both. Some versions are empty; a reader cannot distinguish these from each other.

use ground::window::key_hash;

use super::history::ReadResult;
use load::client::Body;

/// Length of the longest object.
pub const BYTES_MAX: usize = 300 << 10;
const HEADER: usize = 16;
const MAGIC: [u8; 4] = *b"kill";

/// The name of a key.
pub fn name(key: u32) -> String {
    format!("kill-{key}")
}

fn seed(key: u32, version: u32) -> u64 {
    let mut both = [0; 8];
    both[..4].copy_from_slice(&key.to_le_bytes());
    both[4..].copy_from_slice(&version.to_le_bytes());
    key_hash(&both)
}

/// The length of a version: 4 % are empty, most are some KB, 4 % are above 256 KiB.
pub fn bytes(key: u32, version: u32) -> usize {
    let seed = key_hash(&seed(key, version).to_le_bytes());
    let within = |low: usize, high: usize| low + ((seed >> 8) as usize) % (high - low + 1);
    match seed % 100 {
        0..4 => 0,
        4..70 => within(HEADER, 4 << 10),
        70..90 => within(4 << 10, 64 << 10),
        90..96 => within(64 << 10, 256 << 10),
        _ => within((256 << 10) + 1, BYTES_MAX),
    }
}

/// Replaces the contents of `out` with a version.
pub fn write(key: u32, version: u32, out: &mut Vec<u8>) {
    let length = bytes(key, version);
    out.clear();
    out.resize(length, 0);
    if length < HEADER {
        return;
    }
    Body { key: seed(key, version), size: length as u64 }.fill(0, out);
    let header = [MAGIC, key.to_le_bytes(), version.to_le_bytes(), (length as u32).to_le_bytes()];
    for (to, from) in out.chunks_exact_mut(4).zip(header) {
        to.copy_from_slice(&from);
    }
}

/// Identifies the version of a key from its bytes.
///
/// # Errors
/// If the bytes are not a version of the key; the text names the first difference.
pub fn read(key: u32, bytes: &[u8], scratch: &mut Vec<u8>) -> Result<ReadResult, String> {
    if bytes.is_empty() {
        return Ok(ReadResult::Empty);
    }
    let word = |at: usize| -> Option<u32> {
        let part = bytes.get(at..at + 4)?;
        part.try_into().ok().map(u32::from_le_bytes)
    };
    let Some((found, version, length)) =
        word(4).zip(word(8)).zip(word(12)).map(|((a, b), c)| (a, b, c))
    else {
        return Err(format!("{} bytes are too few for any version", bytes.len()));
    };
    if bytes.get(..4) != Some(&MAGIC) || found != key {
        return Err(format!(
            "{} bytes that begin with {:02x?} are not an object of key {key} (key {found}, version {version}, \
             length {length}, if anything)",
            bytes.len(),
            &bytes[..bytes.len().min(HEADER)]
        ));
    }
    write(key, version, scratch);
    if bytes == scratch.as_slice() {
        return Ok(ReadResult::Version(version));
    }
    let same = bytes.iter().zip(scratch.iter()).take_while(|(a, b)| a == b).count();
    Err(format!(
        "{} bytes of key {key}, version {version}, should be {}, and differ from byte {same} on",
        bytes.len(),
        scratch.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_known_by_their_bytes_and_no_wrong_byte_passes() {
        let (mut body, mut scratch) = (Vec::new(), Vec::new());
        let mut sizes = [0; 3];
        for version in 1..300 {
            write(7, version, &mut body);
            let length = body.len();
            sizes[usize::from(length > 0) + usize::from(length > 256 << 10)] += 1;
            let seen = read(7, &body, &mut scratch).unwrap();
            if length == 0 {
                assert_eq!(seen, ReadResult::Empty);
                continue;
            }
            assert_eq!(seen, ReadResult::Version(version));
            assert!(read(8, &body, &mut scratch).is_err(), "of another key");
            for at in [0, 5, 9, 13, length / 2, length - 1] {
                body[at] ^= 1;
                assert!(read(7, &body, &mut scratch).is_err(), "byte {at} of {length}");
                body[at] ^= 1;
            }
            body.push(0);
            assert!(read(7, &body, &mut scratch).is_err(), "one byte too many");
            body.truncate(length - 1);
            assert!(read(7, &body, &mut scratch).is_err() || length == 1, "one too few");
        }
        assert!(sizes.iter().all(|count| *count > 0), "empty, usual and large: {sizes:?}");
    }
}
