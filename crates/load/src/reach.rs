//! Whether a service can be reached and speaks what is asked of it, before anything is written.

use std::time::Duration;

use ground::window::SECOND;
use record::clock;

use super::error::Error;
use crate::client::{Failures, Target};

/// How long a service that refuses connections is tried again: it may be starting.
const PATIENCE_S: u64 = 2;
/// The longest wait for a connection, and for each word of a handshake.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to the service, at whichever of its addresses accepts first, which is then used; and
/// speaks the first words of TLS and HTTP/2.
///
/// # Errors
/// What each address replied, or what is wrong with the handshake.
pub(super) fn check_reachable(target: &Target) -> Result<(), Error> {
    if target.files().is_some() {
        return Ok(());
    }
    let deadline = clock::now() + PATIENCE_S * SECOND;
    let stream = loop {
        match target.addresses.connect(TIMEOUT) {
            Ok(stream) => break stream,
            Err(failures) if clock::now() >= deadline => {
                let reasons = reasons_of(&failures);
                return Err(Error::Unreachable { target: target.to_string(), reasons });
            }
            Err(_) => clock::sleep_until(clock::now() + SECOND / 10),
        }
    };
    let failed = |reason| Error::Handshake { target: target.to_string(), reason };
    for set in [std::net::TcpStream::set_read_timeout, std::net::TcpStream::set_write_timeout] {
        set(&stream, Some(TIMEOUT)).map_err(|error| failed(error.to_string()))?;
    }
    target.greet(&stream).map_err(failed)
}

/// The addresses that failed, each with its reason.
fn reasons_of(failures: &Failures) -> String {
    let each: Vec<String> =
        failures.iter().map(|(address, error)| format!("{address}: {error}")).collect();
    each.join("; ")
}
