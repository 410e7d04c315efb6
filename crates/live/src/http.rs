//! The page at `/`, what it reads (`/model`, `/history`, `/actions`, `/what-if`), the kill switch (`POST /actions/hold` and
//! `/actions/resume`), and what an operator decides on single changes (`POST /admin/actions/ID/apply` and `/dismiss`). Now and then the page also reads the status and the tiers, which node and gateway answer.

use std::time::Duration;

use engine::act::{NotDecided, Verdict};
use engine::status::Actions;
use http::header::REFERRER_POLICY;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, X_FRAME_OPTIONS,
};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;

use super::what_if::{self, BODY_BYTES_MAX, WhatIfRequest};
use super::{LiveModel, NotDecidedHere};
use wire::body::ReplyBody;
use wire::problem::{HttpResult, Problem, json, typed};

/// The page at `/`, as `web/` builds it. Embedded, so that it works offline, and committed, so that a build needs no npm.
const PAGE: &str = include_str!("page/page.html");
const SCRIPT: &str = include_str!("page/page.js");
const STYLE: &str = include_str!("page/page.css");
/// How long the body of a what-if question may take.
const BODY_MAX: Duration = Duration::from_secs(10);
/// Below this an operator decides on entries of the journal.
const DECISIONS: &str = "/admin/actions/";
/// Where what-if questions are asked.
const WHAT_IF: &str = "/what-if";

/// What the page may do: its own script, style and icon, which is in its text, requests to its own server, nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Whether a path belongs to the page itself. The page contains no figures, so it needs no token; its
/// script asks the user for the token.
pub fn is_page(path: &str) -> bool {
    matches!(path, "/" | "/page.js" | "/page.css")
}

/// Whether a request is a what-if question, which has a body and takes its time: for [`answer_what_if`].
pub fn is_what_if(method: &Method, path: &str) -> bool {
    path == WHAT_IF && method == Method::POST
}

/// Answers a what-if question.
///
/// # Errors
///
/// 400 and 413 for the body, 409 before a model is fitted, 503 while too many questions are asked.
pub async fn answer_what_if(of: &LiveModel, request: Request<Incoming>) -> HttpResult {
    let problem = |status, what: &str| Err(Problem::new(status, what));
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    let bytes = match tokio::time::timeout(BODY_MAX, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let what = format!("the body broke off, or has more than {BODY_BYTES_MAX} bytes");
            return problem(StatusCode::PAYLOAD_TOO_LARGE, &what);
        }
        Err(_) => return problem(StatusCode::REQUEST_TIMEOUT, "the body does not come"),
    };
    let question: WhatIfRequest = match serde_json::from_slice(&bytes) {
        Ok(question) => question,
        Err(error) => {
            return problem(StatusCode::BAD_REQUEST, &format!("the what-if question: {error}"));
        }
    };
    let fitted = super::lock(&of.fitted).clone();
    let text = of.what_ifs.answer(question, fitted, of.objective()).await?;
    Ok(typed(StatusCode::OK, "application/json", text, None))
}

/// The time of `after=UNIX_SECONDS`; 0 without it.
fn after_unix_s(uri: &Uri) -> Result<u32, Problem> {
    let query = uri.query().unwrap_or("");
    let value = query.split('&').find_map(|part| part.strip_prefix("after="));
    value.map_or(Ok(0), |value| {
        value.parse().map_err(|_| {
            let what = format!("invalid after={value}: seconds since 1970-01-01 UTC");
            Problem::new(StatusCode::BAD_REQUEST, &what)
        })
    })
}

/// Answers a read of what the page reads; `None` for any other path.
fn figures(of: &LiveModel, uri: &Uri) -> Option<HttpResult> {
    let ok = StatusCode::OK;
    Some(match uri.path() {
        "/model" => {
            let mut shown = (*of.report()).clone();
            shown.footprints.clone_from(&super::lock(&of.footprints));
            Ok(json(ok, &shown, None))
        }
        "/model/file" => match super::lock(&of.fitted).clone() {
            Some(fitted) => match fitted.model.to_toml() {
                Ok(text) => Ok(typed(ok, "application/toml", text.into_bytes(), None)),
                Err(error) => {
                    Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()))
                }
            },
            None => Err(what_if::nothing_fitted()),
        },
        "/history" => after_unix_s(uri).map(|from| {
            let what_if::Objective { within_s, share } = of.objective();
            json(ok, &super::lock(&of.history).report(from, within_s, share), None)
        }),
        WHAT_IF => match super::lock(&of.fitted).clone() {
            Some(fitted) => Ok(json(ok, &what_if::knobs(&fitted, of.objective()), None)),
            // The page asks every few seconds, of a server without a model too: that is no error.
            None => {
                let mut none = Response::new(ReplyBody::empty(None));
                *none.status_mut() = StatusCode::NO_CONTENT;
                Ok(none)
            }
        },
        "/actions" => {
            let (held, mut actions) = of.journal();
            actions.reverse();
            Ok(json(ok, &Actions { held, actions, warning: None }, None))
        }
        _ => return None,
    })
}

