//! What the system lets this process have of address space and threads; of files, see [`wire::descriptors`].

use std::error::Error;
use std::io;

use rustix::process::{Resource, getrlimit};

/// Arenas of glibc's allocator where address space is limited. It reserves 64 MiB for each, by default for up to eight per
/// core, so that a node with a limit of 1 GB had none left for the stacks of its last threads, now and then.
#[cfg(target_env = "gnu")]
const ALLOCATOR_ARENAS: std::ffi::c_int = 2;

/// Prepares the process before it starts threads.
pub fn prepare() {
    if address_space_max().is_some() {
        bound_allocator();
    }
}

/// The most address space that this process may have (`ulimit -v`); `None`: any.
pub fn address_space_max() -> Option<u64> {
    getrlimit(Resource::As).current
}

fn bound_allocator() {
    #[cfg(target_env = "gnu")]
    {
        /// `M_ARENA_MAX` of malloc.h.
        const ARENA_MAX: std::ffi::c_int = -8;
        #[expect(unsafe_code, reason = "a call of the C library that no crate here wraps")]
        // SAFETY: the declaration is that of malloc.h, and the call has no precondition.
        unsafe {
            unsafe extern "C" {
                fn mallopt(parameter: std::ffi::c_int, value: std::ffi::c_int) -> std::ffi::c_int;
            }
            mallopt(ARENA_MAX, ALLOCATOR_ARENAS);
        }
    }
}

/// What a start lacked, if one of its error's causes is that the system refused memory or a thread: its own words are
/// "Resource temporarily unavailable", for a limit of address space too.
pub fn shortage(error: &(dyn Error + 'static)) -> Option<String> {
    let lacks = std::iter::successors(Some(error), |error| (*error).source()).any(|cause| {
        let code = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        let code = code.map(rustix::io::Errno::from_raw_os_error);
        matches!(code, Some(rustix::io::Errno::AGAIN | rustix::io::Errno::NOMEM))
    });
    if !lacks {
        return None;
    }
    Some(match address_space_max() {
        Some(bytes) => format!(
            "not enough address space for memory and threads: this process may have {} MiB (ulimit -v, or LimitAS of \
             systemd); raise the limit, or lower serve.threads and node.memory_bytes",
            bytes >> 20
        ),
        None => "the system has no more memory or threads for this process; raise its limits (ulimit -u, TasksMax or \
                 MemoryMax of systemd, pids.max of its control group), or lower serve.threads and node.memory_bytes"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_memory_or_threads_says_what_is_lacking() {
        for (code, is_lacking) in [(11, true), (12, true), (2, false), (98, false)] {
            let error = crate::Error::Thread(io::Error::from_raw_os_error(code));
            let told = shortage(&error);
            assert_eq!(told.is_some(), is_lacking, "{code}: {told:?}");
            assert!(told.is_none_or(|told| told.contains("serve.threads")), "{code}");
        }
    }
}
