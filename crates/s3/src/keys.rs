//! Access keys: who may do what in which bucket. Read from a file, and again when it changes.
//!
//! The file is TOML:
//!
//! ```toml
//! [[key]]
//! id = "reports"
//! secret = "at least sixteen characters"   # or sealed: see `seal`
//! scopes = ["photos:read", "logs:write"]   # or "*:admin"
//! ```
//!
//! A signature is checked with the secret itself, so it cannot be kept as a hash. It can be sealed with a master key
//! that lies elsewhere ([`seal`](super::seal)). The file must be readable by its owner alone, and nothing here shows
//! a secret.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use ground::with_causes;
use origin::Secret;
use record::file;
use ring::hmac;
use serde::Deserialize;
use toml::Spanned;
use tracing::{info, warn};

use super::error::Error;
use super::seal::{MasterKey, SealError, is_sealed};

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
    secret: Spanned<Secret>,
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
        let key = signing_key(self.secret(), scope)?;
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

fn hmac_of(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

/// The key that signs in a scope.
pub(super) fn signing_key(secret: &str, scope: &str) -> Option<hmac::Key> {
    let mut parts = scope.split('/');
    let (day, region) = (parts.next()?, parts.next()?);
    let day = hmac_of(format!("AWS4{secret}").as_bytes(), day);
    let region = hmac_of(day.as_ref(), region);
    let service = hmac_of(region.as_ref(), "s3");
    let key = hmac_of(service.as_ref(), "aws4_request");
    Some(hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()))
}

type Table = HashMap<String, Arc<AccessKey>>;

/// The files that access keys come from.
#[derive(Clone, Debug)]
pub struct Files {
    /// The access keys.
    pub keys: PathBuf,
    /// The master key of sealed secrets; `None`: systemd's credential, if there is one.
    pub master: Option<PathBuf>,
}

/// The access keys of a process.
pub struct Keys {
    files: Files,
    table: ArcSwap<Table>,
}

/// What tells that a file has changed.
type Stamp = (u64, u64, Option<SystemTime>);

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.ino(), metadata.len(), metadata.modified().ok()))
}

/// The folder of systemd's credentials.
fn credentials() -> Option<OsString> {
    std::env::var_os("CREDENTIALS_DIRECTORY")
}

impl Files {
    fn stamps(&self) -> [Option<Stamp>; 2] {
        let master = MasterKey::place(self.master.as_deref(), credentials().as_deref());
        [stamp(&self.keys).ok(), master.and_then(|path| stamp(&path).ok())]
    }

    /// Reads the access keys; the number of those whose secrets lie there as they are.
    fn read(&self) -> Result<(Table, usize), Error> {
        let master = MasterKey::find(self.master.as_deref(), credentials().as_deref())?;
        let text = read_private(&self.keys, credentials().as_deref())?;
        let written = parse(&text)?;
        let plain = written.key.iter().filter(|key| !is_sealed(key.secret.get_ref().expose()));
        let plain = plain.count();
        Ok((table_of(written, master.as_ref())?, plain))
    }

    /// What a server says of the keys that it has read.
    fn tell(&self, table: &Table, plain: usize) {
        info!("{} access key(s) from {}", table.len(), self.keys.display());
        if plain > 0 {
            warn!(
                "the secret(s) of {plain} access key(s) lie in {} as they are; `concertina keys seal` seals them",
                self.keys.display()
            );
        }
    }
}

impl Keys {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If it or the master key cannot be read, others than its owner may read it, it is malformed, or a sealed
    /// secret cannot be opened. No message repeats a secret.
    pub fn open(files: Files) -> Result<Arc<Keys>, Error> {
        let unusable =
            |source: Error| Error::Keys { path: files.keys.clone(), source: source.into() };
        let (table, plain) = files.read().map_err(unusable)?;
        files.tell(&table, plain);
        Ok(Arc::new(Keys { files, table: ArcSwap::from_pointee(table) }))
    }