/// Takes an operator's decision: `ID/apply` or `ID/dismiss`.
fn decide(of: &LiveModel, rest: &str) -> HttpResult {
    let parts = rest.split_once('/').and_then(|(id, verdict)| {
        let verdict = match verdict {
            "apply" => Verdict::Apply,
            "dismiss" => Verdict::Dismiss,
            _ => return None,
        };
        Some((id.parse::<u64>().ok()?, verdict))
    });
    let Some((id, verdict)) = parts else {
        let what = format!(
            "invalid decision {rest:?}; POST {DECISIONS}ID/apply or {DECISIONS}ID/dismiss, with the ID of an entry of GET /actions"
        );
        return Err(Problem::new(StatusCode::NOT_FOUND, &what));
    };
    let status = |why: &NotDecidedHere| match why {
        NotDecidedHere::Refused(NotDecided::Unknown(_)) => StatusCode::NOT_FOUND,
        _ => StatusCode::CONFLICT,
    };
    of.decide(id, verdict).map_err(|why| Problem::new(status(&why), &why.to_string()))?;
    let (held, mut actions) = of.journal();
    actions.retain(|entry| entry.id == id);
    // An approval is carried out later, by the part that proposed the change.
    let status = if verdict == Verdict::Apply { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(json(status, &Actions { held, actions, warning: None }, None))
}

/// Answers a path of the loop, but for what-if questions; `None` for any other path.
pub fn answer(of: &LiveModel, method: &Method, uri: &Uri) -> Option<HttpResult> {
    let path = uri.path();
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let allowed = |allowed: &'static str| {
        let what = format!("this takes {allowed} only");
        let allow = HeaderValue::from_static(allowed);
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, &what).with(http::header::ALLOW, allow)
    };
    if let Some(rest) = path.strip_prefix(DECISIONS) {
        let is_post = method == Method::POST;
        return Some(if is_post { decide(of, rest) } else { Err(allowed("POST")) });
    }
    let (kind, text) = match path {
        "/" => ("text/html; charset=utf-8", PAGE),
        "/page.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/page.css" => ("text/css; charset=utf-8", STYLE),
        "/actions/hold" | "/actions/resume" => {
            if method != Method::POST {
                return Some(Err(allowed("POST")));
            }
            let forgotten = of.hold(path == "/actions/hold").err().map(|error| {
                format!("the journal could not be written, so that a restart forgets this: {error}")
            });
            let (held, _) = of.journal();
            let reply = Actions { held, warning: forgotten, ..Actions::default() };
            return Some(Ok(json(StatusCode::OK, &reply, None)));
        }
        WHAT_IF if !reads => return Some(Err(allowed("GET, HEAD, POST"))),
        "/model" | "/model/file" | "/history" | "/actions" if !reads => {
            return Some(Err(allowed("GET, HEAD")));
        }
        _ => return figures(of, uri),
    };
    if !reads {
        return Some(Err(allowed("GET, HEAD")));
    }
    let mut response = typed(StatusCode::OK, kind, text.as_bytes().to_vec(), None);
    let headers = response.headers_mut();
    let fixed: [(HeaderName, &'static str); 4] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ];
    headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    Some(Ok(response))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_nobody_else_and_runs_no_text() {
        for text in [PAGE, SCRIPT, STYLE] {
            // A namespace is not a server, and a licence names its author's.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("http://") && !text.contains("https://"));
            let html = ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("];
            for word in html {
                assert!(!text.contains(word), "text of keys and names would be run: {word}");
            }
        }
        assert!(!PAGE.contains("style=") && !PAGE.contains("onclick"), "the policy forbids both");
    }

    #[test]
    fn the_history_is_asked_from_a_time_on() {
        let after = |text: &str| after_unix_s(&text.parse().unwrap()).map_err(|p| p.status());
        assert_eq!(after("/history"), Ok(0));
        assert_eq!(after("/history?after=1700000000&x=1"), Ok(1_700_000_000));
        for bad in ["/history?after=", "/history?after=-1", "/history?after=1e9"] {
            assert_eq!(after(bad), Err(StatusCode::BAD_REQUEST), "{bad}");
        }
    }
}
