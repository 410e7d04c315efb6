//! A page of a search: what is asked for, and what is found.

/// The requested page of a search result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageRequest {
    /// The most records to return.
    pub limit: usize,
    /// Return only records with a greater id.
    pub after: Option<u64>,
    /// Return the records with the smallest ids; if not set, any that are found first.
    pub sorted: bool,
}

/// Records that match a query.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct SearchResult {
    /// The ids of the records.
    pub ids: Vec<u64>,
    /// The value of [`PageRequest::after`] for the next page; `None` after the last page, or if the page
    /// is unsorted.
    pub next: Option<u64>,
    /// Whether more records may match.
    pub has_more: bool,
    /// The number of occurrences located in the shards.
    pub located: usize,
    /// The number of records read and compared with the query.
    pub verified: usize,
    /// The record up to which the search came before it reached the limits of its work; further ones
    /// may match.
    #[serde(skip)]
    pub stopped_at: Option<u64>,
}
