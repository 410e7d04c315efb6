//! The files of parts: their names, versions and sizes.

/// The description of the split, in the folder of its parts.
pub(crate) const FILE: &str = "parts.json";
/// The version of the description and of the reports.
pub(crate) const VERSION: u32 = 1;
/// The largest description, and the largest report of a part.
pub(crate) const BYTES_MAX: u64 = 64 << 20;

/// The name of the report of the part with this shard.
pub(crate) fn report_file(shard: u64) -> String {
    format!("{shard:06}.part")
}

/// Whether a name is that of a file that only parts have.
pub(crate) fn is_part_file(name: &str) -> bool {
    let number = || name.strip_suffix(".part")?.parse().ok();
    name == FILE || number().is_some_and(|number| report_file(number) == name)
}
