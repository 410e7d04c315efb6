//! `concertina network --queue M/M/4`: one queue by its name, without a file.

use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, bail};
use model::distribution::{AnyLaw, Exponential, ServiceTime};
use model::queue::{LossQueue, Md1, Mg1, Mgm, Mmm, Mmmk, Queue};
use report::grid::Grid;
use report::objective::{digits, time};
use report::ranges::{Counts, Loads};
use report::stated_law::StatedLaw;

use crate::cli::output::{out, outln};

/// The percentiles that are printed.
const PERCENTILES: [f64; 3] = [0.5, 0.9, 0.99];
/// The most rows of one command.
const ROWS_MAX: usize = 5_000;

/// A queue by Kendall's name, like `M/M/4` or `M/M/4/20`; servers may be several.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kendall {
    service: Service,
    servers: Vec<u32>,
    /// Requests that have room, waiting and in service.
    room: Room,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Room {
    Unbounded,
    Requests(u32),
    /// As many as servers.
    Servers,
}

/// The law of service that a name has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Service {
    Exponential,
    Constant,
    General,
}

impl FromStr for Kendall {
    type Err = String;

    fn from_str(text: &str) -> Result<Kendall, String> {
        let wrong = || {
            format!(
                "invalid queue `{text}`: write M/M/1, M/M/4, M/D/1, M/G/3, M/M/4/20 (room for 20 requests), M/G/16/16 or \
                 erlang-b:16 (nobody waits), erlang-c:16 (M/M/16); servers may be a range, M/M/4..16"
            )
        };
        let count = |text: &str| -> Result<Vec<u32>, String> {
            let Counts(all) = text.parse().map_err(|why| format!("{}: {why}", wrong()))?;
            if all.contains(&0) { Err(wrong()) } else { Ok(all) }
        };
        let text = text.trim();
        if let Some((name, servers)) = text.split_once(':') {
            let servers = count(servers)?;
            return match name.to_lowercase().as_str() {
                "erlang-b" => {
                    Ok(Kendall { service: Service::General, servers, room: Room::Servers })
                }
                "erlang-c" => {
                    Ok(Kendall { service: Service::Exponential, servers, room: Room::Unbounded })
                }
                _ => Err(wrong()),
            };
        }
        let parts: Vec<&str> = text.split('/').map(str::trim).collect();
        let ["M" | "m", law, servers, ref rest @ ..] = parts[..] else { return Err(wrong()) };
        let service = match law {
            "M" | "m" => Service::Exponential,
            "D" | "d" => Service::Constant,
            "G" | "g" => Service::General,
            _ => return Err(wrong()),
        };
        let servers = count(servers)?;
        let room = match *rest {
            [] => Room::Unbounded,
            [room] => match room.parse().map_err(|_| wrong())? {
                room if servers == [room] => Room::Servers,
                room => Room::Requests(room),
            },
            _ => return Err(wrong()),
        };
        match (service, room) {
            (Service::Constant | Service::General, Room::Requests(_)) => Err(format!(
                "`{text}`: with room for some to wait the answer is known for exponential service only; write M/M/m/K, or as \
                 much room as servers"
            )),
            _ => Ok(Kendall { service, servers, room }),
        }
    }
}

/// A row of the answer.
#[derive(serde::Serialize)]
struct Row {
    servers: u32,
    rate: f64,
    stable: bool,
    utilisation: Option<f64>,
    /// Share of the requests that are refused (Erlang's B where nobody waits).
    lost: Option<f64>,
    /// Share of the accepted requests that wait (Erlang's C for M/M/m).
    waits: Option<f64>,
    /// Requests/s that are served.
    throughput: Option<f64>,
    number: Option<f64>,
    waiting_s: Option<f64>,
    response_s: Option<f64>,
    response_p50_s: Option<f64>,
    response_p90_s: Option<f64>,
    response_p99_s: Option<f64>,
    within: Vec<f64>,
}

/// What is asked of a queue.
pub(super) struct Question<'a> {
    pub(super) queue: &'a Kendall,
    pub(super) service: &'a StatedLaw,
    pub(super) loads: &'a [Loads],
    pub(super) within_s: &'a [f64],
    pub(super) json: bool,
}

