//! Excludes the windows of a step during which other guests of the hypervisor used the processor.
//!
//! A stall of the whole machine affects the server, the network and the load generator alike, and
//! no model of a service describes it; 0.3 s in which nothing ran can outweigh a minute of
//! measurement. The kernel reports the stolen time of each second, so these seconds are identified
//! by their cause and not by the responses in them: excluding them favours no prediction. A window
//! of any queue is excluded if it overlaps such a second. This mostly covers the time in which
//! queues drain after a stall, too.
//!
//! At least half of the windows of each queue are always kept: if more were disturbed, those with
//! the least stolen time are kept. The step's figures state the mean stolen share.

use ground::window::Window;

use record::Host;

/// The stolen share of processor time above which a second counts as disturbed.
pub(super) const STOLEN_MAX: f64 = 0.05;

/// The stolen processor time, second by second.
#[derive(Clone, Debug, Default)]
pub(super) struct Disturbed {
    /// Start and end, microseconds since 1970, and the stolen share of processor time.
    seconds: Vec<(u64, u64, f64)>,
}

impl Disturbed {
    /// Collects the stolen time from host records.
    pub fn new<'a>(hosts: impl IntoIterator<Item = &'a Host>) -> Disturbed {
        let second = |h: &Host| {
            let length_us = (h.length_s.clamp(0.0, 1e6) * 1e6) as u64;
            (h.unix_us.saturating_sub(length_us), h.unix_us, h.cpu_stolen)
        };
        Disturbed { seconds: hosts.into_iter().map(second).collect() }
    }

    /// The largest stolen share among the seconds that overlap a window. An overlap of up to 1 % of
    /// the window is ignored, because processes do not start their seconds at the same time.
    fn stolen(&self, window: &Window) -> f64 {
        let slack = (window.length_s.clamp(0.0, 1e6) * 1e4) as u64;
        let start = window.start_unix_us.saturating_add(slack);
        let end = window.end_unix_us().saturating_sub(slack);
        let overlapping = self.seconds.iter().filter(|s| s.0 < end && s.1 > start);
        overlapping.map(|s| s.2).fold(0.0, f64::max)
    }

    /// Removes the disturbed windows of one queue.
    pub(crate) fn leave_out(&self, windows: &mut Vec<Window>) {
        let mut stolen: Vec<f64> = windows.iter().map(|w| self.stolen(w)).collect();
        stolen.sort_by(f64::total_cmp);
        let Some(median) = stolen.get(stolen.len().saturating_sub(1) / 2) else { return };
        let most = median.max(STOLEN_MAX);
        windows.retain(|window| self.stolen(window) <= most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The indices of the windows that are kept, one window for each second.
    fn kept_windows(stolen: &[f64], offset_us: u64) -> Vec<usize> {
        let host = |(i, &cpu_stolen): (usize, &f64)| Host {
            unix_us: (i as u64 + 1) * 1_000_000,
            length_s: 1.0,
            cpu_stolen,
            ..Host::default()
        };
        let window = |i: usize| {
            let mut window = Window::new("node", i as u64 * 1_000_000 + offset_us, 0, &[]);
            window.length_s = 1.0;
            window
        };
        let hosts: Vec<Host> = stolen.iter().enumerate().map(host).collect();
        let mut windows: Vec<Window> = (0..stolen.len()).map(window).collect();
        Disturbed::new(&hosts).leave_out(&mut windows);
        windows.iter().map(|w| (w.start_unix_us / 1_000_000) as usize).collect()
    }

    #[test]
    fn windows_that_a_stolen_second_overlaps_are_left_out() {
        let stolen = [0.0, 0.3, 0.01, 0.0, 0.0, 0.06, 0.0, 0.0];
        assert_eq!(kept_windows(&stolen, 0), [0, 2, 3, 4, 6, 7]);
        assert_eq!(kept_windows(&stolen, 3_000), [0, 2, 3, 4, 6, 7], "nearly the same seconds");
        assert_eq!(kept_windows(&stolen, 500_000), [2, 3, 6, 7], "half of either");
        assert_eq!(kept_windows(&[0.05, 0.0, 0.02], 0), [0, 1, 2]);
        assert_eq!(kept_windows(&[], 0), [0; 0]);
    }

    #[test]
    fn half_of_a_step_stays_whatever_was_stolen() {
        assert_eq!(kept_windows(&[0.2, 0.1, 0.3, 0.4, 0.15, 0.6], 0), [0, 1, 4]);
        assert_eq!(kept_windows(&[0.5; 6], 0), [0, 1, 2, 3, 4, 5]);
        for i in 0..200u64 {
            let stolen: Vec<f64> =
                (0..i % 9 + 1).map(|k| ((k * 37 + i * 11) % 17) as f64 / 17.0).collect();
            for offset in [0, 420_000] {
                assert!(
                    2 * kept_windows(&stolen, offset).len() >= stolen.len(),
                    "{stolen:?} {offset}"
                );
            }
        }
    }
}
