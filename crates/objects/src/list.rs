//! The listing at `/objects`.

use std::sync::Arc;

use ground::window::{Operation, Outcome};
use http::StatusCode;
use serde::Serialize;

use store::Store;
use store::problem_of;
use wire::lane::ThreadRecorder;
use wire::problem::{HttpResult, Problem, json};

/// Maximum number of objects on a page of a listing.
const LIST_MAX: usize = 1000;

#[derive(Serialize)]
struct Page {
    objects: Vec<PageObject>,
    /// The value of `after` for the next page; `None` on the last page.
    next: Option<String>,
}

#[derive(Serialize)]
struct PageObject {
    /// The key, percent-encoded as in its URL.
    key: String,
    size: u64,
    etag: String,
    modified_unix_us: u64,
    content_type: Option<String>,
}

/// `GET /objects?prefix=&after=&limit=`.
pub async fn list(store: &dyn Store, lane: &Arc<ThreadRecorder>, query: &str) -> HttpResult {
    let mut seen = lane.received(Operation::List, b"");
    let bad = |what: String| Problem::new(StatusCode::BAD_REQUEST, &what);
    let (mut prefix, mut after, mut limit) = (Vec::new(), None, LIST_MAX);
    if let Some(name) = wire::query::repeated_name(query) {
        return Err(bad(format!("parameter {name:?} is given twice")));
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decoded: Vec<u8> = percent_encoding::percent_decode_str(value).collect();
        match name {
            "prefix" => prefix = decoded,
            "after" => after = Some(decoded),
            "limit" => {
                limit =
                    value.parse().ok().filter(|n| (1..=LIST_MAX).contains(n)).ok_or_else(|| {
                        bad(format!("limit must be a number from 1 to {LIST_MAX}, not {value:?}"))
                    })?;
            }
            _ => {
                return Err(bad(format!(
                    "unknown parameter {name:?}: use prefix, after and limit"
                )));
            }
        }
    }
    let listed = store.list(&prefix, after.as_deref(), limit).await;
    let listed = listed.map_err(|error| problem_of(&error))?;
    let next = (listed.len() == limit).then(|| listed.last().map(|last| store::escaped(&last.key)));
    let objects = listed.into_iter().map(|listed| PageObject {
        key: store::escaped(&listed.key),
        size: listed.metadata.size,
        etag: listed.metadata.etag.to_string(),
        modified_unix_us: listed.metadata.modified_unix_us,
        content_type: listed.metadata.attributes.content_type,
    });
    let page = Page { objects: objects.collect(), next: next.flatten() };
    seen.outcome = Outcome::Origin;
    Ok(json(StatusCode::OK, &page, Some(seen)))
}
