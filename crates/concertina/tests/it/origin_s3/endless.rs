//! Replies that do not end.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use configuration as config;
use origin::{Error, Origin, S3};

use super::config_of;
use crate::origin::{key, run, staged};

/// A store, or what stands before it, whose refusals go on for ever: byte by byte, or as fast as they are read.
#[test]
fn refusals_without_an_end_are_given_up() {
    for (piece, pause) in [(1, Duration::from_millis(20)), (1 << 20, Duration::ZERO)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let _ = stream.read(&mut [0; 4096]);
                    let head = "HTTP/1.1 403 Forbidden\r\ntransfer-encoding: chunked\r\n\r\n";
                    let _ = stream.write_all(head.as_bytes());
                    let chunk = format!("{piece:x}\r\n{}\r\n", "x".repeat(piece));
                    while stream.write_all(chunk.as_bytes()).is_ok() {
                        std::thread::sleep(pause);
                    }
                });
            }
        });
        let config = config::Origin { timeout_s: 0.3, ..config_of(&endpoint) };
        let origin = S3::open(&config).unwrap();
        let start = Instant::now();
        for result in [
            run(origin.get(&key("a"), None)).map(|_| ()),
            run(async { staged(&origin, "a", b"x").await.commit(None).await }),
            run(origin.delete(&key("a"))).map(|_| ()),
        ] {
            assert!(matches!(result, Err(Error::TimedOut(_) | Error::Failed(_))), "{result:?}");
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }
}
