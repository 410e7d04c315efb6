//! The windows of nodes' devices, which gateways request for their own models.
//!
//! A gateway sees when requests arrive and are answered, and from which tier, but neither the load nor the service
//! times of the devices. Each node therefore keeps the last windows of its devices, and gateways request them once
//! per window ([`PATH`]). A gateway names these windows `device/NODE/ID` and fits its model as a node does: with all
//! devices behind it, and its own requests as the clients' side.
//!
//! The windows of devices also contain the reads for other gateways. These count as background work of the
//! devices, which is assumed to stay constant.

use std::collections::{HashMap, VecDeque};

use ground::window::{QueueName, Window};
use serde::{Deserialize, Serialize};

/// The path at which a node serves the windows of its devices.
pub const PATH: &str = "/cluster/windows";
/// Intervals that a node keeps.
const INTERVALS: usize = 8;
/// The largest number of windows that wait for the next interval of a gateway; further ones are dropped.
pub(super) const HEARD_MAX: usize = 4096;
/// Longest window that is believed, seconds.
const LENGTH_S_MAX: f64 = 86_400.0;
/// Most reads at a time of a device that are believed.
const SERVERS_MAX: u32 = 1 << 16;
/// Clocks that differ by less than this count as equal, microseconds.
const APART_US: i64 = 250_000;

/// A node's reply: the windows of its devices.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeviceWindows {
    /// The end of its newest window, microseconds since 1970-01-01 UTC by its clock.
    pub now_unix_us: u64,
    /// The windows of its devices, oldest first.
    pub windows: Vec<Window>,
}

impl DeviceWindows {
    /// The mean utilisation of the devices; `None` without any.
    pub fn utilisation(&self) -> Option<f64> {
        let capacity: f64 = self.windows.iter().map(|w| w.length_s * f64::from(w.servers)).sum();
        let busy: f64 = self.windows.iter().map(|w| w.busy_s).sum();
        (capacity > 0.0).then(|| busy / capacity)
    }
}

/// The windows of a node's devices in the last intervals.
pub struct Recent {
    kept: bool,
    intervals: VecDeque<Vec<Window>>,
}

impl Recent {
    /// Creates an empty list. Windows are kept only if `kept`: without gateways nobody requests them.
    pub fn new(kept: bool) -> Recent {
        Recent { kept, intervals: VecDeque::new() }
    }

    /// Adds the windows of devices.
    pub fn keep(&mut self, windows: &[Window]) {
        if !self.kept {
            return;
        }
        let is_device = |w: &&Window| w.queue_name().is_some_and(QueueName::is_device);
        self.intervals.push_back(windows.iter().filter(is_device).cloned().collect());
        if self.intervals.len() > INTERVALS {
            self.intervals.pop_front();
        }
    }

    /// The reply to a gateway.
    pub fn reply(&self) -> DeviceWindows {
        let windows: Vec<Window> = self.intervals.iter().flatten().cloned().collect();
        let now_unix_us = windows.iter().map(Window::end_unix_us).max().unwrap_or(0);
        DeviceWindows { now_unix_us, windows }
    }
}

/// Whether a window's figures can be a device's.
fn is_sound(window: &Window) -> bool {
    let times = [window.length_s, window.busy_s, window.length_integral_s, window.bytes_squared];
    times.iter().all(|time| time.is_finite() && *time >= 0.0)
        && (0.0..LENGTH_S_MAX).contains(&window.length_s)
        && window.servers <= SERVERS_MAX
}

/// The windows that a gateway has received from a node.
#[derive(Debug, Default)]
pub struct WindowIntake {
    /// The start of the newest window of each device, by the node's clock.
    newest: HashMap<String, u64>,
}

