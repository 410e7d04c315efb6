//! The node's part of `concertina status`: memory, devices, hot copies and hot nodes.

use std::fmt::Write;

use engine::node::{DeviceState, DeviceTier, HotNodes, HotTier, Tiers};
use engine::status::NodeProcess;

use ground::number::{decimals, digits, percent, time};

use super::figures::{bytes, figure};

/// Objects that are listed as hot, and moves.
const LISTED: usize = 10;

/// A node in words.
pub fn node_text(url: &str, node: &NodeProcess, tiers: &Tiers) -> String {
    let mut text = String::new();
    let contents = &node.contents;
    let _ = writeln!(
        text,
        "{url}: version {}, {} objects in memory ({}), {} on devices; requests waiting: {}",
        node.version,
        contents.memory_objects,
        bytes(contents.memory_bytes),
        contents.device_objects,
        figure(node.requests_waiting),
    );
    if let Some(memory) = &node.memory {
        let _ = writeln!(
            text,
            "memory: {} for objects and layers; objects have {} of at most {}, layers {} of at most {}",
            bytes(memory.bytes_max),
            bytes(memory.objects_bytes),
            bytes(memory.objects_bytes_max),
            bytes(memory.layers_bytes),
            bytes(memory.layers_bytes_max),
        );
    }
    if let Some(laboratory) = &node.laboratory {
        let _ = writeln!(text, "laboratory: {laboratory}");
    }
    for device in &tiers.devices {
        text += &device_text(device);
    }
    if let Some(hot_nodes) = &tiers.hot_nodes {
        text += &hot_nodes_text(hot_nodes);
    }
    match &tiers.hot {
        Some(hot) => text += &hot_text(hot),
        None => {
            text += "no hot copies: these need devices of class \"hot\" beside those of class \"bulk\"\n"
        }
    }
    text
}

fn device_text(device: &DeviceTier) -> String {
    let state = match (device.state, device.out_for_s) {
        (DeviceState::In, _) if device.write_failed => ", TAKES NO WRITES".to_owned(),
        (DeviceState::In, _) => String::new(),
        (DeviceState::Out, Some(out_for_s)) => format!(", OUT for {}", time(out_for_s)),
        (DeviceState::Out, None) => ", OUT".to_owned(),
    };
    // Of a block device, which has a place for each.
    let places = device.segments_max.map_or_else(String::new, |segments_max| {
        format!(" in {} of {segments_max} segments", device.segments)
    });
    format!(
        "  {} {:4}  {} expected, {} queued of {} at once; {} of {}{places}, {} live in {} objects; {} written \
         ({} again){}{state}\n",
        device.name,
        device.class.as_str(),
        time(device.expected_s),
        device.queue_length,
        device.parallel,
        bytes(device.bytes),
        bytes(device.bytes_max),
        bytes(device.live_bytes),
        device.objects,
        bytes(device.written_bytes),
        bytes(device.reinserted_bytes),
        depth_text(device),
    )
}

/// The reason for the number of reads that a device is given at once.
fn depth_text(device: &DeviceTier) -> String {
    let Some(reason) = &device.depth else { return String::new() };
    let present = (reason.depth, reason.reads_per_s);
    let measured = [Some(present), reason.smaller, reason.larger];
    let measured: Vec<String> = measured
        .iter()
        .flatten()
        .map(|(depth, reads)| format!("{}/s at {depth}", digits(*reads, 3)))
        .collect();
    format!("; depth {} of measured {}", reason.depth, measured.join(", "))
}

/// What hot nodes do for the keys of a node, or what the node served as one.
fn hot_nodes_text(hot: &HotNodes) -> String {
    if hot.is_hot {
        return format!("hot node: served {} reads\n", hot.served);
    }
    let mut text = String::new();
    let _ = writeln!(
        text,
        "hot nodes: {} keys, {} of {}; they served {} reads, {} of this node's devices saved; worth it from \
         {} of a device",
        hot.keys,
        bytes(hot.bytes),
        bytes(hot.bytes_max),
        hot.bought.reads,
        time(hot.bought.device_s),
        digits(hot.load_min, 3),
    );
    let minute = &hot.last_minute;
    let _ = writeln!(
        text,
        "  last minute: {} named ({}), {} dropped, {} put off",
        minute.named,
        bytes(minute.named_bytes),
        minute.dropped,
        minute.put_off,
    );
    for object in hot.hottest.iter().take(LISTED) {
        let _ = writeln!(
            text,
            "  {:?} on {}: {} reads/s x {} of a device, {}{}",
            object.key,
            object.nodes.join(", "),
            decimals(object.reads_per_s, 2),
            time(object.device_s),
            bytes(object.bytes),
            if object.pinned { ", pinned" } else { "" },
        );
    }
    text
}

