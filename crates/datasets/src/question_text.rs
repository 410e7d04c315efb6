//! The text of a question to a dataset: parameters in the address of a request or, where they are too long for one, in its
//! body; and bodies of limited length.

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use wire::pace::{Meter, Pace};
use wire::problem::Problem;

/// Maximum bytes of a question's parameters: those of the longest query, with every byte percent-encoded.
const QUESTION_BYTES_MAX: usize = 256 << 10;
/// A question as a client asks it: the path below the dataset that answers it, and its parameters.
#[derive(Clone, Debug)]
pub struct QuestionText {
    /// `records`, `count`, …
    pub rest: String,
    /// The parameters, percent-encoded and joined by `&`.
    pub query: String,
}

/// Whether a request asks a question by its body: one that is too long for an address.
pub fn is_posted_question(method: &Method, rest: &str) -> bool {
    *method == Method::POST && matches!(rest, "search" | "count")
}

/// Takes a question from a request: from its address or, as HTML forms send them, from the body of a POST.
///
/// # Errors
///
/// If a POST has parameters in its address; if the body is too long, not UTF-8, or does not come in time.
pub async fn question_text(
    rest: &str,
    request: Request<Incoming>,
    pace: Pace,
) -> Result<QuestionText, Problem> {
    let rest = if rest == "search" { "records" } else { rest }.to_owned();
    if *request.method() != Method::POST {
        let query = request.uri().query().unwrap_or("").to_owned();
        return Ok(QuestionText { rest, query });
    }
    require_bare(request.uri())?;
    let body = gather(
        request.into_body(),
        pace,
        BodyLimit { of: "a query's parameters", bytes: QUESTION_BYTES_MAX },
    );
    let query = String::from_utf8(body.await?.to_vec());
    let query = query.map_err(|_| {
        let what = "the body is not text: send parameters as in an address, query=…&limit=10, percent-encoded";
        Problem::new(StatusCode::BAD_REQUEST, what)
    })?;
    Ok(QuestionText { rest, query: query.trim_end().to_owned() })
}

/// Checks that the address of a POST, whose parameters are its body, has none: of two queries one would be left out.
fn require_bare(address: &Uri) -> Result<(), Problem> {
    if address.query().is_none_or(str::is_empty) {
        return Ok(());
    }
    let what = "a POST has its parameters in the body; its address has some, too: send all in the body, or use GET";
    Err(Problem::new(StatusCode::BAD_REQUEST, what))
}

/// How much of a body is taken.
pub(crate) struct BodyLimit {
    /// What the body is.
    pub of: &'static str,
    /// Its most bytes.
    pub bytes: usize,
}

/// The bytes of a request.
pub(crate) async fn gather(
    mut incoming: Incoming,
    pace: Pace,
    limit: BodyLimit,
) -> Result<Bytes, Problem> {
    let (mut all, mut meter) = (Vec::new(), Meter::new(pace));
    loop {
        let piece = match meter.wait(incoming.frame()).await {
            Ok(None) => return Ok(all.into()),
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            Ok(Some(Err(error))) => {
                let what = format!("the body broke off: {error}");
                return Err(Problem::new(StatusCode::BAD_REQUEST, &what));
            }
            Err(slow) => return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, &slow)),
        };
        meter.took(piece.len());
        if all.len() + piece.len() > limit.bytes {
            let what = format!("{} may have at most {} bytes", limit.of, limit.bytes);
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, &what));
        }
        all.extend_from_slice(&piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_has_its_parameters_in_one_place() {
        for (address, is_bare) in
            [("/d/count", true), ("/d/count?", true), ("/d/count?query=a", false)]
        {
            assert_eq!(require_bare(&address.parse().unwrap()).is_ok(), is_bare, "{address}");
        }
    }
}
