//! Any bytes as a trace of requests, plain or compressed: keys and sizes are those of its rows, and a slice is a part of
//! the whole.

#![no_main]

mod edits;

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use record::trace::Trace;

const SEEDS: [&[u8]; 3] = [
    b"0.5,key-a,100\n0.5,key-b,20\n1.25,key%20a,100\n",
    b"{\"time\":1,\"key\":\"a\",\"size\":5}\n",
    b"# time key size\n1 a 10 get\n2 b 20 set\n2 c 4294967296 get\n",
];

// Input: `[how]`, then the trace.
fuzz_target!(|data: &[u8]| {
    let [how, data @ ..] = data else { return };
    let bytes = edits::edited(&SEEDS, data);
    let read = |bytes: &[u8], slice| {
        if how & 1 == 1 {
            let input = std::io::BufReader::new(record::zst::Decoder::new(bytes));
            return Trace::read(input, Path::new("-"), slice, how & 2 == 2);
        }
        Trace::read(bytes, Path::new("-"), slice, how & 2 == 2)
    };
    let Ok(mut trace) = read(&bytes, None) else { return };
    assert!(how & 2 == 2 || trace.broken == 0);
    assert!(trace.rows.iter().all(|row| (row.key as usize) < trace.keys()));
    let (from, to) = (u64::from(how >> 2), 20);
    if let Ok(part) = read(&bytes, Some(from..to)) {
        let rows = trace.rows.len().min(to as usize).saturating_sub(from as usize);
        assert_eq!(part.rows.len(), rows);
    }
    let _ = trace.times_spread();
    trace.spread_times();
});
