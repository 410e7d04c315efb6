//! The page at `/` in a browser: idle, loaded, asked what-if questions, with a token, on a phone and in the dark.
//!
//! With `PAGE_PICTURES=FOLDER` the tests write what they see there: the pictures in docs/images.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::devtools::Browser;
use crate::left_out::left_out;
use crate::serve_client::{Client, start, until};

/// A node with four disks of 4 ms, hardly any memory, and a model of the last seconds.
pub const QUICK: [&str; 12] = [
    "node.memory_bytes=100kB",
    "device.0.count=4",
    "device.0.service={ kind = \"exponential\", mean_ms = 4.0 }",
    "observe.objectives_ms=[20.0]",
    "model.objective_ms=20.0",
    "model.share=0.9",
    "model.window_s=20.0",
    "model.refit_s=2.0",
    "model.cost_max=1.0",
    "model.ahead_s=4.0",
    "model.scored_s=2.0",
    "model.error_points_max=40.0",
];

/// Writes a picture where they are wanted.
pub fn picture(browser: &mut Browser, name: &str) {
    if let Some(folder) = std::env::var_os("PAGE_PICTURES") {
        browser.picture(&Path::new(&folder).join(name));
    }
}

/// Clients that read at random until told to stop.
fn load(address: SocketAddr, stop: &AtomicBool) {
    std::thread::scope(|scope| {
        for seed in 0..4u64 {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                let mut state = seed + 1;
                while !stop.load(Ordering::Relaxed) {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    client.get(&format!("/objects/k{}", (state >> 33) % 100));
                    std::thread::sleep(Duration::from_millis((state >> 40) % 40));
                }
            });
        }
    });
}

/// Runs `during` beside a load.
pub fn loaded<T>(address: SocketAddr, during: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| load(address, &stop));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
        stop.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

pub fn fill(address: SocketAddr) {
    let mut client = Client::connect(address);
    for key in 0..100 {
        assert_eq!(client.put(&format!("/objects/k{key}"), &[7; 4000]).status, 200);
    }
}

pub fn get(address: SocketAddr, path: &str) -> Value {
    serde_json::from_slice(&Client::connect(address).get(path).body).unwrap_or(Value::Null)
}

/// Puts every slider, field and list of the form somewhere else.
const MOVE_ALL: &str = "(() => { let moved = 0; for (const e of document.querySelectorAll('#what-if form input, #what-if form select')) {
    if (e.id.startsWith('lost') || e.id.startsWith('price')) continue;
    if (e.tagName === 'SELECT') { e.value = '0.5'; e.dispatchEvent(new Event('change')); moved += 1; continue; }
    if (e.type === 'range') { e.value = String(Math.min(Number(e.max), Number(e.value) + 20)); e.dispatchEvent(new Event('input')); moved += 1; }
} return moved; })()";

#[test]
fn an_idle_server_says_what_to_do_next() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let Some(mut browser) = Browser::start() else {
        return left_out("page::an_idle_server", "chromium is not installed");
    };
    browser.look(1200, 1000, false);
    browser.open(&format!("http://{}/", server.address()));
    browser.until("the page is drawn", "document.body?.dataset.drawn");
    let text = browser.text();
    for part in
        ["Nothing is asked of this server", "curl -T FILE", "concertina load", "No requests yet"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    for word in ["of 3 predictions", "joining knee", "Advice is not followed"] {
        assert!(!text.contains(word), "{word} alarms people: {text}");
    }
    picture(&mut browser, "page-idle.png");
    // What-if questions have no answer yet, which the page says.
    browser.click("#tab-what-if");
    browser
        .until("the page says that there is no model", "document.body.dataset.whatIf === 'none'");
    let text = browser.text();
    // Before the first look for a model, and after it.
    let says = ["No model yet", "Not enough requests for a model yet"];
    assert!(says.iter().any(|words| text.contains(words)), "{text}");
    for part in ["Response times", "command line", "Reset"] {
        assert!(!text.contains(part), "{part} without an answer: {text}");
    }
    assert_eq!(browser.errors, Vec::<String>::new());
    // Nor is anything asked that such a server refuses.
    assert_eq!(browser.refused, Vec::<String>::new());
    server.stop();
}

