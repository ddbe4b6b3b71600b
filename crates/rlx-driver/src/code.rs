//! Memory for machine code made at run time.
//!
//! Invariant: the pages are first writable, then executable, never both: code is copied in before anything can run it,
//! and cannot change afterwards.

use std::ptr::NonNull;

/// Machine code in pages of its own, readable and executable. Unmapped on drop.
#[derive(Debug)]
pub struct CodePages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the pages are the value's alone and nothing writes them after `new`.
unsafe impl Send for CodePages {}
// SAFETY: as above.
unsafe impl Sync for CodePages {}

impl CodePages {
    /// Copies code to pages and makes them executable. `None` where the system gives no such pages (a hardened
    /// kernel, no memory, no such call), or for no code at all.
    #[cfg(unix)]
    pub fn new(code: &[u8]) -> Option<CodePages> {
        if code.is_empty() {
            return None;
        }
        // SAFETY: a private anonymous mapping at an address of the system's choice touches no memory of ours.
        let p = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                code.len(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANON,
                -1,
                0,
            )
        };
        if p == libc::MAP_FAILED {
            return None;
        }
        let pages = CodePages { start: NonNull::new(p.cast())?, len: code.len() };
        // SAFETY: the mapping holds `len` writable bytes, and no one else knows of it.
        let done = unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), pages.start.as_ptr(), code.len());
            libc::mprotect(p, code.len(), libc::PROT_READ | libc::PROT_EXEC)
        };
        (done == 0).then_some(pages)
    }

    /// Copies code to pages and makes them executable: not on this system.
    #[cfg(not(unix))]
    pub fn new(_code: &[u8]) -> Option<CodePages> {
        None
    }

    /// The first byte.
    pub fn start(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Bytes of code.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for CodePages {
    fn drop(&mut self) {
        #[cfg(unix)]
        // SAFETY: the mapping was made by `new` with this length; borrows of it have ended.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.len);
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// What /proc says that may be done with the page at an address.
    fn permissions(at: *const u8) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let found = maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let [from, to] = [from, to].map(|s| usize::from_str_radix(s, 16).unwrap());
            (from..to).contains(&(at as usize)).then(|| rest[..4].to_string())
        });
        found.unwrap_or_default()
    }

    #[test]
    fn pages_are_executable_and_not_writable() {
        assert!(CodePages::new(&[]).is_none());
        let code = vec![0xc3u8; 5000];
        let pages = CodePages::new(&code).unwrap();
        assert_eq!(permissions(pages.start()), "r-xp");
        assert_eq!(permissions(pages.start().wrapping_add(4999)), "r-xp");
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.lines().any(|l| l.split(' ').nth(1).is_some_and(|p| p.contains('w') && p.contains('x'))));
        let at = pages.start();
        drop(pages);
        assert_eq!(permissions(at), "");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn code_in_pages_runs() {
        // lea eax, [rdi + rdi]; ret
        let pages = CodePages::new(&[0x8d, 0x04, 0x3f, 0xc3]).unwrap();
        // SAFETY: the code above is a function of one integer.
        let double: extern "sysv64" fn(i32) -> i32 = unsafe { std::mem::transmute(pages.start()) };
        assert_eq!(double(21), 42);
    }
}
