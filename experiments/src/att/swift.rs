//! OpenStack Swift of Debian's packages: a proxy, an object, a container and an account server with three
//! replicas of everything in three folders, and memcached, which the proxy asks for containers.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::lab;

/// Replicas, each in a folder of its own.
const REPLICAS: usize = 3;
/// Partitions of a ring, as a power of two.
const PARTITIONS: &str = "6";
const SERVERS: [&str; 3] = ["object", "container", "account"];
/// The path of the objects.
pub(super) const PREFIX: &str = "/v1/AUTH_test/objects/";

/// The processes; they end with this, or with the experiment.
pub(super) struct Swift {
    pub url: String,
    processes: Vec<(Child, PathBuf)>,
}

impl Drop for Swift {
    fn drop(&mut self) {
        for (child, _) in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Swift {
    /// Starts all servers with their files below a folder whose file system has extended attributes.
    pub fn start(folder: &Path) -> anyhow::Result<Swift> {
        fs::create_dir_all(folder)?;
        let path = |p: &Path| p.display().to_string();
        for replica in 1..=REPLICAS {
            fs::create_dir_all(folder.join(format!("node/d{replica}")))?;
        }
        let (proxy, cache) = (port()?, port()?);
        let common = |port: u16| {
            format!(
                "[DEFAULT]\nbind_ip = 127.0.0.1\nbind_port = {port}\nworkers = 0\nuser = root\nswift_dir = {}\nlog_level = \
                 ERROR\n",
                folder.display()
            )
        };
        let mut swift = Swift { url: format!("http://127.0.0.1:{proxy}"), processes: Vec::new() };
        let cached = ["-u", "root", "-l", "127.0.0.1", "-p", &cache.to_string()].map(str::to_owned);
        swift.spawn(folder, "memcached", &cached)?;
        for server in SERVERS {
            let port = port()?;
            ring(folder, server, port)?;
            let text = format!(
                "{}devices = {}\nmount_check = false\n[pipeline:main]\npipeline = {server}-server\n[app:{server}-server]\nuse \
                 = egg:swift#{server}\n",
                common(port),
                path(&folder.join("node"))
            );
            let file = folder.join(format!("{server}.conf"));
            fs::write(&file, text)?;
            swift.spawn(folder, &format!("swift-{server}-server"), &[path(&file)])?;
        }
        let text = format!(
            "{}[pipeline:main]\npipeline = catch_errors cache listing_formats proxy-server\n[app:proxy-server]\nuse = \
             egg:swift#proxy\naccount_autocreate = true\n[filter:catch_errors]\nuse = egg:swift#catch_errors\n\
             [filter:cache]\nuse = egg:swift#memcache\nmemcache_servers = 127.0.0.1:{cache}\n[filter:listing_formats]\nuse = \
             egg:swift#listing_formats\n",
            common(proxy)
        );
        let file = folder.join("proxy.conf");
        fs::write(&file, text)?;
        swift.spawn(folder, "swift-proxy-server", &[path(&file)])?;
        let until = Instant::now() + Duration::from_secs(60);
        while !made(proxy) {
            swift.check()?;
            ensure!(Instant::now() < until, "Swift made no container: {}", swift.logs());
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(swift)
    }

    fn spawn(&mut self, folder: &Path, program: &str, arguments: &[String]) -> anyhow::Result<()> {
        let log = folder.join(format!("{program}.log"));
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", program])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| {
                format!("cannot start {program} (Debian: swift-proxy, swift-object …)")
            })?;
        self.processes.push((child, log));
        Ok(())
    }

    fn logs(&self) -> String {
        self.processes.iter().map(|(_, log)| lab::tail(log)).collect()
    }

    /// The processes.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|(child, _)| child.id()).collect()
    }

    /// An error if a server does not run any more.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for (child, log) in &mut self.processes {
            if let Some(status) = child.try_wait()? {
                anyhow::bail!("a server of Swift ended ({status}): {}", lab::tail(log));
            }
        }
        Ok(())
    }
}

/// Which server has which partition.
fn ring(folder: &Path, server: &str, port: u16) -> anyhow::Result<()> {
    let builder = folder.join(format!("{server}.builder")).display().to_string();
    let run = |arguments: &[&str]| -> anyhow::Result<()> {
        let mut command = Command::new("swift-ring-builder");
        let output = command.arg(&builder).args(arguments).stdin(Stdio::null()).output();
        let output = output.context("cannot run swift-ring-builder (Debian: swift)")?;
        // 1 is a warning.
        ensure!(
            output.status.code().is_some_and(|c| c <= 1),
            "swift-ring-builder {arguments:?} failed"
        );
        Ok(())
    };
    run(&["create", PARTITIONS, &REPLICAS.to_string(), "1"])?;
    for replica in 1..=REPLICAS {
        run(&["add", &format!("r1z{replica}-127.0.0.1:{port}/d{replica}"), "1"])?;
    }
    run(&["rebalance"])
}

/// Puts the container; whether it is there.
fn made(port: u16) -> bool {
    let put = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let path = PREFIX.trim_end_matches('/');
        write!(
            stream,
            "PUT {path} HTTP/1.1\r\nHost: swift\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )?;
        let mut text = [0u8; 16];
        let n = stream.read(&mut text)?;
        Ok(String::from_utf8_lossy(&text[..n]).into_owned())
    };
    put().is_ok_and(|reply| reply.starts_with("HTTP/1.1 20"))
}
