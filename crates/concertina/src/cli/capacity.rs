//! `concertina capacity`.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use model::capacity::{
    Basis, IoCapacity, IoPoint, IoThroughput, MixPart, Scalability, ScalablePoint,
    ScalableThroughput, Shares,
};

use super::capacity_affine::affine_text;
use super::capacity_live as live;
use super::capacity_verdict::{self as verdict, error_percent, interval};
use super::sheet::{Sheet, confidence};
use crate::cli::output::{out, outln};
use report::capacity::{self, MixQuestion};
use report::grid::Grid;
use report::objective::digits;
use report::verdict::labelled_text;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina capacity disk.csv                          fit; C and f_rw of each size
  concertina capacity disk.csv --at 0.7,4KiB            70 % reads of 4 KiB
  concertina capacity disk.csv --mix 0.7,4KiB:0.9,64KiB:0.1 --by ios
  concertina capacity threads.csv --at 64 --at 128      the Universal Scalability Law
  concertina capacity disk.csv --mix 0.7,4KiB:0.9,64KiB:0.1 --by ios --point-error 2%
  concertina capacity disk.csv --at 0.7,4KiB --json
  concertina capacity http://127.0.0.1:7070             measure a store, fit, judge on unseen mixes
  concertina capacity memcached://127.0.0.1:11211 --sizes 1k,4k,16k --mix 0.7,1KiB:0.5,16KiB:0.5
  concertina capacity https://store.example --http2 --bearer-file token
  concertina capacity file:///srv/data                  files in a new folder, removed at the end
  concertina capacity file:///dev/sdx                   a block device, only read without --destroy

The columns decide which law is fitted (other columns are ignored):
  size_bytes,read_share,throughput   saturated I/Os per second, reads from 0 to 1
  concurrency,throughput             at 1 and more concurrent clients, threads or nodes

