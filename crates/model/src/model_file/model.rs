//! The parts of a model file, and the node that they make.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::hypothesis::Hypothesis;
use super::kinds::RequestKind;
use super::parts::{
    About, Arrivals, BackgroundWork, ClassParameters, Devices, Evidence, FittedStep, Front, Law,
    Parameter, Requests, SpeedByNumber, SpotifyParameters, WorkByLoad,
};
use super::replicates::{Draw, Replicates};
use super::state_rates::StateRates;
use crate::error::{Error, check, positive};
use crate::queue::{ArrivalLaw, Discipline, InOrder};
use crate::storage::{Class, Delay, DeviceGroup, HitRatio, Node, Spotify};
use crate::trust::{Checked, FittedLoad, HeldOut, Trust};

/// The format version that is written. Versions from 1 are read: 2 has the discipline of a class,
/// and `hypotheses` about a service whose arrivals and departures were recorded.
pub const FORMAT: u32 = 2;

/// A fitted storage node. See [`crate::fit::fit`]; [`Model::predict`] uses it.
///
/// A model can also be written by hand, for what-if questions:
///
/// ```
/// let model = model::Model::from_toml(r#"
/// format = 1
/// [requests]
/// q0 = { value = 0.8, low = 0.79, high = 0.81, unit = "1" }
/// alpha = { value = 0.0, low = 0.0, high = 0.0, unit = "s" }
/// other_share = { value = 0.0, low = 0.0, high = 0.0, unit = "1" }
/// front_delay = { value = 0.0003, low = 0.0003, high = 0.0003, unit = "s" }
/// joining = { value = 0.0, low = 0.0, high = 0.0, unit = "1" }
/// joining_knee = { value = 1e9, low = 1e9, high = 1e9, unit = "reads" }
/// rate_low = 500.0
/// rate_high = 1500.0
/// [spotify]
/// q0 = { value = 0.8, low = 0.79, high = 0.81, unit = "1" }
/// alpha = { value = 0.0, low = 0.0, high = 0.0, unit = "s" }
/// mu_d = { value = 125.0, low = 124.0, high = 126.0, unit = "1/s" }
/// n_d = 4
/// [[classes]]
/// name = "bulk_device"
/// servers = 1
/// [classes.service]
/// mean = { value = 0.008, low = 0.0079, high = 0.0081, unit = "s" }
/// scv = { value = 0.2, low = 0.2, high = 0.2, unit = "1" }
/// shape = [[0.6, 0.3, 0.5], [1.4, 0.5, 0.5]]
/// [[devices]]
/// class = "bulk_device"
/// count = 4
/// share = 0.25
/// factor = 1.0
/// "#)?;
/// let prediction = model.predict(1_200.0, &[0.020, 0.050])?;
/// assert!((prediction.utilisation_mean.value - 0.48).abs() < 1e-9);
/// assert!(prediction.points[1].concertina.value > 0.99 && !prediction.beyond_limit);
/// assert!(matches!(model.predict(2_600.0, &[]), Err(model::Error::Unstable { .. })));
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// [`FORMAT`].
    pub format: u32,
    /// Warnings for users of the model, in sentences.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Where it comes from.
    #[serde(default)]
    pub about: About,
    /// Parameters of requests before the devices.
    pub requests: Requests,
    /// The link and workers that all requests share; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front: Option<Front>,
    /// The variability of arrivals; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// A law of arrivals to predict with, in place of the fitted one ([`Model::with_arrivals`]); never stored.
    #[serde(skip)]
    pub assumed_arrivals: Option<ArrivalLaw>,
    /// The largest load of which predictions say something, requests/s of one server, where no hypothesis fits: beyond it the
    /// interval of a share is 0 to 1, or as wide as errors on held-out loads say. Absent where one fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_beyond: Option<f64>,
    /// The published model of the same node.
    pub spotify: SpotifyParameters,
    /// Responses of requests answered by memory, as clients see them; absent if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Law>,
    /// Responses of requests answered by neither memory nor a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Law>,
    /// Kinds of devices.
    pub classes: Vec<ClassParameters>,
    /// The estimates of the mean service times, written by [`crate::fit::fit`]; predictions do not
    /// use them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// The devices.
    pub devices: Vec<Devices>,
    /// What was assumed of a service whose arrivals and departures were recorded, the likeliest
    /// first ([`crate::fit::work()`]). The replicates draw from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hypotheses: Vec<Hypothesis>,
    /// The works of each kind of request, the most frequent first, where they were found: for other mixes
    /// ([`Model::with_mix`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<RequestKind>,
    /// Departures by the number of requests inside, beside what the hypotheses say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rates: Option<StateRates>,
    /// The fitted steps with their errors.
    #[serde(default)]
    pub fitted: Vec<FittedStep>,
    /// Errors of the model on loads that were held out of the fit. The caller that compares them
    /// writes them here; [`Model::trust`] reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_out: Vec<HeldOut>,
    /// The fits of resampled windows, for the intervals of predictions.
    #[serde(default)]
    pub replicates: Replicates,
}

