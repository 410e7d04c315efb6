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
    /// A dataset of the folder comes before a file of the same name: its own input may lie beside it.
    fn path(&self) -> PathBuf {
        let as_dataset = self.folder.join(&self.name);
        let as_file = Path::new(&self.name);
        if as_file.is_file() && !as_dataset.is_dir() { as_file.to_owned() } else { as_dataset }
    }

    pub(super) fn open(&self) -> anyhow::Result<Dataset> {
        let path = self.path();
        Dataset::open(&path).with_context(|| self.missing(&path))
    }

    pub(super) fn write(&self) -> anyhow::Result<Writer> {
        let path = self.path();
        Writer::open(&path).with_context(|| self.missing(&path))
    }

    /// What could not be opened.
    fn missing(&self, path: &Path) -> String {
        let (name, folder) = (&self.name, self.folder.display());
        if path.is_dir() {
            return format!("dataset {name}");
        }
        let missing =
            format!("there is no dataset {name} in {folder} (concertina data list; --folder)");
        if path.is_file() {
            return format!("{missing}, and the file {name} cannot be used in its place");
        }
        missing
    }
}

impl DatasetArgs {
    /// The dataset on a server, if a server was named.
    pub(super) fn served_on<'a>(&self, server: &'a Option<Server>) -> Option<Served<'a>> {
        server.as_ref().map(|server| Served::new(server, &self.local.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that was imported under its own name lies where the command runs. Tests run beside `Cargo.toml`.
    #[test]
    fn a_file_does_not_hide_the_dataset_of_its_name() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("datasets");
        let (input, name) = (place.path().join("input"), "Cargo.toml");
        std::fs::write(&input, "a\nb\n").unwrap();
        let options = dataset::Options::default();
        dataset::import(&folder, name, &[input], &options, &mut |_| ()).unwrap();
        let local = |name: &str, folder: &Path| Local {
            name: name.to_owned(),
            folder: folder.to_owned(),
            json: false,
        };
        assert_eq!(local(name, &folder).open().unwrap().end_id(), 2);
        assert_eq!(local(name, &folder).write().unwrap().dataset().end_id(), 2);
        let shard = folder.join(name).join("000001.shard");
        assert_eq!(local(shard.to_str().unwrap(), place.path()).open().unwrap().end_id(), 2);
        let error = local(name, place.path()).open().err().unwrap();
        let text = format!("{error:#}");
        assert!(text.contains("there is no dataset Cargo.toml in "), "{text}");
        assert!(text.contains("the file Cargo.toml cannot be used"), "{text}");
    }
}
