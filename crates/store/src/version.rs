//! What is known of an object.

use std::ops::Deref;
use std::sync::OnceLock;

use origin::Metadata;

use device::object::Object;

/// What is known of an object that was found.
#[derive(Clone, Debug)]
pub enum Version {
    /// An object that is in memory, or of which a device has a part.
    Held(HeldObject),
    /// One of which the metadata alone is here.
    Described(Box<Metadata>),
}

/// An object, and its metadata once it was looked at: it is unpacked then, which costs an allocation for each of its texts.
#[derive(Clone, Debug)]
pub struct HeldObject {
    object: Object,
    metadata: OnceLock<Box<Metadata>>,
}

impl Deref for Version {
    type Target = Metadata;
    fn deref(&self) -> &Metadata {
        match self {
            Version::Held(held) => held.metadata.get_or_init(|| Box::new(held.object.metadata())),
            Version::Described(metadata) => metadata,
        }
    }
}

impl From<Object> for Version {
    fn from(object: Object) -> Version {
        Version::Held(HeldObject { object, metadata: OnceLock::new() })
    }
}

impl From<Metadata> for Version {
    fn from(metadata: Metadata) -> Version {
        Version::Described(Box::new(metadata))
    }
}
