//! `concertina network`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use ground::number::{decimals, difference};
use model::network::{Limits, Load, Method, Network, Solution};

use super::network_queue::{Kendall, Question};
use crate::cli::output::{out, outln};
use report::grid::{Grid, printable};
use report::network_answer::{self, ResponseLaw, answer, sectors, sweep};
use report::network_file::{Described, parse, read};
use report::network_path;
use report::objective::{self, digits, time};
use report::ranges::{Counts, Loads};
use report::stated_law::{self, StatedLaw};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina network docs/examples/middlewares.toml
  concertina network site.toml --customers 1..100
  concertina network site.toml --set station.disk.servers=4 --set class.readers.customers=200
  concertina network site.toml --customers 10,50,100 --class readers --json
  concertina network docs/examples/multi-gets.toml --set station.caches.fork=20 --within 10ms,20ms
  concertina network --queue M/M/4 --service 6.2ms --rate 100/s..600/s --within 20ms
  concertina network --queue M/G/1 --service lognormal:6.2ms,2 --rate 100/s
  concertina network --queue M/M/4/20 --service 6.2ms --rate 700/s
  concertina network --queue erlang-b:10..30 --service 100ms --rate 200/s

A file has stations and classes:

  [station.front]
  servers = 16                # more keys: scv = 0.25 (service not exponential), kind = \"delay\",
                              # rates = [1.0, 1.8, 2.4], or curve = [[1, 90.0], [8, 500.0]]
  [station.disk]              # one server
  [station.caches]
  fork = 10                   # every visit: a part for each of ten queues; needed = 8 for any
                              # eight (open classes only)
  [class.readers]
  customers = 100             # closed: they wait for the reply and think; or rate = 50.0, open
  think_ms = 250.0
  service_ms = { front = 2.0, disk = 8.0 }
  visits = { disk = 1.5 }     # default 1

Networks that are too large for an exact solution are solved approximately and marked as such. docs/network.md
describes the file in full.")]
pub struct Args {
    /// The network (TOML)
    #[arg(required_unless_present = "queue", conflicts_with = "queue")]
    file: Option<PathBuf>,
    /// One queue by its name, without a file: M/M/1, M/M/4, M/D/1, M/G/3, M/M/4/20 (room for 20 requests, others are
    /// refused), erlang-b:16 (nobody waits), erlang-c:16; servers may be a range, M/M/4..16
    #[arg(long, value_name = "NAME", requires = "service", requires = "rate")]
    queue: Option<Kendall>,
    /// The service time of the queue: its mean, like 6.2ms, or a law: exp:MEAN, det:TIME, gamma:MEAN,SCV,
    /// lognormal:MEAN,SCV, hyper:MEAN,SCV or file:PATH
    #[arg(long, value_name = "LAW", requires = "queue", conflicts_with = "file")]
    #[arg(value_parser = stated_law::parse)]
    service: Option<StatedLaw>,
    /// Loads of the queue: 500/s, 30/min, lists, and ranges FROM..TO[:STEP]
    #[arg(long, value_name = "RATES", requires = "queue", conflicts_with = "file")]
    #[arg(allow_negative_numbers = true)]
    rate: Vec<Loads>,
    /// Response times: print the share of requests within each
    #[arg(long, value_delimiter = ',', value_name = "TIME", value_parser = objective::seconds)]
    within: Vec<f64>,
    /// What if: station.NAME.KEY=VALUE or class.NAME.KEY=VALUE; may be repeated. Shows before and
    /// after
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "queue")]
    set: Vec<String>,
    /// Solve for other populations of a closed class: 1..100, 100..1000:100, or a list 10,20,50
    #[arg(long, value_name = "RANGE", conflicts_with = "queue")]
    customers: Option<Counts>,
    /// The class that --customers applies to, if there are several
    #[arg(long, value_name = "NAME", requires = "customers")]
    class: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let (Some(queue), Some(service)) = (&args.queue, &args.service) {
        let (loads, within_s, json) = (&args.rate, &args.within, args.json);
        return Question { queue, service, loads, within_s, json }.run();
    }
    let Some(file) = &args.file else { bail!("give the network's file, or --queue") };
    let text = read(file)?;
    let name = file.display().to_string();
    let before = parse(&text, &name, &[])?;
    let after = match args.set.is_empty() {
        true => None,
        false => Some(parse(&text, &name, &args.set)?),
    };
    let Described { title, network } = after.as_ref().unwrap_or(&before);
    let solution = network.solve().with_context(|| name.clone())?;
    let old = match &after {
        Some(_) => Some(before.network.solve().with_context(|| name.clone())?),
        None => None,
    };
    let sweep = match &args.customers {
        Some(Counts(all)) => Some(sweep(network, all, args.class.as_deref())?),
        None => None,
    };
    if args.json {
        let mut value = answer(network, &solution, &args.within);
        value["file"] = name.into();
        value["title"] = title.clone().into();
        if let Some(old) = &old {
            value["set"] = args.set.clone().into();
            value["before"] = answer(&before.network, old, &args.within);
        }
        if let Some((class, rows)) = &sweep {
            value["sweep"] = network_answer::sweep_json(class, rows);
        }
        outln!("{value:#}");
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(title) = title {
        outln!("{}\n", printable(title));
    }
    match &old {
        Some(old) => out!("{}", compared(&args.set, old, &solution)),
        None => out!("{}", tables(network, &solution)),
    }
    out!("{}", network_path::text(network, &args.within));
    out!("\n{}", limits(network));
    if let Some((class, rows)) = &sweep {
        out!("\n{}", swept(network, class, rows));
    }
    Ok(ExitCode::SUCCESS)
}

