//! A small text of each format.

use shard::Shard;
use shard::index::Options;
use shard::record::Schema;

#[allow(dead_code, reason = "not every target uses a fixed text")]
/// Texts, each detected as a different format.
pub const TEXTS: [&[u8]; 4] = [
    b"Package: ed\nVersion: 1.20\nDepends: libc6 (>= 2.34), ed-data\nDescription: line editor\n old\n .\n small\n\n\
      Package: nano\nVersion: 8.4\nDepends: libc6, zlib1g\nInstalled-Size: 2900\n\nPackage: vim\nVersion: 9\nDepends: libc6,\n libselinux1 (>= 3.1~), libsodium23 (>= 1.0.14), libtinfo6 (>= 6),\n \
      vim-common (= 2:9.1), vim-runtime (= 2:9.1), libacl1 (>= 2.2.23), libgpm2 (>= 1.20.7), ed,\n libc6-dev\n \
      Description: vi\n ed and more: nano\n",
    b"{\"id\":1,\"name\":\"ed\",\"tags\":[\"a\",\"b\"],\"size\":90}\n{\"id\":2,\"name\":\"n\\u0061no\",\"size\":2900.5}\n\
      {\"id\":3,\"of\":{\"name\":\"x\"},\"size\":-1e3}\n",
    b"name,size,note\ned,90,\"a, \"\"b\"\"\"\nnano,2900,\nvim,13000,\"two\nlines\"\n",
    b"one line\nanother line\n\nabracadabra abracadabra\n",
];

/// Builds a shard of a text.
pub fn build(text: &[u8], schema: Schema) -> Vec<u8> {
    let mut file = Vec::new();
    let built = Shard::build(text, schema, &[], &Options::default(), &mut file, &mut |_| ());
    built.expect("a text of bytes can be a shard");
    file
}
