//! Everything that is wrong in a configuration.

use std::fmt;

use origin::Mistake;

/// Everything wrong in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.len();
        write!(f, "{n} mistake{} in the configuration:", if n == 1 { "" } else { "s" })?;
        for mistake in &self.0 {
            write!(f, "\n  {}: {}", mistake.place, mistake.what)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}
