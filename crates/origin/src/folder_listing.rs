//! Listings of the folder origin.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use ground::Key;

use super::damage::FileStamp;
use super::error::Error;
use super::file::{self, read_end};
use super::listing::{Entry, KeyRange, Listed, behind};
use super::name::{self, Named};
use super::tree::Tree;

impl Tree {
    /// The names of the files of a folder `XX`.
    ///
    /// Read while nobody renames in it: btrfs and tmpfs give a name that is replaced another place, so that a reader of the folder
    /// may meet it at neither, and a mirror of the listing then removes an object that was never gone. A folder that is
    /// mounted read-only has no turns.
    fn names(&self, shard: u8, path: &Path) -> Result<Vec<OsString>, Error> {
        let writable = self.writable().ok();
        let _turn =
            writable.as_ref().map(|writable| writable.turns.take_shard(shard)).transpose()?;
        let failed = |e: &io::Error| Error::of_io(e, "list");
        let entries = fs::read_dir(path).map_err(|e| failed(&e))?;
        let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
        names.collect::<io::Result<_>>().map_err(|e| failed(&e))
    }

    /// Returns the first `limit` entries in byte order. Skips files that were removed meanwhile, and what is no file, and
    /// fills the page with later ones, so that only the last page is shorter than `limit`. A damaged file is listed with
    /// its own size; one whose key only the file held (a long one) cannot be.
    pub(super) fn entries(&self, mut range: KeyRange, limit: usize) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::with_capacity(limit);
        loop {
            let wanted = limit - entries.len();
            let found = self.smallest(&range, wanted)?;
            let last = found.len() < wanted;
            for (key, is_group) in found {
                range.after = Some(if is_group { behind(&key) } else { key.clone() });
                if is_group {
                    entries.push(Entry::Group(key));
                    continue;
                }
                match self.open(&key) {
                    Ok(Some((_, end))) => {
                        let listed = Listed { key: Key::from(key), metadata: end.metadata };
                        entries.push(Entry::Object(listed));
                    }
                    Ok(None) => {}
                    Err(Error::Damaged(_)) => {
                        let listed = FileStamp::of_path(&self.path(&key)).map(|stamp| Listed {
                            key: Key::from(key),
                            metadata: stamp.metadata(),
                        });
                        entries.extend(listed.map(Entry::Object));
                    }
                    Err(error) => return Err(error),
                }
            }
            if last || entries.len() == limit {
                self.identity()?.check()?;
                return Ok(entries);
            }
        }
    }

    /// Returns the `limit` smallest keys and groups, and which are groups. Memory is that of `limit` of them and of the names in one
    /// folder `XX`.
    fn smallest(&self, range: &KeyRange, limit: usize) -> Result<BTreeMap<Vec<u8>, bool>, Error> {
        self.identity()?.check()?;
        let prefix = &range.prefix;
        let mut smallest: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
        for shard in 0..=255u8 {
            let folder = self.root.join(format!("{shard:02x}"));
            for file_name in self.names(shard, &folder)? {
                let key = match file_name.to_str().and_then(name::key_of) {
                    Some(Named::Whole(key)) => key,
                    Some(Named::Cut(start)) => {
                        let n = start.len().min(prefix.len());
                        if start[..n] != prefix[..n] {
                            continue;
                        }
                        let path = folder.join(&file_name);
                        // A file that was just removed, or is damaged, is not listed.
                        let Ok(file) = file::open(&path) else { continue };
                        match read_end(&file, &path) {
                            Ok(end) => end.key,
                            Err(error) => {
                                self.damage_log.tell(&path, &error);
                                continue;
                            }
                        }
                    }
                    None => continue,
                };
                if !range.holds(&key) {
                    continue;
                }
                let group = range.group_of(&key);
                let (entry, is_group) = (group.unwrap_or(&key), group.is_some());
                let full = smallest.len() >= limit;
                if full && smallest.last_key_value().is_none_or(|(last, _)| entry >= &last[..]) {
                    continue;
                }
                if smallest.insert(entry.to_vec(), is_group).is_none() && full {
                    smallest.pop_last();
                }
            }
        }
        Ok(smallest)
    }
}
