//! The requests of a load. A request is a function of the seed and its number, so that it can be
//! regenerated (after a wait, on another connection, by another thread) instead of being stored.

use std::ops::Range;

use ground::window::{Nanos, Operation, SECOND, key_hash};
use rand::RngExt;
use rand::distr::Distribution;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::Zipf;

use super::arrivals::{Part, random, resolution_of, spread};
use super::client::memcached::KEY_MAX;
use super::error::Error;
use super::plan::{Keys, Popularity, Size, Speed};
use record::trace::Trace;

/// A request, without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub operation: Operation,
    /// `ground::window::key_hash` of the key.
    pub hash: u64,
    /// Size of the object in bytes; a put uploads as much.
    pub size: u64,
    /// The length of a correct get reply, where it is certain.
    pub expected: Option<u64>,
    /// The number of the listed request that is sent for the key, if the load has some.
    pub form: Option<u32>,
}

/// What tells the draws of listed requests from those of keys.
const FORMS: u64 = 0x6c69_7374;

/// A number uniform on 0 to 1, for the choice of listed request number `index`.
pub(super) fn draw(seed: u64, index: u64) -> f64 {
    random(seed ^ FORMS, index).random()
}

/// The keys of a load.
pub(super) enum KeySource {
    Synthetic {
        zipf: Option<Zipf<f64>>,
        count: u64,
        size: Size,
        before: String,
        after: String,
        read_share: f64,
        /// Number of keys in a get.
        multi_get: usize,
    },
    Trace(TraceKeys),
}

/// The keys of a trace.
pub(super) struct TraceKeys {
    trace: Trace,
    measured: Range<usize>,
    warmup: Range<usize>,
    /// For each key: the size of its object, and whether all puts of the key have that size.
    sizes: Vec<(u64, bool)>,
    resolution_ms: Option<f64>,
    /// If each row's key is a list of keys: every distinct key of the lists, with its size.
    listed: Option<Vec<(Box<[u8]>, u64)>>,
}

fn invalid(what: &'static str, reason: String) -> Error {
    Error::Keys { what, reason }
}

/// Of a trace that cannot be replayed.
fn unusable(reason: String) -> Error {
    Error::Trace { reason }
}

impl KeySource {
    /// Prepares the keys; reads the trace, if there is one. Each get is for `multi_get` generated
    /// keys. With `multi_get` above 1, the key of a trace's row is a list of up to that many keys,
    /// separated by spaces.
    pub fn open(keys: &Keys, multi_get: usize) -> Result<KeySource, Error> {
        match keys {
            Keys::Synthetic { popularity, count, size, format, read_share } => {
                let zipf = match popularity {
                    Popularity::Uniform => None,
                    Popularity::Zipf(s) => Some(
                        Zipf::new(*count as f64, *s)
                            .map_err(|error| invalid("zipf keys", error.to_string()))?,
                    ),
                };
                let parts = format.split_once("{i}");
                let (before, after) = parts
                    .ok_or_else(|| invalid("key format", format!("`{format}` has no {{i}}")))?;
                Ok(KeySource::Synthetic {
                    zipf,
                    count: *count,
                    size: *size,
                    before: before.to_owned(),
                    after: after.to_owned(),
                    read_share: *read_share,
                    multi_get,
                })
            }
            Keys::Trace { file, slice, warmup_slice, size, skip_broken, resolution_ms } => {
                let hull = slice.as_ref().map(|s| {
                    let w = warmup_slice.as_ref().unwrap_or(s);
                    s.start.min(w.start)..s.end.max(w.end)
                });
                let trace = Trace::open(file, hull.clone(), *skip_broken).map_err(|error| {
                    let line = matches!(error, record::Error::Line { .. });
                    if line { Error::BrokenLine(error) } else { Error::Record(error) }
                })?;
                if trace.rows.is_empty() {
                    return Err(unusable(format!(
                        "{} has no requests in the selected rows",
                        file.display()
                    )));
                }
                let first = hull.map_or(0, |h| h.start);
                let rows = trace.rows.len();
                let local = |r: &Range<u64>| -> Result<Range<usize>, Error> {
                    let range = (r.start - first) as usize..(r.end - first) as usize;
                    match range.end <= rows {
                        true => Ok(range),
                        false => Err(Error::Rows { from: r.start, to: r.end, rows }),
                    }
                };
                let measured = slice.as_ref().map_or(Ok(0..rows), local)?;
                let warmup = warmup_slice.as_ref().map_or(Ok(measured.clone()), local)?;
                let (sizes, listed) = if multi_get > 1 {
                    let (sizes, listed) = lists_of(&trace, *size, multi_get)?;
                    (sizes, Some(listed))
                } else {
                    (sizes_of(&trace, *size), None)
                };
                let resolution_ms = *resolution_ms;
                let keys = TraceKeys { trace, measured, warmup, sizes, resolution_ms, listed };
                Ok(KeySource::Trace(keys))
            }
        }
    }

