//! The headers that are Concertina's own, between its processes and to clients (docs/cluster.md).

use http::HeaderName;

/// Version of what the processes of a cluster say to each other.
pub const PROTOCOL_VERSION: &str = "1";

/// [`PROTOCOL_VERSION`], on every request between processes.
pub static PROTOCOL: HeaderName = HeaderName::from_static("concertina-protocol");
/// `Ring::fingerprint` as 16 hexadecimal digits, on every request between processes.
pub static RING: HeaderName = HeaderName::from_static("concertina-ring");
/// A hash of the members' names and addresses, on requests between nodes.
pub static MEMBERS: HeaderName = HeaderName::from_static("concertina-members");
/// A hash of what is behind a node (a folder, or which bucket and prefix), on requests between nodes.
pub static ORIGIN: HeaderName = HeaderName::from_static("concertina-origin");
/// Which member asks, or `gateway`.
pub static FROM: HeaderName = HeaderName::from_static("concertina-from");
/// A member that the gateway could not get the object from.
pub static AVOID: HeaderName = HeaderName::from_static("concertina-avoid");
/// Milliseconds that are left for an answer.
pub static DEADLINE_MS: HeaderName = HeaderName::from_static("concertina-deadline-ms");
/// When, on the clock of the node that it is sent to, a write is not to be begun any more.
pub static NOT_AFTER_NS: HeaderName = HeaderName::from_static("concertina-not-after-ns");
/// A node's clock, which tells nothing but how long ago its other readings were.
pub static CLOCK_NS: HeaderName = HeaderName::from_static("concertina-clock-ns");
/// A node asks for an object to keep a copy of it.
pub static FILL: HeaderName = HeaderName::from_static("concertina-fill");
/// Nanoseconds since the object was compared with the origin.
pub static AGE_NS: HeaderName = HeaderName::from_static("concertina-age-ns");
/// Who had the object.
pub static OUTCOME: HeaderName = HeaderName::from_static("concertina-outcome");
/// Length of the queue that served the request.
pub static QUEUE_LENGTH: HeaderName = HeaderName::from_static("concertina-queue-length");
/// Requests that wait in the node.
pub static NODE_LENGTH: HeaderName = HeaderName::from_static("concertina-node-length");
/// Which of the key's nodes have the object, as bits of their places.
pub static WARM: HeaderName = HeaderName::from_static("concertina-warm");
/// Which queue is full.
pub static BUSY: HeaderName = HeaderName::from_static("concertina-busy");
/// How long a lease lasts, nanoseconds.
pub static TERM_NS: HeaderName = HeaderName::from_static("concertina-term-ns");
/// Of a dataset: the etag of the manifest that a gateway knows.
pub static VIEW: HeaderName = HeaderName::from_static("concertina-view");
/// Of a dataset: the last chunk of the log that a gateway knows.
pub static CHUNK: HeaderName = HeaderName::from_static("concertina-chunk");
/// Of a piece of an export: the id that the next piece begins with.
pub static NEXT: HeaderName = HeaderName::from_static("concertina-next");
/// Of a piece of an export: how many records it has.
pub static RECORDS: HeaderName = HeaderName::from_static("concertina-records");
/// Of a piece of an export: the id that the next appended record gets.
pub static END: HeaderName = HeaderName::from_static("concertina-end");
/// Of a piece of an export: the id of the dataset, another one once it was replaced.
pub static DATASET: HeaderName = HeaderName::from_static("concertina-dataset");
