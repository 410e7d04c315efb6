//! The condition of a write, for the store to judge.

use ::http::header::{HeaderMap, HeaderValue, IF_MATCH, IF_NONE_MATCH};

use super::failure::{Failure, FailureKind};

/// What the store must find for a write to take effect.
pub enum Precondition {
    /// Whatever it has.
    None,
    /// Nothing.
    Absent,
    /// The store's own etag.
    Is(String),
}

impl Precondition {
    /// That the store has what it has now.
    pub fn unchanged(etag: Option<String>) -> Precondition {
        etag.map_or(Precondition::Absent, Precondition::Is)
    }

    /// Adds it to the headers of a request.
    ///
    /// # Errors
    ///
    /// If the store's etag cannot be one.
    pub fn write(&self, headers: &mut HeaderMap) -> Result<(), Failure> {
        let odd =
            |_| Failure::new(FailureKind::Unknown, "the store's etag is not a valid header value");
        match self {
            Precondition::None => {}
            Precondition::Absent => {
                drop(headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*")))
            }
            Precondition::Is(etag) => {
                headers.insert(IF_MATCH, HeaderValue::from_str(etag).map_err(odd)?);
            }
        }
        Ok(())
    }
}
