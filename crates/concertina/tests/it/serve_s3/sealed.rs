//! Access keys whose secrets are sealed, while a server reads them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use origin::S3;

use super::clients::origin_of;
use super::{ADMIN, Front, KeyEntry, write_keys};
use crate::keys::keys;
use crate::serve_client::LONGEST;

const NEW: KeyEntry =
    KeyEntry { id: "new-key", secret: "new-secret-that-is-not-shown", scope: "*:admin" };

/// Seals the file of access keys with the master key of the front's folder.
fn seal(folder: &Path) {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    keys(&["seal", &path("keys"), "--master", &path("master")], None).unwrap();
}

/// Waits until the log says something.
fn wait_for(front: &Front, what: &str) {
    let start = Instant::now();
    while !front.log().contains(what) {
        assert!(start.elapsed() < LONGEST, "no {what:?} in {}", front.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn sealed_keys_are_read_and_what_cannot_be_opened_leaves_them_as_they_were() {
    let front = Front::start_with(&[], |folder| {
        keys(&["master", folder.join("master").to_str().unwrap()], None).unwrap();
        seal(folder);
        vec![format!("s3.master_key={}", folder.join("master").display())]
    });
    let folder = front.folder.path();
    let is_key = |key| S3::open(&origin_of(&front, key)).is_ok();
    assert!(is_key(ADMIN) && !is_key(NEW));
    assert!(!front.log().contains("lie in"), "{}", front.log());
    // A new key with a plain secret is taken, with a warning, and then sealed.
    write_keys(folder, &[ADMIN, NEW]);
    wait_for(&front, "the secret(s) of 2 access key(s) lie in");
    assert!(is_key(ADMIN) && is_key(NEW));
    seal(folder);
    let sealed = std::fs::read_to_string(folder.join("keys")).unwrap();
    assert!(!sealed.contains(ADMIN.secret) && !sealed.contains(NEW.secret));
    let put = |name: &str, text: &str| {
        let (path, new) = (folder.join(name), folder.join("new"));
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(&new, &path).unwrap();
    };
    let of_new = sealed
        .split('"')
        .find(|text| text.starts_with("sealed:") && sealed.rfind(*text) > sealed.find(NEW.id));
    let of_new = of_new.unwrap();
    let first = sealed.split('"').find(|text| text.starts_with("sealed:")).unwrap();
    let (head, tail) = first.split_at(40);
    let altered = format!("{head}{}{}", if tail.starts_with('A') { 'B' } else { 'A' }, &tail[1..]);
    for (text, reason) in [
        (sealed.replace(first, &first[..30]), "is cut short"),
        (sealed.replace(first, &altered), "was altered"),
        (sealed.replace(first, of_new), "sealed for another id"),
        (sealed.replace(first, "sealed:2:x"), "it is not a sealed secret"),
    ] {
        put("keys", &text);
        wait_for(&front, reason);
        assert!(is_key(ADMIN) && is_key(NEW), "{reason}");
    }
    put("keys", &sealed);
    // Another master key, one that others may read, none.
    let master = std::fs::read_to_string(folder.join("master")).unwrap();
    put("master", &"1".repeat(64));
    wait_for(&front, "it is sealed with the master key of mark");
    std::fs::set_permissions(folder.join("master"), std::fs::Permissions::from_mode(0o644))
        .unwrap();
    put("keys", &sealed);
    wait_for(&front, "others than its owner may read or write it");
    std::fs::remove_file(folder.join("master")).unwrap();
    wait_for(&front, "cannot read the master key");
    assert!(is_key(ADMIN) && is_key(NEW));
    let before = front.log().matches("access key(s) from").count();
    put("master", &master);
    let start = Instant::now();
    while front.log().matches("access key(s) from").count() == before {
        assert!(start.elapsed() < LONGEST, "{}", front.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(is_key(ADMIN) && is_key(NEW));
    for secret in [ADMIN.secret, NEW.secret, master.trim(), first] {
        assert!(!front.log().contains(secret), "{}", front.log());
    }
}
