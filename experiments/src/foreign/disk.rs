//! A disk that the kernel's I/O controller throttles: a loop device with a file system, and a control group whose reads
//! of that device are limited. Both versions of the controller's interface are supported: `blkio.throttle` of version 1
//! and `io.max` of version 2.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::memory_group::MemoryGroup;

/// Where control groups are: of version 2, and the I/O controller's of version 1.
const UNIFIED: &str = "/sys/fs/cgroup";
const CONTROLLER: &str = "/sys/fs/cgroup/blkio";
/// The name of a group without the process that made it.
const PREFIX: &str = "concertina-foreign-";
/// How much the device reads ahead for readers through the page cache, KiB: whole objects.
const READ_AHEAD_KIB: u32 = 1024;

/// A mounted file system on a loop device, and the group whose reads of it are throttled.
pub(crate) struct Throttled {
    group: Group,
    disk: Loop,
    bytes_per_s: u64,
    memory: Option<u64>,
}

impl Throttled {
    /// Makes a disk of `bytes`, mounted below `folder`. Reads are not limited before [`Throttled::throttle`]. With
    /// `memory`, processes of the group and the page cache that they use are limited to that many bytes then.
    pub fn start(
        folder: &Path,
        bytes: u64,
        bytes_per_s: u64,
        memory: Option<u64>,
    ) -> anyhow::Result<Throttled> {
        let group = Group::new(memory.is_some())?;
        Ok(Throttled { group, disk: Loop::start(folder, bytes)?, bytes_per_s, memory })
    }

    /// Where it is mounted.
    pub fn mount(&self) -> &Path {
        &self.disk.mount
    }

    /// Puts a process into the group.
    pub fn add(&self, pid: u32) -> anyhow::Result<()> {
        self.group.add(pid)
    }

    /// Limits the reads of the group's processes from now on.
    pub fn throttle(&self) -> anyhow::Result<()> {
        // What was filled must not be written while reads are measured.
        run("sync", &["-f".as_ref(), self.disk.mount.as_ref()])?;
        self.group.limit(&self.disk.number, self.bytes_per_s)?;
        match (&self.group.memory, self.memory) {
            (Some(group), Some(bytes)) => group.limit(bytes),
            _ => Ok(()),
        }
    }
}

/// Why there is no throttled disk on this machine.
pub(super) fn lacks() -> Option<String> {
    let missing =
        ["losetup", "mkfs.ext4", "mount"].into_iter().find(|p| !super::installed::program(p));
    if let Some(program) = missing {
        return Some(format!("{program} is missing"));
    }
    Group::new(false).err().map(|error| format!("{error:#}"))
}

/// A file system on a loop device.
struct Loop {
    mount: PathBuf,
    /// The device's numbers, `7:1`.
    number: String,
}

impl Loop {
    fn start(folder: &Path, bytes: u64) -> anyhow::Result<Loop> {
        let (image, mount) = (folder.join("disk.img"), folder.join("mount"));
        fs::create_dir_all(&mount)?;
        // Written, so that the file behind the device is in the page cache of this process: the throttle is to be the
        // disk, and not the disk of the machine.
        let mut file = fs::File::create(&image)?;
        let zeros = vec![0; 1 << 20];
        for _ in 0..bytes.div_ceil(1 << 20) {
            file.write_all(&zeros)?;
        }
        drop(file);
        let quiet = ["-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=0"];
        let quiet = quiet.iter().map(AsRef::as_ref);
        run("mkfs.ext4", &quiet.chain([image.as_ref()]).collect::<Vec<_>>())?;
        let device = run("losetup", &["--find".as_ref(), "--show".as_ref(), image.as_ref()])?;
        let mounted = mount_device(&device, &mount);
        // The device goes with the mount, or now.
        run("losetup", &["--detach".as_ref(), device.as_ref()])?;
        let number = mounted?;
        Ok(Loop { mount, number })
    }
}

/// Mounts a loop device. Returns its numbers.
fn mount_device(device: &str, mount: &Path) -> anyhow::Result<String> {
    run("mount", &["-o".as_ref(), "noatime".as_ref(), device.as_ref(), mount.as_ref()])?;
    let name = device.rsplit('/').next().unwrap_or_default();
    let block = Path::new("/sys/block").join(name);
    let ahead = block.join("queue/read_ahead_kb");
    fs::write(&ahead, READ_AHEAD_KIB.to_string())
        .with_context(|| format!("cannot write {}", ahead.display()))?;
    let number = fs::read_to_string(block.join("dev"))?;
    Ok(number.trim().to_owned())
}

