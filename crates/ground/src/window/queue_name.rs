//! [`QueueName`]: the names of the queues that write windows.

use std::fmt;

/// The name of a queue in [`super::Window::queue`], in run folders and in the `queue` label of
/// metrics.
///
/// [`fmt::Display`] writes a name and [`QueueName::parse`] reads it; each undoes the other. The
/// text is part of the format of run folders and of metrics, so it never changes. A simulated
/// cluster writes the windows of all its members into one folder and puts the member's name and a
/// slash before each name; such a compound name is not a `QueueName`.
///
/// | name | queue | recorded by |
/// |---|---|---|
/// | `load` | requests of the load generator, from the intended send time | `concertina load` |
/// | `fill` | requests of the load generator that store objects before a load | `concertina load` |
/// | `gateway` | requests of clients, up to the end of each reply | the process that clients talk to |
/// | `routing` | requests of clients, as the gateway's engine sees them | a gateway |
/// | `gateway/NODE` | requests that a gateway sent to one node, up to the head of the reply | a gateway |
/// | `node` | requests as the node's engine sees them | a node |
/// | `node/http` | requests that a node received over HTTP, in one process with a gateway | a node |
/// | `origin` | requests to the origin | a node |
/// | `peers` | requests to other nodes | a node of a cluster |
/// | `device/ID` | reads of one device | a node, `concertina import` |
/// | `shard/DATASET/PART` | queries of one shard | a node that serves datasets |
/// | `pool/POOL` | requests for the keys of a pool of memcached servers | a proxy |
/// | `pool/POOL/SERVER` | requests that a proxy sent to one server of a pool | a proxy |
///
/// ```
/// use ground::window::QueueName;
/// assert_eq!(QueueName::parse("device/0"), Some(QueueName::Device("0")));
/// assert_eq!(QueueName::Device("0").to_string(), "device/0");
/// assert_eq!(QueueName::parse("disk"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum QueueName<'a> {
    /// The load generator.
    Load,
    /// The load generator while it stores objects, before a load.
    Fill,
    /// The requests of clients at the process that they talk to: a gateway, or a node without one.
    Gateway,
    /// The gateway's engine.
    Routing,
    /// The requests of a gateway to the node of this name.
    GatewayNode(&'a str),
    /// The node's engine.
    Node,
    /// The HTTP side of a node in one process with a gateway.
    NodeHttp,
    /// The requests of a node to the origin.
    Origin,
    /// The requests of a node to other nodes.
    Peers,
    /// The device with this identifier, a number wherever Concertina itself names devices.
    Device(&'a str),
    /// A shard of a dataset.
    Shard {
        /// The name of the dataset. It holds no slash.
        dataset: &'a str,
        /// The name of the shard within the dataset.
        part: &'a str,
    },
    /// The requests for a pool of memcached servers. The pool's name holds no slash.
    Pool(&'a str),
    /// The requests sent to one server of a pool.
    PoolServer {
        /// The name of the pool. It holds no slash.
        pool: &'a str,
        /// The name of the server.
        server: &'a str,
    },
}

impl<'a> QueueName<'a> {
    /// The queues of whole requests, from the one nearest to the clients inwards.
    pub const REQUESTS: [QueueName<'static>; 3] =
        [QueueName::Load, QueueName::Gateway, QueueName::Node];

    /// Whether `name` is the queue of a shard, which seals and compactions make and remove, each with a number that is never used again.
    ///
    /// ```
    /// use ground::window::QueueName;
    /// assert!(QueueName::is_shard("shard/packages/000001") && !QueueName::is_shard("device/0"));
    /// ```
    pub fn is_shard(name: &str) -> bool {
        matches!(QueueName::parse(name), Some(QueueName::Shard { .. }))
    }

    /// The queue that `name` names; `None` for any other text, and for an empty identifier
    /// (`device/`).
    pub fn parse(name: &'a str) -> Option<Self> {
        let filled = |text: &'a str| (!text.is_empty()).then_some(text);
        Some(match name {
            "load" => QueueName::Load,
            "fill" => QueueName::Fill,
            "gateway" => QueueName::Gateway,
            "routing" => QueueName::Routing,
            "node" => QueueName::Node,
            "node/http" => QueueName::NodeHttp,
            "origin" => QueueName::Origin,
            "peers" => QueueName::Peers,
            _ => match name.split_once('/')? {
                ("gateway", node) => QueueName::GatewayNode(filled(node)?),
                ("device", id) => QueueName::Device(filled(id)?),
                ("shard", rest) => {
                    let (dataset, part) = rest.split_once('/')?;
                    QueueName::Shard { dataset: filled(dataset)?, part: filled(part)? }
                }
                ("pool", rest) => match rest.split_once('/') {
                    None => QueueName::Pool(filled(rest)?),
                    Some((pool, server)) => {
                        QueueName::PoolServer { pool: filled(pool)?, server: filled(server)? }
                    }
                },
                _ => return None,
            },
        })
    }

    /// The name of device number `number`: `device/0` for 0.
    pub fn of_device(number: usize) -> String {
        QueueName::Device(&number.to_string()).to_string()
    }

    /// Whether this is the queue of a device.
    pub fn is_device(self) -> bool {
        matches!(self, QueueName::Device(_))
    }
}

impl fmt::Display for QueueName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueName::Load => f.write_str("load"),
            QueueName::Fill => f.write_str("fill"),
            QueueName::Gateway => f.write_str("gateway"),
            QueueName::Routing => f.write_str("routing"),
            QueueName::GatewayNode(node) => write!(f, "gateway/{node}"),
            QueueName::Node => f.write_str("node"),
            QueueName::NodeHttp => f.write_str("node/http"),
            QueueName::Origin => f.write_str("origin"),
            QueueName::Peers => f.write_str("peers"),
            QueueName::Device(id) => write!(f, "device/{id}"),
            QueueName::Shard { dataset, part } => write!(f, "shard/{dataset}/{part}"),
            QueueName::Pool(pool) => write!(f, "pool/{pool}"),
            QueueName::PoolServer { pool, server } => write!(f, "pool/{pool}/{server}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::QueueName;

    /// The texts are a format: run folders and dashboards of earlier versions have them.
    #[test]
    fn names_are_those_of_the_format() {
        for (queue, text) in [
            (QueueName::Load, "load"),
            (QueueName::Fill, "fill"),
            (QueueName::Gateway, "gateway"),
            (QueueName::Routing, "routing"),
            (QueueName::GatewayNode("b"), "gateway/b"),
            (QueueName::Node, "node"),
            (QueueName::NodeHttp, "node/http"),
            (QueueName::Origin, "origin"),
            (QueueName::Peers, "peers"),
            (QueueName::Device("12"), "device/12"),
            (QueueName::Shard { dataset: "a", part: "000001" }, "shard/a/000001"),
            (QueueName::Pool("users"), "pool/users"),
            (
                QueueName::PoolServer { pool: "users", server: "10.0.0.1:11211" },
                "pool/users/10.0.0.1:11211",
            ),
        ] {
            assert_eq!(queue.to_string(), text);
            assert_eq!(QueueName::parse(text), Some(queue));
            assert_eq!(queue.is_device(), text.starts_with("device/"));
        }
        assert_eq!(QueueName::of_device(12), "device/12");
    }

    #[test]
    fn other_texts_name_no_queue() {
        for text in [
            "",
            "Load",
            "load ",
            "device",
            "device/",
            "gateway/",
            "shard/a",
            "shard/a/",
            "shard//1",
            "pool",
            "pool/",
            "pool/a/",
            "pool//1",
            "node/x",
            "a/node",
            "a/device/0",
        ] {
            assert_eq!(QueueName::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_name_that_parses_is_printed_as_it_was(
            text in "(load|fill|gateway|node|device|shard|pool|origin|x)?(/[a-z0-9/]{0,4}){0,3}",
        ) {
            if let Some(queue) = QueueName::parse(&text) {
                prop_assert_eq!(queue.to_string(), text);
            }
        }
    }
}
