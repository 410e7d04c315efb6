//! The process: sockets, files, protocols, the load generator, experiments, reports and the command
//! line. All real input and output of the workspace is in this crate; the decisions of serving are in
//! `engine`, the predictions in `model`.

pub mod check;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod dataset;
pub mod demo;
pub mod disk;
pub mod experiment;
pub mod import;
pub mod load;
pub mod measure;
pub mod origin;
pub mod peer;
pub mod record;
pub mod report;
pub mod serve;
pub mod simulate;
