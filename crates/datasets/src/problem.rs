//! Replies that are errors, of requests for datasets.

use ground::with_causes;
use http::StatusCode;
use http::header::{ALLOW, HeaderValue, RETRY_AFTER};

use super::error::Error;
use wire::problem::Problem;

/// 400 Bad Request, with the error as its message; 413 if the query is valid but costs too much.
pub fn bad(error: &Error) -> Problem {
    let text = with_causes(error);
    if error.is_too_much_work() {
        let what = format!(
            "{text} (datasets.query_read_bytes_max); or count a copy of the dataset (concertina data pull), which has no \
             limit"
        );
        return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, &what);
    }
    Problem::new(StatusCode::BAD_REQUEST, &text)
}

/// 503 Service Unavailable, with the error as its message. Most such errors come from the origin.
pub fn unavailable(error: &Error) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, &with_causes(error))
        .with(RETRY_AFTER, HeaderValue::from_static("1"))
}

/// 404 Not Found: the dataset does not exist.
pub fn no_dataset(name: &str) -> Problem {
    let what = format!("there is no dataset {name:?}; /datasets lists them");
    Problem::new(StatusCode::NOT_FOUND, &what)
}

/// 405 Method Not Allowed; `methods` is the value of `Allow`.
pub fn only(methods: &'static str) -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, &format!("this path allows only {methods}"))
        .with(ALLOW, HeaderValue::from_static(methods))
}
