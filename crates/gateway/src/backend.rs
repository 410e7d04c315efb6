//! The seam between a gateway's driver and the servers behind it.
//!
//! A [`Router`](super::router::Router) decides nothing and speaks no protocol: `engine::gateway`
//! decides which server a request goes to, a [`Backend`] sends it there. Nodes behind HTTP are one
//! back end ([`Nodes`](super::nodes::Nodes)).

use engine::gateway::{Failed, Head};
use engine::node::{FailureKind, HotDirectory};
use engine::route::{LoadReport, NodeId};
use ground::window::Nanos;

/// A server's reply, as far as the driver needs it.
pub trait Reply: Send {
    /// The facts that decisions are made from.
    fn head(&self) -> Head;
    /// Whether the whole body is here, so that nothing is left to relay.
    fn is_whole(&self) -> bool;
    /// The reason that an error reply gives.
    fn reason(&self) -> Option<String>;
    /// What kind of failure an error reply reports.
    fn failure_kind(&self) -> FailureKind;
}

/// The body of a write.
pub trait Body: Send {
    /// Whether some of it was sent and cannot be sent again.
    fn is_consumed(&self) -> bool;
}

/// An attempt that ended without a reply.
#[derive(Debug)]
pub struct Failure {
    /// What the engine needs to know of it.
    pub kind: Failed,
    /// The reason, with the server's name.
    pub reason: String,
}

/// Why a write has no reply.
pub enum NotSent<E> {
    /// The server failed.
    Failed(Failure),
    /// The client's body failed.
    Body(E),
}

/// The answer to a ping.
pub struct Pong {
    /// What it reports of its load.
    pub load: LoadReport,
    /// Why this gateway must not use the server; `None` if it may.
    pub misfit: Option<String>,
    /// Its directory of hot keys, if it has another version of it than the gateway.
    pub hot: Option<HotDirectory>,
}

/// The servers behind a gateway, by [`NodeId`].
pub trait Backend: Send + Sync + 'static {
    /// A client's request, as servers are sent it.
    type Request: Sync;
    /// A server's reply.
    type Reply: Reply;
    /// The body of a write.
    type Body: Body;
    /// Why a client's body failed.
    type BodyError: Send;

    /// The name of a server, for messages.
    fn name(&self, node: NodeId) -> &str;

    /// Sends a read to a server. The server is told to leave `avoid` alone, and that nobody waits
    /// after `deadline`.
    fn read(
        &self,
        node: NodeId,
        request: &Self::Request,
        avoid: Option<NodeId>,
        deadline: Nanos,
    ) -> impl Future<Output = Result<Self::Reply, Failure>> + Send;

    /// Reads from the origin, as a server would.
    fn read_origin(
        &self,
        request: &Self::Request,
    ) -> impl Future<Output = Result<Self::Reply, Failure>> + Send;

    /// Sends a write to a server. `left` is the time that the client still waits; `None` where only
    /// the pace of its upload is bounded. `epoch` is that of the view by which the server was chosen.
    fn write(
        &self,
        node: NodeId,
        request: &Self::Request,
        body: &mut Self::Body,
        left: Option<Nanos>,
        epoch: u64,
    ) -> impl Future<Output = Result<Self::Reply, NotSent<Self::BodyError>>> + Send;

    /// Asks a server whether it is well; the reason if it is not. `hot_version` is that of its directory of
    /// hot keys that this gateway has.
    fn ping(
        &self,
        node: NodeId,
        hot_version: u64,
    ) -> impl Future<Output = Result<Pong, String>> + Send;
}
