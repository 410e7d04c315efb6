//! How an origin is reached, and limits on its use.

use std::fmt;
use std::path::PathBuf;

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
        let fits = |unit: &&(&str, u64)| self.0 >= unit.1 && self.0.is_multiple_of(unit.1);
        match UNITS.iter().find(fits) {
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

/// A text that is never shown: not by `concertina config`, in a run's record, or for debugging.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// The text, for whom it is meant.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

/// How an origin is reached: `[origin]` of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `folder` or `s3`.
    pub kind: String,
    /// Its folder.
    pub path: PathBuf,
    /// Where an S3-compatible store answers; AWS itself if unset.
    pub endpoint: Option<String>,
    /// Its bucket.
    pub bucket: String,
    /// Its region.
    pub region: String,
    /// What names in the bucket begin with.
    pub prefix: String,
    /// Whether requests may be sent without TLS.
    pub allow_http: bool,
    /// Who we are to the store.
    pub access_key_id: Option<String>,
    /// What proves it.
    pub secret_access_key: Option<Secret>,
    /// What temporary credentials have beside it.
    pub session_token: Option<Secret>,
    /// Bytes of uploads held in memory on their way to the store.
    pub uploads_bytes_max: Size,
    /// Requests at once.
    pub parallel: u32,
    /// Longest queue of fetches.
    pub queue_length_max: u32,
    /// How long one request may take.
    pub timeout_s: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            kind: "folder".to_owned(),
            path: PathBuf::from("concertina-data/origin"),
            endpoint: None,
            bucket: String::new(),
            region: "us-east-1".to_owned(),
            prefix: String::new(),
            allow_http: false,
            access_key_id: None,
            secret_access_key: None,
            session_token: None,
            uploads_bytes_max: Size(256 << 20),
            parallel: 16,
            queue_length_max: 1024,
            timeout_s: 10.0,
        }
    }
}

impl Settings {
    /// Where it is, in words: a folder, or a bucket.
    pub fn in_words(&self) -> String {
        match (self.kind.as_str(), &self.endpoint) {
            ("s3", Some(endpoint)) => format!("bucket {} of {endpoint}", self.bucket),
            ("s3", None) => format!("bucket {} in region {}", self.bucket, self.region),
            _ => self.path.display().to_string(),
        }
    }

    /// Takes what the file leaves open of the credentials from the environment, if they are of use.
    /// The caller looks it up, since nothing below the command line does.
    pub fn fill_credentials(&mut self, variable: impl Fn(&str) -> Option<String>) {
        if self.kind != "s3" {
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
}
