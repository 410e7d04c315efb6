//! The systems that are compared.

/// The systems of one size of objects, by their numbers.
pub(super) const NAMES: [&str; 10] = [
    "ceiling",
    "nginx static",
    "node",
    "nginx proxy_cache",
    "gateway + node",
    "raw relay + ceiling",
    "bare hyper",
    "raw io_uring",
    "Varnish",
    "HAProxy cache",
];

pub(super) const CEILING: usize = 0;

pub(super) const NGINX: usize = 1;

pub(super) const NODE: usize = 2;

pub(super) const PROXY_CACHE: usize = 3;

pub(super) const GATEWAY: usize = 4;

pub(super) const RELAY: usize = 5;

pub(super) const HYPER: usize = 6;

pub(super) const URING: usize = 7;

pub(super) const VARNISH: usize = 8;

pub(super) const HAPROXY: usize = 9;

/// The name of a system of any size.
pub(super) fn name_of(sizes: &[u64], system: usize) -> String {
    let size = sizes.get(system / NAMES.len()).copied().unwrap_or_default();
    format!("{} KiB {}", size / 1024, NAMES[system % NAMES.len()])
}
