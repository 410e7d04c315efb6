//! Names of members. Apart, so that its fuzz target needs nothing else.

/// Whether a member may have this name.
pub fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=64).contains(&name.len()) && name.bytes().all(plain) && name != "gateway"
}
