//! Layered sampled arrays: what a shard holds beyond its index, and gives back.
