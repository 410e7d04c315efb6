//! `concertina capacity URL`: the capacity of a store that is measured.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, ensure};
use clap::parser::ValueSource;
use clap::{ArgMatches, Parser};
use ground::number::decimals;
use model::capacity::MixPart;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use report::grid::Grid;
use report::objective::digits;

use super::capacity_affine::affine_text;
use super::load::{bar, interrupted as exit_code, watch_interrupts};
use super::load_http::HttpOptions;
use super::load_options::LoadOptions;
use super::load_values::{bytes, seconds};
use crate::cli::output::{errln, out, outln};
use crate::survey::{Folder, Reads, Settings, Survey, bytes_of_objects, part, reads, run as go};
use load::{Load, Plan, Progress};

/// Options of a measurement.
#[derive(clap::Args)]
pub(super) struct Flags {
    /// file://: overwrite the block device or file; without this it is only read
    #[arg(long, help_heading = "A store")]
    destroy: bool,
    /// Sizes of the objects
    #[arg(long, value_delimiter = ',', value_name = "BYTES,…", help_heading = "A store")]
    #[arg(default_value = "4KiB,16KiB,64KiB,256KiB,1MiB", value_parser = size)]
    sizes: Vec<u64>,
    /// Mixes to judge the law on, which the fit does not use: drawn, of one, two and three sizes
    #[arg(long, default_value_t = 12, value_name = "N", help_heading = "A store")]
    judge: usize,
    /// Length of a repetition of a point
    #[arg(long, default_value = "2s", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "A store")]
    duration: f64,
    /// Warm-up before it
    #[arg(long, default_value = "200ms", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "A store")]
    warmup: f64,
    /// Repetitions of every point, in turn
    #[arg(long, default_value_t = 3, value_name = "N", help_heading = "A store")]
    repeat: usize,
    /// The most clients
    #[arg(long, default_value_t = 64, value_name = "N", help_heading = "A store")]
    clients_max: usize,
    /// Path before the key, if the address has no path [default: /objects/]
    #[arg(long, value_name = "PATH", help_heading = "A store")]
    prefix: Option<String>,
    /// s3: a file with the credentials [default: of the environment]
    #[arg(long, value_name = "FILE", help_heading = "A store")]
    credentials: Option<String>,
    /// Generator threads
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "A store")]
    threads: usize,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "A store")]
    seed: u64,
    /// The folder of the run folders [default: runs/TIME]
    #[arg(long, value_name = "DIR", help_heading = "A store")]
    out: Option<String>,
    /// Show no progress
    #[arg(long, short, help_heading = "A store")]
    quiet: bool,
    #[command(flatten)]
    http: HttpOptions,
}

/// The first option of a measurement that a command line has: a table of measurements uses none of them but `--quiet`. Values do not
/// tell which options were given, since one may be given its default.
pub(super) fn given_option(given: &ArgMatches) -> Option<String> {
    let of_measurements = <Flags as clap::Args>::augment_args(clap::Command::new(""));
    let mut options = of_measurements.get_arguments().filter(|option| option.get_id() != "quiet");
    let is_given = |option: &&clap::Arg| {
        given.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine)
    };
    options.find(is_given).and_then(clap::Arg::get_long).map(|name| format!("--{name}"))
}

fn size(text: &str) -> Result<u64, String> {
    let bytes = bytes(text.trim())?;
    match bytes {
        1..=1_073_741_824 => Ok(bytes),
        _ => Err(format!("a size of {bytes} bytes: 1 byte to 1 GiB expected")),
    }
}

/// The options of a load, as `concertina load` reads them.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: LoadOptions,
}

/// A warning.
const CACHED: &str = "The file system has no O_DIRECT: reads may come from memory, and each write ends with fdatasync.";

/// The plan of a load with the options of this command.
fn plan(url: &str, flags: &Flags) -> anyhow::Result<Plan> {
    let mut words = vec!["load".to_owned(), url.to_owned()];
    let given =
        [("prefix", &flags.prefix), ("credentials", &flags.credentials), ("out", &flags.out)];
    for (name, value) in given {
        words.extend(value.iter().map(|value| format!("--{name}={value}")));
    }
    words.push(format!("--threads={}", flags.threads));
    words.push(format!("--seed={}", flags.seed));
    let options = Line::try_parse_from(words)?.options;
    let mut plan = options.plan(Load::Nothing, options.generated(), 1)?;
    flags.http.apply(&mut plan, None)?;
    Ok(plan)
}

