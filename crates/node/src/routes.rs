//! The paths of a node: which of its parts answers a request.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ground::Key;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use super::state::Node;
use super::{admin, peers};
use front::health;
use front::http::{admit, is_health, resumed};
use membership::Membership;
use objects::list;
use wire::body::ReplyBody;
use wire::headers;
use wire::lane::ThreadRecorder;
use wire::problem::{HttpResult, Problem, only_get};

impl front::http::Service for Node {
    async fn answer(
        self: &Arc<Self>,
        lane: &Arc<ThreadRecorder>,
        request: Request<Incoming>,
    ) -> Response<ReplyBody> {
        route(self, lane, request).await.unwrap_or_else(Problem::response)
    }

    fn under_way(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}

/// Answers a request for one object.
async fn object(
    node: &Arc<Node>,
    lane: &Arc<ThreadRecorder>,
    key: Key,
    mut request: Request<Incoming>,
    sender: peers::Sender,
) -> HttpResult {
    let asker = peers::asker(node, sender, request.headers());
    let is_internal = sender != peers::Sender::Client;
    let Some(pending) = resumed::<Node, _>(&mut request) else {
        let caller = objects::Caller { is_internal, asker: Some(asker) };
        return objects::object(&**node, lane, key, request, caller).await;
    };
    let headers = request.headers();
    let read = match objects::read_request(key, request.method(), headers, &pending.record) {
        Ok(read) => read,
        Err(problem) => return Err(problem.with_record(pending.record)),
    };
    objects::reply(pending.finish(node, &read).await, read.is_timed)
}

async fn route(
    shared: &Arc<Node>,
    lane: &Arc<ThreadRecorder>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Problem> {
    let path = request.uri().path();
    if is_health(path) {
        only_get(&request)?;
        return Ok(match path {
            "/readyz" => admin::ready(shared).await,
            _ => health::alive(),
        });
    }
    admit(shared, request.uri(), request.headers())?;
    let sender = peers::sender(shared, request.headers())?;
    if let Some(encoded) = path.strip_prefix("/objects/") {
        let key = store::key_of(encoded)?;
        objects::refuse_reserved(request.method(), &key, sender == peers::Sender::Client)?;
        return object(shared, lane, key, request, sender).await;
    }
    if datasets::http::is_below(path) {
        match &shared.datasets {
            Some(datasets) => return datasets.answer(request).await,
            // A gateway would take 404 for the answer to its question.
            None if request.headers().contains_key(&headers::PROTOCOL) => {
                let what = "this node serves no datasets; set datasets.path";
                return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, what));
            }
            None => {}
        }
    }
    if let (Some(path), Some(datasets)) =
        (path.strip_prefix(datasets::copies::PATH), &shared.datasets)
        && request.headers().contains_key(&headers::PROTOCOL)
    {
        let query = request.uri().query().unwrap_or("");
        return datasets.copies_asked(request.method(), path, query).await;
    }
    if let (Some(path), Some(peers)) = (path.strip_prefix("/cluster/"), shared.drive.peers()) {
        if path == "reads" && request.method() == Method::POST {
            return peers::reads_told(shared, sender, request.into_body()).await;
        }
        let (method, headers) = (request.method(), request.headers());
        let answered = peers::answer(shared, peers, method, headers, path, sender);
        if let Some(answer) = answered {
            return answer;
        }
    }
    if path == "/objects" {
        only_get(&request)?;
        let query = request.uri().query().unwrap_or("").to_owned();
        return list::list(&**shared, lane, &query).await;
    }
    administration(shared, request).await
}

/// Answers a request for the model, the membership, or the state of the process.
async fn administration(shared: &Arc<Node>, request: Request<Incoming>) -> HttpResult {
    let path = request.uri().path();
    if live::http::is_what_if(request.method(), path) {
        return live::http::answer_what_if(&shared.live, request).await;
    }
    if let Some(answer) = live::http::answer(&shared.live, request.method(), request.uri()) {
        return answer;
    }
    let (method, of) = (request.method(), shared.membership());
    if let Some(answer) = membership::answer(of, method, path).await {
        return answer;
    }
    if path == "/admin/cluster" {
        return membership::configure(of.and_then(Membership::follower), request).await;
    }
    if let ("/admin/members", Some(peers)) = (path, shared.drive.peers()) {
        only_get(&request)?;
        return Ok(peers.members(shared.drive.warmed()).await);
    }
    match path {
        "/metrics" => {
            only_get(&request)?;
            Ok(admin::metrics(shared).await)
        }
        "/admin/status" => {
            only_get(&request)?;
            Ok(admin::status(shared).await)
        }
        "/admin/tiers" => {
            only_get(&request)?;
            Ok(admin::tiers(shared))
        }
        _ => Err(Problem::nothing_here()),
    }
}