    /// The number of distinct keys.
    pub fn distinct(&self) -> u64 {
        match self {
            KeySource::Synthetic { count, .. } => *count,
            KeySource::Trace(keys) => {
                keys.listed.as_ref().map_or(keys.trace.keys(), Vec::len) as u64
            }
        }
    }

    /// The number of requests in the measured slice of a trace.
    pub fn slice_len(&self) -> Option<u64> {
        match self {
            KeySource::Synthetic { .. } => None,
            KeySource::Trace(keys) => Some(keys.measured.len() as u64),
        }
    }

    /// The number of malformed lines of the trace that were skipped.
    pub fn broken(&self) -> u64 {
        match self {
            KeySource::Synthetic { .. } => 0,
            KeySource::Trace(keys) => keys.trace.broken,
        }
    }

    /// Returns request number `index` of a part and writes its key to `key`. The keys of a get of
    /// several are separated by spaces.
    ///
    /// A get of several keys has the hash of its first key, and the sum of all sizes.
    pub fn request(&self, part: Part, seed: u64, index: u64, key: &mut Vec<u8>) -> Request {
        key.clear();
        match self {
            KeySource::Synthetic { zipf, count, size, before, after, read_share, multi_get } => {
                let mut rng = random(seed ^ ((part as u64) << 62), index);
                let draw = |rng: &mut Xoshiro256PlusPlus| match zipf {
                    Some(zipf) => (zipf.sample(rng) as u64).saturating_sub(1),
                    None => rng.random_range(0..*count),
                };
                let push = |key: &mut Vec<u8>, number: u64| {
                    let from = key.len();
                    key.extend_from_slice(before.as_bytes());
                    push_number(key, number.min(count.saturating_sub(1)));
                    key.extend_from_slice(after.as_bytes());
                    key_hash(key.get(from..).unwrap_or_default())
                };
                let (number, read) = if part == Part::Fill {
                    (index, false)
                } else {
                    let number = draw(&mut rng);
                    (number, *read_share >= 1.0 || rng.random::<f64>() < *read_share)
                };
                let hash = push(key, number);
                let mut bytes = size.for_key(hash);
                if read {
                    for _ in 1..*multi_get {
                        key.push(b' ');
                        bytes += size.for_key(push(key, draw(&mut rng)));
                    }
                }
                let operation = if read { Operation::Get } else { Operation::Put };
                Request { operation, hash, size: bytes, expected: Some(bytes), form: None }
            }
            KeySource::Trace(keys) => keys.request(part, index, key),
        }
    }

    /// Returns the arrival times of the measured slice at a speed, and their mean rate.
    pub fn times(&self, speed: Speed, seed: u64) -> Result<(Vec<Nanos>, f64), Error> {
        match self {
            KeySource::Synthetic { .. } => {
                Err(unusable("arrival times of a trace require keys of a trace".to_owned()))
            }
            KeySource::Trace(keys) => keys.times(speed, seed),
        }
    }
}

