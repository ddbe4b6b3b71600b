//! The one word that opens and closes a fork.
//!
//! It holds, from the low bits up: how many workers are inside, below which number a worker may enter, whether the fork
//! is open, whether the forking thread sleeps until the last worker leaves, whether the pool is shut down, and the
//! fork's generation. Entering is one compare-and-swap on the whole word, so a worker can never enter a fork that is
//! closed, nor one other than it looked at.

/// A value of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

const COUNT_BITS: u32 = 16;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const GENERATION_SHIFT: u32 = 35;

impl Word {
    /// One worker inside.
    pub(super) const ONE_INSIDE: u64 = 1;
    /// Workers may enter.
    pub(super) const OPEN: u64 = 1 << 32;
    /// The forking thread sleeps and wants to be woken by the last worker that leaves.
    pub(super) const WAITING: u64 = 1 << 33;
    /// Workers shall end.
    pub(super) const SHUTDOWN: u64 = 1 << 34;

    /// The word that opens the next fork to workers below `limit`. The generation wraps to 0 after 2²⁹ forks; to a
    /// worker that slept as long, the new fork can look like the one it left, and it sits that one out.
    pub(super) fn next_open(self, limit: usize) -> Word {
        let generation = (self.0 >> GENERATION_SHIFT).wrapping_add(1) << GENERATION_SHIFT;
        Word(generation | Self::OPEN | ((limit as u64 & COUNT_MASK) << COUNT_BITS))
    }

    pub(super) fn inside(self) -> u64 {
        self.0 & COUNT_MASK
    }

    pub(super) fn generation(self) -> u64 {
        self.0 >> GENERATION_SHIFT
    }

    pub(super) fn is_shutdown(self) -> bool {
        self.0 & Self::SHUTDOWN != 0
    }

    /// Whether worker `me`, who last took part in fork `last`, may enter.
    pub(super) fn admits(self, me: usize, last: u64) -> bool {
        let limit = (self.0 >> COUNT_BITS) & COUNT_MASK;
        self.0 & Self::OPEN != 0 && (me as u64) < limit && self.generation() != last
    }

    /// Whether a worker that finds this word on leaving is the last, and has someone to wake.
    pub(super) fn last_out_wakes(self) -> bool {
        self.inside() == 1 && self.0 & Self::WAITING != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_admits_each_worker_below_the_limit_once() {
        let closed = Word(0);
        assert!(!closed.admits(1, 7));
        let open = closed.next_open(3);
        assert_eq!((open.inside(), open.generation()), (0, 1));
        assert!(open.admits(1, 0) && open.admits(2, 0) && !open.admits(3, 0));
        assert!(!open.admits(1, open.generation()));
        let entered = Word(open.0 + Word::ONE_INSIDE);
        assert_eq!((entered.inside(), entered.generation()), (1, 1));
        assert!(entered.admits(2, 0));
        assert!(!Word(entered.0 & !Word::OPEN).admits(2, 0));
    }

    #[test]
    fn the_last_out_wakes_only_who_waits() {
        let one = Word(Word(0).next_open(4).0 + Word::ONE_INSIDE);
        assert!(!one.last_out_wakes());
        assert!(Word(one.0 | Word::WAITING).last_out_wakes());
        assert!(!Word((one.0 + Word::ONE_INSIDE) | Word::WAITING).last_out_wakes());
    }

    #[test]
    fn generations_wrap_and_clear_the_flags() {
        let last = Word(!Word::SHUTDOWN);
        let next = last.next_open(1000);
        assert_eq!((next.generation(), next.inside()), (0, 0));
        assert!(next.admits(999, 1) && !next.admits(1000, 1));
        assert!(!next.is_shutdown());
    }
}
