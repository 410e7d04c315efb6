//! `concertina simulate`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use ground::number::{digits, time};
use ground::window::{Nanos, SECOND};

use super::load::{bar, interrupted, watch_interrupts};
use super::load_values::{default_out, popularity, size};
use super::study_parts::{PartProgress, print_part};
use crate::cli::output::{errln, out, outln};
use crate::simulate::{
    AskedFault, Chance, DrawnHits, Interval, Lives, LoadBurst, LoadCourse, Messages, Plan,
    RunCount, RunSet, StudyPart, delay, drawn_notes, join_runs, run as go, run_several,
    simulate_part, span,
};
use configuration::Config;
use engine::sim::drawn::Hits;
use load::{Popularity, Size};
use record::trace::Trace;
use report::objective::share;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina simulate --config cluster.toml --rate 1000,2000,3000
  concertina simulate --config cluster.toml --rate 2000 --lost a
  concertina simulate --config cluster.toml --rate 2000 --read-share 0.9 --gateways 3 --loss 1% \\
      --duplicates 1% --late 1%:50ms --fault kill:a@10s+5s --fault cut:origin@30s+2s --drift 200 \\
      --check
  concertina simulate --config cluster.toml --rate 2000 --until-within 1%
  concertina simulate --config cluster.toml --rate 1000,2000 --runs 8 --out study --part 0/4
  concertina simulate --config cluster.toml --rate 1000,2000 --runs 8 --out study --join
  concertina simulate --config cluster.toml --keys drawn --hit-ratio 70% --nodes 1000 --rate 50000 \\
      --duration 5h
  concertina simulate --model model.toml --nodes 25 --rate 12000
  concertina simulate --config cluster.toml --keys drawn --hit-ratio 70% --rate 30 --duration 365d \\
      --daily 60% --growth 1.5 --mttf 90d --mttr 4h --disk-mttf 3y --disk-mttr 1d

