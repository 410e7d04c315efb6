//! The what-if options of `concertina predict`, of one model and of a cluster: what is changed before the prediction.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail};
use model::Model;
use model::queue::ArrivalLaw;
use model::storage::{Change, Popularity};
use model::what_if::WhatIf;

use report::cluster_file::ClusterFile;
use report::popularity::{self, Law};

/// The cluster, and the changes to it.
#[derive(clap::Args)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("is_cluster").args(["cluster", "node"]))]
pub struct Args {
    /// A cluster file: fitted nodes and their shares (docs/models.md)
    #[arg(long, value_name = "FILE", conflicts_with = "model")]
    pub(super) cluster: Option<PathBuf>,
    /// A node of a cluster: its model file and its share of the requests; once for each node
    #[arg(long, value_name = "MODEL:SHARE", conflicts_with = "model")]
    pub(super) node: Vec<String>,
    /// What if this node is lost, and its replicas have been filled
    #[arg(long, value_name = "NAME", requires = "is_cluster")]
    without: Option<String>,
    /// What if this number of the --servers were lost, after the others had filled their replicas
    #[arg(long, value_name = "N", conflicts_with = "is_cluster")]
    lost: Option<u32>,
    /// What if devices had another speed: 0.5 is half as fast; of all servers, or of the named node of a cluster
    #[arg(long, value_name = "[NAME=]FACTOR")]
    speed: Vec<Factor>,
    /// What if servers had this multiple of their memory; all of them, or the named node of a cluster
    #[arg(long, value_name = "[NAME=]FACTOR")]
    memory: Vec<Factor>,
    /// What if each server had this number of devices of a class; with more hot devices, more of the often-read objects are on them
    #[arg(long, value_name = "CLASS=N", conflicts_with = "is_cluster", value_parser = devices)]
    devices: Vec<(String, u32)>,
    /// What if the nodes (those that are left) had these shares of the requests, in their order
    #[arg(long, value_delimiter = ',', value_name = "SHARE", requires = "is_cluster")]
    shares: Vec<f64>,
    /// How the hit ratio of each object depends on memory: 1 if all are equally popular, 1 − s for
    /// Zipf's s < 1
    #[arg(long, value_name = "EXPONENT")]
    memory_exponent: Option<f64>,
    /// The same by Che's approximation, zipf:S:OBJECTS, or from a trace or the samples of a run
    /// folder [default: the cluster file's, or equally popular objects]. With --servers: how
    /// unevenly the objects of zipf:S:OBJECTS or of a trace load them
    #[arg(long, value_name = "LAW", conflicts_with = "memory_exponent")]
    popularity: Option<String>,
}

/// `NAME=FACTOR`, or `FACTOR` for all.
#[derive(Clone, Debug, PartialEq)]
struct Factor {
    name: Option<String>,
    factor: f64,
}

/// The value of `--devices`.
fn devices(text: &str) -> Result<(String, u32), String> {
    let parts = text.rsplit_once('=').filter(|(class, _)| !class.is_empty());
    let parts = parts.and_then(|(class, count)| Some((class.to_owned(), count.parse().ok()?)));
    parts.ok_or_else(|| {
        format!("invalid devices `{text}`: write a class and a number, like `bulk_device=8`")
    })
}

impl FromStr for Factor {
    type Err = String;

    fn from_str(text: &str) -> Result<Factor, String> {
        let (name, factor) = match text.rsplit_once('=') {
            Some((name, factor)) => (Some(name.to_owned()), factor),
            None => (None, text),
        };
        // 200 % is twice as much.
        let (number, unit) = match factor.trim().strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 0.01),
            None => (factor, 1.0),
        };
        match number.parse::<f64>().map(|factor| factor * unit) {
            Ok(factor)
                if factor.is_finite()
                    && factor > 0.0
                    && name.as_ref().is_none_or(|name| !name.is_empty()) =>
            {
                Ok(Factor { name, factor })
            }
            _ => Err(format!(
                "invalid factor `{text}`: write a factor above 0, like `0.5` or `50%`, after a node's name if only that one is \
                 meant, like `b=0.5`"
            )),
        }
    }
}

impl Args {
    /// Refuses a factor that is given twice: one of them would be left out, or both multiplied.
    fn check_repeats(&self) -> anyhow::Result<()> {
        for (option, factors) in [("speed", &self.speed), ("memory", &self.memory)] {
            for (at, factor) in factors.iter().enumerate() {
                if factors[..at].iter().any(|other| other.name == factor.name) {
                    let of =
                        factor.name.as_deref().map_or(String::new(), |name| format!(" of {name}"));
                    bail!("--{option}{of} is given twice: give one factor");
                }
            }
        }
        for (at, (class, _)) in self.devices.iter().enumerate() {
            if self.devices[..at].iter().any(|(other, _)| other == class) {
                bail!("--devices of {class} is given twice: give one number");
            }
        }
        Ok(())
    }

