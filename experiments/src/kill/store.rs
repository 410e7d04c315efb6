//! The origin of the cluster: a folder on a file system of its own that can lose power, or a bucket of
//! versitygw, a process that can be killed.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::interrupt::Interrupt;
use crate::lab;
use configuration::Config;
use record::clock::now;

/// The kind of origin that a phase of the experiment uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A folder on a loop-mounted ext4.
    Folder,
    /// A bucket of versitygw.
    S3,
}

const BUCKET: &str = "objects";
const ACCESS: &str = "kill-access";
const SECRET: &str = "kill-secret";
/// Longest time to the first answer of the store.
const START_S: f64 = 30.0;
/// `EXT4_IOC_SHUTDOWN`, which file system tests use as a power cut.
const SHUTDOWN: rustix::ioctl::Opcode = 0x8004_587d;
/// `EXT4_GOING_FLAGS_NOLOGFLUSH`: neither data nor journal is flushed first.
const WITHOUT_FLUSH: u32 = 2;

/// The origin.
pub enum Store {
    /// A folder.
    Folder(Volume),
    /// A bucket.
    S3(Gateway),
}

impl Store {
    /// Makes it in `folder`. The cluster reaches a store at `address`.
    ///
    /// # Errors
    /// If it cannot be made; the error says what is missing.
    pub fn make(
        kind: Kind,
        folder: &Path,
        address: &str,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Store> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(match kind {
            Kind::Folder => Store::Folder(Volume::make(folder)?),
            Kind::S3 => Store::S3(Gateway::start(folder, address, interrupt)?),
        })
    }

    /// Enters it into a configuration. The secret goes by [`Store::environment`].
    pub fn configure(&self, config: &mut Config) {
        match self {
            Store::Folder(volume) => config.origin.path = volume.origin(),
            Store::S3(gateway) => {
                config.origin.kind = origin::Kind::S3;
                config.origin.endpoint = Some(format!("http://{}", gateway.address));
                config.origin.bucket = BUCKET.to_owned();
                config.origin.allow_http = true;
            }
        }
    }

    /// What a process needs in its environment to use it.
    pub fn environment(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Store::Folder(_) => &[],
            Store::S3(_) => &[("AWS_ACCESS_KEY_ID", ACCESS), ("AWS_SECRET_ACCESS_KEY", SECRET)],
        }
    }

    /// The bytes of an object as the store's own files have them, without any of our code; `None` for
    /// a folder, whose format is ours.
    pub fn file_of(&self, key: &str) -> Option<PathBuf> {
        match self {
            Store::Folder(_) => None,
            Store::S3(gateway) => Some(gateway.folder.join("data").join(BUCKET).join(key)),
        }
    }
}

/// An ext4 in a file, mounted by a loop device.
pub struct Volume {
    image: PathBuf,
    mount: PathBuf,
    mounted: bool,
}

impl Volume {
    fn make(folder: &Path) -> anyhow::Result<Volume> {
        let (image, mount) = (folder.join("origin.img"), folder.join("volume"));
        let file = File::create(&image).context("cannot make the origin's image")?;
        file.set_len(4 << 30).context("cannot make the origin's image")?;
        drop(file);
        fs::create_dir_all(&mount)?;
        run("mkfs.ext4", &["-q", "-F", &text(&image)])?;
        let mut volume = Volume { image, mount, mounted: false };
        volume.mount()?;
        fs::create_dir(volume.origin())?;
        Ok(volume)
    }

    /// The origin's folder.
    pub fn origin(&self) -> PathBuf {
        self.mount.join("origin")
    }

    fn mount(&mut self) -> anyhow::Result<()> {
        // The journal is written by those who sync, and not by time.
        run("mount", &["-o", "loop,commit=300", &text(&self.image), &text(&self.mount)])?;
        self.mounted = true;
        Ok(())
    }

    /// Moves the folder away.
    ///
    /// # Errors
    /// If it cannot.
    pub fn vanish(&self) -> anyhow::Result<()> {
        fs::rename(self.origin(), self.mount.join("away")).context("cannot move the origin away")
    }

    /// Moves it back.
    ///
    /// # Errors
    /// If it cannot.
    pub fn reappear(&self) -> anyhow::Result<()> {
        fs::rename(self.mount.join("away"), self.origin()).context("cannot move the origin back")
    }

