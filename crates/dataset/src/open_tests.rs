//! Datasets that are opened while another process changes them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

/// Whoever opens a dataset finds every record that was acknowledged before, whatever a writer seals and compacts meanwhile.
#[test]
fn what_was_acknowledged_is_found_while_the_log_is_sealed() {
    let root = tempfile::tempdir().unwrap();
    let input = root.path().join("input");
    std::fs::write(&input, "first\n").unwrap();
    import(root.path(), "d", &[input], &Options::default(), &mut |_| ()).unwrap();
    let folder = root.path().join("d");
    let (acknowledged, over) = (AtomicU64::new(1), AtomicBool::new(false));
    let read = || {
        let mut opened = 0;
        while !over.load(Ordering::Relaxed) {
            let before = acknowledged.load(Ordering::SeqCst);
            let dataset = Dataset::open(&folder).unwrap();
            let found = dataset.count(&"".parse().unwrap()).unwrap();
            if found < before {
                over.store(true, Ordering::Relaxed);
            }
            assert!(found >= before, "{found} of {before}");
            opened += 1;
        }
        opened
    };
    let opened: u64 = std::thread::scope(|scope| {
        let readers = [scope.spawn(read), scope.spawn(read)];
        let mut writer = Writer::open(&folder).unwrap();
        for _ in 0..300 {
            for _ in 0..3 {
                writer.append(b"another\n").unwrap();
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            writer.seal().unwrap();
            if writer.dataset().parts().len() > 20 {
                writer.compact(&compact::CompactOptions::default(), &mut |_| ()).unwrap();
            }
            if over.load(Ordering::Relaxed) {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    assert!(opened > 10, "{opened}");
}
