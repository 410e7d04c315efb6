//! The cluster file: the model files of a cluster's nodes, and the nodes' shares of the requests.
//!
//! ```toml
//! delay_ms = 0.2             # delay of gateway and network; default 0
//! delay_ms_95 = [0.18, 0.22] # its 95 % interval; by default the delay is exact
//! replicas = 3               # with weights: nodes of a key, to redistribute a lost node's keys
//! popularity = "zipf:0.8:1000000"  # hit ratio against memory (`popularity`); default: equal
//! popularity
//! [[node]]
//! name = "a"                 # the name in the ring; default: from the model file's name
//! model = "a.model.toml"     # path relative to this file
//! share = 0.2                # of the requests; or `weight`, from which the ring computes shares
//! [[held_out]]               # errors at the clients on held-out loads, as in a model file; `fit` writes them
//! ```

use std::path::{Path, PathBuf};

use engine::route::{Member, Ring};
use model::{ClusterModel, ClusterNode, HeldOut, Parameter};
use serde::{Deserialize, Serialize};

use super::cluster::FittedCluster;
use super::error::Error;
use super::popularity::{self, Law};
use super::read_model;

/// The contents of the file, before validation.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    delay_ms: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delay_ms_95: Option<[f64; 2]>,
    #[serde(default = "three")]
    replicas: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    popularity: Option<String>,
    node: Vec<Entry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held_out: Vec<HeldOut>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    model: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
}

fn three() -> usize {
    3
}

/// The first line of a written cluster file.
pub const HEAD: &str = "# A cluster of fitted nodes; `concertina predict --cluster` reads it.\n";

/// A cluster as described by a file or a command line.
#[derive(Debug)]
pub struct ClusterFile {
    /// The fitted nodes and their shares.
    pub nodes: Vec<ClusterNode>,
    /// The delay that gateway and network add, seconds.
    pub delay: Parameter,
    /// The ring, if shares come from weights.
    pub ring: Option<Ring>,
    /// How the hit ratio depends on memory, if the file states it.
    pub popularity: Option<Law>,
    /// The errors of the cluster's model at the clients.
    pub held_out: Vec<HeldOut>,
}

impl ClusterFile {
    /// Reads a cluster file and the model files that it names.
    ///
    /// # Errors
    /// If a file cannot be read, or the cluster file mixes shares and weights.
    pub fn read(path: &Path) -> Result<ClusterFile, Error> {
        let shown = path.display();
        let text = record::file::read_text(path)
            .map_err(|source| Error::File { file: format!("the cluster {shown}"), source })?;
        let place = format!("invalid cluster file {shown}");
        let described = format!("{place} (docs/models.md describes them)");
        let file: File = toml::from_str(&text).map_err(Error::content(described))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        ClusterFile::from_file(file, folder).map_err(Error::content(place))
    }

    /// Makes a cluster from arguments of the form `FILE:SHARE`.
    ///
    /// # Errors
    /// If a model cannot be read, or an argument does not have that form.
    pub fn of_arguments(nodes: &[String]) -> Result<ClusterFile, Error> {
        let entry = |text: &String| -> Result<Entry, Error> {
            let parts = text.rsplit_once(':');
            let parts = parts.and_then(|(model, share)| Some((model, share.parse().ok()?)));
            let Some((model, share)) = parts else {
                return Err(Error::input(format!(
                    "invalid node `{text}`: write a model file and its share of the requests, like a.toml:0.5"
                )));
            };
            Ok(Entry { name: None, model: model.into(), share: Some(share), weight: None })
        };
        let node = nodes.iter().map(entry).collect::<Result<_, Error>>()?;
        ClusterFile::from_file(
            File {
                delay_ms: 0.0,
                delay_ms_95: None,
                replicas: three(),
                popularity: None,
                node,
                held_out: Vec::new(),
            },
            Path::new(""),
        )
    }

