//! `POST /admin/members/NAME/drain` and `…/resume`: the operator's orders. `GET` and `PUT /admin/cluster`: the common
//! configuration.

use std::time::Duration;

use http::header::{ALLOW, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::json;

use super::common::{BYTES_MAX, Document, NotWritten};
use super::follower::Follower;
use super::membership::Membership;
use configuration::is_name;
use wire::body::ReplyBody;
use wire::problem::{Problem, json as reply};

/// Answers a request below `/admin/members/`; `None` if there is no such path.
pub async fn answer(
    membership: Option<&Membership>,
    method: &Method,
    path: &str,
) -> Option<Result<Response<ReplyBody>, Problem>> {
    let (name, order) = path.strip_prefix("/admin/members/")?.split_once('/')?;
    let drains = match order {
        "drain" => true,
        "resume" => false,
        _ => return None,
    };
    if method != Method::POST {
        let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this takes POST only");
        return Some(Err(problem.with(ALLOW, HeaderValue::from_static("POST"))));
    }
    let conflict = |why: &str| Some(Err(Problem::new(StatusCode::CONFLICT, why)));
    if !is_name(name) {
        return Some(Err(Problem::new(StatusCode::BAD_REQUEST, "this is no member's name")));
    }
    let Some(membership) = membership else {
        return conflict("this server belongs to no cluster");
    };
    match membership.drain(name, drains).await {
        Ok(epoch) => Some(Ok(reply(StatusCode::OK, &json!({ "epoch": epoch }), None))),
        Err(why) => conflict(&why),
    }
}

/// How long the body of a new version may take.
const BODY_MAX: Duration = Duration::from_secs(10);

/// Answers a request for `/admin/cluster`.
///
/// # Errors
///
/// 405 and 409 where it cannot be; 400 what is wrong with a new version; 409 if it does not follow the present one; 503 if
/// etcd does not answer.
pub async fn configure(
    follower: Option<&Follower>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Problem> {
    let problem = |status, what: &str| Err(Problem::new(status, what));
    let Some(follower) = follower else {
        let what = "this server shares no configuration: its members are not in etcd";
        return problem(StatusCode::CONFLICT, what);
    };
    if request.method() == Method::GET {
        return Ok(reply(StatusCode::OK, &follower.common().status(), None));
    }
    if request.method() != Method::PUT {
        let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this takes GET and PUT only");
        return Err(problem.with(ALLOW, HeaderValue::from_static("GET, PUT")));
    }
    let body = Limited::new(request.into_body(), BYTES_MAX).collect();
    let bytes = match tokio::time::timeout(BODY_MAX, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let what = format!("the body broke off, or has more than {BYTES_MAX} bytes");
            return problem(StatusCode::BAD_REQUEST, &what);
        }
        Err(_) => return problem(StatusCode::REQUEST_TIMEOUT, "the body does not come"),
    };
    let new = match Document::parse(&bytes) {
        Ok(new) => new,
        Err(why) => {
            let what = format!("the configuration of the cluster is refused: {why}");
            return problem(StatusCode::BAD_REQUEST, &what);
        }
    };
    match follower.configure(new).await {
        Ok(version) => Ok(reply(StatusCode::OK, &json!({ "version": version }), None)),
        Err(NotWritten::Invalid(why)) => problem(StatusCode::BAD_REQUEST, &why),
        Err(NotWritten::Conflict(why)) => problem(StatusCode::CONFLICT, &why),
        Err(NotWritten::Unknown(why)) => {
            let what = format!("{why}; whether the new version was written is not known: read it");
            problem(StatusCode::SERVICE_UNAVAILABLE, &what)
        }
    }
}
