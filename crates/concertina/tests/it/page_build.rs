//! The page that is committed is the one that `web/` builds, so that a build of the program needs no npm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::left_out::left_out;
use crate::tidy::root;

/// The largest page over the network, compressed.
const COMPRESSED_MAX: usize = 250_000;

/// Where `.ci/setup` lays the packages of `web/`; `None` where it has not.
fn packages() -> Option<PathBuf> {
    let clients = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("clients/web");
    let lock = fs::read(root().join("web/package-lock.json")).ok()?;
    // Those of another version would build another page.
    (fs::read(clients.join("ready")).ok()? == lock).then_some(clients)
}

#[test]
fn the_committed_page_is_what_its_sources_build() {
    let Some(clients) = packages() else {
        let why = "npm's packages are not installed: run .ci/setup";
        return left_out("page_build::the_committed_page", why);
    };
    let folder = tempfile::tempdir().unwrap();
    let web = folder.path().join("web");
    fs::create_dir_all(web.join("src")).unwrap();
    for file in ["build.mjs", "package.json", "test.mjs", "tsconfig.json"] {
        fs::copy(root().join("web").join(file), web.join(file)).unwrap();
    }
    for file in fs::read_dir(root().join("web/src")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), web.join("src").join(file.file_name())).unwrap();
    }
    std::os::unix::fs::symlink(clients.join("node_modules"), web.join("node_modules")).unwrap();
    let run = |program: &Path, args: &[&Path]| {
        let run = Command::new(program).args(args).current_dir(&web).output().unwrap();
        let said = [run.stdout, run.stderr].concat();
        assert!(run.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&said));
    };
    run(&clients.join("node_modules/.bin/tsc"), &[Path::new("--noEmit")]);
    run(Path::new("node"), &[Path::new("--test"), Path::new("test.mjs")]);
    let built = folder.path().join("built");
    let report = folder.path().join("report");
    run(Path::new("node"), &[Path::new("build.mjs"), &built, &report]);
    for (place, built, files) in [
        ("crates/live/src/page", &built, ["page.html", "page.js", "page.css"]),
        ("crates/report/src/page", &report, ["report.js.sha256", "report.js", "report.css"]),
    ] {
        for file in files {
            let committed = fs::read(root().join(place).join(file)).unwrap();
            let same = fs::read(built.join(file)).unwrap() == committed;
            assert!(same, "{place}/{file} is not what web/ builds: run `make web`");
        }
    }
}

#[test]
fn the_page_is_small() {
    let mut all = 0;
    for file in ["page.html", "page.js", "page.css"] {
        let path = root().join("crates/live/src/page").join(file);
        let Ok(run) = Command::new("gzip").arg("-c").arg(&path).output() else {
            return left_out("page_build::the_page_is_small", "gzip is not installed");
        };
        all += run.stdout.len();
    }
    assert!(all > 10_000 && all < COMPRESSED_MAX, "{all} bytes compressed");
}
