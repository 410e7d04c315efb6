//! The condition of a write, for the store to judge.

use ::http::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use object_store::{PutMode, UpdateVersion};

use super::super::Error;

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

    /// The same for a PUT.
    pub fn mode(self) -> PutMode {
        match self {
            Precondition::None => PutMode::Overwrite,
            Precondition::Absent => PutMode::Create,
            Precondition::Is(etag) => {
                PutMode::Update(UpdateVersion { e_tag: Some(etag), version: None })
            }
        }
    }

    /// The same as a header.
    ///
    /// # Errors
    ///
    /// If the store's etag cannot be one.
    pub fn header(self) -> Result<Option<(HeaderName, HeaderValue)>, Error> {
        let odd = |_| Error::Failed("the store's etag is not a valid header value".to_owned());
        Ok(match self {
            Precondition::None => None,
            Precondition::Absent => Some((IF_NONE_MATCH, HeaderValue::from_static("*"))),
            Precondition::Is(etag) => Some((IF_MATCH, HeaderValue::from_str(&etag).map_err(odd)?)),
        })
    }
}
