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
/// when etcd does not confirm the members, and when the origin does not answer. `lost`: what else keeps it from serving; `degraded`:
/// what else is less than it should be.
pub async fn ready(
    front: &Front,
    origin: &Arc<dyn Origin>,
    lost: Option<String>,
    degraded: Option<String>,
) -> Response<ReplyBody> {
    let looked = origin_status(origin).await;
    let error = if front.is_stopping() {
        Some("the server is stopping".to_owned())
    } else {
        looked.lost.clone().or(lost)
    };
    let ok = error.is_none();
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // Reads go on without etcd and without writes, and so a balancer must not take every process out.
    let etcd = front.membership().and_then(Membership::problem);
    let writes = looked.read_only.map(|why| format!("writes are refused: {why}"));
    let failing =
        looked.failing.map(|why| format!("{why}; what memory and devices hold is served"));
    let degraded: Vec<String> =
        etcd.into_iter().chain(writes).chain(failing).chain(degraded).collect();
    let degraded = (!degraded.is_empty()).then(|| degraded.join("; "));
    json(status, &Health { ok, error, degraded }, None)
}

/// The status of the origin, which is given a second to answer.
pub async fn origin_status(origin: &Arc<dyn Origin>) -> OriginStatus {
    let checked = tokio::time::timeout(CHECK_MAX, origin.check()).await;
    // Only of an origin that answers: a file system that hangs would hold this thread.
    let read_only = checked.as_ref().ok().and_then(|_| origin.read_only());
    let (lost, failing) = match checked {
        Ok(Ok(())) => (None, None),
        Ok(Err(error @ origin::Error::Lost(_))) => (Some(error.to_string()), None),
        Ok(Err(error)) => (None, Some(error.to_string())),
        Err(_) => {
            let seconds = CHECK_MAX.as_secs_f64();
            (None, Some(format!("the origin does not answer within {seconds} s")))
        }
    };
    OriginStatus { id: origin.id(), lost, failing, read_only }
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