impl WindowIntake {
    /// The windows that were not received before, named after the node and with times of this process's clock.
    pub fn news(&mut self, node: &str, told: DeviceWindows, now_unix_us: u64) -> Vec<Window> {
        // What a node tells may be any number.
        let apart = (now_unix_us as i64).saturating_sub_unsigned(told.now_unix_us);
        let apart = if apart.saturating_abs() < APART_US { 0 } else { apart };
        let mut news = Vec::new();
        let mut last: HashMap<&str, u64> = HashMap::new();
        for window in told.windows.iter().take(HEARD_MAX) {
            let last = last.entry(&window.queue).or_insert(0);
            *last = window.start_unix_us.max(*last);
        }
        // A device that is told of no more is forgotten, and so is one whose clock has gone back.
        self.newest.retain(|queue, newest| last.get(&**queue).is_some_and(|last| last >= newest));
        for mut window in told.windows.into_iter().take(HEARD_MAX) {
            let Some(QueueName::Device(id)) = window.queue_name() else { continue };
            if !is_sound(&window) || window.end_unix_us() > told.now_unix_us {
                continue;
            }
            let name = QueueName::Device(&format!("{node}/{id}")).to_string();
            let newest = self.newest.entry(window.queue.clone()).or_insert(0);
            if window.start_unix_us <= *newest {
                continue;
            }
            *newest = window.start_unix_us;
            window.queue = name;
            window.start_unix_us = window.start_unix_us.saturating_add_signed(apart);
            news.push(window);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(queue: &str, start_unix_us: u64) -> Window {
        let mut window = Window::new(queue, start_unix_us, 1, &[50.0]);
        (window.length_s, window.busy_s) = (1.0, 0.5);
        window
    }

    #[test]
    fn a_window_is_heard_once_under_its_nodes_name_and_by_our_clock() {
        let mut recent = Recent::new(true);
        for second in 1..=20u64 {
            let start = second * 1_000_000;
            recent.keep(&[window("device/0", start), window("node", start)]);
        }
        assert_eq!(recent.intervals.len(), INTERVALS);
        let windows: Vec<Window> = recent.intervals.iter().flatten().cloned().collect();
        let told = DeviceWindows { now_unix_us: 21_000_000, windows };
        assert_eq!((told.utilisation(), DeviceWindows::default().utilisation()), (Some(0.5), None));
        let told: DeviceWindows =
            serde_json::from_str(&serde_json::to_string(&told).unwrap()).unwrap();
        let mut heard = WindowIntake::default();
        let news = heard.news("a", told.clone(), 21_100_000);
        assert_eq!(news.len(), INTERVALS);
        assert!(news.iter().all(|w| w.queue == "device/a/0"));
        assert_eq!(news[0].start_unix_us, 13_000_000, "clocks that differ by chance are left");
        assert!(heard.news("a", told.clone(), 21_100_000).is_empty());
        let mut far = WindowIntake::default();
        let news = far.news("a", told, 31_000_000);
        assert_eq!(news[0].start_unix_us, 23_000_000);
        // A node may tell any time; windows that end after it are not believed.
        for (now_unix_us, believed) in [(0, 0), (1 << 63, 1), (u64::MAX, 1)] {
            let told = DeviceWindows { now_unix_us, windows: vec![window("device/0", 5_000_000)] };
            assert_eq!(WindowIntake::default().news("a", told, 31_000_000).len(), believed);
        }
        for change in [
            |window: &mut Window| window.length_s = f64::INFINITY,
            |window: &mut Window| window.busy_s = -1.0,
            |window: &mut Window| window.servers = u32::MAX,
        ] {
            let mut odd = window("device/0", 5_000_000);
            change(&mut odd);
            let told = DeviceWindows { now_unix_us: 9_000_000, windows: vec![odd] };
            assert!(WindowIntake::default().news("a", told, 31_000_000).is_empty());
        }
        // A node whose clock is put back is heard again.
        let at = |second: u64| DeviceWindows {
            now_unix_us: (second + 1) * 1_000_000,
            windows: vec![window("device/0", second * 1_000_000)],
        };
        let mut heard = WindowIntake::default();
        for second in [100, 40, 41] {
            assert_eq!(heard.news("a", at(second), 31_000_000).len(), 1, "{second}");
        }
        assert!(heard.news("a", at(41), 31_000_000).is_empty());
        let mut none = Recent::new(false);
        none.keep(&[window("device/0", 1)]);
        assert!(none.intervals.is_empty());
    }
}
