//! The HTTP reply of an [`Error`], as all fronts of HTTP give it.

use http::StatusCode;
use http::header::{HeaderValue, RETRY_AFTER};

use super::error::Error;
use wire::headers;
use wire::problem::Problem;

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
        _ => problem,
    }
}
