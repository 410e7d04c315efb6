//! How HTTP is spoken: headers, requests, the names of the host, and HTTP/2.

use std::path::PathBuf;

use serde::Serialize;

use super::header::Header;
use super::requests::HttpRequest;

/// Streams in progress on a connection of HTTP/2 by default. Servers commonly allow 100 to 250.
pub const STREAMS: usize = 100;

/// The part of a plan that only HTTP has. The default is plain reads and writes of keys by HTTP/1.1.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HttpSettings {
    /// Headers of all requests, those of a fill included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Header>,
    /// The requests that are sent in the place of reads and writes of keys; those if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<HttpRequest>,
    /// The file that lists the requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_file: Option<PathBuf>,
    /// The value of `Host` (and `:authority`); host and port of the URL if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The name that TLS asks for (SNI) and that the certificate must have; that of the URL if
    /// `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Speak HTTP/2: chosen by ALPN with TLS, with prior knowledge without.
    pub http2: bool,
    /// HTTP/2: the most requests in progress on a connection.
    pub streams: usize,
}

impl Default for HttpSettings {
    fn default() -> Self {
        HttpSettings {
            headers: Vec::new(),
            requests: Vec::new(),
            requests_file: None,
            host: None,
            server_name: None,
            http2: false,
            streams: STREAMS,
        }
    }
}

impl HttpSettings {
    /// Whether anything differs from the default.
    pub fn is_used(&self) -> bool {
        *self != HttpSettings::default()
    }

    /// A message for each mistake.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(host) = &self.host
            && !is_authority(host)
        {
            found.push(format!(
                "invalid host `{}`: NAME or NAME:PORT expected",
                host.escape_debug()
            ));
        }
        if !(1..=10_000).contains(&self.streams) {
            found.push(format!("{} streams a connection: 1 to 10,000 expected", self.streams));
        }
        for (at, request) in self.requests.iter().enumerate() {
            found.extend(request.mistake().map(|why| format!("request {}: {why}", at + 1)));
        }
        let weight: f64 = self.requests.iter().map(|request| request.weight).sum();
        if !self.requests.is_empty() && weight <= 0.0 {
            found.push("all weights are 0: nothing would be sent".to_owned());
        }
        found
    }
}

/// Whether a text can be the value of `Host`.
pub(super) fn is_authority(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~:[]%".contains(&b);
    !text.is_empty() && text.len() <= 1024 && text.bytes().all(plain)
}
