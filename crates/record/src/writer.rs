//! Writes run folders.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ground::window::{Sample, Window};
use serde::Serialize;

use super::error::Error;
use super::host::Host;
use super::run::{Run, Step};
use super::times::Times;

/// The files of a run folder that [`RunWriter`] makes.
const FILES: [&str; 6] = ["run.toml", "windows", "samples", "times", "host", "steps"];

/// Writes a run folder.
pub struct RunWriter {
    dir: PathBuf,
    windows: BufWriter<File>,
    samples: BufWriter<File>,
    times: BufWriter<File>,
    host: BufWriter<File>,
    steps: BufWriter<File>,
}

impl RunWriter {
    /// Checks that nothing would be overwritten in a folder, which need not exist: before work whose
    /// result could not be written.
    ///
    /// # Errors
    /// [`Error::HoldsARun`] or [`Error::Exists`] if a file of a run is there already.
    pub fn check_free(dir: &Path) -> Result<(), Error> {
        for name in FILES {
            let path = dir.join(name);
            match fs::symlink_metadata(&path) {
                Ok(_) if name == "run.toml" => {
                    return Err(Error::HoldsARun { path: dir.to_owned() });
                }
                Ok(_) => return Err(Error::Exists { path }),
                Err(source) if source.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(Error::Write { action: "use", path, source }),
            }
        }
        Ok(())
    }

    /// Creates the folder, its `run.toml` and empty files beside. It is an error if one of them exists: nothing is
    /// overwritten, be it a run or another's file of such a name. Other files in the folder stay as they are.
    pub fn create(dir: &Path, run: &Run) -> Result<RunWriter, Error> {
        let failed = |action, path: PathBuf| move |source| Error::Write { action, path, source };
        fs::create_dir_all(dir).map_err(failed("create the run folder", dir.to_owned()))?;
        // Before the first file is made, so that a refused folder is unchanged.
        RunWriter::check_free(dir)?;
        let text = toml::to_string(run).map_err(Error::Description)?;
        let open = |name: &str| -> Result<BufWriter<File>, Error> {
            let path = dir.join(name);
            File::create_new(&path).map(BufWriter::new).map_err(failed("write", path))
        };
        let mut description = open("run.toml")?;
        description
            .write_all(text.as_bytes())
            .and_then(|()| description.flush())
            .map_err(failed("write", dir.join("run.toml")))?;
        Ok(RunWriter {
            dir: dir.to_owned(),
            windows: open("windows")?,
            samples: open("samples")?,
            times: open("times")?,
            host: open("host")?,
            steps: open("steps")?,
        })
    }

    /// Appends windows.
    pub fn windows(&mut self, windows: &[Window]) -> Result<(), Error> {
        append(&mut self.windows, windows, &self.dir, "windows")
    }

    /// Appends samples.
    pub fn samples(&mut self, samples: &[Sample]) -> Result<(), Error> {
        append(&mut self.samples, samples, &self.dir, "samples")
    }

    /// Appends the times of requests.
    pub fn times(&mut self, times: &[Times]) -> Result<(), Error> {
        append(&mut self.times, times, &self.dir, "times")
    }

    /// Appends the host's activity of one interval.
    pub fn host(&mut self, host: &Host) -> Result<(), Error> {
        append(&mut self.host, std::slice::from_ref(host), &self.dir, "host")
    }

    /// Appends a completed step.
    pub fn step(&mut self, step: &Step) -> Result<(), Error> {
        append(&mut self.steps, std::slice::from_ref(step), &self.dir, "steps")
    }

    /// Writes buffered records to the files. To be called every second and at the end.
    pub fn flush(&mut self) -> Result<(), Error> {
        let files = [
            &mut self.windows,
            &mut self.samples,
            &mut self.times,
            &mut self.host,
            &mut self.steps,
        ];
        for file in files {
            file.flush().map_err(|source| {
                let action = "write to the run folder";
                Error::Write { action, path: self.dir.clone(), source }
            })?;
        }
        Ok(())
    }
}

fn append<T: Serialize>(
    file: &mut BufWriter<File>,
    records: &[T],
    dir: &Path,
    name: &str,
) -> Result<(), Error> {
    for record in records {
        serde_json::to_writer(&mut *file, record)
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(b"\n"))
            .map_err(|source| Error::Write { action: "write", path: dir.join(name), source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Machine;
    use crate::read::RunFolder;
    use crate::run::FORMAT;

    fn run() -> Run {
        Run {
            format: FORMAT,
            version: "test".to_owned(),
            kind: "load".to_owned(),
            start_unix_us: 1,
            laboratory: None,
            machine: Machine::describe(),
            asked: toml::Table::new(),
        }
    }

    fn refused(dir: &Path, part: &str) {
        let error = RunWriter::create(dir, &run()).err().expect(part).to_string();
        assert!(error.contains(part), "{error}");
    }

    /// A file `windows` in a folder without `run.toml` was emptied.
    #[test]
    fn no_file_is_overwritten_and_a_refused_folder_is_unchanged() {
        for name in FILES {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(name), "precious").unwrap();
            let part = if name == "run.toml" { "holds a run already" } else { name };
            refused(folder.path(), part);
            assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), "precious");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        }
        // A link that leads nowhere would be a file elsewhere.
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path().join("x"), folder.path().join("host")).unwrap();
        refused(folder.path(), "host");
        assert!(!folder.path().join("x").exists());
    }

    #[test]
    fn other_files_beside_a_run_stay() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("notes"), "precious").unwrap();
        let mut writer = RunWriter::create(folder.path(), &run()).unwrap();
        writer.flush().unwrap();
        assert_eq!(RunFolder::read(folder.path()).unwrap().run, run());
        assert_eq!(fs::read_to_string(folder.path().join("notes")).unwrap(), "precious");
        refused(folder.path(), "holds a run already");
    }
}
