//! What the log says of nodes that fail and answer again.

use engine::route::{NodeId, Outage};
use ground::outage::{OutageLine, OutageStart};
use ground::window::Nanos;

/// What is to be logged of a node.
#[derive(Debug, PartialEq)]
pub enum OutageNews {
    /// It failed for this reason.
    Failed(String, OutageStart),
    /// It answers again after so many seconds.
    Answers(f64),
}

/// What the log says of one node.
#[derive(Clone, Default)]
struct NodeLine {
    outage: OutageLine,
    /// How often it had failed at the last look.
    failures: u64,
    /// Why the last attempt or ping that failed did.
    reason: Option<String>,
}

/// The log of all nodes' outages.
#[derive(Default)]
pub struct OutageLog(Vec<NodeLine>);

impl OutageLog {
    /// Makes room for further nodes.
    pub fn grow(&mut self, nodes: usize) {
        if self.0.len() < nodes {
            self.0.resize(nodes, NodeLine::default());
        }
    }

    /// Notes why an attempt or a ping failed.
    pub fn note(&mut self, node: NodeId, reason: String) {
        self.grow(node + 1);
        if let Some(line) = self.0.get_mut(node) {
            line.reason = Some(reason);
        }
    }

    /// Why a node that does not answer failed.
    pub fn reason(&self, node: NodeId) -> String {
        let reason = self.0.get(node).and_then(|line| line.reason.clone());
        reason.unwrap_or_else(|| "no reply within the time limit".to_owned())
    }

    /// What is to be logged now; `outages` has one for each node, `None` for one that is no member any more.
    pub fn look(
        &mut self,
        now: Nanos,
        outages: impl Iterator<Item = Option<Outage>>,
    ) -> Vec<(NodeId, OutageNews)> {
        let mut news = Vec::new();
        for (node, outage) in outages.enumerate() {
            self.grow(node + 1);
            let Some(outage) = outage else {
                // Whoever left does not return, or is new then.
                if let Some(line) = self.0.get_mut(node) {
                    line.outage = OutageLine::default();
                }
                continue;
            };
            let reason = || self.reason(node);
            let reason = (!outage.is_up).then(reason);
            let Some(line) = self.0.get_mut(node) else { continue };
            let failed = outage.failures > line.failures;
            line.failures = outage.failures;
            // One that goes on may be due for its line since another came before it.
            let goes_on = line.outage.is_out() && !outage.is_up;
            if (failed || goes_on)
                && let Some(start) = line.outage.fail(now)
            {
                let reason = reason.or_else(|| line.reason.clone()).unwrap_or_default();
                news.push((node, OutageNews::Failed(reason, start)));
            }
            if outage.is_up && line.outage.is_out() {
                let ended = line.outage.answer(now, now);
                news.extend(ended.map(|seconds| (node, OutageNews::Answers(seconds))));
                line.reason = None;
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use ground::window::SECOND;

    use super::*;

    #[test]
    fn an_outage_between_two_looks_is_told_too() {
        let mut log = OutageLog::default();
        let outage = |is_up, failures| [None, Some(Outage { is_up, failures })].into_iter();
        assert_eq!(log.look(0, outage(true, 0)), []);
        log.note(1, "connection refused".to_owned());
        let news = log.look(SECOND, outage(false, 1));
        let start = OutageStart { ago: 0, left_out: 0 };
        assert_eq!(news, [(1, OutageNews::Failed("connection refused".to_owned(), start))]);
        assert_eq!(log.look(2 * SECOND, outage(false, 1)), []);
        assert_eq!(log.look(3 * SECOND, outage(true, 1)), [(1, OutageNews::Answers(2.0))]);
        // It failed and answered again between two looks.
        let news = log.look(20 * SECOND, outage(true, 2));
        assert!(
            matches!(&news[..], [(1, OutageNews::Failed(..)), (1, OutageNews::Answers(_))]),
            "{news:?}"
        );
        // Whoever has left is not told of.
        let _ = log.look(40 * SECOND, outage(false, 3));
        assert_eq!(log.look(41 * SECOND, [None, None].into_iter()), []);
        assert_eq!(log.look(42 * SECOND, outage(true, 3)), []);
    }
}
