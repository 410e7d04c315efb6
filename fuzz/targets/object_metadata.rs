//! Any bytes as the metadata of a stored object, and as what a peer returns of one: what is accepted is written as it
//! was read.

#![no_main]

use bytes::Bytes;
use device::object::Object;
use libfuzzer_sys::fuzz_target;
use origin::Metadata;

fuzz_target!(|data: &[u8]| {
    let Some((metadata, rest)) = Metadata::decode(data) else { return };
    let again = metadata.encode();
    // A content type of no bytes is none.
    assert_eq!(again, data[..data.len() - rest.len()]);
    assert_eq!(Metadata::decode(&again), Some((metadata.clone(), &[][..])));
    // With a body of the length that it says.
    let mut whole = again;
    let size = metadata.size.min(4096) as usize;
    whole[4..12].copy_from_slice(&(size as u64).to_le_bytes());
    whole.extend(rest.iter().copied().chain(std::iter::repeat(7)).take(size));
    let object = Object::decode(&Bytes::from(whole)).expect("metadata and a body of its length");
    assert_eq!(object.bytes_held().len(), size);
    assert_eq!(object.metadata(), Metadata { size: size as u64, ..metadata });
    let _ = object.is_its_etags();
    object.write_head(&mut Vec::new());
});
