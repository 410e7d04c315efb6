//! `concertina device`.

use std::path::PathBuf;
use std::process::ExitCode;

use configuration::Size;
use device::disk::block::{FormatOptions, Formatted, format};

use crate::cli::output::outln;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina device format /dev/nvme1n1
  concertina device format /dev/nvme1n1 --record-bytes 64KiB --destroy")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Prepare a block device, or a file, for device.N.path: it is then used without a file system
    Format {
        /// The block device or file
        path: PathBuf,
        /// Size of the segments [default: 1/16 of the device, at least 1MiB and at most 64MiB, or
        /// 1/1024 of the device if that is more]
        #[arg(long, value_name = "SIZE")]
        segment_bytes: Option<Size>,
        /// Mean size of objects with key and metadata. Segments with smaller ones are read at each
        /// start
        #[arg(long, value_name = "SIZE", default_value = "1KiB")]
        record_bytes: Size,
        /// Overwrite what is on the device
        #[arg(long)]
        destroy: bool,
    },
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Command::Format { path, segment_bytes, record_bytes, destroy } = &args.command;
    let segment_bytes = segment_bytes.map_or(0, |size| size.0);
    let wanted = FormatOptions { segment_bytes, record_bytes: record_bytes.0, destroy: *destroy };
    let made = format(path, wanted)?;
    let Formatted { segments_max, segment_bytes, destroyed, .. } = &made;
    if let Some(destroyed) = destroyed {
        outln!("{}: {destroyed} was overwritten", path.display());
    }
    outln!(
        "{}: formatted, {segments_max} segments of {}. To use all of it:\n\n    [[device]]\n    path = {:?}\n    bytes = \
         \"{}\"",
        path.display(),
        Size(*segment_bytes),
        path.display().to_string(),
        Size(made.room())
    );
    Ok(ExitCode::SUCCESS)
}
