//! Secrets of a configuration in what commands print.

use std::process::Command;

const HUSH: &str = "TOPSECRETKEY";

/// What a command prints, on both streams.
fn printed(args: &[&str], environment: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    let output = command.args(args).envs(environment.iter().copied()).output().unwrap();
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat()
}

#[test]
fn no_command_shows_a_secret_of_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml");
    let path = file.to_str().unwrap();
    let wrong = "[origin]\nkind = \"s3\"\nbucket = \"b\"\nsecret_access_key = \"TOPSECRETKEY\n";
    std::fs::write(&file, wrong).unwrap();
    let all: &[&[&str]] = &[
        &["config", "--config", path],
        &["config", "--json", "--config", path],
        &["config", "check", path],
        &["serve", "--config", path],
    ];
    for args in all {
        let told = printed(args, &[]);
        assert!(
            told.contains("line 4, column ") && told.contains("(`secret_access_key`)"),
            "{told}"
        );
        assert!(!told.contains(HUSH), "{args:?}: {told}");
    }
    let tokens = "[serve]\ntoken = \"TOPSECRETKEY\"\n[cluster]\ntoken = \"TOPSECRETKEY2\"\n";
    std::fs::write(&file, tokens).unwrap();
    for args in &all[..3] {
        let told = printed(args, &[]);
        assert!(!told.contains(HUSH), "{args:?}: {told}");
    }
    assert_eq!(printed(all[0], &[]).matches("# token =   (set; not shown)\n").count(), 2);
    // A mistake beside secrets of the environment.
    let environment = [("CONCERTINA_TOKEN", HUSH), ("AWS_SECRET_ACCESS_KEY", HUSH)];
    let told = printed(&["serve", "--set", "serve.listen=here"], &environment);
    assert!(told.contains("serve.listen") && !told.contains(HUSH), "{told}");
}