#[test]
fn a_loaded_server_is_shown_and_every_control_works() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &QUICK);
    let address = server.address();
    fill(address);
    let Some(mut browser) = Browser::start() else {
        return left_out("page::a_loaded_server", "chromium is not installed");
    };
    browser.look(1200, 1000, false);
    loaded(address, || {
        until("a model is fitted, and predictions were compared", || {
            let model = &get(address, "/model")["model"];
            model["method"] == "fitted" && model["errors"]["count"].as_u64() >= Some(3)
        });
        browser.open(&format!("http://{address}/"));
        browser
            .until("the plots are drawn", "document.querySelectorAll('#now canvas').length >= 2");
        let text = browser.text();
        for part in [
            "requests/s",
            "Headroom",
            "saturates first",
            "device/0",
            "bulk device",
            "Predictions off by",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        picture(&mut browser, "page-loaded.png");
        now_controls(&mut browser, address);
        what_if_controls(&mut browser);
        phone_and_dark(&mut browser, address);
    });
    assert_eq!(browser.errors, Vec::<String>::new());
    server.stop();
}

/// Every control of the part that shows the present.
fn now_controls(browser: &mut Browser, address: SocketAddr) {
    for span in ["3600", "86400", "600"] {
        let button = format!("[data-span='{span}']");
        browser.click(&button);
        let pressed = format!("document.querySelector(\"{button}\").ariaPressed === 'true'");
        assert_eq!(browser.value(&pressed), true, "{span}");
    }
    browser.click("#hold");
    browser.until(
        "changes are held",
        "document.getElementById('hold').innerText.startsWith('Resume')",
    );
    assert_eq!(get(address, "/actions")["held"], true);
    browser.click("#hold");
    browser.until("changes go on", "document.getElementById('hold').innerText.startsWith('Hold')");
    assert_eq!(get(address, "/actions")["held"], false);
    for shown in ["made", "not-made", "all"] {
        browser.click(&format!("[data-shown='{shown}']"));
    }
    single_changes(browser, address);
    // Text of the journal stays text.
    assert_eq!(browser.value("document.querySelectorAll('#journal b, #journal i').length"), 0);
    for kind in ["PNG", "SVG", "CSV"] {
        browser.click(&format!("#within [aria-label='Save as {kind}']"));
        let name =
            format!("document.body.dataset.saved === 'within-objective.{}'", kind.to_lowercase());
        browser.until("the plot is saved", &name);
    }
    browser.click("#within summary");
    browser.until(
        "the figures are a table",
        "document.querySelectorAll('#within .figures td').length > 4",
    );
    browser.click("#within summary");
    // The keyboard reaches every control, and shows where it is.
    browser.value("document.activeElement.blur(); window.scrollTo(0, 0)");
    let mut reached = std::collections::BTreeSet::new();
    for _ in 0..40 {
        browser.press("Tab");
        let at = browser.value("(() => { const e = document.activeElement; return [e.id || e.dataset.span || e.dataset.shown || e.ariaLabel || e.tagName, getComputedStyle(e).outlineStyle]; })()");
        if at[0] != "BODY" {
            assert_ne!(at[1], "none", "{at} has the focus, which nothing shows");
        }
        reached.insert(at[0].as_str().unwrap_or_default().to_owned());
    }
    for control in
        ["tab-now", "600", "3600", "86400", "hold", "all", "made", "not-made", "Save as CSV"]
    {
        assert!(reached.contains(control), "{control}: {reached:?}");
    }
    browser.value("document.getElementById('tab-now').focus()");
    browser.press("ArrowRight");
    assert_eq!(browser.value("document.activeElement.id"), "tab-what-if");
    // Each control has a name.
    let nameless = "[...document.querySelectorAll('button, input, select')].filter((e) => !e.hidden && !(e.innerText || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML)";
    assert_eq!(browser.value(nameless), json!([]));
}

