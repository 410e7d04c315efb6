//! Reads zstd-compressed files of any number of frames, verifying each frame's checksum.
//!
//! `ruzstd` decodes a single frame, but files written by `pzstd` or joined by `cat` contain
//! several, and skippable frames between them. Memory: the window of the frame, up to 100 MB; a
//! frame with a larger window is an error.

use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes decoded at a time.
const STEP_BYTES: usize = 1 << 17;

/// The decompressed bytes of a zstd file.
pub struct Decoder<R> {
    source: R,
    frame: FrameDecoder,
    in_frame: bool,
}

impl<R: Read> Decoder<BufReader<R>> {
    /// Creates a decoder of `source`. Reads nothing yet.
    pub fn new(source: R) -> Decoder<BufReader<R>> {
        let source = BufReader::with_capacity(STEP_BYTES, source);
        Decoder { source, frame: FrameDecoder::new(), in_frame: false }
    }
}

impl<R: BufRead> Decoder<R> {
    /// Reads the header of the next data frame. Returns `false` at the end of the file.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.frame.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped =
                        io::copy(&mut (&mut self.source).take(length.into()), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(invalid(error)),
            }
        }
        Ok(false)
    }

    fn check(&self) -> io::Result<()> {
        match (self.frame.get_checksum_from_data(), self.frame.get_calculated_checksum()) {
            (Some(stored), Some(calculated)) if stored != calculated => {
                Err(invalid("the checksum of a zstd frame does not match its content"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            if !self.in_frame {
                self.in_frame = self.next_frame()?;
                if !self.in_frame {
                    return Ok(0);
                }
            }
            let read = self.frame.read(buffer)?;
            if read > 0 {
                return Ok(read);
            }
            if self.frame.is_finished() {
                self.check()?;
                self.in_frame = false;
            } else {
                let step = BlockDecodingStrategy::UptoBytes(STEP_BYTES);
                self.frame.decode_blocks(&mut self.source, step).map_err(invalid)?;
            }
        }
        Ok(0)
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    fn decoded(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        Decoder::new(bytes).read_to_end(&mut all).map(|_| all)
    }

    fn text() -> Vec<u8> {
        (0..40_000u32).flat_map(|n| format!("{},", n * n % 977).into_bytes()).collect()
    }

    #[test]
    fn frames_follow_each_other_and_some_are_skipped() {
        let frame = compress_to_vec(&text()[..], CompressionLevel::Fastest);
        let mut file = frame.clone();
        // A skippable frame of three bytes.
        file.extend_from_slice(&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
        file.extend_from_slice(&frame);
        assert_eq!(decoded(&file).unwrap(), [text(), text()].concat());
        assert_eq!(decoded(&[]).unwrap(), b"");
    }

    #[test]
    fn damaged_files_are_errors() {
        let frame = compress_to_vec(&text()[..], CompressionLevel::Fastest);
        for length in [1, 4, 9, frame.len() / 2, frame.len() - 1] {
            assert!(decoded(&frame[..length]).is_err(), "cut to {length} bytes");
        }
        assert!(decoded(b"time_ms,key,size,op\n").is_err(), "not compressed");
        for at in (0..frame.len()).step_by(frame.len() / 40) {
            let mut damaged = frame.clone();
            damaged[at] ^= 0x11;
            match decoded(&damaged) {
                Ok(bytes) => assert_eq!(bytes, text(), "a changed byte {at} went unnoticed"),
                Err(_) => continue,
            }
        }
    }
}
