//! The time of a call from Rust, beside which `tests/speed.py` puts that of the same call from Python.
//!
//! usage: speed MODEL RATE COUNT: the published model's response-time CDF at COUNT times up to a second, twenty times, seconds each. It
//! is the cheapest of all calls with an array, so that what Python adds weighs most.

use std::time::Instant;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, rate, count] = &arguments[..] else {
        anyhow::bail!("usage: speed MODEL RATE COUNT")
    };
    let model = report::read_model(path.as_ref())?;
    let (rate, count): (f64, usize) = (rate.parse()?, count.parse()?);
    let times_s: Vec<f64> = (0..count).map(|i| (i + 1) as f64 / count as f64).collect();
    for _ in 0..20 {
        let start = Instant::now();
        let shares = model.spotify_cdf(rate, &times_s)?;
        println!("{} {}", start.elapsed().as_secs_f64(), shares.iter().sum::<f64>());
    }
    Ok(())
}
