//! Any text as the description of a network of queues: what is accepted has bounds, or says why not.

#![no_main]

mod edits;

use concertina::cli::fuzzing::network;
use libfuzzer_sys::fuzz_target;
use model::network::Load;

const EXAMPLE: &[u8] = include_bytes!("../../docs/examples/middlewares.toml");
const SMALL: &[u8] = b"[station.front]\ncurve = [[1, 90.0], [8, 500.0]]\n[station.disk]\nrates = [1.0, 1.8]\n\
    [station.z]\nkind = \"delay\"\n[class.a]\ncustomers = 3\nthink_ms = 25\nservice_ms = { front = 2.0, disk = 8.0 }\n\
    visits = { disk = 1.5 }\n[class.b]\nrate = 5.0\ndemand_ms = { disk = 1.0, z = 4 }\n";

fuzz_target!(|data: &[u8]| {
    let Ok(text) = String::from_utf8(edits::edited(&[SMALL, EXAMPLE], data)) else { return };
    let changes: Vec<String> =
        text.lines().filter_map(|line| Some(line.strip_prefix("#!")?.to_owned())).collect();
    match network(&text, &changes) {
        Ok(network) => {
            for class in 0..network.classes().len() {
                let _ = network.bottleneck(class);
            }
            // Larger ones take long.
            let customers: f64 = network
                .classes()
                .iter()
                .filter_map(|c| match c.load() {
                    Load::Closed { customers, .. } => Some(f64::from(customers)),
                    Load::Open { .. } => None,
                })
                .sum();
            if customers <= 20.0 && network.stations().len() <= 4 {
                let _ = network.solve();
            }
        }
        Err(error) => assert!(!format!("{error:#}").is_empty()),
    }
});
