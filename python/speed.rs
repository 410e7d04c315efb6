//! The time of a call from Rust, beside which `tests/speed.py` puts that of the same call from Python.
//!
//! usage: speed MODEL RATE COUNT: the response-time CDF of the model at COUNT times up to a second, three times, seconds each.

use std::time::Instant;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, rate, count] = &arguments[..] else {
        anyhow::bail!("usage: speed MODEL RATE COUNT")
    };
    let model = report::read_model(path.as_ref())?;
    let (rate, count): (f64, usize) = (rate.parse()?, count.parse()?);
    let times_s: Vec<f64> = (0..count).map(|i| (i + 1) as f64 / count as f64).collect();
    for _ in 0..3 {
        let start = Instant::now();
        let shares = model.cdf(rate, &times_s)?;
        println!("{} {}", start.elapsed().as_secs_f64(), shares.iter().sum::<f64>());
    }
    Ok(())
}
