//! How much memory an import takes, and how large its shards may be for what it is allowed.
//!
//! A shard is built in one of two states, and takes what the larger of them does: its text is split into
//! records (the text, 8 bytes for the start of each record, 16 for each number of an attribute that is
//! put in order), or its suffixes are sorted ([`index::build_memory_bytes`], about seven times the text at
//! most). How many records a text has is not known before it is split; that they are not more than its
//! lines is, so the reader counts those as it reads, and ends a shard before its length where records of a
//! few bytes would take more than the text's index does.
//!
//! Beside the shards that are built there are the bytes of the last record that was read, which the next
//! shard begins with, and the process itself: [`PROCESS_BYTES`]. What the system keeps of files that were
//! read and written (the page cache) is not counted: it gives that up when memory is asked for.

use std::path::Path;

use anyhow::{Context as _, ensure};
use procfs::{Current as _, Meminfo};
use shard::index;
use shard::record::{Format, RECORD_BYTES_MAX};

use super::import::Options;

/// The least that a shard may be asked to hold: two of the longest records.
const SHARD_BYTES_MIN: usize = 2 * RECORD_BYTES_MAX;
/// Bytes of a shard where nothing is asked for. More would make searches of large datasets faster, as there
/// were fewer shards to ask, and the memory that somebody else's machine needs to build the same larger.
const SHARD_BYTES_DEFAULT: usize = 256 << 20;
/// What separates two inputs may be added to the last piece that is read.
pub(super) const SEPARATOR_BYTES: usize = 2;

/// The process without its shards: the program, buffers of files, what the allocator keeps, and the last
/// record that was read, with the one after it.
const PROCESS_BYTES: usize = (64 << 20) + 2 * RECORD_BYTES_MAX;
/// Each record while a text is split: where it starts, and its part of the sequence made of that.
const RECORD_SPLIT_BYTES: usize = 12;
/// Each record while the index is built.
const RECORD_BYTES: usize = 4;
/// Each number of an attribute in order while a text is split: the number, its record, and sorted copies.
const NUMBER_SPLIT_BYTES: usize = 40;
/// Each of them while the index is built.
const NUMBER_BYTES: usize = 20;
/// Each whole file beside its path and its content.
const FILE_BYTES: usize = 100;
/// Records that have not ended yet, and their copy, while a text is split.
const PENDING_BYTES: usize = 4 * RECORD_BYTES_MAX + (2 << 20);

/// What a text has at most, counted without reading its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Bytes.
    pub bytes: usize,
    /// Line breaks.
    pub lines: usize,
    /// Commas, between which the numbers of a JSON array are.
    pub commas: usize,
}

impl Counts {
    /// Counts a text.
    pub fn of(text: &[u8]) -> Counts {
        let mut counts = Counts::default();
        counts.add(text);
        counts
    }

    /// Adds what follows it.
    pub fn add(&mut self, text: &[u8]) {
        let count = |wanted: u8| text.iter().filter(|&&byte| byte == wanted).count();
        self.bytes += text.len();
        self.lines += count(b'\n');
        self.commas += count(b',');
    }
}

/// How an import is done within its memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// Bytes of a shard's text at most.
    pub shard_bytes: usize,
    /// Shards that are built at the same time.
    pub jobs: usize,
    /// Memory of each of them at most.
    job_bytes: usize,
    index: index::Options,
    format: Option<Format>,
    orders: usize,
}

/// What there is of what an import takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// Threads that run at the same time.
    pub cores: usize,
    /// Memory that could be had now.
    pub memory_bytes: usize,
}

