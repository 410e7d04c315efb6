//! Tokens of HTTP's clients. A server need not know a token, only its hash, and the hash alone may be configured.
//!
//! The hash is fast and has no salt: it protects tokens that nobody guesses, such as [`new_secret`] makes.

use ground::hex;
use ring::rand::{SecureRandom, SystemRandom};

/// What a hash begins with where it is configured in place of a token.
const PREFIX: &str = "blake3:";

/// A new random secret of 256 bits, as hexadecimal digits: a token, or a master key.
///
/// # Panics
///
/// If the system has no random numbers: no secret may be made then.
pub fn new_secret() -> String {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).expect("the system has random numbers");
    hex::encode(&bytes)
}

/// What may be configured in place of a token.
pub fn hashed(token: &str) -> String {
    format!("{PREFIX}{}", blake3::hash(token.as_bytes()).to_hex())
}

/// Whether a configured text says that it is a hash.
pub fn is_hash(configured: &str) -> bool {
    configured.starts_with(PREFIX)
}

/// The hash of a token that is configured as it is, or as its hash. `None` if it is a hash of another form.
pub fn hash_of(configured: &str) -> Option<blake3::Hash> {
    match configured.strip_prefix(PREFIX) {
        Some(hex) => blake3::Hash::from_hex(hex).ok(),
        None => Some(blake3::hash(configured.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_and_its_hash_are_the_same_to_a_server() {
        let token = new_secret();
        assert!(token.len() == 64 && token != new_secret());
        let configured = hashed(&token);
        assert!(is_hash(&configured) && !configured.contains(&token));
        assert_eq!(hash_of(&configured), hash_of(&token));
        // The empty input's hash, from the test vectors of BLAKE3.
        let empty = "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(hashed(""), empty);
        // The hash itself is no token.
        assert_ne!(hash_of(&configured), Some(blake3::hash(configured.as_bytes())));
        for wrong in ["blake3:", "blake3:00", &configured[..70], &configured.replace(':', ":x")] {
            assert_eq!(hash_of(wrong), None, "{wrong}");
        }
    }
}