/// What is measured of the paths of this machine.
#[derive(Default)]
struct Target {
    /// A folder that was made for the objects; it is removed with this value.
    #[expect(dead_code, reason = "held, not used")]
    folder: Option<Folder>,
    /// Whether nothing may be written.
    reads_only: bool,
}

impl Target {
    /// Makes a folder for objects, or checks that a device or a file holds one of each size.
    fn prepare(
        path: &Path,
        plan: &mut Plan,
        flags: &Flags,
        sizes: &[u64],
        wanted: &[Vec<MixPart>],
    ) -> anyhow::Result<Target> {
        let kind = path.metadata().with_context(|| format!("cannot use {}", path.display()))?;
        if kind.is_dir() {
            ensure!(!flags.destroy, "--destroy is for a block device or a file, not for a folder");
            let of_mixes = wanted.iter().flatten().map(|part| part.size_bytes as u64);
            let mut all: Vec<u64> = sizes.iter().copied().chain(of_mixes).collect();
            all.sort_unstable();
            all.dedup();
            let made = Folder::create(path, bytes_of_objects(&all))?;
            plan.url = format!("file://{}", made.path().display());
            plan.destroy = true;
            Ok(Target { folder: Some(made), reads_only: false })
        } else {
            plan.destroy = flags.destroy;
            let reads_only = !flags.destroy;
            let of_mixes = wanted.iter().flatten().map(|part| part.size_bytes as u64);
            let largest = sizes.iter().copied().chain(of_mixes).max().unwrap_or(0);
            let bytes = plan.device_bytes()?.unwrap_or(u64::MAX);
            ensure!(
                largest <= bytes,
                "{} has {bytes} bytes, fewer than an object of {largest}: give smaller --sizes",
                path.display()
            );
            ensure!(
                !reads_only || wanted.is_empty(),
                "{} is only read, so mixes cannot be predicted; --destroy overwrites it",
                path.display()
            );
            Ok(Target { folder: None, reads_only })
        }
    }
}

