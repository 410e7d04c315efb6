//! The letters that name factors.

/// Largest number of factors of a design: 2^16 cells and effects.
pub(crate) const FACTORS_MAX: usize = 16;

/// The letters of factors; I is the identity.
pub(super) const LETTERS: &[u8] = b"ABCDEFGHJKLMNOPQ";

/// The letter of a factor by its index from 0: A, B, C … without I, which is the identity; `?` past
/// Q.
///
/// ```
/// assert_eq!((model::design::letter(2), model::design::letter(8)), ('C', 'J'));
/// ```
pub fn letter(factor: usize) -> char {
    LETTERS.get(factor).map_or('?', |byte| char::from(*byte))
}

/// The letters of a set of factors, one bit for each; `I` for the empty set.
pub(super) fn letters(mask: u32) -> String {
    if mask == 0 {
        return "I".to_owned();
    }
    (0..u32::BITS as usize).filter(|i| mask >> i & 1 == 1).map(letter).collect()
}
