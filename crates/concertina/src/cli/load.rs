//! `concertina load`.

use std::io::IsTerminal;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use anyhow::Context;
use clap::ValueEnum;
use ground::number::{self, decimals, time};
use indicatif::{ProgressBar, ProgressStyle};

use super::load_options::{LoadOptions, TARGETS, claim};
use super::load_values::{bits, rows, seconds, segment};
use crate::cli::output::{errln, out, outln};
use crate::cli::parent::end_with_parent;
use load::{
    Arrivals, Keys, Length, Load, Plan, Progress, Speed, Streams, Summary, run as go, streams,
};

/// Examples at the end of the help.
const EXAMPLES: &str = "\
Examples:
  Store 10,000 objects of 16 KiB, then measure at three rates, 30 s each:
    concertina load http://127.0.0.1:7070 --count 10000 --size 16k --keys zipf:0.9 --fill \\
      --rate 500,1000,2000 --warmup 10s --duration 30s --out runs/sweep
  Replay a trace's keys and sizes with Poisson arrivals, the same slice at each rate:
    concertina load http://127.0.0.1:7070 --trace t.csv.zst --slice 0..100000 --fill \\
      --rate 1000,2000
  Replay a trace at its recorded times, twice as fast:
    concertina load http://127.0.0.1:7070 --trace t.csv --arrivals trace --speed 2
  A closed loop of 16 clients with a mean think time of 50 ms:
    concertina load http://127.0.0.1:7070 --clients 16 --think-ms 50
  A memcached server, ten keys in each get:
    concertina load memcached://127.0.0.1:11211 --fill --multi-get 10 --rate 1000
  A thousand players of music for a minute, and how often they stall:
    concertina load http://127.0.0.1:7070 --count 500 --size 4M --fill --streams 1000 \\
      --bitrate 128kbit/s
  A service behind a virtual host that takes JSON and a bearer token, by HTTP/2:
    concertina load https://10.0.0.7/search --host shop.example --sni shop.example --http2 \\
      --bearer-file token --body '{\"query\": \"{key}\"}' --rate 200
  A mix of requests (docs/load.md has the form of the list):
    concertina load http://127.0.0.1:8080 --requests mix.toml \\
      --header 'Accept: application/json' --rate 100
  A load that changes with time:
    concertina load http://127.0.0.1:7070 --schedule 100:10s,400:10s,100:10s

Exit codes: 0 measured; 1 the measurement failed, replies had wrong bytes, or all were errors; 130 interrupted, 143
by SIGTERM.";

/// The distribution of the gaps between arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ArrivalsArg {
    /// Exponential gaps
    Poisson,
    /// Equal gaps
    Constant,
    /// The times of the trace, scaled by --rate or --speed
    Trace,
}

/// Arguments of the command, boxed because there are many more than those of other commands.
#[derive(clap::Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{TARGETS}"))]
pub struct Args {
    #[command(flatten)]
    flags: Box<Flags>,
}

#[derive(clap::Args)]
struct Flags {
    #[command(flatten)]
    options: LoadOptions,

