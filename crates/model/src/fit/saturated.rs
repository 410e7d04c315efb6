//! Finds the devices of a step that were never idle, and their throughput.

use std::collections::BTreeMap;

use super::data::{ClassData, DeviceData, SaturatedDevice, block_index, blocks_of};
use super::input::{Options, Step};

/// Largest share of time for which a saturated device may have been idle.
const SLACK_MAX: f64 = 0.005;
/// Mean number at a device per server below which the device never counts as saturated.
const LENGTH_MIN: f64 = 1.5;

/// The devices that were saturated during a step: always busy, or with a queue so long that it
/// cannot have been empty for long. A device's idle share of time is at most 1 − utilisation. With
/// L requests waiting per server it is about 1/L in a balanced closed network, and (1 + SCV)/2 of
/// that in an open queue near saturation. The second rule finds devices whose servers pause between
/// two reads, so that not all of them ever count as busy.
/// reads, so that they are never counted as all busy, is known by the second.
pub(super) fn saturated_devices(
    step: &Step,
    devices: &[DeviceData],
    classes: &[ClassData],
    options: &Options,
) -> Vec<SaturatedDevice> {
    let mut found = Vec::new();
    let (start, block_us) = blocks_of(step.devices.iter().flatten(), options);
    for (index, (windows, device)) in step.devices.iter().zip(devices).enumerate() {
        let mut blocks: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
        let (mut busy, mut time, mut length, mut completions) = (0.0, 0.0, 0.0, 0.0);
        for window in windows {
            let servers_s = window.length_s * f64::from(window.servers);
            let block = blocks.entry(block_index(window, start, block_us)).or_default();
            block.0 += servers_s;
            block.1 += window.completions as f64;
            busy += window.busy_s;
            time += servers_s;
            length += window.length_integral_s;
            completions += window.completions as f64;
        }
        let service = classes.get(device.class).map(|c| &c.service);
        let scv = service.map_or(1.0, |s| s.variance_s2() / s.mean_s().powi(2));
        let length = length / time;
        let slack = (1.0 - busy / time).min((0.5 * (1.0 + scv)).max(1.0) / length).max(0.0);
        let sums = time.is_finite() && time > 0.0 && completions > 0.0;
        if sums && length.is_finite() && length >= LENGTH_MIN && slack <= SLACK_MAX {
            let blocks = blocks.into_values().collect();
            found.push(SaturatedDevice { device: index, slack, blocks });
        }
    }
    found
}
