//! The options of `concertina data` that name a dataset: of a folder, or of a server.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::data_server::ServerArgs;
use crate::remote::served::Served;
use crate::remote::server::Server;
use dataset::{Dataset, Writer};

/// A dataset, and the format of the output.
#[derive(clap::Args)]
pub(super) struct DatasetArgs {
    #[command(flatten)]
    pub(super) local: Local,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// A dataset of a folder, and the format of the output.
#[derive(clap::Args)]
pub(super) struct Local {
    /// The dataset, or the path of a shard's file
    pub(super) name: String,
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    pub(super) folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl Local {
    fn path(&self) -> PathBuf {
        let as_file = Path::new(&self.name);
        if as_file.is_file() { as_file.to_owned() } else { self.folder.join(&self.name) }
    }

    pub(super) fn open(&self) -> anyhow::Result<Dataset> {
        let path = self.path();
        Dataset::open(&path).with_context(|| self.missing(&path))
    }

    pub(super) fn write(&self) -> anyhow::Result<Writer> {
        let path = self.path();
        Writer::open(&path).with_context(|| self.missing(&path))
    }

    fn missing(&self, path: &Path) -> String {
        if path.exists() {
            return format!("dataset {}", self.name);
        }
        let folder = self.folder.display();
        format!("there is no dataset {} in {folder} (concertina data list; --folder)", self.name)
    }
}

impl DatasetArgs {
    /// The dataset on a server, if a server was named.
    pub(super) fn served_on<'a>(&self, server: &'a Option<Server>) -> Option<Served<'a>> {
        server.as_ref().map(|server| Served::new(server, &self.local.name))
    }
}