    /// Open loop: requests/s; a list makes one step for each
    #[arg(long, value_delimiter = ',', value_name = "R,…", help_heading = "When")]
    #[arg(conflicts_with_all = ["think_ms", "think"])]
    rate: Vec<f64>,
    /// The distribution of the gaps between arrivals of an open loop
    #[arg(long, value_enum, default_value = "poisson", help_heading = "When")]
    arrivals: ArrivalsArg,
    /// With --arrivals trace: multiples of the recorded speed, one step for each
    #[arg(long, value_delimiter = ',', value_name = "X,…", conflicts_with = "rate")]
    #[arg(help_heading = "When")]
    speed: Vec<f64>,
    /// Successive rates without a pause, as RATE:TIME,…; one step for each
    #[arg(long, value_delimiter = ',', value_parser = segment, value_name = "R:TIME,…")]
    #[arg(conflicts_with_all = ["rate", "speed"], help_heading = "When")]
    schedule: Vec<(f64, f64)>,
    /// Closed loop: number of clients that wait for their replies; a list makes one step for each
    #[arg(long, value_delimiter = ',', value_name = "N,…", help_heading = "When")]
    #[arg(conflicts_with_all = ["rate", "speed", "schedule", "arrivals"])]
    clients: Vec<usize>,
    /// Streams: number of players that read object after object at --bitrate; counts their stalls
    #[arg(long, value_name = "N", help_heading = "When")]
    #[arg(conflicts_with_all = ["rate", "speed", "schedule", "clients"])]
    streams: Option<usize>,
    /// Bits per second of each stream, e.g. 128kbit/s
    #[arg(long, default_value = "128kbit/s", value_parser = bits, value_name = "RATE")]
    #[arg(requires = "streams", help_heading = "When")]
    bitrate: f64,
    /// Time of bytes with which a player starts, and goes on after a stall
    #[arg(long, default_value = "2s", value_parser = seconds, value_name = "TIME")]
    #[arg(requires = "streams", help_heading = "When")]
    stream_start: f64,
    /// Time that a stream reads ahead of its player
    #[arg(long, default_value = "10s", value_parser = seconds, value_name = "TIME")]
    #[arg(requires = "streams", help_heading = "When")]
    stream_ahead: f64,
    /// Warm-up before each step, which is not counted, e.g. 10s; 0s for none
    #[arg(long, default_value = "5s", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "When")]
    warmup: f64,
    /// Warm-up as a number of requests
    #[arg(long, value_name = "N", conflicts_with = "warmup", help_heading = "When")]
    warmup_requests: Option<u64>,
    /// Requests/s of the warm-up [default: the step's]
    #[arg(long, value_name = "R", help_heading = "When")]
    warmup_rate: Option<f64>,
    /// Length of each step [default: the trace's slice once, else 30s]
    #[arg(long, value_parser = seconds, value_name = "TIME", help_heading = "When")]
    duration: Option<f64>,

    /// Keys, sizes and operations of a trace: CSV of time_ms,key,size,op, plain or .zst
    #[arg(long, value_name = "FILE", help_heading = "What")]
    trace: Option<PathBuf>,
    /// The rows of the trace to measure, from 0, e.g. 1000..5000
    #[arg(long, value_parser = rows, value_name = "FROM..TO", requires = "trace")]
    #[arg(help_heading = "What")]
    slice: Option<Range<u64>>,
    /// The rows of the warm-up [default: those to measure]
    #[arg(long, value_parser = rows, value_name = "FROM..TO", requires = "slice")]
    #[arg(help_heading = "What")]
    warmup_slice: Option<Range<u64>>,
    /// Count and skip broken lines of the trace
    #[arg(long, requires = "trace", help_heading = "What")]
    skip_broken: bool,
    /// The resolution of the trace's times [default: detected]
    #[arg(long, requires = "trace", value_name = "MS", help_heading = "What")]
    resolution_ms: Option<f64>,
    /// Cut ramp-up and cool-down off each step: only its steady part counts
    #[arg(long, help_heading = "When")]
    trim: bool,
    /// Number of clients of the fill
    #[arg(long, default_value_t = 64, value_name = "N", help_heading = "What")]
    fill_clients: usize,

    /// The most arrivals that wait for a connection; more are dropped
    #[arg(long, default_value_t = 8192, value_name = "N", help_heading = "How")]
    backlog: usize,

