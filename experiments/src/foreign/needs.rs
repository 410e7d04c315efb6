//! What a service needs of the machine: one that lacks it is left out of the run, by name.

use super::disk;
use super::installed::program;
use super::postgres;
use super::services::{Kind, Service, versitygw_program};

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
