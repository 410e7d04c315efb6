//! The section of the membership: where the list of nodes comes from.

use std::path::PathBuf;

use origin::{Checks, section};
use serde::{Deserialize, Serialize};

use super::sections::Class;

/// Where the list of nodes comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Listed {
    /// The `[[member]]`s of the configuration.
    #[default]
    Static,
    /// etcd.
    Etcd,
}

section! {
    /// Where the list of nodes comes from: the [[member]]s of this file, or etcd, where nodes join, are
    /// lost and leave while the others serve (docs/cluster.md).
    pub struct Membership {
        /// "static" (the [[member]]s) or "etcd".
        pub kind: Listed = Listed::Static,
        /// The etcd servers, for instance ["http://10.0.0.1:2379"]; the first that answers is asked.
        pub endpoints: Vec<String> = Vec::new(),
        /// What the names of this cluster's keys in etcd begin with: clusters with different prefixes know
        /// nothing of each other.
        pub prefix: String = "/concertina".to_owned(),
        /// Address and port on which this node listens for gateways and the other nodes. Unset on a gateway.
        pub address: Option<String> = None,
        /// This node's share of the keys in proportion to the other weights.
        pub weight: f64 = 1.0,
        /// "bulk": this node has keys. "hot": it is a hot node, which has none and holds copies of those
        /// that are read most.
        pub class: Class = Class::Bulk,
        /// Seconds after which etcd forgets a node that does not renew; etcd rounds up to whole seconds. Nodes
        /// that do not answer the others are lost sooner: suspect_s.
        pub lease_s: f64 = 2.0,
        /// Seconds for which a node acts on what etcd last confirmed. A key that moves has no primary for this
        /// long and 1/16 of it, and a node without etcd orders no writes after it.
        pub valid_s: f64 = 0.5,
        /// Seconds without an answer after which a node is suspected; it is lost when more than half of those
        /// that watch it (at most five) suspect it.
        pub suspect_s: f64 = 0.6,
        /// Seconds that a process waits at its start for etcd, and a gateway for nodes, before it gives up.
        pub start_s: f64 = 30.0,
        /// File with the certificates, in PEM format, that etcd's certificate is checked against. Needed for
        /// https endpoints.
        pub tls_ca: Option<PathBuf> = None,
        /// File with the certificate, in PEM format, that etcd is shown.
        pub tls_certificate: Option<PathBuf> = None,
        /// File with its key, in PEM format.
        pub tls_key: Option<PathBuf> = None,
    }
}

impl Membership {
    /// Checks the address of one of etcd's servers.
    pub(super) fn check_endpoint(&self, endpoint: &str, checks: &mut Checks<'_>) {
        // The other messages, the log and the status would show it.
        if endpoint.contains('@') {
            let what = "must not contain a user or a password, which are not used: show etcd a certificate (tls_certificate)";
            checks.must(false, "endpoints", what);
            return;
        }
        let https = endpoint.starts_with("https://");
        let rest = endpoint.strip_prefix("http://").or(endpoint.strip_prefix("https://"));
        let rest = rest.map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let port = rest.and_then(|rest| rest.rsplit_once(':')).map(|(_, port)| port);
        checks.must(
            port.is_some_and(|port| port.parse::<u16>().is_ok()),
            "endpoints",
            format!("{endpoint:?} is not http://HOST:PORT or https://HOST:PORT"),
        );
        checks.must(
            !https || self.tls_ca.is_some(),
            "tls_ca",
            format!("is missing: {endpoint} shows a certificate that must be checked"),
        );
    }
}
