//! Opens compressed inputs by what they contain and not by their names: gzip, bzip2 and zstd, of any number of members.

use std::io::{self, BufRead, BufReader, Read};

use super::zst;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 1 << 17;

/// The first bytes of compressed files.
const GZIP: &[u8] = &[0x1f, 0x8b];
const BZIP2: &[u8] = b"BZh";
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The end of the first four bytes of a frame to skip, which stands before the others where `pzstd` wrote them; the first is 0x50 to 0x5f.
const ZSTD_SKIPPED: &[u8] = &[0x2a, 0x4d, 0x18];
/// What is recognised to say what to do, and not read.
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const ZIP: &[u8] = b"PK\x03\x04";

/// Why an input's content cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Its first bytes cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is compressed in a way that is not read here.
    #[error("it is {what}; decompress it: `{command} | concertina … -`")]
    Unsupported {
        /// What it is.
        what: &'static str,
        /// The command that writes its content to standard output.
        command: &'static str,
    },
}

/// The content of a stream, decompressed if it is compressed.
///
/// # Errors
///
/// If the stream cannot be read, or is compressed by xz or zip.
pub fn decompressed(
    mut input: impl BufRead + Send + 'static,
) -> Result<Box<dyn BufRead + Send>, Unreadable> {
    // A pipe may give its first bytes one by one: six are the longest of the signatures.
    let mut begin = Vec::new();
    input.by_ref().take(XZ.len() as u64).read_to_end(&mut begin)?;
    let is = |magic: &[u8]| begin.starts_with(magic);
    let unsupported = |what, command| Err(Unreadable::Unsupported { what, command });
    if is(XZ) {
        return unsupported("compressed by xz", "xzcat FILE");
    }
    if is(ZIP) {
        return unsupported("a zip archive", "unzip -p FILE");
    }
    // The level follows, which tells a text that starts with these letters.
    let is_bzip2 = is(BZIP2) && begin.get(3).is_some_and(u8::is_ascii_digit);
    let is_skipped =
        begin.first().is_some_and(|byte| byte >> 4 == 5) && begin.get(1..4) == Some(ZSTD_SKIPPED);
    let (gzip, zstd) = (is(GZIP), is(ZSTD) || is_skipped);
    let whole = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(begin).chain(input));
    let buffered = |decoder: Box<dyn Read + Send>, program| -> Box<dyn BufRead + Send> {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, Named { decoder, program }))
    };
    // Of several members, as `cat` and `pigz` make them, all are read.
    Ok(if gzip {
        buffered(Box::new(flate2::bufread::MultiGzDecoder::new(whole)), "gzip")
    } else if is_bzip2 {
        buffered(Box::new(bzip2::bufread::MultiBzDecoder::new(whole)), "bzip2")
    } else if zstd {
        buffered(Box::new(zst::Decoder::new(whole)), "zstd")
    } else {
        Box::new(whole)
    })
}

/// A decoder whose errors name the program that made its input, and tests it.
struct Named {
    decoder: Box<dyn Read + Send>,
    program: &'static str,
}

impl Read for Named {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let program = self.program;
        self.decoder.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => error,
            kind => io::Error::new(
                kind,
                format!(
                    "its {program} data is damaged, cut short, or followed by other bytes (`{program} -t FILE` tests it): {error}"
                ),
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const TEXT: &str = "1700000000.000 200 0.010\n";

    fn content(bytes: &[u8]) -> Result<String, String> {
        let mut all = String::new();
        let input = decompressed(io::Cursor::new(bytes.to_vec())).map_err(|e| e.to_string())?;
        { input }.read_to_string(&mut all).map_err(|e| e.to_string())?;
        Ok(all)
    }

    #[test]
    fn inputs_are_decompressed_by_their_content() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(TEXT.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        bzip2.write_all(TEXT.as_bytes()).unwrap();
        let bzip2 = bzip2.finish().unwrap();
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        let zstd = ruzstd::encoding::compress_to_vec(TEXT.as_bytes(), level);
        // As pzstd writes it: the length of each frame in one before it, which is skipped.
        let length = (zstd.len() as u32).to_le_bytes();
        let pzstd = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0], &length[..], &zstd].concat();
        for bytes in [gzip, bzip2, zstd, pzstd] {
            assert_eq!(content(&bytes).unwrap(), TEXT);
            // Two members, one after the other.
            assert_eq!(content(&[&bytes[..], &bytes].concat()).unwrap(), TEXT.repeat(2));
            for wrong in [&bytes[..bytes.len() / 2], &[&bytes[..], b"garbage"].concat()] {
                let error = content(wrong).unwrap_err();
                assert!(error.contains("cut short, or followed by other bytes"), "{error}");
            }
        }
        for plain in [TEXT, "", "BZh", "BZhat: a word\n"] {
            assert_eq!(content(plain.as_bytes()).unwrap(), plain);
        }
        assert!(content(XZ).unwrap_err().contains("xzcat"));
        assert!(content(ZIP).unwrap_err().contains("unzip"));
    }
}
