//! A shared allocation of bytes, with eight bytes of its own.
//!
//! What is shared in the standard library takes 16 bytes for two counters and a pointer of 16 at each owner; `triomphe`'s `ThinArc`
//! takes 16, and 8 at each owner. Objects of a hundred bytes are many, so that this counts: here a counter and a length of 32
//! bits each are in front of the bytes, and owners have one pointer.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::process::abort;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Set in [`Head::length`] if there is an extra value.
const EXTRA: u32 = 1 << 31;
/// Owners beyond this end the process, as with the standard library's counters: the count must not wrap around.
const OWNERS_MAX: u32 = 1 << 31;

/// What an allocation begins with. The extra value follows, if there is one, and then the bytes.
#[repr(C, align(8))]
struct Head {
    owners: AtomicU32,
    /// Of the bytes; the highest bit is [`EXTRA`].
    length: u32,
}

/// Bytes that never change, and an extra value if there is one. Clones share them. The size of a pointer.
pub struct Thin<T> {
    head: NonNull<Head>,
    owned: PhantomData<T>,
}

#[expect(unsafe_code, reason = "clones on several threads share the value")]
// SAFETY: as of `Arc`: the counter is atomic, and what is shared is only read until the last owner drops it.
unsafe impl<T: Send + Sync> Send for Thin<T> {}
#[expect(unsafe_code, reason = "see above")]
// SAFETY: see above.
unsafe impl<T: Send + Sync> Sync for Thin<T> {}

impl<T> Thin<T> {
    /// Where the extra value begins, if there is one. The bytes begin there, too, or after it.
    const EXTRA_AT: usize = size_of::<Head>();

    fn bytes_at(length: u32) -> usize {
        const { assert!(align_of::<T>() <= align_of::<Head>()) };
        Thin::<T>::EXTRA_AT + if length & EXTRA != 0 { size_of::<T>() } else { 0 }
    }

    fn layout(length: u32) -> Option<Layout> {
        let bytes = Thin::<T>::bytes_at(length).checked_add((length & !EXTRA) as usize)?;
        Layout::from_size_align(bytes, align_of::<Head>()).ok()
    }

    /// Copies the parts one after the other; together they must have less than 2 GiB.
    pub fn new(extra: Option<T>, parts: &[&[u8]]) -> Thin<T> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let length = u32::try_from(bytes).ok().filter(|length| length & EXTRA == 0);
        let length = length.map(|length| length | if extra.is_some() { EXTRA } else { 0 });
        let layout = length.and_then(Thin::<T>::layout);
        let (Some(length), Some(layout)) = (length, layout) else {
            panic!("{bytes} bytes do not fit in one small allocation, which has less than 2 GiB");
        };
        #[expect(unsafe_code, reason = "an allocation whose length is known when it is made")]
        // SAFETY: the layout is not of size 0, since there is a head. The head, the extra value and the bytes are written
        // within the allocation, at offsets of which the first two are aligned (the head is as strict as the extra value,
        // and its size is a multiple of that), and nobody else has it yet.
        unsafe {
            let Some(start) = NonNull::new(alloc(layout)) else { handle_alloc_error(layout) };
            let head = start.cast::<Head>();
            head.write(Head { owners: AtomicU32::new(1), length });
            if let Some(extra) = extra {
                start.add(Thin::<T>::EXTRA_AT).cast::<T>().write(extra);
            }
            let mut to = start.add(Thin::<T>::bytes_at(length));
            for part in parts {
                to.copy_from_nonoverlapping(NonNull::from(*part).cast(), part.len());
                to = to.add(part.len());
            }
            Thin { head, owned: PhantomData }
        }
    }

    fn head(&self) -> &Head {
        #[expect(unsafe_code, reason = "reading the head")]
        // SAFETY: written when the allocation was made, which lasts at least as long as this owner.
        unsafe {
            self.head.as_ref()
        }
    }

    /// The extra value.
    pub fn extra(&self) -> Option<&T> {
        if self.head().length & EXTRA == 0 {
            return None;
        }
        #[expect(unsafe_code, reason = "reading the extra value")]
        // SAFETY: the length says that it was written there; it is dropped by the last owner only.
        Some(unsafe { self.head.byte_add(Thin::<T>::EXTRA_AT).cast::<T>().as_ref() })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let length = self.head().length;
        #[expect(unsafe_code, reason = "reading the bytes")]
        // SAFETY: as many were written there, and nobody writes to them again.
        unsafe {
            let start = self.head.byte_add(Thin::<T>::bytes_at(length)).cast::<u8>();
            NonNull::slice_from_raw_parts(start, (length & !EXTRA) as usize).as_ref()
        }
    }
}

impl<T> Clone for Thin<T> {
    fn clone(&self) -> Thin<T> {
        // No order is needed, as the value stays while this owner has it.
        if self.head().owners.fetch_add(1, Ordering::Relaxed) >= OWNERS_MAX {
            abort();
        }
        Thin { head: self.head, owned: PhantomData }
    }
}

impl<T> Drop for Thin<T> {
    fn drop(&mut self) {
        // Released by each owner and acquired by the last: what the others did with the value is before its end.
        if self.head().owners.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let length = self.head().length;
        #[expect(unsafe_code, reason = "the last owner ends the value")]
        // SAFETY: this was the last owner. The extra value is there if the length says so, and the layout is that of the
        // allocation, as it was computed from the same length then.
        unsafe {
            let start = self.head.cast::<u8>();
            if length & EXTRA != 0 {
                start.add(Thin::<T>::EXTRA_AT).cast::<T>().drop_in_place();
            }
            if let Some(layout) = Thin::<T>::layout(length) {
                dealloc(start.as_ptr(), layout);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside its naive twin: the parts in a vector, and the extra value in an `Arc` that counts its owners.
        #[test]
        fn a_value_is_what_it_was_made_of(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4),
            has_extra in any::<bool>(),
            drops in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
        ) {
            let twin = Arc::new(parts.concat());
            let extra = has_extra.then(|| twin.clone());
            let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let mut owners = vec![Thin::new(extra, &slices)];
            while owners.len() < drops.len() {
                owners.push(owners[0].clone());
            }
            // Owners leave in any order; the others still have everything.
            for drop in &drops {
                for owner in &owners {
                    prop_assert_eq!(owner.bytes(), &twin[..]);
                    prop_assert_eq!(owner.extra(), has_extra.then_some(&twin));
                }
                prop_assert_eq!(Arc::strong_count(&twin), 1 + usize::from(has_extra));
                owners.swap_remove(drop.index(owners.len()));
            }
            prop_assert_eq!(Arc::strong_count(&twin), 1);
        }
    }

    #[test]
    fn clones_on_several_threads_end_the_value_once() {
        let extra = Arc::new(());
        let thin = Thin::new(Some(extra.clone()), &[b"abc"]);
        thread::scope(|scope| {
            for _ in 0..4 {
                let thin = thin.clone();
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        assert_eq!(thin.clone().bytes(), b"abc");
                    }
                });
            }
        });
        assert_eq!(Arc::strong_count(&extra), 2);
        drop(thin);
        assert_eq!(Arc::strong_count(&extra), 1);
    }

    #[test]
    fn an_owner_is_a_pointer_and_the_rest_eight_bytes() {
        assert_eq!(size_of::<Option<Thin<u64>>>(), 8);
        assert_eq!(Thin::<u64>::layout(100).unwrap().size(), 108);
        assert_eq!(Thin::<u64>::layout(100 | EXTRA).unwrap().size(), 116);
    }
}
