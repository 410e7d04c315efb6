//! The solution of a network of queues as the commands show it: as JSON, and for other populations.

use model::network::{CycleTime, Load, Network, Sojourn, Solution};
use serde_json::{Value, json};

use crate::error::{Context as _, Result, bail};
use crate::network_path;

/// The whole solution of a network, as JSON.
pub fn answer(network: &Network, solution: &Solution, within_s: &[f64]) -> Value {
    let bottlenecks = (0..network.classes().len()).filter_map(|c| {
        let found = network.bottleneck(c).ok()?;
        let name = |k: usize| network.stations()[k].name();
        Some(json!({
            "class": network.classes()[c].name(),
            "station": name(found.station),
            "throughput_max": found.throughput_max,
            "knee_customers": (found.knee > 0.0).then_some(found.knee),
            "next": found.next.map(|(k, x)| json!({ "station": name(k), "throughput_max": x })),
        }))
    });
    let law = ResponseLaw::for_network(network);
    json!({
        "method": solution.method,
        "exact": solution.method.is_exact(),
        "classes": solution.classes,
        "stations": solution.stations,
        "bottlenecks": bottlenecks.collect::<Vec<_>>(),
        "bounds": network.bounds(0).ok(),
        "composite_bounds": (network.classes().len() > 1).then(|| network.composite_bounds().ok()).flatten(),
        "sectors": sectors(network),
        "response_p50_s": law.as_ref().and_then(|law| law.quantile(0.5)),
        "response_p99_s": law.as_ref().and_then(|law| law.quantile(0.99)),
        "paths": network_path::json(network, within_s),
        "response_law_exact": law.as_ref().map(ResponseLaw::is_exact),
    })
}

/// The distribution of the response time of a closed class, for the networks where it is known.
pub enum ResponseLaw {
    /// Through one station, any population.
    Station(Sojourn),
    /// Through several, each visited once.
    Cycle(CycleTime),
}

impl ResponseLaw {
    /// The law of a network, where it is known.
    pub fn for_network(network: &Network) -> Option<ResponseLaw> {
        let [class] = network.classes() else { return None };
        let visited = |k: &usize| class.demands_s()[*k] > 0.0;
        let visited: Vec<usize> = (0..network.stations().len()).filter(visited).collect();
        if visited.iter().any(|&k| (class.visits()[k] - 1.0).abs() > 1e-9) {
            return None;
        }
        match visited[..] {
            [station] => network.sojourn(station).ok().map(ResponseLaw::Station),
            _ => network.cycle_time().ok().map(ResponseLaw::Cycle),
        }
    }

    /// The response time in seconds that a share `p` of the requests does not exceed.
    pub fn quantile(&self, p: f64) -> Option<f64> {
        match self {
            ResponseLaw::Station(law) => law.quantile(p).ok(),
            ResponseLaw::Cycle(law) => law.quantile(p).ok(),
        }
    }

    /// Whether the law is exact.
    pub fn is_exact(&self) -> bool {
        match self {
            ResponseLaw::Station(_) => true,
            ResponseLaw::Cycle(law) => law.is_exact(),
        }
    }
}

/// The ranges of the mix of two classes, with the station that limits in each.
pub fn sectors(network: &Network) -> Option<Vec<Value>> {
    let [a, _] = network.classes() else { return None };
    let all = network.sectors(0, 1).ok()?;
    let each = all.iter().map(|s| {
        let station = network.stations()[s.station].name();
        json!({ "class": a.name(), "from": s.from, "to": s.to, "station": station })
    });
    Some(each.collect())
}

/// Solves the network for other populations of a class; returns the class's name and the solutions.
///
/// # Errors
/// If the class is not a closed one of the network, or a population has no solution.
pub fn sweep(
    network: &Network,
    populations: &[u32],
    class: Option<&str>,
) -> Result<(String, Vec<(u32, Solution)>)> {
    let is_closed = |c: &usize| matches!(network.classes()[*c].load(), Load::Closed { .. });
    let closed: Vec<usize> = (0..network.classes().len()).filter(is_closed).collect();
    let name = |c: usize| network.classes()[c].name();
    let names = || closed.iter().map(|&c| name(c)).collect::<Vec<_>>().join(", ");
    let class = match (class, &closed[..]) {
        (Some(asked), _) => match closed.iter().find(|&&c| name(c) == asked) {
            Some(&c) => c,
            None => bail!(
                "--class {asked}: no closed class has that name; the closed classes are: {}",
                names()
            ),
        },
        (None, [only]) => *only,
        (None, []) => bail!("--customers: the network has no closed class"),
        (None, _) => {
            bail!("--customers applies to one class: add --class with one of: {}", names())
        }
    };
    let solve = |n: u32| -> Result<(u32, Solution)> {
        let solved = network.with_customers(class, n).and_then(|network| network.solve());
        Ok((n, solved.context(|| format!("with {n} customers"))?))
    };
    let rows = populations.iter().copied().map(solve).collect::<Result<Vec<_>, _>>()?;
    Ok((name(class).to_owned(), rows))
}

/// The solutions of a sweep, as JSON.
pub fn sweep_json(class: &str, rows: &[(u32, Solution)]) -> Value {
    let row = |(customers, solution): &(u32, Solution)| {
        json!({
            "class": class, "customers": customers, "method": solution.method, "exact": solution.method.is_exact(),
            "classes": solution.classes, "stations": solution.stations,
        })
    };
    rows.iter().map(row).collect()
}
