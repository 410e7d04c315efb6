//! Queues: the laws of waiting and response times from an arrival rate and a law of service times.
//!
//! These queues are first come, first served and implement [`Queue`]: utilisation, mean numbers, and
//! the *laws* of waiting and response times, not only their means.
//!
//! | queue | arrivals | service | exact? |
//! |---|---|---|---|
//! | [`Mm1`], [`Mmm`] | Poisson | exponential; one server, m servers | yes, closed formulas |
//! | [`Gim1`] | independent, any law | exponential, one server | yes, one root |
//! | [`Md1`] | Poisson | constant, one server | yes, a sum of positive terms |
//! | [`Mg1`] | Poisson | any law, one server | yes, apart from the inversion of a transform |
//! | [`Mgm`] | Poisson | any law, m servers | an approximation |
//! | [`Mmmk`] | Poisson | exponential, m servers, room for K requests: the others are refused | yes |
//! | [`LossQueue`] | Poisson | any law, m servers, nobody waits (Erlang B) | yes |
//!
//! [`Discipline::Shared`] is the exception to first come, first served: processors that all requests
//! present share. [`crate::storage::Class`] has its law. [`InOrder`] is for works that come in spells, [`Slowdown`] for servers whose
//! speed depends on how many requests are present.
//!
//! [`ArrivalLaw`] is the law of arrivals of a prediction: Poisson, in [`Bursts`] (the load alternates between two Poisson
//! rates, and each of them is a load of any of these queues), or a [`Renewal`] process.
//!
//! [`erlang_b`] and [`erlang_c`] hold for thousands of servers.

mod arrival_law;
mod branches;
mod bursts;
mod delay;
mod departures;
mod erlang;
mod finite;
mod first_end;
mod gim1;
mod hyper;
mod in_order;
mod interpolate;
mod levels;
mod matrix;
mod md1;
mod measures;
mod mg1;
mod mgm;
mod mm1;
mod mmm;
mod moments;
mod phases;
mod regular;
mod renewal;
mod shared;
mod slowdown;

pub use arrival_law::ArrivalLaw;
pub use bursts::{Bursts, relaxation_s};
pub(crate) use departures::Departures;
pub use erlang::{erlang_b, erlang_c};
pub use finite::{LossQueue, Mmmk};
pub use gim1::Gim1;
pub use in_order::InOrder;
pub(crate) use in_order::InOrderQueue;
pub use md1::Md1;
pub use measures::Queue;
#[cfg(test)]
pub(crate) use measures::stable;
pub(crate) use mg1::waiting_mean;
pub use mg1::{Evaluated, Mg1};
pub use mgm::Mgm;
pub(crate) use mgm::MgmLoads;
pub use mm1::Mm1;
pub use mmm::Mmm;
pub use renewal::Renewal;
pub use shared::Discipline;
pub(crate) use shared::SharedQueue;
pub(crate) use slowdown::SlowdownQueue;
pub use slowdown::{HORIZON_S, Slowdown};

#[cfg(test)]
pub(crate) mod tests;
