//! Chooses the fitted server on which a plan is based.

use std::path::Path;

use model::Model;
use model::plan::Plan;

use crate::cluster_file::ClusterFile;
use crate::error::Error;
use crate::objective::Objective;

/// The server that a plan is based on.
#[derive(Clone, Debug)]
pub struct PlanBasis {
    /// The model of the server.
    pub model: Model,
    /// Delay of gateway and network before the server, seconds.
    pub delay_s: f64,
    /// The number of servers that it was one of, if known.
    pub of: Option<f64>,
    /// A sentence about the choice of the server.
    pub note: Option<String>,
}

impl PlanBasis {
    /// Reads a model file, or a cluster file, whose slowest node is chosen: the one that meets the
    /// objective up to the lowest load.
    ///
    /// # Errors
    /// If a file cannot be read, or the delay of gateway and network alone exceeds the objective.
    pub fn read(path: &Path, objective: Objective) -> Result<PlanBasis, Error> {
        let is_cluster = record::file::read_text(path)
            .is_ok_and(|text| text.lines().any(|line| line.trim() == "[[node]]"));
        if !is_cluster {
            let model = crate::read_model(path)?;
            return Ok(PlanBasis { model, delay_s: 0.0, of: None, note: None });
        }
        let file = ClusterFile::read(path)?;
        let place = format!("invalid cluster file {}", path.display());
        file.model().map_err(Error::content(place))?;
        let delay_s = file.delay.value;
        let within_s = objective.within_s - delay_s;
        if within_s <= 0.0 {
            let reason = format!("the delay of gateway and network alone exceeds {objective}");
            return Err(Error::input(reason));
        }
        let holds = |model: &Model| model.largest_rate(within_s, objective.share).unwrap_or(0.0);
        let slowest = file.nodes.into_iter().filter(|node| node.share > 0.0);
        let slowest = slowest.min_by(|a, b| holds(&a.model).total_cmp(&holds(&b.model)));
        let node = slowest
            .ok_or_else(|| Error::input("no node of the cluster has a share of the requests"))?;
        let note = format!(
            "Every server is assumed to be like {}, the slowest node of the cluster, which received {} % of \
             its requests.",
            node.name,
            crate::table::percent(node.share)
        );
        Ok(PlanBasis { model: node.model, delay_s, of: Some(1.0 / node.share), note: Some(note) })
    }
    /// A plan based on the server, as JSON.
    ///
    /// # Errors
    /// If the model cannot say up to which load it is trusted.
    pub fn json(&self, plan: &Plan) -> Result<serde_json::Value, Error> {
        let mut value = serde_json::to_value(plan)?;
        value["laboratory"] = self.model.about.laboratory.clone().into();
        value["note"] = self.note.clone().into();
        value["warnings"] = crate::compare::warnings_of(&self.model).into();
        value["trust"] = serde_json::to_value(self.model.trust()?)?;
        value["holds"] = (!plan.ranked.is_empty()).into();
        Ok(value)
    }
}