impl Model {
    /// Checks every number, as [`Model::from_toml`] does; for models that were edited in memory.
    pub fn check(&self) -> Result<(), Error> {
        if !(1..=FORMAT).contains(&self.format) {
            return Err(Error::File(format!(
                "format {} is not known (this version reads up to {FORMAT}); fit the run again",
                self.format
            )));
        }
        self.check_requests()?;
        self.check_classes()?;
        for step in &self.fitted {
            step.check()?;
        }
        for held in &self.held_out {
            held.check()?;
        }
        if let Some(arrivals) = &self.arrivals {
            arrivals.check()?;
        }
        for hypothesis in &self.hypotheses {
            hypothesis.check()?;
        }
        self.kinds.iter().try_for_each(RequestKind::check)?;
        self.rates.iter().try_for_each(StateRates::check)?;
        for evidence in &self.evidence {
            evidence.check()?;
        }
        check(
            "the number of replicates",
            self.replicates.rows.len() as f64,
            0.0..=if self.has_front() { 1e3 } else { 1e4 },
            "at most 10,000, and 1,000 with a link or workers",
        )?;
        let classes: Vec<&str> = self.classes.iter().map(|class| class.name.as_str()).collect();
        self.replicates.check(&classes)?;
        self.spotify()?;
        self.spotify_of_replicates()?;
        let node = self.node()?;
        self.nodes_of_replicates()?;
        if node.groups.is_empty() {
            return Err(Error::File("it has no devices; add [[devices]] or fit again".into()));
        }
        Ok(())
    }

    /// Checks what holds of all requests: where they are answered, and the loads of the fit.
    fn check_requests(&self) -> Result<(), Error> {
        let r = &self.requests;
        for (what, parameter) in [
            ("q0", &r.q0),
            ("alpha", &r.alpha),
            ("other_share", &r.other_share),
            ("front_delay", &r.front_delay),
            ("joining", &r.joining),
            ("joining_knee", &r.joining_knee),
            ("spotify.q0", &self.spotify.q0),
            ("spotify.alpha", &self.spotify.alpha),
            ("spotify.mu_d", &self.spotify.mu_d),
        ] {
            parameter.check(what)?;
        }
        if let Some(scv) = &r.front_delay_scv {
            scv.check("front_delay_scv")?;
        }
        if let Some(front) = &self.front {
            front.check()?;
        }
        positive("rate_high", r.rate_high)?;
        if let Some(rate) = self.unknown_beyond {
            positive("unknown_beyond", rate)?;
        }
        check("rate_low", r.rate_low, 0.0..=r.rate_high, "0 to rate_high")?;
        Ok(())
    }

    /// Checks the classes of devices and the laws of their times.
    fn check_classes(&self) -> Result<(), Error> {
        for law in
            self.memory.iter().chain(&self.other).chain(self.classes.iter().map(|c| &c.service))
        {
            law.check()?;
        }
        for work in self.classes.iter().filter_map(|class| class.background.as_ref()) {
            work.check()?;
        }
        if let Some(class) = self.classes.iter().find(|c| c.discipline == Discipline::Lines) {
            let what =
                format!("the class {:?}: separate lines are devices of one server", class.name);
            return Err(Error::File(what));
        }
        self.classes.iter().filter_map(|c| c.in_order.as_ref()).try_for_each(InOrder::check)?;
        self.classes.iter().filter_map(|c| c.by_load.as_ref()).try_for_each(WorkByLoad::check)?;
        self.classes.iter().filter_map(|c| c.by_number.as_ref()).try_for_each(SpeedByNumber::check)
    }