impl TraceKeys {
    fn request(&self, part: Part, index: u64, key: &mut Vec<u8>) -> Request {
        let range = if part == Part::Warmup { &self.warmup } else { &self.measured };
        if let (Part::Fill, Some(listed)) = (part, &self.listed) {
            let Some((text, size)) = listed.get(index as usize) else {
                return Request {
                    operation: Operation::Put,
                    hash: 0,
                    size: 0,
                    expected: None,
                    form: None,
                };
            };
            key.extend_from_slice(text);
            let hash = key_hash(text);
            return Request {
                operation: Operation::Put,
                hash,
                size: *size,
                expected: Some(*size),
                form: None,
            };
        }
        let (id, row) = if part == Part::Fill {
            (index as u32, None)
        } else {
            let at = range.start + (index % range.len().max(1) as u64) as usize;
            let row = self.trace.rows[at];
            (row.key, Some(row))
        };
        key.extend_from_slice(self.trace.key(id));
        let (size, agreed) = self.sizes.get(id as usize).copied().unwrap_or_default();
        let operation = row.map_or(Operation::Put, |row| row.operation);
        let own = row.and_then(|row| row.size).filter(|_| operation == Operation::Put);
        let first = match &self.listed {
            Some(_) => key.split(|&b| b == b' ').next().unwrap_or_default(),
            None => key,
        };
        Request {
            operation,
            hash: key_hash(first),
            size: own.map_or(size, u64::from),
            expected: agreed.then_some(size),
            form: None,
        }
    }

    fn times(&self, speed: Speed, seed: u64) -> Result<(Vec<Nanos>, f64), Error> {
        let mut stamps = Vec::with_capacity(self.measured.len());
        for (at, row) in self.trace.rows[self.measured.clone()].iter().enumerate() {
            let row_number = self.measured.start + at;
            let time = row.time.ok_or_else(|| {
                unusable(format!(
                    "row {row_number} of the trace has no time, which --arrivals trace requires"
                ))
            })?;
            if stamps.last().is_some_and(|&last| time < last) {
                return Err(unusable(format!(
                    "row {row_number} of the trace is earlier than the row before it"
                )));
            }
            stamps.push(time);
        }
        let resolution = match self.resolution_ms {
            Some(ms) => (ms * 1e6) as Nanos,
            None => resolution_of(&stamps).ok_or_else(|| {
                let reason = "all times in the trace's slice are equal; give --resolution-ms, or draw the \
                              arrivals with --arrivals poisson";
                unusable(reason.to_owned())
            })?,
        };
        let mut times = spread(&stamps, resolution, seed);
        let span = stamps[stamps.len() - 1] - stamps[0] + resolution;
        if span == 0 {
            return Err(unusable("the trace's slice has zero duration".to_owned()));
        }
        let recorded = times.len() as f64 / (span as f64 / SECOND as f64);
        let factor = match speed {
            Speed::Factor(factor) => factor,
            Speed::Rate(rate) => rate / recorded,
        };
        times.iter_mut().for_each(|t| *t = (*t as f64 / factor) as Nanos);
        Ok((times, recorded * factor))
    }
}

/// Returns, for each key, the size in the first of its rows that has one (else the default), and
/// whether all its puts have that size.
fn sizes_of(trace: &Trace, default: Size) -> Vec<(u64, bool)> {
    let mut sizes: Vec<Option<u64>> = vec![None; trace.keys()];
    for row in &trace.rows {
        if let (Some(size), Some(slot)) = (row.size, sizes.get_mut(row.key as usize)) {
            slot.get_or_insert(u64::from(size));
        }
    }
    let mut sizes: Vec<(u64, bool)> = sizes
        .into_iter()
        .enumerate()
        .map(|(i, size)| {
            (size.unwrap_or_else(|| default.for_key(key_hash(trace.key(i as u32)))), true)
        })
        .collect();
    for row in trace.rows.iter().filter(|row| row.operation == Operation::Put) {
        if let (Some(size), Some(slot)) = (row.size, sizes.get_mut(row.key as usize)) {
            slot.1 &= slot.0 == u64::from(size);
        }
    }
    sizes
}

/// What [`lists_of`] returns: for each list the size of all its values (and that it is certain), and
/// every distinct key with its size, in the order of first appearance.
type Lists = (Vec<(u64, bool)>, Vec<(Box<[u8]>, u64)>);

