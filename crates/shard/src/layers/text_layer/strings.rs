//! Many short strings in a few large allocations, which an allocator returns to the system, unlike
//! a hundred thousand small ones.

/// Strings, numbered from 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Strings {
    bytes: Vec<u8>,
    /// The end of each string.
    ends: Vec<u32>,
}

impl Strings {
    /// Creates the strings of all single bytes.
    pub(super) fn singles() -> Self {
        (0..=u8::MAX).map(|byte| [byte]).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// A string by its number; empty if out of range.
    #[inline(always)]
    pub(super) fn get(&self, number: u32) -> &[u8] {
        let end = |number: usize| self.ends.get(number).map_or(0, |&end| end as usize);
        let number = number as usize;
        let start = number.checked_sub(1).map_or(0, end);
        self.bytes.get(start..end(number)).unwrap_or(&[])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len() as u32).map(|number| self.get(number))
    }

    /// Appends a string of several parts.
    pub(super) fn push(&mut self, parts: &[&[u8]]) {
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.ends.push(self.bytes.len() as u32);
    }

    /// Total length of the strings in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Strings {
    fn from_iter<I: IntoIterator<Item = T>>(strings: I) -> Self {
        let mut all = Self::default();
        strings.into_iter().for_each(|string| all.push(&[string.as_ref()]));
        all
    }
}
