//! `concertina model`: a model file from stated numbers.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, bail};
use model::distribution::Exponential;
use model::queue::Discipline;
use model::storage::Spotify;
use model::{Model, StatedNode, StatedNumber};
use report::compare::parameters;
use report::grid::{Grid, printable};
use report::objective::{self, digits};
use report::ranges;
use report::stated_law::{self, StatedLaw};
use report::table::limits_text;

use crate::cli::output::{out, outln};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina model --service exp:6.2ms --servers 4 --out model.toml
  concertina model --service exp:150/s --devices 6 --memory 0.815-0.000501/s --out spotify.toml
  concertina model --service lognormal:8ms,2 --devices 4 --memory 60% --memory-time 0.2ms \\
      --outside 0.4ms
  concertina model --service exp:6.0..6.4ms --servers 4    the mean is known to this 95 % interval
  concertina model --service file:times.txt --servers 2 --origin 5%,lognormal:40ms,1
  concertina model --published 150,6,0.815,0.000501 --out spotify.toml
  concertina model --published small=93,1,0.946,0.0137 --published large=120,1,1.15,0.0058 \\
      --published spotify=150,6,0.815,0.000501             Table II: the limits of each server

A law of times is exp:MEAN, det:TIME, gamma:MEAN,SCV, lognormal:MEAN,SCV, hyper:MEAN,SCV (SCV: variance over
mean squared) or file:PATH, a file with one measured time a line. MEAN is a time (6.2ms), a rate (150/s) or a
95 % interval (6.0..6.4ms), which becomes the interval of every prediction.

`predict` and `plan` read the file as one that `concertina fit` wrote, and `report` compares it with runs; docs/models.md
describes every key. Several servers behind a gateway: `predict --servers`; requests of several parts and
hedged ones: `predict --fan-out` and `--hedge`; replicas: `plan`; one queue without a file: `network --queue`.")]
pub struct Args {
    /// The law of the service time of a device, like exp:6.2ms
    #[arg(long, value_name = "LAW", value_parser = stated_law::parse, required_unless_present = "published")]
    service: Option<StatedLaw>,
    /// Devices of the node, each with a queue of its own, which share the requests equally
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with = "published")]
    devices: u32,
    /// Requests that a device serves at once, from one queue
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with = "published", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    servers: u32,
    /// How a device's servers are given to requests
    #[arg(long, value_enum, default_value_t = Order::Fifo, conflicts_with = "published")]
    discipline: Order,
    /// Share of the requests that memory answers: 0.6, 60%, a 95 % interval 0.58..0.62, or with the load λ of this
    /// node 0.6-0.0002/s (0.6 - 0.0002·λ)
    #[arg(long, value_name = "Q0[-ALPHA/s]", value_parser = memory, allow_hyphen_values = true, conflicts_with = "published")]
    memory: Option<Memory>,
    /// The law of memory's responses [default: 0]
    #[arg(long, value_name = "LAW", value_parser = stated_law::parse)]
    memory_time: Option<StatedLaw>,
    /// The law of the time outside: what network and gateway add to a device's response [default: 0]
    #[arg(long, value_name = "LAW", value_parser = stated_law::parse)]
    outside: Option<StatedLaw>,
    /// The share of requests that the origin answers (neither memory nor a device), and the law of its responses
    #[arg(long, value_name = "SHARE,LAW", value_parser = origin)]
    origin: Option<Origin>,
    /// A server of the published Spotify model: rate of a disk (1/s), disks, q0, alpha (s). Several: their limits as a
    /// table
    #[arg(long, value_name = "[NAME=]MU_D,N_D,Q0,ALPHA", conflicts_with = "service")]
    published: Vec<Published>,
    /// The loads of this node at which the numbers were found, like 100/s..900/s; predictions past them are marked
    /// [default: up to saturation, or, if memory's share depends on the load, up to the confidence limit]
    #[arg(long, value_name = "FROM..TO", value_parser = loads)]
    loads: Option<LoadsFound>,
    /// The model file to write [default: print the model to standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// A title for the model
    #[arg(long)]
    title: Option<String>,
    /// Print the parameters and limits as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Order {
    /// One line: first come, first served
    Fifo,
    /// All requests present share the servers equally
    Shared,
}

/// The share that memory answers, q₀ − αλ.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Memory {
    q0: StatedNumber,
    alpha: f64,
}

fn number(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (digits, unit) = text.strip_suffix('%').map_or((text, 1.0), |part| (part.trim(), 0.01));
    let value = digits.parse::<f64>().ok().filter(|x| x.is_finite()).map(|x| x * unit);
    value.ok_or_else(|| format!("invalid number `{text}`"))
}

