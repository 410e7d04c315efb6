//! The errors of this crate. Each message says what to do next.

use std::io;
use std::path::PathBuf;

/// Why something that is read cannot be used: the error of whoever reads it.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why no steps could be taken from runs, no report could be made from them, or a file could not be read or written.
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
    /// A run folder or a trace cannot be read.
    #[error(transparent)]
    Read(#[from] record::Error),
    /// A file cannot be read.
    #[error("cannot read {file}")]
    File {
        /// What it is, its path, and what to do.
        file: String,
        /// The cause.
        source: io::Error,
    },
    /// A file or an argument was read, and has no valid content.
    #[error("{place}")]
    Content {
        /// What is invalid, with its path or name.
        place: String,
        /// What is wrong in it.
        source: Cause,
    },
    /// An option, an argument or a file contradicts another or what it is applied to, or is invalid by itself.
    #[error("{reason}")]
    Input {
        /// What is wrong, and what to write.
        reason: String,
    },
    /// Runs cannot be compared as the runs of one experiment.
    #[error("{reason}")]
    Experiment {
        /// Which runs, what is wrong with them, and what to do.
        reason: String,
    },
    /// A file is not overwritten.
    #[error("{path} exists{what}; name another{}, or remove it first", if *.is_file { " file" } else { "" })]
    Exists {
        /// The file.
        path: PathBuf,
        /// What else is said of it.
        what: &'static str,
        /// Whether the message says that it is a file.
        is_file: bool,
    },
    /// A file cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Cause,
    },
    /// A folder for files cannot be made.
    #[error("cannot make the folder {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A table cannot be written as CSV.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// A table as CSV is not text.
    #[error(transparent)]
    Text(#[from] std::string::FromUtf8Error),
    /// A file cannot be written as TOML.
    #[error(transparent)]
    Toml(#[from] toml::ser::Error),
    /// A text is not the TOML that is expected.
    #[error(transparent)]
    NotToml(#[from] toml::de::Error),
    /// A number cannot be represented in JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The nodes of a cluster are not the members of a ring.
    #[error(transparent)]
    Ring(#[from] engine::route::RingError),
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
        "{runs} has no finished step (the run was interrupted during its first step, or is still in it); run `concertina load` \
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

impl Error {
    /// Invalid input: what is wrong, and what to write.
    pub(crate) fn input(reason: impl Into<String>) -> Error {
        Error::Input { reason: reason.into() }
    }

    /// Runs that are not those of one experiment: which, what is wrong with them, and what to do.
    pub(crate) fn experiment(reason: impl Into<String>) -> Error {
        Error::Experiment { reason: reason.into() }
    }

    /// Invalid content of `place`, for the cause of [`Result::map_err`].
    pub(crate) fn content<E: Into<Cause>>(place: impl Into<String>) -> impl FnOnce(E) -> Error {
        |source| Error::Content { place: place.into(), source: source.into() }
    }
}

/// The result of reading what a person wrote, or of making a report.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says of an error where in the input it is.
pub(crate) trait Context<T> {
    fn context(self, place: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Cause>> Context<T> for std::result::Result<T, E> {
    fn context(self, place: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::Content { place: place(), source: error.into() })
    }
}

/// Returns the error that something given is wrong.
macro_rules! bail {
    ($($reason:tt)+) => {
        return Err($crate::error::Error::input(format!($($reason)+)))
    };
}

pub(crate) use bail;
