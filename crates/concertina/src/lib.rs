//! The program: the command line, and what it puts together from the crates beneath: the demo, the choice of
//! loads for a measurement, and configurations run in virtual time.

pub mod cli;
pub mod demo;
pub mod lab;
pub mod measure;
pub mod simulate;
