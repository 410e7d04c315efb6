//! Servers whose replies are not those to what they were sent.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use super::{proxy, talk};
use crate::serve_client::until;

/// A server that replies to the commands which begin so with these bytes, and well to pings and flushes.
fn server(strange: &'static [(&'static str, &'static str)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut write = stream.try_clone().unwrap();
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let reply = match line.split(' ').next() {
                        Some("version") => Some("VERSION 1\r\n"),
                        Some("flush_all") => Some("OK\r\n"),
                        _ => strange.iter().find(|it| line.starts_with(it.0)).map(|it| it.1),
                    };
                    // The line of a value has no reply of its own.
                    if reply.is_some_and(|reply| write.write_all(reply.as_bytes()).is_err()) {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_reply_to_another_request_is_not_passed_on() {
    let address = server(&[
        ("set ", "STORED\r\n"),
        ("delete ", "STORED\r\n"),
        ("incr ", "DELETED\r\n"),
        ("get ", "VALUE other 0 1\r\nx\r\nEND\r\n"),
        ("mg key v", "VA 1 kother\r\nx\r\n"),
        ("mg opaque v", "VA 1 O7\r\nx\r\n"),
        ("mg value v", "HD\r\n"),
        ("mg none", "VA 1\r\nx\r\n"),
        ("mg well v", "VA 1 kwell O8\r\nx\r\n"),
    ]);
    let (_proxy, front) = proxy(&[address], &["memcached.ping_s=0.02"]);
    let ask = |command: &str| talk(&front, format!("{command}\r\nquit\r\n").as_bytes(), 1000);
    for command in
        ["delete k", "incr k 1", "get k", "mg key v k", "mg opaque v O8", "mg value v", "mg none t"]
    {
        // Once the server is used again after the last one.
        until("its return", || ask("set k 0 0 1\r\nx") == "STORED\r\n");
        let reply = ask(command);
        assert!(reply.starts_with("SERVER_ERROR failed at "), "{command}: {reply}");
    }
    until("its return", || ask("mg well v k O8") == "VA 1 kwell O8\r\nx\r\n");
}
