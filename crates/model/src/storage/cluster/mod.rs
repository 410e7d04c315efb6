//! A cluster: servers behind gateways, each with its share of the requests. [`Cluster`] has the
//! formula.

mod change;
mod members;
mod server;

pub use change::Change;
pub use members::{Cluster, ClusterOperating, Member};
pub use server::{Server, Within};

#[cfg(test)]
mod tests;
