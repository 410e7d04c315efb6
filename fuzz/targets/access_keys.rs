//! Any text as a file of access keys, with secrets as they are or sealed: no message repeats a secret.

#![no_main]

mod edits;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use s3::keys::ids;
use s3::seal::MasterKey;

const SECRET: &str = "zq-the-secret-zq";
const IN_PLACE: &str = "secret = \"zq-the-secret-zq\"";

static MASTER: LazyLock<MasterKey> = LazyLock::new(|| {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o600)).expect("its mode");
    file.write_all(configuration::token::new_secret().as_bytes()).expect("it is written");
    MasterKey::read(file.path()).expect("a master key")
});
static PLAIN: LazyLock<String> = LazyLock::new(|| {
    format!("[[key]]\nid = \"a\"\nsecret = \"{SECRET}\"\nscopes = [\"*:admin\", \"b-1:read\"]\n")
});
static SEALED: LazyLock<String> =
    LazyLock::new(|| PLAIN.replace(SECRET, &MASTER.seal("a", SECRET)));

fuzz_target!(|data: &[u8]| {
    let text = edits::edited(&[PLAIN.as_bytes(), SEALED.as_bytes()], data);
    let Ok(text) = String::from_utf8(text) else { return };
    for master in [None, Some(&*MASTER)] {
        match ids(&text, master) {
            Ok(ids) => assert!(ids.iter().all(|id| (1..=128).contains(&id.len()))),
            // Unless it stands where no secret belongs.
            Err(error) => {
                let in_place = text.matches(SECRET).count() == text.matches(IN_PLACE).count();
                let said = format!("{error:#}");
                assert!(!in_place || !said.contains(SECRET), "{said}");
            }
        }
    }
    // What was sealed for one id is opened for no other.
    if let Ok(secret) = MASTER.open("a", &text) {
        assert!(MASTER.open("b", &text).is_err());
        assert_eq!(MASTER.open("a", &MASTER.seal("a", secret.expose())).ok(), Some(secret));
    }
});
