//! `/healthz` and `/readyz` of every process.

use std::sync::Arc;
use std::time::Duration;

use engine::status::OriginStatus;
use http::{Response, StatusCode};
use origin::Origin;
use serde::Serialize;

use super::Front;
use membership::Membership;
use wire::body::ReplyBody;
use wire::problem::json;

/// How long `/readyz` waits for the origin. One that does not answer is not known to be lost, and what
/// memory and devices hold is served.
const CHECK_MAX: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Health {
    ok: bool,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What is less than it should be, though it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<String>,
}

/// `/healthz`: the process lives.
pub fn alive() -> Response<ReplyBody> {
    json(StatusCode::OK, &Health { ok: true, error: None, degraded: None }, None)
}

/// `/readyz`: whether the process takes requests, and has the origin that it was started with. Says too
/// when etcd does not confirm the members.
pub async fn ready(front: &Front, origin: &Arc<dyn Origin>) -> Response<ReplyBody> {
    let looked = origin_status(origin).await;
    let error = if front.is_stopping() {
        Some("the server is stopping".to_owned())
    } else {
        looked.lost.clone()
    };
    let ok = error.is_none();
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // Reads go on without etcd and without writes, and so a balancer must not take every process out.
    let etcd = front.membership().and_then(Membership::problem);
    let writes = looked.read_only.map(|why| format!("writes are refused: {why}"));
    let degraded: Vec<String> = etcd.into_iter().chain(writes).collect();
    let degraded = (!degraded.is_empty()).then(|| degraded.join("; "));
    json(status, &Health { ok, error, degraded }, None)
}

/// The status of the origin, which is given a second to answer.
pub async fn origin_status(origin: &Arc<dyn Origin>) -> OriginStatus {
    let checked = tokio::time::timeout(CHECK_MAX, origin.check()).await;
    // Only of an origin that answers: a file system that hangs would hold this thread.
    let read_only = checked.as_ref().ok().and_then(|_| origin.read_only());
    let lost = match checked {
        Ok(Err(error @ origin::Error::Lost(_))) => Some(error.to_string()),
        _ => None,
    };
    OriginStatus { id: origin.id(), lost, read_only }
}

/// `/readyz` of a process without an origin. `lost`: what keeps it from serving. `degraded`: what is less than it should
/// be.
pub fn ready_without_origin(
    front: &Front,
    lost: Option<String>,
    degraded: Option<String>,
) -> Response<ReplyBody> {
    let error = if front.is_stopping() { Some("the server is stopping".to_owned()) } else { lost };
    let ok = error.is_none();
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &Health { ok, error, degraded }, None)
}
