//! For tests: the reference numbers in `../shared/gold`.

/// A file, or `None` (with a word why) where it is not at hand; in CI (`CI=true`) it must be.
#[allow(clippy::disallowed_methods)] // A test may read what it checks against.
pub fn text(name: &str) -> Option<String> {
    let path = format!("{}/../../../shared/gold/{name}", env!("CARGO_MANIFEST_DIR"));
    match std::fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) => {
            use std::io::Write;
            // Not `eprintln!`: the harness would keep it to itself when the test passes.
            let _ = writeln!(std::io::stderr(), "left out: the check against {path}: {error}");
            assert!(std::env::var_os("CI").is_none(), "left out in CI: {path}: {error}");
            None
        }
    }
}

/// The same of a JSON file.
pub fn json(name: &str) -> Option<serde_json::Value> {
    text(name).map(|text| serde_json::from_str(&text).unwrap())
}
