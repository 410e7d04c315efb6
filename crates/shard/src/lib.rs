//! The compressed, searchable shard and its layers.
//!
//! Bytes in, answers out: this crate has no runtime, no clock and no socket, and depends on no other
//! member of the workspace. It is empty for now: its wall stands so that what comes next is built
//! behind it.
