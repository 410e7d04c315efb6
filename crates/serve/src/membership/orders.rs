//! `POST /admin/members/NAME/drain` and `…/resume`: the operator's orders.

use http::header::{ALLOW, HeaderValue};
use http::{Method, Response, StatusCode};
use serde_json::json;

use super::Membership;
use crate::body::ReplyBody;
use crate::config::is_name;
use crate::http::{Problem, json as reply};

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