    /// Length of the recorded windows
    #[arg(long, default_value = "1s", value_parser = seconds, value_name = "TIME")]
    #[arg(help_heading = "Result")]
    window: f64,
    /// Sample one key in N; 0 for none
    #[arg(long, default_value_t = 64, value_name = "N", help_heading = "Result")]
    sample_one_in: u64,
    /// Record when each of the first N requests of a step was sent and answered; 0 for none
    #[arg(long, default_value_t = 200_000, value_name = "N", help_heading = "Result")]
    times: u64,
    /// End, as after SIGTERM, when standard input ends: of a process that another one starts for itself
    #[arg(long, hide = true)]
    with_parent: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let flags = args.flags;
    let plan = flags.plan()?;
    let stop = Arc::new(AtomicBool::new(false));
    watch_interrupts(&stop)?;
    if flags.with_parent {
        end_with_parent()?;
    }
    if let Some(count) = flags.streams {
        return flags.play(&plan, count, &stop);
    }
    let bar = bar(flags.options.quiet || !std::io::stderr().is_terminal());
    let summary = go(&plan, &stop, &mut |p: &Progress| {
        bar.set_position((p.done * 1000.0) as u64);
        bar.set_prefix(p.stage.clone());
        let Progress { rate, p99_ms, errors, .. } = p;
        bar.set_message(format!(
            "{}/s, p99 {}, {errors} errors",
            decimals(*rate, 0),
            time(1e-3 * p99_ms)
        ));
    });
    bar.finish_and_clear();
    let summary = summary?;
    if flags.options.json {
        outln!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        out!("{}", summary.table());
        if summary.interrupted {
            let complete = match summary.steps.len() {
                0 => "no step is complete".to_owned(),
                1 => "1 step is complete".to_owned(),
                several => format!("{several} steps are complete"),
            };
            outln!("interrupted: {complete}; one that is not does not count");
        }
    }
    Ok(exit_code(&plan, &summary))
}

fn exit_code(plan: &Plan, summary: &Summary) -> ExitCode {
    if summary.interrupted {
        return interrupted();
    }
    if !summary.steps.is_empty() && summary.steps.iter().all(|step| step.arrivals == 0) {
        errln!(
            "concertina: no request was due in that time: give a higher --rate or a longer --duration"
        );
        return ExitCode::FAILURE;
    }
    if summary.is_wrong() || summary.is_all_errors() {
        errln!("concertina: replies had wrong bytes, or all replies were errors: see above");
        return ExitCode::FAILURE;
    }
    if summary.is_all_missing(plan.multi_get) {
        return missing(plan);
    }
    ExitCode::SUCCESS
}

/// Says that no key was found, where it was looked for, and what to do.
pub(super) fn missing(plan: &Plan) -> ExitCode {
    errln!(
        "concertina: every reply was 404, no such key below {}: check the path (a Concertina has its objects below \
         /objects/) and the keys (--key-format), or store them first (--fill)",
        plan.place()
    );
    ExitCode::FAILURE
}

