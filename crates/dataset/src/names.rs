//! The names of datasets and of the chunks of their logs.

/// Whether `name` is a valid name of a dataset.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=100).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.')
}

/// The name of a chunk's file.
pub fn chunk_file(number: u64) -> String {
    format!("{number:012}.log")
}
