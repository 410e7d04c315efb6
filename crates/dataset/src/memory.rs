//! Estimates the memory of an import, and chooses the size of shards for a memory limit.
//!
//! The build of a shard has two phases, and takes the memory of the larger: splitting its text into
//! records (the text, 8 bytes for the start of each record, 16 for each number of an ordered
//! attribute), and sorting its suffixes ([`index::build_memory_bytes`], at most about seven times
//! the text). The number of records is unknown before the split, but at most the number of lines.
//! The reader therefore counts lines, and ends a shard early if very short records would take more
//! memory than the text's index.
//!
//! In addition there are the bytes of the last record read, with which the next shard begins, and
//! the process itself: [`PROCESS_BYTES`]. The page cache is not counted, because the system frees
//! it when memory is needed.

use shard::index;
use shard::record::{Format, RECORD_BYTES_MAX};

use super::error::{Context as _, Result, ensure};
use super::options::Options;

/// The smallest size of a shard: two of the longest records.
pub(super) const SHARD_BYTES_MIN: usize = 2 * RECORD_BYTES_MAX;
/// The default size of a shard. Larger shards would make searches of large datasets faster, because
/// there are fewer of them, but need more memory to build.
const SHARD_BYTES_DEFAULT: usize = 256 << 20;
/// The longest separator that may be added after the last piece of an input.
pub(super) const SEPARATOR_BYTES: usize = 2;

/// The process without its shards: the program, file buffers, memory kept by the allocator, and the
/// last record read with the one after it.
const PROCESS_BYTES: usize = (64 << 20) + 2 * RECORD_BYTES_MAX;
/// Per record while a text is split: its start, and its share of the encoded sequence of starts.
const RECORD_SPLIT_BYTES: usize = 12;
/// Per record while the index is built.
const RECORD_BYTES: usize = 4;
/// Per number of an ordered attribute while a text is split: the number, its record, and sorted
/// copies.
const NUMBER_SPLIT_BYTES: usize = 40;
/// Per number of an ordered attribute while the index is built.
const NUMBER_BYTES: usize = 20;
/// Per whole file, besides its path and its content.
const FILE_BYTES: usize = 100;
/// Incomplete records, and their copy, while a text is split.
const PENDING_BYTES: usize = 4 * RECORD_BYTES_MAX + (2 << 20);

/// Upper bounds on the content of a text, counted without splitting it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Bytes.
    pub bytes: usize,
    /// Line breaks.
    pub lines: usize,
    /// Commas, which bound the numbers in a JSON array.
    pub commas: usize,
}

impl Counts {
    /// Counts a text.
    pub fn from_text(text: &[u8]) -> Counts {
        let mut counts = Counts::default();
        counts.add(text);
        counts
    }

    /// Adds the counts of further text.
    pub fn add(&mut self, text: &[u8]) {
        let count = |wanted: u8| text.iter().filter(|&&byte| byte == wanted).count();
        self.bytes += text.len();
        self.lines += count(b'\n');
        self.commas += count(b',');
    }
}

/// The sizes chosen for an import within its memory limit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// The largest text of a shard, bytes.
    pub shard_bytes: usize,
    /// The number of shards built concurrently.
    pub jobs: usize,
    /// The memory limit of each of them.
    job_bytes: usize,
    index: index::Options,
    format: Option<Format>,
    orders: usize,
}

/// The processors and the memory that this process may use.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The number of concurrent threads.
    pub cores: usize,
    /// The available memory, bytes.
    pub memory_bytes: usize,
}

