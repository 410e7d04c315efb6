//! Copies of shards that this node holds beside those of the ring, because gateways lease them
//! ([`engine::act::replicas`]).
//!
//! A gateway asks what the node's shards have to do (`GET /cluster/shards`), and leases or returns a copy (`POST
//! /cluster/shards/lease`, `…/return`). The node fetches the shard as it does its own and then serves it. The bytes of copies count
//! against the budget of the layers: a copy for which that has no room is refused. What nobody leases any more, and what a smaller budget
//! has no room for, is given up.

use std::sync::Arc;
use std::time::Duration;

use engine::dataset::Event;
use ground::window::{Nanos, key_hash};
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::ask::{pairs, part_of, text};
use super::datasets::Datasets;
use super::error::{Error, Result};
use super::leases::lock;
pub use super::leases::{Copies, Lease};
use super::problem::{bad, no_dataset, unavailable};
use super::served::Served;
use super::view::View;
use dataset::remote::key_of_file;
use record::clock;
use wire::problem::HttpResult;
use wire::problem::{Problem, json as json_reply};

/// Where a node tells of its shards, and takes leases below.
pub const PATH: &str = "/cluster/shards";
/// Shards with a shorter average queue are not told of, unless they are leased: no decision needs them.
const LENGTH_TOLD: f64 = 0.25;
/// The most shards that are told of, those with the longest queues first.
const TOLD_MAX: usize = 1024;
/// Time between two looks for leases that have ended.
const LOOK: Duration = Duration::from_secs(1);

/// What a node tells of its shards.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ShardsTold {
    /// Requests that wait in the queues of all of them.
    pub length: f64,
    /// Bytes that are left for copies.
    pub room_bytes: u64,
    /// Those that requests wait for, and those that are leased.
    pub shards: Vec<ShardTold>,
}

/// What a node tells of a shard that it serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardTold {
    /// The dataset.
    pub dataset: String,
    /// The dataset's id, which another dataset of this name does not have.
    pub id: String,
    /// The shard's file.
    pub file: String,
    /// Its bytes.
    pub bytes: u64,
    /// Average length of its queue.
    pub length: f64,
    /// Whether it can be given a further layer, or is being given one.
    pub can_grow: bool,
}

/// A request for a lease, or to end it.
struct LeaseRequest {
    dataset: String,
    file: String,
    by: u64,
    lease: Nanos,
}

impl LeaseRequest {
    fn parse(query: &str) -> Result<LeaseRequest> {
        let mut asked =
            LeaseRequest { dataset: String::new(), file: String::new(), by: 0, lease: 0 };
        for (name, value) in pairs(query) {
            let value = text(&name, &value)?;
            let number = || {
                let parsed = value.parse::<u64>();
                parsed.map_err(|_| {
                    Error::Parameter(format!("{name} must be a whole number, not {value:?}"))
                })
            };
            match name.as_str() {
                "dataset" => asked.dataset = value.to_owned(),
                "file" => asked.file = value.to_owned(),
                "by" => asked.by = number()?,
                "seconds" => asked.lease = number()?.saturating_mul(1_000_000_000),
                _ => {
                    return Err(Error::Parameter(format!(
                        "unknown parameter {name:?}; there are dataset, file, by, seconds"
                    )));
                }
            }
        }
        Ok(asked)
    }
}

impl Datasets {
    /// Serves a gateway's request below [`PATH`].
    pub async fn copies_asked(
        self: &Arc<Self>,
        method: &Method,
        path: &str,
        query: &str,
    ) -> HttpResult {
        match (method, path) {
            (&Method::GET, "") => Ok(json_reply(StatusCode::OK, &self.shards_told(), None)),
            (&Method::POST, "/lease") => {
                self.lease(&LeaseRequest::parse(query).map_err(|error| bad(&error))?).await
            }
            (&Method::POST, "/return") => {
                let asked = LeaseRequest::parse(query).map_err(|error| bad(&error))?;
                let served = self.all().into_iter().find(|served| served.name() == asked.dataset);
                if let Some(view) = served.and_then(|served| served.view()) {
                    let key = key_of_file(&asked.dataset, &view.current.manifest.id, &asked.file);
                    lock(&self.copies.leases).release(key_hash(&key), asked.by);
                }
                Ok(json_reply(StatusCode::OK, &serde_json::json!({}), None))
            }
            _ => Err(Problem::nothing_here()),
        }
    }