A mix is READ_SHARE,SIZE:SHARE,SIZE:SHARE… with shares that sum to 1: of the I/Os (--by ios,
harmonic mean) or of the capacity given to each size (--by capacity, arithmetic mean).
Predictions outside the measured points are marked with >.")]
pub struct Args {
    /// The table, a CSV file with column names in its first line; or the address of a store, as of
    /// `concertina load`, or file:///PATH of a folder or block device: it is measured, by puts and gets of objects
    /// s4096-0 …
    #[arg(value_name = "FILE.csv|URL")]
    file: PathBuf,
    #[command(flatten)]
    live: Box<live::Flags>,
    /// Predict at this point: READ_SHARE,SIZE or a concurrency N
    #[arg(long, value_name = "POINT")]
    at: Vec<String>,
    /// Predict a mix of sizes
    #[arg(long, value_name = "MIX", value_parser = mix)]
    mix: Vec<Mix>,
    /// The meaning of a mix's shares
    #[arg(long, value_enum, requires = "mix")]
    by: Option<By>,
    /// Standard deviation of a measured throughput, like 2%: for tables with two points for each size, which do not tell it
    #[arg(long, value_name = "SHARE", requires = "mix", value_parser = report::objective::share)]
    point_error: Option<f64>,
    /// Confidence level of the intervals
    #[arg(long, default_value = "0.95", value_parser = confidence)]
    confidence: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum By {
    /// Shares of the I/Os: harmonic mean
    Ios,
    /// Shares of the system's capacity: arithmetic mean
    Capacity,
}

#[derive(Clone)]
struct Mix {
    asked: String,
    parts: Vec<MixPart>,
}

fn share(text: &str) -> Result<f64, String> {
    let value = text.trim().parse::<f64>().ok().filter(|v| (0.0..=1.0).contains(v));
    value.ok_or_else(|| format!("invalid share `{text}`: write a number from 0 to 1, like 0.7"))
}

fn size(text: &str) -> Result<f64, String> {
    Ok(super::load_values::bytes(text.trim())? as f64)
}

fn mix(text: &str) -> Result<Mix, String> {
    let wrong = || format!("invalid mix `{text}`: write it like `0.7,4KiB:0.9,64KiB:0.1`");
    let (read, rest) = text.split_once(',').ok_or_else(wrong)?;
    let read_share = share(read)?;
    let part = |part: &str| {
        let (size_bytes, share_of) = part.split_once(':').ok_or_else(wrong)?;
        Ok(MixPart { size_bytes: size(size_bytes)?, read_share, share: share(share_of)? })
    };
    let parts: Vec<MixPart> = rest.split(',').map(part).collect::<Result<_, String>>()?;
    let sum: f64 = parts.iter().map(|p| p.share).sum();
    if (sum - 1.0).abs() > 1e-6 {
        return Err(format!("`{text}`: the shares of the sizes sum to {sum}, not to 1"));
    }
    Ok(Mix { asked: text.to_owned(), parts })
}

/// This command's part of the command line, as it was given.
fn matches() -> Option<clap::ArgMatches> {
    let name = "capacity";
    let command = <Args as clap::Args>::augment_args(clap::Command::new(name));
    let words = std::env::args_os().skip_while(|word| word != name);
    command.try_get_matches_from(words).ok()
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(url) = args.file.to_str().filter(|name| name.contains("://")) {
        if matches!(args.by, Some(By::Capacity)) {
            bail!("a store is measured with shares of the I/Os: leave --by out");
        }
        let mixes = args.mix.iter().map(|mix| mix.parts.clone()).collect();
        return live::run(url, &args.live, mixes, args.json);
    }
    if let Some(option) = matches().as_ref().and_then(live::given_option) {
        bail!(
            "{option} is for a store that is measured, and {} is a table; give the address of a store, or leave {option} out",
            args.file.display()
        );
    }
    let sheet = Sheet::read(&args.file)?;
    let io = sheet.has("size_bytes") || sheet.has("read_share");
    let (text, json) = match (io, sheet.has("concurrency")) {
        (true, false) => storage(&args, &sheet)?,
        (false, true) => scaling(&args, &sheet)?,
        _ => bail!(
            "{}: name the columns size_bytes,read_share,throughput or concurrency,throughput; it has {}",
            args.file.display(),
            sheet.head().join(", ")
        ),
    };
    if args.json {
        outln!("{json:#}");
    } else {
        out!("{text}");
    }
    Ok(ExitCode::SUCCESS)
}

fn warnings_text(warnings: &[String]) -> String {
    warnings.iter().map(|w| format!("Warning: {w}.\n")).collect()
}

/// A requested point of a storage system, with its prediction or the reason why there is none.
type IoAnswer = (String, anyhow::Result<IoThroughput>);

fn storage(args: &Args, sheet: &Sheet) -> anyhow::Result<(String, serde_json::Value)> {
    let columns = ["size_bytes", "read_share", "throughput"].map(|name| sheet.column(name));
    let [size_at, read_at, rate_at] = columns;
    let (size_at, read_at, rate_at) = (size_at?, read_at?, rate_at?);
    let point = |row| {
        Ok(IoPoint {
            size_bytes: sheet.number(row, size_at, 1e-3..=1e18)?,
            read_share: sheet.number(row, read_at, 0.0..=1.0)?,
            throughput: sheet.number(row, rate_at, 1e-9..=1e15)?,
        })
    };
    let points: Vec<IoPoint> = sheet.rows().iter().map(point).collect::<anyhow::Result<_>>()?;
    let file = args.file.display().to_string();
    let system = IoCapacity::fit(&points, args.confidence).with_context(|| file.clone())?;
    let mut answers: Vec<IoAnswer> = Vec::new();
    let mut notes = Vec::new();
    for asked in &args.at {
        let parsed = asked.split_once(',').map(|(read, bytes)| (share(read), size(bytes)));
        let Some((Ok(read), Ok(bytes))) = parsed else {
            bail!("--at {asked}: write READ_SHARE,SIZE like `0.7,4KiB`");
        };
        answers.push((asked.clone(), system.throughput(bytes, read).map_err(Into::into)));
    }
    for Mix { asked, parts } in &args.mix {
        let by = match args.by {
            Some(By::Ios) => Shares::Ios,
            Some(By::Capacity) => Shares::Capacity,
            None => bail!("--mix needs --by ios or --by capacity"),
        };
        let question =
            MixQuestion { parts, by, confidence: args.confidence, point_error: args.point_error };
        answers.push((asked.clone(), question.answer(&system).map_err(Into::into)));
        notes.extend(question.basis_of_interval(&system).map(|why| format!("{asked}: {why}")));
    }
    // One invalid point makes the command fail, although valid points beside it are then not
    // printed.
    let answers: Vec<(String, IoThroughput)> = answers
        .into_iter()
        .map(|(asked, found)| found.map(|f| (asked.clone(), f)).context(format!("at {asked}")))
        .collect::<anyhow::Result<_>>()?;
    let mut json = capacity::storage_json(&system, &answers, &notes)?;
    json["file"] = file.into();
    json["points"] = points.len().into();
    json["confidence"] = args.confidence.into();
    let text = storage_text(args, &points, &system, &answers);
    let notes: String = notes.iter().map(|note| format!("Note: {note}.\n")).collect();
    Ok((text + &notes, json))
}

fn storage_text(
    args: &Args,
    points: &[IoPoint],
    system: &IoCapacity,
    answers: &[(String, IoThroughput)],
) -> String {
    let mut out = format!(
        "{}: {} points of {} sizes, intervals of {} %. C = T_read + T_write·f_rw.\n\n",
        args.file.display(),
        points.len(),
        system.sizes().len(),
        digits(100.0 * args.confidence, 4)
    );
    out = format!("{}\n{out}", labelled_text(&verdict::of_storage(system, answers)));
    let head = ["bytes", "C: reads/s", "writes/s", "f_rw", "measured at reads", "worst error %"];
    let mut grid = Grid::new("rrrrrr", &head);
    for size in system.sizes() {
        let worst =
            size.residuals.iter().fold(0.0f64, |w, e| if e.abs() > w.abs() { *e } else { w });
        grid.row([
            digits(size.size_bytes, 15),
            interval(size.capacity),
            interval(size.write_throughput),
            interval(size.write_cost),
            format!("{} to {}", size.read_share_low, size.read_share_high),
            error_percent(worst),
        ]);
    }
    out += &grid.text();
    if let Some(affine) = system.affine() {
        out += &affine_text(affine);
    }
    if !answers.is_empty() {
        out.push('\n');
        let mut grid = Grid::new(
            "lrrrrl",
            &["requested", "I/Os per s", "reads/s", "writes/s", "MB/s", "from"],
        );
        for (asked, found) in answers {
            grid.row([
                asked.clone(),
                interval(found.total),
                digits(found.reads, 4),
                digits(found.writes, 4),
                digits(found.bytes / 1e6, 4),
                source(found),
            ]);
        }
        out += &grid.text();
        for why in answers.iter().flat_map(|(_, found)| &found.extrapolated) {
            let _ = writeln!(out, "> extrapolated: {why}.");
        }
    }
    out + &warnings_text(system.warnings())
}

fn source(found: &IoThroughput) -> String {
    let mut text = match found.basis {
        Basis::Size => "its own size".to_owned(),
        Basis::Affine => "the cost between sizes".to_owned(),
    };
    match found.by {
        Some(Shares::Ios) => text += ", shares of I/Os (harmonic mean)",
        Some(Shares::Capacity) => text += ", shares of capacity (arithmetic mean)",
        None => {}
    }
    if found.extrapolated.is_empty() { text } else { format!("{text} >") }
}

fn scaling(args: &Args, sheet: &Sheet) -> anyhow::Result<(String, serde_json::Value)> {
    if !args.mix.is_empty() {
        bail!("--mix is for tables of size_bytes,read_share,throughput; this one has concurrency");
    }
    let (n_at, rate_at) = (sheet.column("concurrency")?, sheet.column("throughput")?);
    let point = |row| {
        Ok(ScalablePoint {
            concurrency: sheet.number(row, n_at, 1.0..=1e9)?,
            throughput: sheet.number(row, rate_at, 1e-9..=1e15)?,
        })
    };
    let points: Vec<ScalablePoint> =
        sheet.rows().iter().map(point).collect::<anyhow::Result<_>>()?;
    let file = args.file.display().to_string();
    let law = Scalability::fit(&points, args.confidence).with_context(|| file.clone())?;
    let mut found: Vec<ScalableThroughput> = Vec::new();
    for asked in &args.at {
        let Some(n) = asked.trim().parse().ok().filter(|n| (1.0..=1e9).contains(n)) else {
            bail!("--at {asked}: write a concurrency from 1 to 1e9, like `64`");
        };
        found.push(law.throughput(n)?);
    }
    let mut json = capacity::scaling_json(&law, &found)?;
    json["file"] = file.into();
    json["points"] = points.len().into();
    json["confidence"] = args.confidence.into();
    Ok((scaling_text(args, &points, &law, &found), json))
}

fn scaling_text(
    args: &Args,
    points: &[ScalablePoint],
    law: &Scalability,
    found: &[ScalableThroughput],
) -> String {
    let mut out = format!(
        "{}: {} points, intervals of {} %. X(N) = γN / (1 + α(N − 1) + βN(N − 1)).\n\n",
        args.file.display(),
        points.len(),
        digits(100.0 * args.confidence, 4)
    );
    out = format!("{}\n{out}", labelled_text(&verdict::of_scaling(points, law)));
    let _ = writeln!(out, "γ, throughput of one: {} per s", interval(law.unit()));
    let _ = writeln!(out, "α, contention:        {}", interval(law.contention()));
    let _ = writeln!(out, "β, coherency:         {}", interval(law.coherency()));
    match (law.peak(), law.ceiling()) {
        (Some(peak), _) => {
            let _ = writeln!(
                out,
                "Peak: {} per s at a concurrency of {}{}",
                digits(peak.throughput, 4),
                interval(peak.concurrency),
                if peak.extrapolated { " > extrapolated" } else { "" }
            );
        }
        (None, Some(level)) => {
            let _ = writeln!(out, "No peak: it levels off at {} per s", digits(level, 4));
        }
        (None, None) => out += "No peak: throughput grows in proportion over the measured range\n",
    }
    let mut grid = Grid::new("rrrr", &["N", "measured/s", "fitted/s", "error %"]);
    for (point, residual) in points.iter().zip(law.residuals()) {
        grid.row([
            digits(point.concurrency, 6),
            digits(point.throughput, 4),
            digits(point.throughput - residual, 4),
            error_percent(-residual / point.throughput),
        ]);
    }
    out += &format!("\n{}", grid.text());
    if !found.is_empty() {
        let mut grid = Grid::new("rrl", &["N", "predicted/s", ""]);
        for at in found {
            let mark = if at.extrapolated { "> extrapolated" } else { "" };
            grid.row([digits(at.concurrency, 6), interval(at.throughput), mark.to_owned()]);
        }
        out += &format!("\n{}", grid.text());
    }
    out + &warnings_text(law.warnings())
}
