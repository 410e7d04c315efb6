//! The HTTP reply of an [`Error`], as all fronts of HTTP give it.

use engine::node::FailureKind;
use http::StatusCode;
use http::header::{HeaderMap, HeaderValue, RETRY_AFTER};

use super::error::Error;
use wire::headers;
use wire::problem::Problem;

const DENIED: &str = "denied";
const DAMAGED: &str = "damaged";

/// The kind of failure that the reply of another server reports in its headers; [`FailureKind::Unavailable`] if they say nothing.
pub fn failure_kind(headers: &HeaderMap) -> FailureKind {
    match headers.get(&headers::FAILURE).map(HeaderValue::as_bytes) {
        Some(kind) if kind == DENIED.as_bytes() => FailureKind::Denied,
        Some(kind) if kind == DAMAGED.as_bytes() => FailureKind::Damaged,
        _ => FailureKind::Unavailable,
    }
}

/// The status of an error's reply.
fn status_of(error: &Error) -> StatusCode {
    match error {
        Error::NotFound | Error::NotHere => StatusCode::NOT_FOUND,
        Error::NotModified(_) => StatusCode::NOT_MODIFIED,
        Error::PreconditionFailed(_) => StatusCode::PRECONDITION_FAILED,
        Error::Unsatisfiable(_) => StatusCode::RANGE_NOT_SATISFIABLE,
        Error::Busy(..) | Error::Unavailable(_) | Error::Stopping => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Error::TooLate | Error::TimedOut(_) => StatusCode::GATEWAY_TIMEOUT,
        Error::Unreadable(_) | Error::Damaged(_) => StatusCode::BAD_GATEWAY,
        Error::Misdirected(_) => StatusCode::MISDIRECTED_REQUEST,
        Error::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Error::Invalid(_) => StatusCode::BAD_REQUEST,
        Error::Conflict(_) => StatusCode::CONFLICT,
        Error::Reserved => StatusCode::FORBIDDEN,
        Error::Full(_) | Error::Denied(_) => StatusCode::INSUFFICIENT_STORAGE,
        Error::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
    }
}

/// The error's reply, without what is known of an object.
pub fn problem_of(error: &Error) -> Problem {
    let problem = Problem::new(status_of(error), error.text());
    let comes_again = matches!(error, Error::Busy(..) | Error::Unavailable(_) | Error::TimedOut(_));
    let problem = match comes_again {
        true => problem.with(RETRY_AFTER, HeaderValue::from_static("1")),
        false => problem,
    };
    match error {
        Error::Busy(Some(queue), _) => match HeaderValue::from_str(queue) {
            Ok(queue) => problem.with(headers::BUSY.clone(), queue),
            Err(_) => problem,
        },
        // A gateway that is told so does not call it passing.
        Error::Unreadable(_) | Error::Denied(_) => {
            problem.with(headers::FAILURE.clone(), HeaderValue::from_static(DENIED))
        }
        Error::Damaged(_) => {
            problem.with(headers::FAILURE.clone(), HeaderValue::from_static(DAMAGED))
        }
        _ => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_for_good_is_read_back_from_the_reply() {
        for (error, kind) in [
            (Error::Damaged(String::new()), FailureKind::Damaged),
            (Error::Unreadable(String::new()), FailureKind::Denied),
            (Error::Denied(String::new()), FailureKind::Denied),
            (Error::Unavailable(String::new()), FailureKind::Unavailable),
            (Error::Full(String::new()), FailureKind::Unavailable),
        ] {
            let headers = problem_of(&error).headers().iter().cloned().collect();
            assert_eq!(failure_kind(&headers), kind, "{error:?}");
        }
    }
}
