//! Stations whose service is not exponential: each is an M/G/m queue by itself.

use crate::error::Error;
use crate::queue::{Md1, Mg1, Mgm, Queue};

use super::station::service_law;
use super::system::Network;
use super::visits::Visits;

impl Network {
    /// Whether service at a station is stated not to be exponential.
    pub(super) fn has_general(&self) -> bool {
        self.stations.iter().any(|station| station.scv().is_some())
    }

    /// [`Error::Network`] for closed classes beside stations whose service is not exponential, without which first come, first
    /// served has no product form.
    pub(super) fn check_general(&self) -> Result<(), Error> {
        let Some(station) = self.stations.iter().find(|station| station.scv().is_some()) else {
            return Ok(());
        };
        match self.classes.iter().find(|class| class.customers() > 0) {
            Some(class) => Err(class.wrong(&format!(
                "is closed, but service at station {:?} is not exponential (scv), which is solved for open classes only; \
                 give the class a rate, or leave scv out",
                station.name()
            ))),
            None => Ok(()),
        }
    }

    /// The mean response time in seconds of a visit to each station whose service is not exponential and that is visited.
    pub(super) fn general_responses(&self) -> Result<Vec<Option<f64>>, Error> {
        (0..self.stations.len()).map(|k| self.general_response(k)).collect()
    }

    fn general_response(&self, k: usize) -> Result<Option<f64>, Error> {
        let station = &self.stations[k];
        let (Some(scv), Some(servers)) = (station.scv(), station.server_count()) else {
            return Ok(None);
        };
        let (why, remedy) =
            ("whose scv is that of one law", "give both the same, with the scv of all");
        let Some(Visits { rate, service_s }) = self.visits(k, why, remedy)? else {
            return Ok(None);
        };
        let law = service_law(service_s, scv)?;
        Ok(Some(match servers {
            1 if scv == 0.0 => Md1::new(rate, service_s)?.response_mean(),
            1 => Mg1::new(rate, law)?.response_mean(),
            m => Mgm::new(rate, m, law)?.response_mean(),
        }))
    }
}
