//! What the nodes of a cluster say of themselves: `GET /cluster/about` of each, and `GET /admin/members` of a gateway or a
//! node, which asks all that live.

use std::time::Duration;

use engine::node::Warmed;
use engine::route::NodeId;
use futures_util::future::join_all;
use ground::origin::OriginId;
use http::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::Roll;
use membership::Members;
use peer::{Fault, Outgoing};
use wire::body::ReplyBody;
use wire::problem::json;

/// How long a node may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum bytes of what a node says.
pub const BYTES_MAX: usize = 4 << 10;
/// Maximum characters of a version that are shown.
const VERSION_MAX: usize = 64;

/// What a node says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The version of Concertina that it runs.
    pub version: String,
    /// The view that it follows; 0 with static members.
    pub epoch: u64,
    /// What it offered to nodes that were new to their keys.
    #[serde(default)]
    pub warmed: Warmed,
    /// The identity of its origin, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginId>,
}

impl About {
    /// What this process says.
    pub fn of(known: &Members, warmed: Option<Warmed>, origin: Option<OriginId>) -> About {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        About { version, epoch: known.epoch, warmed: warmed.unwrap_or_default(), origin }
    }

    /// Reads a node's reply.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(status: StatusCode, body: &[u8]) -> Result<About, String> {
        match status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                return Err("it runs an earlier version, which does not answer this".to_owned());
            }
            status => return Err(format!("it answers {status}")),
        }
        let mut about: About =
            serde_json::from_slice(body).map_err(|error| format!("malformed: {error}"))?;
        about.version.retain(|c| c.is_ascii_graphic());
        about.version.truncate(VERSION_MAX);
        Ok(about)
    }
}

/// A member, and what it says.
#[derive(Serialize)]
struct Member<'a> {
    name: &'a str,
    #[serde(flatten)]
    about: Option<About>,
    /// Why nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

async fn ask(roll: &Roll, node: NodeId) -> Result<About, String> {
    let pool = roll.pool(node).ok_or("it is not known")?;
    let asked = async {
        let reply = pool.send(&Method::GET, "/cluster/about", &[], Outgoing::Empty).await?;
        Ok((reply.status, reply.body.gather(BYTES_MAX).await?))
    };
    let asked: Result<Result<_, Fault>, _> = tokio::time::timeout(PATIENCE, asked).await;
    let late = |_| format!("it does not answer within {} s", PATIENCE.as_secs());
    let (status, body) = asked.map_err(late)?.map_err(|fault| fault.to_string())?;
    About::parse(status, &body)
}

/// Replies with what all members that live say; `own` is this process's number and what it says itself. Takes as long as the
/// slowest, a second at most.
pub async fn members(
    roll: &Roll,
    known: &Members,
    own: Option<(NodeId, About)>,
) -> Response<ReplyBody> {
    let member = async |node: NodeId| {
        let about = match &own {
            Some((me, about)) if *me == node => Ok(about.clone()),
            _ => ask(roll, node).await,
        };
        let name = roll.name(node);
        match about {
            Ok(about) => Member { name, about: Some(about), error: None },
            Err(error) => Member { name, about: None, error: Some(error) },
        }
    };
    let live = (0..known.live.len()).filter(|&node| known.live[node]);
    json(StatusCode::OK, &join_all(live.map(member)).await, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_nodes_say() {
        let said = br#"{"version":"0.2.0\n","epoch":7,"more":1}"#;
        let about = About::parse(StatusCode::OK, said).unwrap();
        assert_eq!((about.version.as_str(), about.epoch), ("0.2.0", 7));
        assert_eq!(about.warmed, Warmed::default());
        let long = format!(r#"{{"version":"{}","epoch":0}}"#, "9".repeat(500));
        let about = About::parse(StatusCode::OK, long.as_bytes()).unwrap();
        assert_eq!(about.version.len(), VERSION_MAX);
        let refused = |status, body: &[u8]| About::parse(status, body).unwrap_err();
        assert!(refused(StatusCode::NOT_FOUND, b"").contains("an earlier version"));
        assert!(refused(StatusCode::CONFLICT, b"").contains("409"));
        assert!(refused(StatusCode::OK, br#"{"epoch":-1}"#).contains("malformed"));
    }
}