    /// The key of an id.
    pub fn get(&self, id: &str) -> Option<Arc<AccessKey>> {
        self.table.load().get(id).cloned()
    }

    /// Reads the files again whenever one of them changes; never returns. Files that cannot be used leave the keys as
    /// they were, with a warning.
    pub async fn keep_current(self: Arc<Self>) {
        let mut seen = self.files.stamps();
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.files.stamps();
            if now == seen {
                continue;
            }
            seen = now;
            match self.files.read() {
                Ok((table, plain)) => {
                    self.files.tell(&table, plain);
                    self.table.store(Arc::new(table));
                }
                Err(error) => {
                    let path = self.files.keys.display();
                    let why = with_causes(&error);
                    warn!("the access keys stay as they were: {path}: {why}");
                }
            }
        }
    }
}

/// Reads a file of secrets. A credential of systemd's may be readable for its group, as [`MasterKey::find`](super::seal::MasterKey::find) says.
fn read_private(path: &Path, credentials: Option<&OsStr>) -> Result<String, Error> {
    let is_credential = credentials.is_some_and(|folder| path.starts_with(folder));
    let refused = if is_credential { 0o027 } else { 0o077 };
    let bytes = file::read_private(path, FILE_BYTES_MAX, refused)?;
    String::from_utf8(bytes).map_err(|_| Error::NotUtf8)
}

fn parse(text: &str) -> Result<Written, Error> {
    // The message of a TOML error quotes the line, which may be the secret's.
    toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
        Error::Malformed { line }
    })
}

/// The ids of the access keys in the text of a file, in its order.
///
/// # Errors
///
/// As for [`Keys::open`] of a file with that text.
pub fn ids(text: &str, master: Option<&MasterKey>) -> Result<Vec<String>, Error> {
    let written = parse(text)?;
    let ids = written.key.iter().map(|key| key.id.clone()).collect();
    table_of(written, master)?;
    Ok(ids)
}

/// The secret of an id, opened if it is sealed.
fn opened(id: &str, secret: &Secret, master: Option<&MasterKey>) -> Result<Secret, Error> {
    let plain = match secret.expose() {
        text if is_sealed(text) => {
            let master = master.ok_or(SealError::NoMasterKey);
            let opened = master.and_then(|master| master.open(id, text));
            opened.map_err(|source| Error::Secret { id: id.to_owned(), source })?
        }
        _ => secret.clone(),
    };
    if plain.expose().len() < SECRET_MIN {
        return Err(Error::ShortSecret { id: id.to_owned(), least: SECRET_MIN });
    }
    Ok(plain)
}

fn table_of(written: Written, master: Option<&MasterKey>) -> Result<Table, Error> {
    let mut table = Table::new();
    for WrittenKey { id, secret, scopes } in written.key {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !(1..=128).contains(&id.len()) || !id.chars().all(plain) {
            return Err(Error::Id(id));
        }
        let secret = opened(&id, secret.get_ref(), master)?;
        if scopes.is_empty() {
            return Err(Error::NoScopes(id));
        }
        let scopes = scopes.iter().map(|scope| scope_of(scope)).collect::<Result<_, _>>()?;
        let key = Arc::new(AccessKey { secret, scopes, signing: ArcSwapOption::empty() });
        if table.insert(id.clone(), key).is_some() {
            return Err(Error::Duplicate(id));
        }
    }
    Ok(table)
}

/// What a file of access keys says of one, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The id.
    pub id: String,
    /// Whether the secret is sealed.
    pub sealed: bool,
    /// Its scopes, as they are written.
    pub scopes: Vec<String>,
}

/// The access keys of a file, in its order.
///
/// # Errors
///
/// As for [`Keys::open`].
pub fn list(files: &Files) -> Result<Vec<Listed>, Error> {
    files.read()?;
    let listed = |WrittenKey { id, secret, scopes }| {
        let sealed = is_sealed(secret.get_ref().expose());
        Listed { id, sealed, scopes }
    };
    Ok(parse(&read_private(&files.keys, credentials().as_deref())?)?
        .key
        .into_iter()
        .map(listed)
        .collect())
}

