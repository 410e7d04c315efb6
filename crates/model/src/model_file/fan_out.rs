//! Predictions of requests that consist of several.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::fork_join::FanOut;
use crate::storage::{Node, Operating};

use super::cluster::{ClusterModel, ClusterPrediction};
use super::model::Model;
use super::parts::Parameter;
use super::predict::{Point, Prediction};

/// The responses of one kind of request at a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseTimes {
    /// Shares within the requested times, of Concertina's model.
    pub within: Vec<WithinTime>,
    /// Median, seconds.
    pub response_p50: Parameter,
    /// 99th percentile, seconds.
    pub response_p99: Parameter,
}

/// The share of requests answered within a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithinTime {
    /// The time, seconds.
    pub t_s: f64,
    /// P(T ≤ t).
    pub share: Parameter,
}

/// The prediction for requests of several parts at a load, beside that of one part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FanOutPrediction {
    /// Load of parts on all servers, requests/s.
    pub rate: f64,
    /// Parts of a request.
    pub parts: u32,
    /// Parts that must answer.
    pub needed: u32,
    /// Requests/s, if all parts belong to such requests.
    pub requests_per_s: f64,
    /// One part: the response that a single request has.
    pub part: ResponseTimes,
    /// The whole request.
    pub request: ResponseTimes,
    /// How many other parts of its request a part meets at its device on average, if all are sent to these servers at
    /// random at the same moment. They wait for each other, which the prediction does not include: say so where this
    /// is not small.
    pub others_at_device: f64,
}

impl Model {
    /// The prediction for requests of several parts, at the load (of parts) of a prediction of single requests. Parts
    /// are independent ([`FanOut`]), so that the intervals of the single request carry over. Cost: some 700 CDFs, and
    /// four a replicate.
    ///
    /// ```
    /// # fn multi_get(model: &model::Model) -> Result<(), model::Error> {
    /// let single = model.predict(1_000.0, &[0.020])?;
    /// let all = model.predict_fan_out(&single, model::fork_join::FanOut::new(10, 10)?)?;
    /// assert!(all.request.response_p99.value >= all.part.response_p99.value);
    /// # Ok(())
    /// # }
    /// ```
    pub fn predict_fan_out(
        &self,
        single: &Prediction,
        fan_out: FanOut,
    ) -> Result<FanOutPrediction, Error> {
        let servers = f64::from(single.servers);
        let rate = single.rate / servers;
        let node = self.node()?;
        let operating = match node.operating(rate) {
            // As for the single request, whose share within any time is from 0 to 1 there.
            Err(Error::Unstable { .. }) if self.unknown_beyond.is_some() => {
                node.operating_unchecked(rate)
            }
            found => found?,
        };
        let reads = reads_of_a_device(&node, &operating);
        let others = f64::from(fan_out.parts() - 1) / servers * reads.meeting;
        predict(single.rate, &single.points, fan_out, others, |p| {
            self.quantile_with_interval(rate, p)
        })
    }
}

impl ClusterModel {
    /// [`Model::predict_fan_out`] for a cluster, whose parts go to its nodes by their shares.
    pub fn predict_fan_out(
        &self,
        single: &ClusterPrediction,
        fan_out: FanOut,
    ) -> Result<FanOutPrediction, Error> {
        let operating = self.cluster().operating(single.rate)?;
        let (mut meeting, mut reads) = (0.0, 0.0);
        for (member, operating) in self.cluster().members.iter().zip(&operating.members) {
            let node = reads_of_a_device(&member.server, operating);
            meeting += member.share * member.share * node.reads * node.meeting;
            reads += member.share * node.reads;
        }
        let met = if reads > 0.0 { meeting / reads } else { 0.0 };
        let others = f64::from(fan_out.parts() - 1) * met;
        predict(single.rate, &single.points, fan_out, others, |p| {
            self.quantile_with_interval(single.rate, p)
        })
    }
}

/// Reads of devices by the requests of a node.
struct DeviceReads {
    /// Reads for a request.
    reads: f64,
    /// The probability that another request to the node reads the same device as one that reads a device.
    meeting: f64,
}

fn reads_of_a_device(node: &Node, operating: &Operating) -> DeviceReads {
    let reads = match operating.rate > 0.0 {
        true => operating.device_rate / operating.rate,
        false => operating.miss_ratio,
    };
    let same = |group: &crate::storage::DeviceGroup| f64::from(group.count) * group.share.powi(2);
    DeviceReads { reads, meeting: reads * node.groups.iter().map(same).sum::<f64>() }
}

fn predict(
    rate: f64,
    points: &[Point],
    fan_out: FanOut,
    others_at_device: f64,
    quantile: impl Fn(f64) -> Result<Parameter, Error>,
) -> Result<FanOutPrediction, Error> {
    let part = response_times(points, &quantile)?;
    // P(request ≤ t) rises with P(part ≤ t), so both ends of an interval carry over.
    let whole = |part: &WithinTime| {
        let Parameter { value, low, high, unit } = &part.share;
        let [value, low, high] = [value, low, high].map(|share| fan_out.within(*share));
        WithinTime { t_s: part.t_s, share: Parameter { value, low, high, unit: unit.clone() } }
    };
    let request = ResponseTimes {
        within: part.within.iter().map(whole).collect(),
        response_p50: quantile(fan_out.part_share(0.5))?,
        response_p99: quantile(fan_out.part_share(0.99))?,
    };
    Ok(FanOutPrediction {
        rate,
        parts: fan_out.parts(),
        needed: fan_out.needed(),
        requests_per_s: rate / f64::from(fan_out.parts()),
        part,
        request,
        others_at_device,
    })
}

/// The responses of a single request, from the points of its prediction and its quantiles.
pub(super) fn response_times(
    points: &[Point],
    quantile: impl Fn(f64) -> Result<Parameter, Error>,
) -> Result<ResponseTimes, Error> {
    let within = |point: &Point| WithinTime { t_s: point.t_s, share: point.concertina.clone() };
    Ok(ResponseTimes {
        within: points.iter().map(within).collect(),
        response_p50: quantile(0.5)?,
        response_p99: quantile(0.99)?,
    })
}
