//! Access keys: who may do what in which bucket. Read from a file, and again when it changes.
//!
//! The file is TOML:
//!
//! ```toml
//! [[key]]
//! id = "reports"
//! secret = "at least sixteen characters"
//! scopes = ["photos:read", "logs:write"]   # or "*:admin"
//! ```
//!
//! A signature is checked with the secret itself, so it cannot be kept as a hash: the file must be readable by
//! its owner alone, and nothing here writes a secret anywhere.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use arc_swap::{ArcSwap, ArcSwapOption};
use origin::Secret;
use record::file;
use ring::hmac;
use serde::Deserialize;
use tracing::{info, warn};

use super::shortcut;

/// The largest file of access keys.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The shortest secret, in characters.
const SECRET_MIN: usize = 16;
/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What a scope allows; each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// GET, HEAD and listings.
    Read,
    /// PUT, DELETE, copies and uploads in parts.
    Write,
    /// What concerns a bucket as a whole, or uploads of others.
    Admin,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    key: Vec<WrittenKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    id: String,
    secret: Secret,
    scopes: Vec<String>,
}

/// One access key. Its secret is never shown.
pub struct AccessKey {
    secret: Secret,
    /// Buckets (`None`: all) and what is allowed there.
    scopes: Vec<(Option<String>, Level)>,
    /// The key of the scope (day and region) that was used last.
    signing: ArcSwapOption<(String, hmac::Key)>,
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey").field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

impl AccessKey {
    /// The secret, for checking a signature.
    pub fn secret(&self) -> &str {
        self.secret.expose()
    }

    /// The key that signs in a scope. Costs five HMACs once a scope, which usually lasts a day.
    pub fn signing_key(&self, scope: &str) -> Option<hmac::Key> {
        if let Some(last) = &*self.signing.load()
            && last.0 == scope
        {
            return Some(last.1.clone());
        }
        let key = shortcut::signing_key(self.secret(), scope)?;
        self.signing.store(Some(Arc::new((scope.to_owned(), key.clone()))));
        Some(key)
    }

    /// Whether the key allows `level` in a bucket.
    pub fn allows(&self, bucket: &str, level: Level) -> bool {
        let fits = |(of, up_to): &(Option<String>, Level)| {
            level <= *up_to && of.as_deref().is_none_or(|of| of == bucket)
        };
        self.scopes.iter().any(fits)
    }
}

type Table = HashMap<String, Arc<AccessKey>>;

/// The access keys of a process.
pub struct Keys {
    path: PathBuf,
    table: ArcSwap<Table>,
}

/// What tells that a file has changed.
type Stamp = (u64, u64, Option<SystemTime>);

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.ino(), metadata.len(), metadata.modified().ok()))
}

impl Keys {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, others than its owner may read it, or it is malformed. No message repeats a
    /// secret.
    pub fn open(path: &Path) -> anyhow::Result<Arc<Keys>> {
        let table = read(path).with_context(|| format!("the access keys in {}", path.display()))?;
        Ok(Arc::new(Keys { path: path.to_owned(), table: ArcSwap::from_pointee(table) }))
    }

    /// The key of an id.
    pub fn get(&self, id: &str) -> Option<Arc<AccessKey>> {
        self.table.load().get(id).cloned()
    }