    fn from_file(file: File, folder: &Path) -> Result<ClusterFile, Error> {
        let shares = file.node.iter().filter(|e| e.share.is_some()).count();
        let weights = file.node.iter().filter(|e| e.weight.is_some()).count();
        if shares.max(weights) != file.node.len() || shares.min(weights) > 0 {
            return Err(Error::input("give every node a `share`, or every node a `weight`"));
        }
        let mut nodes = Vec::new();
        for entry in &file.node {
            let name = entry.name.clone().unwrap_or_else(|| stem(&entry.model));
            let model = read_model(&folder.join(&entry.model))?;
            nodes.push(ClusterNode { name, model, share: entry.share.unwrap_or_default() });
        }
        let mut ring = None;
        if weights > 0 {
            let weights = nodes
                .iter()
                .zip(&file.node)
                .filter_map(|(node, entry)| Some(Member::new(node.name.clone(), entry.weight?)));
            let made = Ring::new(weights.collect(), file.replicas)?;
            let shares = made.shares();
            for node in &mut nodes {
                let at = made.find(&node.name).and_then(|at| shares.get(at));
                node.share = at.copied().unwrap_or_default();
            }
            ring = Some(made);
        }
        let mut delay = Parameter::exact(file.delay_ms * 1e-3, "s");
        if let Some([low, high]) = file.delay_ms_95 {
            if !(low <= file.delay_ms && file.delay_ms <= high && low >= 0.0 && high.is_finite()) {
                let reason = format!("delay_ms_95 = [{low}, {high}] does not contain delay_ms");
                return Err(Error::input(reason));
            }
            (delay.low, delay.high) = (low * 1e-3, high * 1e-3);
        }
        let popularity = file.popularity.as_deref().map(|text| popularity::read(text, folder));
        let popularity = popularity.transpose().map_err(Error::content("invalid popularity"))?;
        Ok(ClusterFile { nodes, delay, ring, popularity, held_out: file.held_out })
    }

    /// Makes the cluster's model.
    ///
    /// # Errors
    /// If the shares do not add up to 1, or names are not distinct.
    pub fn model(&self) -> Result<ClusterModel, model::Error> {
        ClusterModel::new(&self.nodes, self.delay.clone())?.with_held_out(self.held_out.clone())
    }

    /// The shares of the remaining nodes, in order, after one node is lost: computed by the ring if
    /// there is one, otherwise each grows in proportion.
    pub fn shares_without(&self, name: &str) -> Vec<f64> {
        let others = || self.nodes.iter().filter(|node| node.name != name);
        if let Some(ring) = &self.ring {
            let live: Vec<bool> = ring.members().iter().map(|m| m.name != name).collect();
            let shares = ring.shares_of(&live);
            let of = |node: &ClusterNode| ring.find(&node.name).map_or(0.0, |at| shares[at]);
            let sum: f64 = others().map(of).sum();
            // Keys whose nodes are all lost are not redistributed.
            return others().map(|node| of(node) / sum).collect();
        }
        let sum: f64 = others().map(|node| node.share).sum();
        others().map(|node| node.share / sum).collect()
    }
}

/// `a` of `runs/a.model.toml`.
fn stem(path: &Path) -> String {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = name.strip_suffix(".toml").unwrap_or(&name);
    stem.strip_suffix(".model").unwrap_or(stem).to_owned()
}

/// Formats the file of a fitted cluster. `model` gives the path of each node's model file, relative
/// to the cluster file.
///
/// # Errors
/// If a number cannot be represented.
pub fn text(
    fitted: &FittedCluster,
    model: impl Fn(&str) -> PathBuf,
) -> Result<String, toml::ser::Error> {
    let entry = |node: &ClusterNode| Entry {
        name: Some(node.name.clone()),
        model: model(&node.name),
        share: Some(node.share),
        weight: None,
    };
    let file = File {
        delay_ms: fitted.delay.value * 1e3,
        delay_ms_95: Some([fitted.delay.low * 1e3, fitted.delay.high * 1e3]),
        replicas: three(),
        popularity: fitted.popularity.clone(),
        held_out: fitted.held_out.clone(),
        node: fitted.nodes.iter().map(entry).collect(),
    };
    Ok(HEAD.to_owned() + &toml::to_string(&file)?)
}
