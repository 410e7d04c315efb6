//! What a service needs of the machine: one that lacks it is left out of the run, by name.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::services::{Kind, Service, versitygw_program};
use super::{disk, postgres};

/// Whether a program is on the path.
pub(super) fn program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]).any(|f| f.join(name).is_file())
}

/// Why this machine cannot run a service; `None` if nothing is missing.
pub(super) fn lacks(service: &Service) -> Option<String> {
    let all: &[&str] = match service.kind {
        Kind::Static | Kind::Rate | Kind::Dav => &["setpriv", "nginx"],
        Kind::Disk => &["setpriv", "nginx", "fusermount3"],
        Kind::Memcached => &["setpriv", "memcached"],
        Kind::Sqlite | Kind::Compress | Kind::Collapse | Kind::Postgres => &["setpriv", "python3"],
        Kind::Versitygw | Kind::Dataset => &["setpriv"],
    };
    let linked: &[&str] = if service.mbit_per_s.is_some() { &["ip", "tc"] } else { &[] };
    if let Some(missing) = all.iter().chain(linked).find(|name| !program(name)) {
        return Some(format!("{missing} is missing"));
    }
    if service.kind == Kind::Versitygw
        && let Err(error) = versitygw_program()
    {
        return Some(format!("{error:#}"));
    }
    if service.kind == Kind::Postgres
        && let Some(why) = postgres::lacks()
    {
        return Some(why);
    }
    service.disk_mb_per_s.and_then(|_| disk::lacks())
}

/// Whether Python finds a library of C.
pub(super) fn library(name: &str) -> bool {
    let status = Command::new("python3")
        .args(["-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
