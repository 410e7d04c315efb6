//! What the nodes of a cluster say of themselves: `GET /cluster/about` of each, and `GET /admin/members` of a gateway or a
//! node, which asks all that live.

use std::time::Duration;

use engine::node::Warmed;
use engine::route::NodeId;
use engine::status::{MemberReport, NodeReport};
use futures_util::future::join_all;
use ground::origin::OriginId;
use http::{Method, Response, StatusCode};

use super::roll::Roll;
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

/// The report of this process.
pub fn report(known: &Members, warmed: Option<Warmed>, origin: Option<OriginId>) -> NodeReport {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    NodeReport { version, epoch: known.epoch, warmed: Some(warmed.unwrap_or_default()), origin }
}

/// Parses a node's reply.
///
/// # Errors
///
/// What is wrong with it.
pub fn parse_report(status: StatusCode, body: &[u8]) -> Result<NodeReport, String> {
    match status {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => {
            return Err("it runs an earlier version, which does not answer this".to_owned());
        }
        status => return Err(format!("it answers {status}")),
    }
    let mut report: NodeReport =
        serde_json::from_slice(body).map_err(|error| format!("malformed: {error}"))?;
    report.version.retain(|c| c.is_ascii_graphic());
    report.version.truncate(VERSION_MAX);
    Ok(report)
}

async fn ask(roll: &Roll, node: NodeId) -> Result<NodeReport, String> {
    let pool = roll.pool(node).ok_or("it is not known")?;
    let asked = async {
        let reply = pool.send(&Method::GET, "/cluster/about", &[], Outgoing::Empty).await?;
        Ok((reply.status, reply.body.gather(BYTES_MAX).await?))
    };
    let asked: Result<Result<_, Fault>, _> = tokio::time::timeout(PATIENCE, asked).await;
    let late = |_| format!("it does not answer within {} s", PATIENCE.as_secs());
    let (status, body) = asked.map_err(late)?.map_err(|fault| fault.to_string())?;
    parse_report(status, &body)
}

/// Replies with what all members that live say; `own` is this process's number and what it says itself. Takes as long as the
/// slowest, a second at most.
pub async fn members(
    roll: &Roll,
    known: &Members,
    own: Option<(NodeId, NodeReport)>,
) -> Response<ReplyBody> {
    let member = async |node: NodeId| {
        let report = match &own {
            Some((me, report)) if *me == node => Ok(report.clone()),
            _ => ask(roll, node).await,
        };
        let name = roll.name(node).to_owned();
        match report {
            Ok(report) => MemberReport { name, report: Some(report), error: None },
            Err(error) => MemberReport { name, report: None, error: Some(error) },
        }
    };
    let live = (0..known.live.len()).filter(|&node| known.live[node]);
    json(StatusCode::OK, &join_all(live.map(member)).await, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_nodes_are_parsed() {
        let reply = br#"{"version":"0.2.0\n","epoch":7,"more":1}"#;
        let report = parse_report(StatusCode::OK, reply).unwrap();
        assert_eq!((report.version.as_str(), report.epoch), ("0.2.0", 7));
        assert_eq!(report.warmed, None);
        let long = format!(r#"{{"version":"{}","epoch":0}}"#, "9".repeat(500));
        let report = parse_report(StatusCode::OK, long.as_bytes()).unwrap();
        assert_eq!(report.version.len(), VERSION_MAX);
        let refused = |status, body: &[u8]| parse_report(status, body).unwrap_err();
        assert!(refused(StatusCode::NOT_FOUND, b"").contains("an earlier version"));
        assert!(refused(StatusCode::CONFLICT, b"").contains("409"));
        assert!(refused(StatusCode::OK, br#"{"epoch":-1}"#).contains("malformed"));
    }
}
