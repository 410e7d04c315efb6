//! The limits of a pool's connections and replies.

use std::time::Duration;

/// The limits of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of a reply's head, in bytes.
    pub head_bytes_max: usize,
    /// Maximum length of a reply's body, in bytes.
    pub body_bytes_max: u64,
    /// Maximum idle connections per thread.
    pub idle_max: usize,
    /// How long an idle connection is kept. Should be shorter than the server's own limit, so that
    /// a connection is hardly ever used just when the server closes it.
    pub idle: Duration,
    /// Maximum time for connecting.
    pub connect: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes_max: 32 * 1024,
            body_bytes_max: 1 << 50,
            idle_max: 64,
            idle: Duration::from_secs(20),
            connect: Duration::from_secs(1),
        }
    }
}
