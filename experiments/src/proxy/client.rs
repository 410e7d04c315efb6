//! The load client of `experiments/proxy`, and what one slice is.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::super::machine::threads_s;
use super::kind::Kind;

/// Where a slice's requests go, and whose processor time is counted.
#[derive(Clone, Debug)]
pub struct Target {
    pub port: u16,
    /// The proxy's process.
    pub proxy: i32,
    /// The processes of the servers behind it.
    pub servers: Vec<i32>,
}

/// The load of one slice.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub kind: Kind,
    pub connections: u32,
    pub keys: u64,
    pub value_bytes: u64,
    pub multi_get_keys: u32,
    pub set_percent: u32,
    /// Poisson arrivals, requests/s; `None`: a closed loop.
    pub rate: Option<f64>,
    pub warmup_s: f64,
    pub measure_s: f64,
}

/// One slice of one system.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Slice {
    /// Requests/s.
    pub rate: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    /// Processor time of the proxy for each request, user and system.
    pub proxy_us: f64,
    /// That of all servers behind it.
    pub servers_us: f64,
    /// That of the client.
    pub client_us: f64,
    /// Shares of a processor that these three used.
    pub proxy_busy: f64,
    pub servers_busy: f64,
    pub client_busy: f64,
}

/// What the load client prints.
#[derive(Deserialize)]
struct Counts {
    ops_all: u64,
    rps: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    err: u64,
    miss: u64,
    loader_cpu_us_per_op: f64,
}

/// Loads a system for one slice. Every key must be found.
pub fn measure(program: &Path, target: &Target, load: &Load) -> anyhow::Result<Slice> {
    let used = |processes: &[i32]| -> anyhow::Result<f64> {
        processes.iter().map(|&process| threads_s(process)).sum()
    };
    let proxy = [target.proxy];
    let (proxy_before, servers_before) = (used(&proxy)?, used(&target.servers)?);
    let start = Instant::now();
    let mut command = Command::new(program);
    command
        .args(["-t", "1", "-m", load.kind.mode(), "-p", &target.port.to_string()])
        .args(["-c", &load.connections.to_string(), "-n", &load.keys.to_string()])
        .args(["-v", &load.value_bytes.to_string(), "-k", &load.multi_get_keys.to_string()])
        .args(["-x", &load.set_percent.to_string(), "-s", &load.measure_s.to_string()])
        .args(["-w", &load.warmup_s.to_string()]);
    if let Some(rate) = load.rate {
        command.args(["-r", &rate.to_string()]);
    }
    let output = command.output().context("cannot start the load client")?;
    let seconds = start.elapsed().as_secs_f64();
    let (proxy, servers) = (used(&proxy)? - proxy_before, used(&target.servers)? - servers_before);
    let text = String::from_utf8_lossy(&output.stdout);
    let port = target.port;
    let counts: Counts = serde_json::from_str(&text).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("the load client failed at port {port}: {errors}")
    })?;
    ensure!(counts.ops_all > 0, "port {port} answered no request within a slice");
    ensure!(counts.err == 0, "port {port} answered {} requests with an error", counts.err);
    ensure!(counts.miss == 0, "{} keys were not found at port {port}", counts.miss);
    let each = |s: f64| s * 1e6 / counts.ops_all as f64;
    let client = counts.loader_cpu_us_per_op * 1e-6 * counts.ops_all as f64;
    Ok(Slice {
        rate: counts.rps,
        p50_us: counts.p50_us,
        p99_us: counts.p99_us,
        p999_us: counts.p999_us,
        proxy_us: each(proxy),
        servers_us: each(servers),
        client_us: counts.loader_cpu_us_per_op,
        proxy_busy: proxy / seconds,
        servers_busy: servers / seconds,
        client_busy: client / seconds,
    })
}

/// Share of a processor from which on it is the limit. Starting and ending the client takes a share
/// of every slice, in which nobody works.
const FULL: f64 = 0.85;

impl Slice {
    /// The resource that limits a slice.
    pub fn limit(&self, apart: bool) -> &'static str {
        let behind = self.proxy_busy + self.servers_busy;
        match (self.client_busy >= FULL, behind >= FULL) {
            _ if !apart => "processors (shared)",
            (true, true) => "both processors",
            (true, false) => "client's processor",
            (false, true) if self.proxy_busy >= self.servers_busy => {
                "proxy's share of its processor"
            }
            (false, true) => "servers' share of their processor",
            (false, false) => "waiting for each other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_processor_is_the_limit() {
        let busy = |client_busy, proxy_busy, servers_busy| {
            Slice { client_busy, proxy_busy, servers_busy, ..Slice::default() }.limit(true)
        };
        assert_eq!(busy(0.9, 0.3, 0.2), "client's processor");
        assert_eq!(busy(0.4, 0.6, 0.35), "proxy's share of its processor");
        assert_eq!(busy(0.4, 0.3, 0.6), "servers' share of their processor");
        assert_eq!(busy(0.9, 0.6, 0.3), "both processors");
        assert_eq!(busy(0.5, 0.3, 0.3), "waiting for each other");
    }
}
