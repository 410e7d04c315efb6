//! The serving process: sockets, the engine behind them, and what is observed.
//!
//! A process is a node, a gateway, or both; each has its own `front::Front`: address, threads and
//! connections.

mod announce;
mod components;
#[doc(hidden)]
pub mod fuzzing;
mod middleware;
mod monitor;
mod server;

pub use announce::announce;
pub use server::Server;
