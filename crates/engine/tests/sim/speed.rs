//! How fast it runs; figures only, run by hand.
