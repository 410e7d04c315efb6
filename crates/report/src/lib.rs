//! Turns run folders and a fitted model into tables, JSON and HTML pages.
//!
//! Data flows in one direction: run folders → [`Observed`] (the windows of each step) →
//! [`measured`] (the figures of each step with their uncertainty), together with a [`model::Model`]
//! → [`Comparison`] → [`table()`], JSON (a comparison serialises) or [`html()`]. The demo and the
//! experiments call the same functions as the commands. `docs/reports.md` explains how to read the
//! output.

pub mod alone;
mod apart;
mod axis;
pub mod capacity;
pub mod check;
pub mod checked;
pub mod choices;
pub mod cluster;
pub mod cluster_file;
pub mod compare;
mod computed;
pub mod coverage;
mod disturbed;
mod embedded;
mod error;
pub mod factors;
pub mod figures;
pub mod files;
pub mod grid;
mod held_out;
mod html;
pub mod imbalance;
pub mod import;
pub mod laws;
pub mod measured;
pub mod network_answer;
pub mod network_file;
pub mod network_path;
pub mod objective;
pub mod percentiles;
pub mod plan_basis;
pub mod popularity;
pub mod predictions;
pub mod ranges;
mod row;
mod service;
mod state_rates;
pub mod stated_law;
pub mod steps;
pub mod svg;
pub mod table;
pub mod tiers;
mod times;
mod uncertainty;
pub mod verdict;
mod whole;

pub use compare::{Comparison, Row, largest_rate};
pub use embedded::{Embedded, NamedModel};
pub use error::Error;
pub use html::{GENERATOR, Page, html, is_page};
pub use objective::Objective;
pub use service::{Service, ServiceFacts};
pub use steps::{Observed, Selection, StepChoice};
pub use table::{model_text, table};

use std::path::Path;

use model::{Coarse, Model};

/// Reads a model file.
///
/// # Errors
/// If the file cannot be read or is not a valid model.
pub fn read_model(path: &Path) -> Result<Model, Error> {
    let shown = path.display();
    let text = record::file::read_text(path).map_err(|source| {
        let hint = if path.is_dir() {
            ": it is a folder; `concertina fit` makes a model from run folders"
        } else {
            ""
        };
        Error::File { file: format!("the model {shown}{hint}"), source }
    })?;
    Model::from_toml(&text).map_err(Error::content(format!("{shown} is not a usable model file")))
}

/// Fits a model to the steps that are not held out, and computes its errors on those that are. The
/// limited resolution of imported runs widens the intervals.
pub fn fit(observed: &Observed, title: &str) -> Result<Model, Error> {
    let mut model = held_out::fit(observed, observed.about(title))?;
    model.widen(&uncertainty::coarse(observed))?;
    model.warnings.extend(uncertainty::warnings(observed));
    Ok(model)
}

/// Fits a service of which only the clients' side is known to the steps that are not held out, and
/// computes the model's errors on those that are: from arrivals and departures if all steps have
/// them ([`model::fit::work()`]), else from response times ([`model::fit::black_box()`]).
///
/// # Errors
/// Those of a fit, and that the clock is too coarse, with what is known.
pub fn fit_service(
    observed: &Observed,
    title: &str,
    facts: ServiceFacts,
) -> Result<Service, Error> {
    let about = observed.about(title);
    let mut fitted = held_out::fit_service(observed, about, facts)?;
    let coarse = uncertainty::coarse(observed);
    // A service-time law derived from response times alone is as coarse as those times. Of works
    // the resolution is part of the fit.
    let from_works = fitted.worked.is_some();
    let service_s = coarse.device_s.max(coarse.other_s).max(coarse.memory_s);
    let service_s = if from_works { 0.0 } else { service_s };
    let (memory_s, fast) = (coarse.memory_s, coarse.fast);
    fitted.model.widen(&Coarse { service_s, memory_s, fast, ..Coarse::default() })?;
    fitted.model.warnings.extend(uncertainty::warnings(observed));
    Ok(fitted)
}

/// Writes a file that does not exist yet.
///
/// # Errors
/// If it exists, or cannot be written.
pub fn write_new(path: &Path, text: &str) -> Result<(), Error> {
    let written = std::fs::File::create_new(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let what = ", and is not overwritten";
            Err(Error::Exists { path: path.to_owned(), what, is_file: false })
        }
        written => written.map_err(cannot_write(path)),
    }
}

/// Writes a file atomically: the complete text or nothing. An existing file is replaced only if
/// `ours` accepts its content, so that a command overwrites only files of its own kind.
///
/// # Errors
/// If the file cannot be written, or what it would replace is not a regular file that `ours` accepts.
pub fn write_whole(path: &Path, text: &str, ours: impl Fn(&str) -> bool) -> Result<(), Error> {
    match record::file::read(path, record::file::RUN_BYTES_MAX) {
        Ok(old) if !old.is_empty() && !ours(&String::from_utf8_lossy(&old)) => {
            let what = " and is another kind of file";
            return Err(Error::Exists { path: path.to_owned(), what, is_file: true });
        }
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(cannot_write(path)(error)),
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = || -> Result<(), error::Cause> {
        let mut builder = tempfile::Builder::new();
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
        let mut file = builder.tempfile_in(folder)?;
        std::io::Write::write_all(&mut file, text.as_bytes())?;
        file.persist(path)?;
        Ok(())
    };
    written().map_err(cannot_write(path))
}

fn cannot_write<E: Into<error::Cause>>(path: &Path) -> impl FnOnce(E) -> Error {
    |cause| Error::Write { path: path.to_owned(), source: cause.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files whose words resemble those of this project's were written over.
    #[test]
    fn only_a_file_of_the_same_kind_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let plot = svg::standalone(&[], &["a note".to_owned()]);
        let page = format!("<meta name=\"generator\" content=\"{GENERATOR}\">");
        type Kind = fn(&str) -> bool;
        let cases: [(&str, Kind, &str); 4] = [
            (
                &plot,
                svg::is_plot,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 9 9\"/>",
            ),
            (&page, is_page, "<p>how we use concertina report</p>"),
            ("# Written by `concertina tiers --curves`", tiers::CurvesFile::is_text, "[curves]\n"),
            ("x", |_| false, "x"),
        ];
        for (ours, kind, strange) in cases {
            std::fs::write(&path, strange).unwrap();
            let error = write_whole(&path, ours, kind).unwrap_err().to_string();
            assert!(error.contains("another kind of file"), "{error}");
            let error = write_new(&path, ours).unwrap_err().to_string();
            assert!(error.contains("is not overwritten"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), strange);
            std::fs::remove_file(&path).unwrap();
            write_new(&path, ours).unwrap();
            let again = write_whole(&path, ours, kind);
            assert_eq!(again.is_ok(), kind(ours), "{ours}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing temporary");
    }
}
