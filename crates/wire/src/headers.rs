//! Concertina's own headers, between its processes and towards clients (docs/cluster.md).

use http::HeaderName;

/// Version of the protocol between the processes of a cluster.
pub const PROTOCOL_VERSION: &str = "1";

/// The sender's [`PROTOCOL_VERSION`], on every request between processes.
pub static PROTOCOL: HeaderName = HeaderName::from_static("concertina-protocol");
/// `Ring::fingerprint` as 16 hexadecimal digits, on every request between processes.
pub static RING: HeaderName = HeaderName::from_static("concertina-ring");
/// A hash of the members' names and addresses, on requests between nodes.
pub static MEMBERS: HeaderName = HeaderName::from_static("concertina-members");
/// A hash of a node's origin (that it is a folder, or its bucket and prefix), on requests between
/// nodes.
pub static ORIGIN: HeaderName = HeaderName::from_static("concertina-origin");
/// The identity of the origin that a process serves, on requests between processes and on replies to pings, once it is
/// known.
pub static ORIGIN_ID: HeaderName = HeaderName::from_static("concertina-origin-id");
/// The sender: a member's name, or `gateway`.
pub static FROM: HeaderName = HeaderName::from_static("concertina-from");
/// A member that could not serve the object to the gateway; the receiver should not ask it.
pub static AVOID: HeaderName = HeaderName::from_static("concertina-avoid");
/// Milliseconds left for the reply.
pub static DEADLINE_MS: HeaderName = HeaderName::from_static("concertina-deadline-ms");
/// Time after which a write must not begin, in nanoseconds on the receiving node's clock.
pub static NOT_AFTER_NS: HeaderName = HeaderName::from_static("concertina-not-after-ns");
/// Of a write: the epoch of the view by which the gateway chose the node, with members in etcd. Of a request for a lease: that
/// of the node's view.
pub static EPOCH: HeaderName = HeaderName::from_static("concertina-epoch");
/// Of a write: the SHA-256 that the body will have, in hexadecimal digits. The gateway breaks the body off if it has another.
pub static SHA256: HeaderName = HeaderName::from_static("concertina-sha256");
/// A reading of the node's clock, in nanoseconds. Meaningful only relative to other readings of the
/// same clock.
pub static CLOCK_NS: HeaderName = HeaderName::from_static("concertina-clock-ns");
/// On a gateway's ping: the version of the node's directory of hot keys that the gateway has. The reply
/// has the directory as its body if it has another one.
pub static HOT_VERSION: HeaderName = HeaderName::from_static("concertina-hot-version");
/// Present if a node requests an object to keep a copy of it.
pub static FILL: HeaderName = HeaderName::from_static("concertina-fill");
/// Nanoseconds since the object was last compared with the origin.
pub static AGE_NS: HeaderName = HeaderName::from_static("concertina-age-ns");
/// What served the request: memory, a device, a shard, the origin, …
pub static OUTCOME: HeaderName = HeaderName::from_static("concertina-outcome");
/// Length of the queue that served the request.
pub static QUEUE_LENGTH: HeaderName = HeaderName::from_static("concertina-queue-length");
/// Number of requests waiting in the node.
pub static NODE_LENGTH: HeaderName = HeaderName::from_static("concertina-node-length");
/// Answer to a ping: nanoseconds that a read takes for each request in the node, itself included.
pub static RESPONSE_PER_LENGTH_NS: HeaderName =
    HeaderName::from_static("concertina-response-per-length-ns");
/// Which of the key's nodes have the object: a bit mask by their places in the key's order.
pub static WARM: HeaderName = HeaderName::from_static("concertina-warm");
/// Name of the full queue that refused the request.
pub static BUSY: HeaderName = HeaderName::from_static("concertina-busy");
/// On a reply that no repetition would better: what the origin has, `denied` or `damaged`.
pub static FAILURE: HeaderName = HeaderName::from_static("concertina-failure");
/// Duration of a lease, in nanoseconds.
pub static TERM_NS: HeaderName = HeaderName::from_static("concertina-term-ns");
/// Request for a part of a dataset: etag of the manifest that the gateway knows.
pub static VIEW: HeaderName = HeaderName::from_static("concertina-view");
/// Request for a part of a dataset: number of the log's last chunk that the gateway knows.
pub static CHUNK: HeaderName = HeaderName::from_static("concertina-chunk");
/// Piece of an export: id of the first record of the next piece.
pub static NEXT: HeaderName = HeaderName::from_static("concertina-next");
/// Piece of an export: number of records in the piece.
pub static RECORDS: HeaderName = HeaderName::from_static("concertina-records");
/// Piece of an export: id that the next appended record will get.
pub static END: HeaderName = HeaderName::from_static("concertina-end");
/// Piece of an export: id of the dataset, which changes when the dataset is replaced.
pub static DATASET: HeaderName = HeaderName::from_static("concertina-dataset");
/// On a gateway's reply: the name of the node that replied, or `origin`.
pub static NODE: HeaderName = HeaderName::from_static("concertina-node");
/// Requests the times of the stages of a request; the reply has them in the same header.
pub static STAGES: HeaderName = HeaderName::from_static("concertina-stages");
/// On a gateway's reply: the stage times in the node.
pub static NODE_STAGES: HeaderName = HeaderName::from_static("concertina-node-stages");
