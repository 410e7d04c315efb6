//! Settles which times of a log have no windows, and how long its windows are.

use std::path::Path;

use ground::window::SECOND;

use super::collector::{Break, Collector, WINDOWS_MAX};
use super::error::Error;
use super::shown;

/// Finds the times without requests, and makes the windows of clients' and upstream requests so long that they are within the limit.
///
/// # Errors
/// [`Error::Content`] if they are not, however long.
pub(super) fn settle(
    path: &Path,
    gateway: Option<&mut Collector>,
    origin: Option<&mut Collector>,
) -> Result<Vec<Break>, Error> {
    let Some(gateway) = gateway else { return Ok(Vec::new()) };
    let breaks = gateway.settle();
    if !gateway.fits_between(&breaks) {
        return Err(too_long(path, gateway));
    }
    if let Some(origin) = origin {
        origin.settle_between(&breaks);
    }
    Ok(breaks)
}

/// That a log spans more windows than there may be: stray stamps, or requests of other years.
pub(super) fn too_long(path: &Path, collector: &Collector) -> Error {
    let pause = collector.pause().map_or(String::new(), |pause| {
        format!(
            " Nothing arrived from {} to {}: leave out what is before it with --from, or what is after it with --to.",
            shown::moment(pause.from_us),
            shown::moment(pause.until_us)
        )
    });
    let window_s = collector.window_ns() as f64 / SECOND as f64;
    Error::Content {
        path: path.to_owned(),
        reason: format!(
            "its requests span {}, and at most {WINDOWS_MAX} windows are imported at once, of {}.{pause} For all of it, give a longer --window.",
            shown::length(collector.windows() as f64 * window_s),
            shown::length(window_s)
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::super::{Options, import};

    /// A test of three minutes with loads of 20, 40 and 60/s, as nginx writes it.
    fn test_of(start_s: f64, seed: u64) -> String {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut text, mut at) = (String::new(), start_s);
        while at < start_s + 180.0 {
            let rate = 20.0 * (1.0 + ((at - start_s) / 60.0).floor());
            at -= (1.0 - random.random::<f64>()).ln() / rate;
            let taken = 0.005 + 0.02 * random.random::<f64>();
            let _ = writeln!(text, "{:.3} 200 {taken:.3} 9 \"GET /o HTTP/1.1\"", at + taken);
        }
        text
    }

    #[test]
    fn tests_of_different_days_have_the_steps_of_each() {
        const DAY: f64 = 86_400.0;
        let dir = tempfile::tempdir().unwrap();
        let log = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (monday, friday) = (test_of(1.764e9, 1), test_of(1.764e9 + 4.0 * DAY, 2));
        let stray = "1763900000.123 200 0.010 1 \"GET /a HTTP/1.1\"\n";
        let (first, second) = (log("1", &format!("{stray}{monday}")), log("2", &friday));
        let import_as = |name: &str, logs: Vec<std::path::PathBuf>| {
            let out = dir.path().join(name);
            import(&Options { out, logs, window_s: 1.0, ..Options::default() }).unwrap()
        };
        let both = import_as("both", vec![first, second]);
        let rates =
            |steps: &[record::Step]| steps.iter().filter_map(|s| s.rate).collect::<Vec<f64>>();
        let alone = [log("3", &monday), log("4", &friday)].map(|path| {
            let name = format!("alone-{}", path.file_name().unwrap().to_string_lossy());
            rates(&import_as(&name, vec![path]).steps)
        });
        assert_eq!(alone[0].len(), 3);
        let (found, alone) = (rates(&both.steps), alone.concat());
        assert_eq!(found.len(), alone.len());
        // Ends are spread over their milliseconds by a sequence that goes on from one file to the next.
        assert!(
            found.iter().zip(&alone).all(|(a, b)| (a / b - 1.0).abs() < 1e-3),
            "{found:?} {alone:?}"
        );
        assert_eq!(both.left_out, 1);
        let notes = both.imported.notes.join("\n");
        assert!(
            notes.contains("1 request from 2025-11-23") && notes.contains("(4 days)"),
            "{notes}"
        );
        assert!(!notes.contains("Windows are"), "{notes}");
        let lines = (monday + &friday).lines().count() as u64;
        assert_eq!(both.requests, lines + 1);
    }
}
