//! `[origin]` of the configuration: how the origin is reached, and limits on its use.
// Explanations are printed as they are, where `<…>` would show.
#![allow(rustdoc::bare_urls)]

use std::fmt;
use std::path::PathBuf;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::section::{Checks, Secret};

/// A number of bytes, written as a number or as "64MiB".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Exactly, and with few digits: 4GB is also 3906250KiB.
        let fits = |unit: &&(&str, u64)| self.0 >= unit.1 && self.0.is_multiple_of(unit.1);
        match UNITS.iter().filter(fits).max_by_key(|unit| unit.1) {
            Some((name, unit)) if *unit > 1 => write!(f, "{}{name}", self.0 / unit),
            _ => write!(f, "{}B", self.0),
        }
    }
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let trimmed = text.trim();
        let unit = UNITS.iter().find(|(name, _)| trimmed.ends_with(name));
        let (digits, unit) = match unit {
            Some((name, unit)) => (trimmed.strip_suffix(name).unwrap_or(trimmed).trim(), *unit),
            None => (trimmed, 1),
        };
        let number = digits.parse::<f64>().ok().filter(|n| *n >= 0.0);
        match number.map(|n| n * unit as f64) {
            Some(bytes) if bytes <= i64::MAX as f64 => Ok(Size(bytes as u64)),
            _ => Err(format!("`{text}` is not a size: write bytes, like 4096 or 64KiB")),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "must be bytes, like 4096 or \"64MiB\"")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(bytes) => Ok(Size(bytes)),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

/// Where objects are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A local folder.
    Folder,
    /// A bucket of an S3-compatible store.
    S3,
    /// Nowhere: the node is a cache.
    None,
}

crate::section! {
    /// Where objects are durable.
    pub struct Settings {
        /// "folder": a local folder, durable (temporary file, fsync, rename). "s3": a bucket of an
        /// S3-compatible store. "none": nowhere; the node is a cache, which holds what was written to it
        /// until it needs the room or stops.
        pub kind: Kind = Kind::Folder,
        /// folder: its path; created if missing.
        pub path: PathBuf = "concertina-data/origin".into(),
        /// s3: URL of the store, such as "https://s3.example.com". Unset: AWS itself.
        pub endpoint: Option<String> = None,
        /// s3: the bucket, which must exist.
        pub bucket: String = String::new(),
        /// s3: the region of the bucket.
        pub region: String = "us-east-1".to_owned(),
        /// s3: prefix of all names in the bucket: empty, or text that ends in "/".
        pub prefix: String = String::new(),
        /// s3: allow an endpoint without TLS. Secrets are never sent, but objects can be read on
        /// the way.
        pub allow_http: bool = false,
        /// s3: the access key. Unset: AWS_ACCESS_KEY_ID of the environment.
        pub access_key_id: Option<String> = None,
        /// s3: the secret of the access key. Unset: AWS_SECRET_ACCESS_KEY of the environment. Never
        /// shown.
        #[serde(skip_serializing)]
        pub secret_access_key: Option<Secret> = None,
        /// s3: the token of temporary credentials. Unset, and access_key_id too: AWS_SESSION_TOKEN
        /// of the environment. Never shown.
        #[serde(skip_serializing)]
        pub session_token: Option<Secret> = None,
        /// s3: memory for all uploads in progress, each of which takes up to 16MiB. A PUT beyond it
        /// is answered 503.
        pub uploads_bytes_max: Size = Size(256 << 20),
        /// s3: memory for the metadata of listed objects. Listing an object costs one request to the
        /// store, unless its metadata is in this memory and the store lists it unchanged.
        pub listed_bytes_max: Size = Size(32 << 20),
        /// Maximum concurrent requests to the origin.
        pub parallel: u32 = 16,
        /// Maximum reads waiting or in progress; requests that need a further one are answered 503.
        pub queue_length_max: u32 = 1024,
        /// Maximum time of a request to the origin in seconds; after it the client is answered 504.
        pub timeout_s: f64 = 10.0,
    }
}

impl Settings {
    /// The place in words: a folder, or a bucket.
    pub fn in_words(&self) -> String {
        match (self.kind, &self.endpoint) {
            (Kind::S3, Some(endpoint)) => format!("bucket {} of {endpoint}", self.bucket),
            (Kind::S3, None) => format!("bucket {} in region {}", self.bucket, self.region),
            (Kind::None, _) => "none".to_owned(),
            (Kind::Folder, _) => self.path.display().to_string(),
        }
    }

    /// Fills in credentials that are not set from the environment, for an S3-compatible store.
    /// The caller looks variables up, since nothing below the command line does.
    pub fn fill_credentials(&mut self, variable: impl Fn(&str) -> Option<String>) {
        if self.kind != Kind::S3 {
            return;
        }
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        // A token belongs to its key.
        if self.access_key_id.is_none() && self.session_token.is_none() {
            self.session_token = variable("AWS_SESSION_TOKEN").map(Secret::new);
        }
        if self.access_key_id.is_none() {
            self.access_key_id = variable("AWS_ACCESS_KEY_ID");
        }
        if self.secret_access_key.is_none() {
            self.secret_access_key = variable("AWS_SECRET_ACCESS_KEY").map(Secret::new);
        }
    }

    /// Checks the values.
    pub fn check(&self, mut checks: Checks<'_>) {
        checks.between("timeout_s", self.timeout_s, 0.001, 1e6);
        checks.between("parallel", self.parallel, 1, 256);
        if self.kind != Kind::S3 {
            return;
        }
        let (bucket, prefix) = (&self.bucket, &self.prefix);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        checks.must(
            !bucket.is_empty() && bucket.bytes().all(plain),
            "bucket",
            format!(
                "invalid bucket name {bucket:?}; write the name of the bucket with the objects"
            ),
        );
        if let Some(endpoint) = &self.endpoint {
            // The other messages would show it.
            if endpoint.contains('@') {
                let what = "must not contain a user or a password; write the URL without them, and the credentials as \
                            access_key_id and secret_access_key";
                checks.must(false, "endpoint", what);
                return;
            }
            let url: Option<http::Uri> = endpoint.parse().ok();
            let scheme = url.as_ref().and_then(http::Uri::scheme_str);
            checks.must(
                crate::s3::endpoint::is_endpoint(endpoint),
                "endpoint",
                format!(
                    "invalid URL {endpoint:?}; write it as \"https://s3.example.com\", with a port as \":9000\" behind it (65535 is the largest)"
                ),
            );
            checks.must(
                scheme != Some("http") || self.allow_http,
                "endpoint",
                "has no TLS; use https, or set origin.allow_http = true if you trust the network",
            );
        }
        checks.must(
            prefix.is_empty() || prefix.strip_suffix('/').is_some_and(crate::s3::name::is_plain_prefix),
            "prefix",
            format!(
                "must be empty, or end in \"/\" and have at most 256 bytes without control characters, \
                 empty parts, \".\" and \"..\"; not {prefix:?}"
            ),
        );
        // One upload may take that much.
        checks.at_least("uploads_bytes_max", self.uploads_bytes_max, Size(16 << 20));
    }
}
