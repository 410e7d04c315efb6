//! Commands whose output nobody reads: they end, quietly.

use std::io::pipe;
use std::process::{Command, Stdio};

#[test]
fn a_command_ends_quietly_when_nobody_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let device = "[[device]]\npath = \"d\"\nservice = { kind = \"exponential\", mean_ms = 1.0 }\n";
    std::fs::write(dir.path().join("c.toml"), device).unwrap();
    let simulate = ["simulate", "--config=c.toml", "--rate=10", "--duration=1s", "--warmup=0s"];
    for args in [
        vec!["config"],
        vec!["data", "list", "--folder=."],
        [&simulate[..], &["--out=table"]].concat(),
        [&simulate[..], &["--out=json", "--json"]].concat(),
    ] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_concertina"))
            .args(&args)
            .current_dir(dir.path())
            .stdout(writer)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {}: {said}", output.status);
        assert!(!said.contains("panicked") && !said.contains("concertina:"), "{args:?}: {said}");
    }
}
