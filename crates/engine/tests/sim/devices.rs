//! What devices do wrong, one at a time: each fault costs reads of the origin, and no answer is wrong.

use engine::sim::{Breakage, Clock, DeviceFaults, Fault, FaultKind, Law, Popularity, Simulation};
use ground::window::{Outcome, SECOND};

use crate::plain::Plain;

/// What is wrong with the devices of the one node.
#[derive(Clone, Default)]
struct Wrong {
    always: DeviceFaults,
    at_times: Vec<Fault>,
    breakage: Option<Breakage>,
}

fn plain() -> Plain {
    Plain {
        nodes: 1,
        gateways: 1,
        rate: 2_000.0,
        seconds: 6,
        keys: 50,
        popularity: Popularity::Uniform,
        memory_bytes: 0,
        servers: 4,
        service: Law::exponential(0.0005),
    }
}

/// Reads that the origin answered, and the number of violations: of whole records, and in pieces.
fn run(wrong: Wrong) -> (u64, usize) {
    let (whole, pieces) = (run_in_pieces(wrong.clone(), 0), run_in_pieces(wrong, 100));
    assert_eq!(whole.1 == 0, pieces.1 == 0);
    (whole.0.min(pieces.0), whole.1)
}

/// The same with records read in pieces of so many bytes.
fn run_in_pieces(wrong: Wrong, piece_bytes: u64) -> (u64, usize) {
    let mut settings = plain().settings();
    settings.nodes[0].devices[0].piece_bytes = piece_bytes;
    if piece_bytes > 0 {
        settings.clients.bytes = (1, 1000);
    }
    settings.clients.write_share = 0.3;
    settings.clients.deadline = SECOND;
    settings.device_faults = wrong.always;
    settings.faults = wrong.at_times;
    settings.breakage = wrong.breakage;
    settings.check = true;
    let mut simulation = Simulation::new(settings);
    simulation.run_to(12 * SECOND);
    simulation.check_at_the_end();
    assert_eq!(simulation.broken(), Vec::<String>::new());
    let from_origin = simulation.counts().reads.get(&Outcome::Origin).copied().unwrap_or(0);
    (from_origin, simulation.violations().len())
}

fn fault_at(seconds: f64, kind: FaultKind) -> Fault {
    Fault { at: (seconds * SECOND as f64) as u64, kind }
}

/// The same kills for both: a restart that finds everything, and one that finds what the crash left.
fn kills() -> Vec<Fault> {
    let kill = |i: u32| {
        let clock = Clock::default();
        fault_at(
            f64::from(i) * 0.2,
            FaultKind::Kill { process: 0, down: SECOND / 50, devices_lost: false, clock },
        )
    };
    (1..25).map(kill).collect()
}

#[test]
fn a_full_device_costs_reads_of_the_origin_and_no_answer() {
    let full = fault_at(1.0, FaultKind::DiskFull { process: 0, time: 3 * SECOND });
    let (well, none) = run(Wrong::default());
    let (ill, wrong) = run(Wrong { at_times: vec![full], ..Wrong::default() });
    assert!(none == 0 && wrong == 0 && ill > 2 * well, "{well} and {ill} reads of the origin");
}

#[test]
fn a_device_that_lies_about_a_write_costs_reads_of_the_origin_and_no_answer() {
    let always = DeviceFaults { lies: 0.5, ..DeviceFaults::default() };
    let (well, none) = run(Wrong::default());
    let (ill, wrong) = run(Wrong { always, ..Wrong::default() });
    assert!(none == 0 && wrong == 0 && ill > 2 * well, "{well} and {ill} reads of the origin");
}

#[test]
fn records_that_rot_are_not_believed() {
    let rot = |i: u32| fault_at(f64::from(i) * 0.3, FaultKind::Rot { process: 0, share: 0.5 });
    let rotten = Wrong { at_times: (1..19).map(rot).collect(), ..Wrong::default() };
    let (well, none) = run(Wrong::default());
    let (ill, wrong) = run(rotten.clone());
    assert!(none == 0 && wrong == 0 && ill > well, "{well} and {ill} reads of the origin");
    // The checksum is why.
    let (_, wrong) = run(Wrong { breakage: Some(Breakage::ChecksumIgnored), ..rotten });
    assert!(wrong > 0);
}

#[test]
fn records_that_a_crash_tore_are_not_believed() {
    let always = DeviceFaults { torn: 1.0, ..DeviceFaults::default() };
    let torn = Wrong { always, at_times: kills(), breakage: None };
    assert_eq!(run(torn.clone()).1, 0);
    // There are torn records, and without checksums they would be answers.
    let (_, wrong) = run(Wrong { breakage: Some(Breakage::ChecksumIgnored), ..torn });
    assert!(wrong > 0);
    let whole =
        Wrong { at_times: kills(), breakage: Some(Breakage::ChecksumIgnored), ..Wrong::default() };
    assert_eq!(run(whole).1, 0, "without torn records there is nothing to find");
}

/// Crashes of a node whose devices tear, lose and lie, on seeds of their own: `SIM_CRASHES=1000 cargo
/// test -p engine --test sim crashes -- --nocapture` prints what was judged.
#[test]
fn crashes_cost_reads_of_the_origin_and_no_answer() {
    let crashes = crate::seeds::env("SIM_CRASHES").unwrap_or(192);
    let kills_of_a_run = kills().len() as u64;
    let (mut run_count, mut from_origin, mut judged) = (0, 0, 0);
    while run_count * kills_of_a_run < crashes {
        let mut settings = plain().settings();
        settings.seed = 1000 + run_count;
        settings.clients.write_share = 0.3;
        settings.clients.deadline = SECOND;
        settings.device_faults = DeviceFaults { failures: 0.01, lies: 0.05, torn: 0.5 };
        // Half of the nodes have a hot device, half tell few keys apart.
        let bulk = settings.nodes[0].devices[0].clone();
        if run_count % 2 == 0 {
            let hot = engine::node::DeviceSettings {
                name: "device/1".to_owned(),
                outcome: Outcome::HotDevice,
                ..bulk
            };
            settings.nodes[0].devices.push(hot);
            settings.devices[0].push(Law::exponential(0.0001));
            settings.nodes[0].tiers.pins = vec![engine::node::Pin::Prefix(Vec::new())];
        }
        if run_count % 4 < 2 {
            settings.nodes[0].tiers.index_bits = 4;
        }
        // Small devices: segments are sealed and dropped all the time. On seeds of their own, records are
        // read in pieces.
        for device in &mut settings.nodes[0].devices {
            (device.bytes_max, device.segment_bytes) = (200_000, 20_000);
            device.piece_bytes = if run_count % 8 >= 4 { 100 + run_count } else { 0 };
        }
        settings.faults = kills();
        settings.check = true;
        let mut simulation = Simulation::new(settings);
        simulation.run_to(12 * SECOND);
        simulation.check_at_the_end();
        assert_eq!(simulation.broken(), Vec::<String>::new());
        assert!(simulation.violations().is_empty(), "{:#?}", simulation.violations());
        let counts = simulation.counts();
        from_origin += counts.reads.get(&Outcome::Origin).copied().unwrap_or(0);
        judged += counts.judged();
        run_count += 1;
    }
    println!(
        "{} crashes: {judged} requests judged, {from_origin} reads of the origin, no violation",
        run_count * kills_of_a_run
    );
    assert!(judged > 1000);
}
