//! `concertina drain`: takes a node's keys away before it is stopped for good.

use std::process::ExitCode;

use http::Method;

use super::data_print as print;
use super::live::Endpoint;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina drain node-3
  concertina drain node-3 --resume
  concertina drain node-3 --server http://127.0.0.1:7071 --token-file token

For clusters whose members are in etcd (membership.kind = \"etcd\"). The node's keys move to the others, and
it goes on serving until it is stopped; it has then left. A node that is stopped without being drained keeps
its place for when it is back. `concertina status` shows the members.

Any gateway or node of the cluster takes the order, whichever node it is about; with cluster.tls_ca nodes take it
from no client, and a gateway is asked.")]
pub struct Args {
    /// The node, as it is named in the cluster
    node: String,
    /// Give its keys back instead
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    at: Endpoint,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let order = if args.resume { "resume" } else { "drain" };
    let path = format!("/admin/members/{}/{order}", args.node);
    let done: serde_json::Value = args.at.json(&Method::POST, &path)?;
    let what = if args.resume { "takes keys again" } else { "takes no keys" };
    print::line(&format!("{} {what} from epoch {} on", args.node, done["epoch"]))
}
