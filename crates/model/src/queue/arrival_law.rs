//! Laws of arrivals: the streams of requests that a prediction knows.
//!
//! A further law is a variant of [`ArrivalLaw`] here, with its text ([`ArrivalLaw::from_str`] and `Display`), and an
//! arm in `storage/arrivals.rs`, which says how a node behaves under it. Nothing else matches on the variants.

use std::fmt;
use std::str::FromStr;

use super::bursts::Bursts;
use super::renewal::Renewal;

/// The law of the times at which requests arrive, at a given mean rate.
///
/// Written as `poisson`, `bursts:C2:RATE` or `renewal:SCV`:
///
/// | law | what it is | effect on a queue |
/// |---|---|---|
/// | [`ArrivalLaw::Poisson`] | many independent clients | exact |
/// | [`ArrivalLaw::Bursts`] | a rate that switches between two levels | [`Bursts`]: an approximation |
/// | [`ArrivalLaw::Renewal`] | independent times between arrivals: paced clients, clumps | [`Renewal`]: exact for exponential service |
///
/// ```
/// use model::queue::ArrivalLaw;
/// let paced: ArrivalLaw = "renewal:0".parse()?;
/// assert_eq!(paced.to_string(), "renewal:0");
/// assert!("bursts:0.25:0.5".parse::<ArrivalLaw>().is_ok());
/// assert!("bursts:0.25".parse::<ArrivalLaw>().unwrap_err().contains("bursts:C2:RATE"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ArrivalLaw {
    /// A Poisson stream.
    #[default]
    Poisson,
    /// A Poisson stream whose rate switches between two levels.
    Bursts(Bursts),
    /// Independent times between arrivals.
    Renewal(Renewal),
}

impl FromStr for ArrivalLaw {
    type Err = String;

    fn from_str(text: &str) -> Result<ArrivalLaw, String> {
        let wrong = || {
            "write poisson, bursts:C2:RATE (the squared coefficient of variation of the rate, and its changes per \
             second) or renewal:SCV (the squared coefficient of variation of the times between arrivals)"
                .to_owned()
        };
        let (name, numbers) = text.split_once(':').unwrap_or((text, ""));
        let numbers = numbers.split(':').filter(|_| text.contains(':')).map(str::parse);
        let numbers: Vec<f64> = numbers.collect::<Result<_, _>>().map_err(|_| wrong())?;
        match (name, &numbers[..]) {
            ("poisson", []) => Ok(ArrivalLaw::Poisson),
            ("bursts", &[variation, change_rate]) => Bursts::new(variation, change_rate)
                .map(ArrivalLaw::Bursts)
                .map_err(|e| e.to_string()),
            ("renewal", &[scv]) => {
                Renewal::new(scv).map(ArrivalLaw::Renewal).map_err(|e| e.to_string())
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for ArrivalLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArrivalLaw::Poisson => f.write_str("poisson"),
            ArrivalLaw::Bursts(b) => write!(f, "bursts:{}:{}", b.variation(), b.change_rate()),
            ArrivalLaw::Renewal(renewal) => write!(f, "renewal:{}", renewal.scv()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_are_read_and_written() {
        for text in ["poisson", "bursts:0.25:0.5", "bursts:0:1", "renewal:0", "renewal:4.5"] {
            assert_eq!(text.parse::<ArrivalLaw>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "Poisson",
            "poisson:",
            "poisson:1",
            "bursts",
            "bursts:",
            "bursts:1",
            "bursts:1:2:3",
            "bursts:-1:1",
            "bursts:1:0",
            "renewal",
            "renewal:x",
            "renewal:NaN",
            "renewal:-1",
            "renewal:1e9",
            "renewal:inf",
            ":1",
        ] {
            assert!(bad.parse::<ArrivalLaw>().is_err(), "{bad}");
        }
    }
}
