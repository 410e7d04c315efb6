//! What the fuzz targets (`fuzz/`) call of the parsers that are the command line's own.

use model::network::Network;
use model::plan::Choices;

/// The network that a file describes, with changes as `--set` takes them.
///
/// # Errors
///
/// What is wrong with the text.
pub fn network(text: &str, changes: &[String]) -> anyhow::Result<Network> {
    Ok(report::network_file::parse(text, "the network", changes)?.network)
}

/// The choices of a file for `plan`, and the currency of its prices.
///
/// # Errors
///
/// What is wrong with the text.
pub fn choices(text: &str) -> anyhow::Result<(Choices, String)> {
    Ok(report::choices::parse(text, None, None)?)
}
