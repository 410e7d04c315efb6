//! Metrics of the devices and of the hot class.

use engine::node::{DeviceState, DeviceTier, HotNodes, Tiers};

use wire::exposition::{Exposition, Kind};

type OfDevice = (&'static str, Kind, &'static str, fn(&DeviceTier) -> f64);

/// Adds the metrics. A node without hot devices has those of the hot class too, all 0, so that the
/// set of metrics does not depend on the configuration.
pub fn add_metrics(page: &mut Exposition, tiers: &Tiers, scrubbed: impl Fn(usize) -> (u64, u64)) {
    for (name, kind, help, value) in OF_DEVICES {
        page.family(name, *kind, help);
        for device in &tiers.devices {
            let labels = [("queue", device.name.as_str()), ("class", device.class.as_str())];
            page.sample(name, &labels, value(device));
        }
    }
    let name = "concertina_device_scrubbed_bytes_total";
    page.family(name, Kind::Counter, "Bytes that the scrub has read and verified.");
    for (id, device) in tiers.devices.iter().enumerate() {
        let labels = [("queue", device.name.as_str()), ("class", device.class.as_str())];
        page.sample(name, &labels, scrubbed(id).0 as f64);
    }
    let name = "concertina_index_other_keys_total";
    let help = "Reads of devices that found another key's record.";
    page.single(name, Kind::Counter, help, tiers.other_keys as f64);
    let hot = tiers.hot.as_ref();
    let (moves, bought) = (
        hot.map(|hot| hot.moves).unwrap_or_default(),
        hot.map(|hot| hot.bought).unwrap_or_default(),
    );
    let name = "concertina_hot_moves_total";
    page.family(name, Kind::Counter, "Objects that moved to or from hot devices, by kind.");
    for (kind, count) in [
        ("promoted", moves.promoted),
        ("reinserted", moves.reinserted),
        ("demoted", moves.demoted),
        ("put_off", moves.put_off),
    ] {
        page.sample(name, &[("kind", kind)], count as f64);
    }
    let name = "concertina_device_reads_total";
    page.family(name, Kind::Counter, "Reads that devices served, by class.");
    for (class, reads) in [("hot", bought.hot_reads), ("bulk", bought.bulk_reads)] {
        page.sample(name, &[("class", class)], reads as f64);
    }
    page.single(
        "concertina_hot_saved_seconds_total",
        Kind::Counter,
        "Time that hot reads took less than bulk devices were expected to take.",
        bought.saved_s,
    );
    page.single(
        "concertina_hot_objects",
        Kind::Gauge,
        "Objects on hot devices.",
        hot.map_or(0.0, |hot| hot.objects as f64),
    );
    add_hot_nodes(page, tiers.hot_nodes.as_ref());
}

/// Those of hot nodes: what this node names them for, and what it served as one.
fn add_hot_nodes(page: &mut Exposition, hot: Option<&HotNodes>) {
    let moves = hot.map(|hot| hot.moves).unwrap_or_default();
    let name = "concertina_hot_node_moves_total";
    let help = "Copies on hot nodes that this node named, dropped or put off, by kind.";
    page.family(name, Kind::Counter, help);
    for (kind, count) in
        [("named", moves.named), ("dropped", moves.dropped), ("put_off", moves.put_off)]
    {
        page.sample(name, &[("kind", kind)], count as f64);
    }
    let of = |value: fn(&HotNodes) -> f64| hot.map_or(0.0, value);
    for (name, kind, help, value) in [
        (
            "concertina_hot_node_keys",
            Kind::Gauge,
            "Keys of this node that hot nodes hold copies of.",
            of(|hot| hot.keys as f64),
        ),
        (
            "concertina_hot_node_bytes",
            Kind::Gauge,
            "Bytes of these copies.",
            of(|hot| hot.bytes as f64),
        ),
        (
            "concertina_hot_node_reads_total",
            Kind::Counter,
            "Reads of this node's keys that hot nodes served.",
            of(|hot| hot.bought.reads as f64),
        ),
        (
            "concertina_hot_node_saved_device_seconds_total",
            Kind::Counter,
            "Service time on this node's devices that these reads would have taken.",
            of(|hot| hot.bought.device_s),
        ),
        (
            "concertina_hot_node_served_total",
            Kind::Counter,
            "Reads that this node served as a hot node.",
            of(|hot| hot.served as f64),
        ),
    ] {
        page.single(name, kind, help, value);
    }
}

const OF_DEVICES: &[OfDevice] = &[
    (
        "concertina_device_in_service",
        Kind::Gauge,
        "1 while the device serves; 0 while it is taken out because it failed.",
        |device| f64::from(u8::from(device.state == DeviceState::In)),
    ),
    (
        "concertina_device_writable",
        Kind::Gauge,
        "1 while the device takes writes; 0 after one that failed, until one succeeds.",
        |device| f64::from(u8::from(!device.write_failed)),
    ),
    (
        "concertina_device_expected_seconds",
        Kind::Gauge,
        "Expected response of a read that comes now.",
        |device| device.expected_s,
    ),
    (
        "concertina_device_live_bytes",
        Kind::Gauge,
        "Bytes of the records that can be read.",
        |device| device.live_bytes as f64,
    ),
    ("concertina_device_segments", Kind::Gauge, "Segments that the device holds.", |device| {
        device.segments as f64
    }),
    (
        "concertina_device_segments_max",
        Kind::Gauge,
        "Maximum number of segments of a block device; 0 of a folder.",
        |device| device.segments_max.unwrap_or(0) as f64,
    ),
    (
        "concertina_device_written_bytes_total",
        Kind::Counter,
        "Bytes of records written.",
        |device| device.written_bytes as f64,
    ),
    (
        "concertina_device_reinserted_bytes_total",
        Kind::Counter,
        "Bytes of these that the device had before.",
        |device| device.reinserted_bytes as f64,
    ),
    (
        "concertina_device_damaged_total",
        Kind::Counter,
        "Records that the scrub found damaged, and dropped.",
        |device| device.damaged as f64,
    ),
];
