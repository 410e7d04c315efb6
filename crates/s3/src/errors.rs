//! The errors of S3's clients, made from those of HTTP's.

use std::cell::RefCell;

use http::StatusCode;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderValue};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::messages;
use super::messages::{INVALID_RANGE, NO_SUCH_KEY, PRECONDITION_FAILED};
use store::Error;
use store::problem_of;

/// The error of a store's.
pub fn of_error(error: &Error) -> S3Error {
    let problem = problem_of(error);
    let mut other = match (hidden(error), error) {
        (Some((code, what)), _) => S3Error::with_message(code, what),
        // AWS has no such error: there a key is any text beside any other.
        (None, Error::Conflict(text)) => {
            let mut error =
                messages::error(S3ErrorCode::Custom("KeyConflict".into()), text.clone());
            error.set_status_code(problem.status());
            error
        }
        (None, _) => of_status(problem.status(), problem.text().to_owned()),
    };
    let mut headers: HeaderMap = problem.headers().iter().cloned().collect();
    if let Error::Unsatisfiable(version) = error {
        // The size of an object that the range lies outside of.
        let range = HeaderValue::try_from(format!("bytes */{}", version.size)).ok();
        headers.extend(range.map(|range| (CONTENT_RANGE, range)));
    }
    // They take the place of all that `s3s` would send. Some clients read no error that does not say that it is XML.
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    other.set_headers(headers);
    other
}

/// The error that a client gets for a failure behind. It does not say where the store is and under which name it has the object; the log
/// does, in the line with the id of the request.
fn hidden(error: &Error) -> Option<(S3ErrorCode, &'static str)> {
    let (code, what, text) = match error {
        Error::Unavailable(text) => (
            S3ErrorCode::SlowDown,
            "The object cannot be read or written at the moment. Try again.",
            text,
        ),
        Error::TimedOut(text) => (
            S3ErrorCode::ServiceUnavailable,
            "The object store behind did not answer in time. Try again.",
            text,
        ),
        // To try again would not help.
        Error::Denied(text) | Error::Unreadable(text) => {
            (S3ErrorCode::AccessDenied, "The object store behind does not allow this.", text)
        }
        // Not `SlowDown`: there is nothing to wait for.
        Error::Damaged(text) => {
            (S3ErrorCode::InternalError, "The object store behind has a damaged copy.", text)
        }
        Error::Full(text) => (
            S3ErrorCode::ServiceUnavailable,
            "The object store behind takes no writes at the moment.",
            text,
        ),
        _ => return None,
    };
    let noted = REASON.try_with(|reason| *reason.borrow_mut() = Some(text.clone()));
    if noted.is_err() {
        // On another task than its request, whose id is not known here.
        tracing::warn!("an S3 request fails: {text}");
    }
    Some((code, what))
}

tokio::task_local! {
    /// The reason of a failure of the request that this task answers, for its line in the log: `s3s` passes on the code and the
    /// message of an error alone.
    pub static REASON: RefCell<Option<String>>;
}

/// Takes the reason that was noted for the request that this task answers.
pub fn take_reason() -> Option<String> {
    REASON.try_with(|reason| reason.borrow_mut().take()).ok().flatten()
}

/// The error of an origin's.
pub fn of_origin(error: &origin::Error) -> S3Error {
    of_error(&error.clone().into())
}

/// The error of a status, with its reason.
pub fn of_status(status: StatusCode, what: String) -> S3Error {
    if status == StatusCode::NOT_FOUND {
        return S3Error::with_message(S3ErrorCode::NoSuchKey, NO_SUCH_KEY);
    }
    if status == StatusCode::PRECONDITION_FAILED {
        return S3Error::with_message(S3ErrorCode::PreconditionFailed, PRECONDITION_FAILED);
    }
    if status == StatusCode::RANGE_NOT_SATISFIABLE {
        return S3Error::with_message(S3ErrorCode::InvalidRange, INVALID_RANGE);
    }
    let code = match status {
        StatusCode::BAD_REQUEST => S3ErrorCode::InvalidRequest,
        StatusCode::LENGTH_REQUIRED => S3ErrorCode::MissingContentLength,
        StatusCode::CONFLICT => S3ErrorCode::OperationAborted,
        StatusCode::SERVICE_UNAVAILABLE => S3ErrorCode::SlowDown,
        StatusCode::GATEWAY_TIMEOUT | StatusCode::INSUFFICIENT_STORAGE => {
            S3ErrorCode::ServiceUnavailable
        }
        _ => S3ErrorCode::InternalError,
    };
    S3Error::with_message(code, what)
}

/// Refuses what is there and is not supported.
///
/// # Errors
///
/// `NotImplemented`, if `present`.
pub fn unsupported(present: bool, what: &str) -> S3Result<()> {
    if !present {
        return Ok(());
    }
    Err(S3Error::with_message(S3ErrorCode::NotImplemented, format!("{what} is not supported here")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_store_says_that_it_is_xml() {
        let body = |error: Error| {
            let reply = of_error(&error).to_http_response().unwrap();
            reply.headers().get(CONTENT_TYPE).map(|value| value.to_str().unwrap().to_owned())
        };
        for error in [
            Error::NotFound,
            Error::PreconditionFailed(None),
            Error::Unavailable("x".to_owned()),
            Error::Denied("x".to_owned()),
        ] {
            assert_eq!(body(error).as_deref(), Some("application/xml"));
        }
    }
}