fn memory(text: &str) -> Result<Memory, String> {
    line_of_memory(text).map_err(|why| {
        format!("{why}: write the share of memory like 0.6, 60%, 0.58..0.62 or 0.6-0.0002/s")
    })
}

fn line_of_memory(text: &str) -> Result<Memory, String> {
    let text = text.trim();
    // A sign that neither begins the text nor follows the e of an exponent separates the two.
    let sign = text
        .char_indices()
        .skip(1)
        .filter(|(at, c)| matches!(c, '-' | '+' | '−') && !text[..*at].ends_with(['e', 'E']));
    let (q0, alpha) = match sign.last() {
        None => (text, 0.0),
        Some((at, sign)) => {
            let rest = text[at + sign.len_utf8()..].trim();
            let alpha = number(rest.strip_suffix("/s").unwrap_or(rest))?;
            (&text[..at], if sign == '+' { -alpha } else { alpha })
        }
    };
    let q0 = match q0.split_once("..") {
        None => StatedNumber::exact(number(q0)?),
        Some((low, high)) => {
            let unit =
                if high.trim().ends_with('%') && !low.trim().ends_with('%') { "%" } else { "" };
            StatedNumber::between(number(&format!("{}{unit}", low.trim()))?, number(high)?)
        }
    };
    match q0.low <= q0.high && (-10.0..=10.0).contains(&q0.value) {
        true => Ok(Memory { q0, alpha }),
        false => Err(format!("invalid share `{text}`")),
    }
}

/// Share and law of what the origin answers.
#[derive(Clone)]
struct Origin {
    share: f64,
    law: StatedLaw,
}

fn origin(text: &str) -> Result<Origin, String> {
    let (share, law) = text
        .split_once(',')
        .ok_or_else(|| format!("invalid origin `{text}`: write it like `5%,lognormal:40ms,1`"))?;
    Ok(Origin { share: objective::share(share)?, law: stated_law::parse(law)? })
}

/// The loads at which numbers were found, requests/s.
#[derive(Clone, Copy)]
struct LoadsFound {
    low: f64,
    high: f64,
}

fn loads(text: &str) -> Result<LoadsFound, String> {
    let (low, high) = text
        .split_once("..")
        .ok_or_else(|| format!("invalid loads `{text}`: write them like 100/s..900/s"))?;
    let (low, high) = (ranges::rate(low)?, ranges::rate(high)?);
    match low <= high {
        true => Ok(LoadsFound { low, high }),
        false => Err(format!("`{text}`: the first load is above the last")),
    }
}

/// A server of the published model.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Published {
    pub(super) name: String,
    mu_d: f64,
    n_d: u32,
    q0: f64,
    alpha: f64,
}

impl FromStr for Published {
    type Err = String;

    fn from_str(text: &str) -> Result<Published, String> {
        let wrong = || {
            format!(
                "invalid server `{text}`: write MU_D,N_D,Q0,ALPHA like `150,6,0.815,0.000501`, with a name before if you \
                 like: `large=120,1,1.15,0.0058`"
            )
        };
        let (name, numbers) = text.split_once('=').unwrap_or(("server", text));
        let parts: Vec<&str> = numbers.split(',').map(str::trim).collect();
        let [mu_d, n_d, q0, alpha] = parts[..] else { return Err(wrong()) };
        let mu_d = ranges::rate(mu_d)?;
        let n_d = n_d.parse().ok().filter(|n| (1..=1_000_000).contains(n)).ok_or_else(wrong)?;
        let alpha = number(alpha.strip_suffix('s').unwrap_or(alpha))?;
        Ok(Published { name: name.trim().to_owned(), mu_d, n_d, q0: number(q0)?, alpha })
    }
}

impl Published {
    /// The server as numbers of a node: exponential service at each disk, and memory without a response time.
    fn node(&self) -> anyhow::Result<StatedNode> {
        let node = StatedNode::new(Arc::new(Exponential::new(1.0 / self.mu_d)?));
        let title = format!("The published model of {}", self.name);
        Ok(StatedNode { title, devices: self.n_d, ..node.with_memory(self.q0, self.alpha) })
    }

