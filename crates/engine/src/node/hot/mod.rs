//! What is read often is held twice, in two ways that share nothing but their sketch of popularity:
//!
//! - The *hot class*, within a node with devices of both classes: a second copy on a hot device of what is read often from
//!   bulk devices. `class` decides by `class_state`, `copies` writes,
//!   `class_report` tells operators.
//! - *Hot keys*, within a cluster with hot nodes: copies of a primary's keys at nodes outside the key's replicas. `keys` decides
//!   how many for each key by `keys_state`, and makes the directory that gateways read; `keys_report` tells operators.

pub(super) mod class;
pub(super) mod class_report;
pub(super) mod class_state;
pub(super) mod copies;
pub(super) mod keys;
pub(super) mod keys_report;
pub(super) mod keys_state;
