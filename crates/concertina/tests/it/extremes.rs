//! Numbers in messages: extremes through every command that prints what files and options state.

use std::path::Path;
use std::process::Command;

/// What is fed in the place of a number: too small, too large, none, one that binary fractions make long, and a count.
const EXTREMES: [&str; 6] =
    ["1e-300", "1e100", "NaN", "0.30000000000000004", "123456789012", "0.0010000000000000002"];
/// The most digits of a number that people read.
const DIGITS_MAX: usize = 15;

/// What no person reads as a number: more digits than any is known to, and words of programs.
fn unreadable(text: &str) -> Option<String> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    let number = text
        .split(|c| !is_part(c))
        .find(|run| run.bytes().filter(u8::is_ascii_digit).count() > DIGITS_MAX);
    let is_word = |word: &str| matches!(word, "NaN" | "inf" | "-inf" | "−inf");
    let word = text.split(|c: char| !c.is_alphanumeric() && c != '-').find(|word| is_word(word));
    number.or(word).map(str::to_owned)
}

/// Runs a command, whether it succeeds or not, and looks at all that it says but for what it was told.
fn check(dir: &Path, args: &[&str], told: &str) {
    let run = Command::new(env!("CARGO_BIN_EXE_concertina")).args(args).current_dir(dir).output();
    let output = run.unwrap();
    assert!(output.status.code().is_some_and(|code| code < 100), "{args:?} {told}: {output:?}");
    for said in [output.stdout, output.stderr] {
        let said = String::from_utf8(said).unwrap();
        // A mistake is shown as it was written.
        let mut rest = said.clone();
        args.iter().chain([&told]).for_each(|text| rest = rest.replace(text, ""));
        let found = unreadable(&rest);
        assert_eq!(found, None, "{args:?} with {told} says:\n{said}");
    }
}

#[test]
fn numbers_are_found_unreadable() {
    assert_eq!(unreadable("0.0010000000000000002 ms").as_deref(), Some("0.0010000000000000002"));
    assert_eq!(unreadable("a load of inf/s").as_deref(), Some("inf"));
    assert_eq!(unreadable("123,456,789,012 of 1e300, information, ∞ and −1.5"), None);
}

#[test]
fn networks_print_readable_numbers() {
    let dir = tempfile::tempdir().unwrap();
    for told in EXTREMES {
        let files = [
            format!("[station.disk]\n[class.a]\nrate = {told}\nservice_ms = {{ disk = 1.0 }}\n"),
            format!("[station.disk]\n[class.a]\nrate = 1.0\nservice_ms = {{ disk = {told} }}\n"),
            format!(
                "[station.disk]\nscv = {told}\n[class.a]\nrate = 1.0\nservice_ms = {{ disk = 2.0 }}\n"
            ),
            format!(
                "[station.disk]\n[class.a]\ncustomers = 7\nthink_ms = {told}\nservice_ms = {{ disk = 1.0 }}\n"
            ),
            format!(
                "[station.disk]\nrates = [1.0, {told}]\n[class.a]\ncustomers = 7\nservice_ms = {{ disk = 1.0 }}\n"
            ),
        ];
        for text in files {
            let text = text.replace("NaN", "nan");
            std::fs::write(dir.path().join("n.toml"), text).unwrap();
            check(dir.path(), &["network", "n.toml", "--within", "5ms"], told);
            check(dir.path(), &["network", "n.toml", "--set", "class.a.visits.disk=3"], told);
        }
        for queue in ["M/M/1", "M/M/3/7", "M/G/2", "erlang-b:4"] {
            check(
                dir.path(),
                &["network", "--queue", queue, "--service", "2ms", "--rate", told],
                told,
            );
        }
    }
}

#[test]
fn tables_print_readable_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    for told in EXTREMES {
        let io =
            format!("size_bytes,read_share,throughput\n4096,1,{told}\n4096,0,500\n4096,0.5,700\n");
        let size = format!(
            "size_bytes,read_share,throughput\n{told},1,1000\n{told},0,500\n65536,1,90\n65536,0,70\n"
        );
        for text in [io, size] {
            std::fs::write(path.join("t.csv"), text).unwrap();
            check(path, &["capacity", "t.csv", "--at", "0.7,4096"], told);
            check(path, &["capacity", "t.csv", "--by", "ios", "--mix", "0.7,4096:1"], told);
        }
        let scaling = format!("concurrency,throughput\n1,100\n2,190\n4,{told}\n8,600\n");
        std::fs::write(path.join("s.csv"), scaling).unwrap();
        check(path, &["capacity", "s.csv", "--at", "16"], told);
        let factors =
            format!("a,b,y\n1,1,{told}\n1,2,20\n2,1,30\n2,2,50\n1,1,11\n1,2,21\n2,1,31\n2,2,49\n");
        std::fs::write(path.join("f.csv"), factors).unwrap();
        for form in ["additive", "multiplicative"] {
            check(path, &["factors", "f.csv", "--response", "y", "--model", form], told);
        }
    }
}

#[test]
fn models_print_readable_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    std::fs::write(
        path.join("choices.toml"),
        "[servers]\ncounts = [1, 2, 9]\nprice = 0.30000000000000004\n",
    )
    .unwrap();
    for told in EXTREMES {
        let service = format!("exp:{told}ms");
        let published = format!("{told},1,0.9,0.001");
        // The files are for programs and have all digits; what is said of them has not.
        check(path, &["model", "--service", &service, "--out", "a.toml"], told);
        check(path, &["model", "--published", &published, "--out", "b.toml"], told);
        for file in ["a.toml", "b.toml"] {
            drop(std::fs::remove_file(path.join(file)));
        }
        let model = format!("{told}.toml");
        check(
            path,
            &["model", "--service", "gamma:6.2ms,0.30000000000000004", "--out", &model],
            told,
        );
        let load = ["--rate", told];
        let within = ["--within", "20ms"];
        check(path, &[&["predict", &model][..], &load, &within].concat(), told);
        let servers = ["--published", "150,6,0.815,0.000501", "--servers", "3"];
        check(path, &[&["predict"][..], &servers, &load, &within].concat(), told);
        let plan = ["plan", &model, "--choices", "choices.toml", "--objective", "p99<50ms"];
        check(path, &[&plan[..], &load].concat(), told);
    }
}

#[test]
fn imports_print_readable_numbers() {
    let dir = tempfile::tempdir().unwrap();
    for (at, told) in EXTREMES.iter().enumerate() {
        let line = |n: u32| {
            format!(
                "{}.{:03} 200 {told} 5 \"GET /o HTTP/1.1\"\n",
                1_700_000_000 + n / 10,
                n % 10 * 97
            )
        };
        let text: String = (0..600).map(line).collect();
        std::fs::write(dir.path().join("a.log"), text).unwrap();
        let out = format!("run{at}");
        check(dir.path(), &["import", "a.log", "--lenient", "--out", &out], told);
        check(dir.path(), &["import", "a.log", "--window", told, "--out", &out], told);
        check(dir.path(), &["report", &out], told);
    }
}
