//! Waits until a service that the search drove into a collapse is itself again: requests that the generator gave up are still worked off by
//! most services, and a sweep in their wake measures the backlog.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ground::window::SECOND;
use load::{Progress, Session};
use record::clock;

use super::budget::Budget;
use super::offered::OfferedLoad;
use super::search::{Recovery, Search, plan};
use super::settings::Settings;

/// The seed's own part, so that keys are others than the search's.
const SEED: u64 = 0x5ea7_b4c4;
/// A single client's mean response is about as short as at first if it is at most this many times as long: a request that it waits for is
/// more.
const ABOUT: f64 = 1.5;
/// The share of the budget after which the sweep begins all the same.
const BUDGET: f64 = 0.6;

/// Asks as a single client until it is answered about as fast as in the search's first step, or the time is over. Does nothing after a search
/// whose throughput did not fall.
pub(super) fn wait(
    settings: &Settings,
    search: &mut Search,
    budget: &Budget,
    stop: &Arc<AtomicBool>,
    progress: &mut dyn FnMut(&Progress),
) -> anyhow::Result<()> {
    let (Some(alone_s), Some(last)) = (search.alone_s(), search.steps.last()) else {
        return Ok(());
    };
    let clients = last.clients;
    if !search.fell() || search.missing || stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    let begun = clock::now();
    let mut settings = settings.clone();
    settings.plan.fill = None;
    let plan = plan(&settings, vec![1], "search-recovery", SEED);
    let mut session = Session::open(&plan, stop)?;
    let at = OfferedLoad::Clients(1);
    for look in 0.. {
        session.load(&settings.load(at), &mut |p: &Progress| {
            let stage = format!("recovery: {at}");
            progress(&Progress { stage, done: budget.spent(), ..p.clone() });
        })?;
        // Interrupted.
        let Some(step) = session.summary().steps.get(look) else { break };
        let response_mean_s = (step.rate > 0.0).then_some(step.response_ms.mean * 1e-3);
        let recovered = response_mean_s.is_some_and(|mean| mean <= ABOUT * alone_s);
        let seconds = clock::now().saturating_sub(begun) as f64 / SECOND as f64;
        search.recovery = Some(Recovery { clients, seconds, response_mean_s, recovered });
        if recovered || budget.spent() > BUDGET {
            break;
        }
    }
    session.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use load::{Arrivals, Keys, Length, Load, Plan, Popularity, Size, Think};

    use super::super::search::{after, search};
    use super::super::settings::Sweep;
    use super::*;

    /// A service of which each request inside makes all others longer, so that more clients carry less.
    #[derive(Default)]
    struct Service {
        inside: AtomicUsize,
        /// Whether it stays slow once it had four inside.
        breaks: bool,
        broken: AtomicBool,
    }

    impl Service {
        fn listen(self) -> String {
            let service = Arc::new(self);
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let service = service.clone();
                    std::thread::spawn(move || service.converse(stream));
                }
            });
            format!("http://{address}")
        }

        fn converse(&self, mut stream: TcpStream) -> Option<()> {
            let mut reader = BufReader::new(stream.try_clone().ok()?);
            loop {
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    if reader.read_line(&mut line).ok()? == 0 {
                        return None;
                    }
                }
                let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
                if self.breaks && inside > 3 {
                    self.broken.store(true, Ordering::SeqCst);
                }
                let slow = if self.broken.load(Ordering::SeqCst) { 10 } else { 1 };
                std::thread::sleep(Duration::from_millis((4 * slow * inside * inside) as u64));
                self.inside.fetch_sub(1, Ordering::SeqCst);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx").ok()?;
            }
        }
    }

    fn settings(service: Service, budget_s: f64, dir: &Path) -> Settings {
        let keys = Keys::Synthetic {
            popularity: Popularity::Zipf(0.9),
            count: 50,
            size: Size::fixed(1),
            format: "k{i}".to_owned(),
            read_share: 1.0,
        };
        let plan = Plan {
            warmup: None,
            length: Some(Length::Seconds(0.9)),
            window_s: 0.05,
            timeout_s: 10.0,
            ..Plan::new(&service.listen(), Load::Nothing, keys, dir.join("run"))
        };
        Settings {
            plan,
            sweep: Sweep::Shares(vec![0.5], 256),
            arrivals: Arrivals::Poisson,
            think_ms: 0.0,
            think: Think::Constant,
            repeat: 1,
            half_width: 0.05,
            quantile: 0.99,
            budget_s,
            until: None,
        }
    }

    /// A search of a service, and the wait after it.
    fn searched(service: Service, budget_s: f64) -> Search {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(service, budget_s, dir.path());
        let stop = Arc::new(AtomicBool::new(false));
        let (mut found, budget) = search(&settings, 256, &stop, &mut |_| {}).unwrap();
        wait(&settings, &mut found, &budget, &stop, &mut |_| {}).unwrap();
        found
    }

    /// The search went on to as many clients as were allowed, while the throughput fell.
    #[test]
    fn a_service_that_collapses_is_left_alone_and_waited_for() {
        let found = searched(Service::default(), 120.0);
        assert!(found.saturated && found.steps.len() < 6, "{:?}", found.steps);
        assert!(found.recovery.is_some_and(|recovery| recovery.recovered), "{:?}", found.recovery);
    }

    #[test]
    fn a_service_that_does_not_recover_is_not_waited_for_without_end() {
        let found = searched(Service { breaks: true, ..Service::default() }, 6.0);
        let recovery = found.recovery.unwrap();
        assert!(!recovery.recovered, "{recovery:?} {:?}", found.steps);
    }

    #[test]
    fn a_step_after_the_loads_that_cannot_be_recorded_is_missing_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(Service::default(), 120.0, dir.path());
        let stop = Arc::new(AtomicBool::new(false));
        let (mut found, _) = search(&settings, 2, &stop, &mut |_| {}).unwrap();
        found.saturated = true;
        after(&settings, &mut found, &stop, &mut |_| {});
        assert!(found.after.is_some() && found.after_error.is_none(), "{found:?}");
        // Its folder is there now.
        found.after = None;
        after(&settings, &mut found, &stop, &mut |_| {});
        let why = found.after_error.unwrap();
        assert!(found.after.is_none() && why.contains("search-after"), "{why}");
    }
}
