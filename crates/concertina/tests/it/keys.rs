//! `concertina keys`: master keys, sealed secrets, hashed tokens.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::serve_client::{Client, start};

/// Runs `concertina keys`: its output, or its error.
pub fn keys(args: &[&str], credentials: Option<&Path>) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.arg("keys").args(args).env_remove("CREDENTIALS_DIRECTORY");
    command.envs(credentials.map(|folder| ("CREDENTIALS_DIRECTORY", folder)));
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn a_file_is_sealed_listed_and_sealed_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, one, other) = (path("keys.toml"), path("one"), path("concertina-master-key"));
    let secrets = ["first-secret-not-shown", "second-secret-not-shown"];
    let text = format!(
        "[[key]]\nid = \"a\"\nsecret = \"{}\"\nscopes = [\"*:read\"]\n# kept\n\
        [[key]]\nid = \"b\"\nsecret = \"{}\"\nscopes = [\"photos:write\", \"logs:read\"]\n",
        secrets[0], secrets[1]
    );
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    for master in [&one, &other] {
        assert!(keys(&["master", master], None).unwrap().contains("mark"));
        let mode = std::fs::metadata(master).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // A master key is never overwritten.
        assert!(keys(&["master", master], None).is_err());
    }
    let listed = keys(&["check", &file], None).unwrap();
    assert_eq!(listed, "a  plain  *:read\nb  plain  photos:write logs:read\n");
    let error = keys(&["seal", &file], None).unwrap_err();
    assert!(error.contains("there is no master key"), "{error}");
    let told = keys(&["seal", &file, "--master", &one], None).unwrap();
    assert!(told.contains("2 secret(s) sealed"), "{told}");
    let sealed = std::fs::read_to_string(&file).unwrap();
    assert!(sealed.contains("# kept") && !secrets.iter().any(|secret| sealed.contains(secret)));
    let listed = keys(&["check", &file, "--master", &one], None).unwrap();
    assert_eq!(listed, "a  sealed  *:read\nb  sealed  photos:write logs:read\n");
    // Without the master key, or with another one.
    let error = keys(&["check", &file], None).unwrap_err();
    assert!(error.contains("it is sealed and there is no master key"), "{error}");
    let error = keys(&["check", &file], Some(folder.path())).unwrap_err();
    assert!(error.contains("it is sealed with the master key of mark"), "{error}");
    // The other is found as a credential of systemd.
    let told = keys(&["seal", &file, "--previous", &one], Some(folder.path())).unwrap();
    assert!(told.contains("2 secret(s) sealed, 2 of them anew"), "{told}");
    assert!(keys(&["check", &file], Some(folder.path())).is_ok());
    std::fs::set_permissions(&one, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = keys(&["seal", &file, "--master", &one], None).unwrap_err();
    assert!(error.contains("others than its owner"), "{error}");
}

#[test]
fn a_server_takes_the_token_whose_hash_it_has() {
    let made = keys(&["token"], None).unwrap();
    let token = made.lines().next().unwrap().split_whitespace().last().unwrap();
    let hash = made.lines().nth(1).unwrap().split('"').nth(1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let again = keys(&["token", "--file", file.to_str().unwrap()], None).unwrap();
    assert_eq!(again.trim(), format!("serve.token = \"{hash}\""));
    let server = start(&folder.path().join("node"), &[&format!("serve.token={hash}")]);
    let mut client = Client::connect(server.address());
    let mut with = |token: &str| {
        let shown = format!("Bearer {token}");
        client.send("GET", "/objects/a", &[("authorization", &shown)], None).unwrap().status
    };
    assert_eq!((with(token), with(hash), with(&hash[7..]), with("")), (404, 401, 401, 401));
    server.stop();
}
