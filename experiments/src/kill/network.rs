//! A network of its own: every process in a network namespace, all on one bridge, each can be cut
//! off.
//!
//! Addresses come from 198.18.0.0/15, which is set aside for measuring (RFC 2544). Names begin with
//! `concertina-kill-PID-` (namespaces) and `ckPID` (links). All is removed when the network is
//! dropped; what an experiment left behind that was killed itself is removed by the next, processes
//! included.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

const PREFIX: &str = "concertina-kill-";
/// The port that every process listens on.
const PORT: u16 = 7070;

/// The bridge and its namespaces.
pub struct Network {
    pid: u32,
    subnet: u8,
    count: u8,
}

impl Network {
    /// Makes `count` namespaces that reach each other and this process.
    ///
    /// # Errors
    /// If this is not root, or has no iproute2, or the kernel no namespaces.
    pub fn make(count: u8) -> anyhow::Result<Network> {
        if !rustix::process::geteuid().is_root() {
            bail!("this experiment cuts processes off by network namespaces: run it as root");
        }
        remove_leftovers()?;
        let pid = std::process::id();
        let taken = ip(&["-o", "-4", "address", "show"])?;
        let is_free = |subnet: &u8| !taken.contains(&format!(" 198.18.{subnet}."));
        let first = (pid % 256) as u8;
        let mut subnets = (0..=255).map(|i: u8| first.wrapping_add(i));
        let subnet = subnets.find(is_free).context("all of 198.18.0.0/16 is in use here")?;
        // From here on, what was made is removed when this is dropped.
        let network = Network { pid, subnet, count };
        let bridge = network.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])
            .context("cannot make a bridge (does this kernel, or container, allow it?)")?;
        let own = format!("198.18.{subnet}.254/24");
        ip(&["address", "add", &own, "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for member in 0..count {
            let (namespace, link) = (network.namespace(member), network.link(member));
            ip(&["netns", "add", &namespace])
                .context("cannot make a network namespace (is this container allowed to?)")?;
            let pair = ["type", "veth", "peer", "name", "eth0", "netns", &namespace];
            ip(&[&["link", "add", link.as_str()][..], &pair].concat())?;
            ip(&["link", "set", &link, "master", &bridge, "up"])?;
            let address = format!("{}/24", network.address(member).ip());
            ip(&["-n", &namespace, "address", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &namespace, "link", "set", "eth0", "up"])?;
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        }
        Ok(network)
    }

    fn bridge(&self) -> String {
        format!("ck{}", self.pid)
    }

    /// The outer end of a member's link.
    fn link(&self, member: u8) -> String {
        format!("ck{}n{member}", self.pid)
    }

    /// The name of a member's namespace.
    pub fn namespace(&self, member: u8) -> String {
        format!("{PREFIX}{}-{member}", self.pid)
    }

    /// Where a member listens.
    pub fn address(&self, member: u8) -> SocketAddr {
        (Ipv4Addr::new(198, 18, self.subnet, member + 1), PORT).into()
    }

    /// An address of this process on the bridge, which every member reaches.
    pub fn outer_address(&self, port: u16) -> String {
        format!("198.18.{}.254:{port}", self.subnet)
    }

    /// A command that runs in a member's namespace, in the same process.
    pub fn command(&self, member: u8, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace(member)]).arg(program);
        command
    }

    /// Cuts a member off: what is on its way to it or from it is lost, silently.
    ///
    /// # Errors
    /// If the link cannot be changed.
    pub fn cut(&self, member: u8) -> anyhow::Result<()> {
        ip(&["link", "set", &self.link(member), "down"]).map(|_| ())
    }

    /// Connects it again.
    ///
    /// # Errors
    /// If the link cannot be changed.
    pub fn connect(&self, member: u8) -> anyhow::Result<()> {
        ip(&["link", "set", &self.link(member), "up"]).map(|_| ())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for member in 0..self.count {
            // The outer end of the link goes first: a process that still runs would keep the inner
            // one.
            let _ = ip(&["link", "delete", &self.link(member)]);
            let _ = ip(&["netns", "delete", &self.namespace(member)]);
        }
        let _ = ip(&["link", "delete", &self.bridge()]);
    }
}

/// Removes what experiments made that do not run any more.
fn remove_leftovers() -> anyhow::Result<()> {
    for line in ip(&["netns", "list"])?.lines() {
        let Some(namespace) = line.split_whitespace().next() else { continue };
        let Some((pid, member)) =
            namespace.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'))
        else {
            continue;
        };
        if pid.parse::<u32>().is_err() || Path::new("/proc").join(pid).exists() {
            continue;
        }
        for process in ip(&["netns", "pids", namespace])?.split_whitespace() {
            let process = process.parse().ok().and_then(rustix::process::Pid::from_raw);
            if let Some(process) = process {
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
        }
        let _ = ip(&["link", "delete", &format!("ck{pid}n{member}")]);
        let _ = ip(&["netns", "delete", namespace]);
        let _ = ip(&["link", "delete", &format!("ck{pid}")]);
    }
    Ok(())
}

/// Runs `ip` and gives what it prints.
fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("missing program `ip`: apt-get install iproute2")
        }
        other => other.context("cannot run `ip`")?,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`ip {}` failed: {}", arguments.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