    /// The model with one more class, which has no devices yet. Its service has the law of the first class,
    /// with the given mean.
    pub(crate) fn with_class(&self, name: &str, mean_s: f64) -> Model {
        let mut model = self.clone();
        let Some(first) = self.classes.first() else { return model };
        let service = Law { mean: Parameter::exact(mean_s, "s"), ..first.service.clone() };
        let scv = service.scv.value;
        model.classes.push(ClassParameters {
            name: name.to_owned(),
            servers: first.servers,
            discipline: first.discipline,
            service,
            background: None,
            in_order: None,
            by_load: None,
            by_number: None,
            solved: Default::default(),
        });
        model.replicates.set(&format!("mean_s.{name}"), |_, _| mean_s);
        model.replicates.set(&format!("scv.{name}"), |_, _| scv);
        model
    }

    /// The node with the fitted values. Change its fields for what-if questions.
    pub fn node(&self) -> Result<Node, Error> {
        self.node_of(None)
    }

    /// The node with the values of a replicate.
    pub(crate) fn replicate(&self, draw: Draw) -> Result<Node, Error> {
        self.node_of(Some(draw))
    }

    /// Every replicate's node.
    pub(crate) fn nodes_of_replicates(&self) -> Result<Vec<Node>, Error> {
        self.replicates.draws().map(|draw| self.replicate(draw)).collect()
    }

    /// Whether there is a link or a limit of workers.
    fn has_front(&self) -> bool {
        self.has_link() || self.front.as_ref().is_some_and(|front| front.workers.is_some())
    }

    /// Whether the bytes per second of the link are known.
    fn has_link(&self) -> bool {
        self.front.as_ref().is_some_and(|front| front.link_bytes_per_s.is_some())
    }

    /// The node by the values of a replicate, and by the model's own where it has none.
    fn node_of(&self, draw: Option<Draw>) -> Result<Node, Error> {
        let drawn = |name: &str| draw.and_then(|draw| draw.get(name));
        let or = |name: &str, fitted: &Parameter| drawn(name).unwrap_or(fitted.value);
        let r = &self.requests;
        let law = |law: &Option<Law>| law.as_ref().map(|l| l.distribution(None)).transpose();
        let mut classes = Vec::new();
        for class in &self.classes {
            let of = |what: &str| drawn(&format!("{what}.{}", class.name));
            let moments = of("mean_s").zip(of("scv"));
            let mut found = Class::new(class.service.distribution(moments)?, class.servers);
            found.discipline = class.discipline;
            found.in_order.clone_from(&class.in_order);
            found.by_load = class.by_load.as_ref().map(|by| by.by_load(of("full_factor")));
            let by_number = class.by_number.as_ref();
            let slowdown = by_number.map(|speeds| speeds.slowdown(&of)).transpose()?;
            found.slowdown = slowdown.map(Arc::new);
            if let Some((servers, shared)) = of("servers").zip(of("shared")) {
                found.servers = servers as u32;
                found.discipline = if shared > 0.5 { Discipline::Shared } else { Discipline::Fifo };
            }
            if moments.is_some() && (of("servers").is_some() || class.discipline.is_shared()) {
                found.like = Some(class.service.distribution(None)?);
            }
            found.background = match (&class.background, of("other_rate").zip(of("other_mean_s"))) {
                (Some(_), Some((rate, mean_s))) if rate > 0.0 => {
                    Some(BackgroundWork::exponential(rate, mean_s)?)
                }
                (Some(_), Some(_)) => None,
                (work, _) => work.as_ref().map(BackgroundWork::background).transpose()?,
            };
            // A replicate's law is its own, but for those that are like the model's.
            if moments.is_none() || found.like.is_some() || found.slowdown.is_some() {
                found.solved = class.solved.clone();
            }
            classes.push(found);
        }
        let mut groups = Vec::new();
        for devices in &self.devices {
            let class = self.classes.iter().position(|c| c.name == devices.class);
            let class = class.ok_or_else(|| {
                Error::File(format!(
                    "devices of class {:?}, which it does not define",
                    devices.class
                ))
            })?;
            let (count, share, factor) = (devices.count, devices.share, devices.factor);
            groups.push(DeviceGroup { class, count, share, factor });
        }
        // A replicate of another hypothesis has lines of its own, or none.
        for (index, class) in self.classes.iter().enumerate() {
            if let Some(lines) = drawn(&format!("lines.{}", class.name)) {
                let lines = lines.max(1.0) as u32;
                let own: u32 = groups.iter().filter(|g| g.class == index).map(|g| g.count).sum();
                if own != lines {
                    let share = 1.0 / f64::from(lines);
                    groups.retain(|g| g.class != index);
                    groups.push(DeviceGroup { class: index, count: lines, share, factor: 1.0 });
                }
            }
        }
        let memory = law(&self.memory)?;
        // Without an SCV of its own the delay is a constant, in replicates too.
        let delay_scv = r.front_delay_scv.as_ref().map_or(0.0, |scv| or("front_delay_scv", scv));
        let hit_ratio = HitRatio::new(or("q0", &r.q0), or("alpha", &r.alpha))?;
        let node = Node {
            hit_ratio: hit_ratio.held_from(r.rate_high),
            delay: Delay::beside(memory.as_ref(), or("front_delay", &r.front_delay), delay_scv)?,
            memory,
            other_share: or("other_share", &r.other_share),
            other: law(&self.other)?,
            link: self.front.as_ref().and_then(|front| front.link(&drawn)),
            workers: self.front.as_ref().and_then(|front| front.workers),
            arrivals: self.arrival_law(&drawn)?,
            joining: or("joining", &r.joining),
            joining_knee: or("joining_knee", &r.joining_knee),
            classes,
            groups,
        };
        node.check()?;
        Ok(node)
    }

