//! Any bytes in place of an object's file in the folder origin: it is found whole, or damaged.

#![no_main]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use ground::Key;
use libfuzzer_sys::fuzz_target;
use origin::{Attributes, Folder, Origin, Sharing, SingleChunk};
use tokio::runtime::{Builder, Runtime};

struct Place {
    _folder: tempfile::TempDir,
    origin: Folder,
    file: PathBuf,
    written: Vec<u8>,
    runtime: Runtime,
}

fn file_in(folder: &Path) -> Option<PathBuf> {
    std::fs::read_dir(folder).ok()?.flatten().find_map(|entry| match entry.path() {
        path if path.is_dir() => file_in(&path),
        path => path.metadata().is_ok_and(|it| it.len() > 24).then_some(path),
    })
}

static PLACE: LazyLock<Place> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let origin = Folder::open(folder.path(), 1, Sharing::Alone).expect("an origin");
    let user = vec![("a".to_owned(), "b".to_owned())];
    let attributes = Attributes { content_type: Some("text/plain".to_owned()), user };
    let mut body = SingleChunk::new(b"the bytes of an object".as_slice().into());
    let written = runtime.block_on(async {
        let staged = origin.stage(&Key::from(b"key".as_slice()), attributes, &mut body).await?;
        staged.commit(None).await
    });
    written.expect("an object");
    let objects = std::fs::read_dir(folder.path()).expect("the origin").flatten();
    let of = |path: PathBuf| file_in(&path).filter(|it| !it.ends_with("identity"));
    let file = objects.filter_map(|entry| of(entry.path())).next().expect("the object's file");
    let written = std::fs::read(&file).expect("the object's file");
    Place { _folder: folder, origin, file, written, runtime }
});

// Input: `[mend]`, then the file, or changes of the one that was written.
fuzz_target!(|data: &[u8]| {
    let [mend, data @ ..] = data else { return };
    let place = &*PLACE;
    let mut bytes = if mend & 1 == 0 { data.to_vec() } else { place.written.clone() };
    if mend & 1 == 1 {
        for change in data.chunks_exact(2) {
            let at = usize::from(change[0]) % bytes.len();
            bytes[at] = change[1];
        }
    }
    // Few inputs have a right footer: it gets lengths and a checksum.
    if mend & 2 == 2 && bytes.len() > 24 {
        let end = bytes.len() - 24;
        let data_bytes = u64::from(mend >> 2).min(end as u64);
        let sums = 4 * usize::from(data_bytes > 0);
        let block = (data_bytes as usize + sums).min(end);
        let crc = crc32fast::hash(&bytes[..data_bytes as usize]).to_le_bytes();
        bytes[data_bytes as usize..block].copy_from_slice(&crc[..block - data_bytes as usize]);
        if let Some(size) = bytes[..end].get_mut(block + 4..block + 12) {
            size.copy_from_slice(&data_bytes.to_le_bytes());
        }
        let length = ((end - block) as u32).to_le_bytes();
        let mut crc = crc32fast::Hasher::new();
        crc.update(&data_bytes.to_le_bytes());
        crc.update(&length);
        crc.update(&bytes[block..end]);
        let footer = &mut bytes[end..];
        footer[..8].copy_from_slice(&data_bytes.to_le_bytes());
        footer[8..12].copy_from_slice(&length);
        footer[12..16].copy_from_slice(&crc.finalize().to_le_bytes());
        footer[16..].copy_from_slice(b"CONCobj2");
    }
    let file = std::fs::OpenOptions::new().write(true).open(&place.file).expect("its file");
    file.set_len(bytes.len() as u64).expect("its length");
    file.write_all_at(&bytes, 0).expect("its bytes");
    let key = Key::from(b"key".as_slice());
    place.runtime.block_on(async {
        let head = place.origin.head(&key).await;
        let Ok(Some(found)) = place.origin.get(&key, None).await else { return };
        let metadata = head.expect("the head of what is found").expect("its metadata");
        assert_eq!(metadata, found.metadata);
        let (mut body, mut length) = (found.body, 0);
        while let Some(piece) = body.next().await {
            let Ok(piece) = piece else { return };
            length += piece.len() as u64;
        }
        assert_eq!(length, metadata.size);
        assert!(metadata.size <= bytes.len() as u64);
    });
});
