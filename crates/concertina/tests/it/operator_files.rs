//! Files that an operator names: a device, a pipe, a folder or a file that is far too large is refused at once and by name,
//! whichever option names it.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// More than is read of any file but a run folder's: a sparse file, which takes no room.
const TOO_LARGE: u64 = 16 << 30;
/// Longer than any of these commands takes to refuse a file, on a slow machine.
const SOON: Duration = Duration::from_secs(90);

/// Each option, as a command with `FILE` in the place of the file, and `GOOD` in that of an empty one.
const OPTIONS: &[&str] = &[
    "config --config FILE",
    "config check FILE",
    "config check --config FILE",
    "serve --config FILE",
    "doctor --config FILE",
    "simulate --rate 10 --config FILE",
    "serve --set device.0.service={kind=\"empirical\",file=\"FILE\"}",
    "serve --set serve.tls_certificate=FILE --set serve.tls_key=GOOD",
    "serve --set serve.tls_certificate=GOOD --set serve.tls_key=FILE",
    "serve --set cluster.token=t --set cluster.tls_ca=FILE --set cluster.tls_certificate=GOOD \
     --set cluster.tls_key=GOOD --set cluster.name=a --set member.0.name=a --set member.0.address=127.0.0.1:7",
    "serve --set s3.listen=127.0.0.1:0 --set s3.keys=FILE",
    "serve --set s3.listen=127.0.0.1:0 --set s3.keys=GOOD --set s3.master_key=FILE",
    "serve --set membership.kind=etcd --set membership.endpoints=[\"https://127.0.0.1:7\"] \
     --set membership.address=127.0.0.1:0 --set membership.tls_ca=FILE --set cluster.name=a \
     --set membership.address=127.0.0.1:7 --set membership.start_s=1",
    "serve --set serve.role=proxy --set pool.0.servers=[\"127.0.0.1:7\"] --set pool.0.tls=true --set pool.0.tls_ca=FILE",
    "keys check FILE",
    "keys check GOOD --master FILE",
    "keys seal FILE --master MASTER",
    "keys seal GOOD --master FILE",
    "keys seal GOOD --master MASTER --previous FILE",
    "keys token --file FILE",
    "load http://127.0.0.1:7 --clients 1 --token-file FILE",
    "load http://127.0.0.1:7 --clients 1 --bearer-file FILE",
    "load http://127.0.0.1:7 --clients 1 --cookie-file FILE",
    "load http://127.0.0.1:7 --clients 1 --header @FILE",
    "load http://127.0.0.1:7 --clients 1 --body @FILE",
    "load http://127.0.0.1:7 --clients 1 --requests FILE",
    "load https://127.0.0.1:7 --clients 1 --ca-file FILE",
    "load s3://b?endpoint=http://127.0.0.1:7 --clients 1 --credentials FILE",
    "load http://127.0.0.1:7 --rate 1 --trace FILE",
    "status --token-file FILE",
    "cluster apply FILE",
    "predict FILE --rate 1",
    "predict --cluster FILE --rate 1",
    "plan FILE --choices GOOD --rate 1 --objective 99%~within~50ms",
    "network FILE",
    "capacity FILE",
    "factors FILE --response x",
    "tiers FILE --memory 1MB --hot 1MB",
    "import --out OUT --iostat FILE",
    "import --out OUT --prometheus FILE",
    "data import FILE --format files --name n --folder OUT",
];

/// Files that are documented as streams may be pipes; devices and folders they are not.
const STREAMS: &[&str] = &[
    "data import FILE --name n --folder OUT",
    "data import FILE --format lines --name n --folder OUT",
    "data append n FILE --folder DATASETS",
    "import --out OUT --access-log FILE",
];

/// The words of a pattern with the paths of a folder.
fn words(pattern: &str, file: &Path, folder: &Path) -> Vec<String> {
    let path = |name: &str| folder.join(name).display().to_string();
    let filled = |word: &str| {
        word.replace('~', " ")
            .replace("FILE", &file.display().to_string())
            .replace("GOOD", &path("good"))
            .replace("MASTER", &path("master"))
            .replace("DATASETS", &path("datasets"))
            .replace("OUT", &path("out"))
    };
    pattern.split_whitespace().map(filled).collect()
}

/// What a command prints on standard error and whether it succeeded; `None` if it does not end soon.
fn ended(mut child: Child) -> Option<(bool, String)> {
    let until = Instant::now() + SOON;
    while Instant::now() < until {
        if child.try_wait().unwrap().is_some() {
            let output = child.wait_with_output().unwrap();
            return Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

fn refused(pattern: &str, file: &Path, folder: &Path, why: &[&str]) {
    let child = Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args(words(pattern, file, folder))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let place = file.display().to_string();
    let Some((succeeded, told)) = ended(child) else {
        panic!("{pattern}: {place} is still being read after {SOON:?}");
    };
    assert!(!succeeded, "{pattern}: {place} is accepted: {told}");
    assert!(told.contains(&place), "{pattern}: the error does not name {place}: {told}");
    assert!(why.iter().any(|why| told.contains(why)), "{pattern}: {place}: {told}");
}

fn prepared() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let made = Command::new("mkfifo").arg(path("pipe")).status().unwrap();
    assert!(made.success());
    fs::create_dir(path("folder")).unwrap();
    File::create(path("large")).unwrap().set_len(TOO_LARGE).unwrap();
    fs::write(path("good"), "").unwrap();
    fs::write(path("master"), "0123456789abcdef".repeat(4)).unwrap();
    for name in ["good", "master", "large", "pipe"] {
        fs::set_permissions(path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    folder
}

#[test]
fn what_is_not_a_file_of_a_sensible_size_is_refused_by_every_option() {
    let folder = prepared();
    let path = |name: &str| folder.path().join(name);
    for pattern in OPTIONS {
        refused(pattern, Path::new("/dev/zero"), folder.path(), &["it is a device"]);
        refused(pattern, &path("pipe"), folder.path(), &["it is a pipe"]);
        refused(pattern, &path("folder"), folder.path(), &["it is a folder"]);
        // Of a trace, rows are read as they come, and the first is none.
        let large: &[&str] = if pattern.contains("--trace") || pattern.starts_with("tiers") {
            &["line 1"]
        } else {
            &["it is larger than", "longer than"]
        };
        refused(pattern, &path("large"), folder.path(), large);
    }
}

#[test]
fn a_stream_is_neither_a_device_nor_a_folder() {
    let folder = prepared();
    let program = env!("CARGO_BIN_EXE_concertina");
    fs::write(folder.path().join("lines"), "one\n").unwrap();
    let made = Command::new(program)
        .args(["data", "import", "lines", "--name", "n", "--folder", "datasets"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    for pattern in STREAMS {
        refused(pattern, Path::new("/dev/zero"), folder.path(), &["it is a device"]);
        refused(pattern, &folder.path().join("folder"), folder.path(), &["it is a folder"]);
    }
    // A pipe somebody writes to is read.
    let pipe = folder.path().join("pipe");
    let writer = std::thread::spawn(move || fs::write(pipe, "two\n").unwrap());
    let child = Command::new(program)
        .args(words(STREAMS[2], &folder.path().join("pipe"), folder.path()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (succeeded, told) = ended(child).expect("the pipe is read to its end");
    assert!(succeeded, "{told}");
    writer.join().unwrap();
}