    /// The law of arrivals: the assumed one, else the fitted one, else Poisson.
    fn arrival_law(&self, drawn: &dyn Fn(&str) -> Option<f64>) -> Result<ArrivalLaw, Error> {
        match (self.assumed_arrivals, &self.arrivals) {
            (Some(law), _) => Ok(law),
            (None, Some(arrivals)) => arrivals.law(drawn),
            (None, None) => Ok(ArrivalLaw::Poisson),
        }
    }

    /// What if requests arrived by another law than in the fitted loads? In bursts and for other independent times the
    /// interval of a prediction holds nothing of the law, which is taken as known.
    ///
    /// ```
    /// # fn paced(model: &model::Model) -> Result<(), model::Error> {
    /// use model::queue::{ArrivalLaw, Renewal};
    /// let paced = model.with_arrivals(ArrivalLaw::Renewal(Renewal::new(0.0)?));
    /// assert!(paced.quantile(100.0, 0.99)? <= model.quantile(100.0, 0.99)?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_arrivals(&self, law: ArrivalLaw) -> Model {
        Model { assumed_arrivals: Some(law), ..self.clone() }
    }

    /// What was checked of the model, and the load up to which it held. Cost: one operating point.
    pub fn trust(&self) -> Result<Trust, Error> {
        Ok(crate::trust::trust(&self.node()?, &self.checked()))
    }

    /// The loads that were fitted and held out, and by how much the model misses them.
    pub(in crate::model_file) fn checked(&self) -> Checked {
        let fitted = self.fitted.iter().map(|step| FittedLoad {
            rate: step.rate,
            misfit_points: step.misfit_points(),
            utilisation: step.utilisation_predicted,
        });
        let (fitted, held_out) = (fitted.collect(), self.held_out.clone());
        Checked { rate_high: self.requests.rate_high, fitted, held_out }
    }

    /// The published model of the same node, with the paper's estimators.
    pub fn spotify(&self) -> Result<Spotify, Error> {
        self.spotify_of(None)
    }

    /// The same with the values of a replicate.
    pub(crate) fn spotify_of(&self, draw: Option<Draw>) -> Result<Spotify, Error> {
        let or = |name: &str, fitted: &Parameter| {
            draw.and_then(|draw| draw.get(name)).unwrap_or(fitted.value)
        };
        let s = &self.spotify;
        let q = HitRatio::new(or("spotify_q0", &s.q0), or("spotify_alpha", &s.alpha))?;
        let q = q.held_from(self.requests.rate_high);
        Spotify::new(q, or("spotify_mu_d", &s.mu_d), f64::from(s.n_d))
    }

    /// The published model of every replicate.
    pub(crate) fn spotify_of_replicates(&self) -> Result<Vec<Spotify>, Error> {
        self.replicates.draws().map(|draw| self.spotify_of(Some(draw))).collect()
    }
}
