//! Whether the folders of a configuration keep out of each other's way.

use std::path::{Path, PathBuf};

use origin::Checks;

use super::Config;

/// A folder where it really is, as far as it is there.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

impl Config {
    /// The origin's folder holds objects and nothing else, and so does a device's: each is the server's
    /// own, and what lies in another would be taken for its content or removed with it.
    pub(super) fn check_folders(&self, checks: &mut Checks<'_>) {
        let folder = (self.origin.kind == origin::Kind::Folder).then(|| real(&self.origin.path));
        for (index, device) in self.devices.iter().enumerate() {
            let (Some(origin), path) = (&folder, real(&device.path)) else { continue };
            // Devices of a group lie in numbered folders below the path. One that is the origin's own folder
            // is named elsewhere.
            let one = device.count == 1;
            let inside = path.starts_with(origin) && !(one && path == *origin);
            let around = one && origin.starts_with(&path) && path != *origin;
            checks.must(
                !inside && !around,
                &format!("device.{index}.path"),
                format!(
                    "{} and the origin's folder {} lie in one another; give each its own",
                    device.path.display(),
                    self.origin.path.display()
                ),
            );
        }
        let Some(run) = &self.observe.run_dir else { return };
        let place = real(run);
        checks.must(
            place.parent().is_some(),
            "observe.run_dir",
            format!("{} is the root of the file system; name a folder of its own", run.display()),
        );
        let devices = self.devices.iter().map(|device| real(&device.path));
        for folder in folder.into_iter().chain(devices) {
            checks.must(
                !place.starts_with(&folder),
                "observe.run_dir",
                format!(
                    "{} lies in {}, which holds objects; name a folder of its own",
                    run.display(),
                    folder.display()
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
        check(&both("/x/origin", "/x/origin/device"), Some("lie in one another"));
        check(&both("/x/device/origin", "/x/device"), Some("lie in one another"));
        check(&both("x", "./x/device"), Some("lie in one another"));
        check(&(both("/x/00", "/x") + "count = 2"), Some("used twice"));
        check(&(both("/x", "/x") + "count = 2"), Some("lie in one another"));
        check(&(both("/x/origin", "/x") + "count = 2"), None);
        let run = |dir: &str| both("/x/o", "/x/d") + &format!("[observe]\nrun_dir = \"{dir}\"\n");
        check(&run("/x/run"), None);
        check(&run("/x"), None);
        check(&run("/"), Some("root of the file system"));
        check(&run("/x/o/run"), Some("holds objects"));
        check(&run("/x/d"), Some("holds objects"));
    }
}
