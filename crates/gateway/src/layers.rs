//! The layers of a dataset's shards over all nodes: what each tells of those that it holds, and the memory that all may use for them.

use futures_util::future::join_all;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use membership::State;
use serde_json::{Value, json};

use super::gateway::Gateway;
use wire::problem::{HttpResult, Problem, json as json_reply};

/// What the nodes tell, put together.
#[derive(Default)]
struct AllLayers {
    parts: Vec<Value>,
    budget_bytes: u64,
    fixed_bytes: Value,
    changes: Vec<String>,
    /// Names of the nodes that replied.
    replied: Vec<String>,
    /// Nodes that did not, by name, with the reason.
    unanswered: Vec<Value>,
}

impl AllLayers {
    /// Adds the reply of a node.
    fn add(&mut self, name: String, mut value: Value) {
        for mut part in value["parts"].as_array().cloned().unwrap_or_default() {
            // A node lists all parts, but has layers only for those that it holds.
            if !part["layers"].is_null() {
                part["node"] = json!(name);
                self.parts.push(part);
            }
        }
        for change in value["changes"].as_array().into_iter().flatten() {
            self.changes.push(format!("{name}: {}", change.as_str().unwrap_or_default()));
        }
        self.budget_bytes += value["budget_bytes"].as_u64().unwrap_or(0);
        self.fixed_bytes = value.get_mut("fixed_bytes").map(Value::take).unwrap_or_default();
        self.replied.push(name);
    }

    fn reply(self) -> HttpResult {
        let all = json!({
            "parts": self.parts,
            "budget_bytes": self.budget_bytes,
            "fixed_bytes": self.fixed_bytes,
            "changes": self.changes,
            "unanswered": self.unanswered,
        });
        Ok(json_reply(StatusCode::OK, &all, None))
    }
}

impl Gateway {
    /// Sends a request about layers to every node and merges the replies. Of nodes that do not reply, a reader is told; a change that not
    /// every node made is an error that says which did.
    pub(super) async fn layers(&self, dataset: &str, request: &Request<Incoming>) -> HttpResult {
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        let path = format!("/datasets/{dataset}/layers{query}");
        let states = self.membership.members().states.clone();
        // The number of a node that has left stays its own.
        let nodes = (0..self.router.backend.roll.count())
            .filter(|node| states.get(*node).is_none_or(|state| *state != State::Left));
        let limit = self.router.backend.origin_timeout;
        let ask = async |node| (node, self.tell_node(node, request.method(), &path, limit).await);
        let mut all = AllLayers::default();
        let mut failed: Option<Problem> = None;
        for (node, told) in join_all(nodes.map(ask)).await {
            let name = self.router.name(Some(node)).to_string();
            match told {
                Ok((StatusCode::OK, value)) => all.add(name, value),
                // A question that is wrong is wrong for all.
                Ok((status, value)) => return Ok(json_reply(status, &value, None)),
                Err(problem) => {
                    all.unanswered.push(json!({ "node": name, "reason": problem.text() }));
                    failed = failed.or(Some(problem));
                }
            }
        }
        match failed {
            Some(problem) if all.replied.is_empty() => Err(problem),
            Some(problem) if request.method() == Method::PUT => {
                let made = all.replied.join(", ");
                let what =
                    format!("not every node made the change, but {made}: {}", problem.text());
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, &what))
            }
            _ => all.reply(),
        }
    }
}
