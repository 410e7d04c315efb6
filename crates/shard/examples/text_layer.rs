//! Measures text layers of a file: what they take, how long they take to make, how fast they are
//! read.
//!
//!     cargo run --release -p shard --example text_layer -- FILE [BLOCK TOKENS SAMPLE]...
//!
//! One line for each triple of bytes of a block, tokens, and bytes of samples. Reads are at random
//! offsets, in one thread, each checked against the file. All seconds are CPU seconds of that
//! thread as Linux counts them, so that a busy machine disturbs them less.

// A measurement needs a clock and a file, which the crate itself does without.
#![allow(clippy::disallowed_methods)]

use std::ops::Range;

use shard::layers::{Layers, TextBuild, TextOptions};
use shard::{Error, Text};

type Failure = Box<dyn std::error::Error>;

struct Plain(Vec<u8>);

impl Text for Plain {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn rows(&self, _: &[u8]) -> Range<usize> {
        0..0
    }

    fn locate(&self, _: Range<usize>, _: &mut Vec<usize>) {}

    fn extract(&self, offset: usize, len: usize, bytes: &mut Vec<u8>) -> Result<(), Error> {
        bytes.extend_from_slice(&self.0[offset..offset + len]);
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("which file?")?;
    let numbers: Vec<usize> =
        arguments.map(|argument| argument.parse()).collect::<Result<_, _>>()?;
    let text = Plain(std::fs::read(file)?);
    let mut options: Vec<TextOptions> = numbers
        .chunks_exact(3)
        .map(|n| TextOptions {
            block_bytes: n[0],
            tokens_max: n[1],
            sample_bytes: n[2],
            bytes_max: usize::MAX,
        })
        .collect();
    if options.is_empty() {
        options.push(TextOptions::default());
    }
    println!(
        "  block  tokens    sample  train s  blocks s  × text  64 B /s  1 KiB /s  hot 1 KiB /s"
    );
    for options in options {
        let start = cpu_s()?;
        let mut build = TextBuild::new(&text, options)?;
        let train_s = cpu_s()? - start;
        while !build.step(&text, 1000)?.is_finished() {}
        let blocks_s = cpu_s()? - start - train_s;
        let layers = Layers::new(text.len() + 1);
        layers.publish_text(build)?;
        let ratio = layers.footprint().text_bytes as f64 / text.len() as f64;
        let small = rate(&text, &layers, 64, text.len())?;
        let large = rate(&text, &layers, 1024, text.len())?;
        // Reads within 1 % of the text, all of which stays decoded.
        drop(layers.set_hot(text.len() / 50)?);
        rate(&text, &layers, 1024, text.len() / 100)?;
        let hot = rate(&text, &layers, 1024, text.len() / 100)?;
        println!(
            "{:7} {:7} {:9} {train_s:8.2} {blocks_s:9.2} {ratio:7.3} {small:8.0} {large:9.0} {hot:13.0}",
            options.block_bytes, options.tokens_max, options.sample_bytes
        );
    }
    Ok(())
}

/// Reads per CPU second of `len` bytes at random within the first `within` bytes.
fn rate(text: &Plain, layers: &Layers, len: usize, within: usize) -> Result<f64, Failure> {
    let reads = 100_000;
    let mut cpu = 0.0;
    // The same reads twice: timed, and checked, which would count in the time.
    for checked in [false, true] {
        let mut state = 1u64;
        let mut bytes = Vec::new();
        let start = cpu_s()?;
        for _ in 0..reads {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (state >> 33) as usize % (within - len);
            bytes.clear();
            assert!(layers.view().text(offset, len, &mut bytes));
            assert!(!checked || bytes == text.0[offset..offset + len]);
        }
        if !checked {
            cpu = cpu_s()? - start;
        }
    }
    Ok(f64::from(reads) / cpu)
}

/// CPU seconds of this thread so far.
fn cpu_s() -> Result<f64, Failure> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(times.split(' ').next().ok_or("no time")?.parse::<f64>()? / 1e9)
}
