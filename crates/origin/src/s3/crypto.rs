//! The cryptography of `object_store`: that of `ring`, and the hash of a body that is known already is not computed again.

use std::cell::Cell;

use object_store::client::{
    CryptoProvider, DigestAlgorithm, DigestContext, HmacContext, Signer, SigningAlgorithm,
};
use ring::{digest, hmac};

tokio::task_local! {
    /// The SHA-256 of the payload of the task's next request. `object_store` hashes the payload before all else.
    pub static PAYLOAD: Cell<Option<[u8; 32]>>;
}

/// See the module.
#[derive(Debug)]
pub struct Crypto;

impl CryptoProvider for Crypto {
    fn digest(&self, algorithm: DigestAlgorithm) -> object_store::Result<Box<dyn DigestContext>> {
        let algorithm = match algorithm {
            DigestAlgorithm::Sha256 => &digest::SHA256,
            other => return Err(unsupported(&format!("the digest {other:?}"))),
        };
        Ok(match PAYLOAD.try_with(Cell::take) {
            Ok(Some(hash)) => Box::new(PrecomputedHash(hash)),
            _ => Box::new(Digest(digest::Context::new(algorithm), None)),
        })
    }

    fn hmac(
        &self,
        algorithm: DigestAlgorithm,
        secret: &[u8],
    ) -> object_store::Result<Box<dyn HmacContext>> {
        let algorithm = match algorithm {
            DigestAlgorithm::Sha256 => hmac::HMAC_SHA256,
            other => return Err(unsupported(&format!("an HMAC of {other:?}"))),
        };
        Ok(Box::new(Hmac(hmac::Context::with_key(&hmac::Key::new(algorithm, secret)), None)))
    }

    fn sign(&self, algorithm: SigningAlgorithm, _: &[u8]) -> object_store::Result<Box<dyn Signer>> {
        Err(unsupported(&format!("signatures by {algorithm:?}")))
    }
}

fn unsupported(what: &str) -> object_store::Error {
    object_store::Error::NotSupported { source: format!("{what} (S3 needs none)").into() }
}

struct PrecomputedHash([u8; 32]);

impl DigestContext for PrecomputedHash {
    fn update(&mut self, _: &[u8]) {}
    fn finish(&mut self) -> object_store::Result<&[u8]> {
        Ok(&self.0)
    }
}

struct Digest(digest::Context, Option<digest::Digest>);

impl DigestContext for Digest {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }
    fn finish(&mut self) -> object_store::Result<&[u8]> {
        let done: &digest::Digest = self.1.insert(self.0.clone().finish());
        Ok(done.as_ref())
    }
}

struct Hmac(hmac::Context, Option<hmac::Tag>);

impl HmacContext for Hmac {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }
    fn finish(&mut self) -> object_store::Result<&[u8]> {
        let done: &hmac::Tag = self.1.insert(self.0.clone().sign());
        Ok(done.as_ref())
    }
}