    /// From now on nothing reaches the medium, and what was written and not synced is lost.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn cut_power(&self) -> anyhow::Result<()> {
        let root = File::open(&self.mount)?;
        #[expect(unsafe_code, reason = "an ioctl that rustix has no call for")]
        // SAFETY: EXT4_IOC_SHUTDOWN reads one `u32`, which is what the setter points to.
        let cut = unsafe {
            let setter = rustix::ioctl::Setter::<SHUTDOWN, u32>::new(WITHOUT_FLUSH);
            rustix::ioctl::ioctl(root.as_fd(), setter)
        };
        cut.context("the file system cannot be shut down (ext4 needed)")
    }

    /// Mounts what is on the medium. No process may have a file open.
    ///
    /// # Errors
    /// If it cannot be mounted.
    pub fn power_up(&mut self) -> anyhow::Result<()> {
        run("umount", &[&text(&self.mount)])?;
        self.mounted = false;
        self.mount()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.mounted {
            let _ = run("umount", &["-l", &text(&self.mount)]);
        }
        let _ = fs::remove_file(&self.image);
    }
}

/// A process of versitygw on a folder.
pub struct Gateway {
    folder: PathBuf,
    address: String,
    child: Option<Child>,
}

impl Gateway {
    fn start(folder: &Path, address: &str, interrupt: &Interrupt) -> anyhow::Result<Gateway> {
        fs::create_dir_all(folder.join("data").join(BUCKET))?;
        fs::create_dir_all(folder.join("iam"))?;
        let mut gateway =
            Gateway { folder: folder.to_owned(), address: address.to_owned(), child: None };
        gateway.run()?;
        gateway.wait(interrupt)?;
        Ok(gateway)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let log = self.folder.join("versitygw.log");
        let log = fs::OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = Command::new(program()?);
        command.args(["--port", &self.address, "--access", ACCESS, "--secret", SECRET, "--quiet"]);
        command.arg("--iam-dir").arg(self.folder.join("iam"));
        command.arg("posix").arg(self.folder.join("data"));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        self.child = Some(command.spawn().context("cannot start versitygw")?);
        Ok(())
    }

    /// Kills it.
    ///
    /// # Errors
    /// If it cannot.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Starts it again on the same folder.
    ///
    /// # Errors
    /// If it does not answer in time.
    pub fn restart(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        self.run()?;
        self.wait(interrupt)
    }

    /// Stops it, or lets it go on.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pause(&self, on: bool) -> anyhow::Result<()> {
        let child = self.child.as_ref().context("versitygw does not run")?;
        let signal = if on { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(child), signal).context("cannot send a signal")
    }

    fn wait(&mut self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let until = now() + (START_S * 1e9) as u64;
        while std::net::TcpStream::connect(&self.address).is_err() {
            let log = self.folder.join("versitygw.log");
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if ended.is_some() || now() > until {
                bail!("versitygw does not answer at {}: {}", self.address, lab::tail(&log));
            }
            interrupt.sleep(0.02)?;
        }
        Ok(())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Where `.ci/setup` puts versitygw, or where it is found.
fn program() -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([home.join("go/bin")]);
    let mut files = folders.map(|folder| folder.join("versitygw"));
    files.find(|file| file.is_file()).context("versitygw is not installed (.ci/setup installs it)")
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("missing program `{program}`"),
        other => other.with_context(|| format!("cannot run `{program}`"))?,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{program} {}` failed: {}", arguments.join(" "), said.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// The power cut must lose what was not synced and keep what was: without the first, the experiment
    /// could not fail.
    #[test]
    fn a_power_cut_loses_what_was_not_synced_and_nothing_else() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounting takes root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut volume = match Volume::make(folder.path()) {
            Ok(volume) => volume,
            Err(error) => {
                eprintln!("skipped: {error:#}");
                return;
            }
        };
        let origin = volume.origin();
        File::open(folder.path().join("volume")).unwrap().sync_all().unwrap();
        let put = |name: &str, sync: bool| {
            let mut file = File::create(origin.join("temporary")).unwrap();
            file.write_all(&[7; 5000]).unwrap();
            if sync {
                file.sync_all().unwrap();
            }
            fs::rename(origin.join("temporary"), origin.join(name)).unwrap();
            if sync {
                File::open(&origin).unwrap().sync_all().unwrap();
            }
        };
        put("synced", true);
        put("not-synced", false);
        assert!(origin.join("not-synced").exists());
        volume.cut_power().unwrap();
        assert!(File::create(origin.join("after")).is_err());
        volume.power_up().unwrap();
        assert_eq!(fs::read(origin.join("synced")).unwrap(), [7; 5000]);
        assert!(!origin.join("not-synced").exists(), "the cut kept what was not synced");
    }
}
