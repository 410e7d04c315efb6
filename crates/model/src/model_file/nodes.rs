//! The nodes of a model, made once for several questions.
//!
//! A model has one node as fitted and one for each replicate. To make them, and their laws at one time, is most of the work of a
//! prediction, and neither depends on the load.

use crate::storage::{Node, NodeAt};

/// The node of a model as fitted, and those of its replicates.
#[derive(Clone, Debug)]
pub(crate) struct Nodes {
    pub node: Node,
    pub replicates: Vec<Node>,
}

/// The laws of these nodes at one time: for shares within it at several loads.
#[derive(Clone, Debug)]
pub(crate) struct NodesAt {
    pub t_s: f64,
    pub node: NodeAt,
    pub replicates: Vec<NodeAt>,
}

/// A load that servers share equally.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterLoad {
    /// On all of them, requests/s.
    pub rate: f64,
    pub servers: u32,
}

impl ClusterLoad {
    /// On one of them, requests/s.
    pub fn of_server(self) -> f64 {
        self.rate / f64::from(self.servers)
    }
}

impl Nodes {
    pub fn at_time(&self, t_s: f64) -> NodesAt {
        let node = self.node.at_time(t_s);
        let replicates = self.replicates.iter().map(|replicate| replicate.at_beside(&node));
        NodesAt { t_s, replicates: replicates.collect(), node }
    }
}