pub(super) fn bar(hidden: bool) -> ProgressBar {
    if hidden {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1000);
    let style = ProgressStyle::with_template("{prefix:24} {bar:30} {percent:>3} %  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// What a shell reports for the signal that ended a run: 130 for SIGINT, 143 for SIGTERM.
static INTERRUPTED: AtomicU8 = AtomicU8::new(130);

/// The exit code of a run that a signal ended.
pub(super) fn interrupted() -> ExitCode {
    ExitCode::from(INTERRUPTED.load(Ordering::Relaxed))
}

/// Ends the run cleanly on the first interrupt (or SIGTERM), and the process at once on the second.
pub(super) fn watch_interrupts(stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    const WHAT: &str = "cannot listen for interrupts";
    let stop = stop.clone();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context(WHAT)?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        let on = |kind| signal(kind).context(WHAT);
        (on(SignalKind::interrupt())?, on(SignalKind::terminate())?)
    };
    let watch = async move {
        for is_second in [false, true] {
            let code = tokio::select! {
                _ = interrupt.recv() => 130,
                _ = terminate.recv() => 143,
            };
            if is_second {
                std::process::exit(code.into());
            }
            INTERRUPTED.store(code, Ordering::Relaxed);
            stop.store(true, Ordering::Relaxed);
        }
    };
    let thread = std::thread::Builder::new().name("interrupts".to_owned());
    thread.spawn(move || runtime.block_on(watch)).context(WHAT)?;
    Ok(())
}

impl Flags {
    /// Plays streams, after the fill if there is one.
    fn play(&self, plan: &Plan, count: usize, stop: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
        if plan.fill.is_some() {
            let filled = go(plan, stop, &mut |_| {})?;
            anyhow::ensure!(!filled.is_all_errors(), "the fill failed: all replies were errors");
        }
        let settings = Streams {
            count,
            bits_per_s: self.bitrate,
            seconds: self.duration.unwrap_or(60.0),
            start_s: self.stream_start,
            ahead_s: self.stream_ahead,
        };
        let stalls = streams(plan, settings, stop)?;
        if self.options.json {
            outln!("{}", serde_json::to_string_pretty(&stalls)?);
        } else {
            outln!(
                "{} streams, {} without a stall; {} stalls, {} of {} played; first byte within {}; \
                 {} objects, {}; {} failed{}",
                stalls.streams,
                stalls.without_stall,
                stalls.stalls,
                time(stalls.stalled_s),
                time(stalls.played_s),
                time(stalls.first_byte_max_s),
                stalls.objects,
                number::bytes(stalls.bytes),
                stalls.failed,
                stalls.error.as_ref().map_or(String::new(), |error| format!(": {error}")),
            );
        }
        let all_failed = stalls.failed >= stalls.streams;
        Ok(if all_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let warmup = match self.warmup_requests {
            Some(n) => Length::Requests(n),
            None => Length::Seconds(self.warmup),
        };
        let count = self.options.requests.count()?;
        anyhow::ensure!(
            count.is_none() || self.duration.is_none(),
            "--duration and --requests N are both the length of a step: leave out one"
        );
        let length = match count {
            Some(n) => Some(Length::Requests(n)),
            None => self.duration.map(Length::Seconds),
        };
        if !self.schedule.is_empty() && length.is_some() {
            anyhow::bail!("a schedule sets its own length: leave out --duration and --requests");
        }
        let mut plan = self.options.plan(self.load()?, self.keys(), self.fill_clients)?;
        plan.destroy = claim(&plan)?;
        Ok(Plan {
            warmup: Some(warmup),
            warmup_rate: self.warmup_rate,
            length,
            trim: self.trim,
            backlog: self.backlog,
            window_s: self.window,
            sample_one_in: self.sample_one_in,
            times: self.times,
            ..plan
        })
    }

    fn load(&self) -> anyhow::Result<Load> {
        let arrivals = match self.arrivals {
            ArrivalsArg::Constant => Arrivals::Constant,
            _ => Arrivals::Poisson,
        };
        if self.streams.is_some() {
            return Ok(Load::Nothing);
        }
        if !self.clients.is_empty() {
            let (think_ms, think) = self.options.think();
            let clients = self.clients.clone();
            return Ok(Load::Closed { clients, think_ms, think });
        }
        if self.arrivals == ArrivalsArg::Trace {
            anyhow::ensure!(self.trace.is_some(), "--arrivals trace needs --trace FILE");
            anyhow::ensure!(self.schedule.is_empty(), "--arrivals trace has its own schedule");
            let mut speeds: Vec<Speed> = self.rate.iter().map(|&r| Speed::Rate(r)).collect();
            speeds.extend(self.speed.iter().map(|&x| Speed::Factor(x)));
            if speeds.is_empty() {
                speeds.push(Speed::Factor(1.0));
            }
            return Ok(Load::Trace { speeds });
        }
        anyhow::ensure!(self.speed.is_empty(), "--speed is for --arrivals trace");
        if !self.schedule.is_empty() {
            return Ok(Load::Schedule { segments: self.schedule.clone(), arrivals });
        }
        if !self.rate.is_empty() {
            return Ok(Load::Open { rates: self.rate.clone(), arrivals });
        }
        anyhow::ensure!(
            self.options.fill,
            "no load given: add --rate R (open loop), --clients N (closed loop), --schedule, \
             --arrivals trace, or --fill alone"
        );
        Ok(Load::Nothing)
    }

    fn keys(&self) -> Keys {
        match &self.trace {
            Some(file) => Keys::Trace {
                file: file.clone(),
                slice: self.slice.clone(),
                warmup_slice: self.warmup_slice.clone(),
                size: self.options.size,
                skip_broken: self.skip_broken,
                resolution_ms: self.resolution_ms,
            },
            None => self.options.generated(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_steps_and_batches_reach_the_plan() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let plan = |more: &[&str]| {
            let words = [&["x", "memcached://127.0.0.1:1", "--clients", "2"], more].concat();
            <Line as clap::Parser>::parse_from(words).args.flags.plan().unwrap()
        };
        assert!(!plan(&[]).trim);
        let batches = plan(&["--trim", "--trace", "batches.csv", "--multi-get", "300"]);
        assert!(batches.trim && batches.mistakes().is_empty(), "{:?}", batches.mistakes());
    }
}