impl Plan {
    /// Chooses what the options leave open.
    ///
    /// # Errors
    ///
    /// If they ask for more than the memory that they allow, with what that would take; if no shard is so
    /// small or so large.
    pub fn new(options: &Options, machine: Machine) -> anyhow::Result<Plan> {
        let mut plan = Plan {
            shard_bytes: SHARD_BYTES_MIN,
            jobs: options.jobs.unwrap_or(1),
            job_bytes: 0,
            index: options.index.clone(),
            format: options.format,
            orders: options.orders.len(),
        };
        ensure!((1..=1024).contains(&plan.jobs), "1 to 1024 shards are built at the same time");
        let least = PROCESS_BYTES + plan.jobs * plan.of_length(SHARD_BYTES_MIN);
        // Without a word of the user: half of what there is, but never less than it takes.
        let memory = options.memory_bytes.unwrap_or((machine.memory_bytes / 2).max(least));
        ensure!(
            memory >= least,
            "{} MiB of memory are too few: it takes at least {}",
            memory >> 20,
            least.div_ceil(1 << 20)
        );
        let each = |jobs: usize| (memory - PROCESS_BYTES) / jobs;
        plan.shard_bytes = match options.shard_bytes {
            Some(bytes) => {
                ensure!(
                    (SHARD_BYTES_MIN..=index::LEN_MAX - SEPARATOR_BYTES).contains(&bytes),
                    "a shard holds {SHARD_BYTES_MIN} to {} bytes of input",
                    index::LEN_MAX - SEPARATOR_BYTES
                );
                ensure!(
                    plan.of_length(bytes) <= each(plan.jobs),
                    "{} shards of {} MiB at a time take up to {} MiB of memory, of {} MiB that are \
                     allowed: allow more (--memory), or ask for smaller shards (--shard-size)",
                    plan.jobs,
                    bytes >> 20,
                    (PROCESS_BYTES + plan.jobs * plan.of_length(bytes)).div_ceil(1 << 20),
                    memory >> 20
                );
                bytes
            }
            None => plan.largest(each(plan.jobs)),
        };
        if options.jobs.is_none() {
            let fit = (memory - PROCESS_BYTES) / plan.of_length(plan.shard_bytes);
            plan.jobs = fit.clamp(1, machine.cores.max(1));
        }
        plan.job_bytes = each(plan.jobs);
        Ok(plan)
    }

    /// The most memory that a shard of so many bytes takes, if its lines are not too many.
    fn of_length(&self, bytes: usize) -> usize {
        self.memory_bytes(&Counts { bytes, ..Counts::default() })
    }

    /// The longest text, up to the usual length, that takes no more than so much memory.
    fn largest(&self, memory: usize) -> usize {
        let (mut low, mut high) = (SHARD_BYTES_MIN, SHARD_BYTES_DEFAULT);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.of_length(middle) <= memory { low = middle } else { high = middle - 1 }
        }
        low
    }

    /// The most memory that building a shard of such a text takes, the text itself included.
    pub fn memory_bytes(&self, counts: &Counts) -> usize {
        let &Counts { bytes, lines, commas } = counts;
        let records = lines + 1;
        let numbers = match (self.orders, self.format) {
            (0, _) => 0,
            (orders, Some(Format::Csv { .. })) => orders * records,
            // One value a line, or in JSON between two commas.
            _ => commas + records,
        };
        let split =
            bytes + RECORD_SPLIT_BYTES * records + NUMBER_SPLIT_BYTES * numbers + PENDING_BYTES;
        let build = index::build_memory_bytes(bytes, &self.index)
            + RECORD_BYTES * records
            + NUMBER_BYTES * numbers;
        // Whole files are held beside the text that is made of them.
        let files = match self.format {
            Some(Format::Files) => bytes + FILE_BYTES * records,
            _ => 0,
        };
        split.max(build) + files
    }

    /// Whether a text leaves room for more.
    pub fn fits(&self, counts: &Counts) -> bool {
        self.memory_bytes(counts) <= self.job_bytes
    }

    /// The most memory that the process takes while the shards being built take so much.
    pub fn total_bytes(&self, shards_bytes: usize) -> usize {
        PROCESS_BYTES + shards_bytes
    }

    /// Says what the records are, once that is known.
    pub fn follow(&mut self, format: Format) {
        self.format = Some(format);
    }
}

#[cfg(test)]
impl Plan {
    /// That of a large machine.
    pub fn default_of(options: &Options) -> Plan {
        Plan::new(options, Machine { cores: 4, memory_bytes: 64 << 30 }).unwrap()
    }
}

impl Machine {
    /// This one: its cores, and the memory that could be had without taking any from somebody, within the
    /// limits of this process's memory groups.
    ///
    /// # Errors
    ///
    /// If the system does not say.
    pub fn here() -> anyhow::Result<Machine> {
        let memory = Meminfo::current().context("cannot read /proc/meminfo")?;
        let available = memory.mem_available.unwrap_or(memory.mem_free);
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let limits =
            groups.lines().filter_map(|line| group_limit(Path::new("/sys/fs/cgroup"), line));
        let bytes = limits.fold(available, u64::min);
        Ok(Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        })
    }
}