fn how(solution: &Solution) -> String {
    let name = solution.method.name();
    if solution.method == Method::Fork {
        return format!(
            "! APPROXIMATE ({name}): means of visits that fork were within 2 % of simulations, and 99th percentiles \
             within 5 %. The other stations are exact.\n"
        );
    }
    if solution.method == Method::Decomposition {
        return format!(
            "! APPROXIMATE ({name}): arrivals at each station are taken for Poisson, which those from a station whose service \
             is not exponential are not. Exact for one station of one server. docs/network.md has the errors.\n"
        );
    }
    // The deviations that the tests of `model::network` enforce for each method.
    let within = if solution.method == Method::Schweitzer { "5 %" } else { "2 %" };
    match solution.method.is_exact() {
        true => format!("Solved exactly ({name}).\n"),
        false => format!(
            "! APPROXIMATE ({name}): the populations are too large for an exact solution. On networks small enough \
             for one, throughputs deviate by less than {within}, and by less than 10 % where stations have several servers, \
             which are approximated by a fast one and a delay.\n"
        ),
    }
}

fn percent(share: f64) -> String {
    decimals(share * 100.0, 1)
}

/// The utilisation of a station; a delay station has none.
fn busy(network: &Network, solution: &Solution, k: usize) -> String {
    match network.stations()[k].rate_max().is_finite() {
        true => percent(solution.stations[k].utilisation),
        false => "–".to_owned(),
    }
}

fn tables(network: &Network, solution: &Solution) -> String {
    let mut classes = Grid::new(
        "lrrrrr",
        &["class", "customers", "think", "throughput/s", "response", "at stations"],
    );
    for (class, result) in network.classes().iter().zip(&solution.classes) {
        let (load, think) = match class.load() {
            Load::Closed { customers, think_s } => {
                (digits(f64::from(customers), 12), time(think_s))
            }
            Load::Open { .. } => ("open".to_owned(), "–".to_owned()),
        };
        classes.row([
            class.name().to_owned(),
            load,
            think,
            digits(result.throughput, 5),
            if result.response_s > 0.0 { time(result.response_s) } else { "–".to_owned() },
            digits(result.number, 4),
        ]);
    }
    let mut stations = Grid::new(
        "llrrrr",
        &["station", "kind", "visits/s", "busy %", "number", "response of a visit"],
    );
    for (k, (station, result)) in network.stations().iter().zip(&solution.stations).enumerate() {
        stations.row([
            station.name().to_owned(),
            station.kind(),
            digits(result.throughput, 5),
            busy(network, solution, k),
            digits(result.number, 4),
            if result.throughput > 0.0 { time(result.response_s) } else { "–".to_owned() },
        ]);
    }
    format!("{}\n{}\n{}{}", how(solution), classes.text(), stations.text(), forks(solution))
}

/// Describes the stations that fork.
fn forks(solution: &Solution) -> String {
    let visits = solution.stations.iter().filter_map(|station| {
        let fork = station.fork?;
        Some(format!(
            "A visit to {} ends with the answers of {}: mean {} (of one part {}), half within {}, 99 % within {}, if \
             service is exponential.\n",
            printable(&station.name),
            fork.fan_out,
            time(fork.response_s),
            time(fork.part_response_s),
            time(fork.response_p50_s),
            time(fork.response_p99_s),
        ))
    });
    let visits: String = visits.collect();
    if visits.is_empty() { visits } else { format!("\n{visits}") }
}