impl Plan {
    /// Chooses the values that the options leave open.
    ///
    /// # Errors
    ///
    /// If the options need more memory than they allow (the message says how much); if a value is
    /// out of range.
    pub fn new(options: &Options, machine: Machine) -> Result<Plan> {
        let mut plan = Plan {
            shard_bytes: SHARD_BYTES_MIN,
            jobs: options.jobs.unwrap_or(1),
            job_bytes: 0,
            index: options.index.clone(),
            format: options.format,
            orders: options.orders.len(),
        };
        ensure!(
            (1..=1024).contains(&plan.jobs),
            Invalid,
            "1 to 1024 shards can be built at the same time"
        );
        let least = PROCESS_BYTES + plan.jobs * plan.of_length(SHARD_BYTES_MIN);
        // The default is half of the available memory, but at least the minimum.
        let memory = options.memory_bytes.unwrap_or((machine.memory_bytes / 2).max(least));
        ensure!(
            memory >= least,
            Invalid,
            "{} MiB of memory are too little: the import needs at least {} MiB",
            memory >> 20,
            least.div_ceil(1 << 20)
        );
        let each = |jobs: usize| (memory - PROCESS_BYTES) / jobs;
        plan.shard_bytes = match options.shard_bytes {
            Some(bytes) => {
                ensure!(
                    (SHARD_BYTES_MIN..=index::LEN_MAX - SEPARATOR_BYTES).contains(&bytes),
                    Invalid,
                    "shard size out of range: a shard holds {} MiB to {} MiB of input, not {bytes} bytes; an \
                     input is split into smaller ones by --parts",
                    SHARD_BYTES_MIN >> 20,
                    (index::LEN_MAX - SEPARATOR_BYTES) >> 20
                );
                ensure!(
                    plan.of_length(bytes) <= each(plan.jobs),
                    Invalid,
                    "{} shards of {} MiB at a time take up to {} MiB of memory, but only {} MiB \
                     are allowed: allow more (--memory), or choose smaller shards (--shard-size) or more \
                     parts (--parts)",
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

    /// The most memory that a shard of `bytes` takes, unless its lines are very short.
    fn of_length(&self, bytes: usize) -> usize {
        self.memory_bytes(&Counts { bytes, ..Counts::default() })
    }

    /// The longest text, up to the default size, that takes at most `memory`.
    fn largest(&self, memory: usize) -> usize {
        let (mut low, mut high) = (SHARD_BYTES_MIN, SHARD_BYTES_DEFAULT);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.of_length(middle) <= memory { low = middle } else { high = middle - 1 }
        }
        low
    }

    /// The most memory that the build of a shard takes, including the text itself.
    pub fn memory_bytes(&self, counts: &Counts) -> usize {
        let &Counts { bytes, lines, commas } = counts;
        let records = lines + 1;
        let numbers = match (self.orders, self.format) {
            (0, _) => 0,
            (orders, Some(Format::Csv { .. })) => orders * records,
            // One value per line, or in JSON one between two commas.
            _ => commas + records,
        };
        let split =
            bytes + RECORD_SPLIT_BYTES * records + NUMBER_SPLIT_BYTES * numbers + PENDING_BYTES;
        let build = index::build_memory_bytes(bytes, &self.index)
            + RECORD_BYTES * records
            + NUMBER_BYTES * numbers;
        // Whole files are held in memory besides the text made of them.
        let files = match self.format {
            Some(Format::Files) => bytes + FILE_BYTES * records,
            _ => 0,
        };
        split.max(build) + files
    }

    /// Whether a shard of this text stays within its memory limit.
    pub fn fits(&self, counts: &Counts) -> bool {
        self.memory_bytes(counts) <= self.job_bytes
    }

    /// The most memory that the process takes while the builds take `shards_bytes`.
    pub fn total_bytes(&self, shards_bytes: usize) -> usize {
        PROCESS_BYTES + shards_bytes
    }

    /// Sets the format once it is known.
    pub fn follow(&mut self, format: Format) {
        self.format = Some(format);
    }
}

#[cfg(test)]
impl Plan {
    /// The plan for a large machine.
    pub fn default_of(options: &Options) -> Plan {
        Plan::new(options, Machine { cores: 4, memory_bytes: 64 << 30 }).unwrap()
    }
}

impl Machine {
    /// This machine: its cores, and the memory available within the limits of this process's
    /// control groups.
    ///
    /// # Errors
    ///
    /// If /proc/meminfo cannot be read.
    pub fn current() -> Result<Machine> {
        let bytes = record::memory::available_bytes()
            .map_err(std::io::Error::other)
            .context(|| "cannot read /proc/meminfo".to_owned())?;
        Ok(Machine {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    fn options() -> Options {
        Options {
            format: None,
            header: shard::record::detect::Header::Given,
            columns: Vec::new(),
            key: None,
            orders: Vec::new(),
            index: index::Options::default(),
            shard_bytes: None,
            jobs: None,
            memory_bytes: None,
            replace: false,
        }
    }

    fn plan(options: &Options, cores: usize, memory_bytes: usize) -> Result<Plan> {
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
        // No limit given and almost no memory available: small inputs are imported all the same.
        assert_eq!(plan(&options(), 2, 0).unwrap().shard_bytes, SHARD_BYTES_MIN);
        assert_eq!(plan(&options(), 2, 8 * GIB).unwrap().jobs, 2);
    }

    #[test]
    fn contradictory_options_are_refused_with_the_memory_they_need() {
        let refused = |options: Options, says: &str| {
            let error = plan(&options, 2, 8 * GIB).unwrap_err().to_string();
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
        assert_eq!(Counts::from_text(b"a,b\n\n,"), Counts { bytes: 6, lines: 2, commas: 2 });
    }
}