impl Question<'_> {
    /// The law of service: that of the queue's name with the stated mean, if a time alone is stated.
    fn law(&self) -> anyhow::Result<AnyLaw> {
        let StatedLaw { law, text, mean_s } = self.service;
        if mean_s.low < mean_s.high {
            bail!(
                "--service {text}: a queue has no intervals; give one mean. For a mean that lies between two values, write a model \
                 (`concertina model`): its predictions have intervals"
            );
        }
        let constant = law.scv() == 0.0;
        match self.queue.service {
            Service::General => Ok(law.clone()),
            Service::Constant if constant => Ok(law.clone()),
            Service::Exponential if constant && !text.starts_with("det") => {
                Ok(Arc::new(Exponential::new(law.mean())?))
            }
            Service::Exponential if text.starts_with("exp") => Ok(law.clone()),
            Service::Exponential => {
                bail!("--service {text}: M/M is exponential; write exp:MEAN, or --queue M/G/m")
            }
            Service::Constant => {
                bail!("--service {text}: M/D is constant; write det:TIME, or --queue M/G/m")
            }
        }
    }

    /// The queue at a load.
    fn queue(&self, law: &AnyLaw, servers: u32, rate: f64) -> Result<Box<dyn Queue>, model::Error> {
        let mu = 1.0 / law.mean();
        Ok(match (self.queue.room, self.queue.service, servers) {
            (Room::Servers, ..) => Box::new(LossQueue::new(rate, servers, law.clone())?),
            (Room::Requests(room), ..) => Box::new(Mmmk::new(rate, mu, servers, room)?),
            (_, Service::Exponential, m) => Box::new(Mmm::new(rate, mu, m)?),
            (_, Service::Constant, 1) => Box::new(Md1::new(rate, law.mean())?),
            (_, Service::General, 1) => Box::new(Mg1::new(rate, law.clone())?),
            (_, _, m) => Box::new(Mgm::new(rate, m, law.clone())?),
        })
    }

    fn row(&self, law: &AnyLaw, servers: u32, rate: f64) -> anyhow::Result<Row> {
        let unstable = Row {
            servers,
            rate,
            stable: false,
            utilisation: None,
            lost: None,
            waits: None,
            throughput: None,
            number: None,
            waiting_s: None,
            response_s: None,
            response_p50_s: None,
            response_p90_s: None,
            response_p99_s: None,
            within: Vec::new(),
        };
        let queue = match self.queue(law, servers, rate) {
            Ok(queue) => queue,
            Err(model::Error::Unstable { .. }) => return Ok(unstable),
            Err(error) => return Err(error).context(format!("{rate} requests/s")),
        };
        let [p50, p90, p99] = PERCENTILES.map(|p| queue.response_quantile(p));
        Ok(Row {
            stable: true,
            utilisation: Some(queue.utilisation()),
            lost: Some(queue.blocking()),
            waits: Some(1.0 - queue.waiting_cdf(0.0)),
            throughput: Some(queue.throughput()),
            number: Some(queue.number_mean()),
            waiting_s: Some(queue.waiting_mean()),
            response_s: Some(queue.response_mean()),
            response_p50_s: Some(p50?),
            response_p90_s: Some(p90?),
            response_p99_s: Some(p99?),
            within: self.within_s.iter().map(|&t| queue.response_cdf(t)).collect(),
            ..unstable
        })
    }

    /// Whether the figures of these servers are exact.
    fn is_exact(&self, servers: u32) -> bool {
        servers == 1
            || self.queue.service == Service::Exponential
            || self.queue.room == Room::Servers
    }

    /// Computes and prints the answer.
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let law = self.law()?;
        let rates: Vec<f64> = self.loads.iter().flat_map(|loads| loads.0.clone()).collect();
        if rates.is_empty() {
            bail!("--queue needs --rate, like 500/s or 100/s..900/s");
        }
        if rates.len() * self.queue.servers.len() > ROWS_MAX {
            bail!("more than {ROWS_MAX} rows; take larger steps");
        }
        let mut rows = Vec::new();
        for &servers in &self.queue.servers {
            for &rate in &rates {
                rows.push(self.row(&law, servers, rate)?);
            }
        }
        let exact = self.queue.servers.iter().all(|&m| self.is_exact(m));
        if self.json {
            let value = serde_json::json!({
                "service": self.service.text, "service_mean_s": law.mean(), "service_scv": law.scv(),
                "exact": exact, "within_s": self.within_s, "rows": rows,
            });
            outln!("{value:#}");
        } else {
            out!("{}", self.grid(&rows).text());
            if !exact {
                outln!(
                    "! APPROXIMATE: several servers with service that is not exponential; the CDF is within half a point of the exact one (docs/models.md)."
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn grid(&self, rows: &[Row]) -> Grid {
        let finite = self.queue.room != Room::Unbounded;
        let mut head = vec!["servers", "rate/s", "busy %", "wait %"];
        if finite {
            head.extend(["refused %", "served/s"]);
        }
        head.extend(["number", "mean", "p50", "p90", "p99"]);
        let mut head: Vec<String> = head.into_iter().map(String::from).collect();
        head.extend(self.within_s.iter().map(|&t| format!("≤ {} %", time(t))));
        let mut grid = Grid { head, align: "rr", rows: Vec::new() };
        let percent =
            |share: Option<f64>| share.map_or(String::new(), |share| digits(100.0 * share, 4));
        let seconds = |s: Option<f64>| s.map_or(String::new(), time);
        let number = |x: Option<f64>| x.map_or(String::new(), |x| digits(x, 4));
        for row in rows {
            let mut cells = vec![row.servers.to_string(), digits(row.rate, 5)];
            if !row.stable {
                cells.push("unstable".to_owned());
                grid.row(cells);
                continue;
            }
            cells.extend([percent(row.utilisation), percent(row.waits)]);
            if finite {
                cells.extend([percent(row.lost), number(row.throughput)]);
            }
            cells.push(number(row.number));
            let times =
                [row.response_s, row.response_p50_s, row.response_p90_s, row.response_p99_s];
            cells.extend(times.map(seconds));
            cells.extend(row.within.iter().map(|&share| percent(Some(share))));
            grid.row(cells);
        }
        grid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let read = |text: &str| text.parse::<Kendall>();
        let four =
            Kendall { service: Service::Exponential, servers: vec![4], room: Room::Unbounded };
        assert_eq!(read("M/M/4"), Ok(four.clone()));
        assert_eq!(read("erlang-c:4"), Ok(four));
        let lossy = Kendall { service: Service::General, servers: vec![16], room: Room::Servers };
        assert_eq!(read("M/G/16/16"), Ok(lossy.clone()));
        assert_eq!(read("Erlang-B:16"), Ok(lossy));
        assert_eq!(read("m/m/2/20").unwrap().room, Room::Requests(20));
        assert_eq!(read("M/M/2..4").unwrap().servers, [2, 3, 4]);
        for bad in [
            "",
            "M",
            "M/M",
            "M/M/0",
            "G/M/1",
            "M/X/1",
            "M/D/1/5",
            "M/M/1/x",
            "M/M/1/2/3",
            "erlang-a:4",
            "M/M/1e9",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
