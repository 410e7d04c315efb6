//! Reads little-endian numbers from stored bytes, at any alignment.
//!
//! Stored bytes may be damaged, so a read past the end does not panic but returns 0; the caller's
//! result is then wrong but harmless. (Damage is detected by checksums.) Each read costs one
//! comparison besides the load.

/// Reads eight bytes from `at` on; 0 if they are not all in range.
#[inline(always)]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at.wrapping_add(8)).and_then(|found| found.first_chunk()) {
        Some(found) => u64::from_le_bytes(*found),
        None => 0,
    }
}

/// Reads four bytes from `at` on; 0 if they are not all in range.
#[inline(always)]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at.wrapping_add(4)).and_then(|found| found.first_chunk()) {
        Some(found) => u32::from_le_bytes(*found),
        None => 0,
    }
}

/// Reads two bytes from `at` on; 0 if they are not both in range.
#[inline(always)]
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at.wrapping_add(2)).and_then(|found| found.first_chunk()) {
        Some(found) => u16::from_le_bytes(*found),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_little_endian_and_reads_past_the_end_are_zero() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!(u64_at(&bytes, 1), 0x0908_0706_0504_0302);
        assert_eq!(u32_at(&bytes, 5), 0x0908_0706);
        assert_eq!(u16_at(&bytes, 7), 0x0908);
        for at in [2, 9, usize::MAX - 3, usize::MAX] {
            assert_eq!(u64_at(&bytes, at), 0);
        }
        assert_eq!((u32_at(&bytes, 6), u16_at(&bytes, 8)), (0, 0));
        assert_eq!((u32_at(&bytes, usize::MAX), u16_at(&bytes, usize::MAX)), (0, 0));
    }
}
