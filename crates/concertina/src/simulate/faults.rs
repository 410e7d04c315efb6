//! Parses the faults of a simulation.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use engine::sim::{Clock, Fault, FaultKind, Network, Process};
use ground::window::Nanos;

use super::time::{nanos, span};

/// A fault with its target, start and duration: `kill:a@10s+5s`.
#[derive(Clone, Debug, PartialEq)]
pub struct AskedFault {
    kind: Kind,
    /// The target: a member, `gateway`, `gateway-1` …, or `origin`.
    who: String,
    /// Start, seconds after the warm-up.
    pub(super) at_s: f64,
    /// Duration in seconds; `None` is permanent.
    for_s: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Kill,
    Wipe,
    Pause,
    Cut,
    Slow(f64),
    /// Keys that the popular ones move by.
    Shift(u32),
}

impl FromStr for AskedFault {
    type Err = String;

    fn from_str(text: &str) -> Result<AskedFault, String> {
        let wrong = || {
            format!(
                "invalid fault `{text}`: write KIND:WHO@AT+FOR, like `kill:a@10s+5s`; kinds are kill, wipe, pause, \
                 cut, slow=FACTOR and shift=KEYS, and without +FOR it lasts"
            )
        };
        // With its unit, as what is shown has one.
        let seconds = |text: &str| match text.ends_with(|unit: char| unit.is_ascii_alphabetic()) {
            true => span(text).map_err(|_| wrong()),
            false => Err(wrong()),
        };
        let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (who, when) = rest.rsplit_once('@').ok_or_else(wrong)?;
        let (at, lasts) =
            when.split_once('+').map_or((when, None), |(at, lasts)| (at, Some(lasts)));
        let kind = match kind.split_once('=') {
            None if kind == "kill" => Kind::Kill,
            None if kind == "wipe" => Kind::Wipe,
            None if kind == "pause" => Kind::Pause,
            None if kind == "cut" => Kind::Cut,
            Some(("slow", factor)) => match factor.parse() {
                Ok(factor) if (1e-3..=1e6).contains(&factor) => Kind::Slow(factor),
                _ => return Err(wrong()),
            },
            Some(("shift", by)) => Kind::Shift(by.parse().map_err(|_| wrong())?),
            _ => return Err(wrong()),
        };
        if kind == Kind::Pause && lasts.is_none() {
            return Err(format!("`{text}`: a pause needs a duration, like `pause:a@10s+5s`"));
        }
        let (at_s, for_s) = (seconds(at)?, lasts.map(seconds).transpose()?);
        Ok(AskedFault { kind, who: who.to_owned(), at_s, for_s })
    }
}

impl fmt::Display for AskedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Kill => write!(f, "kill")?,
            Kind::Wipe => write!(f, "wipe")?,
            Kind::Pause => write!(f, "pause")?,
            Kind::Cut => write!(f, "cut")?,
            Kind::Slow(factor) => write!(f, "slow={factor}")?,
            Kind::Shift(by) => write!(f, "shift={by}")?,
        }
        write!(f, ":{}@{}s", self.who, self.at_s)?;
        self.for_s.map_or(Ok(()), |seconds| write!(f, "+{seconds}s"))
    }
}

