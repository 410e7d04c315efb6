//! `concertina doctor`.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::output::outln;
use configuration::{Class, Config, Size};
use device::disk::{block, is_raw};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina doctor
  concertina doctor --config node.toml --json")]
pub struct Args {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override a key: section.key=value; may be repeated, and the last of a key counts
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// What the kernel says of the device that holds a folder; `None` where it does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Facts {
    /// The block device: `8:0`.
    device: Option<String>,
    /// Of what is used without a file system: what it is formatted for.
    slots: Option<String>,
    /// Of such a device: why it cannot be used.
    unusable: Option<String>,
    file_system: Option<String>,
    mount_options: Vec<String>,
    /// The scheduler in use.
    scheduler: Option<String>,
    read_ahead_kb: Option<u64>,
    queue_depth: Option<u64>,
    rotational: Option<bool>,
    /// Bytes of the file system.
    file_system_bytes: Option<u64>,
}

#[derive(Serialize)]
struct DeviceReport {
    folder: PathBuf,
    class: Class,
    facts: Facts,
    advice: Vec<String>,
}

/// Memory, where the budgets of the configuration do not fit.
#[derive(Serialize)]
struct MemoryReport {
    /// What this process may use, bytes.
    memory_limit_bytes: u64,
    advice: Vec<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Report {
    Device(Box<DeviceReport>),
    Memory(MemoryReport),
}

impl Report {
    fn advice(&self) -> &[String] {
        match self {
            Report::Device(device) => &device.advice,
            Report::Memory(memory) => &memory.advice,
        }
    }
}

/// Runs the command. It changes nothing; the exit code is 1 if there is advice.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut set = super::serve::tokens(|name| std::env::var(name).ok());
    set.extend(args.set.iter().cloned());
    let config = Config::load(args.config.as_deref(), &set)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found = Vec::new();
    for device in &config.devices {
        for folder in device.folders() {
            let facts = look(&folder, &mounts, Path::new("/sys"));
            let mut advice = advise(device.class, &facts);
            advice.extend(too_large(device.bytes, &facts));
            found.push(Report::Device(Box::new(DeviceReport {
                folder,
                class: device.class,
                facts,
                advice,
            })));
        }
    }
    if let Ok(memory_limit_bytes) = record::memory::limit_bytes() {
        let advice: Vec<String> = config.memory_advice(memory_limit_bytes).into_iter().collect();
        if !advice.is_empty() {
            found.push(Report::Memory(MemoryReport { memory_limit_bytes, advice }));
        }
    }
    let sound = found.iter().all(|found| found.advice().is_empty());
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        let lines: Vec<String> = found.iter().map(in_words).collect();
        outln!("{}", lines.join("\n"));
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn in_words(found: &Report) -> String {
    let mut text = match found {
        Report::Device(device) => device_in_words(device),
        Report::Memory(memory) => {
            format!("memory: {} MiB", memory.memory_limit_bytes >> 20)
        }
    };
    for advice in found.advice() {
        text += &format!("\n  - {advice}");
    }
    text
}

fn device_in_words(found: &DeviceReport) -> String {
    let unknown = || "unknown".to_owned();
    let facts = &found.facts;
    format!(
        "{} ({}): {} on device {}, scheduler {}, read-ahead {}, queue depth {}, {}",
        found.folder.display(),
        if found.class == Class::Hot { "hot" } else { "bulk" },
        match (&facts.slots, &facts.unusable) {
            (Some(slots), _) => format!("no file system, {slots}"),
            (None, Some(_)) => "no file system".to_owned(),
            (None, None) => facts.file_system.clone().unwrap_or_else(unknown),
        },
        facts.device.clone().unwrap_or_else(unknown),
        facts.scheduler.clone().unwrap_or_else(unknown),
        facts.read_ahead_kb.map_or_else(unknown, |kb| format!("{kb} KiB")),
        facts.queue_depth.map_or_else(unknown, |depth| depth.to_string()),
        match facts.rotational {
            Some(true) => "rotating",
            Some(false) => "solid state",
            None => "of unknown kind",
        }
    )
}

/// Reads what there is of a folder's device. A folder that does not exist yet is looked up by the
/// nearest of its parents that does.
fn look(folder: &Path, mounts: &str, sys: &Path) -> Facts {
    let there = folder.ancestors().find_map(|path| fs::canonicalize(path).ok());
    let there = there.or_else(|| fs::canonicalize(".").ok()).unwrap_or_default();
    let mut facts = mount_of(&there, mounts);
    let own = fs::metadata(&there).map(|metadata| {
        let is_block = metadata.file_type().is_block_device();
        if is_block {
            // It is on no file system, but in the folder of one.
            facts = Facts::default();
        }
        let device = if is_block { metadata.rdev() } else { metadata.dev() };
        format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
    });
    facts.device = own.ok().or(facts.device);
    let size = rustix::fs::statvfs(&there).ok().filter(|_| facts.file_system.is_some());
    facts.file_system_bytes = size.map(|size| size.f_blocks.saturating_mul(size.f_frsize));
    match is_raw(folder).then(|| block::look(folder)) {
        Some(Ok(shape)) => facts.slots = Some(shape.in_words()),
        Some(Err(why)) => facts.unusable = Some(why),
        None => {}
    }
    let Some(device) = &facts.device else { return facts };
    let block = sys.join("dev/block").join(device);
    // A partition has no queue of its own.
    let queue = [block.join("queue"), block.join("../queue")];
    let Some(queue) = queue.into_iter().find(|path| path.is_dir()) else { return facts };
    let read = |name: &str| fs::read_to_string(queue.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    facts.scheduler = read("scheduler").and_then(|text| chosen(&text));
    facts.read_ahead_kb = number("read_ahead_kb");
    facts.queue_depth = number("nr_requests");
    facts.rotational = number("rotational").map(|rotational| rotational != 0);
    facts
}

/// The scheduler in brackets.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// File system and options of the mount that holds a path, from `/proc/self/mountinfo`.
fn mount_of(path: &Path, mounts: &str) -> Facts {
    let mut best: Option<(usize, Facts)> = None;
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let left: Vec<&str> = left.split(' ').collect();
        let (Some(device), Some(point), Some(options)) = (left.get(2), left.get(4), left.get(5))
        else {
            continue;
        };
        let point = point.replace("\\040", " ");
        if !path.starts_with(&point) || best.as_ref().is_some_and(|b| b.0 > point.len()) {
            continue;
        }
        let facts = Facts {
            device: Some((*device).to_owned()),
            file_system: right.split(' ').next().map(str::to_owned),
            mount_options: options.split(',').map(str::to_owned).collect(),
            ..Facts::default()
        };
        best = Some((point.len(), facts));
    }
    best.map_or_else(Facts::default, |best| best.1)
}

/// What is wrong with a capacity that the file system does not have.
fn too_large(bytes: Size, facts: &Facts) -> Option<String> {
    let of_file_system = facts.file_system_bytes.filter(|least| *least < bytes.0)?;
    Some(format!(
        "device.bytes is {bytes}, and the whole file system has {} MiB: writes fail when it is full; write less",
        of_file_system >> 20
    ))
}

/// What differs from what a class needs. Devices are read past the page cache, so their read-ahead
/// counts only for what else reads them.
fn advise(class: Class, facts: &Facts) -> Vec<String> {
    let mut advice = Vec::new();
    if let Some(why) = &facts.unusable {
        advice.push(format!("it cannot be used: {why}"));
    }
    let scheduler = facts.scheduler.as_deref();
    match class {
        Class::Hot => {
            if facts.rotational == Some(true) {
                advice.push(
                    "a rotating disk as a hot device: every read waits for its head".to_owned(),
                );
            }
            if scheduler.is_some_and(|scheduler| scheduler != "none") {
                advice.push(format!(
                    "scheduler {}: a solid-state device needs none; `echo none > /sys/dev/block/{}/queue/scheduler`",
                    scheduler.unwrap_or_default(),
                    facts.device.as_deref().unwrap_or("?")
                ));
            }
            if facts.read_ahead_kb.is_some_and(|kb| kb > 32) {
                advice.push(format!(
                    "read-ahead of {} KiB: 32 KiB is enough for a solid-state device",
                    facts.read_ahead_kb.unwrap_or(0)
                ));
            }
        }
        Class::Bulk if facts.rotational == Some(true) => {
            if scheduler == Some("none") {
                advice.push("no scheduler: a rotating disk gains from mq-deadline".to_owned());
            }
            if facts.read_ahead_kb.is_some_and(|kb| kb < 128) {
                advice.push(
                    "read-ahead below 128 KiB: a rotating disk reads on at little cost".to_owned(),
                );
            }
        }
        Class::Bulk => {}
    }
    if facts.queue_depth.is_some_and(|depth| depth < 32) {
        let depth = facts.queue_depth.unwrap_or(0);
        advice.push(format!("a queue of {depth} requests: `device.parallel` reads may wait in it"));
    }
    if ["tmpfs", "ramfs"].contains(&facts.file_system.as_deref().unwrap_or_default()) {
        advice.push("the folder is in memory: give those bytes to node.memory_bytes".to_owned());
    }
    if facts.file_system.as_deref().is_some_and(|kind| kind.starts_with("nfs") || kind == "cifs") {
        advice.push(
            "a network file system: its wait is the network's, and reads cannot pass the cache"
                .to_owned(),
        );
    }
    let has = |option: &str| facts.mount_options.iter().any(|o| o == option);
    if has("ro") {
        advice.push("mounted read-only: nothing can be written to it".to_owned());
    }
    if has("discard") {
        advice.push("mounted with `discard`: each dropped segment waits for its trim; run fstrim at times instead".to_owned());
    }
    if !facts.mount_options.is_empty() && !has("noatime") && !has("relatime") {
        advice.push(
            "mounted without noatime or relatime: each first read of a segment writes".to_owned(),
        );
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_nearest_mount_and_the_chosen_scheduler() {
        let mounts = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
                      30 22 259:0 / /mnt/ssd rw,noatime shared:1 - xfs /dev/nvme0n1 rw\n\
                      31 22 8:16 / /mnt/ssd2 rw - xfs /dev/sdb rw\n";
        let facts = mount_of(Path::new("/mnt/ssd/a"), mounts);
        assert_eq!(facts.device.as_deref(), Some("259:0"));
        assert_eq!(facts.file_system.as_deref(), Some("xfs"));
        assert_eq!(mount_of(Path::new("/mnt"), mounts).file_system.as_deref(), Some("ext4"));
        assert_eq!(mount_of(Path::new("/mnt"), ""), Facts::default());
        assert_eq!(chosen("mq-deadline kyber [none]\n").as_deref(), Some("none"));
        assert_eq!(chosen("nothing"), None);
    }

    #[test]
    fn advises_by_class() {
        let ssd = Facts {
            scheduler: Some("mq-deadline".to_owned()),
            read_ahead_kb: Some(128),
            queue_depth: Some(256),
            rotational: Some(false),
            file_system: Some("xfs".to_owned()),
            mount_options: vec!["rw".to_owned(), "noatime".to_owned()],
            device: Some("8:0".to_owned()),
            ..Facts::default()
        };
        assert_eq!(advise(Class::Hot, &ssd).len(), 2);
        assert_eq!(advise(Class::Bulk, &ssd).len(), 0);
        let disk = Facts { rotational: Some(true), scheduler: Some("none".to_owned()), ..ssd };
        assert!(advise(Class::Bulk, &disk)[0].contains("mq-deadline"));
        assert!(advise(Class::Hot, &disk)[0].contains("rotating"));
        // Nothing known, nothing advised.
        assert_eq!(advise(Class::Hot, &Facts::default()), Vec::<String>::new());
        let memory = Facts { file_system: Some("tmpfs".to_owned()), ..Facts::default() };
        assert!(advise(Class::Hot, &memory)[0].contains("node.memory_bytes"));
    }

    #[test]
    fn a_device_fits_into_its_file_system() {
        let facts = Facts { file_system_bytes: Some(1 << 30), ..Facts::default() };
        assert_eq!(too_large(Size(1 << 30), &facts), None);
        assert_eq!(too_large(Size(u64::MAX), &Facts::default()), None);
        let told = too_large(Size(2 << 30), &facts).unwrap();
        assert!(told.contains("2GiB") && told.contains("1024 MiB"), "{told}");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let facts = look(Path::new("/no/such/folder"), &mounts, Path::new("/sys"));
        assert!(facts.file_system_bytes > Some(0), "{facts:?}");
    }

    #[test]
    fn looks_at_folders_that_are_not_there_yet() {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let facts = look(Path::new("/no/such/folder"), &mounts, Path::new("/sys"));
        assert!(facts.device.is_some() && facts.file_system.is_some(), "{facts:?}");
    }
}
