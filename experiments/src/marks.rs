//! Marks: what was wrong with a step of a measurement, so that a claim that rests on it can say so.
//!
//! A mark is decided by the load generator's own account and by the host's counters, before anybody
//! looks at a response time.

use serde::{Deserialize, Serialize};

use record::RunFolder;

/// Largest lateness of the generator, at its 99th percentile, as a share of the smallest time
/// judged.
const LATENESS_SHARE_MAX: f64 = 0.1;
/// Largest share of a core that the generator may use, and of all cores that the host may.
const PROCESSOR_MAX: f64 = 0.8;
/// Largest mean share of the processors that the hypervisor may give to others.
const STOLEN_MAX: f64 = 0.05;

/// Kinds of complaints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Complaint {
    /// The generator sent requests too late for the times that are judged.
    Late,
    /// A processor was nearly full.
    Processor,
    /// The hypervisor gave processor time to other guests.
    Stolen,
    /// The generator complained about itself in other words.
    Generator,
    /// Every permitted attempt was disturbed: the claim is not shown.
    AttemptsExhausted,
}

/// One complaint about one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Name of the step.
    pub step: String,
    /// Kind of the complaint.
    pub complaint: Complaint,
    /// The figure behind it, in words.
    pub detail: String,
}

impl Mark {
    /// A mark.
    pub fn new(step: impl Into<String>, complaint: Complaint, detail: impl Into<String>) -> Mark {
        Mark { step: step.into(), complaint, detail: detail.into() }
    }
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.step, self.detail)
    }
}

/// A load with the marks of its run.
#[derive(Clone, Debug, Default)]
pub struct MarkedLoad {
    /// Requests/s that were asked for; `None` for a run that every claim rests on, as those fitted.
    pub rate: Option<f64>,
    /// The marks.
    pub marks: Vec<Mark>,
}

/// Marks of the loads that a claim up to `rate_max` rests on.
pub fn up_to(loads: &[MarkedLoad], rate_max: f64) -> Vec<Mark> {
    // A measured rate differs from the one asked for by chance.
    let counts = |load: &&MarkedLoad| load.rate.is_none_or(|rate| rate <= rate_max * 1.02);
    loads.iter().filter(counts).flat_map(|load| load.marks.clone()).collect()
}

/// What is wrong with a run of the load generator whose responses are judged at `smallest_s` and
/// above.
pub fn of_run(step: &str, run: &RunFolder, smallest_s: f64) -> Vec<Mark> {
    let mut marks = Vec::new();
    let mut mark = |complaint, detail| marks.push(Mark::new(step, complaint, detail));
    for one in &run.steps {
        let generator = &one.generator;
        if generator.lateness_us_p99 > LATENESS_SHARE_MAX * smallest_s * 1e6 {
            let (late_ms, judged_ms) = (generator.lateness_us_p99 / 1e3, smallest_s * 1e3);
            let detail = format!(
                "the 99th percentile of lateness is {late_ms:.2} ms where {judged_ms:.0} ms are judged"
            );
            mark(Complaint::Late, detail);
        }
        if generator.cpu > PROCESSOR_MAX {
            let percent = generator.cpu * 100.0;
            mark(Complaint::Processor, format!("the generator used {percent:.0} % of its core"));
        }
        for complaint in &generator.complaints {
            mark(Complaint::Generator, complaint.clone());
        }
    }
    let (busy, stolen) = (busy(run), stolen(run));
    if busy > PROCESSOR_MAX {
        mark(Complaint::Processor, format!("the processors were {:.0} % busy", busy * 100.0));
    }
    if stolen > STOLEN_MAX {
        let percent = stolen * 100.0;
        mark(Complaint::Stolen, format!("the hypervisor took {percent:.1} % of the processors"));
    }
    marks
}

/// Mean share of the processors that other guests had during a run.
pub fn stolen(run: &RunFolder) -> f64 {
    mean(run, |host| host.cpu_stolen)
}

/// Mean share of the processors in use during a run.
pub fn busy(run: &RunFolder) -> f64 {
    mean(run, |host| host.cpu_user + host.cpu_system)
}

fn mean(run: &RunFolder, of: impl Fn(&record::Host) -> f64) -> f64 {
    run.host.iter().map(of).sum::<f64>() / run.host.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Generator, Host, Machine, Run, Step};

    fn run(generator: Generator, host: Host) -> RunFolder {
        let about = Run {
            format: record::FORMAT,
            version: String::new(),
            kind: "load".to_owned(),
            start_unix_us: 0,
            laboratory: None,
            machine: Machine::default(),
            asked: toml::Table::new(),
        };
        let (start_unix_us, end_unix_us) = (0, 1);
        let step =
            Step { index: 0, rate: None, clients: None, start_unix_us, end_unix_us, generator };
        RunFolder {
            dir: "run".into(),
            run: about,
            windows: Vec::new(),
            samples: Vec::new(),
            times: Vec::new(),
            host: vec![host],
            steps: vec![step],
        }
    }

    #[test]
    fn a_disturbed_step_is_marked_and_a_quiet_one_is_not() {
        let quiet = Generator { lateness_us_p99: 1_900.0, cpu: 0.7, ..Generator::default() };
        let host = Host { cpu_user: 0.4, cpu_system: 0.3, cpu_stolen: 0.04, ..Host::default() };
        assert_eq!(of_run("a", &run(quiet.clone(), host.clone()), 0.02), []);
        use Complaint::{Generator as Words, Late, Processor, Stolen};
        // The same lateness is too much where shorter times are judged.
        let late = of_run("a", &run(quiet, host), 0.01);
        assert!(late.len() == 1 && late[0].complaint == Late, "{late:?}");
        let complaints = vec!["requests were dropped".to_owned()];
        let bad =
            Generator { lateness_us_p99: 2_100.0, cpu: 0.9, complaints, ..Generator::default() };
        let host = Host { cpu_user: 0.5, cpu_system: 0.4, cpu_stolen: 0.06, ..Host::default() };
        let marks = of_run("a", &run(bad, host), 0.02);
        let kinds: Vec<Complaint> = marks.iter().map(|mark| mark.complaint).collect();
        assert_eq!(kinds, [Late, Processor, Words, Processor, Stolen], "{marks:?}");
    }

    #[test]
    fn a_claim_rests_on_fits_and_on_loads_up_to_its_limit() {
        let load = |rate, step: &str| MarkedLoad {
            rate,
            marks: vec![Mark::new(step, Complaint::Late, "")],
        };
        let loads = [load(None, "fit"), load(Some(100.0), "low"), load(Some(200.0), "high")];
        let steps = |rate_max| -> Vec<String> {
            up_to(&loads, rate_max).into_iter().map(|mark| mark.step).collect()
        };
        assert_eq!(steps(99.0), ["fit", "low"]);
        assert_eq!(steps(f64::INFINITY), ["fit", "low", "high"]);
    }
}