impl AskedFault {
    /// The faults for the simulator, given the names of the nodes and the number of gateways: one, or one for each member whose name
    /// begins as `PREFIX*` says, all at once or, with `PREFIX*/N`, N of them at a time, each N when those before are back.
    ///
    /// # Errors
    /// If a target does not exist, or the fault does not apply to it.
    pub fn faults(
        &self,
        names: &[&str],
        gateways: usize,
        warmup_s: f64,
    ) -> anyhow::Result<Vec<Fault>> {
        let (who, at_once) = match self.who.split_once('/') {
            Some((who, number)) => (who, number.parse::<usize>().ok().filter(|n| *n > 0)),
            None => (self.who.as_str(), Some(names.len().max(1))),
        };
        let Some(prefix) = who.strip_suffix('*') else {
            return Ok(vec![self.fault(names, gateways, warmup_s)?]);
        };
        let Some(at_once) = at_once else {
            bail!("{self}: write how many at a time, like kill:{prefix}*/10@10s+5s");
        };
        if self.who.contains('/') && self.for_s.is_none() {
            bail!("{self}: one after the other needs a duration, like kill:{prefix}*/10@10s+5s");
        }
        let members: Vec<&&str> = names.iter().filter(|name| name.starts_with(prefix)).collect();
        if members.is_empty() {
            bail!("{self}: no member's name begins with {prefix:?}; there are {names:?}");
        }
        let one = |(at, name): (usize, &&&str)| {
            let at_s = self.at_s + (at / at_once) as f64 * self.for_s.unwrap_or(0.0);
            let one = AskedFault { who: (**name).to_string(), at_s, ..self.clone() };
            one.fault(names, gateways, warmup_s)
        };
        members.iter().enumerate().map(one).collect()
    }

    /// The fault for the simulator, given the names of the nodes and the number of gateways.
    ///
    /// # Errors
    /// If the target does not exist, or the fault does not apply to it.
    fn fault(&self, names: &[&str], gateways: usize, warmup_s: f64) -> anyhow::Result<Fault> {
        let at = nanos(warmup_s + self.at_s).max(1);
        let time = self.for_s.map_or(Nanos::MAX, nanos);
        match (self.kind, self.who == "keys") {
            (Kind::Shift(by), true) if self.for_s.is_none() => {
                return Ok(Fault { at, kind: FaultKind::Shift { by } });
            }
            (Kind::Shift(_), _) | (_, true) => {
                bail!("{self}: keys are shifted, like shift=100:keys@10s")
            }
            _ => {}
        }
        if self.who == "origin" {
            let kind = match self.kind {
                Kind::Cut | Kind::Kill => FaultKind::OriginDead { time },
                Kind::Slow(factor) => FaultKind::OriginSlow { factor, time },
                Kind::Wipe | Kind::Pause | Kind::Shift(_) => {
                    bail!("{self}: an origin can only be cut or slow")
                }
            };
            return Ok(Fault { at, kind });
        }
        let node = names.iter().position(|name| *name == self.who);
        let gateway = match self.who.strip_prefix("gateway") {
            Some("") => Some(0),
            Some(number) => number.strip_prefix('-').and_then(|n| n.parse::<usize>().ok()),
            None => None,
        };
        let gateway = gateway.filter(|g| *g < gateways).map(|g| names.len() + g);
        let Some(process) = node.or(gateway).and_then(|p| Process::try_from(p).ok()) else {
            bail!(
                "{self}: there is no {:?}; there are {names:?}, {gateways} gateway(s) and \"origin\"",
                self.who
            );
        };
        let (clock, devices_lost) = (Clock::default(), self.kind == Kind::Wipe);
        let kind = match self.kind {
            Kind::Kill | Kind::Wipe => FaultKind::Kill { process, down: time, devices_lost, clock },
            Kind::Pause => FaultKind::Pause { process, time },
            Kind::Cut => FaultKind::Cut { process, from: Vec::new(), time },
            Kind::Slow(factor) if node.is_some() => FaultKind::Slow { process, factor, time },
            Kind::Slow(_) | Kind::Shift(_) => bail!("{self}: a gateway has no devices to be slow"),
        };
        Ok(Fault { at, kind })
    }
}

/// Shares of messages that are lost, duplicated or delayed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Messages {
    /// Share of messages that are lost.
    pub loss: f64,
    /// Share of messages that arrive twice.
    pub duplicates: f64,
    /// Share of messages that are delayed, so that others overtake them, by an exponential time of
    /// mean `late_s`.
    pub late: f64,
    /// Mean delay, seconds.
    pub late_s: f64,
}

