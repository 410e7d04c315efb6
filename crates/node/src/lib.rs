//! A node: what `engine::node` decides, done on threads, devices, the origin and the connections to other nodes.

mod admin;
mod controls;
pub mod drive;
mod error;
pub mod events;
pub mod handover;
mod node_reads;
mod node_store;
pub mod peers;
mod reads;
mod routes;
pub mod settings;
mod state;
mod tiers;
mod writes;

pub use error::Error;
pub use state::Node;
