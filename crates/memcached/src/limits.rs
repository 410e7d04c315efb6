//! The limits of requests and of servers' replies.

/// The length of a value for which memcached's own arithmetic has room (`INT_MAX - 2`).
pub(crate) const VALUE_BYTES_MAX: u64 = i32::MAX as u64 - 2;

/// What a request, or a server's reply, may be at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a key as it stands in the line: of a base64 key the encoded form, as in memcached.
    pub key_bytes_max: usize,
    /// Bytes of a value. memcached's limit (`-I`) is on the item, with its key and about 50 bytes
    /// more.
    pub value_bytes_max: usize,
    /// Keys of one request.
    pub keys_max: usize,
    /// Bytes of a `get` or `gets` line with its end. Lines of other commands have at most 2048 bytes,
    /// as in memcached, or this if it is less.
    pub line_bytes_max: usize,
}

impl Default for Limits {
    /// memcached's limits on keys (250 bytes) and items (1 MiB); 1024 keys in a line of 64 KiB.
    fn default() -> Limits {
        Limits {
            key_bytes_max: 250,
            value_bytes_max: 1 << 20,
            keys_max: 1024,
            line_bytes_max: 64 << 10,
        }
    }
}
