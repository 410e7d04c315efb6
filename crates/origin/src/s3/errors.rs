//! The store's errors in our words: what happened, where, and what to do.

use std::error::Error as _;

use object_store::client::HttpErrorKind;

use super::super::Error;
use super::http::kind_of;

/// An error of the store, taken apart.
#[derive(Debug)]
pub struct Trouble {
    /// What the origin's error is.
    pub error: Error,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// The store's code, such as `NoSuchKey`; empty if there was none.
    pub code: String,
}

/// Whether a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// Takes an error apart. `place` is the bucket and the endpoint in words, `what` was being done.
pub fn trouble(error: &object_store::Error, place: &str, what: &str, access: Access) -> Trouble {
    let text = innermost(error);
    let status = status_of(&text);
    let code = between(&text, "<Code>", "</Code>").unwrap_or_default().to_owned();
    let message = between(&text, "<Message>", "</Message>").unwrap_or_default();
    let said = match (code.as_str(), status) {
        ("", Some(status)) => format!("it answered {status}"),
        ("", None) => shorten(&text),
        (code, _) => format!("{code}: {}", shorten(message)),
    };
    let at = format!("{what} at {place}");
    let error = match (code.as_str(), status) {
        ("NoSuchBucket", _) => Error::Lost(format!(
            "{at}: the bucket does not exist; make it, or correct origin.bucket"
        )),
        ("InvalidAccessKeyId" | "SignatureDoesNotMatch" | "ExpiredToken" | "InvalidToken", _)
        | (_, Some(401)) => Error::Failed(format!(
            "{at}: the credentials are not accepted ({said}); correct origin.access_key_id and \
             origin.secret_access_key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )),
        ("RequestTimeTooSkewed", _) => Error::Failed(format!(
            "{at}: this machine's clock and the store's differ ({said}); set them right"
        )),
        ("MetadataTooLarge" | "KeyTooLongError" | "EntityTooLarge", _) => {
            Error::Refused(format!("{at}: {said}"))
        }
        ("ExistingObjectIsDirectory" | "ObjectParentIsFile", _) => Error::Refused(format!(
            "{at}: the store keeps objects as files, and another object's key is the start of this \
             one's, or the other way round ({said})"
        )),
        (code, status) if is_full(code, status) => Error::Full(format!("{at}: {said}")),
        (_, Some(403)) if access == Access::Write => Error::ReadOnly(format!(
            "{at}: access is denied ({said}); give the key of origin.access_key_id the right to \
             write"
        )),
        (_, Some(403)) => Error::Failed(format!(
            "{at}: access is denied ({said}); give the key of origin.access_key_id the right to \
             list and read"
        )),
        (_, Some(301 | 307 | 308)) => Error::Failed(format!(
            "{at}: the bucket is elsewhere; correct origin.endpoint and origin.region"
        )),
        _ => match kind_of(error) {
            Some(HttpErrorKind::Timeout) => Error::TimedOut(format!("{at}: {said}")),
            Some(HttpErrorKind::Connect) => Error::Failed(format!(
                "{at}: no connection ({said}); start the store, or correct origin.endpoint"
            )),
            _ => Error::Failed(format!("{at}: {said}")),
        },
    };
    Trouble { error, status, code }
}

/// Whether the store has no space, in the words of those that have such words.
fn is_full(code: &str, status: Option<u16>) -> bool {
    let words = ["Quota", "StorageFull", "NoSpaceLeft"];
    status == Some(507) || words.iter().any(|word| code.contains(word))
}

/// The text of the first cause: the others wrap it in words of no use to an operator.
fn innermost(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let inner = error.to_string();
        // Some wrap an error without telling its text, some tell the status only outside.
        if !text.contains("<Code>") && status_of(&text).is_none() {
            text = inner;
        }
        source = error.source();
    }
    text
}

fn status_of(text: &str) -> Option<u16> {
    let rest = text.split_once("non-2xx status code: ").map(|(_, rest)| rest)?;
    rest.get(..3)?.parse().ok()
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    Some(rest.split_once(end)?.0)
}

/// At most so much of a text that the store chose.
fn shorten(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}
