//! What a process and its thread that follows etcd tell each other: orders one way, and how it stands with etcd the other.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ground::window::Nanos;
use tokio::sync::oneshot;

use super::common::{Document, NotWritten};

/// What an operator orders.
pub(super) enum Order {
    /// This node serves now.
    Serve,
    /// This node ends, having handed over or not.
    Leave(bool, oneshot::Sender<()>),
    /// A member loses its keys (`true`) or gets them back.
    Drain(String, bool, oneshot::Sender<Result<u64, String>>),
    /// A new version of the common configuration.
    Configure(Document, Written),
}

/// How it stands with etcd.
#[derive(Clone, Debug, Default)]
pub(super) struct Contact {
    /// When etcd last confirmed the list.
    pub(super) confirmed: Option<Nanos>,
    /// Why it does not now.
    pub(super) error: Option<String>,
    /// Who suspects whom.
    pub(super) suspects: Vec<(String, String)>,
    /// Why this process has lost its place for good.
    pub(super) lost: Option<String>,
}

pub(super) fn lock(contact: &Mutex<Contact>) -> MutexGuard<'_, Contact> {
    contact.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new version of the common configuration, and who is told what became of it.
pub(super) type Written = oneshot::Sender<Result<u64, NotWritten>>;
