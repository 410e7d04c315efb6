//! What the crates above need of each other: keys, versions, times, the records of observations, identities of origins, when
//! outages are told.
//!
//! Values and pure functions alone: no clock, socket, file or thread. A type belongs here if crates that must not depend on
//! each other exchange it; everything else belongs to the crate that uses it.

pub mod hex;
pub mod number;
pub mod origin;
pub mod outage;
pub mod window;

use std::error::Error;
use std::fmt::Write as _;
use std::sync::Arc;

/// A key: any bytes.
pub type Key = Arc<[u8]>;

/// The version of an object's bytes, as named by the origin. Only compared for equality.
pub type Etag = Arc<str>;

/// The message of an error with those of all its causes, in one line, each once: the message of an error often ends in that of
/// its cause.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(message.trim()) {
            let _ = write!(text, ": {message}");
        }
        cause = error.source();
    }
    text
}
