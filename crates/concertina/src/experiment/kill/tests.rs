//! The checker must catch what it is there for.
