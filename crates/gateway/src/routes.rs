//! The paths of a gateway: HTTP requests in, HTTP replies and refusals out.

use std::sync::Arc;

use ground::Key;
use http::{Request, Response};
use hyper::body::Incoming;

use super::admin;
use super::gateway::Gateway;
use cluster::members;
use front::http::{Service, admit, resumed};
use membership::Membership;
use objects::{self, Caller, list, refuse_reserved, reply};
use wire::body::ReplyBody;
use wire::lane::ThreadRecorder;
use wire::problem::{HttpResult, Problem, only_get};

impl Gateway {
    async fn route(
        self: &Arc<Self>,
        lane: &Arc<ThreadRecorder>,
        request: Request<Incoming>,
    ) -> Result<Response<ReplyBody>, Problem> {
        let path = request.uri().path();
        if path == "/healthz" || path == "/readyz" {
            only_get(&request)?;
            return Ok(match path {
                "/readyz" => front::health::ready(&self.front, &admin::faults(self).await),
                _ => front::health::alive(),
            });
        }
        admit(&self.front, request.uri(), request.headers())?;
        if let Some(encoded) = path.strip_prefix("/objects/") {
            let key = store::key_of(encoded)?;
            refuse_reserved(request.method(), &key, true)?;
            return self.object(lane, key, request).await;
        }
        if datasets::http::is_below(path) {
            return self.dataset(request).await;
        }
        if live::http::is_what_if(request.method(), path) {
            return live::http::answer_what_if(&self.front.live, request).await;
        }
        if let Some(answer) = live::http::answer(&self.front.live, request.method(), request.uri())
        {
            return answer;
        }
        let of = self.front.membership();
        if let Some(answer) = membership::answer(of, request.method(), path).await {
            return answer;
        }
        if path == "/admin/cluster" {
            return membership::configure(of.and_then(Membership::follower), request).await;
        }
        only_get(&request)?;
        match path {
            "/objects" => {
                let query = request.uri().query().unwrap_or("").to_owned();
                list::list(&**self, lane, &query).await
            }
            "/metrics" => Ok(admin::metrics(self).await),
            "/admin/status" => Ok(admin::status(self).await),
            "/admin/members" => {
                let known = self.membership.members();
                Ok(members(&self.router.backend.roll, &known, None).await)
            }
            _ => Err(Problem::nothing_here()),
        }
    }

    async fn object(
        self: &Arc<Self>,
        lane: &Arc<ThreadRecorder>,
        key: Key,
        mut request: Request<Incoming>,
    ) -> HttpResult {
        match resumed::<Gateway, _>(&mut request) {
            Some(pending) => {
                let (found, is_timed) = self.go_on(pending, key, &request).await?;
                reply(found, is_timed)
            }
            None => objects::object(&**self, lane, key, request, Caller::default()).await,
        }
    }
}

impl Service for Gateway {
    async fn answer(
        self: &Arc<Self>,
        lane: &Arc<ThreadRecorder>,
        request: Request<Incoming>,
    ) -> Response<ReplyBody> {
        self.route(lane, request).await.unwrap_or_else(Problem::response)
    }

    fn under_way(&self) -> usize {
        0
    }
}
