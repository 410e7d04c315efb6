//! Runs a configuration in virtual time with the code that serves, and writes a run folder like
//! that of a measurement.
//!
//! The members of the configuration become nodes of [`engine::sim`], behind gateways if there are
//! several nodes. Devices take the times of their emulation profiles. `docs/simulate.md` lists what
//! the simulation leaves out.
//!
//! - `plan`: what is simulated. `keyed`, `drawn`: the settings with keys, and with hits that are drawn.
//! - `course`: how the load changes. `faults`, `chance`: faults of a schedule, and drawn ones.
//! - `limits`: what is refused before it runs.
//! - `run`: one run. `result`: what is kept of it. `several`: runs side by side, with an interval over them.
//! - `parts`: a study dealt out to processes, and joined. `study`: seeds and loads as its units.
//! - `picture`: how a step went on, drawn.
//! - `server`: a server as its model describes it, for `drawn` and for
//! - `candidates`: the candidates of a plan, beside what the formula says of them.

mod candidates;
mod chance;
mod course;
mod drawn;
mod faults;
mod keyed;
mod limits;
mod parts;
mod picture;
mod plan;
mod result;
mod run;
mod server;
mod several;
mod study;
mod time;

pub use candidates::work::{join_candidates, simulate_candidate_part, simulate_candidates};
pub use candidates::{Assumption, CandidateQuestion, Effect, SimulatedCandidate, SimulatedPlan};
pub use chance::{Chance, Lives};
pub use course::{LoadBurst, LoadCourse};
pub use drawn::notes as drawn_notes;
pub use faults::{AskedFault, Messages};
pub use parts::{StudyPart, StudyPlace, study_id};
pub use picture::StepCourse;
pub use plan::{DrawnHits, Plan};
pub use run::{Outcome, run};
pub use several::{Interval, RunCount, RunSet, StepIntervals, run_several};
pub use study::{DonePart, join_runs, simulate_part};
pub use time::{delay, span};
