//! Polling with a bound on time.
//!
//! The bound is wall time, so a thread that lost its core while polling gives up at once when it gets it back.

use std::time::{Duration, Instant};

/// Polls between looks at the clock.
const POLLS_PER_LOOK: u32 = 32;

/// A budget of time to poll for.
pub(super) struct Spin {
    budget: Duration,
    polls: u32,
    since: Option<Instant>,
}

impl Spin {
    pub(super) fn new(budget: Duration) -> Spin {
        Spin { budget, polls: 0, since: None }
    }

    /// Starts the budget anew.
    pub(super) fn restart(&mut self) {
        self.polls = 0;
        self.since = None;
    }

    /// Pauses for a moment; false when the budget is spent.
    pub(super) fn pause(&mut self) -> bool {
        if self.budget.is_zero() {
            return false;
        }
        std::hint::spin_loop();
        self.polls += 1;
        if self.polls < POLLS_PER_LOOK {
            return true;
        }
        self.polls = 0;
        let now = Instant::now();
        now.duration_since(*self.since.get_or_insert(now)) < self.budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_ends_no_sooner_than_its_budget() {
        let budget = Duration::from_micros(200);
        let mut spin = Spin::new(budget);
        for _ in 0..2 {
            let start = Instant::now();
            while spin.pause() {}
            assert!(start.elapsed() >= budget);
            spin.restart();
        }
        assert!(!Spin::new(Duration::ZERO).pause());
    }
}