/// What [`seal_file`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Secrets that lay in the file as they were.
    pub plain: usize,
    /// Secrets that were sealed with the previous master key.
    pub previous: usize,
    /// Secrets that were sealed with the master key before.
    pub same: usize,
}

/// Seals all secrets of a file of access keys with a master key, those sealed with a previous one too. The rest of the
/// file stays as it is. The file is replaced as a whole, with its owner and its mode.
///
/// # Errors
///
/// If the file cannot be read or written or is malformed, or a sealed secret cannot be opened; then nothing is changed.
pub fn seal_file(
    path: &Path,
    master: &MasterKey,
    previous: Option<&MasterKey>,
) -> Result<Sealed, Error> {
    // What a link leads to is replaced, not the link.
    let path = path.canonicalize()?;
    let mut text = read_private(&path, credentials().as_deref())?;
    let mut done = Sealed { plain: 0, previous: 0, same: 0 };
    let mut spans = Vec::new();
    for WrittenKey { id, secret, .. } in parse(&text)?.key {
        let (span, secret) = (secret.span(), secret.into_inner());
        let opened = match secret.expose() {
            written if !is_sealed(written) => {
                done.plain += 1;
                opened(&id, &secret, None)?
            }
            written => match (master.open(&id, written), previous) {
                (Ok(_), _) => {
                    done.same += 1;
                    continue;
                }
                (Err(SealError::OtherMasterKey { .. }), Some(previous)) => {
                    done.previous += 1;
                    opened(&id, &secret, Some(previous))?
                }
                (Err(error), _) => {
                    return Err(Error::Secret { id, source: error });
                }
            },
        };
        spans.push((span, master.seal(&id, opened.expose())));
    }
    for (span, sealed) in spans.into_iter().rev() {
        text.replace_range(span, &format!("\"{sealed}\""));
    }
    // What is written must be what a server reads.
    table_of(parse(&text)?, Some(master))?;
    let before = std::fs::metadata(&path)?;
    let folder = path.parent().ok_or(Error::NoFolder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    std::os::unix::fs::fchown(&file, Some(before.uid()), Some(before.gid()))?;
    file.as_file().set_permissions(before.permissions())?;
    file.as_file().sync_all()?;
    file.persist(&path).map_err(|error| error.error)?;
    std::fs::File::open(folder)?.sync_all()?;
    Ok(done)
}

fn scope_of(scope: &str) -> Result<(Option<String>, Level), Error> {
    let wrong = || Error::Scope(scope.to_owned());
    let (bucket, level) = scope.split_once(':').ok_or_else(wrong)?;
    let level = match level {
        "read" => Level::Read,
        "write" => Level::Write,
        "admin" => Level::Admin,
        _ => return Err(wrong()),
    };
    if bucket.is_empty() {
        return Err(wrong());
    }
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

    fn table(text: &str, master: Option<&MasterKey>) -> Result<Table, Error> {
        table_of(parse(text)?, master)
    }

    #[test]
    fn a_scope_allows_its_bucket_and_the_levels_below() {
        let table = table(&text(r#"["photos:write", "*:read"]"#), None).unwrap();
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
            let error = with_causes(&table(&wrong, None).expect_err(&wrong));
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name| Keys::open(Files { keys: folder.path().join(name), master: None });
        write(&folder, "keys", &text("[\"*:read\"]"));
        for (mode, fine) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            let mode_of = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.path().join("keys"), mode_of).unwrap();
            assert_eq!(open("keys").is_ok(), fine, "{mode:o}");
        }
        // systemd gives a service's user access by a list, which the bits of the group show.
        let path = folder.path().join("keys");
        for (mode, fine) in [(0o440, true), (0o460, false), (0o444, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                read_private(&path, Some(folder.path().as_os_str())).is_ok(),
                fine,
                "{mode:o}"
            );
            assert!(read_private(&path, None).is_err());
        }
        assert!(open("none").is_err());
    }

    fn write(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    const TWO: &str = "# Of the report's host.\n[[key]] # one\nid = \"a\"\nsecret = 'hush-hush-hush-hush'  # of a\n\
        scopes = [\"*:read\"]\n\n[[key]]\nscopes = [\"photos:write\"]\nsecret = \"\"\"hush \\u00e9 hush-hush\"\"\"\nid = \"b\"";

    #[test]
    fn a_file_is_sealed_in_place_and_again_with_another_master_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(&folder, "keys", TWO);
        let key = |name: &str| {
            let path = write(&folder, name, &configuration::token::new_secret());
            (MasterKey::read(&path).unwrap(), path)
        };
        let ((one, one_path), (other, other_path)) = (key("one"), key("other"));
        let open = |master: &Path| {
            Keys::open(Files { keys: path.clone(), master: Some(master.to_owned()) })
        };
        let seals = |done: Result<Sealed, Error>| done.map(|d| (d.plain, d.previous, d.same));
        assert_eq!(seals(seal_file(&path, &one, None)).unwrap(), (2, 0, 0));
        let sealed = std::fs::read_to_string(&path).unwrap();
        assert!(!sealed.contains("hush"), "{sealed}");
        assert!(
            sealed.contains(
                "# Of the report's host.\n[[key]] # one\nid = \"a\"\nsecret = \"sealed:1:"
            )
        );
        assert!(sealed.contains("\"  # of a\n"), "{sealed}");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let keys = open(&one_path).unwrap();
        assert_eq!(keys.get("a").unwrap().secret(), SECRET);
        assert_eq!(keys.get("b").unwrap().secret(), "hush \u{e9} hush-hush");
        // Sealed already: the same bytes.
        assert_eq!(seals(seal_file(&path, &one, None)).unwrap(), (0, 0, 2));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), sealed);
        // Another key cannot open them, and changes nothing without the one before.
        let refused = |done: Result<Sealed, Error>| {
            let error = done.unwrap_err();
            matches!(error, Error::Secret { source: SealError::OtherMasterKey { .. }, .. })
        };
        assert!(refused(seal_file(&path, &other, None)));
        assert!(refused(seal_file(&path, &other, Some(&other))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), sealed);
        assert_eq!(seals(seal_file(&path, &other, Some(&one))).unwrap(), (0, 2, 0));
        assert_eq!(open(&other_path).unwrap().get("a").unwrap().secret(), SECRET);
        assert!(open(&one_path).is_err());
    }

    #[test]
    fn a_sealed_secret_that_cannot_be_opened_is_told_by_name() {
        let seal_of = |digit: char| {
            let folder = tempfile::tempdir().unwrap();
            let path = write(&folder, "master", &digit.to_string().repeat(64));
            MasterKey::read(&path).unwrap()
        };
        let (one, other) = (seal_of('1'), seal_of('2'));
        let sealed = one.seal("a", SECRET);
        let with = |secret: &str| {
            format!("[[key]]\nid = \"a\"\nsecret = \"{secret}\"\nscopes = [\"*:read\"]")
        };
        let code = |secret: &str, master| match table(&with(secret), master).unwrap_err() {
            Error::Secret { source, .. } => Some(source),
            _ => None,
        };
        assert_eq!(code(&sealed, None), Some(SealError::NoMasterKey));
        assert!(matches!(code(&sealed, Some(&other)), Some(SealError::OtherMasterKey { .. })));
        assert_eq!(code(&sealed[..30], Some(&one)), Some(SealError::Cut));
        assert_eq!(code(&one.seal("b", SECRET), Some(&one)), Some(SealError::Altered));
        assert_eq!(code("sealed:hush-hush-hush", Some(&one)), Some(SealError::Form));
        assert_eq!(code(&one.seal("a", "short"), Some(&one)), None);
        assert!(table(&with(&sealed), Some(&one)).is_ok());
    }
}
