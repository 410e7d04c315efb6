//! The shipped program: the command line, and the features that combine the crates beneath it: the
//! demo, the search for loads in a measurement, the survey of a store's capacity, the simulation of a configuration in virtual time,
//! and the client of a server's datasets.

pub mod cli;
pub mod demo;
pub mod lab;
pub mod measure;
mod remote;
pub mod simulate;
pub mod survey;
