//! The root certificates that clients of TLS trust: those of the system, or of a file in PEM format.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::error::Error;
use crate::file::{self, PEM_BYTES_MAX};

/// The roots of the system; empty if it has none.
pub fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    // Systems have some roots of kinds that rustls does not support: those are skipped.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// The certificates of a file, all of which must be valid: somebody chose them.
///
/// # Errors
/// [`Error::Certificates`], or [`Error::NoCertificate`] for a file without any.
pub fn read_roots(path: &Path) -> Result<RootCertStore, Error> {
    let invalid = |source| Error::Certificates { path: path.to_owned(), source };
    let text = file::read(path, PEM_BYTES_MAX).map_err(|error| invalid(error.into()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| invalid(error.into()))?;
        roots.add(certificate).map_err(|error| invalid(error.into()))?;
    }
    match roots.is_empty() {
        true => Err(Error::NoCertificate { path: path.to_owned() }),
        false => Ok(roots),
    }
}
