//! The options of `concertina data` that name a server.

use std::path::PathBuf;

use anyhow::Context;

use crate::remote::server::Server;

/// The options that name a server.
#[derive(clap::Args, Debug)]
pub(super) struct ServerArgs {
    /// Use this node or gateway instead of local files: http://HOST:PORT
    #[arg(long, value_name = "URL", help_heading = "Server")]
    server: Option<String>,
    /// Its `serve.token`; other users of this machine can see it on the command line
    #[arg(long, requires = "server", conflicts_with = "token_file", help_heading = "Server")]
    token: Option<String>,
    /// A file that contains the token
    #[arg(long, value_name = "FILE", requires = "server", help_heading = "Server")]
    token_file: Option<PathBuf>,
}

impl ServerArgs {
    /// Connects to the server, if one is named.
    ///
    /// # Errors
    ///
    /// If its address is invalid, or its token cannot be read.
    pub(super) fn find(&self) -> anyhow::Result<Option<Server>> {
        let Some(url) = &self.server else { return Ok(None) };
        let read = |path: &PathBuf| {
            let text = record::file::read_text(path);
            text.with_context(|| format!("cannot read the token in {}", path.display()))
        };
        let from_file = self.token_file.as_ref().map(read).transpose()?;
        Server::new(url, self.token.as_deref().or(from_file.as_deref())).map(Some)
    }

    /// Connects to the server, for a command that requires one.
    ///
    /// # Errors
    ///
    /// As [`find`](ServerArgs::find), and if no server is named.
    pub(super) fn require(&self) -> anyhow::Result<Server> {
        let found = self.find()?;
        found.context("this command needs a server: add --server http://HOST:PORT")
    }
}
