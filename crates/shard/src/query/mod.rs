//! Queries of records: attributes, ranges, combinations, regular expressions.
