//! A server with devices, killed again and again while it writes to them: `DEVICE_KILLS=100 cargo test
//! -p concertina --test it device_kills -- --nocapture` prints what was judged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::serve_client::{Client, Process, bytes, spawn};

/// Keys, of which each writer has a part.
const KEYS: u64 = 240;
const WRITERS: u64 = 4;
/// A kill waits until the server has acknowledged this many writes and served this many reads from devices.
const BEFORE_KILL: u64 = 25;

/// What a writer knows of a key: the latest acknowledged version, and the latest that was sent.
#[derive(Clone, Copy, Default)]
struct KeyVersions {
    acknowledged: u64,
    sent: u64,
}

#[derive(Default)]
struct Judged {
    writes: u64,
    acknowledged: u64,
    reads: u64,
    from_devices: u64,
    lost: u64,
    wrong: u64,
}

/// A version's bytes say its key and number, and are a function of them.
fn body(key: u64, version: u64) -> Vec<u8> {
    let size = 100 + (key * 7919 + version * 104_729) % 40_000;
    let mut body = format!("{key} {version} ").into_bytes();
    body.extend(bytes(key << 32 | version, size as usize));
    body
}

/// The version that a body is of, if it is one of this key's, whole.
fn version_of(key: u64, found: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(found.get(..40.min(found.len()))?).into_owned();
    let mut words = text.split(' ');
    let (of, version) = (words.next()?.parse::<u64>().ok()?, words.next()?.parse().ok()?);
    (of == key && body(key, version) == found).then_some(version)
}

/// Reads a key and judges what is found.
fn read(client: &mut Client, key: u64, known: KeyVersions, judged: &mut Judged) -> Option<()> {
    let reply = client.send("GET", &format!("/objects/{key}"), &[], None).ok()?;
    judged.reads += 1;
    let outcome = reply.header("concertina-outcome").unwrap_or("").to_owned();
    judged.from_devices += u64::from(outcome.ends_with("device"));
    let version = match reply.status {
        200 => version_of(key, &reply.body),
        404 => Some(0),
        _ => return Some(()),
    };
    match version {
        None => judged.wrong += 1,
        Some(version) if version < known.acknowledged => judged.lost += 1,
        Some(version) if version > known.sent => judged.wrong += 1,
        Some(_) => {}
    }
    Some(())
}

/// What all writers have done since the server started, counted while they work.
#[derive(Default)]
struct Progress {
    acknowledged: AtomicU64,
    from_devices: AtomicU64,
}

