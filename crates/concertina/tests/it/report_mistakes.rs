//! What is wrong with runs, models and arguments is said with what to do, through the binary.

use std::path::Path;

use crate::report::Lab;

/// Copies a laboratory's folder and changes one file of it by words.
fn changed(lab: &Lab, from: &str, to: &str, file: &str, change: impl Fn(String) -> String) {
    let (from, to) = (lab.path(from), lab.path(to));
    copy(&from, &to);
    let text = std::fs::read_to_string(to.join(file)).unwrap();
    std::fs::write(to.join(file), change(text)).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let lab = Lab::new(2);
    lab.succeeds(&["fit", "load", "server"]);
    lab.succeeds(&["fit", "load", "server"]);
    lab.fails(&["report"], &["required arguments", "report [OPTIONS] <RUN>... [MODEL]"]);
    lab.fails(&["report", "load", "model.toml", "model.toml"], &["2 model files", "one is needed"]);
    std::fs::write(lab.path("notes.txt"), "mine").unwrap();
    lab.fails(&["fit", "load", "server", "--out", "notes.txt"], &["is another kind of file"]);
    assert_eq!(std::fs::read_to_string(lab.path("notes.txt")).unwrap(), "mine");
    lab.fails(&["predict", "notes.txt"], &["notes.txt", "not a usable model"]);
    lab.fails(&["predict", "load"], &["it is a folder"]);
    lab.fails(&["predict", "model.toml", "--rate", "-5"], &["requests/s above 0"]);
    lab.fails(&["predict", "model.toml", "--rate", "NaN"], &["requests/s above 0"]);
    lab.fails(
        &["predict", "model.toml", "--rate", "1e308"],
        &["invalid load `1e308`", "at most 1e12"],
    );
    lab.fails(&["predict", "model.toml", "--within", "50"], &["with its unit"]);
    lab.fails(&["predict", "model.toml", "--objective", "fast"], &["99% within 50ms"]);
    lab.fails(&["predict", "model.toml", "--servers", "0"], &["servers"]);
    let never = lab.succeeds(&["predict", "model.toml", "--objective", "99.999% within 1ms"]);
    assert!(never.contains("No load meets 99.999 % within 1 ms"), "{never}");
    let text = std::fs::read_to_string(lab.path("model.toml")).unwrap();
    std::fs::write(lab.path("bent.toml"), text.replacen("value = ", "value = nan # ", 1)).unwrap();
    lab.fails(&["predict", "bent.toml"], &["bent.toml"]);
}

#[test]
fn runs_that_cannot_be_fitted_are_refused_by_name() {
    let lab = Lab::new(2);
    lab.fails(&["fit"], &["RUN"]);
    lab.fails(&["fit", "nowhere"], &["nowhere is not a run folder: it does not exist"]);
    lab.fails(&["fit", "load"], &["load has windows of device queues", "give the server's run"]);
    lab.fails(&["fit", "server"], &["none of server is a run of the load generator"]);
    lab.fails(&["fit", "load", "server", "load"], &["list each run once"]);
    lab.fails(&["fit", "load", "server", "--steps", "9"], &["no step 9", "0 (1000/s)"]);
    lab.fails(&["fit", "load", "server", "--steps", "77/s"], &["no step of 77/s"]);
    lab.fails(&["fit", "load", "server", "--steps", "x"], &["invalid step"]);

    let other = |text: String| text.replace("cores = 2", "cores = 64");
    changed(&lab, "server", "elsewhere", "run.toml", other);
    lab.fails(
        &["fit", "load", "elsewhere"],
        &["different machines", "64 cores", "--across-machines"],
    );
    lab.succeeds(&["fit", "load", "elsewhere", "--across-machines", "--out", "across.toml"]);
    let second =
        |text: String| text.replace("start_unix_us = 1760000000", "start_unix_us = 1760000001");
    changed(&lab, "server", "second", "run.toml", second);
    lab.fails(&["fit", "load", "server", "second"], &["both", "one server at a time"]);
    changed(&lab, "load", "killed", "steps", |_| String::new());
    lab.fails(&["fit", "killed", "server"], &["killed has no finished step"]);
    let later = |text: String| text.replace("_unix_us\":1760000", "_unix_us\":1770000");
    changed(&lab, "load", "later", "steps", later);
    lab.fails(&["fit", "later", "server"], &["step later#0", "no windows of clients", "before it"]);
    let broken = |text: String| text.replacen("{", "{{", 3);
    changed(&lab, "server", "broken", "windows", broken);
    lab.fails(&["fit", "load", "broken"], &["broken/windows, line 1"]);
    let huge = |text: String| text.replacen("\"arrivals\":", "\"arrivals\":9999999999999999", 1);
    changed(&lab, "server", "huge", "windows", huge);
    lab.fails(&["fit", "load", "huge"], &["huge", "impossibly large", "damaged"]);
    let reversed = |text: String| text.replace("\"end_unix_us\":176", "\"end_unix_us\":156");
    changed(&lab, "load", "reversed", "steps", reversed);
    lab.fails(&["fit", "reversed", "server"], &["ends before it begins"]);
}

#[test]
fn devices_and_pipes_are_not_read_as_files() {
    let lab = Lab::new(2);
    lab.succeeds(&["fit", "load", "server"]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        lab.path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    std::fs::create_dir(lab.path("piped")).unwrap();
    std::fs::rename(lab.path("pipe"), lab.path("piped/run.toml")).unwrap();
    for (args, words) in [
        (&["predict", "/dev/zero"][..], "cannot read the model /dev/zero: it is a device"),
        (&["predict", "piped/run.toml"], "it is a pipe, not a regular file"),
        (
            &["predict", "--cluster", "/dev/zero"],
            "cannot read the cluster /dev/zero: it is a device",
        ),
        (
            &["predict", "model.toml", "--plot", "piped/run.toml"],
            "cannot write piped/run.toml: it is a pipe",
        ),
        (&["network", "/dev/zero"], "it is a device"),
        (&["capacity", "/dev/zero"], "it is a device"),
        (&["check", "piped"], "cannot read piped/run.toml: it is a pipe"),
    ] {
        lab.fails(args, &[words]);
    }
}
