//! Leaves out devices that served no read although each would have had some by chance.
//!
//! A hot device whose objects memory answers, a new and empty one, or one that failed has queues and windows, but no reads that
//! would say what it is. Counted as one more device of the first class it would take a share of every larger load: a server with one
//! working disk would seem to have two.

use std::borrow::Cow;

use super::input::Step;

/// Mean reads of a device from which on a device without a read is left out: of equal devices one has none by chance with a probability of exp(−10).
const READS_MIN: f64 = 10.0;

/// The steps without devices that served nothing, and these devices' names.
pub(super) fn serving(steps: &[Step]) -> (Cow<'_, [Step]>, Vec<String>) {
    let count = steps.first().map_or(0, |step| step.devices.len());
    if steps.iter().any(|step| step.devices.len() != count) {
        return (Cow::Borrowed(steps), Vec::new());
    }
    let windows = |device: usize| steps.iter().flat_map(move |step| &step.devices[device]);
    let reads: Vec<f64> = (0..count)
        .map(|device| windows(device).map(|w| w.arrivals.max(w.completions) as f64).sum())
        .collect();
    let enough = reads.iter().sum::<f64>() >= READS_MIN * count as f64;
    let idle = |device: &usize| enough && reads[*device] == 0.0;
    let names: Vec<String> = (0..count)
        .filter(idle)
        .map(|device| windows(device).next().map_or(String::new(), |w| w.queue.clone()))
        .collect();
    if names.is_empty() {
        return (Cow::Borrowed(steps), names);
    }
    let mut steps = steps.to_vec();
    for step in &mut steps {
        let mut device = 0;
        step.devices.retain(|_| {
            device += 1;
            !idle(&(device - 1))
        });
    }
    (Cow::Owned(steps), names)
}

/// What is said of the devices that were left out.
pub(super) fn warning(names: &[String]) -> Option<String> {
    let (one, several) = (
        "served no read: it is left out of the model",
        "served no read: they are left out of the model",
    );
    (!names.is_empty())
        .then(|| format!("{} {}", names.join(", "), if names.len() == 1 { one } else { several }))
}

#[cfg(test)]
mod tests {
    use ground::window::Window;

    use super::*;

    fn device(name: &str, arrivals: u64) -> Vec<Window> {
        vec![Window { arrivals, completions: arrivals, ..Window::new(name, 0, 1, &[]) }]
    }

    fn step(reads: &[u64]) -> Step {
        let names = ["device/0", "device/1", "device/2"];
        let devices = names.iter().zip(reads).map(|(name, reads)| device(name, *reads)).collect();
        Step { devices, ..Step::default() }
    }

    #[test]
    fn a_device_without_a_read_is_left_out_unless_that_may_be_chance() {
        let steps = [step(&[500, 0, 3]), step(&[800, 0, 0])];
        let (left, names) = serving(&steps);
        assert_eq!((names.as_slice(), left[1].devices.len()), (&["device/1".to_owned()][..], 2));
        assert!(warning(&names).unwrap().contains("device/1 served no read"));
        for kept in [[step(&[20, 0, 3])], [step(&[0, 0, 0])], [step(&[500, 1, 300])]] {
            let (left, names) = serving(&kept);
            assert!(names.is_empty() && left[0].devices.len() == 3 && warning(&names).is_none());
        }
    }
}