/// The least limit of a memory group and those around it; `line` is one of /proc/self/cgroup. In version 2
/// all controllers share one tree; in version 1 that of memory has its own.
fn group_limit(mounted: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (root, file) = match controllers {
        "" => (mounted.to_owned(), "memory.max"),
        "memory" => (mounted.join("memory"), "memory.limit_in_bytes"),
        _ => return None,
    };
    let own = root.join(path.trim_start_matches('/'));
    let groups = own.ancestors().take_while(|group| group.starts_with(&root));
    let limit = |group: &Path| std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok();
    groups.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    fn options() -> Options {
        Options {
            format: None,
            key: None,
            orders: Vec::new(),
            index: index::Options::default(),
            shard_bytes: None,
            jobs: None,
            memory_bytes: None,
            replace: false,
        }
    }

    fn plan(options: &Options, cores: usize, memory_bytes: usize) -> anyhow::Result<Plan> {
        Plan::new(options, Machine { cores, memory_bytes })
    }

    #[test]
    fn shards_are_as_large_and_as_many_at_a_time_as_memory_allows() {
        let check = |memory: usize, cores: usize, shard_mib: usize, jobs: usize| {
            let options = Options { memory_bytes: Some(memory), ..options() };
            let plan = plan(&options, cores, 0).unwrap();
            assert_eq!((plan.shard_bytes >> 20, plan.jobs), (shard_mib, jobs), "{memory} B");
            let taken = plan.total_bytes(plan.jobs * plan.of_length(plan.shard_bytes));
            assert!(taken <= memory, "{taken} B of {memory}");
        };
        check(8 * GIB, 2, 256, 2);
        check(8 * GIB, 16, 256, 4);
        check(3 * GIB, 2, 256, 1);
        check(GIB, 2, 124, 1);
        // Nothing is said, and there is next to nothing: small inputs are imported all the same.
        assert_eq!(plan(&options(), 2, 0).unwrap().shard_bytes, SHARD_BYTES_MIN);
        assert_eq!(plan(&options(), 2, 8 * GIB).unwrap().jobs, 2);
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_what_it_would_take() {
        let refused = |options: Options, says: &str| {
            let error = format!("{:#}", plan(&options, 2, 8 * GIB).unwrap_err());
            assert!(error.contains(says), "{error}");
        };
        refused(Options { memory_bytes: Some(100 << 20), ..options() }, "at least");
        refused(Options { shard_bytes: Some(GIB), ..options() }, "--memory");
        refused(Options { shard_bytes: Some(1 << 20), ..options() }, "a shard holds");
        refused(Options { jobs: Some(0), ..options() }, "at the same time");
        let both = Options { shard_bytes: Some(256 << 20), jobs: Some(8), ..options() };
        refused(Options { memory_bytes: Some(8 * GIB), ..both }, "8 shards of 256 MiB");
    }

    #[test]
    fn short_records_end_a_shard_sooner() {
        let options = Options { memory_bytes: Some(GIB), orders: vec!["a".into()], ..options() };
        let mut plan = plan(&options, 2, 0).unwrap();
        plan.follow(Format::Lines);
        let bytes = plan.shard_bytes / 10 * 9;
        assert!(plan.fits(&Counts { bytes, lines: bytes / 1000, commas: 0 }));
        assert!(!plan.fits(&Counts { bytes, lines: bytes, commas: 0 }));
        assert!(plan.fits(&Counts { bytes: bytes / 8, lines: bytes / 8, commas: 0 }));
        assert_eq!(Counts::of(b"a,b\n\n,"), Counts { bytes: 6, lines: 2, commas: 2 });
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_around_it_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(root.join("memory/c")).unwrap();
        std::fs::write(root.join("a/memory.max"), "1000\n").unwrap();
        std::fs::write(root.join("a/b/memory.max"), "max\n").unwrap();
        std::fs::write(root.join("memory/c/memory.limit_in_bytes"), "2000\n").unwrap();
        assert_eq!(group_limit(root, "0::/a/b"), Some(1000));
        assert_eq!(group_limit(root, "0::/"), None);
        assert_eq!(group_limit(root, "4:memory:/c"), Some(2000));
        assert_eq!(group_limit(root, "3:cpu:/c"), None);
        assert_eq!(group_limit(root, "nonsense"), None);
        assert!(Machine::here().unwrap().memory_bytes > 0);
    }
}
