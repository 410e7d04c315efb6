//! The command line: one file for each command.

#![warn(clippy::print_stdout)]

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

mod act;
mod capacity;
mod capacity_affine;
mod capacity_live;
mod capacity_verdict;
mod check;
mod cluster;
mod completions;
mod config;
mod data;
mod data_compact;
mod data_dataset;
mod data_export;
mod data_import;
mod data_layers;
mod data_parts;
mod data_print;
mod data_push;
mod data_server;
mod data_work;
mod demo;
mod device;
mod doctor;
#[cfg(test)]
mod documented;
mod drain;
mod factors;
mod figures;
mod fit;
#[doc(hidden)]
pub mod fuzzing;
mod help;
mod import;
mod keys;
mod live;
mod load;
mod load_http;
mod load_options;
mod load_values;
mod measure;
mod measure_predict;
mod model;
mod network;
mod network_queue;
mod output;
mod parent;
mod plan;
mod predict;
mod predict_cluster;
mod predict_several;
mod predict_sizes;
mod predict_what_if;
mod repeats;
mod report;
mod serve;
mod serve_s3;
mod sheet;
mod simulate;
mod status;
mod status_node;
mod status_watch;
mod study_parts;
mod tiers;

/// A read-optimised storage tier that predicts its own response times.
#[derive(Parser)]
#[command(name = "concertina", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a node, load it, fit, predict, compare and report: the whole loop in a few minutes
    Demo(demo::Args),
    /// Serve objects over HTTP
    Serve(serve::Args),
    /// Show what a running server predicts of itself (shares within the objective, headroom, errors),
    /// its devices, and what is hot
    Status(status::Args),
    /// Take a node's keys away before it is stopped for good (members in etcd)
    Drain(drain::Args),
    /// Show and change the weights and settings that a cluster's processes share (members in etcd)
    Cluster(cluster::Args),
    /// Show what a running server changed by itself, and why
    Why(live::WhyArgs),
    /// Have a change made that a running server only advises, or dismiss it
    Act(act::Args),
    /// Stop a running server from changing anything by itself
    Hold(live::HoldArgs),
    /// Let a server that was held change things again
    Resume(live::HoldArgs),
    /// Load a server and record its behaviour as a run folder
    Load(load::Args),
    /// Measure a service over a sweep of loads until its intervals are narrow
    Measure(measure::Args),
    /// Check operational laws over run folders, to see whether the measurements can be trusted
    Check(check::Args),
    /// Run a configuration in virtual time and record its behaviour as a run folder
    Simulate(simulate::Args),
    /// Convert an access log, iostat output or a Prometheus response of any service into a run
    /// folder
    Import(import::Args),
    /// Fit a model from run folders
    Fit(fit::Args),
    /// Write a model file from stated numbers: a law of service, servers, memory, the published model
    Model(Box<model::Args>),
    /// Predict response times from a model at given loads
    Predict(predict::Args),
    /// Compute the capacity of a system from a table of throughputs, or measure that of a store
    Capacity(capacity::Args),
    /// Compute which factors of an experiment matter, from a table of its runs or from run folders
    Factors(factors::Args),
    /// Find the cheapest servers that meet an objective at a load, and what to buy next
    Plan(plan::Args),
    /// Compute what more memory, hot devices or one more node would serve of recorded requests
    Tiers(tiers::Args),
    /// Solve a network of queues: throughput, response, bottleneck, bounds, what-if
    Network(network::Args),
    /// Import, search, read and append records in compressed datasets
    Data(data::Args),
    /// Write a report of runs and a model as one HTML file
    Report(report::Args),
    /// Print the configuration in full, with explanations
    Config(config::Args),
    /// Make a master key, seal the secrets of access keys with it, hash tokens
    Keys(keys::Args),
    /// Compare the devices of a configuration with what their class needs; changes nothing
    Doctor(doctor::Args),
    /// Prepare a block device for a node, without a file system
    Device(device::Args),
    /// Print the completions of commands and options for a shell
    Completions(completions::CompletionsArgs),
    /// Write the manual pages
    Man(completions::ManArgs),
}

/// The command line as it is parsed and shown.
fn command() -> clap::Command {
    help::with_paragraphs(Cli::command())
}

/// Parses the command line, runs the command, and prints its error, if any, to standard error.
pub fn main() -> ExitCode {
    let matches = command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match cli.command {
        Command::Demo(args) => demo::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Status(args) => status::run(&args),
        Command::Drain(args) => drain::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Why(args) => live::why(&args),
        Command::Act(args) => act::run(&args),
        Command::Hold(args) => live::hold(&args, true),
        Command::Resume(args) => live::hold(&args, false),
        Command::Load(args) => load::run(args),
        Command::Measure(args) => measure::run(args),
        Command::Check(args) => check::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Import(args) => import::run(args),
        Command::Fit(args) => fit::run(args),
        Command::Model(args) => model::run(*args),
        Command::Predict(args) => predict::run(args),
        Command::Capacity(args) => capacity::run(args),
        Command::Factors(args) => factors::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Tiers(args) => tiers::run(args),
        Command::Network(args) => network::run(args),
        Command::Data(args) => data::run(args),
        Command::Report(args) => report::run(args),
        Command::Config(args) => config::run(args),
        Command::Keys(args) => keys::run(&args),
        Command::Doctor(args) => doctor::run(args),
        Command::Device(args) => device::run(&args),
        Command::Completions(args) => completions::completions(&args, command()),
        Command::Man(args) => completions::man(&args, command()),
    };
    match result {
        Ok(code) => code,
        Err(error) if output::is_unread(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::errln!("concertina: {}", ground::with_causes(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use ground::with_causes;

    #[test]
    fn a_cause_that_a_message_repeats_is_printed_once() {
        let cause = std::io::Error::other("disk on fire");
        let path = "run.toml".into();
        let nested = anyhow::Error::new(record::Error::File { path, source: cause });
        assert_eq!(with_causes(nested.as_ref()), "cannot read run.toml: disk on fire");
        let nested = nested.context("no fit");
        assert_eq!(with_causes(nested.as_ref()), "no fit: cannot read run.toml: disk on fire");
    }
}