/// Reads the keys of a trace as lists of up to `most` keys.
fn lists_of(trace: &Trace, default: Size, most: usize) -> Result<Lists, Error> {
    if let Some(at) = trace.rows.iter().position(|row| row.operation != Operation::Get) {
        return Err(unusable(format!(
            "row {at} of the trace is not a get: with lists of keys, all rows are gets"
        )));
    }
    if let Some(at) = trace.rows.iter().position(|row| row.size.is_some()) {
        return Err(unusable(format!(
            "row {at} of the trace has a size: with lists of keys, --size determines that of each key"
        )));
    }
    let mut seen = std::collections::HashSet::new();
    let (mut sizes, mut listed) = (Vec::with_capacity(trace.keys()), Vec::new());
    for id in 0..trace.keys() as u32 {
        let (mut count, mut bytes) = (0, 0);
        for key in trace.key(id).split(|&b| b == b' ') {
            let plain = key.iter().all(u8::is_ascii_graphic);
            if !plain || !(1..=KEY_MAX).contains(&key.len()) {
                return Err(Error::Key { key: key.escape_ascii().to_string() });
            }
            let size = default.for_key(key_hash(key));
            (count, bytes) = (count + 1, bytes + size);
            if seen.insert(key) {
                listed.push((key.into(), size));
            }
        }
        if count > most {
            return Err(unusable(format!(
                "a row of the trace has {count} keys, but --multi-get allows {most}"
            )));
        }
        sizes.push((bytes, true));
    }
    Ok((sizes, listed))
}

fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn synthetic(popularity: Popularity, count: u64, read_share: f64) -> KeySource {
        several(popularity, count, read_share, 1)
    }

    fn several(popularity: Popularity, count: u64, read_share: f64, multi_get: usize) -> KeySource {
        let keys = Keys::Synthetic {
            popularity,
            count,
            size: Size { min: 100, max: 1000 },
            format: "k{i}.bin".to_owned(),
            read_share,
        };
        KeySource::open(&keys, multi_get).unwrap()
    }

    #[test]
    fn a_get_of_several_keys_begins_with_the_key_of_one() {
        let (one, four) = (several(Popularity::Zipf(0.9), 99, 0.7, 1), 4);
        let many = several(Popularity::Zipf(0.9), 99, 0.7, four);
        let (mut key, mut keys) = (Vec::new(), Vec::new());
        let mut gets = 0;
        for index in 0..200 {
            let alone = one.request(Part::Measured, 5, index, &mut key);
            let request = many.request(Part::Measured, 5, index, &mut keys);
            assert_eq!((request.operation, request.hash), (alone.operation, alone.hash));
            let each: Vec<&[u8]> = keys.split(|&b| b == b' ').collect();
            assert_eq!(each[0], key);
            let get = request.operation == Operation::Get;
            assert_eq!(each.len(), if get { four } else { 1 });
            let size = Size { min: 100, max: 1000 };
            let total: u64 = each.iter().map(|k| size.for_key(key_hash(k))).sum();
            assert_eq!(request.expected, Some(total));
            gets += u32::from(get);
        }
        assert!((100..180).contains(&gets), "{gets}");
    }

    #[test]
    fn zipf_keys_have_the_exact_probabilities() {
        let (count, s, draws) = (50u64, 0.9, 200_000u64);
        let source = synthetic(Popularity::Zipf(s), count, 1.0);
        let mut seen = vec![0u64; count as usize];
        let mut key = Vec::new();
        for index in 0..draws {
            source.request(Part::Measured, 3, index, &mut key);
            let text = std::str::from_utf8(&key).unwrap();
            let number: usize =
                text.strip_prefix('k').unwrap().strip_suffix(".bin").unwrap().parse().unwrap();
            seen[number] += 1;
        }
        let weights: Vec<f64> = (1..=count).map(|i| (i as f64).powf(-s)).collect();
        let total: f64 = weights.iter().sum();
        let chi_squared: f64 = weights
            .iter()
            .zip(&seen)
            .map(|(w, &n)| {
                let expected = draws as f64 * w / total;
                (n as f64 - expected).powi(2) / expected
            })
            .sum();
        // 49 degrees of freedom: mean 49, standard deviation 9.9; 99.99 % is 95.
        assert!(chi_squared < 95.0, "chi-squared {chi_squared}");
    }

    #[test]
    fn requests_are_functions_of_seed_and_number() {
        let source = synthetic(Popularity::Uniform, 1000, 0.7);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let mut reads = 0;
        for index in 0..2000 {
            let request = source.request(Part::Measured, 9, index, &mut a);
            assert_eq!(request, source.request(Part::Measured, 9, index, &mut b));
            assert_eq!(a, b);
            assert!((100..=1000).contains(&request.size));
            reads += u32::from(request.operation == Operation::Get);
        }
        assert!((1300..1500).contains(&reads), "{reads} of 2000 reads, 1400 expected");
        source.request(Part::Fill, 9, 999, &mut a);
        assert_eq!(a, b"k999.bin");
    }

    fn lists(text: &str, most: usize) -> Result<KeySource, Error> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("t.csv");
        std::fs::write(&file, format!("time_ms,key,size,op\n{text}")).unwrap();
        let keys = Keys::Trace {
            file,
            slice: None,
            warmup_slice: None,
            size: Size { min: 100, max: 1000 },
            skip_broken: false,
            resolution_ms: None,
        };
        KeySource::open(&keys, most)
    }

    #[test]
    fn a_row_of_a_trace_may_be_a_list_of_keys() {
        let source = lists("0,a b c,,\n1,b,,get\n2,d a,,\n", 3).unwrap();
        let size = |key: &str| Size { min: 100, max: 1000 }.for_key(key_hash(key.as_bytes()));
        let mut key = Vec::new();
        for (index, text) in ["a b c", "b", "d a"].into_iter().enumerate() {
            let request = source.request(Part::Measured, 1, index as u64, &mut key);
            let total: u64 = text.split(' ').map(size).sum();
            assert_eq!((&*key, request.expected), (text.as_bytes(), Some(total)));
            assert_eq!(request.hash, key_hash(&text.as_bytes()[..1]));
            assert_eq!(request.operation, Operation::Get);
        }
        assert_eq!(source.distinct(), 4);
        for (index, text) in ["a", "b", "c", "d"].into_iter().enumerate() {
            let request = source.request(Part::Fill, 1, index as u64, &mut key);
            assert_eq!((&*key, request.size), (text.as_bytes(), size(text)));
            assert_eq!(request.operation, Operation::Put);
        }
        let long = format!("0,{},,\n", "k".repeat(251));
        let rows = [
            ("0,a b c,,\n", 2, "has 3 keys"),
            ("0,a  b,,\n", 9, "1 to 250"),
            (long.as_str(), 9, "1 to 250"),
            ("0,a,5,\n", 9, "has a size"),
            ("0,a,,put\n", 9, "not a get"),
        ];
        for (text, most, words) in rows {
            let error = lists(text, most).err().unwrap().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn traces_are_replayed_from_their_slice() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("t.csv");
        let rows = "0,w,10,\n0,a,20,\n1000,b,,get\n1000,a,30,put\n2000,c,5,head\n";
        std::fs::write(&file, format!("time_ms,key,size,op\n{rows}")).unwrap();
        let keys = |file: PathBuf| Keys::Trace {
            file,
            slice: Some(1..5),
            warmup_slice: Some(0..1),
            size: Size::fixed(7),
            skip_broken: false,
            resolution_ms: None,
        };
        let source = KeySource::open(&keys(file), 1).unwrap();
        let mut key = Vec::new();
        let mut draw = |part, index| {
            let request = source.request(part, 0, index, &mut key);
            (
                String::from_utf8(key.clone()).unwrap(),
                request.operation,
                request.size,
                request.expected,
            )
        };
        use Operation::{Get, Head, Put};
        assert_eq!(draw(Part::Warmup, 5), ("w".to_owned(), Get, 10, Some(10)));
        assert_eq!(draw(Part::Measured, 0), ("a".to_owned(), Get, 20, None));
        assert_eq!(draw(Part::Measured, 5), ("b".to_owned(), Get, 7, Some(7)));
        assert_eq!(draw(Part::Measured, 2), ("a".to_owned(), Put, 30, None));
        assert_eq!(draw(Part::Measured, 3), ("c".to_owned(), Head, 5, Some(5)));
        assert_eq!(draw(Part::Fill, 1), ("a".to_owned(), Put, 20, None));
        assert_eq!((source.distinct(), source.slice_len()), (4, Some(4)));
        let (times, rate) = source.times(Speed::Rate(8.0), 1).unwrap();
        assert!((rate - 8.0).abs() < 1e-9);
        // Four rows over three seconds, six times as fast.
        assert!(times[0] < 166_666_668 && (333_333_333..500_000_001).contains(&times[3]));
        assert!(KeySource::open(&keys(dir.path().join("none")), 1).is_err());
    }
}
