//! `concertina act`: an operator's decision on a single change that a running server advises.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use engine::act::{Entry, Status};
use engine::status::Actions;
use http::Method;

use super::data_print as print;
use super::live::Endpoint;

/// Time between two looks at the journal.
const LOOK: Duration = Duration::from_millis(500);

/// Arguments of `concertina act`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina act apply 12
  concertina act dismiss 12

`concertina why` shows the changes with their numbers. A change that is only advised, or was not made because
all changes are held, is made once when the server proposes it again, with the numbers of then; the journal
has it with the cause \"operator\". One that is dismissed is neither made nor advised again for an hour.")]
pub struct Args {
    /// What to do with the change
    verdict: VerdictArg,
    /// Its number in the journal
    id: u64,
    /// Seconds to wait until a change that is applied was made
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    wait: f64,
    #[command(flatten)]
    at: Endpoint,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum VerdictArg {
    /// Have it made once, whatever the mode of its knob
    Apply,
    /// Leave it alone for an hour
    Dismiss,
}

/// Runs `concertina act`.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let id = args.id;
    let verdict = if args.verdict == VerdictArg::Apply { "apply" } else { "dismiss" };
    let Actions { actions, .. } =
        args.at.json(&Method::POST, &format!("/admin/actions/{id}/{verdict}"))?;
    let about = actions.first().map(|entry| format!("{}: {}", entry.target, entry.change));
    let about = about.unwrap_or_else(|| format!("entry {id}"));
    if args.verdict == VerdictArg::Dismiss {
        return print::line(&format!("dismissed for an hour: {about}"));
    }
    let wait = Duration::try_from_secs_f64(args.wait.max(0.0)).unwrap_or(Duration::MAX);
    let start = Instant::now();
    loop {
        let Actions { actions, .. } = args.at.json(&Method::GET, "/actions")?;
        if let Some(made) = made_for(&actions, id) {
            let Entry { id, target, change, .. } = made;
            return print::line(&format!("made as entry {id}: {target}: {change}"));
        }
        if start.elapsed() >= wait {
            break;
        }
        std::thread::sleep(LOOK);
    }
    print::line(&format!(
        "approved: {about}\nThe server makes it when it proposes it again, within five minutes; `concertina why` shows that."
    ))
}

/// The change that was made for an entry that was approved.
fn made_for(actions: &[Entry], id: u64) -> Option<&Entry> {
    actions.iter().find(|entry| entry.approved == Some(id) && entry.status == Status::Made)
}
