//! Errors of this crate, but for the mistakes that a check collects: those are [`Mistakes`](super::Mistakes).

use engine::pool::KetamaError;

/// Why a configuration describes no proxy, or why a `nutcracker.yml` cannot be translated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A proxy without servers.
    #[error(
        "a proxy needs servers; list them in a [[pool]], or share one (concertina cluster apply)"
    )]
    NoServers,
    /// A server of a pool is not listed as it must be, or cannot be resolved.
    #[error("{0}")]
    Server(String),
    /// The servers of a pool cannot be placed on its ring.
    #[error(transparent)]
    Ring(#[from] KetamaError),
    /// An address of the proxy, or the encryption to a server, cannot be used.
    #[error(transparent)]
    Proxy(#[from] proxy::Error),
    /// The file is not YAML.
    #[error("not YAML: {0}")]
    Yaml(String),
    /// The file has another form than twemproxy's.
    #[error("line {line}: {what}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
    /// The file has no pools.
    #[error("the file has no pools")]
    NoPools,
    /// The file does not have the pool that was chosen.
    #[error("there is no pool {name:?}; write one of: {names}")]
    UnknownPool {
        /// The one chosen.
        name: String,
        /// Those of the file.
        names: String,
    },
    /// The file has several pools, and none was chosen.
    #[error(
        "the file has {count} pools, each with a port of its own, and one proxy listens on one: translate them one by one with \
         --pool NAME and start a process for each ({names})"
    )]
    SeveralPools {
        /// Their number.
        count: usize,
        /// Their names.
        names: String,
    },
    /// A pool cannot be translated.
    #[error("in the pool {name:?}")]
    Pool {
        /// Its name.
        name: String,
        /// Why not.
        source: Box<Error>,
    },
    /// A directive is missing, or its value is not one that this proxy has.
    #[error("{0}")]
    Directive(String),
    /// A server of the file has another form than twemproxy's.
    #[error("the server {0:?} is not of the form host:port:weight [name] or /path:weight [name]")]
    YamlServer(String),
    /// A server has a weight that no pool may have.
    #[error("the weight {weight} of the server {text:?} is above 1000")]
    Weight {
        /// The server.
        text: String,
        /// Its weight.
        weight: u32,
    },
    /// A value cannot be written as TOML.
    #[error(transparent)]
    Toml(#[from] toml::ser::Error),
}