impl Messages {
    /// Applies these faults to a network.
    pub fn network(&self, network: Network) -> Network {
        let mut network = Network { loss: self.loss, duplicates: self.duplicates, ..network };
        if self.late > 0.0 {
            network.late = (self.late, engine::sim::Law::exponential(self.late_s));
        }
        network
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_written_alike() {
        for text in [
            "kill:a@10s+5s",
            "wipe:a@0s",
            "pause:gateway@1.5s+2s",
            "slow=4:origin@1s+2s",
            "shift=50:keys@3s",
            "kill:a@7776000s+14400s",
        ] {
            assert_eq!(text.parse::<AskedFault>().unwrap().to_string(), text);
        }
        let long: AskedFault = "kill:a@90d+4h".parse().unwrap();
        assert_eq!(long.to_string(), "kill:a@7776000s+14400s");
        for bad in [
            "",
            "kill",
            "kill:a",
            "kill:a@x",
            "kill:a@1",
            "kill:a@-1s",
            "pause:a@1s",
            "slow:a@1s",
            "slow=0:a@1s",
            "slow=NaN:a@1s",
            "burn:a@1s",
            "kill:a@1s+",
            "kill:a@1e99s",
        ] {
            assert!(bad.parse::<AskedFault>().is_err(), "{bad}");
        }
    }

    #[test]
    fn who_is_not_there_is_named() {
        let fault = |text: &str| text.parse::<AskedFault>().unwrap().fault(&["a", "b"], 2, 30.0);
        let kill = fault("kill:b@10s+5s").unwrap();
        assert_eq!(kill.at, 40_000_000_000);
        assert!(matches!(
            kill.kind,
            FaultKind::Kill { process: 1, down: 5_000_000_000, devices_lost: false, .. }
        ));
        assert!(matches!(
            fault("cut:gateway-1@0s").unwrap().kind,
            FaultKind::Cut { process: 3, time: Nanos::MAX, .. }
        ));
        assert!(matches!(
            fault("cut:origin@0s+1s").unwrap().kind,
            FaultKind::OriginDead { time: 1_000_000_000 }
        ));
        assert_eq!(fault("shift=5:keys@1s").unwrap().kind, FaultKind::Shift { by: 5 });
        for bad in [
            "kill:c@1s",
            "kill:gateway-2@1s",
            "slow=2:gateway@1s",
            "pause:origin@1s+1s",
            "shift=5:a@1s",
            "kill:keys@1s",
            "shift=5:keys@1s+1s",
        ] {
            let error = fault(bad).unwrap_err().to_string();
            assert!(error.starts_with(bad), "{error}");
        }
    }

    #[test]
    fn members_whose_names_begin_alike_fail_together_or_in_turn() {
        let names = ["a-1", "a-2", "a-3", "b-1"];
        let faults = |text: &str| text.parse::<AskedFault>().unwrap().faults(&names, 1, 0.0);
        let times = |text: &str| -> Vec<(u64, Process)> {
            let of = |fault: &Fault| match fault.kind {
                FaultKind::Kill { process, .. } => (fault.at / 1_000_000_000, process),
                _ => panic!("{fault:?}"),
            };
            faults(text).unwrap().iter().map(of).collect()
        };
        assert_eq!(times("kill:a-*@5s+2s"), [(5, 0), (5, 1), (5, 2)]);
        assert_eq!(times("kill:*/2@5s+3s"), [(5, 0), (5, 1), (8, 2), (8, 3)]);
        assert_eq!(times("kill:b-1@5s+3s"), [(5, 3)]);
        for bad in
            ["kill:c*@1s", "kill:*/0@1s+1s", "kill:*/x@1s+1s", "kill:*/2@1s", "kill:a-1/2@1s+1s"]
        {
            let error = faults(bad).unwrap_err().to_string();
            assert!(error.starts_with(bad), "{error}");
        }
    }
}
