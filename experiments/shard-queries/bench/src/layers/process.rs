//! What the kernel says of this process and thread (Linux).

use anyhow::Context as _;

/// Bytes of a page where statm counts pages; the smallest that Linux has.
const PAGE_BYTES: i64 = 4096;

/// Bytes of this process that are in memory.
///
/// # Errors
/// If the kernel does not say.
pub fn resident_bytes() -> anyhow::Result<i64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").context("cannot read statm")?;
    let pages = sizes.split(' ').nth(1).context("statm says no size")?;
    Ok(pages.parse::<i64>()? * PAGE_BYTES)
}

/// CPU seconds of this thread so far.
///
/// # Errors
/// If the kernel does not say.
pub fn cpu_s() -> anyhow::Result<f64> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat")
        .context("cannot read schedstat; is the kernel Linux with CONFIG_SCHED_INFO?")?;
    let ns = times.split(' ').next().context("schedstat says no time")?;
    Ok(ns.parse::<f64>()? / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_and_memory_are_seen() {
        let (cpu, resident) = (cpu_s().unwrap(), resident_bytes().unwrap());
        let bytes = std::hint::black_box(vec![1u8; 64 << 20]);
        let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
        assert_eq!(sum, 64 << 20);
        assert!(cpu_s().unwrap() > cpu);
        assert!(resident_bytes().unwrap() > resident + (32 << 20));
    }
}
