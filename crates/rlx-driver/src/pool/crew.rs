//! What the threads of a pool share, and the protocol of one fork.
//!
//! A fork: its caller writes the job, opens the gate, wakes sleeping workers, works, closes the gate, and waits until
//! nobody is inside. A worker: sees the gate open, enters, works, leaves.
//!
//! Invariant: the job is written only by the holder of `forking`, while the gate is closed and nobody is inside; it is
//! read only by the holder and by workers inside. Opening releases the job to who enters; leaving releases the workers'
//! writes to who waits.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::gate::Word;
use super::spin::Spin;

/// How long a thread polls before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

type Task<'a> = dyn Fn(usize) + Sync + 'a;
type Payload = Box<dyn Any + Send>;

/// State shared by a pool's threads. Fields that different threads write often lie on cache lines of their own.
pub(super) struct Crew {
    current: Apart<Fork>,
    /// Whether a region holds the pool.
    pub(super) taken: Apart<AtomicBool>,
    /// Whether a fork is under way.
    forking: Apart<AtomicBool>,
    /// By thread: the share of the tasks that it begins with.
    shares: Box<[Apart<Share>]>,
    /// By thread: whether it sleeps until woken.
    asleep: Box<[Apart<AtomicBool>]>,
    /// How many sleep: spares a fork the look at each.
    sleepers: Apart<AtomicUsize>,
    /// Whether a task of this fork has panicked.
    failed: AtomicBool,
    payload: Mutex<Option<Payload>>,
    /// Where a caller sleeps until the last worker leaves.
    door: Mutex<()>,
    left: Condvar,
    spin: Duration,
}

// SAFETY: all fields are `Sync` but the job, whose accesses are ordered by the gate as the module's invariant says; the
// task it refers to is `Sync`.
unsafe impl Sync for Crew {}
// SAFETY: the job's task is a shared reference to a `Sync` value, which may be used from any thread.
unsafe impl Send for Crew {}

/// The gate and what lies behind it, on one cache line: a worker that sees the gate open has the job at hand.
struct Fork {
    gate: AtomicU64,
    job: UnsafeCell<Job>,
}

/// The work of one fork.
#[derive(Clone, Copy)]
struct Job {
    task: &'static Task<'static>,
    n_tasks: usize,
    parts: usize,
}

impl Job {
    /// The contiguous run of tasks that makes up a part: start and length. The longer parts come first.
    fn part(&self, part: usize) -> (usize, usize) {
        let (each, longer) = (self.n_tasks / self.parts, self.n_tasks % self.parts);
        let start = part * each + part.min(longer);
        (start, each + usize::from(part < longer))
    }
}

/// How many tasks of one part are handed out, and in which fork: the fork's generation above, the count below.
///
/// A word of an older generation counts as none handed out, so that a fork need not touch the shares, which lie in
/// their owners' caches, before it opens. Generation 0 belongs to no fork.
#[derive(Default)]
struct Share(AtomicU64);

const COUNT_BITS: u32 = 32;

impl Share {
    /// Takes the next of `len` tasks in fork `generation`.
    fn claim(&self, generation: u64, len: u64) -> Option<u64> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let taken = if word >> COUNT_BITS == generation { word & ((1 << COUNT_BITS) - 1) } else { 0 };
            // The look before the claim keeps finished shares from being written to.
            if taken >= len {
                return None;
            }
            let next = (generation << COUNT_BITS) | (taken + 1);
            match self.0.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(taken),
                Err(found) => word = found,
            }
        }
    }
}

/// Keeps a value off the cache lines of others; two lines, since processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Apart<T>(T);

impl<T> std::ops::Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl Crew {
    pub(super) fn new(threads: usize, polls: bool) -> Crew {
        Crew {
            current: Apart(Fork {
                gate: AtomicU64::new(0),
                job: UnsafeCell::new(Job { task: &|_| {}, n_tasks: 0, parts: 1 }),
            }),
            taken: Apart::default(),
            forking: Apart::default(),
            shares: (0..threads).map(|_| Apart::default()).collect(),
            asleep: (0..threads).map(|_| Apart::default()).collect(),
            sleepers: Apart::default(),
            failed: AtomicBool::new(false),
            payload: Mutex::new(None),
            door: Mutex::new(()),
            left: Condvar::new(),
            spin: if polls { SPIN } else { Duration::ZERO },
        }
    }