/// Measures, fits, judges and prints.
pub(super) fn run(
    url: &str,
    flags: &Flags,
    wanted: Vec<Vec<MixPart>>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let mut plan = plan(url, flags)?;
    let mut sizes = flags.sizes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let path = url.strip_prefix("file://").map(Path::new);
    ensure!(path.is_some() || !flags.destroy, "--destroy is for file:///PATH");
    let stop = Arc::new(AtomicBool::new(false));
    watch_interrupts(&stop)?;
    let target = match path {
        Some(path) => Target::prepare(path, &mut plan, flags, &sizes, &wanted)?,
        None => Target::default(),
    };
    let cached = plan.is_cached();
    let settings = Settings {
        plan,
        mixes: random_mixes(&sizes, flags.judge, flags.seed),
        sizes,
        step_s: flags.duration,
        warmup_s: flags.warmup,
        repeat: flags.repeat.max(1),
        clients_max: flags.clients_max.max(1),
        wanted,
    };
    let bar = bar(flags.quiet || !std::io::stderr().is_terminal());
    let mut progress = |p: &Progress| {
        bar.set_position((p.done * 1000.0) as u64);
        bar.set_prefix(p.stage.clone());
        bar.set_message(format!("{}/s, {} errors", decimals(p.rate, 0), p.errors));
    };
    if target.reads_only {
        let found = reads(&settings, &stop, &mut progress);
        bar.finish_and_clear();
        let found = match found {
            Err(error) if stop.load(Ordering::Relaxed) => return Ok(interrupted(&error)),
            found => found?,
        };
        if json {
            outln!("{:#}", serde_json::to_value(&found)?);
        } else {
            out!("{}", reads_text(url, &found, cached));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let survey = go(&settings, &stop, &mut progress);
    bar.finish_and_clear();
    drop(target);
    let mut survey = match survey {
        Err(error) if stop.load(Ordering::Relaxed) => return Ok(interrupted(&error)),
        survey => survey?,
    };
    survey.warnings.extend(cached.then(|| CACHED.to_owned()));
    if json {
        outln!("{:#}", value(&settings, &survey)?);
    } else {
        out!("{}{}", text(url, &survey), survey.text());
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what was learnt until an interruption.
fn interrupted(error: &anyhow::Error) -> ExitCode {
    errln!("concertina: {error:#}");
    exit_code()
}

/// Mixes of one, two and three sizes in turn; the shares of reads run from 0 to 1.
fn random_mixes(sizes: &[u64], count: usize, seed: u64) -> Vec<Vec<MixPart>> {
    let mut random = StdRng::seed_from_u64(seed ^ 0x5eed);
    let mut mixes = Vec::new();
    for number in 0..count {
        let reads = ((number as f64 + 0.5) / count as f64 * 100.0).round() / 100.0;
        let parts = (1 + number % 3).min(sizes.len());
        let mut left: Vec<u64> = sizes.to_vec();
        let mut chosen = Vec::new();
        for _ in 0..parts {
            chosen.push(left.swap_remove(random.random_range(0..left.len())));
        }
        // Hundredths that add to 1, none below a tenth.
        let mut shares: Vec<f64> =
            (1..parts).map(|_| f64::from(random.random_range(10..40u32))).collect();
        shares.push(100.0 - shares.iter().sum::<f64>());
        let each = chosen.iter().zip(shares);
        mixes.push(each.map(|(&size, share)| part(size, reads, share / 100.0)).collect());
    }
    mixes
}

fn value(settings: &Settings, survey: &Survey) -> anyhow::Result<serde_json::Value> {
    let mut value = serde_json::to_value(survey)?;
    value["law"] = "C = T_read + T_write·f_rw".into();
    value["sizes"] = serde_json::to_value(survey.law.sizes())?;
    value["affine"] = serde_json::to_value(survey.law.affine())?;
    value["scatter"] = serde_json::to_value(survey.law.scatter())?;
    value["dir"] = PathBuf::from(&settings.plan.out).display().to_string().into();
    Ok(value)
}

/// What reads alone reach.
fn reads_text(url: &str, found: &Reads, cached: bool) -> String {
    let gain = if found.saturated { ", more gain nothing" } else { "" };
    let mut text =
        format!("{url}: {} clients{gain}. Only reads: --destroy overwrites it.\n\n", found.clients);
    let mut grid = Grid::new("rrr", &["bytes", "reads/s", "MB/s"]);
    for point in &found.points {
        let bytes = point.parts.first().map_or(0.0, |part| part.size_bytes);
        let half = point.half_width.map_or(String::new(), |half| format!(" ± {}", digits(half, 2)));
        grid.row([
            digits(bytes, 15),
            format!("{}{half}", digits(point.throughput, 4)),
            digits(bytes * point.throughput / 1e6, 4),
        ]);
    }
    text += &grid.text();
    if cached {
        text += &format!("Warning: {CACHED}\n");
    }
    text
}

/// What the law is.
fn text(url: &str, survey: &Survey) -> String {
    let mut text = format!(
        "{url}: {} clients{}. C = T_read + T_write·f_rw.\n\n",
        survey.clients,
        if survey.saturated { ", more gain nothing" } else { "" }
    );
    let head = ["bytes", "C: reads/s", "writes/s", "f_rw"];
    let mut grid = Grid::new("rrrr", &head);
    let interval = super::capacity_verdict::interval;
    for size in survey.law.sizes() {
        grid.row([
            digits(size.size_bytes, 15),
            interval(size.capacity),
            interval(size.write_throughput),
            interval(size.write_cost),
        ]);
    }
    text += &grid.text();
    if let Some(affine) = survey.law.affine() {
        text += &affine_text(affine);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_mixes_have_shares_that_add_to_one_and_all_shares_of_reads() {
        let mixes = random_mixes(&[4096, 16384, 65536, 1 << 20], 30, 7);
        assert_eq!(mixes.len(), 30);
        for (number, mix) in mixes.iter().enumerate() {
            assert_eq!(mix.len(), 1 + number % 3);
            let sum: f64 = mix.iter().map(|p| p.share).sum();
            assert!((sum - 1.0).abs() < 1e-9 && mix.iter().all(|p| p.share >= 0.1), "{mix:?}");
        }
        assert!(mixes[0][0].read_share < 0.05 && mixes[29][0].read_share > 0.95);
        assert_eq!(random_mixes(&[4096], 3, 1)[2].len(), 1, "one size has no mixes of three");
    }
}