    /// Reads the file again whenever it changes; never returns. A file that cannot be used leaves the keys as
    /// they were, with a warning.
    pub async fn keep_current(self: Arc<Self>) {
        let mut seen = stamp(&self.path).ok();
        loop {
            tokio::time::sleep(LOOK).await;
            let now = stamp(&self.path).ok();
            if now == seen {
                continue;
            }
            seen = now;
            match read(&self.path) {
                Ok(table) => {
                    info!("{} access key(s) from {}", table.len(), self.path.display());
                    self.table.store(Arc::new(table));
                }
                Err(error) => {
                    warn!("the access keys stay as they were: {}: {error:#}", self.path.display())
                }
            }
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Table> {
    let mode = std::fs::metadata(path)?.mode();
    ensure!(
        mode & 0o077 == 0,
        "others than its owner may read or write it (mode {:03o}); chmod 600 it",
        mode & 0o777
    );
    let bytes = file::read(path, FILE_BYTES_MAX)?;
    parse(std::str::from_utf8(&bytes).context("it is not UTF-8")?)
}

fn parse(text: &str) -> anyhow::Result<Table> {
    // The message of a TOML error quotes the line, which may be the secret's.
    let written: Written = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
        anyhow::anyhow!("line {line} is not as docs/s3.md says: [[key]] with id, secret, scopes")
    })?;
    let mut table = Table::new();
    for WrittenKey { id, secret, scopes } in written.key {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        ensure!(
            (1..=128).contains(&id.len()) && id.chars().all(plain),
            "invalid id {id:?}; write 1 to 128 letters, digits, `-`, `_` or `.`"
        );
        ensure!(
            secret.expose().len() >= SECRET_MIN,
            "the secret of {id:?} is shorter than {SECRET_MIN} characters"
        );
        ensure!(!scopes.is_empty(), "{id:?} has no scopes, such as \"photos:read\"");
        let scopes = scopes.iter().map(|scope| scope_of(scope)).collect::<Result<_, _>>()?;
        let key = Arc::new(AccessKey { secret, scopes, signing: ArcSwapOption::empty() });
        if table.insert(id.clone(), key).is_some() {
            bail!("the id {id:?} is there twice");
        }
    }
    Ok(table)
}

fn scope_of(scope: &str) -> anyhow::Result<(Option<String>, Level)> {
    let wrong =
        || format!("invalid scope {scope:?}; write BUCKET:read, :write or :admin, or *:read");
    let (bucket, level) = scope.split_once(':').with_context(wrong)?;
    let level = match level {
        "read" => Level::Read,
        "write" => Level::Write,
        "admin" => Level::Admin,
        _ => bail!(wrong()),
    };
    ensure!(!bucket.is_empty(), wrong());
    Ok(((bucket != "*").then(|| bucket.to_owned()), level))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SECRET: &str = "hush-hush-hush-hush";

    fn text(scopes: &str) -> String {
        format!("[[key]]\nid = \"a\"\nsecret = \"{SECRET}\"\nscopes = {scopes}\n")
    }

    #[test]
    fn a_scope_allows_its_bucket_and_the_levels_below() {
        let table = parse(&text(r#"["photos:write", "*:read"]"#)).unwrap();
        let key = &table["a"];
        for (bucket, level, allowed) in [
            ("photos", Level::Read, true),
            ("photos", Level::Write, true),
            ("photos", Level::Admin, false),
            ("photos2", Level::Write, false),
            ("logs", Level::Read, true),
            ("logs", Level::Write, false),
        ] {
            assert_eq!(key.allows(bucket, level), allowed, "{bucket} {level:?}");
        }
        assert!(!format!("{key:?}").contains("hush"));
    }

    #[test]
    fn no_mistake_shows_the_secret() {
        for wrong in [
            text("[]"),
            text("[\"photos\"]"),
            text("[\"photos:all\"]"),
            text("[\":read\"]"),
            text("5"),
            format!("[[key]]\nid = \"a\"\nsecret = \"{SECRET}\nscopes = []"),
            format!("[[key]]\nid = \"a\"\nsecret = [\"{SECRET}\"]\nscopes = []"),
            format!("[[key]]\nid = \"a b\"\nsecret = \"{SECRET}\"\nscopes = [\"*:read\"]"),
            "[[key]]\nid = \"a\"\nsecret = \"hush\"\nscopes = [\"*:read\"]".to_owned(),
            format!("{}{}", text("[\"*:read\"]"), text("[\"*:read\"]")),
        ] {
            let error = format!("{:#}", parse(&wrong).expect_err(&wrong));
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, text("[\"*:read\"]")).unwrap();
        for (mode, fine) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Keys::open(&path).is_ok(), fine, "{mode:o}");
        }
        assert!(Keys::open(&folder.path().join("none")).is_err());
    }
}
