//! The role of a process.

use serde::{Deserialize, Serialize};

/// The role of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A node; with members a gateway too.
    #[default]
    All,
    /// Only a gateway.
    Gateway,
    /// Only a node.
    Node,
    /// Only a proxy for memcached's protocol.
    Proxy,
}

impl Role {
    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::All => "all",
            Role::Gateway => "gateway",
            Role::Node => "node",
            Role::Proxy => "proxy",
        }
    }
}
