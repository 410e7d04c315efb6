//! What a fit assumed of a service, and how well it agrees with the recorded times.

use serde::{Deserialize, Serialize};

use crate::error::{Error, check, not_negative, positive};
use crate::queue::Discipline;

use super::parts::Parameter;

/// A hypothesis on how a service works, under which the work of every request follows from the
/// times of all requests ([`crate::fit::work()`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hypothesis {
    /// How servers are given to requests.
    pub discipline: Discipline,
    /// Servers, processors or lines; absent if no limit shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<u32>,
    /// The statistic of independence over its degrees of freedom: about 1 if the work of a request
    /// does not depend on how many others it met.
    pub score: f64,
    /// Probability of a larger statistic if the hypothesis is true.
    pub p_value: f64,
    /// Its share of the replicates; 0 if the times exclude it.
    pub weight: f64,
    /// Mean work, seconds.
    pub work: Parameter,
    /// Its squared coefficient of variation.
    pub scv: f64,
    /// Mean time outside of the servers, seconds; negative if a reply leaves so long before its
    /// server is free again.
    pub outside: Parameter,
    /// Share of requests that pass the servers by.
    #[serde(default)]
    pub bypass: f64,
    /// Whether the speed of the servers depends on how many requests are inside ([`crate::model_file::parts::SpeedByNumber`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_number: bool,
}

impl Hypothesis {
    /// In words: `2 servers, first come, first served`.
    pub fn title(&self) -> String {
        let title = title(self.servers, self.discipline);
        if self.by_number { format!("{title}, its speed by the number inside") } else { title }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let servers = f64::from(self.servers.unwrap_or(1));
        check("a hypothesis's servers", servers, 1.0..=1e4, "1 to 10,000")?;
        not_negative("a hypothesis's score", self.score)?;
        check("a hypothesis's p-value", self.p_value, 0.0..=1.0, "0 to 1")?;
        check("a hypothesis's weight", self.weight, 0.0..=1.0, "0 to 1")?;
        self.work.check("a hypothesis's mean work")?;
        positive("a hypothesis's mean work", self.work.value)?;
        not_negative("the SCV of a hypothesis's work", self.scv)?;
        self.outside.check("a hypothesis's time outside")?;
        check("the share that passes by", self.bypass, 0.0..=1.0, "0 to 1").map(|_| ())
    }
}

/// A kind of service in words.
pub(crate) fn title(servers: Option<u32>, discipline: Discipline) -> String {
    match (servers, discipline) {
        (Some(m), Discipline::Lines) => format!("{m} separate lines by key, one server each"),
        (None, _) => "no limit".to_owned(),
        (Some(1), Discipline::Fifo) => "1 server, first come, first served".to_owned(),
        (Some(m), Discipline::Fifo) => format!("{m} servers, first come, first served"),
        (Some(1), Discipline::Shared) => "1 processor, shared equally".to_owned(),
        (Some(m), Discipline::Shared) => format!("{m} processors, shared equally"),
    }
}
