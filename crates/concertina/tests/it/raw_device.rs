//! A node on a block device without a file system: a loop device where the machine has them, else a file that was
//! prepared in the same way.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use device::disk::block::superblock::Superblock;

use crate::serve_client::{Client, Process, bytes, spawn};

const MIB: u64 = 1 << 20;

/// A device for a test, and whether it is one for the kernel too.
struct Raw {
    path: PathBuf,
    is_block: bool,
}

impl Raw {
    /// Creates a device of `mib` MiB: a file in `folder`, behind a loop device where there is one.
    fn new(folder: &Path, mib: u64) -> Raw {
        let file = folder.join("raw");
        std::fs::File::create(&file).unwrap().set_len(mib * MIB).unwrap();
        let attached = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        match attached {
            Ok(Output { status, stdout, .. }) if status.success() => {
                let path = String::from_utf8(stdout).unwrap().trim().into();
                Raw { path, is_block: true }
            }
            why => {
                println!("no loop devices here, so a file is used instead: {why:?}");
                Raw { path: file, is_block: false }
            }
        }
    }

    fn format(&self, more: &[&str]) -> Output {
        concertina(&["device", "format"], &self.path, more)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if self.is_block {
            let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
        }
    }
}

fn concertina(before: &[&str], path: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(before).arg(path).args(more).output().unwrap()
}

fn refused(output: &Output, part: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains(part), "expected {part:?}: {text}");
}

fn body(key: u64) -> Vec<u8> {
    bytes(key, 20_000 + (key as usize * 7919) % 120_000)
}

fn start(folder: &Path, raw: &Raw) -> (Process, Client) {
    let path = format!("device.0.path={}", raw.path.display());
    let bytes = "device.0.bytes=44MiB";
    let process = spawn(folder, &[&path, bytes, "node.memory_bytes=64KiB"], "");
    let client = Client::connect(process.address);
    (process, client)
}

fn json(client: &mut Client, path: &str) -> serde_json::Value {
    serde_json::from_str(&client.get(path).text()).unwrap()
}

/// Reads some keys; returns how many came from the device.
fn read_all(client: &mut Client, keys: Range<u64>) -> usize {
    let from_device = |key: &u64| {
        let reply = client.get(&format!("/objects/{key}"));
        assert_eq!(reply.status, 200);
        assert!(reply.body == body(*key), "object {key} is wrong");
        reply.header("concertina-outcome").is_some_and(|outcome| outcome.ends_with("device"))
    };
    keys.filter(from_device).count()
}

#[test]
fn a_node_serves_from_a_device_without_a_file_system() {
    // Twice what the device holds, and a part of what it holds then.
    const KEYS: u64 = 1100;
    let last = || KEYS - 250..KEYS;
    let folder = tempfile::tempdir().unwrap();
    let raw = Raw::new(folder.path(), 48);
    // What is not formatted is not written to, and the node serves without it.
    {
        let (_process, mut client) = start(folder.path(), &raw);
        assert_eq!(json(&mut client, "/admin/tiers")["devices"][0]["state"], "out");
        assert_eq!(client.put("/objects/0", &body(0)).status, 200);
        assert_eq!(read_all(&mut client, 0..1), 0);
    }
    let before = std::fs::read(&raw.path).unwrap();
    assert!(before.iter().all(|byte| *byte == 0));
    let output = raw.format(&["--segment-bytes", "2MiB"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("bytes = \"44MiB\""), "{text}");
    refused(&raw.format(&[]), "holds a device of Concertina: nothing is changed; --destroy");

    // More is written than fits, so that slots are used again; it is killed while one is filled.
    let (mut process, mut client) = start(folder.path(), &raw);
    (0..KEYS).for_each(|key| {
        assert!(client.put(&format!("/objects/{key}"), &body(key)).status < 300);
    });
    refused(&raw.format(&["--destroy"]), "is in use");
    let from_device = read_all(&mut client, last());
    assert!(from_device > 100, "{from_device}");
    let device = &json(&mut client, "/admin/tiers")["devices"][0];
    assert_eq!((&device["state"], &device["segments_max"]), (&"in".into(), &22.into()));
    assert_eq!(device["segments"], 22, "{device}");
    process.signal("-KILL");
    process.child.wait().unwrap();

    let (mut process, mut client) = start(folder.path(), &raw);
    let again = read_all(&mut client, last());
    assert!(again + 10 > from_device, "{from_device} before, {again} after");
    let url = format!("http://{}", process.address);
    let status = concertina(&["status"], Path::new("--server"), &[&url]);
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(text.contains(" in 22 of 22 segments"), "{text} {status:?}");
    process.signal("-TERM");
    process.child.wait().unwrap();

    // Damage anywhere is found, and costs what was damaged.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&raw.path).unwrap();
    let mut first = vec![0; 4096];
    file.read_exact_at(&mut first, 0).unwrap();
    let superblock = Superblock::decode(&first).unwrap();
    for slot in 0..superblock.slots as u32 {
        for at in (0..20).map(|part| part * 100_003 + u64::from(slot)) {
            file.write_all_at(b"damage", superblock.segment_at(slot) + at).unwrap();
        }
    }
    file.sync_all().unwrap();
    drop(file);
    let (mut process, mut client) = start(folder.path(), &raw);
    let damaged = read_all(&mut client, last());
    assert!(damaged < again, "{damaged}");
    process.signal("-TERM");
    process.child.wait().unwrap();
    let set = format!("device.0.path={}", raw.path.display());
    let doctor = concertina(&["doctor", "--set"], Path::new(&set), &[]);
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(text.contains("no file system, 23 slots of 2MiB"), "{text}");
}

/// The kernel's own part: what is mounted is refused, and so is what others made of a device.
#[test]
fn what_others_use_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let raw = Raw::new(folder.path(), 48);
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&raw.path).status();
    if !made.is_ok_and(|made| made.success()) {
        println!("no mkfs.ext4 here, so a superblock alone stands for its file system");
        let file = std::fs::OpenOptions::new().write(true).open(&raw.path).unwrap();
        file.write_all_at(&[0x53, 0xef], 1080).unwrap();
    }
    let before = std::fs::read(&raw.path).unwrap();
    refused(&raw.format(&[]), "holds an ext2, ext3 or ext4 file system: nothing is changed");
    let (process, mut client) = start(folder.path(), &raw);
    assert_eq!(json(&mut client, "/admin/tiers")["devices"][0]["state"], "out");
    drop(process);
    assert!(std::fs::read(&raw.path).unwrap() == before, "it was written to");
    let place = folder.path().join("mounted");
    std::fs::create_dir(&place).unwrap();
    let mounted = raw.is_block && {
        let mounted = Command::new("mount").arg(&raw.path).arg(&place).status();
        mounted.is_ok_and(|mounted| mounted.success())
    };
    if mounted {
        let refusal = raw.format(&["--destroy"]);
        let unmounted = Command::new("umount").arg(&place).status().unwrap();
        refused(&refusal, &format!("it is mounted at {}", place.display()));
        assert!(unmounted.success());
    } else {
        println!("no device can be mounted here, so that is not tried");
    }
    let output = raw.format(&["--destroy", "--segment-bytes", "2MiB"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("an ext2, ext3 or ext4 file system was overwritten"), "{text}");
}