With --check the history is judged as in the simulator's own tests: after an acknowledged write no later
read returns an older version, and no acknowledged write is lost. Violations are listed, with exit code 1;
the same command with the same --seed reproduces them.")]
pub struct Args {
    /// Configuration file (TOML) of a server; each [[member]] becomes a node
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Override a key: section.key=value; may be repeated, and the last of a key counts
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A fitted model: each node answers as it says, with its devices, service times and share of memory at the
    /// node's load. Hits are drawn, and no key is tracked
    #[arg(long, value_name = "MODEL.toml", conflicts_with_all = ["hit_ratio", "hot_ratio", "origin_ratio"])]
    model: Option<PathBuf>,
    /// Requests/s; a list makes one step for each [default with --trace: the trace's own]
    #[arg(long, value_delimiter = ',', value_name = "R,…", required_unless_present = "trace")]
    rate: Vec<f64>,
    /// Length of each step, in virtual time
    #[arg(long, default_value = "300s", value_parser = span, value_name = "TIME")]
    duration: f64,
    /// Time before each step that is not counted
    #[arg(long, default_value = "30s", value_parser = span, value_name = "TIME")]
    warmup: f64,
    /// Distinct keys; or `drawn`: what answers a read is drawn from --hit-ratio, and no key is tracked
    /// [default: 10000; drawn with --model]
    #[arg(long, value_parser = keys, value_name = "N|drawn")]
    keys: Option<Keys>,
    /// With --keys drawn: share of reads answered from memory, like 70%
    #[arg(long, value_parser = ratio, value_name = "SHARE")]
    hit_ratio: Option<f64>,
    /// With --keys drawn: share of reads answered by a hot device
    #[arg(long, value_parser = ratio, value_name = "SHARE")]
    hot_ratio: Option<f64>,
    /// With --keys drawn: share of reads that no device holds, so that the origin answers
    #[arg(long, value_parser = ratio, value_name = "SHARE")]
    origin_ratio: Option<f64>,
    /// Arrivals at the times of a trace, scaled to --rate and repeated: CSV of time_ms,key,size,op, plain or .zst
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The load swings once a day: by this share it is higher at noon and lower at midnight, where a step begins
    #[arg(long, value_parser = ratio, value_name = "SHARE")]
    daily: Option<f64>,
    /// The load grows by this factor in a year
    #[arg(long, value_name = "FACTOR")]
    growth: Option<f64>,
    /// A multiple of the load for a time after the warm-up, like 10x@60s+30s; may be repeated
    #[arg(long, value_parser = burst, value_name = "FACTORx@AT+TIME")]
    burst: Vec<LoadBurst>,
    /// Popularity of keys: zipf:S or uniform
    #[arg(long, default_value = "zipf:0.99", value_parser = popularity, value_name = "LAW")]
    popularity: Popularity,
    /// Size of objects: 4096, 16k, or MIN..MAX
    #[arg(long, default_value = "4k", value_parser = size, value_name = "BYTES")]
    size: Size,
    /// Share of requests that are reads
    #[arg(long, default_value_t = 1.0, value_name = "SHARE")]
    read_share: f64,
    /// One-way delay of a message [default: 0.1ms; 0 with --model, whose times contain the network]
    #[arg(long, value_parser = delay, value_name = "TIME")]
    network: Option<f64>,
    /// Mean response time of the origin (exponential)
    #[arg(long, default_value = "5ms", value_parser = delay, value_name = "TIME")]
    origin: f64,
    /// Simulate this many identical nodes instead of the configuration's members
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
    /// This member is down; may be repeated
    #[arg(long, value_name = "NAME")]
    lost: Vec<String>,
    /// This member's devices run at this multiple of their speed: NAME:0.5; may be repeated
    #[arg(long, value_parser = slow, value_name = "NAME:SPEED")]
    slow: Vec<(String, f64)>,
    /// Number of gateways, if there are several nodes
    #[arg(long, default_value_t = 1, value_name = "N")]
    gateways: u32,
    /// Share of messages between processes that are lost, like 1%
    #[arg(long, value_parser = share, value_name = "SHARE")]
    loss: Option<f64>,
    /// Share of messages that arrive twice
    #[arg(long, value_parser = share, value_name = "SHARE")]
    duplicates: Option<f64>,
    /// Share of messages that are late, and their mean delay: 1%:50ms
    #[arg(long, value_parser = late, value_name = "SHARE:TIME")]
    late: Option<(f64, f64)>,
    /// A fault after the warm-up: KIND:WHO@AT+FOR, like kill:a@10s+5s. Kinds: kill, wipe (devices
    /// lost), pause, cut, slow=FACTOR; of a member, gateway, gateway-1 … or origin; permanent
    /// without +FOR. WHO may be all members whose names begin alike, a-*, and a-*/10 ten at a time, the
    /// next when these work again. shift=KEYS:keys@AT makes other keys popular
    #[arg(long, value_name = "KIND:WHO@AT+TIME")]
    fault: Vec<AskedFault>,
    /// Mean time to failure of a node, like 90d, and to its repair; exponential laws of the seed
    #[arg(long, requires = "mttr", value_parser = span, value_name = "TIME")]
    mttf: Option<f64>,
    /// Mean time to repair of a node
    #[arg(long, requires = "mttf", value_parser = span, value_name = "TIME")]
    mttr: Option<f64>,
    /// Mean time to failure of a rack, all of whose nodes fail together
    #[arg(long, requires = "rack_mttr", value_parser = span, value_name = "TIME")]
    rack_mttf: Option<f64>,
    /// Mean time to repair of a rack
    #[arg(long, requires = "rack_mttf", value_parser = span, value_name = "TIME")]
    rack_mttr: Option<f64>,
    /// Number of racks, of neighbouring members [default: a rack is what is before the last `-` of members' names]
    #[arg(long, requires = "rack_mttf", value_name = "N")]
    racks: Option<usize>,
    /// With --keys drawn: mean time to failure of a device
    #[arg(long, requires = "disk_mttr", value_parser = span, value_name = "TIME")]
    disk_mttf: Option<f64>,
    /// With --keys drawn: mean time to repair of a device
    #[arg(long, requires = "disk_mttf", value_parser = span, value_name = "TIME")]
    disk_mttr: Option<f64>,
    /// Clocks run alternately fast and slow by this many millionths
    #[arg(long, default_value_t = 0, value_name = "PPM")]
    drift: i32,
    /// Check the history of reads and writes; list violations, with exit code 1
    #[arg(long)]
    check: bool,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Run this many seeds side by side, from --seed on: a run folder for each in --out, and intervals over them
    #[arg(long, value_name = "N", conflicts_with = "until_within", value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// Run seeds until the 95 % interval of each step's mean response is this narrow, like 1%: at most 1,000
    #[arg(long, value_parser = share, value_name = "SHARE")]
    until_within: Option<f64>,
    /// With --runs: simulate a part of the seeds and loads alone, numbered from 0, and put its results into --out
    #[arg(long, value_name = "I/N", requires_all = ["runs", "out"], conflicts_with_all = ["join", "picture"])]
    part: Option<StudyPart>,
    /// With --runs: put the parts in --out together; the other options are those of the parts
    #[arg(long, requires_all = ["runs", "out"])]
    join: bool,
    /// Runs at once [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Simulate a load although the devices cannot serve it
    #[arg(long)]
    unstable: bool,
    /// The run folder [default: runs/TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Draw how the last step went on into this SVG file: its load, response times, and shares within the objectives
    #[arg(long, value_name = "FILE.svg", value_parser = svg_file, conflicts_with_all = ["runs", "until_within"])]
    picture: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    use std::io::IsTerminal;
    let output = Output { json: args.json, quiet: args.quiet || !std::io::stderr().is_terminal() };
    let count = match (args.runs, args.until_within) {
        (Some(runs), _) => Some(RunCount::Fixed(usize::from(runs))),
        (_, Some(part)) => Some(RunCount::Within { part, most: RUNS_MAX }),
        _ => None,
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or(processors);
    let picture = args.picture.clone();
    let (part, join) = (args.part, args.join);
    let plan = plan_of(args)?;
    if !output.quiet {
        drawn_notes(&plan).iter().for_each(|note| errln!("concertina: {note}"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    watch_interrupts(&stop)?;
    match (count, part) {
        (None, _) => run_seed(&plan, &output, picture.as_deref(), &stop),
        (Some(RunCount::Fixed(runs)), _) if join => print_set(&join_runs(&plan, runs)?, &output),
        (Some(RunCount::Fixed(runs)), Some(part)) => {
            let progress = PartProgress::new(output.quiet);
            let done = simulate_part(&plan, runs, part, threads, &stop, &|done, all| {
                progress.show(done, all);
            });
            progress.end();
            print_part(done?.as_ref(), output.json)
        }
        (Some(count), _) => several(&plan, count, threads, &output, &stop),
    }
}

/// The most runs of `--until-within`.
const RUNS_MAX: usize = 1000;

/// How results are shown.
struct Output {
    json: bool,
    quiet: bool,
}

/// The number of keys, or what answers where none is tracked.
fn keys_of(args: &Args) -> anyhow::Result<(u32, Option<DrawnHits>)> {
    let asked_keys = args.keys.unwrap_or(match &args.model {
        Some(_) => Keys::Drawn,
        None => Keys::Tracked(10_000),
    });
    match (asked_keys, &args.model) {
        (Keys::Drawn, Some(path)) => Ok((1, Some(fitted(path)?))),
        (Keys::Tracked(_), Some(_)) => bail!(
            "--model says which share of reads memory answers, and not by keys: leave --keys out, or simulate keys with \
             [[device]].service and without --model"
        ),
        (Keys::Tracked(keys), None) => {
            let ratios = [args.hit_ratio, args.hot_ratio, args.origin_ratio];
            ensure!(
                ratios.iter().all(Option::is_none),
                "--hit-ratio, --hot-ratio and --origin-ratio are for --keys drawn"
            );
            Ok((keys, None))
        }
        (Keys::Drawn, None) => {
            let memory = args.hit_ratio.context(
                "--keys drawn needs --hit-ratio, the share of reads that memory answers, as a report of a run or of a fit says it; \
                 or --model",
            )?;
            let share = |ratio: Option<f64>| ratio.unwrap_or(0.0);
            let (hot, origin) = (share(args.hot_ratio), share(args.origin_ratio));
            Ok((1, Some(DrawnHits::Stated(Hits { memory, hot, origin }))))
        }
    }
}

fn plan_of(args: Args) -> anyhow::Result<Plan> {
    let config = Config::load(args.config.as_deref(), &args.set)?;
    let (keys, drawn) = keys_of(&args)?;
    let times = args.trace.as_deref().map(trace_times).transpose()?;
    let own_rate = times.as_ref().map(|times| rate_of(times));
    let rates = if args.rate.is_empty() { own_rate.into_iter().collect() } else { args.rate };
    let lives = |mttf: Option<f64>, mttr: Option<f64>| {
        mttf.zip(mttr).map(|(mttf_s, mttr_s)| Lives { mttf_s, mttr_s })
    };
    ensure!(args.racks != Some(0), "--racks must be at least 1");
    let chance = Chance {
        node: lives(args.mttf, args.mttr),
        rack: lives(args.rack_mttf, args.rack_mttr),
        device: lives(args.disk_mttf, args.disk_mttr),
        racks: args.racks.unwrap_or(0),
    };
    Ok(Plan {
        config,
        rates,
        duration_s: args.duration,
        warmup_s: args.warmup,
        keys,
        drawn,
        course: LoadCourse {
            daily: args.daily.unwrap_or(0.0),
            yearly: args.growth,
            bursts: args.burst,
            times,
        },
        chance: (chance != Chance::default()).then_some(chance),
        unstable: args.unstable,
        popularity: args.popularity,
        bytes: (args.size.min, args.size.max),
        read_share: args.read_share,
        network_s: args.network.unwrap_or(if args.model.is_some() { 0.0 } else { 1e-4 }),
        origin_s: args.origin,
        seed: args.seed,
        nodes: args.nodes,
        lost: args.lost,
        slow: args.slow,
        gateways: args.gateways,
        messages: Messages {
            loss: args.loss.unwrap_or(0.0),
            duplicates: args.duplicates.unwrap_or(0.0),
            late: args.late.map_or(0.0, |late| late.0),
            late_s: args.late.map_or(0.0, |late| late.1),
        },
        faults: args.fault,
        drift_ppm: args.drift,
        check: args.check,
        out: args.out.unwrap_or_else(default_out),
    })
}

/// The fitted node of a model file, as far as the simulator has what it describes.
fn fitted(path: &Path) -> anyhow::Result<DrawnHits> {
    let model = report::read_model(path)?;
    let front = model.front.as_ref();
    let is_limited = front.is_some_and(|f| f.workers.is_some() || f.link_bytes_per_s.is_some());
    ensure!(
        !is_limited,
        "{}: [front] limits workers or the bytes of a link, which the simulator does not have: remove `workers` and \
         `link_bytes_per_s` to see the devices alone",
        path.display()
    );
    Ok(DrawnHits::Fitted(Arc::new(model)))
}

/// Parses the name of a picture: a file with another ending would not be what its name says.
pub(super) fn svg_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.extension().is_some_and(|end| end.eq_ignore_ascii_case("svg")) {
        return Ok(path);
    }
    Err(format!("pictures are SVG files: name it {}", path.with_extension("svg").display()))
}

/// The times of a trace's requests, in their order. Logs have lines that are a little out of order, and what counts here is when
/// requests come, not in which line.
fn trace_times(path: &Path) -> anyhow::Result<Arc<[Nanos]>> {
    let mut trace = Trace::open(path, None, false)?;
    let shown = path.display();
    ensure!(trace.rows.len() > 1, "{shown}: a trace needs two requests or more");
    if let Some(at) = trace.rows.iter().position(|row| row.time.is_none()) {
        bail!(
            "{shown}: request {} has no time_ms, so that it is unknown when it comes: leave such lines out, or give a law \
             (--rate without --trace)",
            at + 1
        );
    }
    trace.rows.sort_by_key(|row| row.time);
    Ok(trace.times_spread().into())
}

/// Requests/s of a trace as it was recorded.
fn rate_of(times: &[Nanos]) -> f64 {
    let recorded = times.last().map_or(0, |last| last - times[0]).max(1);
    (times.len() - 1) as f64 * SECOND as f64 / recorded as f64
}

/// Runs one seed.
fn run_seed(
    plan: &Plan,
    output: &Output,
    picture: Option<&Path>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    let bar = bar(output.quiet);
    let begun = Instant::now();
    let outcome = go(plan, stop, &mut |stage, done| {
        bar.set_position((done * 1000.0) as u64);
        bar.set_prefix(stage.to_owned());
        if done > 0.01 {
            bar.set_message(left(begun.elapsed().as_secs_f64() * (1.0 - done) / done));
        }
    });
    bar.finish_and_clear();
    let outcome = outcome?;
    if let (Some(path), Some(course)) = (picture, outcome.courses.last()) {
        let note = format!(
            "A simulation, not a measurement: {} nodes, {} requests/s asked for, seed {}.",
            plan.nodes.map_or(plan.config.members.len().max(1), |nodes| nodes as usize),
            digits(course.rate, 6),
            plan.seed
        );
        report::write_whole(path, &course.svg(&note), report::svg::is_plot)?;
    }
    if output.json {
        outln!("{}", serde_json::to_string_pretty(&outcome)?);
    } else {
        out!("{}", outcome.summary.table());
        outln!(
            "a simulation, not a measurement: {} requests in {}, {} requests/s",
            outcome.simulated_requests,
            time(outcome.seconds),
            digits(outcome.speed(), 4)
        );
        if let Some(violations) = &outcome.violations {
            let more = if violations.is_empty() { "no consistency violations" } else { "BROKEN:" };
            outln!("seed {}: {more}", plan.seed);
            for violation in violations {
                outln!("  {violation}");
            }
        }
    }
    if outcome.violations.as_ref().is_some_and(|violations| !violations.is_empty()) {
        return Ok(ExitCode::FAILURE);
    }
    Ok(if outcome.summary.interrupted { interrupted() } else { ExitCode::SUCCESS })
}

fn left(seconds: f64) -> String {
    format!("about {} left", time(seconds))
}

/// Runs several seeds side by side.
fn several(
    plan: &Plan,
    count: RunCount,
    threads: usize,
    output: &Output,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    let bar = bar(output.quiet);
    let set = run_several(plan, count, threads, stop, &|stage, done, left_s| {
        bar.set_position((done * 1000.0) as u64);
        bar.set_prefix(stage.to_owned());
        if let Some(left_s) = left_s {
            bar.set_message(left(left_s));
        }
    });
    bar.finish_and_clear();
    print_set(&set?, output)
}

fn print_set(set: &RunSet, output: &Output) -> anyhow::Result<ExitCode> {
    if output.json {
        outln!("{}", serde_json::to_string_pretty(set)?);
    } else {
        out!("{}", intervals_text(set));
    }
    let violations = set.violations.as_ref().map_or(0, Vec::len);
    Ok(match (violations, set.interrupted) {
        (0, false) => ExitCode::SUCCESS,
        (0, true) => interrupted(),
        _ => ExitCode::FAILURE,
    })
}

fn intervals_text(set: &RunSet) -> String {
    use std::fmt::Write as _;
    // Runs with the same result differ by what their sums were rounded.
    let rounded = |of: Interval| if of.half < 1e-9 * of.value.abs() { 0.0 } else { of.half };
    let shown = |of: Interval| match of.half.is_nan() {
        true => digits(of.value, 4),
        false => format!("{} ± {}", digits(of.value, 4), digits(rounded(of), 2)),
    };
    let mut text = String::new();
    for step in &set.steps {
        let (mean, p50, p99) = (shown(step.mean_ms), shown(step.p50_ms), shown(step.p99_ms));
        let _ =
            write!(text, "{} requests/s: mean {mean} ms, median {p50} ms, p99 {p99} ms", step.rate);
        for (ms, within) in &step.within {
            let percent = Interval { value: 100.0 * within.value, half: 100.0 * within.half };
            let _ = write!(text, ", {} % within {ms} ms", shown(percent));
        }
        if step.runs_without_replies > 0 {
            let (none, all) = (step.runs_without_replies, set.seeds.len());
            let _ = write!(text, " ({none} of {all} runs had no reply, and do not count)");
        }
        let _ = writeln!(text);
    }
    let runs = set.seeds.len();
    let _ = writeln!(
        text,
        "a simulation, not a measurement: {runs} runs, 95 % intervals over them; {} requests in {}; {}",
        set.simulated_requests,
        time(set.seconds),
        set.dir.display()
    );
    if set.is_narrow == Some(false) {
        let _ = writeln!(text, "the intervals are wider than wanted");
    }
    if set.interrupted {
        let _ = writeln!(text, "interrupted: the run folders are complete up to there");
    }
    if let Some(violations) = &set.violations {
        let verdict = if violations.is_empty() { "no consistency violations" } else { "BROKEN:" };
        let _ = writeln!(text, "{verdict}");
        violations.iter().for_each(|violation| _ = writeln!(text, "  {violation}"));
    }
    text
}

/// Whether keys are tracked.
#[derive(Clone, Copy, Debug)]
enum Keys {
    Tracked(u32),
    Drawn,
}

/// Parses a number of keys, or `drawn`.
fn keys(text: &str) -> Result<Keys, String> {
    if text == "drawn" {
        return Ok(Keys::Drawn);
    }
    let number = text.parse().map_err(|_| {
        format!("`{text}`: a number of keys up to {}, in digits, or `drawn`", u32::MAX)
    })?;
    Ok(Keys::Tracked(number))
}

/// Parses a share that may be all: `70%`, `0.7`.
fn ratio(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    let value = number.trim().parse::<f64>().ok().map(|value| value * unit);
    value
        .filter(|value| (0.0..=1.0).contains(value))
        .ok_or_else(|| format!("invalid share `{text}`: 70% or 0.7 expected"))
}

/// Parses `FACTORx@AT+TIME`.
fn burst(text: &str) -> Result<LoadBurst, String> {
    let wrong =
        || format!("`{text}`: FACTORx@AT+TIME expected, FACTOR up to 1,000,000, e.g. 10x@60s+30s");
    let (factor, when) = text.split_once("x@").ok_or_else(wrong)?;
    let (at, lasts) = when.split_once('+').ok_or_else(wrong)?;
    let factor: f64 = factor.trim().parse().map_err(|_| wrong())?;
    if !(factor > 0.0 && factor <= 1e6) {
        return Err(wrong());
    }
    Ok(LoadBurst { factor, at_s: span(at)?, for_s: span(lasts)? })
}

/// Parses `SHARE:TIME`.
fn late(text: &str) -> Result<(f64, f64), String> {
    let (of, time) = text
        .split_once(':')
        .ok_or_else(|| format!("`{text}`: SHARE:TIME expected, e.g. 1%:50ms"))?;
    Ok((share(of)?, delay(time)?))
}

/// Parses `NAME:SPEED`.
fn slow(text: &str) -> Result<(String, f64), String> {
    let wrong = || format!("`{text}`: NAME:SPEED expected, 0.000001 to 1000, e.g. a:0.5");
    let (name, speed) = text.rsplit_once(':').ok_or_else(wrong)?;
    let speed: f64 = speed.trim().parse().map_err(|_| wrong())?;
    if (1e-6..=1e3).contains(&speed) { Ok((name.to_owned(), speed)) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_trace_come_in_the_order_of_their_times() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        let times = |lines: &str| {
            std::fs::write(&path, format!("time_ms,key,size,op\n{lines}")).unwrap();
            let times = trace_times(&path).map_err(|error| error.to_string())?;
            Ok(times.iter().map(|time| time / 1_000_000).collect::<Vec<_>>())
        };
        assert_eq!(times("3000,a,1,get\n1000,b,1,get\n2000,a,,\n"), Ok(vec![1000, 2000, 3000]));
        assert!(rate_of(&[1, 2]) > 0.0);
        for unknown in ["1000,a,1,get\n,b,1,get\n", ",a,,\n,b,,\n"] {
            let error: Result<Vec<_>, String> = times(unknown);
            assert!(error.unwrap_err().contains("has no time_ms"), "{unknown}");
        }
    }

    #[test]
    fn what_would_overflow_is_refused() {
        assert!(slow("a:0.5").is_ok() && slow("a:1e-300").is_err() && slow("a:1e300").is_err());
        assert!(keys("1000000000000").unwrap_err().contains("4294967295"));
    }
}
