//! Errors of this crate: devices that cannot be opened or prepared, and threads that cannot be started.

use std::io;
use std::path::PathBuf;

use origin::OpenError;
use origin::marker::Unclaimed;

use crate::disk::record::RECORD_VERSION;

/// Why devices cannot be opened, prepared or served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// One device cannot be used; the others can.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// A folder holds what is not a device's: a mistake of the configuration, which ends the start.
    #[error(transparent)]
    Unclaimed(Unclaimed),
    /// Another process uses the folder or the device, or its lock cannot be made.
    #[error(transparent)]
    Lock(#[from] OpenError),
    /// The kernel refuses the block device to this process.
    #[error(
        "{} is in use: by another process, or a part of it is mounted, or it is a part of another device; \
         name another, or stop what uses it", .0.display()
    )]
    InUse(PathBuf),
    /// What is to be prepared is a folder.
    #[error("{} is a folder, which needs no preparation; name a block device", .0.display())]
    Folder(PathBuf),
    /// The size of a device is not known.
    #[error("{}: its size", .path.display())]
    Size {
        /// The device.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A device cannot be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// The device.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There is something on a device that may not be destroyed.
    #[error("{} holds {there}: nothing is changed; --destroy overwrites it", .path.display())]
    Occupied {
        /// The device.
        path: PathBuf,
        /// What is there.
        there: String,
    },
    /// Segments of this size cannot be addressed.
    #[error("a segment of {0} bytes: between 4096 and 4294967295 expected")]
    SegmentBytes(u64),
    /// A device has too few bytes.
    #[error(
        "{} has {bytes} bytes: too few for {segments} segments of {segment_bytes}; name a larger device, or \
         give smaller segments", .path.display()
    )]
    TooSmall {
        /// The device.
        path: PathBuf,
        /// Its bytes.
        bytes: u64,
        /// The fewest segments that a device has.
        segments: u64,
        /// Bytes of each.
        segment_bytes: u64,
    },
    /// An emulated device cannot be emulated.
    #[error("device {id}")]
    Emulated {
        /// Its number in the configuration.
        id: usize,
        /// What is wrong with its service times.
        source: Box<Error>,
    },
    /// There is no distribution of service times with these parameters.
    #[error("invalid distribution of service times: {0}")]
    Distribution(String),
    /// Service times that were measured are to be read from no file.
    #[error("an empirical profile needs a file")]
    NoServiceTimesFile,
    /// A line of a file of service times is something else.
    #[error("{}, line {line}: {text:?} is not a time in milliseconds", .path.display())]
    ServiceTime {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A file of service times is empty.
    #[error("{} contains no service times", .0.display())]
    NoServiceTimes(PathBuf),
    /// The system has no thread for this process.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Why a device cannot be used, though the others can.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The folder cannot be made, read or written.
    #[error("the device's folder {0} cannot be used: {1}")]
    Io(String, io::Error),
    /// Another node wrote it, or its marker cannot be read.
    #[error("the device cannot be used: {0}")]
    Unclaimed(Unclaimed),
    /// A newer program wrote it.
    #[error(
        "{path} has format version {version}, and this program knows {RECORD_VERSION}; use the program that \
         wrote it, or empty the folder"
    )]
    Version {
        /// The file.
        path: String,
        /// Its version.
        version: u8,
    },
    /// What the path names is used as a block device, and cannot be.
    #[error("the device {0} cannot be used: {1}")]
    Raw(String, String),
}
