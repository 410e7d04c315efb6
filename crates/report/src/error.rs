//! The errors of reports: each says what to do.

use std::path::PathBuf;

use record::ReadError;

/// Why steps could not be taken from runs, or a report not be made of them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A run folder that cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The model refused.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// No runs were given.
    #[error("no run folder is given; give those of the load generator and of the server")]
    NoRuns,
    /// The same run twice.
    #[error("{path} is the run that {other} is; give each run once")]
    Twice {
        /// The later one.
        path: PathBuf,
        /// The earlier one.
        other: PathBuf,
    },
    /// None of the runs is a load generator's.
    #[error(
        "none of {runs} is a run of the load generator; give its folder too (the `--out` of \
         `concertina load`): its steps say which windows were measured at which rate"
    )]
    NoLoad {
        /// The runs that were given.
        runs: String,
    },
    /// A load generator's run without a finished step.
    #[error(
        "{runs} has no finished step (it was ended before its first one was over); run `concertina \
         load` again, or with shorter steps"
    )]
    NoSteps {
        /// The load generator's runs.
        runs: String,
    },
    /// None of the runs is a server's.
    #[error(
        "none of {runs} has windows of device queues (`device/0` …), so nothing says how long the \
         devices serve; give the server's run folder too (the one that `concertina serve` records), or say how many \
         requests the service serves at once (`concertina fit --servers N`, or `auto`)"
    )]
    NoServer {
        /// The runs that were given.
        runs: String,
    },
    /// Imported runs of which none says what devices did.
    #[error(
        "none of {runs} has windows of device queues: an access log or Prometheus alone says what clients \
         saw, and a response time does not say how much of it was waiting. Import what the disks did at \
         the same time with it (`concertina import … --iostat FILE`, recorded by `TZ=UTC \
         S_TIME_FORMAT=ISO iostat -x -t -y 1`), or give a run folder that has their windows \
         too; or let responses at several loads say it: `concertina fit --servers N` (how many requests the \
         service serves at once, or `auto`). `concertina check` needs none"
    )]
    NoDevices {
        /// The runs that were given.
        runs: String,
    },
    /// Runs of different machines.
    #[error(
        "{a} and {b} were recorded on different machines ({difference}); windows of different machines \
         belong together only if their clocks agree: give runs of one machine, or say that the \
         clocks agree by --across-machines"
    )]
    Machines {
        /// One run.
        a: String,
        /// Another.
        b: String,
        /// What differs.
        difference: String,
    },
    /// Two runs have windows of the same queue in the same step.
    #[error(
        "step {step}: both {a} and {b} have windows of the queue `{queue}`; a model is of one node, \
         so give the runs of one server at a time"
    )]
    TwoServers {
        /// The step.
        step: String,
        /// One run.
        a: String,
        /// Another.
        b: String,
        /// The queue.
        queue: String,
    },
    /// No windows within a step.
    #[error("step {step}: no windows of {queues} lie within its {length_s:.1} s; {hint}")]
    NoWindows {
        /// The step.
        step: String,
        /// Which queues.
        queues: String,
        /// Length of the step.
        length_s: f64,
        /// What to do.
        hint: String,
    },
    /// A step that ends before it begins, or a window that is none.
    #[error("{run}: {what}; the file is damaged, record the run again")]
    Damaged {
        /// The run.
        run: String,
        /// What is wrong.
        what: String,
    },
    /// Nothing is left to fit.
    #[error("all steps are held out, and none is left to fit; hold out fewer")]
    AllHeldOut,
    /// A step was asked for that there is not.
    #[error("there is no step {asked}; there are {available}")]
    NoSuchStep {
        /// What was asked.
        asked: String,
        /// What there is.
        available: String,
    },
}
