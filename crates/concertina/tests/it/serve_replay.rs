//! A recorded run of real traffic, replayed through the engine, gives identical actions.

use std::sync::atomic::Ordering;

use node::events::replay;

use crate::serve_client::{Client, bytes, start_on};
use crate::serve_faults::faulty;

#[test]
fn a_recorded_run_replays_with_identical_actions() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let run_dir = format!("observe.run_dir={}", run.display());
    let more = [
        run_dir.as_str(),
        "observe.events=true",
        "node.memory_bytes=60kB",
        "node.revalidate_s=0.05",
        "node.writes_waiting_max=3",
        "device.0.count=3",
        "device.0.bytes=300kB",
        "device.0.segment_bytes=50kB",
        "device.0.queue_length_max=3",
        "device.0.service={kind=\"exponential\",mean_ms=1}",
        "origin.parallel=2",
        "origin.queue_length_max=6",
    ];
    // The second start restores what the first left on the devices.
    for round in 0..2 {
        let _ = std::fs::remove_dir_all(&run);
        let (faults, origin) = faulty(folder.path());
        faults.fail_one_in.store(17, Ordering::Relaxed);
        let server = start_on(folder.path(), &more, Some(origin));
        let address = server.address();
        let clients: Vec<_> = (0..8u64)
            .map(|seed| {
                std::thread::spawn(move || {
                    let mut client = Client::connect(address);
                    for step in 0..150 {
                        let dice = bytes(seed * 1000 + step, 3);
                        let path = format!("/objects/{}", dice[0] % 40);
                        let size = 500 + usize::from(dice[2]) * 20;
                        let method = match dice[1] % 10 {
                            0..6 => "GET",
                            6..9 => "PUT",
                            _ => "DELETE",
                        };
                        let body = (method == "PUT").then(|| bytes(step, size));
                        let reply = client.send(method, &path, &[], body.as_deref()).unwrap();
                        assert!([200, 204, 404, 503].contains(&reply.status), "{}", reply.text());
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        server.stop();
        let replayed = replay(&run.join("events")).unwrap();
        assert!(replayed.events > 1200, "{replayed:?} in round {round}");
        assert!(replayed.drops > 0, "no segment was dropped: {replayed:?} in round {round}");
    }
    // The first line names the settings; without it nothing can be replayed.
    let text = std::fs::read_to_string(run.join("events")).unwrap();
    let cut = text.split_once('\n').unwrap().1;
    std::fs::write(run.join("cut"), cut).unwrap();
    assert!(replay(&run.join("cut")).is_err());
}
