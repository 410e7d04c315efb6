//! A request in flight.

use ground::window::Nanos;

use crate::client::{Body, RequestParts};
use crate::keys::Request;
use crate::source::Job;

/// A request in flight.
#[derive(Clone, Copy)]
pub(super) struct Exchange {
    pub job: Job,
    pub request: Request,
    pub serial: u64,
    pub started: Nanos,
    pub length_met: u64,
}

/// What is sent of a request for a key.
pub(super) fn parts_of<'a>(request: &Request, key: &'a [u8], verify: bool) -> RequestParts<'a> {
    let body = Body { key: request.hash, size: request.size };
    RequestParts { operation: request.operation, key, body, form: request.form, verify }
}