impl Drop for Loop {
    fn drop(&mut self) {
        for lazy in [false, true] {
            let mut command = Command::new("umount");
            command.args(lazy.then_some("-l")).arg(&self.mount).stderr(Stdio::null());
            if command.status().is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// A control group with the I/O controller.
struct Group {
    dir: PathBuf,
    version: u8,
    /// The group whose memory is limited: in version 2 the same one.
    memory: Option<MemoryGroup>,
}

impl Group {
    fn new(memory: bool) -> anyhow::Result<Group> {
        let first = Path::new(CONTROLLER);
        if first.join("blkio.throttle.read_bps_device").exists() {
            // Those of runs that were killed.
            for entry in fs::read_dir(first)?.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let made_by = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
                if made_by.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                    let _ = fs::remove_dir(entry.path());
                }
            }
            let dir = first.join(format!("{PREFIX}{}", std::process::id()));
            fs::create_dir_all(&dir)
                .with_context(|| format!("cannot make the group {}", dir.display()))?;
            let mut group = Group { dir, version: 1, memory: None };
            if memory {
                group.memory = Some(MemoryGroup::create("foreign")?);
            }
            return Ok(group);
        }
        let all = fs::read_to_string(Path::new(UNIFIED).join("cgroup.controllers"));
        if !all.is_ok_and(|all| all.split_whitespace().any(|one| one == "io")) {
            bail!("the kernel's I/O controller (cgroup `blkio` or `io`) is missing");
        }
        fs::write(Path::new(UNIFIED).join("cgroup.subtree_control"), "+io")
            .context("cannot switch on the I/O controller of cgroup version 2")?;
        let memory = MemoryGroup::create("foreign")?;
        let dir = memory.dir().to_owned();
        ensure!(dir.join("io.max").exists(), "{} has no io.max", dir.display());
        Ok(Group { dir, version: 2, memory: Some(memory) })
    }

    fn add(&self, pid: u32) -> anyhow::Result<()> {
        let memory = self.memory.as_ref().map(MemoryGroup::dir).filter(|dir| *dir != self.dir);
        for dir in [Some(self.dir.as_path()), memory].into_iter().flatten() {
            write(&dir.join("cgroup.procs"), &pid.to_string())?;
        }
        Ok(())
    }

    fn limit(&self, device: &str, bytes_per_s: u64) -> anyhow::Result<()> {
        let (file, line) = limit(self.version, device, bytes_per_s);
        write(&self.dir.join(file), &line)
    }
}

/// The file of a group that limits its reads of a device, and the line to write there.
fn limit(version: u8, device: &str, bytes_per_s: u64) -> (&'static str, String) {
    match version {
        1 => ("blkio.throttle.read_bps_device", format!("{device} {bytes_per_s}")),
        _ => ("io.max", format!("{device} rbps={bytes_per_s}")),
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.version != 1 {
            return;
        }
        // Once its processes have ended.
        for _ in 0..50 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {text:?} to {}", path.display()))
}

/// Runs a program. Returns the first line of its output.
fn run(program: &str, arguments: &[&std::ffi::OsStr]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} failed: {}", error.trim());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_as_each_version_of_the_controller_reads_them() {
        let v1 = ("blkio.throttle.read_bps_device", "7:1 16000000".to_owned());
        assert_eq!(limit(1, "7:1", 16_000_000), v1);
        assert_eq!(limit(2, "7:1", 16_000_000), ("io.max", "7:1 rbps=16000000".to_owned()));
    }

    /// Needs root and an I/O controller; a note says that the test was left out.
    #[test]
    fn a_group_reads_a_throttled_disk_no_faster_than_its_limit() {
        if let Some(why) = lacks() {
            eprintln!("left out: {why}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let disk = Throttled::start(folder.path(), 64 << 20, 4 << 20, None).unwrap();
        let file = disk.mount().join("file");
        fs::write(&file, vec![7; 8 << 20]).unwrap();
        disk.throttle().unwrap();
        // 4 MiB, past the page cache, by a process that is in the group before it reads.
        let mut reader = Command::new("sh")
            .args(["-c", "read go; exec dd if=\"$0\" of=/dev/null bs=1M count=4 iflag=direct"])
            .arg(&file)
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        disk.add(reader.id()).unwrap();
        let start = std::time::Instant::now();
        reader.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert!(reader.wait().unwrap().success());
        assert!(start.elapsed() >= Duration::from_millis(700), "{:?}", start.elapsed());
    }
}
