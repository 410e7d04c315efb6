//! Whether the folders of a configuration keep out of each other's way.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use origin::Checks;

use super::config::Config;

/// A folder where it really is: links are followed as far as it exists, and the rest is appended.
fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut missing: Vec<OsString> = Vec::new();
    let mut there = absolute.as_path();
    loop {
        if let Ok(real) = there.canonicalize() {
            return missing.iter().rev().fold(real, |path, name| match name.as_os_str() {
                // What does not exist is no link, so that `..` leads to what precedes it.
                name if name == ".." => path.parent().unwrap_or(&path).to_owned(),
                name => path.join(name),
            });
        }
        match there.components().next_back() {
            Some(Component::Normal(name)) => missing.push(name.to_owned()),
            Some(Component::ParentDir) => missing.push("..".into()),
            _ => return absolute,
        }
        let Some(parent) = there.parent() else { return absolute };
        there = parent;
    }
}

/// A folder, or a file, that this process writes.
struct Place {
    /// The key that names it.
    key: String,
    /// What it is, for messages.
    noun: &'static str,
    path: PathBuf,
}

impl Config {
    /// Everything that a process of this configuration writes.
    fn places(&self) -> Vec<Place> {
        let mut places = Vec::new();
        let mut add = |key: &str, noun, path: &Path| {
            places.push(Place { key: key.to_owned(), noun, path: path.to_owned() });
        };
        if self.origin.kind == origin::Kind::Folder {
            add("origin.path", "the origin's folder", &self.origin.path);
        }
        for (index, device) in self.devices.iter().enumerate() {
            let folders = if device.count <= 4096 { device.folders() } else { Vec::new() };
            for folder in folders {
                add(&format!("device.{index}.path"), "a device", &folder);
            }
        }
        let named = [
            ("datasets.path", "the folder of copies of datasets", &self.datasets.path),
            ("node.state_path", "the folder of the node's state", &self.node.state_path),
            ("observe.run_dir", "the run folder", &self.observe.run_dir),
            ("act.journal", "the journal", &self.act.journal),
        ];
        for (key, noun, path) in named {
            if let Some(path) = path {
                add(key, noun, path);
            }
        }
        places
    }

    /// Each folder that this process writes holds one kind of files and nothing else: what lies in another would be taken for
    /// its content, or removed with it. So none may be or lie in another, wherever links lead.
    pub fn check_folders(&self, checks: &mut Checks<'_>) {
        let mut by_path: BTreeMap<PathBuf, Place> = BTreeMap::new();
        for place in self.places() {
            let path = real(&place.path);
            checks.must(
                path.parent().is_some(),
                &place.key,
                format!(
                    "{} is the root of the file system; name a folder of its own",
                    place.path.display()
                ),
            );
            if let Some(other) = by_path.get(&path) {
                checks.must(
                    false,
                    &place.key,
                    format!(
                        "{} is used twice: {} ({}) is the same; give each its own",
                        place.path.display(),
                        other.noun,
                        other.key
                    ),
                );
                continue;
            }
            by_path.insert(path, place);
        }
        // By ancestors, since a configuration may have thousands of devices.
        for (path, inner) in &by_path {
            let around = path.ancestors().skip(1).find_map(|ancestor| by_path.get(ancestor));
            let Some(outer) = around else { continue };
            checks.must(
                false,
                &inner.key,
                format!(
                    "{} lies in {}, {} ({}); give each a folder of its own, none in another",
                    inner.path.display(),
                    outer.path.display(),
                    outer.noun,
                    outer.key
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        match (Config::parse(text, "test", &[]), expected) {
            (Ok(_), None) => {}
            (Err(mistakes), Some(part)) if mistakes.to_string().contains(part) => {}
            (got, _) => panic!("{text}: {got:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn folders_that_hold_objects_hold_nothing_else() {
        let both = |origin: &str, device: &str| {
            format!("[origin]\npath = \"{origin}\"\n[[device]]\npath = \"{device}\"\n")
        };
        check(&both("/x/origin", "/x/device"), None);
        check(&both("/x/origin", "/x/origin-device"), None);
        check(
            &both("/x/origin", "/x/origin/device"),
            Some("device.0.path: /x/origin/device lies in"),
        );
        check(
            &both("/x/device/origin", "/x/device"),
            Some("origin.path: /x/device/origin lies in"),
        );
        check(&both("x", "./x/device"), Some("lies in"));
        check(&both("/x/a/../b", "/x/b"), Some("used twice"));
        check(&both("/", "/x/b"), Some("root of the file system"));
        check(&(both("/x/00", "/x") + "count = 2"), Some("used twice"));
        check(&(both("/x/01/origin", "/x") + "count = 2"), Some("lies in"));
        check(&(both("/x/origin", "/x") + "count = 2"), None);
    }

    #[test]
    fn no_two_folders_of_any_kind_lie_in_one_another() {
        let keys = [
            ("origin", "path"),
            ("device.0", "path"),
            ("datasets", "path"),
            ("node", "state_path"),
            ("observe", "run_dir"),
            ("act", "journal"),
        ];
        let set = |(section, key): (&str, &str), path: &str| format!("{section}.{key}={path}");
        for one in keys {
            for other in keys.into_iter().filter(|other| *other != one) {
                let parse = |paths: [&str; 2]| {
                    let [a, b] = [set(one, paths[0]), set(other, paths[1])];
                    Config::parse("", "test", &[a, b]).map_err(|mistakes| mistakes.to_string())
                };
                assert_eq!(parse(["/x/a", "/x/b"]).err(), None);
                let error = parse(["/x/a", "/x/a/b"]).unwrap_err();
                assert!(error.contains("/x/a/b lies in /x/a"), "{one:?} {other:?}: {error}");
                let error = parse(["/x/a", "/x/a"]).unwrap_err();
                assert!(error.contains("/x/a is used twice"), "{one:?} {other:?}: {error}");
            }
        }
    }

    #[test]
    fn links_lead_to_where_folders_are() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name).display().to_string();
        std::fs::create_dir(path("data")).unwrap();
        std::os::unix::fs::symlink(path("data"), path("link")).unwrap();
        let both = |origin: &str, device: &str| {
            let set = [("origin", origin), ("device.0", device)];
            let set = set.map(|(section, name)| format!("{section}.path={}", path(name)));
            Config::parse("", "test", &set).map_err(|mistakes| mistakes.to_string()).err()
        };
        assert_eq!(both("data/origin", "link/device"), None);
        // Neither folder exists: the link is one of the folders above.
        assert!(both("data/a", "link/a/b").unwrap().contains("lies in"));
        assert!(both("data/a", "link/a").unwrap().contains("used twice"));
        assert!(both("link", "data/device").unwrap().contains("lies in"));
        assert_eq!(both("link/new/../a", "data/new"), None);
    }
}
