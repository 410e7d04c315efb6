//! What small objects take in a node's memory tier, and the processor time of a hit and of a write.
//!
//!     cargo bench -p device --bench small_objects [-- OBJECTS VALUE_BYTES KEY_BYTES]
//!
//! Three phases on one thread: the memory tier takes OBJECTS objects; hits read them, in an order that no cache of the
//! processor knows, and 1,000 of them again and again; with a budget of what it holds, it takes as many others, so that the
//! first leave and their keys are remembered. Bytes are the growth of the process's resident memory, and the chunks of the
//! allocator by the rule of glibc's (8 bytes beside the request, rounded up to 16, at least 32); times are processor time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use device::object::Object;
use engine::node::{Event, Node, OriginSettings, Settings, TierSettings};
use engine::tier::Eviction;
use ground::{Key, window};
use origin::{Attributes, Metadata};

/// Hits of a measurement.
const HITS: usize = 4_000_000;
/// Keys that are read again and again.
const HOT_KEYS: usize = 1_000;
/// Ticks of a second in `/proc`, on all systems that this runs on.
const TICKS_PER_S: f64 = 100.0;

/// Counts what is allocated: pieces, bytes that were asked for, and bytes of the allocator's chunks.
struct Counting;

static PIECES: AtomicI64 = AtomicI64::new(0);
static ASKED: AtomicI64 = AtomicI64::new(0);
static CHUNKS: AtomicI64 = AtomicI64::new(0);

fn count(layout: Layout, sign: i64) {
    let asked = layout.size() as i64;
    PIECES.fetch_add(sign, Ordering::Relaxed);
    ASKED.fetch_add(sign * asked, Ordering::Relaxed);
    CHUNKS.fetch_add(sign * ((asked + 8 + 15) & !15).max(32), Ordering::Relaxed);
}

#[expect(unsafe_code, reason = "an allocator that counts")]
// SAFETY: passes everything on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout, 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout, -1);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(layout, -1);
        count(Layout::from_size_align(bytes, layout.align()).unwrap_or(layout), 1);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Processor time of the process, seconds.
fn processor_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS_PER_S
}

fn resident_bytes() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<i64>().unwrap() << 10
}

struct Sizes {
    objects: usize,
    value: usize,
    key: usize,
}

impl Sizes {
    fn key(&self, number: usize) -> Vec<u8> {
        format!("{number:0width$}", width = self.key).into_bytes()
    }

    fn object(&self, number: usize) -> Object {
        let metadata = Metadata {
            size: self.value as u64,
            etag: format!("{number:032x}").into(),
            modified_unix_us: 1_700_000_000_000_000 + number as u64,
            attributes: Attributes { content_type: None, user: Vec::new() },
        };
        Object::new(&metadata, Bytes::from(vec![b'v'; self.value]))
    }

    /// Writes the objects of some numbers; returns the processor time of one, nanoseconds.
    fn write(&self, node: &mut Node<Object>, numbers: std::ops::Range<usize>) -> f64 {
        let (begun_s, count) = (processor_s(), numbers.len());
        let mut actions = Vec::new();
        for number in numbers {
            let (key, request) = (Key::from(self.key(number)), number as u64);
            let event = Event::WriteBegin { request, key: key.clone(), epoch: None };
            node.handle(request, event, &mut actions);
            let payload = Some(self.object(number));
            node.handle(request, Event::WriteEnd { request, key, payload }, &mut actions);
            actions.clear();
        }
        (processor_s() - begun_s) * 1e9 / count as f64
    }

    /// Reads the first `among` objects, each as often as the others, in a fixed order; returns the processor time of a hit,
    /// nanoseconds.
    fn read(&self, node: &mut Node<Object>, among: usize) -> f64 {
        // The keys are at hand, as a connection has them, so that the time is the hit's.
        let mut keys = vec![0; 0];
        for round in 0..HITS {
            // A multiplier that is prime to any count below it, so that all come.
            let number = round.wrapping_mul(2_654_435_761) % among;
            keys.extend_from_slice(&self.key(number));
        }
        let mut actions = Vec::new();
        let begun_s = processor_s();
        let mut bytes = 0;
        for key in keys.chunks_exact(self.key) {
            let hit = node.hit(1, key, &mut actions).expect("the object is in memory");
            bytes += hit.payload.bytes_held().len();
        }
        assert_eq!(bytes, HITS * self.value);
        (processor_s() - begun_s) * 1e9 / HITS as f64
    }

    fn settings(&self) -> Settings {
        Settings {
            memory_bytes_max: 1 << 40,
            eviction: Eviction::default(),
            object_bytes_max: 1 << 20,
            revalidate: None,
            stale_if_error: 0,
            devices: Vec::new(),
            tiers: TierSettings::default(),
            origin: OriginSettings { servers: 16, queue_length_max: 1 << 20 },
            appends_bytes_max: 0,
            writes_waiting_max: 1000,
            cluster: None,
            windows: window::Settings::default(),
        }
    }

    fn measure(&self) {
        let mut node = Node::new(self.settings(), 0);
        // Whatever is there once.
        self.write(&mut node, 0..1_000);
        let before = [&PIECES, &ASKED, &CHUNKS].map(|counter| counter.load(Ordering::Relaxed));
        let resident = resident_bytes();
        let counted = node.contents().memory_bytes;
        let write_ns = self.write(&mut node, 1_000..1_000 + self.objects);
        let each = |bytes: i64| bytes as f64 / self.objects as f64;
        let beside = |bytes: i64| each(bytes) - (self.value + self.key) as f64;
        let now = [&PIECES, &ASKED, &CHUNKS].map(|counter| counter.load(Ordering::Relaxed));
        println!("{} objects of {} bytes, keys of {}", self.objects, self.value, self.key);
        println!("allocations of one            {:8.2}", each(now[0] - before[0]));
        println!("bytes beside key and value:");
        println!("  asked for                   {:8.1}", beside(now[1] - before[1]));
        println!("  in chunks                   {:8.1}", beside(now[2] - before[2]));
        println!("  resident                    {:8.1}", beside(resident_bytes() - resident));
        let counted_now = node.contents().memory_bytes;
        println!("  counted                     {:8.1}", beside((counted_now - counted) as i64));
        println!("processor time, ns:");
        println!("  a write                     {write_ns:8.0}");
        println!("  a hit, all objects          {:8.1}", self.read(&mut node, self.objects));
        println!("  a hit, {HOT_KEYS} of them        {:8.1}", self.read(&mut node, HOT_KEYS));
        node.handle(1, Event::MemoryMax { bytes: counted_now }, &mut Vec::new());
        let next = 1_000 + self.objects;
        let write_ns = self.write(&mut node, next..next + self.objects);
        println!("  a write that evicts         {write_ns:8.0}");
        println!("with the keys that left, bytes beside key and value:");
        let part = node.contents().memory_bytes as f64 / node.contents().memory_objects as f64;
        println!("  counted                     {:8.1}", part - (self.value + self.key) as f64);
        println!("  resident                    {:8.1}", beside(resident_bytes() - resident));
    }
}

fn main() {
    let numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let numbers: Vec<usize> = numbers.collect();
    let number = |index: usize, default| numbers.get(index).copied().unwrap_or(default);
    Sizes { objects: number(0, 1_000_000), value: number(1, 100), key: number(2, 16) }.measure();
}
