//! Any text as the choices of `plan`: what is accepted has a number of configurations, or says why not.

#![no_main]

mod edits;

use concertina::cli::fuzzing::choices;
use libfuzzer_sys::fuzz_target;

const EXAMPLE: &[u8] = include_bytes!("../../docs/examples/choices.toml");
const SMALL: &[u8] = b"prices_in = \"EUR\"\n[servers]\ncounts = { from = 2, to = 8, step = 3 }\nprice = 10\n[memory]\n\
    fitted_gib = 64\ngib = [64, 128]\nhit_ratio = [[64, 0.5], [128, 0.6]]\n[devices.bulk_device]\ncounts = [4, 8]\n\
    price = 3.5\ngib = 1000\n[replicas]\ncounts = [2, 3]\n[catalogue]\nservers = 4\ngib = 5000\n";

fuzz_target!(|data: &[u8]| {
    let Ok(text) = String::from_utf8(edits::edited(&[SMALL, EXAMPLE], data)) else { return };
    match choices(&text) {
        Ok((choices, _)) => {
            assert!(choices.configurations().is_ok_and(|number| number > 0));
        }
        Err(error) => assert!(!format!("{error:#}").is_empty()),
    }
});
