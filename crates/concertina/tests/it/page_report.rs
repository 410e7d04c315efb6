//! A report's what-if questions and overlay, in a browser that has the file alone.

use serde_json::Value;

use crate::devtools::Browser;
use crate::left_out::left_out;
use crate::page::picture;
use crate::page_runs::{ROWS, await_rows};
use crate::report::Lab;

/// What the script of a report reads.
fn data(html: &str) -> Value {
    let (_, rest) = html.split_once("id=\"report-data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// Whether a number of a report is another one to six digits.
fn is_near(found: &Value, exact: &Value) -> bool {
    match (found.as_f64(), exact.as_f64()) {
        (Some(found), Some(exact)) => (found - exact).abs() <= 1e-5 * exact.abs(),
        _ => found == exact,
    }
}

#[test]
fn the_answers_in_a_report_are_those_of_predict() {
    let lab = Lab::new(5);
    lab.succeeds(&["fit", "load", "server", "--out", "model.toml"]);
    lab.succeeds(&["report", "load", "server", "model.toml", "--objective", "99% within 50ms"]);
    let html = std::fs::read_to_string(lab.path("report.html")).unwrap();
    let data = data(&html);
    let computed = &data["computed"];
    let list = |name: &str| computed["stops"][name].as_array().unwrap().clone();
    let (rates, servers) = (list("rate"), list("servers"));
    let (speeds, memories) = (list("speed"), list("memory"));
    assert_eq!((rates.len(), servers.len(), speeds.len(), memories.len()), (7, 4, 2, 3));
    let answers = computed["answers"].as_array().unwrap();
    assert_eq!(answers.len(), 7 * 4 * 2 * 3);
    for (memory, speed, servers_at, rate) in
        [(0, 0, 0, 0), (1, 0, 0, 3), (2, 0, 3, 5), (0, 1, 1, 4), (1, 1, 0, 6)]
    {
        let answer = &answers[((memory * 2 + speed) * 4 + servers_at) * 7 + rate];
        let [rate, servers, speed, memory] =
            [&rates[rate], &servers[servers_at], &speeds[speed], &memories[memory]]
                .map(Value::to_string);
        let asked = [
            "predict",
            "model.toml",
            "--within",
            "50ms",
            "--objective",
            "99% within 50ms",
            "--json",
        ];
        let changes =
            ["--rate", &rate, "--servers", &servers, "--speed", &speed, "--memory", &memory];
        let predicted: Value =
            serde_json::from_str(&lab.succeeds(&[&asked[..], &changes[..]].concat())).unwrap();
        let prediction = &predicted["predictions"][0];
        assert_eq!(answer["prediction"].is_object(), prediction["stable"] == true, "{changes:?}");
        if answer["prediction"].is_object() {
            for end in ["value", "low", "high"] {
                let found = &answer["prediction"]["points"][0]["concertina"][end];
                let exact = &prediction["points"][0]["concertina"][end];
                assert!(is_near(found, exact), "{changes:?}: {end} {found}, predict {exact}");
            }
            assert_eq!(
                answer["predicted"].as_array().unwrap().len(),
                computed["times_s"].as_array().unwrap().len()
            );
        } else {
            assert!(answer["statement"].as_str().unwrap().contains("stable"), "{answer}");
        }
    }
    eprintln!("a report has {} bytes, {} of them answers", html.len(), computed.to_string().len());
}

/// A run whose names and notes are hostile cannot end the element of the data.
#[test]
fn a_report_works_in_a_browser_without_a_server() {
    let lab = Lab::new(5);
    lab.succeeds(&["fit", "load", "server", "--out", "model.toml"]);
    lab.succeeds(&["report", "load", "server", "model.toml"]);
    let Some(mut browser) = Browser::start() else {
        return left_out("page_report::a_report_works", "chromium is not installed");
    };
    browser.look(1200, 1000, false);
    let address = format!("file://{}", lab.path("report.html").display());
    browser.open(&address);
    browser.until("its script ran", "document.body?.dataset.drawn === 'report'");
    what_if(&mut browser);
    let rows = await_rows(&mut browser, 2);
    assert!(rows[0][0].as_str().unwrap().starts_with("load, step 0"), "{rows}");
    assert!(rows[1][0].as_str().unwrap().starts_with("model.toml at"), "{rows}");
    // Other runs are opened beside those of the report; a model has nobody to ask.
    browser.choose("#runs-folder", &[lab.path("load")]);
    browser.until("another run", &format!("{ROWS}[1]?.[0].startsWith('load 2, step 0')"));
    // Chromium reads no dropped folder for a page from a file.
    browser.drop_on(".drop", &lab.path("server"));
    browser.until(
        "that is said",
        "document.querySelector('.runs-said').innerText.includes('choose the folder')",
    );
    browser.choose("#runs-files", &[lab.path("model.toml")]);
    browser
        .until("no server", "document.querySelector('.runs-said').innerText.includes('no server')");
    browser.value("document.getElementById('overlay').scrollIntoView()");
    picture(&mut browser, "report-overlay.png");
    for (width, is_dark) in [(390, false), (1200, true)] {
        browser.look(width, 900, is_dark);
        let widths = browser.value("new Promise((done) => setTimeout(() => done([document.documentElement.scrollWidth, window.innerWidth]), 300))");
        // A wide screen has a bar for scrolling.
        assert!(widths[0].as_u64() <= Some(width.into()), "{widths}");
        browser.value("document.getElementById('what-if').scrollIntoView()");
        picture(&mut browser, if is_dark { "report-dark.png" } else { "report-phone.png" });
    }
    assert_eq!(browser.errors, Vec::<String>::new());
}

/// Every control of the what-if questions; the command that is shown has the values of the sliders.
fn what_if(browser: &mut Browser) {
    browser.until("a first answer", "Number(document.body.dataset.whatIf) >= 1");
    let before = browser.value("document.getElementById('answer').innerText");
    let command = "document.querySelector('#what-if-here pre code').innerText";
    for (control, end, part) in [
        ("rate", "max", "--rate"),
        ("servers", "max", "--servers 4"),
        ("memory", "min", "--memory 0.5"),
        ("speed", "max", "--speed 2"),
    ] {
        browser.value(&format!("(() => {{ const e = document.getElementById('what-if-{control}'); e.value = e.{end}; e.dispatchEvent(new Event('input')); }})()"));
        browser.until(part, &format!("{command}.includes('{part}')"));
    }
    assert_ne!(browser.value("document.getElementById('answer').innerText"), before);
    assert_eq!(browser.value("document.querySelectorAll('#what-if-here canvas').length"), 2);
    assert_eq!(browser.value("document.getElementById('what-if-rate-field').readOnly"), true);
    browser.value("document.getElementById('what-if').scrollIntoView()");
    picture(browser, "report-what-if.png");
    // A step of a slider by the keyboard.
    browser.value("document.getElementById('what-if-servers').focus()");
    browser.press("ArrowLeft");
    browser.until("three servers", &format!("{command}.includes('--servers 3')"));
    for text in ["Reset", "Download this model"] {
        browser.value(&format!("[...document.querySelectorAll('#what-if-here button')].find((e) => e.innerText === '{text}').id = 'pressed'"));
        browser.click("#pressed");
        browser.value("document.getElementById('pressed').id = ''");
    }
    browser.until("the model is saved", "document.body.dataset.saved === 'model.toml'");
    browser.until("as it was", "document.getElementById('what-if-servers-field').value === '1'");
}

#[test]
fn a_report_without_a_model_has_the_overlay_alone() {
    let lab = Lab::new(5);
    lab.succeeds(&["report", "load"]);
    let html = std::fs::read_to_string(lab.path("report.html")).unwrap();
    let data = data(&html);
    assert!(data["computed"].is_null() && data["model"].is_null());
    assert_eq!(data["runs"][0]["steps"].as_str().unwrap().lines().count(), 3);
    assert!(!html.contains("id=\"what-if\"") && html.contains("id=\"overlay\""));
    let Some(mut browser) = Browser::start() else {
        return left_out("page_report::a_report_without_a_model", "chromium is not installed");
    };
    browser.open(&format!("file://{}", lab.path("report.html").display()));
    browser.until("its script ran", "document.body?.dataset.drawn === 'report'");
    let rows = await_rows(&mut browser, 1);
    assert!(rows[0][0].as_str().unwrap().starts_with("load, step 0"), "{rows}");
    assert_eq!(browser.errors, Vec::<String>::new());
}
