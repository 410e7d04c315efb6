//! Translates errors of the store into [`Error`]: what failed, where, and what to do.

use std::borrow::Cow;

use quick_xml::escape::unescape;

use super::failure::{Failure, FailureKind};
use crate::error::Error;

/// A parsed error of the store.
#[derive(Debug)]
pub struct Trouble {
    /// The origin's error for it.
    pub error: Error,
    /// The status of the reply, if there was one.
    pub status: Option<u16>,
    /// The store's error code, such as `NoSuchKey`; empty if there was none.
    pub code: String,
}

impl Trouble {
    /// An error that is not a reply's.
    pub fn without_reply(error: Error) -> Trouble {
        Trouble { error, status: None, code: String::new() }
    }
}

/// Whether a request reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The request reads.
    Read,
    /// The request writes.
    Write,
}

/// Parses an error. `place` names the bucket and the endpoint, `action` the failed operation.
pub fn trouble(failure: &Failure, place: &str, action: &str, access: Access) -> Trouble {
    let (text, status, kind) = match failure {
        Failure::Status { status, text } => (text, Some(status.as_u16()), None),
        Failure::ErrorText(text) => (text, None, None),
        Failure::Transport { kind, text } => (text, None, Some(*kind)),
    };
    let code = shorten(&content(text, "<Code>", "</Code>"));
    let message = content(text, "<Message>", "</Message>");
    let reason = match (code.as_str(), status) {
        ("", Some(status)) => format!("status {status}"),
        ("", None) => shorten(text),
        (code, _) => format!("{code}: {}", shorten(&message)),
    };
    let at = format!("{action} at {place}");
    let error = match (code.as_str(), status) {
        ("NoSuchBucket", _) => Error::Lost(format!(
            "{at}: the bucket does not exist; create it, or correct origin.bucket"
        )),
        ("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "ExpiredToken" | "InvalidToken", _)
        | (_, Some(401)) => Error::Failed(format!(
            "{at}: the credentials are not accepted ({reason}); correct origin.access_key_id and \
             origin.secret_access_key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )),
        ("RequestTimeTooSkewed", _) => Error::Failed(format!(
            "{at}: the clocks of this machine and the store differ ({reason}); synchronise them"
        )),
        ("MetadataTooLarge" | "KeyTooLongError" | "EntityTooLarge", _) => {
            // Clients are told, who need not know where the store is.
            Error::Refused(format!("the store refuses the object: {reason}"))
        }
        // Clients are told, whom the store's own words would tell which store it is.
        ("ExistingObjectIsDirectory" | "ObjectParentIsFile", _) => Error::Conflict(
            "objects are kept as files here, and one is stored whose key continues this key after a slash, or which this \
             key continues so: they cannot both be stored"
                .to_owned(),
        ),
        ("DirectoryObjectContainsData", _) => Error::Refused(
            "objects are kept as files here: a key that ends in / is stored only without bytes"
                .to_owned(),
        ),
        (code, status) if is_full(code, status) => Error::Full(format!("{at}: {reason}")),
        (_, Some(403)) if access == Access::Write => Error::ReadOnly(format!(
            "{at}: access is denied ({reason}); give the key of origin.access_key_id the right to \
             write"
        )),
        (_, Some(403)) => Error::Denied(format!(
            "{at}: access is denied ({reason}); give the key of origin.access_key_id the right to \
             list and read"
        )),
        (_, Some(301 | 307 | 308)) => Error::Failed(format!(
            "{at}: the bucket is elsewhere; correct origin.endpoint and origin.region"
        )),
        _ => match kind {
            Some(FailureKind::Timeout) => Error::TimedOut(format!("{at}: {reason}")),
            Some(FailureKind::Connect) => Error::Failed(format!(
                "{at}: no connection ({reason}); start the store, or correct origin.endpoint"
            )),
            _ => Error::Failed(format!("{at}: {reason}")),
        },
    };
    Trouble { error, status, code }
}

/// Whether the store is full, by its status or by the error codes of known stores.
fn is_full(code: &str, status: Option<u16>) -> bool {
    let codes = ["Quota", "StorageFull", "NoSpaceLeft"];
    status == Some(507) || codes.iter().any(|part| code.contains(part))
}

/// The text of an element, whose entities are decoded; empty if it is missing.
fn content<'a>(text: &'a str, start: &str, end: &str) -> Cow<'a, str> {
    let rest = text.split_once(start).map_or("", |(_, rest)| rest);
    let content = rest.split_once(end).map_or("", |(content, _)| content);
    unescape(content).unwrap_or(Cow::Borrowed(content))
}

/// Limits a text sent by the store to 300 printable characters.
fn shorten(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use ::http::StatusCode;

    use super::*;

    #[test]
    fn keys_that_files_cannot_have_are_refused_in_own_words() {
        for (code, is_beside) in [
            ("ExistingObjectIsDirectory", true),
            ("ObjectParentIsFile", true),
            ("DirectoryObjectContainsData", false),
        ] {
            let text =
                format!("<Error><Code>{code}</Code><Message>Of the store.</Message></Error>");
            let failure = Failure::Status { status: StatusCode::CONFLICT, text };
            let error = trouble(&failure, "p", "a write", Access::Write).error;
            let told = error.to_string();
            assert!(error.is_refusal(), "{told}");
            assert_eq!(matches!(error, Error::Conflict(_)), is_beside, "{told}");
            assert!(!told.contains(code) && !told.contains("Of the store"), "{told}");
        }
    }

    #[test]
    fn entities_of_a_message_are_decoded_once() {
        let told = |message: &str| {
            let text = format!("<Error><Code>Odd</Code><Message>{message}</Message></Error>");
            let failure = Failure::Status { status: StatusCode::BAD_REQUEST, text };
            trouble(&failure, "p", "a write", Access::Write).error.to_string()
        };
        let found = told("&lt;a&gt; &amp; &quot;b&quot; &amp;lt; &#x41;&#10;");
        assert!(found.ends_with("Odd: <a> & \"b\" &lt; A"), "{found}");
        assert!(told("a & b &unknown;").ends_with("Odd: a & b &unknown;"));
    }
}
