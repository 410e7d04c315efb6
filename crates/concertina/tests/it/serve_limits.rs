//! What one client may have per second.

use crate::serve_client::{Client, start};

#[test]
fn a_client_that_asks_too_much_is_told_to_come_later() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.client_requests_per_s=5"]);
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/a", b"x").status, 200);
    // However slow this machine is, it does not take a fifth of a second for each.
    let replies: Vec<_> = (0..200).map(|_| client.get("/objects/a")).collect();
    assert!(replies.iter().any(|reply| reply.status == 200));
    let refused = replies.iter().find(|reply| reply.status == 429).expect("one is refused");
    assert!(refused.header("retry-after").unwrap().parse::<u32>().unwrap() >= 1);
    assert!(refused.text().contains("client_requests_per_s"), "{}", refused.text());
    // Health is asked for all the same.
    assert!((0..50).all(|_| client.get("/healthz").status == 200));
    server.stop();
}

#[test]
fn a_client_that_moves_too_much_is_told_to_come_later() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.client_bytes_per_s=10000"]);
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/a", &[7; 3_000_000]).status, 200);
    let refused = client.get("/objects/a");
    // 299 s are missing, less what passed since.
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").unwrap().parse::<u32>().unwrap() > 100);
    server.stop();
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.client_bytes_per_s=10000"]);
    let mut client = Client::connect(server.address());
    let chunked = [("transfer-encoding", "chunked")];
    let refused = client.send("PUT", "/objects/a", &chunked, None).unwrap();
    assert_eq!(refused.status, 411, "{}", refused.text());
    server.stop();
}
