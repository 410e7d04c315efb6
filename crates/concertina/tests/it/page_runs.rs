//! *Runs*, the part of the page that lays runs and models from files over each other, in a browser.

use serde_json::{Value, json};

use crate::devtools::Browser;
use crate::left_out::left_out;
use crate::page::picture;
use crate::report::Lab;
use crate::serve_client::start;

/// The text of the cells of a table's body, by rows.
pub const ROWS: &str = "[...document.querySelectorAll('.runs .scroll tbody tr')].map((row) => [...row.children].map((cell) => cell.innerText))";

/// Waits until what was asked last is drawn.
pub fn await_rows(browser: &mut Browser, rows: usize) -> Value {
    browser.until(
        "the runs are drawn",
        &format!("{ROWS}.filter((row) => row.length === 10).length === {rows}"),
    );
    browser.value(ROWS)
}

#[test]
fn two_runs_and_a_model_are_laid_over_each_other() {
    let lab = Lab::new(3);
    lab.succeeds(&["fit", "load", "server", "--out", "model.toml"]);
    let text = lab.succeeds(&[
        "report",
        "load",
        "server",
        "model.toml",
        "--no-what-if",
        "--within",
        "7ms",
        "--json",
    ]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let Some(mut browser) = Browser::start() else {
        return left_out("page_runs::two_runs", "chromium is not installed");
    };
    browser.look(1200, 1000, false);
    browser.open(&format!("http://{}/#/runs", server.address()));
    browser.until("the page is drawn", "document.body?.dataset.drawn");
    let run: Vec<_> =
        ["run.toml", "windows", "steps"].map(|name| lab.path("load").join(name)).into();
    browser.choose("#runs-files", &run);
    let rows = await_rows(&mut browser, 1);
    assert!(rows[0][0].as_str().unwrap().starts_with("run, step 0, 1,000/s"), "{rows}");
    // A folder that is dropped has its name; a second run lies over the first.
    browser.drop_on(".drop", &lab.path("load"));
    let rows = await_rows(&mut browser, 2);
    assert!(rows[1][0].as_str().unwrap().starts_with("load, step 0"), "{rows}");
    browser.value("(() => { const e = document.querySelectorAll('.runs select')[1]; e.value = '1/2'; e.dispatchEvent(new Event('change')); })()");
    browser.until("the heaviest step", &format!("{ROWS}[1][0].includes('step 2')"));
    browser.value("(() => { const e = document.querySelector('.objective-ms'); e.value = '7'; e.dispatchEvent(new Event('change')); })()");
    browser.until(
        "another objective",
        "document.querySelector('.runs .scroll').innerText.includes('within 7 ms')",
    );
    assert_eq!(browser.value("document.querySelectorAll('.runs canvas').length"), 2);
    picture(&mut browser, "page-runs.png");
    measured_as_reported(&mut browser, &report);
    saves(&mut browser);
    model_beside(&mut browser, &lab);
    refusals(&mut browser, &lab);
    keyboard_phone_and_dark(&mut browser);
    assert_eq!(browser.errors, Vec::<String>::new());
    server.stop();
}

/// The page reads the files by itself; its figures are those of `concertina report`.
fn measured_as_reported(browser: &mut Browser, report: &Value) {
    let rows = browser.value(ROWS);
    for (row, index) in [(0, 0), (1, 2)] {
        let measured = &report["steps"][index]["measured"];
        let share = report["rows"][index]["measured"]["value"].as_f64().unwrap();
        let rate = measured["rate"].as_f64().unwrap();
        // Commas stand between the thousands.
        let plain = |at: usize| rows[row][at].as_str().unwrap().replace(',', "");
        let cells: Vec<String> = (0..10).map(plain).collect();
        assert_eq!(cells[1], format!("{rate:.0}"), "rate of {cells:?}");
        assert_eq!(
            cells[2].parse(),
            Ok(measured["requests"].as_u64().unwrap()),
            "reads of {cells:?}"
        );
        let shown: f64 = cells[3].trim_end_matches(" %").parse().unwrap();
        assert!((shown / 100.0 - share).abs() <= 5.1e-4, "{shown} % shown, {share} reported");
        let p99 = measured["response_p99"].as_f64().unwrap() * 1e3;
        let shown: f64 = cells[6].trim_end_matches(" ms").parse().unwrap();
        assert!((shown / p99 - 1.0).abs() < 6e-3, "{shown} ms shown, {p99} reported");
        let hits = measured["hit_ratio"]["value"].as_f64().unwrap();
        let shown: f64 = cells[7].trim_end_matches(" %").parse().unwrap();
        assert!((shown / 100.0 - hits).abs() <= 5.1e-4, "{shown} % shown, {hits} reported");
    }
}

/// Both plots are saved in each form.
fn saves(browser: &mut Browser) {
    for (part, name) in [("law", "runs-response-times"), ("loads", "runs-loads")] {
        for kind in ["PNG", "SVG", "CSV"] {
            browser.click(&format!(".runs-{part} [aria-label='Save as {kind}']"));
            let saved = format!("document.body.dataset.saved === '{name}.{}'", kind.to_lowercase());
            browser.until("the plot is saved", &saved);
        }
        browser.click(&format!(".runs-{part} summary"));
        browser
            .until("a table", &format!("document.querySelectorAll('.runs-{part} td').length > 4"));
        browser.click(&format!(".runs-{part} summary"));
    }
}

/// A model is asked of the server, at the load of the run beside it.
fn model_beside(browser: &mut Browser, lab: &Lab) {
    browser.choose("#runs-files", &[lab.path("model.toml")]);
    browser.until("the model is drawn", &format!("{ROWS}[1]?.[0].startsWith('model.toml at')"));
    let rows = browser.value(ROWS);
    let numbers =
        |cell: &Value| -> f64 { cell.as_str().unwrap().trim_end_matches(" %").parse().unwrap() };
    let (measured, predicted) = (numbers(&rows[0][3]), numbers(&rows[1][3]));
    assert!((measured - predicted).abs() < 5.0, "{measured} % measured, {predicted} % predicted");
    assert_eq!(rows[0][1], rows[1][1], "asked of the load that was measured");
    // Far past saturation it says so.
    let load = "document.querySelectorAll('.runs form label:not([hidden]) input')";
    browser.value(&format!("(() => {{ const e = {load}[0]; e.value = '1000000'; e.dispatchEvent(new Event('change')); }})()"));
    browser.until("saturation", "document.querySelector('.runs-said').innerText !== ''");
    browser.value(&format!("(() => {{ const e = {load}[0]; e.value = '1000'; e.dispatchEvent(new Event('change')); }})()"));
    browser.until("an answer again", "document.querySelector('.runs-said').innerText === ''");
    picture(browser, "page-runs-model.png");
}

/// What is wrong with files is said, and what is open stays.
fn refusals(browser: &mut Browser, lab: &Lab) {
    let said =
        |part: &str| format!("document.querySelector('.runs-said').innerText.includes({part:?})");
    let bad = lab.path("bad");
    std::fs::create_dir(&bad).unwrap();
    std::fs::copy(lab.path("load").join("run.toml"), bad.join("run.toml")).unwrap();
    std::fs::copy(lab.path("load").join("steps"), bad.join("steps")).unwrap();
    for (windows, part) in [
        ("nonsense\n{}\n", "line 1 of `windows` is not a record of a run"),
        ("", "it has no reads of clients"),
    ] {
        std::fs::write(bad.join("windows"), windows).unwrap();
        browser.drop_on(".drop", &bad);
        browser.until(part, &said(part));
    }
    std::fs::write(bad.join("run.toml"), "format = 9\n").unwrap();
    browser.drop_on(".drop", &bad);
    browser.until("another format", &said("format 9, and this page reads format 1"));
    std::fs::write(bad.join("other.toml"), "x = 1\n").unwrap();
    browser.choose("#runs-files", &[bad.join("other.toml")]);
    browser.until("no model", &said("other.toml"));
    browser.choose("#runs-files", &[bad.join("steps")]);
    browser.until("nothing to open", &said("no run folder"));
    assert_eq!(browser.value("document.querySelectorAll('.opened li').length"), 3);
    browser.click(".opened li:last-child button");
    browser.until("one less", "document.querySelectorAll('.opened li').length === 2");
    // A run that is opened by its files again has a name of its own.
    let run: Vec<_> =
        ["run.toml", "windows", "steps"].map(|name| lab.path("load").join(name)).into();
    browser.choose("#runs-files", &run);
    let named = "document.querySelector('.opened li:last-child').innerText";
    browser.until("its name and its command", &format!("{named}.startsWith('run 2 (load, ')"));
    browser.click(".opened li:last-child button");
    browser.until("one less", "document.querySelectorAll('.opened li').length === 2");
}

/// The keyboard reaches every control; nothing is wider than a phone; in the dark it is dark.
fn keyboard_phone_and_dark(browser: &mut Browser) {
    browser.value("document.getElementById('tab-what-if').focus()");
    browser.press("ArrowRight");
    assert_eq!(browser.value("document.activeElement.id"), "tab-runs");
    let mut reached = std::collections::BTreeSet::new();
    for _ in 0..24 {
        browser.press("Tab");
        let at = browser.value("(() => { const e = document.activeElement; return [e === document.body ? 'BODY' : e.id || e.ariaLabel || e.innerText, getComputedStyle(e).outlineStyle]; })()");
        if at[0] == "BODY" {
            continue;
        }
        assert_ne!(at[1], "none", "{at} has the focus, which nothing shows");
        reached.insert(at[0].as_str().unwrap_or_default().to_owned());
    }
    for control in [
        "runs-files",
        "runs-folder",
        "First run or model",
        "Second run or model",
        "Time of the objective, ms",
        "Save as SVG",
        "Remove load",
    ] {
        assert!(reached.contains(control), "{control}: {reached:?}");
    }
    let nameless = "[...document.querySelectorAll('#runs button, #runs input, #runs select')].filter((e) => !(e.innerText || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML)";
    assert_eq!(browser.value(nameless), json!([]));
    browser.look(390, 844, false);
    let widths = browser.value("new Promise((done) => setTimeout(() => done([document.documentElement.scrollWidth, window.innerWidth]), 300))");
    assert_eq!(widths, json!([390, 390]));
    picture(browser, "page-phone-runs.png");
    browser.look(1200, 1000, true);
    assert_eq!(browser.value("getComputedStyle(document.body).backgroundColor"), "rgb(22, 24, 28)");
    picture(browser, "page-dark-runs.png");
}