/// A change that is only advised is dismissed, and another one is applied.
fn single_changes(browser: &mut Browser, address: SocketAddr) {
    browser.until(
        "advice on two bounds",
        "document.querySelectorAll('#journal [id^=dismiss-]').length >= 2",
    );
    let with = |cause: &str, value: &str| {
        let actions = get(address, "/actions");
        let all = actions["actions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|it| it[cause] == value)
    };
    browser.click("#journal [id^=dismiss-]");
    until("an entry is dismissed", || with("status", "dismissed"));
    // Its buttons go, and those below it move: a click before that would hit nothing.
    let buttons = "[...document.querySelectorAll('#journal li')].filter((e) => e.innerText.includes('Dismissed') && e.querySelector('button')).length";
    browser.until(
        "the journal shows it",
        &format!(
            "document.getElementById('journal').innerText.includes('Dismissed') && {buttons} === 0"
        ),
    );
    browser.click("#journal [id^=apply-]");
    until("an entry is approved", || with("status", "approved") || with("status", "applied"));
    until("a change is made for an operator", || with("cause", "operator"));
    browser.until(
        "the journal shows it",
        "document.getElementById('journal').innerText.includes('Made by an operator')",
    );
}

/// Every control of the what-if part, and the time until an answer is drawn.
fn what_if_controls(browser: &mut Browser) {
    let answers = "Number(document.body.dataset.whatIf)";
    browser.until("a first answer", &format!("{answers} >= 1"));
    // The load is that of the newest model, which has another time each time.
    let load = "document.getElementById('rate-hint').innerText";
    let first = browser.value(load);
    browser.until("the load of a newer model", &format!("{load} !== {first}"));
    let before = browser.value("document.getElementById('answer').innerText");
    let moved = browser.value(MOVE_ALL).as_u64().unwrap();
    assert!(moved >= 8, "{moved} controls");
    browser.until("another answer", &format!("{answers} >= 2"));
    let newest = "document.querySelector('#what-if pre code').innerText.includes('--speed')";
    browser.until("the answer to the last change", newest);
    assert_eq!(browser.value("document.querySelectorAll('#what-if canvas').length"), 2);
    assert_ne!(browser.value("document.getElementById('answer').innerText"), before);
    let text = browser.text();
    for part in ["--servers", "--speed", "--memory", "Breaks first", "as it is"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    picture(browser, "page-what-if.png");
    // A price gives a cost; a failed server is one less.
    browser.click("#what-if details summary");
    browser.value("(() => { const e = document.getElementById('price-server-field'); e.value = '100'; e.dispatchEvent(new Event('input')); })()");
    browser.until("a cost", "document.getElementById('answer').innerText.includes('Cost')");
    browser.value("(() => { const e = document.getElementById('lost-field'); e.value = '1'; e.dispatchEvent(new Event('input')); })()");
    browser.until(
        "a server is lost",
        "document.getElementById('what-if').innerText.includes('--lost 1')",
    );
    // A field says why it does not take a number.
    browser.value("(() => { const e = document.getElementById('servers-field'); e.value = '0'; e.dispatchEvent(new Event('input')); })()");
    browser.until(
        "no 0 servers",
        "document.getElementById('servers-wrong').innerText.includes('At least 1.')",
    );
    // Past saturation the page says so, and does not show an old law.
    browser.value("(() => { const e = document.getElementById('rate-field'); e.value = '1000000'; e.dispatchEvent(new Event('input')); })()");
    browser.until(
        "saturation",
        "document.getElementById('answer').innerText.includes('queues grow without end')",
    );
    let times = "(async () => { const e = document.getElementById('rate'); const n = Number(document.body.dataset.whatIf); for (let i = 0; i < 40; i += 1) { const k = Number(document.body.dataset.whatIf); e.value = String(40 + i); e.dispatchEvent(new Event('input')); while (Number(document.body.dataset.whatIf) <= k) await new Promise((r) => setTimeout(r, 1)); } return document.body.dataset.whatIfMs.split(',').slice(n).map(Number).sort((a, b) => a - b); })()";
    let times = browser.value(times);
    let at = |index: usize| times[index].as_f64().unwrap();
    eprintln!(
        "what-if until drawn: p50 {} ms, p99 {} ms of {}",
        at(20),
        at(39),
        times.as_array().unwrap().len()
    );
    for text in ["Reset", "Download this model"] {
        browser.value(&format!("[...document.querySelectorAll('#what-if button')].find((e) => e.innerText === '{text}').id = 'pressed'"));
        browser.click("#pressed");
        browser.value("document.getElementById('pressed').id = ''");
    }
    browser.until("the model is saved", "document.body.dataset.saved === 'model.toml'");
    browser.until("the controls are as they were", "document.getElementById('servers-field').value === '1' && !document.querySelector('#what-if pre code').innerText.includes('--lost')");
}

/// On a phone nothing is wider than the screen, and in the dark the page is dark.
fn phone_and_dark(browser: &mut Browser, address: SocketAddr) {
    for part in ["now", "what-if"] {
        browser.look(390, 844, false);
        browser.open(&format!("http://{address}/#/{part}"));
        browser.reload();
        browser.until(
            "it is drawn",
            &format!("document.body?.dataset.drawn && document.querySelectorAll('#{part} canvas').length === 2"),
        );
        let widths = browser.value("[document.documentElement.scrollWidth, window.innerWidth]");
        assert_eq!(widths, json!([390, 390]), "{part}");
        picture(browser, if part == "now" { "page-phone.png" } else { "page-phone-what-if.png" });
    }
    browser.look(1200, 1000, true);
    browser.open(&format!("http://{address}/#/now"));
    browser.reload();
    browser.until(
        "it is drawn",
        "document.body?.dataset.drawn && document.querySelectorAll('#now canvas').length >= 2",
    );
    let back = browser.value("getComputedStyle(document.body).backgroundColor");
    assert_eq!(back, "rgb(22, 24, 28)");
    picture(browser, "page-dark.png");
    let paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime";
    eprintln!("first paint: {} ms", browser.value(paint));
}

#[test]
fn the_page_asks_for_the_token_and_then_shows_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.token=hush"]);
    let address = server.address();
    let mut client = Client::connect(address);
    for (method, path, body) in [
        ("GET", "/history", None),
        ("GET", "/what-if", None),
        ("GET", "/model/file", None),
        ("POST", "/what-if", Some(&b"{}"[..])),
    ] {
        assert_eq!(client.send(method, path, &[], body).unwrap().status, 401, "{path}");
    }
    let Some(mut browser) = Browser::start() else {
        return left_out("page::the_page_asks_for_the_token", "chromium is not installed");
    };
    browser.open(&format!("http://{address}/"));
    browser.until("it asks for the token", "document.getElementById('asked')?.hidden === false");
    assert!(browser.text().contains("the token is missing or wrong"));
    browser.until("its field has the focus", "document.activeElement.id === 'token'");
    browser.call("Input.insertText", json!({ "text": "hush" }));
    browser.press("Enter");
    browser.until("it shows the figures", "document.body.dataset.drawn");
    browser.until("it no longer asks", "document.getElementById('asked').hidden");
    assert_eq!(browser.errors, Vec::<String>::new());
    server.stop();
}

/// The file of the model that is fitted to a load which has ended, so that no other follows.
fn model_of_a_load(address: SocketAddr) -> String {
    let fitted = || {
        until("a model is fitted", || Client::connect(address).get("/what-if").status == 200);
    };
    loaded(address, fitted);
    // A fit takes 200 requests, so this model stays.
    until("the last fit is over", || {
        let model = &get(address, "/model")["model"];
        model["measured"]["requests"].as_u64() < Some(200) && model["method"] != "fitted"
    });
    Client::connect(address).get("/model/file").text()
}

/// What the page says is what `predict` says, to the last digit.
#[test]
fn a_what_if_answer_is_that_of_predict() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &QUICK);
    let address = server.address();
    fill(address);
    let mut client = Client::connect(address);
    for (method, status) in [("GET", 204), ("HEAD", 204), ("POST", 409)] {
        let body = (method == "POST").then_some(&b"{}"[..]);
        let reply = client.send(method, "/what-if", &[], body).unwrap();
        assert_eq!((reply.status, reply.body.is_empty()), (status, method != "POST"), "{method}");
    }
    let file = folder.path().join("model.toml");
    let text = model_of_a_load(address);
    std::fs::write(&file, &text).unwrap();
    let model = model::Model::from_toml(&text).unwrap();
    let class = get(address, "/what-if")["classes"][0]["name"].as_str().unwrap().to_owned();
    let saturation = model.limits().unwrap().saturation.value;
    let mut random = 1u64;
    let mut draw = |low: f64, high: f64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // With digits that people type.
        (1e6 * (low + (high - low) * (random >> 11) as f64 / (1u64 << 53) as f64)).round() * 1e-6
    };
    let (mut client, mut stable) = (Client::connect(address), 0);
    for case in 0..1000 {
        let servers = draw(1.0, 20.0) as u32;
        let lost = if servers > 1 { draw(0.0, 2.0) as u32 } else { 0 };
        let (memory, speed) = (draw(0.3, 3.0), draw(0.3, 3.0));
        let devices = draw(1.0, 9.0) as u32;
        let most = 1.2 * saturation * f64::from(servers - lost);
        let rate = draw(0.1 * most, most);
        let changes = json!({
            "servers": servers, "lost": lost, "memory": memory, "memory_exponent": 0.5, "speed": speed,
            "devices": { &class: devices },
        });
        let body = json!({ "rate": rate, "changes": changes }).to_string();
        let reply = client.send("POST", "/what-if", &[], Some(body.as_bytes())).unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text());
        let answer: Value = serde_json::from_slice(&reply.body).unwrap();
        let answer = &answer["answer"];
        // The library's functions, which the command calls.
        let what_if: model::what_if::WhatIf = serde_json::from_value(changes).unwrap();
        let changed = what_if.changed(&model).unwrap();
        let expected = model::what_if::at_load(&changed, rate, servers - lost, &[0.02]).unwrap();
        match &expected {
            model::what_if::AtLoad::Stable { prediction, p99 } => {
                stable += 1;
                assert_eq!(answer["prediction"], as_sent(prediction), "case {case}");
                assert_eq!(answer["response_p99"], as_sent(p99), "case {case}");
            }
            model::what_if::AtLoad::Saturated { statement, .. } => {
                assert_eq!(answer["statement"], statement.as_str(), "case {case}");
            }
        }
        if case % 200 == 0 {
            let command = Command::new(env!("CARGO_BIN_EXE_concertina"))
                .args(["predict", &file.display().to_string(), "--json", "--within", "20ms"])
                .args(["--rate", &rate.to_string(), "--servers", &servers.to_string()])
                .args(["--lost", &lost.to_string(), "--memory", &memory.to_string()])
                .args(["--speed", &speed.to_string(), "--memory-exponent", "0.5"])
                .args(["--devices", &format!("{class}={devices}")])
                .output();
            is_what_the_command_says(answer, &command.unwrap());
        }
    }
    assert!((300..1000).contains(&stable), "{stable} of 1000 loads were stable");
    refusals(address, &text);
    server.stop();
}

