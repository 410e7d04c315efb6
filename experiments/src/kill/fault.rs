//! What is done to the processes of the cluster, and to whom.

use std::fmt;

use serde::{Serialize, Serializer};

/// Who is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A node, by its number.
    Node(usize),
    /// A gateway, by its number.
    Gateway(usize),
    /// The origin.
    Origin,
    /// The machine that all run on, with the origin's disk.
    Machine,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Node(node) => write!(f, "node {node}"),
            Target::Gateway(gateway) => write!(f, "gateway {gateway}"),
            Target::Origin => f.write_str("origin"),
            Target::Machine => f.write_str("machine"),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// SIGKILL; later the node is started again, with its devices and without its memory.
    Kill,
    /// SIGSTOP; later SIGCONT.
    Pause,
    /// Its link is down; later up again.
    Cut,
    /// The folder is moved away; later back.
    Vanish,
    /// SIGTERM; later the node is started again, with its devices.
    Stop,
    /// SIGKILL; its device is emptied, and it is started again.
    Wipe,
    /// SIGKILL; bits all over its device are flipped, and it is started again.
    Flip,
    /// SIGKILL; the node is started again where its path of the origin is missing; later it is back.
    Unmounted,
    /// The same, and the path is an empty folder.
    Emptied,
    /// The same, and the path is another origin, with other objects of the same keys.
    Replaced,
    /// All processes end at once, and the disk of the origin loses what was not synced; later all are
    /// started again.
    Power,
}

impl Fault {
    /// Whether a node comes up with another origin than it had.
    pub fn is_of_view(self) -> bool {
        matches!(self, Fault::Unmounted | Fault::Emptied | Fault::Replaced)
    }
}
