//! `concertina measure` of a mix, and the prediction of another mix at another load.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::measure::concertina;
use crate::steady::{in_time, steady};

/// Objects with an even key, and all others.
const SMALL: usize = 1 << 10;
const LARGE: usize = 32 << 10;

/// A server of one request at a time: 1 ms for a get of a small object, 3 ms of a large one, 6 ms for a put.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let lock = Arc::new(Mutex::new(()));
        for stream in listener.incoming().flatten() {
            let lock = lock.clone();
            std::thread::spawn(move || converse(stream, &lock));
        }
    });
    format!("http://{address}")
}

fn converse(mut stream: TcpStream, lock: &Mutex<()>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        reader.read_line(&mut head).ok().filter(|bytes| *bytes > 0)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let even = head.split(' ').nth(1)?.ends_with(['0', '2', '4', '6', '8']);
        let (work_ms, bytes) = match (head.starts_with("PUT"), even) {
            (true, _) => (6, 0),
            (false, true) => (1, SMALL),
            (false, false) => (3, LARGE),
        };
        let held = lock.lock().ok()?;
        std::thread::sleep(Duration::from_millis(work_ms));
        drop(held);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), &vec![b'x'; bytes]].concat()).ok()?;
    }
}

/// The kinds of requests are told apart, and a mix with more puts is predicted at a load that was not measured: what
/// a run then shows is in the interval that is printed, with what the run itself is uncertain by.
#[test]
fn a_mix_that_was_not_measured_is_predicted() {
    steady(|| {
        let dir = tempfile::tempdir().unwrap();
        let url = serve();
        let run = |args: &str| -> Value {
            let words: Vec<&str> = args.split_whitespace().collect();
            let output = concertina(dir.path(), &words);
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{args}: {error}");
            serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
        };
        let keys = "--count 200 --keys uniform --size 4096";
        run(&format!(
            "measure {url} {keys} --read-share 0.8 --json --out measured --rates 60,120,160 --repeat 2 \
             --duration 2s --warmup 100ms --window 20ms --budget 20s --predict 2x --within 20ms"
        ));
        let text = std::fs::read_to_string(dir.path().join("measured/model.toml")).unwrap();
        let model = model::Model::from_toml(&text).unwrap();
        let kinds = &model.kinds;
        assert_eq!(kinds.len(), 3, "{kinds:?}");
        let sum: f64 = kinds.iter().map(|kind| kind.share).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{kinds:?}");
        let of = |title: &str| {
            let kind = kinds.iter().find(|kind| kind.title() == title);
            kind.unwrap_or_else(|| panic!("{title}: {kinds:?}")).work.mean.value
        };
        let (small, large) = (of("get of 1024 bytes"), of("get of 32768 bytes"));
        let put = of("put");
        in_time(small < large && large < put, format_args!("{small} {large} {put}"));

        let predicted =
            run("predict measured/model.toml --json --rate 100 --within 5ms,20ms,60ms \
             --mix get=40%,put=60%");
        let objectives = "--objectives 5,20,60";
        let judged = run(&format!(
            "load {url} {keys} --read-share 0.4 --json --out judged --rate 100 --duration 6s --warmup 500ms \
             {objectives}"
        ));
        let step = &judged["steps"][0];
        let count = step["arrivals"].as_f64().unwrap();
        for (i, point) in
            predicted["predictions"][0]["points"].as_array().unwrap().iter().enumerate()
        {
            let number = |key: &str| point["concertina"][key].as_f64().unwrap();
            let (value, low, high) = (number("value"), number("low"), number("high"));
            assert!(low <= value && value <= high, "{point}");
            let share = step["within"][i][1].as_f64().unwrap();
            // Requests of a queue are alike for some twenty of them.
            let chance = 3.0 * (share * (1.0 - share) * 20.0 / count).sqrt() + 0.02;
            let inside = (low - chance..=high + chance).contains(&share);
            in_time(inside, format_args!("{share} ± {chance}: {point}"));
        }
        // More puts are more work: the same load is nearer to the saturation.
        let before = run("predict measured/model.toml --json --rate 100 --within 20ms");
        let saturation = |of: &Value| of["saturation"].as_f64().unwrap();
        assert!(saturation(&predicted) < saturation(&before), "{predicted} {before}");
    });
}
