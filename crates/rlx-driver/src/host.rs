//! Facts about the machine this process runs on: cores, caches, instruction sets.
//!
//! Invariants: facts are read once and never change within a process; no environment variable is read; where the
//! system tells nothing, a modest default stands, so that every size is positive and every caller can divide by it.

mod caches;
mod cores;
mod isa;

use std::sync::OnceLock;

pub use caches::Caches;
pub use cores::Cores;
pub use isa::{Isa, ParseIsaError};

/// What is known of the host.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HostFacts {
    /// Cores that this process may use.
    pub cores: Cores,
    /// Data cache sizes.
    pub caches: Caches,
    /// The best instruction set level that this processor and system allow.
    pub isa: Isa,
}

impl HostFacts {
    /// The facts, found on the first call and kept.
    pub fn get() -> &'static HostFacts {
        static FACTS: OnceLock<HostFacts> = OnceLock::new();
        FACTS.get_or_init(|| HostFacts { cores: Cores::detect(), caches: Caches::detect(), isa: Isa::best() })
    }

    /// How many threads this process can keep busy: at least 1.
    pub fn usable_cores(&self) -> usize {
        self.cores.usable()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_stable_and_positive() {
        let facts = HostFacts::get();
        assert!(std::ptr::eq(facts, HostFacts::get()));
        assert!(facts.usable_cores() >= 1);
        assert!(facts.caches.l1d >= 4096);
        assert!(facts.caches.l1d <= facts.caches.l2 && facts.caches.l2 <= facts.caches.l3);
        assert!(Isa::available().contains(&facts.isa));
    }

    /// The standard library counts affinity and quota by code of its own.
    #[test]
    fn usable_cores_agree_with_the_standard_library() {
        let expected = std::thread::available_parallelism().map_or(1, |n| n.get());
        assert_eq!(HostFacts::get().usable_cores(), expected);
    }
}
