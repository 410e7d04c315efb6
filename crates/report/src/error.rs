//! The errors of this crate. Each message says what to do next.

use std::path::PathBuf;

/// Why no steps could be taken from runs, or no report could be made from them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing of a run is within any step of the load.
    #[error(
        "{run}: nothing of it is within a step of the load; it is about {seconds:.0} s {direction}: the clocks of client \
         and server or log differ, or these are other runs"
    )]
    Apart {
        /// The run.
        run: String,
        /// Whether it is later or earlier than the load.
        direction: &'static str,
        /// By how much, seconds.
        seconds: f64,
    },
    /// A run folder cannot be read.
    #[error(transparent)]
    Read(#[from] record::Error),
    /// The model rejected its input.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// Response times are counted in ticks longer than they are.
    #[error("{known}")]
    TooCoarse {
        /// What is known all the same, and what to do: sentences.
        known: String,
    },
    /// No run folders were given.
    #[error("no run folder given; give those of the load generator and of the server")]
    NoRuns,
    /// A run has no windows.
    #[error(
        "{path} has no windows, so nothing of it can be checked: was it recorded, and was its file `windows` copied? \
         Record the run again, or do not list it"
    )]
    Empty {
        /// The run.
        path: PathBuf,
    },
    /// The same run was given twice.
    #[error("{path} and {other} are the same run; list each run once")]
    Twice {
        /// The later one.
        path: PathBuf,
        /// The earlier one.
        other: PathBuf,
    },
    /// None of the runs was recorded by a load generator.
    #[error(
        "none of {runs} is a run of the load generator; give its folder too (the `--out` of \
         `concertina load`): its steps say which windows were measured at which rate"
    )]
    NoLoad {
        /// The runs that were given.
        runs: String,
    },
    /// A load generator's run has no finished step.
    #[error(
        "{runs} has no finished step (the run ended during its first step); run `concertina load` \
         again, or with shorter steps"
    )]
    NoSteps {
        /// The load generator's runs.
        runs: String,
    },
    /// None of the runs was recorded by a server.
    #[error(
        "none of {runs} has windows of device queues (`device/0` …), so nothing says how long the \
         devices serve; give the server's run folder too (the one that `concertina serve` records), or say how many \
         requests the service serves at once (`concertina fit --servers N`, or `auto`)"
    )]
    NoServer {
        /// The runs that were given.
        runs: String,
    },
    /// None of the imported runs has windows of devices.
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
    /// The runs were recorded on different machines.
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
        /// The difference.
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
    /// No windows lie within a step.
    #[error("step {step}: no windows of {queues} lie within its {length_s:.1} s; {hint}")]
    NoWindows {
        /// The step.
        step: String,
        /// The missing queues.
        queues: String,
        /// Length of the step.
        length_s: f64,
        /// What to do.
        hint: String,
    },
    /// A step ends before it begins, or a window has impossible values.
    #[error("{run}: {what}; the file is damaged: record the run again")]
    Damaged {
        /// The run.
        run: String,
        /// What is wrong.
        what: String,
    },
    /// All response times are 0.
    #[error(
        "every one of the {requests} response times is 0 s: they are shorter than a tick of the clock that measured \
         them, or not response times at all; nothing can be fitted to them. Log or measure them with a finer clock"
    )]
    NoDurations {
        /// Answered reads.
        requests: u64,
    },
    /// There are too few requests for a fit.
    #[error(
        "{requests} answered reads are too few for a fit ({reason}); at least {needed} are needed, and some 10,000 at \
         two loads or more to predict others: measure or log for longer"
    )]
    TooFew {
        /// Answered reads.
        requests: u64,
        /// The fewest that tell how many servers there are.
        needed: u64,
        /// What cannot be told from them.
        reason: String,
    },
    /// All steps are held out.
    #[error("all steps are held out and none is left to fit; hold out fewer")]
    AllHeldOut,
    /// A selected step does not exist.
    #[error("there is no step {asked}; the runs have steps {available}")]
    NoSuchStep {
        /// The selected step.
        asked: String,
        /// The steps of the runs.
        available: String,
    },
}
