//! The engine against queueing theory.
