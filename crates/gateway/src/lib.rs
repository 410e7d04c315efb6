//! The gateway: relays clients' requests to nodes, as `engine::gateway` decides.
//!
//! [`router`] drives the engine for any [`backend`]; [`nodes`] is the back end for objects and
//! datasets. `gateway` is the store in front of it, and `routes` its paths.

mod admin;
mod attempts;
mod backend;
mod copies;
mod drive;
mod error;
mod gateway;
mod knobs;
mod layers;
mod nodes;
mod outages;
mod pending;
mod questions;
mod quick;
mod relay;
mod replies;
mod request;
mod router;
mod routes;
mod upload;
mod verify;

pub use copies::Picture;
pub use error::StartError;
pub use gateway::Gateway;
