//! A private network: every process in its own network namespace, all on one bridge; each link can
//! be cut, and limited to a bandwidth.
//!
//! Addresses come from 198.18.0.0/15, which is reserved for benchmarks (RFC 2544). Names begin with
//! `concertina-lab-PID-` (namespaces) and `ckPID` (links). Everything is removed when the
//! network is dropped. If the experiment itself was killed, the next run removes its remains, processes
//! included.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

const PREFIX: &str = "concertina-lab-";
/// The port that every process listens on.
const PORT: u16 = 7070;

/// The bridge and its namespaces.
pub struct Network {
    pid: u32,
    subnet: u8,
    count: u8,
}

impl Network {
    /// Creates `count` namespaces that reach each other and this process.
    ///
    /// # Errors
    /// Without root, iproute2, or namespaces in the kernel.
    pub fn make(count: u8) -> anyhow::Result<Network> {
        if !rustix::process::geteuid().is_root() {
            bail!("this experiment puts processes into network namespaces: run it as root");
        }
        remove_leftovers()?;
        let pid = std::process::id();
        let taken = ip(&["-o", "-4", "address", "show"])?;
        let is_free = |subnet: &u8| !taken.contains(&format!(" 198.18.{subnet}."));
        let first = (pid % 256) as u8;
        let mut subnets = (0..=255).map(|i: u8| first.wrapping_add(i));
        let subnet = subnets.find(is_free).context("all of 198.18.0.0/16 is in use here")?;
        // From here on, dropping this value removes what was created.
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

    /// Limits what leaves a member to `bits_per_s`, by a token bucket of `burst_bytes`; `None` lifts
    /// the limit. Nothing is dropped before 64 MiB wait.
    ///
    /// A burst below two full packets has the kernel cut large buffers into packets, so that each
    /// is counted with its own headers.
    ///
    /// # Errors
    /// If the kernel has no `tbf`, or `tc` is missing.
    pub fn limit(&self, member: u8, limit: Option<(f64, u32)>) -> anyhow::Result<()> {
        let namespace = self.namespace(member);
        let shown = tc(&["-n", &namespace, "qdisc", "show", "dev", "eth0"])?;
        let device = ["dev", "eth0", "root"];
        match limit {
            None if !shown.contains("tbf") => Ok(()),
            None => tc(&[&["-n", &namespace, "qdisc", "del"][..], &device].concat()).map(|_| ()),
            Some((bits_per_s, burst_bytes)) => {
                let (rate, burst) = (format!("{bits_per_s:.0}bit"), burst_bytes.to_string());
                let own = ["tbf", "rate", &rate, "burst", &burst, "limit", "67108864"];
                tc(&[&["-n", &namespace, "qdisc", "replace"][..], &device, &own].concat())
                    .context("cannot limit a link (does this kernel have tbf?)")
                    .map(|_| ())
            }
        }
    }

    /// Bytes that have left a member, with the headers of their frames.
    ///
    /// # Errors
    /// If the link is gone.
    pub fn sent_bytes(&self, member: u8) -> anyhow::Result<u64> {
        // What the inner end sends, the outer one receives.
        let link = self.link(member);
        let text = std::fs::read_to_string(format!("/sys/class/net/{link}/statistics/rx_bytes"))
            .with_context(|| format!("cannot read the counters of {link}"))?;
        text.trim().parse().with_context(|| format!("unexpected counter of {link}: {text:?}"))
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

fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    run("ip", arguments)
}

fn tc(arguments: &[&str]) -> anyhow::Result<String> {
    run("tc", arguments)
}

/// Runs a program of iproute2 and gives what it prints.
fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("missing program `{program}`: apt-get install iproute2")
        }
        other => other.with_context(|| format!("cannot run `{program}`"))?,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{program} {}` failed: {}", arguments.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
