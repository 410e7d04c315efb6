//! Further caches in front of a store, where they are installed: Varnish and HAProxy.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use super::super::lab;
use super::peers::Peer;

/// The first line that a program says of its version; `None` if it is not installed.
pub fn version(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    said.lines().next().map(|line| line.trim().to_owned())
}

fn port_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(_, port)| port)
}

/// Varnish before `upstream`, with objects in memory. It has a thread for each connection; the processor time
/// is that of its worker process.
pub fn varnish(scratch: &Path, upstream: &str) -> anyhow::Result<Peer> {
    let address = lab::free_address()?;
    let folder = scratch.join("varnish");
    std::fs::create_dir_all(&folder)?;
    let configuration = folder.join("default.vcl");
    std::fs::write(
        &configuration,
        format!(
            "vcl 4.1;\nbackend default {{ .host = \"127.0.0.1\"; .port = \"{}\"; }}\n\
             sub vcl_backend_response {{ set beresp.ttl = 1h; }}\n",
            port_of(upstream)
        ),
    )?;
    let mut command = Command::new("varnishd");
    command.args(["-F", "-j", "none", "-a", &address, "-s", "malloc,1G", "-n"]);
    command.arg(folder.join("work")).arg("-f").arg(&configuration);
    let mut peer = Peer::start("varnishd", command, &address, "/o/%d", &folder.join("log"))?;
    let manager = peer.target.processes.first().copied().unwrap_or_default();
    let worker = procfs::process::all_processes()?
        .filter_map(Result::ok)
        .find(|process| process.stat().is_ok_and(|stat| stat.ppid == manager));
    peer.target.processes = vec![worker.context("varnishd has no worker")?.pid];
    Ok(peer)
}

/// HAProxy before `upstream`, with its cache and one thread.
pub fn haproxy(scratch: &Path, upstream: &str, bytes: u64) -> anyhow::Result<Peer> {
    let address = lab::free_address()?;
    let folder = scratch.join("haproxy");
    std::fs::create_dir_all(&folder)?;
    let configuration = folder.join("haproxy.cfg");
    std::fs::write(
        &configuration,
        format!(
            "global\n nbthread 1\n maxconn 4000\n\
             defaults\n mode http\n timeout client 60s\n timeout server 60s\n timeout connect 5s\n\
             cache objects\n total-max-size 512\n max-object-size {}\n max-age 3600\n\
             frontend f\n bind {address}\n http-request cache-use objects\n http-response cache-store objects\n \
             default_backend b\n\
             backend b\n http-response set-header Cache-Control max-age=3600\n server s {upstream}\n",
            bytes + 4096
        ),
    )?;
    let mut command = Command::new("haproxy");
    command.args(["-db", "-f"]).arg(&configuration);
    Peer::start("haproxy", command, &address, "/o/%d", &folder.join("log"))
}
