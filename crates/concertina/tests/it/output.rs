//! Commands whose output nobody reads: they end, quietly.

use std::io::pipe;
use std::process::{Command, Stdio};

#[test]
fn a_command_ends_quietly_when_nobody_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let device = "[[device]]\npath = \"d\"\nservice = { kind = \"exponential\", mean_ms = 1.0 }\n";
    std::fs::write(dir.path().join("c.toml"), device).unwrap();
    std::fs::write(dir.path().join("lines.txt"), "one\ntwo\n").unwrap();
    let concertina = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
        command.args(args).current_dir(dir.path()).stdin(Stdio::null());
        command
    };
    let import =
        concertina(&["data", "import", "lines.txt", "--name=lines", "--folder=."]).output();
    assert!(import.unwrap().status.success());
    let simulate = ["simulate", "--config=c.toml", "--rate=10", "--duration=1s", "--warmup=0s"];
    for (code, args) in [
        (0, vec!["config"]),
        (0, vec!["data", "list", "--folder=."]),
        (0, vec!["data", "search", "lines", "one", "--folder=."]),
        // As grep does, whoever reads.
        (1, vec!["data", "search", "lines", "three", "--json", "--folder=."]),
        (0, [&simulate[..], &["--out=table"]].concat()),
        (0, [&simulate[..], &["--out=json", "--json"]].concat()),
    ] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = concertina(&args).stdout(writer.try_clone().unwrap()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(!said.contains("panicked") && !said.contains("concertina:"), "{args:?}: {said}");
        if !args.contains(&"simulate") {
            // Nor is it read what goes wrong.
            let status =
                concertina(&args).stdout(writer.try_clone().unwrap()).stderr(writer).status();
            assert_eq!(status.unwrap().code(), Some(code), "{args:?}");
        }
    }
}
