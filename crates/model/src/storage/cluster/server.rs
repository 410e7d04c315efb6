//! [`Server`]: the interface between a cluster and the models of its servers.

use crate::error::{Error, is_stable, positive};

use super::super::hit_law::HitLaw;
use super::super::node::Node;
use super::super::spotify::Spotify;

/// P(T ≤ t) at one time t, as a function of a load in requests/s: [`Server::within`], boxed.
pub type Within = Box<dyn Fn(f64) -> f64>;

/// The model of a server in a [`super::Cluster`]: the law of its response at each load, its two
/// limits, and its changes. [`Node`], [`Spotify`] and [`crate::storage::Tiers`] implement it.
///
/// Servers are independent of each other: resources that they share (a network, the origin) are not
/// modelled.
///
/// ```
/// use model::storage::{HitRatio, Server, Spotify};
/// let server = Spotify::new(HitRatio::new(0.5, 0.0)?, 100.0, 1.0)?;
/// let within = Server::within(&server, 0.050);
/// assert_eq!(within(80.0), server.cdf(80.0, 0.050)?);
/// // Twice as fast it saturates at twice the load.
/// assert!((server.with_speed(2.0)?.saturation() - 400.0).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
pub trait Server: Clone {
    /// Checks all fields.
    fn check(&self) -> Result<(), Error>;

    /// [`Error::Unstable`] if its queues are not bounded at `rate` requests/s.
    fn stable(&self, rate: f64) -> Result<(), Error>;

    /// Load in requests/s at which its busiest device is always busy.
    fn saturation(&self) -> f64;

    /// Load in requests/s up to which it is trusted.
    fn confidence_limit(&self) -> f64;

    /// P(T ≤ t) as a function of its load in requests/s; past saturation, the share that is
    /// answered in time without a device.
    fn within(&self, t_s: f64) -> impl Fn(f64) -> f64 + use<Self>;

    /// [`Server::within`] for servers nearly equal to this one, the replicates of a model.
    /// Expensive computations are done once for all of them.
    fn within_alike(&self, alike: &[(&Self, f64)], _t_s: f64) -> Vec<Within>
    where
        Self: 'static,
    {
        alike.iter().map(|(server, t_s)| Box::new(server.within(*t_s)) as Within).collect()
    }

    /// The same server with a part of the catalogue `factor` times as large.
    fn with_catalogue(&self, factor: f64, law: impl HitLaw) -> Result<Self, Error>;

    /// The same server with `factor` times the memory.
    fn with_memory(&self, factor: f64, law: impl HitLaw) -> Result<Self, Error>;

    /// The same server with devices `factor` times as fast.
    fn with_speed(&self, factor: f64) -> Result<Self, Error>;
}

impl Server for Node {
    fn check(&self) -> Result<(), Error> {
        Node::check(self)
    }

    fn stable(&self, rate: f64) -> Result<(), Error> {
        self.operating(rate).map(drop)
    }

    fn saturation(&self) -> f64 {
        Node::saturation(self)
    }

    fn confidence_limit(&self) -> f64 {
        Node::confidence_limit(self)
    }

    fn within(&self, t_s: f64) -> impl Fn(f64) -> f64 + use<> {
        let (node, at) = (self.clone(), self.at_time(t_s));
        move |rate| at.cdf(&node.operating_unchecked(rate))
    }

    fn within_alike(&self, alike: &[(&Node, f64)], t_s: f64) -> Vec<Within> {
        let here = self.at_time(t_s);
        let of = |(node, t_s): &(&Node, f64)| {
            let (node, at) = ((*node).clone(), node.at_time_beside(*t_s, &here));
            Box::new(move |rate| at.cdf(&node.operating_unchecked(rate))) as Within
        };
        alike.iter().map(of).collect()
    }

    fn with_catalogue(&self, factor: f64, law: impl HitLaw) -> Result<Node, Error> {
        positive("the factor of the catalogue", factor)?;
        let hit_ratio = self.hit_ratio.changed(&law, 1.0 / factor)?;
        // Among this server's requests, each key is requested 1/factor times as often, and so is a
        // key that is being read.
        let joining = self.joining / factor;
        Ok(Node { hit_ratio, joining, ..self.clone() })
    }

    fn with_memory(&self, factor: f64, law: impl HitLaw) -> Result<Node, Error> {
        positive("the factor of the memory", factor)?;
        let hit_ratio = self.hit_ratio.changed(&law, factor)?;
        Ok(Node { hit_ratio, ..self.clone() })
    }

    fn with_speed(&self, factor: f64) -> Result<Node, Error> {
        positive("the factor of the speed", factor)?;
        let mut node = self.clone();
        node.groups.iter_mut().for_each(|group| group.factor /= factor);
        Ok(node)
    }
}

impl Server for Spotify {
    fn check(&self) -> Result<(), Error> {
        // The constructor has checked the fields.
        Ok(())
    }

    fn stable(&self, rate: f64) -> Result<(), Error> {
        let saturation = Spotify::saturation(self);
        let stable = is_stable(self.utilisation(rate), 1.0);
        stable.then_some(()).ok_or(Error::Unstable { rate, saturation })
    }

    fn saturation(&self) -> f64 {
        Spotify::saturation(self)
    }

    fn confidence_limit(&self) -> f64 {
        Spotify::confidence_limit(self)
    }

    fn within(&self, t_s: f64) -> impl Fn(f64) -> f64 + use<> {
        let server = *self;
        let answered = if t_s >= 0.0 { 1.0 } else { 0.0 };
        move |rate| {
            server.cdf(rate, t_s).unwrap_or_else(|_| answered * server.hit_ratio().at_rate(rate))
        }
    }

    fn with_catalogue(&self, factor: f64, law: impl HitLaw) -> Result<Spotify, Error> {
        positive("the factor of the catalogue", factor)?;
        self.with_hit_ratio(self.hit_ratio().changed(&law, 1.0 / factor)?)
    }

    fn with_memory(&self, factor: f64, law: impl HitLaw) -> Result<Spotify, Error> {
        positive("the factor of the memory", factor)?;
        self.with_hit_ratio(self.hit_ratio().changed(&law, factor)?)
    }

    fn with_speed(&self, factor: f64) -> Result<Spotify, Error> {
        positive("the factor of the speed", factor)?;
        Spotify::new(self.hit_ratio(), self.service_rate() * factor, self.disks())
    }
}
