//! Any bytes as what nodes tell a gateway of themselves, their devices, their shards and their hot keys: windows keep to their node and
//! come once, orders stay within their bounds, and reads go to nodes that are there.

#![no_main]

mod edits;

use std::sync::{Arc, LazyLock};

use engine::act::replicas::{Extras, Order, Settings as Replicas};
use engine::gateway::{Action, Event, Gateway, Operation, Settings};
use engine::node::HotDirectory;
use engine::route::{Member, Ring};
use ground::window::Window;
use libfuzzer_sys::fuzz_target;
use serve::fuzzing::{DeviceWindows, WindowIntake, parse_report, shards_told};

static TOLD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let start = 1_699_999_999_000_000;
    let mut device = Window::new("device/0", start, 1, &[]);
    (device.length_s, device.arrivals, device.busy_s) = (1.0, 3, 0.03);
    let windows = vec![device, Window::new("memory", start, 0, &[])];
    let told = DeviceWindows { now_unix_us: start + 1_000_000, windows };
    serde_json::to_vec_pretty(&told).expect("what a node tells")
});
const SHARDS: &[u8] = br#"{"length":40.5,"room_bytes":1000000,"shards":[
{"dataset":"lines","id":"a1","file":"000001.shard","bytes":1000,"length":35.0,"can_grow":false},
{"dataset":"lines","id":"a1","file":"000002.shard","bytes":900,"length":5.5,"can_grow":true}]}"#;
const HOT: &[u8] = br#"{"version":7,"keys":[[6510615555426900570,1],[12161962213042174405,2],[18446744073709551615,8]]}"#;

const ABOUT: &[u8] = br#"{"version":"0.1.0","epoch":7,
"warmed":{"objects":7,"bytes":1500,"compared":3,"waiting":2,"goes_on":true}}"#;

fn devices(json: &[u8]) {
    let Ok(told) = serde_json::from_slice::<DeviceWindows>(json) else { return };
    let _ = told.utilisation();
    let mut heard = WindowIntake::default();
    let now = 1_700_000_000_500_000;
    let any = told.windows.len();
    let news = heard.news("a", told.clone(), now);
    assert!(news.len() <= any && news.iter().all(|it| it.queue.starts_with("device/a/")));
    assert!(heard.news("a", told, now).is_empty());
}

fn shards(json: &[u8]) {
    let (shards, rooms) = shards_told(&[SHARDS, json, json]);
    let settings = Replicas::default();
    let (most, step) = (settings.all, settings.marks.interval);
    let mut extras = Extras::new(settings, 1).expect("the defaults are valid");
    for time in 1..40 {
        for order in extras.observe(time * step, &shards, &rooms) {
            match order {
                Order::Add { shard, node, .. } => {
                    assert!(node < 3, "{node}");
                    extras.record_agreement(time * step, shard, node);
                }
                Order::Renew { shard, node } => extras.record_agreement(time * step, shard, node),
                Order::Remove { shard, node, .. } => extras.gone(time * step, shard, node),
            }
        }
        assert!(extras.leased().count() <= most);
    }
}

fn hot_keys(json: &[u8]) {
    let Ok(directory) = serde_json::from_slice::<HotDirectory>(json) else { return };
    let keys = directory.keys.len();
    let hot = |name: &str| Member { hot: true, ..Member::new(name, 1.0) };
    let members = vec![Member::new("a", 1.0), Member::new("b", 1.0), hot("h"), hot("i")];
    let ring = Arc::new(Ring::new(members, 2).expect("a ring"));
    let mut gateway = Gateway::new(Settings::new(ring), 0);
    let (mut actions, directory) = (Vec::new(), Arc::new(directory));
    for node in [0, 2, 0] {
        gateway.handle(1, Event::HotKeys { node, directory: directory.clone() }, &mut actions);
    }
    for number in 0..8u8 {
        let request = Event::Request {
            request: u64::from(number),
            key: vec![b'a' + number].into(),
            operation: Operation::Read,
            deadline: 1_000_000_000,
        };
        gateway.handle(2, request, &mut actions);
    }
    let there = |action: &Action| !matches!(action, Action::Send { node, .. } if *node >= 4);
    assert!(actions.iter().all(there));
    // Two nodes have told of them.
    assert!(gateway.status(3).hot_keys <= 2 * keys);
}

// Input: what is told, then its text as edits of the above, or any bytes.
fuzz_target!(|data: &[u8]| {
    let [which, data @ ..] = data else { return };
    match which % 4 {
        3 => drop(parse_report(http::StatusCode::OK, &edits::edited(&[ABOUT], data))),
        0 => devices(&edits::edited(&[&TOLD], data)),
        1 => shards(&edits::edited(&[SHARDS], data)),
        _ => hot_keys(&edits::edited(&[HOT], data)),
    }
});
