//! The rivals: indexes of sdsl-lite, compiled by `g++` against Debian's `libsdsl-dev`, one program for each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::engine::Engine;
use crate::tune::{Choice, Kind};

const SOURCE: &str = include_str!("sdsl.cpp");

/// Programs that are compiled, and indexes that are built, at the same time.
const AT_ONCE: usize = 2;

impl Kind {
    /// Its name in the results.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sada { .. } => "csa_sada",
            Kind::Wavelet => "csa_wt",
        }
    }
}

impl Choice {
    /// Its parameters in words.
    pub fn parameters(&self) -> String {
        let (sa, isa) = (self.sa, self.isa);
        match self.kind {
            Kind::Sada { psi_density } => format!("γ, Ψ {psi_density}, SA {sa}, ISA {isa}"),
            Kind::Wavelet => format!("rrr63, SA {sa}, ISA {isa}"),
        }
    }

    /// The type in C++.
    fn index(&self) -> String {
        let (sa, isa) = (self.sa, self.isa);
        match self.kind {
            Kind::Sada { psi_density } => format!(
                "sdsl::csa_sada<sdsl::enc_vector<sdsl::coder::elias_gamma,{psi_density}>,{sa},{isa}>"
            ),
            Kind::Wavelet => {
                format!("sdsl::csa_wt<sdsl::wt_huff<sdsl::rrr_vector<63>>,{sa},{isa}>")
            }
        }
    }

    /// A file name for it.
    fn program(&self) -> String {
        let (sa, isa) = (self.sa, self.isa);
        match self.kind {
            Kind::Sada { psi_density } => format!("sada-{psi_density}-{sa}-{isa}"),
            Kind::Wavelet => format!("wavelet-{sa}-{isa}"),
        }
    }
}

/// sdsl-lite as it is installed.
pub struct Sdsl {
    /// Where compiled programs go.
    programs: PathBuf,
    /// Versions of the library and the compiler.
    pub versions: BTreeMap<String, String>,
}

impl Sdsl {
    /// Checks that all is there; `scratch` is where programs are compiled to.
    ///
    /// # Errors
    /// If something is missing: it is named.
    pub fn find(scratch: &Path) -> anyhow::Result<Sdsl> {
        let mut missing = Vec::new();
        let mut versions = BTreeMap::new();
        let mut version = |what: &str, command: &[&str], package: &str| {
            let [program, arguments @ ..] = command else { return };
            let output = Command::new(program).args(arguments).output();
            match output.ok().filter(|output| output.status.success()) {
                None => missing.push(format!("{what} (apt-get install {package})")),
                Some(output) => {
                    let text = String::from_utf8_lossy(&output.stdout).into_owned();
                    let line = text.lines().next().unwrap_or_default().to_owned();
                    versions.insert(what.to_owned(), line);
                }
            }
        };
        version("g++", &["g++", "--version"], "g++");
        let query = ["dpkg-query", "-W", "-f=${Version}", "libsdsl-dev"];
        version("sdsl-lite", &query, "libsdsl-dev");
        ensure!(missing.is_empty(), "this experiment lacks: {}", missing.join("; "));
        let programs = scratch.join("rivals");
        std::fs::create_dir_all(&programs)?;
        std::fs::write(programs.join("sdsl.cpp"), SOURCE)?;
        Ok(Sdsl { programs, versions })
    }

    /// Starts engines over the text and the queries of `folder`, and waits until they are ready. The files
    /// of construction are kept there, so that the suffixes are sorted once.
    ///
    /// # Errors
    /// If one does not compile, or ends.
    pub fn start(&self, folder: &Path, choices: &[Choice]) -> anyhow::Result<Vec<(Engine, u64)>> {
        let cache = folder.join("cache");
        // The first one to be built makes the files that the others only read.
        let alone = usize::from(!cache.exists());
        std::fs::create_dir_all(&cache)?;
        let mut engines = Vec::new();
        let (first, rest) = choices.split_at(alone.min(choices.len()));
        for some in first.chunks(1).chain(rest.chunks(AT_ONCE)) {
            self.compile(some)?;
            let start = |choice: &Choice| {
                let mut command = Command::new(self.programs.join(choice.program()));
                Engine::start(&choice.parameters(), command.arg(folder).arg(&cache))
            };
            let mut started: Vec<Engine> = some.iter().map(start).collect::<anyhow::Result<_>>()?;
            for mut engine in started.drain(..) {
                let bytes = engine.ready()?;
                engines.push((engine, bytes));
            }
        }
        Ok(engines)
    }

    /// Compiles those that are not there yet.
    fn compile(&self, choices: &[Choice]) -> anyhow::Result<()> {
        let mut compilers = Vec::new();
        for choice in choices {
            let program = self.programs.join(choice.program());
            if program.exists() {
                continue;
            }
            let compiler = Command::new("g++")
                .args(["-std=c++14", "-O3", "-march=native", "-DNDEBUG", "-w"])
                .arg(format!("-DINDEX={}", choice.index()))
                .arg(self.programs.join("sdsl.cpp"))
                .args(["-lsdsl", "-ldivsufsort", "-ldivsufsort64", "-o"])
                .arg(&program)
                .spawn()
                .context("cannot start g++")?;
            compilers.push((compiler, choice));
        }
        for (mut compiler, choice) in compilers {
            let status = compiler.wait()?;
            ensure!(status.success(), "g++ ended with {status} for {}", choice.parameters());
        }
        Ok(())
    }
}
