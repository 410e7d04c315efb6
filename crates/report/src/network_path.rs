//! Response-time distributions of the open classes of a network.

use model::network::{Load, Network, PathTime};
use serde_json::{Value, json};

use crate::error::Result;
use crate::grid::{Grid, printable};
use crate::objective::{digits, time};

/// The percentiles that are printed.
const PERCENTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// An open class with the law of its response time, or the reason why it is not known.
struct OpenClass {
    name: String,
    law: Result<PathTime, String>,
}

fn open_classes(network: &Network) -> Vec<OpenClass> {
    let classes = network.classes().iter().enumerate();
    let open = classes.filter(|(_, class)| matches!(class.load(), Load::Open { .. }));
    let law = |c: usize| network.path_time(c).map_err(|error| error.to_string());
    open.map(|(c, class)| OpenClass { name: class.name().to_owned(), law: law(c) }).collect()
}

/// The percentiles of every open class, and the shares within times; empty if no class is open.
pub fn text(network: &Network, within_s: &[f64]) -> String {
    let classes = open_classes(network);
    if classes.is_empty() {
        return String::new();
    }
    let mut head: Vec<String> =
        ["open class", "mean", "p50", "p90", "p99"].map(String::from).into();
    head.extend(within_s.iter().map(|&t| format!("≤ {} %", time(t))));
    let mut grid = Grid { head, align: "l", rows: Vec::new() };
    let mut notes = String::new();
    for OpenClass { name, law } in &classes {
        let law = match law {
            Ok(law) => law,
            Err(why) => {
                notes += &format!("No percentiles of {}: {}\n", printable(name), printable(why));
                continue;
            }
        };
        let mut cells = vec![name.clone(), time(law.mean())];
        cells.extend(PERCENTILES.map(|p| law.quantile(p).map_or_else(|_| "–".to_owned(), time)));
        cells.extend(within_s.iter().map(|&t| digits(100.0 * law.cdf(t), 4)));
        grid.row(cells);
        if !law.is_exact() {
            notes += &format!(
                "! APPROXIMATE for {}: its times at the stations are taken as independent (docs/network.md).\n",
                printable(name)
            );
        }
    }
    match grid.rows.is_empty() {
        true => format!("\n{notes}"),
        false => format!("\n{}{notes}", grid.text()),
    }
}

/// The same as JSON.
pub fn json(network: &Network, within_s: &[f64]) -> Vec<Value> {
    let one = |OpenClass { name, law }: &OpenClass| match law {
        Ok(law) => json!({
            "class": name, "exact": law.is_exact(), "response_s": law.mean(),
            "response_p50_s": law.quantile(0.5).ok(), "response_p90_s": law.quantile(0.9).ok(),
            "response_p99_s": law.quantile(0.99).ok(), "within_s": within_s,
            "within": within_s.iter().map(|&t| law.cdf(t)).collect::<Vec<_>>(),
        }),
        Err(why) => json!({ "class": name, "statement": why }),
    };
    open_classes(network).iter().map(one).collect()
}