    /// Its model.
    pub(super) fn model(&self) -> anyhow::Result<Model> {
        Model::stated(&self.node()?).with_context(|| format!("--published {}", self.name))
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let [_, _, ..] = args.published[..] {
        return table(&args);
    }
    let model = Model::stated(&node(&args)?).context("these numbers make no model")?;
    let text = model.to_toml()?;
    if let Some(path) = &args.out {
        report::write_whole(path, &text, |old| Model::from_toml(old).is_ok())?;
    }
    if args.json {
        let json = serde_json::json!({
            "out": args.out.as_ref().map(|path| path.display().to_string()),
            "title": model.about.title,
            "parameters": parameters(&model),
            "limits": model.limits()?,
            "loads": [model.requests.rate_low, model.requests.rate_high],
            "warnings": model.warnings,
        });
        outln!("{json:#}");
    } else if let Some(path) = &args.out {
        out!("{}", limits_text(&model.limits()?));
        outln!("The numbers are taken as stated: {}.", printable(&model.warnings.join("; ")));
        outln!("Wrote {}.", path.display());
    } else {
        out!("{text}");
    }
    Ok(ExitCode::SUCCESS)
}

fn node(args: &Args) -> anyhow::Result<StatedNode> {
    let mut node = match (&args.service, &args.published[..]) {
        (Some(service), _) => StatedNode {
            title: format!("Stated: {}", service.text),
            service_mean_s: service.mean_s,
            devices: args.devices,
            servers: args.servers,
            discipline: match args.discipline {
                Order::Fifo => Discipline::Fifo,
                Order::Shared => Discipline::Shared,
            },
            ..StatedNode::new(service.law.clone())
        },
        (None, [published]) => published.node()?,
        (None, _) => bail!("give --service, or --published"),
    };
    if let Some(memory) = args.memory {
        (node.q0, node.alpha) = (memory.q0, memory.alpha);
    }
    let law = |stated: &Option<StatedLaw>| stated.as_ref().map(|stated| stated.law.clone());
    node.memory = law(&args.memory_time);
    node.outside = law(&args.outside);
    node.origin = args.origin.as_ref().map(|origin| (origin.share, origin.law.law.clone()));
    node.loads = args.loads.map(|loads| (loads.low, loads.high));
    if let Some(title) = &args.title {
        node.title.clone_from(title);
    }
    Ok(node)
}

/// The parameters of several published servers with their limits, as in the paper's Table II.
fn table(args: &Args) -> anyhow::Result<ExitCode> {
    if args.out.is_some() {
        bail!("--out writes one model: give one --published");
    }
    let mut grid = Grid::new(
        "lrrrrrr",
        &["server", "µ_d /s", "n_d", "q0", "alpha s", "confidence limit /s", "saturation /s"],
    );
    let mut rows = Vec::new();
    for server in &args.published {
        let spotify: Spotify = server.model()?.spotify()?;
        let (limit, saturation) = (spotify.confidence_limit(), spotify.saturation());
        let published = spotify.saturation_published();
        grid.row([
            server.name.clone(),
            digits(server.mu_d, 4),
            server.n_d.to_string(),
            digits(server.q0, 4),
            digits(server.alpha, 4),
            digits(limit, 5),
            digits(published.unwrap_or(saturation), 5),
        ]);
        rows.push(serde_json::json!({
            "name": server.name, "mu_d": server.mu_d, "n_d": server.n_d, "q0": server.q0, "alpha": server.alpha,
            "confidence_limit": limit, "saturation_published": published, "saturation": saturation,
        }));
    }
    if args.json {
        outln!("{:#}", serde_json::json!({ "servers": rows }));
        return Ok(ExitCode::SUCCESS);
    }
    out!("{}", grid.text());
    outln!(
        "Confidence limit: mean number of requests at a disk is 1. Saturation as published, where memory's line may be below 0."
    );
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_memory_are_read() {
        for (text, low, high, alpha) in [
            ("0.6", 0.6, 0.6, 0.0),
            ("60%", 0.6, 0.6, 0.0),
            ("0.6-0.0002/s", 0.6, 0.6, 0.0002),
            ("0.6 − 2e-4/s", 0.6, 0.6, 0.0002),
            ("1.15-5.8e-3", 1.15, 1.15, 0.0058),
            ("0.5+0.001/s", 0.5, 0.5, -0.001),
            ("0.58..0.62-1e-3/s", 0.58, 0.62, 0.001),
            ("58..62%", 0.58, 0.62, 0.0),
        ] {
            let found = memory(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert!((found.q0.low - low).abs() < 1e-12, "{text}: {found:?}");
            assert!((found.q0.high - high).abs() < 1e-12, "{text}: {found:?}");
            assert!((found.alpha - alpha).abs() < 1e-15, "{text}: {found:?}");
        }
        for bad in ["", "x", "0.6-", "0.6-x/s", "NaN", "0.7..0.6", "1e9", "-"] {
            assert!(memory(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn published_servers_are_read() {
        let found: Published = "large = 120/s, 1, 1.15, 0.0058s".parse().unwrap();
        assert_eq!((found.name.as_str(), found.mu_d, found.n_d), ("large", 120.0, 1));
        for bad in ["", "1,2,3", "0,1,0.5,0", "1,0,0.5,0", "1,1,x,0", "1,1,0.5,0,0", "1,1.5,0.5,0"]
        {
            assert!(bad.parse::<Published>().is_err(), "{bad}");
        }
    }
}
