//! Secrets sealed at rest.
//!
//! A signature of version 4 is checked with the secret itself, so a secret cannot be kept as a hash. It can be kept
//! encrypted, with a master key that lies elsewhere: in a file that only its owner may read, or in a credential of
//! systemd. A sealed secret is the text
//!
//! ```text
//! sealed:1:MARK:BASE64(nonce, ciphertext, tag)
//! ```
//!
//! by ChaCha20-Poly1305 with a random nonce of 96 bits and the id of the access key as associated data, so that a
//! secret cannot be moved to another id. `MARK` tells which master key it was sealed with, and nothing else of it.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD as BASE64;
use ground::hex;
use origin::Secret;
use record::file;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;

/// What a sealed secret begins with.
const PREFIX: &str = "sealed:";
const VERSION: &str = "1";
/// The name of systemd's credential with the master key.
pub const CREDENTIAL: &str = "concertina-master-key";
const FILE_BYTES_MAX: u64 = 4096;

/// Why a master key cannot be used.
#[derive(Debug, Error)]
pub enum MasterKeyError {
    /// The file cannot be read, or others than those who need it may read it.
    #[error("cannot read the master key in {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is something else.
    #[error(
        "{path} is not a master key of 64 hexadecimal digits; `concertina keys master {path}` makes one"
    )]
    Form {
        /// The file.
        path: PathBuf,
    },
}

/// Why a sealed secret cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SealError {
    /// There is no master key.
    #[error(
        "it is sealed and there is no master key: set s3.master_key, or pass the credential {CREDENTIAL}"
    )]
    NoMasterKey,
    /// It has another form than sealed secrets have.
    #[error("it is not a sealed secret as `concertina keys seal` writes them")]
    Form,
    /// Its end is missing.
    #[error("the sealed secret is cut short")]
    Cut,
    /// It needs another master key.
    #[error("it is sealed with the master key of mark {sealed}; the one given has mark {given}")]
    OtherMasterKey {
        /// The mark of the key that it was sealed with.
        sealed: String,
        /// The mark of the key that was tried.
        given: String,
    },
    /// The bytes are not those that were sealed, or not for this id.
    #[error("the sealed secret was altered, or sealed for another id")]
    Altered,
}

/// The key that secrets are sealed with. Never shown.
pub struct MasterKey {
    key: LessSafeKey,
    mark: String,
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterKey").field("mark", &self.mark).finish_non_exhaustive()
    }
}

/// Whether a text says that it is a sealed secret.
pub fn is_sealed(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// Random bytes from the system.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    bytes
}

impl MasterKey {
    /// The key of 64 hexadecimal digits.
    fn parse(text: &str) -> Option<MasterKey> {
        let bytes = blake3::Hash::from_hex(text.trim_ascii()).ok()?;
        let root = hmac::Key::new(hmac::HMAC_SHA256, bytes.as_bytes());
        // One key for each purpose.
        let derived = |purpose: &str| hmac::sign(&root, purpose.as_bytes());
        let key = UnboundKey::new(&CHACHA20_POLY1305, derived("concertina: seal 1").as_ref());
        let mark = hex::encode(&derived("concertina: mark 1").as_ref()[..4]);
        Some(MasterKey { key: LessSafeKey::new(key.ok()?), mark })
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, others than its owner may read it, or it is not a master key.
    pub fn read(path: &Path) -> Result<MasterKey, MasterKeyError> {
        MasterKey::read_if(path, 0o077)
    }

    /// Reads a file whose mode has none of some bits.
    fn read_if(path: &Path, refused: u32) -> Result<MasterKey, MasterKeyError> {
        let failed = |source| MasterKeyError::File { path: path.to_owned(), source };
        let bytes = file::read_private(path, FILE_BYTES_MAX, refused).map_err(failed)?;
        let key = std::str::from_utf8(&bytes).ok().and_then(MasterKey::parse);
        key.ok_or_else(|| MasterKeyError::Form { path: path.to_owned() })
    }

    /// Where the master key is: in the file that is named, or otherwise in the folder of systemd's credentials, if
    /// it has one.
    pub fn place(named: Option<&Path>, credentials: Option<&OsStr>) -> Option<PathBuf> {
        let credential = || Some(Path::new(credentials?).join(CREDENTIAL));
        named.map(Path::to_owned).or_else(|| credential().filter(|path| path.exists()))
    }

    /// The master key at its [place](MasterKey::place).
    ///
    /// # Errors
    ///
    /// As for [`MasterKey::read`]. A credential may be readable for its group, because systemd gives access to a
    /// service's user by an access control list, which the bits of the group show.
    pub fn find(
        named: Option<&Path>,
        credentials: Option<&OsStr>,
    ) -> Result<Option<MasterKey>, MasterKeyError> {
        let refused = if named.is_some() { 0o077 } else { 0o027 };
        let place = MasterKey::place(named, credentials);
        place.map(|path| MasterKey::read_if(&path, refused)).transpose()
    }

    /// What tells this key from others: not a secret.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Seals the secret of an id.
    pub fn seal(&self, id: &str, secret: &str) -> String {
        let nonce = random::<NONCE_LEN>();
        let mut bytes = secret.as_bytes().to_vec();
        let tag = self
            .key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(id.as_bytes()),
                &mut bytes,
            )
            .expect("a secret is shorter than the longest message");
        let all = [nonce.as_slice(), &bytes, tag.as_ref()].concat();
        format!("{PREFIX}{VERSION}:{}:{}", self.mark, BASE64.encode(all))
    }