/// The hot class of a node.
fn hot_text(hot: &HotTier) -> String {
    let mut text = String::new();
    let bought = &hot.bought;
    let reads = bought.hot_reads + bought.bulk_reads;
    let _ = writeln!(
        text,
        "hot: {} of {reads} device reads, {} of waiting saved; {} objects; worth it from {} s/s per byte; \
         reads count for {}",
        percent(bought.hot_reads as f64 / reads.max(1) as f64, 1),
        time(bought.saved_s),
        hot.objects,
        digits(hot.promote_from, 4),
        time(hot.remembered_s),
    );
    let minute = &hot.last_minute;
    let _ = writeln!(
        text,
        "  last minute: {} promoted ({}), {} written again, {} demoted, {} put off",
        minute.promoted,
        bytes(minute.promoted_bytes),
        minute.reinserted,
        minute.demoted,
        minute.put_off,
    );
    let share = |(times, share): &(f64, f64)| format!("{} with {times}x", percent(*share, 1));
    let shares: Vec<String> = hot.share_at.iter().map(share).collect();
    let _ = writeln!(text, "  of the bytes, the best placement serves: {}", shares.join(", "));
    for object in hot.hottest.iter().take(LISTED) {
        let _ = writeln!(
            text,
            "  {:?}: {} reads/s x {} saved, {}{}",
            object.key,
            decimals(object.reads_per_s, 2),
            time(object.saved_s),
            bytes(object.bytes),
            if object.pinned { ", pinned" } else { "" },
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use engine::node::{
        Bought, Contents, DeviceClass, HotKey, HotNodesBought, HotNodesMoves, Hottest, Moves,
    };
    use engine::status::Connections;
    use serde_json::json;

    use super::*;

    fn node() -> NodeProcess {
        NodeProcess {
            version: "1".to_owned(),
            laboratory: None,
            contents: Contents { memory_objects: 3, memory_bytes: 4096, ..Contents::default() },
            memory: None,
            requests_waiting: None,
            connections: Connections::default(),
            origin: None,
            cluster: None,
            mismatches: Vec::new(),
            pacer_lateness: None,
            config: toml::Table::new(),
        }
    }

    fn device() -> DeviceTier {
        DeviceTier {
            name: "device/0".to_owned(),
            class: DeviceClass::Bulk,
            state: DeviceState::Out,
            out_for_s: Some(7.2),
            write_failed: false,
            queue_length: 1,
            parallel: 8,
            depth: serde_json::from_value(
                json!({ "depth": 8, "reads_per_s": 801.2, "smaller": [6, 640.4],
                "changes": 2 }),
            )
            .unwrap(),
            expected_s: 0.0125,
            service_s: (0.01, 0.0),
            bytes: 1_000_000,
            bytes_max: 1_000_000_000,
            segments: 3,
            segments_max: Some(15),
            objects: 5,
            live_bytes: 1_000_000,
            written_bytes: 1_000_000,
            reinserted_bytes: 0,
            damaged: 0,
        }
    }

    fn assert_has(text: &str, parts: &[&str]) {
        for part in parts {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn devices_are_listed_with_their_state_and_depth() {
        let tiers = Tiers { devices: vec![device()], ..Tiers::default() };
        let parts = [
            "3 objects in memory (4.1 kB), 0 on devices; requests waiting: -\n",
            "device/0 bulk  12.5 ms expected",
            "OUT for 7.2 s",
            "1 MB of 1 GB in 3 of 15 segments",
            "depth 8 of measured 801/s at 8, 640/s at 6",
            "no hot copies",
        ];
        assert_has(&node_text("http://a", &node(), &tiers), &parts);
        let readable = DeviceTier { state: DeviceState::In, write_failed: true, ..device() };
        let readable = Tiers { devices: vec![readable], ..Tiers::default() };
        assert_has(&node_text("http://a", &node(), &readable), &[", TAKES NO WRITES\n"]);
        // As the reply has it.
        let reply = serde_json::to_value(&tiers).unwrap();
        assert_eq!(serde_json::from_value::<Tiers>(reply).unwrap(), tiers);
    }

    #[test]
    fn hot_copies_are_listed_with_what_they_bought() {
        let hottest = Hottest {
            key: "a".to_owned(),
            bytes: 900,
            reads_per_s: 2.0,
            saved_s: 0.01,
            benefit: 0.0,
            pinned: true,
        };
        let hot = HotTier {
            level: 1e-9,
            promote_from: 1e-9,
            objects: 9,
            bytes: 0,
            bought: Bought { hot_reads: 60, bulk_reads: 40, hot_passed_by: 0, saved_s: 1.5 },
            moves: Moves::default(),
            last_minute: Moves { promoted: 4, promoted_bytes: 5000, ..Moves::default() },
            share_at: vec![(1.0, 0.625)],
            held: None,
            remembered_s: 2400.0,
            hottest: vec![hottest],
            moved: Vec::new(),
        };
        let tiers = Tiers { hot: Some(hot), ..Tiers::default() };
        let parts = [
            "60.0 % of 100",
            "4 promoted (5 kB)",
            "reads count for 40 min",
            "62.5 % with 1x",
            "10 ms saved, 900 B, pinned",
        ];
        assert_has(&node_text("http://a", &node(), &tiers), &parts);
    }

    #[test]
    fn hot_nodes_are_listed_with_what_they_bought() {
        let key = HotKey {
            key: "a".to_owned(),
            bytes: 900,
            reads_per_s: 20.0,
            device_s: 0.01,
            load: 0.2,
            nodes: vec!["h".to_owned(), "i".to_owned()],
            pinned: true,
        };
        let mut hot = HotNodes {
            is_hot: false,
            served: 5,
            version: 1,
            keys: 1,
            bytes: 1800,
            bytes_max: 5000,
            load_min: 0.001,
            bought: HotNodesBought { reads: 70, device_s: 0.7 },
            moves: HotNodesMoves::default(),
            last_minute: HotNodesMoves { named: 2, named_bytes: 1800, dropped: 0, put_off: 3 },
            hottest: vec![key],
            moved: Vec::new(),
        };
        let parts = [
            "1 keys, 1.8 kB of 5 kB; they served 70 reads, 700 ms of",
            "worth it from 0.001 of a device",
            "2 named (1.8 kB), 0 dropped, 3 put off",
            "\"a\" on h, i: 20.00 reads/s x 10 ms of a device, 900 B, pinned",
        ];
        assert_has(&hot_nodes_text(&hot), &parts);
        hot.is_hot = true;
        assert_eq!(hot_nodes_text(&hot), "hot node: served 5 reads\n");
    }
}