    fn shards_told(&self) -> ShardsTold {
        let mut told = ShardsTold { room_bytes: self.layers.room_bytes(), ..ShardsTold::default() };
        for served in self.all() {
            let Some(view) = served.view() else { continue };
            let id = &view.current.manifest.id;
            for part in view.dataset.parts() {
                let file = &part.entry().file;
                let Some(station) = view.stations.get(part_of(file)) else { continue };
                let length = self.layers.average(station).unwrap_or(0.0);
                told.length += length;
                let leased = self.copies.holds(key_hash(&key_of_file(served.name(), id, file)));
                if length > LENGTH_TOLD || leased {
                    told.shards.push(ShardTold {
                        dataset: served.name().to_owned(),
                        id: id.clone(),
                        file: file.clone(),
                        bytes: part.entry().file_bytes,
                        length,
                        can_grow: self.layers.can_grow(station),
                    });
                }
            }
        }
        told.shards.sort_by(|a, b| b.length.total_cmp(&a.length));
        told.shards.truncate(TOLD_MAX);
        told
    }

    /// Leases a copy to a gateway. 507 if the budget of the layers has no room.
    async fn lease(self: &Arc<Self>, asked: &LeaseRequest) -> HttpResult {
        let served = self.find(&asked.dataset).await;
        let served = served.map_err(|error| unavailable(&error))?;
        let view = served.as_ref().and_then(|served| served.view());
        let (Some(served), Some(view)) = (served, view) else {
            return Err(no_dataset(&asked.dataset));
        };
        let manifest = &view.current.manifest;
        let entry = manifest.shards.iter().find(|entry| entry.file == asked.file);
        let Some(entry) = entry else {
            let what = format!("dataset {} has no shard {}", asked.dataset, asked.file);
            return Err(Problem::new(StatusCode::NOT_FOUND, &what));
        };
        let key = key_of_file(&asked.dataset, &manifest.id, &asked.file);
        let lease = Lease {
            shard: key_hash(&key),
            dataset: asked.dataset.clone(),
            file: asked.file.clone(),
            by: asked.by,
            bytes: entry.file_bytes,
            lasts: asked.lease,
        };
        let granted = self.layers.lease(&self.copies, clock::now(), lease);
        let Some(new) = granted else {
            let what = format!(
                "no room for a copy of {}, {} bytes, in what layers may take here",
                asked.file, entry.file_bytes
            );
            return Err(Problem::new(StatusCode::INSUFFICIENT_STORAGE, &what));
        };
        if new {
            info!("dataset {}: {} is leased: copying it", asked.dataset, asked.file);
            tokio::spawn(async move {
                if let Err(error) = served.moved().await {
                    warn!("{}", ground::with_causes(&error));
                }
            });
        }
        Ok(json_reply(StatusCode::OK, &serde_json::json!({ "new": new }), None))
    }

    /// Gives up copies that are not leased any more; never returns.
    pub async fn keep_copies(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let most = self.layers.copies_bytes_max();
            for (name, file) in self.copies.expire(clock::now(), most) {
                info!("dataset {name}: the copy of {file} is given up");
                let Some(served) = self.all().into_iter().find(|served| served.name() == name)
                else {
                    continue;
                };
                match served.moved().await {
                    Ok(()) => {
                        let (served, file) = (served.clone(), file.clone());
                        tokio::task::spawn_blocking(move || served.remove_copy(&file));
                    }
                    Err(error) => warn!("{}", ground::with_causes(&error)),
                }
            }
        }
    }
}

impl Served {
    /// Opens the shards that this process holds now.
    ///
    /// # Errors
    ///
    /// Those of [`refresh`](Self::refresh).
    pub async fn moved(self: &Arc<Self>) -> Result<()> {
        self.want_view(|token| Event::Moved { token }).await
    }

    /// Whether a shard of the view is to be here and is not: this process has become one of its nodes.
    pub fn lacks_some(&self, view: &View) -> bool {
        let manifest = &view.current.manifest;
        let mine =
            |file: &str| (self.common.is_mine)(&key_of_file(self.name(), &manifest.id, file));
        let files = manifest.shards.iter().map(|entry| entry.file.as_str());
        files.filter(|file| view.part(part_of(file)).is_none()).any(mine)
    }

    /// Removes the file of a shard that this process does not hold.
    fn remove_copy(&self, file: &str) {
        let Some(view) = self.view() else { return };
        let id = &view.current.manifest.id;
        if !(self.common.is_mine)(&key_of_file(self.name(), id, file))
            && let Some(folder) = self.copy_folder(id)
        {
            // What cannot be removed now, `sweep` removes later.
            let _ = folder.remove(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_a_lease_is_read() {
        let asked = LeaseRequest::parse("dataset=a%20b&file=000001.shard&by=7&seconds=60").unwrap();
        assert_eq!((asked.dataset.as_str(), asked.file.as_str()), ("a b", "000001.shard"));
        assert_eq!((asked.by, asked.lease), (7, 60_000_000_000));
        for (query, what) in [("by=x", "whole number"), ("who=1", "unknown"), ("file=%ff", "UTF-8")]
        {
            let error = LeaseRequest::parse(query).err().unwrap().to_string();
            assert!(error.contains(what), "{query}: {error}");
        }
    }
}