impl Progress {
    /// Waits until there is enough to judge, however slow this machine is; a minute at most.
    fn wait(&self) {
        let enough = |count: &AtomicU64| count.load(Ordering::Relaxed) >= BEFORE_KILL;
        let begun = Instant::now();
        while !(enough(&self.acknowledged) && enough(&self.from_devices))
            && begun.elapsed() < Duration::from_secs(60)
        {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Writes and reads its keys until the server is gone.
fn work(
    writer: u64,
    process: &Process,
    known: &mut BTreeMap<u64, KeyVersions>,
    over: &AtomicBool,
    progress: &Progress,
) -> Judged {
    let mut judged = Judged::default();
    let mut client = Client::connect(process.address);
    let keys: Vec<u64> = (0..KEYS).filter(|key| key % WRITERS == writer).collect();
    for turn in 0u64.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let key = keys[(turn * 31 % keys.len() as u64) as usize];
        let of = known.entry(key).or_default();
        of.sent += 1;
        judged.writes += 1;
        let sent = client.send("PUT", &format!("/objects/{key}"), &[], Some(&body(key, of.sent)));
        match sent {
            Ok(reply) if reply.status == 200 || reply.status == 201 => {
                of.acknowledged = of.sent;
                judged.acknowledged += 1;
                progress.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Ok(_) => {}
            Err(_) => break,
        }
        let other = keys[(turn * 17 % keys.len() as u64) as usize];
        let of = known.entry(other).or_default();
        let before = judged.from_devices;
        if read(&mut client, other, *of, &mut judged).is_none() {
            break;
        }
        progress.from_devices.fetch_add(judged.from_devices - before, Ordering::Relaxed);
    }
    judged
}

/// After each kill the server is ready, what was acknowledged is there, and no reply is wrong or older.
#[test]
fn a_server_that_is_killed_while_it_writes_serves_nothing_wrong() {
    kill_again_and_again(&tempfile::tempdir().unwrap());
}

/// The same with devices that have no file system.
#[test]
fn a_server_with_raw_devices_that_is_killed_while_it_writes_serves_nothing_wrong() {
    use device::disk::block::{FormatOptions, format};

    let folder = tempfile::tempdir().unwrap();
    for (name, mib, segment_bytes) in [("device", 12, 512 << 10), ("hot", 5, 256 << 10)] {
        let path = folder.path().join(name);
        std::fs::File::create(&path).unwrap().set_len(mib << 20).unwrap();
        format(&path, FormatOptions { segment_bytes, record_bytes: 1024, destroy: false }).unwrap();
    }
    kill_again_and_again(&folder);
}

fn kill_again_and_again(folder: &tempfile::TempDir) {
    let kills: u64 = std::env::var("DEVICE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let hot = format!("device.1.path={}/hot", folder.path().display());
    let more = [
        "node.memory_bytes=64KiB",
        "device.0.bytes=8MiB",
        "device.0.segment_bytes=512KiB",
        "device.1.class=hot",
        "device.1.bytes=2MiB",
        "device.1.segment_bytes=256KiB",
        "device.0.scrub_s=2",
        hot.as_str(),
    ];
    let mut known: Vec<BTreeMap<u64, KeyVersions>> = vec![BTreeMap::new(); WRITERS as usize];
    let mut sum = Judged::default();
    let mut longest = Duration::ZERO;
    for kill in 0..=kills {
        let begun = Instant::now();
        let mut process = spawn(folder.path(), &more, "");
        longest = longest.max(begun.elapsed());
        let over = Arc::new(AtomicBool::new(kill == kills));
        let progress = &Progress::default();
        let judged = thread::scope(|scope| {
            // Everything that was acknowledged is there, before anything is written.
            let mut judged = Judged::default();
            let mut client = Client::connect(process.address);
            for (&key, &of) in known.iter().flatten() {
                assert!(read(&mut client, key, of, &mut judged).is_some());
            }
            let process = &process;
            let writers: Vec<_> = (0..WRITERS)
                .zip(&mut known)
                .map(|(writer, known)| {
                    let over = over.clone();
                    scope.spawn(move || work(writer, process, known, &over, progress))
                })
                .collect();
            // At another moment of the writes each time.
            thread::sleep(Duration::from_millis(60 + kill * 37 % 160));
            if kill < kills {
                progress.wait();
            }
            process.signal("-KILL");
            for writer in writers {
                judged.add(&writer.join().unwrap());
            }
            judged
        });
        process.child.wait().unwrap();
        sum.add(&judged);
    }
    let Judged { writes, acknowledged, reads, from_devices, lost, wrong } = sum;
    println!(
        "{kills} kills: {writes} writes, {acknowledged} acknowledged, {reads} reads, {from_devices} of \
         them from devices: {lost} older than acknowledged, {wrong} wrong; longest start {longest:?}"
    );
    assert!(acknowledged >= BEFORE_KILL * kills && from_devices >= BEFORE_KILL * kills);
    assert_eq!((lost, wrong), (0, 0));
}

impl Judged {
    fn add(&mut self, other: &Judged) {
        self.writes += other.writes;
        self.acknowledged += other.acknowledged;
        self.reads += other.reads;
        self.from_devices += other.from_devices;
        self.lost += other.lost;
        self.wrong += other.wrong;
    }
}

/// How long a start takes with ten million objects on a device, after a clean stop and after a kill: prints
/// figures. The segments of all but the last few thousand objects are empty files of their length.
#[test]
#[ignore = "prints figures: cargo test --release -p concertina --test it restart -- --ignored --nocapture"]
fn a_restart_with_ten_million_objects() {
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("device");
    std::fs::create_dir(&device).unwrap();
    let mut summary = Vec::new();
    for block in summaries() {
        summary.extend(block.encode());
        let file = device.join(format!("{:08}.seg", block.segment));
        std::fs::File::create(file).unwrap().set_len(block.segment_bytes).unwrap();
    }
    std::fs::write(device.join("summary"), summary).unwrap();
    restart(folder.path(), "device.0.bytes=1TiB");
}

/// The same without a file system: a file without content but for the summaries.
#[test]
#[ignore = "prints figures: cargo test --release -p concertina --test it restart -- --ignored --nocapture"]
fn a_restart_with_ten_million_objects_on_a_raw_device() {
    use device::disk::block::superblock::{BLOCK, Superblock};
    use device::disk::block::{FormatOptions, format};
    use std::io::Read;
    use std::os::unix::fs::FileExt;

    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("device");
    std::fs::File::create(&device).unwrap().set_len(200 << 30).unwrap();
    format(&device, FormatOptions { segment_bytes: 64 << 20, record_bytes: 8192, destroy: false })
        .unwrap();
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.read(true).write(true).open(&device).unwrap();
    let mut first = [0; BLOCK as usize];
    file.read_exact(&mut first).unwrap();
    let superblock = Superblock::decode(&first).unwrap();
    for mut block in summaries() {
        let at = superblock.summary_at(block.segment as u32);
        block.segment = superblock.mark(block.segment);
        file.write_all_at(&block.encode(), at).unwrap();
    }
    drop(file);
    restart(folder.path(), "device.0.bytes=190GiB");
}

/// The summaries of ten million objects.
fn summaries() -> impl Iterator<Item = device::disk::summary::Block> {
    use engine::node::Restored;

    const SEGMENTS: u64 = 2500;
    const OF_SEGMENT: u32 = 4000;
    const BYTES: u32 = 16_384;
    (0..SEGMENTS).map(|segment| {
        let record = |number: u32| {
            let hash = ground::window::key_hash(format!("{segment} {number}").as_bytes());
            Restored { hash, offset: number * BYTES, bytes: BYTES }
        };
        let records: Vec<Restored> = (0..OF_SEGMENT).map(record).collect();
        let segment_bytes = u64::from(OF_SEGMENT) * u64::from(BYTES);
        device::disk::summary::Block { segment, segment_bytes, records }
    })
}

fn restart(folder: &std::path::Path, budget: &str) {
    let more = [budget, "device.0.segment_bytes=64MiB", "node.memory_bytes=1MiB"];
    let empty = tempfile::tempdir().unwrap();
    let started = |folder: &std::path::Path, what: &str| {
        let begun = Instant::now();
        let process = spawn(folder, &more, "");
        let took = begun.elapsed();
        let mut client = Client::connect(process.address);
        assert_eq!(client.get("/readyz").status, 200);
        let told: serde_json::Value =
            serde_json::from_str(&client.get("/admin/status").text()).unwrap();
        println!("{what}: ready after {took:?}, {}", told["contents"]);
        (process, client)
    };
    drop(started(empty.path(), "nothing on the device"));
    for round in 0..3 {
        let (mut process, mut client) = started(folder, "10,000,000 objects, clean stop");
        for number in 0..800u64 {
            let path = format!("/objects/{round}-{number}");
            assert_eq!(client.put(&path, &bytes(number, 70_000)).status, 200);
        }
        process.signal("-KILL");
        process.child.wait().unwrap();
        let (mut process, _) = started(folder, "10,000,000 objects, kill -9");
        process.signal("-TERM");
        process.child.wait().unwrap();
    }
}
