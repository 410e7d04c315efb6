//! `GET /`, `/model` and `/actions`, and the kill switch: `POST /actions/hold` and `/actions/resume`.

use engine::status::Actions;
use http::header::REFERRER_POLICY;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, X_FRAME_OPTIONS,
};
use http::{Method, Response, StatusCode};

use super::LiveModel;
use wire::body::ReplyBody;
use wire::problem::{Problem, json, typed};

/// The page at `/`: it reads `/model` and `/actions` and draws them. Embedded, so that it works offline.
const PAGE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");

/// What the page may do: its own script and style, requests to its own server, nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Whether a path belongs to the page itself. The page contains no figures, so it needs no token; its
/// script asks the user for the token.
pub fn is_page(path: &str) -> bool {
    matches!(path, "/" | "/page.js" | "/page.css")
}

/// Answers a path of the loop; `None` for any other path.
pub fn answer(
    of: &LiveModel,
    method: &Method,
    path: &str,
) -> Option<Result<Response<ReplyBody>, Problem>> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let allowed = |allowed: &'static str| {
        let what = format!("this takes {allowed} only");
        let allow = HeaderValue::from_static(allowed);
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, &what).with(http::header::ALLOW, allow)
    };
    let (kind, text) = match path {
        "/" => ("text/html; charset=utf-8", PAGE),
        "/page.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "/page.css" => ("text/css; charset=utf-8", STYLE),
        "/model" if reads => {
            let mut shown = (*of.report()).clone();
            shown.footprints.clone_from(&super::lock(&of.footprints));
            return Some(Ok(json(StatusCode::OK, &shown, None)));
        }
        "/actions" if reads => {
            let (held, mut actions) = of.journal();
            actions.reverse();
            return Some(Ok(json(StatusCode::OK, &Actions { held, actions }, None)));
        }
        "/actions/hold" | "/actions/resume" => {
            if method != Method::POST {
                return Some(Err(allowed("POST")));
            }
            of.hold(path == "/actions/hold");
            let (held, _) = of.journal();
            return Some(Ok(json(StatusCode::OK, &Actions { held, actions: Vec::new() }, None)));
        }
        "/model" | "/actions" => return Some(Err(allowed("GET, HEAD"))),
        _ => return None,
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

/// The page's bytes, for its tests.
#[cfg(test)]
fn page_bytes() -> usize {
    PAGE.len() + SCRIPT.len() + STYLE.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_asks_nobody_else() {
        assert!(page_bytes() < 24 << 10, "{} bytes", page_bytes());
        for text in [PAGE, SCRIPT, STYLE] {
            // A namespace is not a server.
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("http://") && !text.contains("https://"));
            assert!(!text.contains("innerHTML"), "text of keys and names would be run");
        }
        assert!(!PAGE.contains("style=") && !PAGE.contains("onclick"), "the policy forbids both");
    }
}