    /// The changes, in the order in which they apply.
    ///
    /// # Errors
    ///
    /// If one is given twice.
    pub(super) fn changes(&self, file: &ClusterFile) -> anyhow::Result<Vec<Change>> {
        self.check_repeats()?;
        let all: Vec<&str> = file.nodes.iter().map(|node| node.name.as_str()).collect();
        let own = |f: &Factor| {
            let names = f.name.as_deref().map_or(all.clone(), |name| vec![name]);
            let factor = f.factor;
            names.into_iter().map(|name| (name.to_owned(), factor)).collect::<Vec<_>>()
        };
        let memory = self.memory.iter().flat_map(own);
        let mut changes: Vec<Change> =
            memory.map(|(name, factor)| Change::Memory { name, factor }).collect();
        let speed = self.speed.iter().flat_map(own);
        changes.extend(speed.map(|(name, factor)| Change::Speed { name, factor }));
        if let Some(name) = &self.without {
            let shares_after = match self.shares.is_empty() {
                true => file.shares_without(name),
                false => self.shares.clone(),
            };
            changes.push(Change::Without { name: name.clone(), shares_after });
        } else if !self.shares.is_empty() {
            changes.push(Change::Shares(self.shares.clone()));
        }
        Ok(changes)
    }
}

impl Args {
    /// Lost servers.
    pub fn lost(&self) -> u32 {
        self.lost.unwrap_or(0)
    }

    /// What is different of `servers` servers like one that was fitted.
    pub fn what_if(&self, servers: u32) -> anyhow::Result<WhatIf> {
        self.check_repeats()?;
        let factor = |option: &str, of: &[Factor]| {
            if let Some(name) = of.iter().find_map(|factor| factor.name.as_deref()) {
                bail!(
                    "--{option} {name}=…: a model file is of one server; give the factor without a name"
                );
            }
            Ok(of.first().map_or(1.0, |factor| factor.factor))
        };
        if self.memory_exponent.is_some() && self.memory.is_empty() && self.lost() == 0 {
            bail!(
                "--memory-exponent says how hits follow memory, which stays as it is: add --memory, or --lost"
            );
        }
        Ok(WhatIf {
            servers,
            lost: self.lost(),
            memory: factor("memory", &self.memory)?,
            memory_exponent: self.memory_exponent.unwrap_or(1.0),
            speed: factor("speed", &self.speed)?,
            devices: self.devices.iter().cloned().collect(),
            ..WhatIf::default()
        })
    }

    /// That more or less memory changes nothing, of a model with no requests that memory answers; empty otherwise.
    pub fn memory_text(&self, model: &Model) -> String {
        let requests = &model.requests;
        match !self.memory.is_empty() && requests.q0.value <= 0.0 {
            true => {
                "! --memory changes nothing: memory answers no requests in this model.\n".to_owned()
            }
            false => String::new(),
        }
    }

    /// The popularity argument, as given.
    pub fn popularity(&self) -> Option<&str> {
        self.popularity.as_deref()
    }

    /// How the hit ratio depends on memory: by the command line, else the cluster file, else for
    /// equally popular objects.
    pub(super) fn law(&self, file: &ClusterFile) -> anyhow::Result<Law> {
        match (&self.popularity, self.memory_exponent) {
            (Some(text), _) => popularity::read(text, Path::new("")).context("--popularity"),
            (None, Some(exponent)) => {
                Ok(Law::Power(Popularity::new(exponent).context("--memory-exponent")?))
            }
            (None, None) => Ok(file.popularity.clone().unwrap_or(Law::Power(Popularity::EQUAL))),
        }
    }
}

/// Describes a law.
pub(super) fn law_text(law: &Law) -> String {
    match law {
        Law::Power(p) if *p == Popularity::EQUAL => {
            "as if all objects were equally popular (change with --popularity)".to_owned()
        }
        Law::Power(_) => "by the given exponent".to_owned(),
        Law::Catalogue(_) => "by Che's approximation for the given popularity".to_owned(),
        Law::Stream(_) => "as on the given stream of keys".to_owned(),
    }
}

/// Describes an assumed law of arrivals.
pub fn arrivals_text(law: ArrivalLaw) -> String {
    format!("What if: arrivals at each server are {law}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_read() {
        let factor = |name: Option<&str>| Factor { name: name.map(str::to_owned), factor: 0.5 };
        assert_eq!("b=0.5".parse(), Ok(factor(Some("b"))));
        assert_eq!("0.5".parse(), Ok(factor(None)));
        assert_eq!("50%".parse(), Ok(factor(None)));
        assert_eq!("b=50%".parse(), Ok(factor(Some("b"))));
        assert_eq!("200 %".parse::<Factor>().map(|twice| twice.factor), Ok(2.0));
        for bad in
            ["", "b", "b=", "=1", "b=0", "b=-1", "b=NaN", "b=x", "0", "-1", "%", "0%", "b=%", "inf"]
        {
            assert!(bad.parse::<Factor>().is_err(), "{bad}");
        }
        assert_eq!(devices("hot_device=2"), Ok(("hot_device".to_owned(), 2)));
        for bad in ["", "2", "=2", "hot_device=", "hot_device=-1", "hot_device=x"] {
            assert!(devices(bad).is_err(), "{bad}");
        }
    }
}
