//! The two sampled arrays, and the sampling rates of their layers.

/// One of the two sampled arrays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Array {
    /// The suffix array, from a row to its offset in the text: what `locate` reads.
    Sa,
    /// Its inverse, from an offset in the text to its row: what `extract` begins with.
    Isa,
}

/// Sampling rates of both arrays: powers of two, in any order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rates {
    /// Rates of the suffix array.
    pub sa: Vec<u32>,
    /// Rates of the inverse suffix array.
    pub isa: Vec<u32>,
}

impl Rates {
    /// Whether there are no rates.
    pub fn is_empty(&self) -> bool {
        self.sa.is_empty() && self.isa.is_empty()
    }
}
