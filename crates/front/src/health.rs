//! `/healthz` and `/readyz` of every process, and the metric of the faults that `/readyz` names.

use std::sync::Arc;
use std::time::Duration;

use engine::status::OriginStatus;
use http::{Response, StatusCode};
use origin::Origin;
use serde::Serialize;

use super::Front;
use membership::Membership;
use wire::body::ReplyBody;
use wire::exposition::{Exposition, Kind};
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

/// A part that a process depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The origin.
    Origin,
    /// etcd, which confirms the members.
    Etcd,
    /// A node, for a gateway.
    Node,
    /// A memcached server, for a proxy.
    Server,
    /// A device of a node.
    Device,
}

impl Part {
    /// Every part.
    pub const ALL: [Part; 5] = [Part::Origin, Part::Etcd, Part::Node, Part::Server, Part::Device];

    /// The name, as in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Part::Origin => "origin",
            Part::Etcd => "etcd",
            Part::Node => "node",
            Part::Server => "server",
            Part::Device => "device",
        }
    }
}

/// A part that failed, or does less than it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The part.
    pub part: Part,
    /// What is wrong with it.
    pub reason: String,
    /// Whether the process cannot serve because of it.
    pub is_fatal: bool,
}

impl Fault {
    /// A fault despite which the process serves.
    pub fn degraded(part: Part, reason: String) -> Fault {
        Fault { part, reason, is_fatal: false }
    }

    /// A fault that keeps the process from serving.
    pub fn fatal(part: Part, reason: String) -> Fault {
        Fault { part, reason, is_fatal: true }
    }
}

/// The faults of what every process with an origin depends on: etcd and the origin.
pub async fn origin_faults(front: &Front, origin: &Arc<dyn Origin>) -> Vec<Fault> {
    let looked = origin_status(origin).await;
    // Reads go on without etcd and without writes, and so a balancer must not take every process out.
    let etcd = front.membership().and_then(Membership::problem);
    let etcd = etcd.map(|why| Fault::degraded(Part::Etcd, why));
    let degraded = |why| Fault::degraded(Part::Origin, why);
    let lost = looked.lost.map(|why| Fault::fatal(Part::Origin, why));
    let writes = looked.read_only.map(|why| degraded(format!("writes are refused: {why}")));
    let failing = looked
        .failing
        .map(|why| degraded(format!("{why}; what memory and devices hold is served")));
    [etcd, lost, writes, failing].into_iter().flatten().collect()
}

/// `/readyz`: whether the process takes requests, and the faults that it has nevertheless.
pub fn ready(front: &Front, faults: &[Fault]) -> Response<ReplyBody> {
    let reasons = |is_fatal: bool| {
        let of = faults.iter().filter(|fault| fault.is_fatal == is_fatal);
        let reasons: Vec<&str> = of.map(|fault| fault.reason.as_str()).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    };
    let stopping = front.is_stopping().then(|| "the server is stopping".to_owned());
    let error = stopping.or_else(|| reasons(true));
    let ok = error.is_none();
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &Health { ok, error, degraded: reasons(false) }, None)
}

/// Adds the metric of the faults that `/readyz` names. Parts that the process does not have are 0, so that the set of metrics does not
/// depend on the configuration.
pub fn add_metrics(page: &mut Exposition, faults: &[Fault]) {
    let name = "concertina_degraded";
    let help = "1 while a part that the process depends on failed, or does less than it should.";
    page.family(name, Kind::Gauge, help);
    for part in Part::ALL {
        let is_faulty = faults.iter().any(|fault| fault.part == part);
        page.sample(name, &[("what", part.as_str())], f64::from(u8::from(is_faulty)));
    }
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