/// Compares two solutions line by line.
fn compared(changes: &[String], old: &Solution, new: &Solution) -> String {
    let mut grid = Grid::new("llrrr", &["", "", "before", "after", "change"]);
    let change = |a: f64, b: f64| match a > 0.0 {
        true => format!("{} %", difference((b / a - 1.0) * 100.0, 1)),
        false => String::new(),
    };
    let mut row = |name: &str, what: &str, a: f64, b: f64, show: fn(f64) -> String| {
        grid.row([name.to_owned(), what.to_owned(), show(a), show(b), change(a, b)]);
    };
    for (a, b) in old.classes.iter().zip(&new.classes) {
        row(&b.name, "throughput/s", a.throughput, b.throughput, |x| digits(x, 5));
        row("", "response", a.response_s, b.response_s, time);
    }
    for (a, b) in old.stations.iter().zip(&new.stations) {
        row(&b.name, "busy %", a.utilisation, b.utilisation, percent);
        row("", "number", a.number, b.number, |x| digits(x, 4));
        row("", "response of a visit", a.response_s, b.response_s, time);
    }
    let mut out = format!("What if {}:\n\n", printable(&changes.join(", ")));
    out += &format!("Before: {}After: {}\n{}", how(old), how(new), grid.text());
    out
}

/// Formats bottlenecks and bounds.
fn limits(network: &Network) -> String {
    let mut out = String::new();
    for (c, class) in network.classes().iter().enumerate() {
        let Ok(found) = network.bottleneck(c) else { continue };
        let name = |k: usize| printable(network.stations()[k].name());
        out += &format!(
            "Bottleneck of {}: {}, at most {} requests/s",
            printable(class.name()),
            name(found.station),
            digits(found.throughput_max, 5)
        );
        if found.knee > 0.0 {
            out += &format!("; queues grow from {} customers on", digits(found.knee.ceil(), 12));
        }
        if let Some((k, x)) = found.next {
            out += &format!(". Next: {}, {} requests/s", name(k), digits(x, 5));
        }
        out += ".\n";
    }
    if let Some(sectors) = sectors(network).filter(|s| s.len() > 1) {
        let parts = sectors.iter().map(|s| {
            let share = |key: &str| percent(s[key].as_f64().unwrap_or(0.0));
            let station = s["station"].as_str().unwrap_or_default();
            format!("{} to {} %: {}", share("from"), share("to"), printable(station))
        });
        out += &format!(
            "By the share of {} in the requests, the bottleneck is: {}.\n",
            printable(network.classes()[0].name()),
            parts.collect::<Vec<_>>().join(", ")
        );
    }
    if let Ok(bounds) = network.bounds(0) {
        let mut grid = Grid::new("lrrrr", &["bounds", "throughput/s ≥", "≤", "response ≥", "≤"]);
        let rows: [(&str, Limits); 4] = [
            ("asymptotic", bounds.asymptotic),
            ("balanced jobs", bounds.balanced),
            ("proportional", bounds.proportional),
            ("geometric", bounds.geometric),
        ];
        for (name, l) in rows {
            grid.row([
                name.to_owned(),
                digits(l.throughput_low, 5),
                digits(l.throughput_high, 5),
                time(l.response_low_s),
                time(l.response_high_s),
            ]);
        }
        out += &format!("\n{}", grid.text());
    }
    if let Some(law) = ResponseLaw::for_network(network)
        && let (Some(half), Some(most)) = (law.quantile(0.5), law.quantile(0.99))
    {
        out += &format!(
            "\nResponse time, if service is exponential: half within {}, 99 % within {}{}.\n",
            time(half),
            time(most),
            match law.is_exact() {
                true => "",
                false =>
                    " (approximate: where several requests are served concurrently, they overtake)",
            }
        );
    }
    out
}

fn swept(network: &Network, class: &str, rows: &[(u32, Solution)]) -> String {
    let mut head: Vec<String> =
        ["customers", "throughput/s", "response"].map(String::from).to_vec();
    head.extend(network.stations().iter().map(|s| format!("{} busy %", s.name())));
    head.push(String::new());
    let mut grid = Grid { head, align: "", rows: Vec::new() };
    for (n, solution) in rows {
        let Some(result) = solution.classes.iter().find(|c| c.name == class) else { continue };
        let mut cells =
            vec![digits(f64::from(*n), 12), digits(result.throughput, 5), time(result.response_s)];
        cells.extend((0..network.stations().len()).map(|k| busy(network, solution, k)));
        cells.push(if solution.method.is_exact() { "" } else { "approximate" }.to_owned());
        grid.row(cells);
    }
    format!("{}, by customers:\n\n{}", printable(class), grid.text())
}