/// A value as a client reads it.
fn as_sent(value: &impl serde::Serialize) -> Value {
    serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap()
}

/// Compares an answer with what `predict` printed.
fn is_what_the_command_says(answer: &Value, run: &std::process::Output) {
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let said: Value = serde_json::from_slice(&run.stdout).unwrap();
    let one = &said["predictions"][0];
    if one["stable"] == true {
        assert_eq!(one["points"], answer["prediction"]["points"]);
        assert_eq!(one["response_p99"], answer["response_p99"]);
    } else {
        assert_eq!(one["statement"], answer["statement"]);
    }
    assert_eq!(said["saturation"], answer["limits"]["saturation"]["value"]);
    assert_eq!(said["confidence_limit"], answer["limits"]["mg1"]["value"]);
}

/// What is wrong with a question is said, and costs little.
fn refusals(address: SocketAddr, model: &str) {
    let ask = |body: &str| {
        let reply = Client::connect(address).send("POST", "/what-if", &[], Some(body.as_bytes()));
        let reply = reply.unwrap();
        (reply.status, reply.text())
    };
    for (body, status, part) in [
        ("", 400, "what-if question"),
        ("[]", 400, "what-if question"),
        ("{\"rate\":-1}", 400, "request rate"),
        ("{\"speed\":2}", 400, "unknown field"),
        ("{\"changes\":{\"servers\":0}}", 400, "number of servers"),
        ("{\"changes\":{\"servers\":2,\"lost\":2}}", 400, "lost servers"),
        ("{\"changes\":{\"devices\":{\"tape\":1}}}", 400, "tape"),
        ("{\"model\":\"nonsense\"}", 400, "expected"),
    ] {
        let (got, text) = ask(body);
        assert_eq!(got, status, "{body}: {text}");
        assert!(text.contains(part), "{body}: {text}");
    }
    // A model that comes with the question.
    let (status, text) = ask(&json!({ "model": model }).to_string());
    assert_eq!(status, 200, "{text}");
    let long = format!("{{\"model\":\"{}\"}}", "x".repeat(2 << 20));
    assert_eq!(ask(&long).0, 413);
    // More questions at a time than wait: the others are refused, and none is lost.
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..24).map(|_| scope.spawn(|| ask("{}").0)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    assert!(statuses.contains(&200), "{statuses:?}");
    assert_eq!(Client::connect(address).get("/model/file").status, 200);
}

#[test]
fn the_history_has_what_was_predicted_beside_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &QUICK);
    let address = server.address();
    fill(address);
    loaded(address, || {
        until("a prediction is in the history", || {
            let history = get(address, "/history");
            history["fine"]["predicted"].as_array().unwrap().iter().any(Value::is_number)
        });
    });
    let history = get(address, "/history");
    assert_eq!((&history["objective_s"], &history["share"]), (&json!(0.02), &json!(0.9)));
    let fine = &history["fine"];
    let length = fine["unix_s"].as_array().unwrap().len();
    for column in ["arrivals", "requests", "within", "predicted", "low", "high"] {
        assert_eq!(fine[column].as_array().unwrap().len(), length, "{column}");
    }
    let last = fine["unix_s"][length - 1].as_u64().unwrap();
    let later = get(address, &format!("/history?after={last}"));
    assert_eq!(later["fine"]["unix_s"][0], last);
    assert_eq!(Client::connect(address).get("/history?after=x").status, 400);
    server.stop();
}
