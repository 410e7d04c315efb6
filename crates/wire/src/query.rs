//! Query strings.

use std::collections::HashSet;

/// The first name of a query string that comes again: one of its values would be left out without a word.
///
/// ```
/// assert_eq!(wire::query::repeated_name("limit=1&sorted&limit=2"), Some("limit"));
/// assert_eq!(wire::query::repeated_name("limit=1&sorted&&"), None);
/// ```
pub fn repeated_name(query: &str) -> Option<&str> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut names = HashSet::new();
    pairs
        .map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name))
        .find(|name| !names.insert(*name))
}
