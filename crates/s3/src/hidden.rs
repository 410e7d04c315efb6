//! Keys of the server's own in the origin: those of uploads in parts and of their parts.

/// How the keys of parts begin. S3's clients neither see nor reach such keys.
pub const HIDDEN: &[u8] = b"!s3/";
/// How the key of an upload begins.
pub const BEGUN: &str = "!s3/begun/";
/// How the keys of its parts begin.
pub const PARTS: &str = "!s3/parts/";
/// How the keys begin of the objects that have the parts of others.
pub const MADE: &str = "!s3/made/";

/// Whether a key is one of a part's.
pub fn is_hidden(key: &[u8]) -> bool {
    key.starts_with(HIDDEN)
}
