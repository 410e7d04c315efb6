//! Gives memory back to the system after many connections have closed.
//!
//! The allocator keeps what was freed for the next use: after 1,500 clients that dripped uploads the
//! process held 212 MB. Only glibc's allocator has a call for it; with others nothing is done.

/// Gives back the whole pages that are free. Takes milliseconds for some hundred MB, during which other
/// threads may wait to allocate, so it is for rare occasions.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    {
        #[expect(unsafe_code, reason = "a call of the C library that no crate here wraps")]
        // SAFETY: the declaration is that of malloc.h, and the call has no precondition.
        unsafe {
            unsafe extern "C" {
                fn malloc_trim(pad: usize) -> std::ffi::c_int;
            }
            malloc_trim(0);
        }
    }
}
