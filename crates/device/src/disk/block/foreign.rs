//! What else is on a device: signatures of file systems and partition tables, so that nothing is overwritten by
//! mistake.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes at the beginning and at the end of a device in which a signature is looked for. What has none there, but
/// bytes other than 0, is not overwritten either.
pub const LOOKED_AT: u64 = 1 << 20;

/// Signatures: where they are, what they are, and whose. The first that is there counts.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"CDEV", "a device of Concertina"),
    (1080, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a Btrfs file system"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (512, b"LABELONE", "an LVM volume"),
    (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a part of a RAID"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a bcache"),
    (3, b"NTFS    ", "an NTFS file system"),
    (54, b"FAT", "a FAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
    (510, &[0x55, 0xaa], "a partition table (MBR)"),
];

/// What is on a device of so many bytes; `None` if its beginning and its end hold only zeros.
///
/// # Errors
///
/// Those of reading it.
pub fn look(file: &File, device_bytes: u64) -> io::Result<Option<String>> {
    let length = device_bytes.min(LOOKED_AT);
    let read = |from: u64| {
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, from).map(|()| bytes)
    };
    let begin = read(0)?;
    if let Some(found) = signature(&begin) {
        return Ok(Some(found.to_owned()));
    }
    for (from, bytes) in [(0, begin), (device_bytes - length, read(device_bytes - length)?)] {
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            return Ok(Some(format!("data (offset {})", from + at as u64)));
        }
    }
    Ok(None)
}

/// Whose signature is in a device's first bytes.
pub fn signature(begin: &[u8]) -> Option<&'static str> {
    let is_there =
        |at: usize, what: &[u8]| begin.get(at..).is_some_and(|there| there.starts_with(what));
    SIGNATURES.iter().find(|(at, what, _)| is_there(*at, what)).map(|(.., name)| *name)
}