    /// Opens the sealed secret of an id.
    ///
    /// # Errors
    ///
    /// See [`SealError`]. No message repeats a secret.
    pub fn open(&self, id: &str, sealed: &str) -> Result<Secret, SealError> {
        let (mark, text) = parts(sealed)?;
        if mark != self.mark {
            let (sealed, given) = (mark.to_owned(), self.mark.clone());
            return Err(SealError::OtherMasterKey { sealed, given });
        }
        let mut bytes = BASE64.decode(text).map_err(|error| match error {
            base64::DecodeError::InvalidLength(_)
            | base64::DecodeError::InvalidLastSymbol { .. } => SealError::Cut,
            _ => SealError::Altered,
        })?;
        if bytes.len() <= NONCE_LEN + CHACHA20_POLY1305.tag_len() {
            return Err(SealError::Cut);
        }
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&bytes[..NONCE_LEN]);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.key.open_within(nonce, Aad::from(id.as_bytes()), &mut bytes, NONCE_LEN..);
        let opened = opened.map_err(|_| SealError::Altered)?;
        let text = String::from_utf8(opened.to_vec()).map_err(|_| SealError::Altered)?;
        Ok(Secret::new(text))
    }
}

/// The mark and the rest of a sealed secret.
fn parts(sealed: &str) -> Result<(&str, &str), SealError> {
    let rest = sealed.strip_prefix(PREFIX).ok_or(SealError::Form)?;
    let mut parts = rest.split(':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(VERSION), Some(mark), Some(text), None) if mark.len() == 8 => Ok((mark, text)),
        (Some(VERSION), Some(mark), None, None) if mark.len() <= 8 => Err(SealError::Cut),
        _ => Err(SealError::Form),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "hush-hush-hush-hush";

    fn master(digit: char) -> MasterKey {
        MasterKey::parse(&digit.to_string().repeat(64)).unwrap()
    }

    #[test]
    fn what_is_sealed_is_opened_with_its_key_and_for_its_id_alone() {
        let (one, other) = (master('1'), master('2'));
        let sealed = one.seal("a", SECRET);
        assert!(is_sealed(&sealed) && !sealed.contains("hush"));
        assert_ne!(sealed, one.seal("a", SECRET), "each time with another nonce");
        assert_eq!(one.open("a", &sealed).unwrap().expose(), SECRET);
        assert_eq!(one.open("b", &sealed).unwrap_err(), SealError::Altered);
        let marks = (one.mark().to_owned(), other.mark().to_owned());
        let wrong = SealError::OtherMasterKey { sealed: marks.0, given: marks.1 };
        assert_eq!(other.open("a", &sealed).unwrap_err(), wrong);
        // The mark is not what protects it.
        let marked = sealed.replace(one.mark(), other.mark());
        assert_eq!(other.open("a", &marked).unwrap_err(), SealError::Altered);
        for (text, expected) in [
            (SECRET, SealError::Form),
            ("sealed:", SealError::Form),
            ("sealed:2:00000000:AAAA", SealError::Form),
            ("sealed:1:0000", SealError::Cut),
            (&sealed[..22], SealError::Cut),
            (&sealed[..40], SealError::Cut),
            (&format!("{}*", &sealed[..sealed.len() - 1]), SealError::Altered),
            (&format!("{sealed}:x"), SealError::Form),
        ] {
            assert_eq!(one.open("a", text).unwrap_err(), expected, "{text}");
        }
    }

    /// The form is kept by every later version: a text sealed by another implementation of RFC 8439 (Python's
    /// `cryptography` 48) is opened.
    #[test]
    fn the_form_is_the_one_that_is_documented() {
        let sealed =
            "sealed:1:91ef526b:AAECAwQFBgcICQoLTtBNq3yV65e3cIEcHAi+25s+P6KavlNdkdQ0BRjj9oE2GhY";
        assert_eq!(master('1').open("reports", sealed).unwrap().expose(), SECRET);
    }

    proptest! {
        #[test]
        fn whatever_is_cut_or_altered_is_refused(at in 0usize..100, byte in 0x20u8..0x7f, cut: bool) {
            let key = master('1');
            let sealed = key.seal("a", SECRET);
            let at = at % sealed.len();
            let mut bytes = sealed.clone().into_bytes();
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            let text = String::from_utf8(bytes).unwrap();
            match key.open("a", &text) {
                Ok(_) => prop_assert_eq!(text, sealed),
                Err(error) => prop_assert!(!error.to_string().contains("hush")),
            }
        }
    }

    #[test]
    fn a_master_key_is_found_where_only_those_may_read_it_who_need_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CREDENTIAL);
        let set = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let credentials = Some(folder.path().as_os_str());
        assert!(MasterKey::find(None, None).unwrap().is_none());
        assert!(MasterKey::find(None, credentials).unwrap().is_none());
        assert!(matches!(
            MasterKey::find(Some(&path), credentials),
            Err(MasterKeyError::File { .. })
        ));
        std::fs::write(&path, format!("{}\n", configuration::token::new_secret())).unwrap();
        for (mode, named, credential) in
            [(0o600, true, true), (0o400, true, true), (0o440, false, true), (0o604, false, false)]
        {
            set(mode);
            assert_eq!(MasterKey::find(Some(&path), None).is_ok(), named, "{mode:o}");
            assert_eq!(MasterKey::find(None, credentials).is_ok(), credential, "{mode:o}");
        }
        set(0o600);
        let secret = "0123456789abcdef".repeat(4);
        for text in ["", &secret[1..], &format!("{secret}0"), &secret.replace('0', "g")] {
            std::fs::write(&path, text).unwrap();
            let error = MasterKey::read(&path).unwrap_err();
            assert!(matches!(error, MasterKeyError::Form { .. }), "{text}");
            assert!(!error.to_string().contains("123456789"));
        }
    }
}
