//! Texts of a file as they stand in messages.

/// The beginning of a text, for messages: no byte of a file reaches a terminal as it is.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_default).collect()
}
