//! The memory that this process may use.

use std::path::Path;

use procfs::{Current as _, Meminfo, ProcResult};

/// The memory of this machine, or the smallest limit of this process's control groups, bytes.
///
/// # Errors
///
/// If /proc/meminfo cannot be read.
///
/// ```
/// let limit_bytes = record::memory::limit_bytes()?;
/// assert!(record::memory::available_bytes()? <= limit_bytes);
/// # Ok::<(), procfs::ProcError>(())
/// ```
pub fn limit_bytes() -> ProcResult<u64> {
    Ok(within_groups(Meminfo::current()?.mem_total))
}

/// The memory that is free or can be freed, within the limits of this process's control groups, bytes.
///
/// # Errors
///
/// If /proc/meminfo cannot be read.
pub fn available_bytes() -> ProcResult<u64> {
    let memory = Meminfo::current()?;
    Ok(within_groups(memory.mem_available.unwrap_or(memory.mem_free)))
}

fn within_groups(bytes: u64) -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().filter_map(|line| group_limit(Path::new("/sys/fs/cgroup"), line));
    limits.fold(bytes, u64::min)
}

/// The smallest memory limit of a control group and its ancestors. `line` is a line of
/// /proc/self/cgroup. In version 2 all controllers share one tree; in version 1 the memory
/// controller has its own.
fn group_limit(mounted: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (root, file) = match controllers {
        "" => (mounted.to_owned(), "memory.max"),
        "memory" => (mounted.join("memory"), "memory.limit_in_bytes"),
        _ => return None,
    };
    let own = root.join(path.trim_start_matches('/'));
    let groups = own.ancestors().take_while(|group| group.starts_with(&root));
    let limit = |group: &Path| std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok();
    groups.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_of_a_group_and_those_around_it_counts() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(root.join("memory/c")).unwrap();
        std::fs::write(root.join("a/memory.max"), "1000\n").unwrap();
        std::fs::write(root.join("a/b/memory.max"), "max\n").unwrap();
        std::fs::write(root.join("memory/c/memory.limit_in_bytes"), "2000\n").unwrap();
        assert_eq!(group_limit(root, "0::/a/b"), Some(1000));
        assert_eq!(group_limit(root, "0::/"), None);
        assert_eq!(group_limit(root, "4:memory:/c"), Some(2000));
        assert_eq!(group_limit(root, "3:cpu:/c"), None);
        assert_eq!(group_limit(root, "nonsense"), None);
        assert!(available_bytes().unwrap() > 0);
    }
}
