//! The shipped program: the command line, and the features that combine the crates beneath it: the
//! demo, the search for loads in a measurement, and the simulation of a configuration in virtual
//! time.

pub mod cli;
pub mod demo;
pub mod lab;
pub mod measure;
pub mod simulate;