    /// Runs `n_tasks` tasks on the calling thread and the first `threads - 1` workers. A fork from within a fork runs
    /// on the calling thread.
    pub(super) fn fork(&self, workers: &[JoinHandle<()>], threads: usize, n_tasks: usize, task: &Task<'_>) {
        // A share counts in 32 bits; work cut finer than that gains nothing from threads.
        if n_tasks > u32::MAX as usize || self.forking.swap(true, Ordering::Acquire) {
            (0..n_tasks).for_each(task);
            return;
        }
        let parts = threads.clamp(1, self.shares.len());
        self.failed.store(false, Ordering::Relaxed);
        // SAFETY: only the lifetime changes. The reference is used by workers inside this fork alone, and this function
        // does not return before they have left: between opening and the join nothing unwinds, since tasks run under
        // `catch_unwind`.
        let task = unsafe { std::mem::transmute::<&Task<'_>, &'static Task<'static>>(task) };
        let job = Job { task, n_tasks, parts };
        // SAFETY: this thread holds `forking`, and the last fork was closed and left before its holder let go: nobody
        // else reads or writes the job.
        unsafe { *self.current.job.get() = job };

        let mut word = Word(self.current.gate.load(Ordering::Relaxed)).next_open(parts);
        if word.generation() == 0 {
            // Generations start over: forget the last round's, which could pass for this one's.
            for share in &self.shares {
                share.0.0.store(0, Ordering::Relaxed);
            }
            word = word.next_open(parts);
        }
        // Sequentially consistent with the sleepers' own order: who is not seen asleep sees this word.
        self.current.gate.store(word.0, Ordering::SeqCst);
        self.wake(workers, parts);
        self.take_part(job, word.generation(), 0);
        self.close_and_wait();

        let payload = if self.failed.load(Ordering::Relaxed) { lock(&self.payload).take() } else { None };
        self.forking.store(false, Ordering::Release);
        if let Some(payload) = payload {
            resume_unwind(payload);
        }
    }

    /// Ends all workers; the caller joins them.
    pub(super) fn dismiss(&self, workers: &[JoinHandle<()>]) {
        self.current.gate.fetch_or(Word::SHUTDOWN, Ordering::SeqCst);
        self.wake(workers, self.asleep.len());
    }

    /// A worker's life.
    pub(super) fn work(&self, me: usize) {
        let mut last = Word(0).generation();
        while let Some(generation) = self.enter(me, last) {
            last = generation;
            // SAFETY: this worker is inside the fork, so nobody writes the job, and entering acquired what was written.
            let job = unsafe { *self.current.job.get() };
            self.take_part(job, generation, me);
            let found = Word(self.current.gate.fetch_sub(Word::ONE_INSIDE, Ordering::AcqRel));
            // From here on the fork may be over and its task gone; the crew itself outlives its workers.
            if found.last_out_wakes() {
                drop(lock(&self.door));
                self.left.notify_all();
            }
        }
    }

    /// Runs tasks, those of the thread's own share first, until none is left.
    fn take_part(&self, job: Job, generation: u64, me: usize) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let parts = self.shares.iter().take(job.parts).enumerate();
            for (part, share) in parts.clone().skip(me).chain(parts.take(me)) {
                let (start, len) = job.part(part);
                while let Some(offset) = share.claim(generation, len as u64) {
                    if self.failed.load(Ordering::Relaxed) {
                        return;
                    }
                    (job.task)(start + offset as usize);
                }
            }
        }));
        if let Err(payload) = outcome {
            self.failed.store(true, Ordering::Relaxed);
            let mut first = lock(&self.payload);
            if first.is_none() {
                *first = Some(payload);
            } else {
                // Dropping it could panic in turn; one panic is enough to report.
                std::mem::forget(payload);
            }
        }
    }

    /// Waits for a fork that admits worker `me`, and enters it. `None` when the pool shuts down.
    fn enter(&self, me: usize, last: u64) -> Option<u64> {
        let mut spin = Spin::new(self.spin);
        let mut current = None;
        loop {
            let word = Word(self.current.gate.load(Ordering::Acquire));
            if word.is_shutdown() {
                return None;
            }
            if word.admits(me, last) {
                let inside = word.0 + Word::ONE_INSIDE;
                let entered =
                    self.current.gate.compare_exchange_weak(word.0, inside, Ordering::AcqRel, Ordering::Relaxed);
                if entered.is_ok() {
                    return Some(word.generation());
                }
                continue;
            }
            // A run whose forks are over too soon to enter is still a run: stay awake for its larger ones.
            if current.replace(word.generation()) != Some(word.generation()) {
                spin.restart();
            }
            if !spin.pause() {
                self.sleep(me, last);
                spin.restart();
            }
        }
    }

    /// Sleeps until woken, unless there is something to do.
    fn sleep(&self, me: usize, last: u64) {
        let Some(asleep) = self.asleep.get(me) else {
            return;
        };
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        asleep.store(true, Ordering::SeqCst);
        let word = Word(self.current.gate.load(Ordering::SeqCst));
        if word.is_shutdown() || word.admits(me, last) {
            if asleep.swap(false, Ordering::SeqCst) {
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
            }
            return;
        }
        while asleep.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    /// Wakes the sleepers among the first `limit - 1` workers.
    fn wake(&self, workers: &[JoinHandle<()>], limit: usize) {
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return;
        }
        let flags = self.asleep.iter().take(limit).skip(1);
        for (asleep, worker) in flags.zip(workers) {
            if asleep.load(Ordering::SeqCst) && asleep.swap(false, Ordering::SeqCst) {
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
                worker.thread().unpark();
            }
        }
    }

    fn close_and_wait(&self) {
        let word = Word(self.current.gate.fetch_and(!Word::OPEN, Ordering::AcqRel));
        if word.inside() == 0 {
            return;
        }
        let anyone_inside = || Word(self.current.gate.load(Ordering::Acquire)).inside() != 0;
        let mut spin = Spin::new(self.spin);
        while anyone_inside() {
            if !spin.pause() {
                self.current.gate.fetch_or(Word::WAITING, Ordering::AcqRel);
                let mut door = lock(&self.door);
                while anyone_inside() {
                    door = self.left.wait(door).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Workers asleep now.
    #[cfg(test)]
    pub(super) fn sleepers(&self) -> usize {
        self.sleepers.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew")
            .field("threads", &self.shares.len())
            .field("taken", &self.taken.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

/// Locks though a holder panicked: no lock here guards an invariant that a panic could break.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_contiguous_and_nearly_equal() {
        for (n_tasks, parts) in [(0, 1), (1, 1), (7, 3), (3, 7), (64, 8), (65, 8)] {
            let job = Job { task: &|_| {}, n_tasks, parts };
            let mut next = 0;
            for part in 0..parts {
                let (start, len) = job.part(part);
                assert_eq!(start, next);
                assert!(len.abs_diff(n_tasks / parts) <= 1);
                next = start + len;
            }
            assert_eq!(next, n_tasks);
        }
    }

    #[test]
    fn a_share_starts_over_in_each_fork() {
        let share = Share::default();
        for generation in [1, 2, 9] {
            let claimed: Vec<_> = std::iter::from_fn(|| share.claim(generation, 3)).collect();
            assert_eq!(claimed, [0, 1, 2]);
        }
        assert_eq!(share.claim(10, 0), None);
    }

    /// Shares left over from the last round of generations must not pass for this round's.
    #[test]
    fn forks_across_the_wrap_of_generations_lose_nothing() {
        let crew = Crew::new(3, true);
        let ran = AtomicUsize::new(0);
        let fork = |threads| {
            crew.fork(&[], threads, 6, &|_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            let word = Word(crew.current.gate.load(Ordering::Relaxed));
            (word.generation(), ran.swap(0, Ordering::Relaxed))
        };
        assert_eq!([fork(3), fork(3)], [(1, 6), (2, 6)]);
        // As if nearly all generations had passed in narrower forks, which leave the third share alone.
        crew.current.gate.store(u64::MAX << 36, Ordering::Relaxed);
        let last = (1 << 29) - 1;
        assert_eq!([fork(2), fork(2), fork(3)], [(last, 6), (1, 6), (2, 6)]);
    }
}
