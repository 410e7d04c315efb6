//! An etcd for the members of a cluster, on the bridge of the experiment's network.

use std::fs::File;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};
use record::clock::now;

use super::interrupt::Interrupt;
use crate::lab;

/// Longest time to its first answer.
const START_S: f64 = 30.0;

/// Where it listens for clients, and for itself.
pub const PORTS: [u16; 2] = [2379, 2380];

/// A process of etcd.
pub struct Etcd {
    child: Child,
    address: String,
    log: PathBuf,
}

impl Etcd {
    /// Starts it, with its data in `folder`, and waits until it listens.
    ///
    /// # Errors
    /// If it is not installed, or does not answer in time.
    pub fn start(
        folder: &Path,
        [address, peer]: [String; 2],
        interrupt: &Interrupt,
    ) -> anyhow::Result<Etcd> {
        let log = folder.join("etcd.log");
        let (client, peer) = (format!("http://{address}"), format!("http://{peer}"));
        let mut command = Command::new("etcd");
        command.args(["--name", "e", "--log-level", "error", "--data-dir"]);
        command.arg(folder.join("etcd"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("e={peer}")]);
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().context("etcd is not installed (.ci/setup installs it)")?;
        let mut etcd = Etcd { child, address, log };
        let until = now() + (START_S * 1e9) as u64;
        while TcpStream::connect(&etcd.address).is_err() {
            if etcd.child.try_wait()?.is_some() || now() > until {
                bail!("etcd does not answer at {}: {}", etcd.address, lab::tail(&etcd.log));
            }
            interrupt.sleep(0.02)?;
        }
        Ok(etcd)
    }

    /// Where clients reach it.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
