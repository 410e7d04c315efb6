//! What is known of an object.

use std::ops::Deref;

use origin::Metadata;

use device::object::Object;

/// What is known of an object that was found.
#[derive(Clone, Debug)]
pub enum Version {
    /// An object that is in memory, or of which a device has a part.
    Held(Object),
    /// One of which the metadata alone is here.
    Described(Box<Metadata>),
}

impl Deref for Version {
    type Target = Metadata;
    fn deref(&self) -> &Metadata {
        match self {
            Version::Held(object) => object.metadata(),
            Version::Described(metadata) => metadata,
        }
    }
}

impl From<Metadata> for Version {
    fn from(metadata: Metadata) -> Version {
        Version::Described(Box::new(metadata))
    }
}
