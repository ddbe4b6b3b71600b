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
    gate: Apart<AtomicU64>,
    /// Whether a region holds the pool.
    pub(super) taken: Apart<AtomicBool>,
    /// Whether a fork is under way.
    forking: Apart<AtomicBool>,
    job: UnsafeCell<Job>,
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

/// The work of one fork.
#[derive(Clone, Copy)]
struct Job {
    task: &'static Task<'static>,
    parts: usize,
}

/// Task indices not yet handed out: `next..end`. `next` may run past the end.
#[derive(Default)]
struct Share {
    next: AtomicUsize,
    end: AtomicUsize,
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
            gate: Apart::default(),
            taken: Apart::default(),
            forking: Apart::default(),
            job: UnsafeCell::new(Job {
                task: &|_| {},
                parts: 0,
            }),
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
    pub(super) fn fork(
        &self,
        workers: &[JoinHandle<()>],
        threads: usize,
        n_tasks: usize,
        task: &Task<'_>,
    ) {
        if self.forking.swap(true, Ordering::Acquire) {
            (0..n_tasks).for_each(task);
            return;
        }
        let parts = threads.min(self.shares.len());
        self.divide(n_tasks, parts);
        self.failed.store(false, Ordering::Relaxed);
        // SAFETY: only the lifetime changes. The reference is used by workers inside this fork alone, and this function
        // does not return before they have left: between opening and the join nothing unwinds, since tasks run under
        // `catch_unwind`.
        let task = unsafe { std::mem::transmute::<&Task<'_>, &'static Task<'static>>(task) };
        let job = Job { task, parts };
        // SAFETY: this thread holds `forking`, and the last fork was closed and left before its holder let go: nobody
        // else reads or writes the job.
        unsafe { *self.job.get() = job };

        let word = Word(self.gate.load(Ordering::Relaxed)).next_open(parts);
        // Sequentially consistent with the sleepers' own order: who is not seen asleep sees this word.
        self.gate.store(word.0, Ordering::SeqCst);
        self.wake(workers, parts);
        self.take_part(job, 0);
        self.close_and_wait();

        let payload = if self.failed.load(Ordering::Relaxed) {
            lock(&self.payload).take()
        } else {
            None
        };
        self.forking.store(false, Ordering::Release);
        if let Some(payload) = payload {
            resume_unwind(payload);
        }
    }

    /// Ends all workers; the caller joins them.
    pub(super) fn dismiss(&self, workers: &[JoinHandle<()>]) {
        self.gate.fetch_or(Word::SHUTDOWN, Ordering::SeqCst);
        self.wake(workers, self.asleep.len());
    }

    /// A worker's life.
    pub(super) fn work(&self, me: usize) {
        let mut last = Word(0).generation();
        while let Some(generation) = self.enter(me, last) {
            last = generation;
            // SAFETY: this worker is inside the fork, so nobody writes the job, and entering acquired what was written.
            let job = unsafe { *self.job.get() };
            self.take_part(job, me);
            let found = Word(self.gate.fetch_sub(Word::ONE_INSIDE, Ordering::AcqRel));
            // From here on the fork may be over and its task gone; the crew itself outlives its workers.
            if found.last_out_wakes() {
                drop(lock(&self.door));
                self.left.notify_all();
            }
        }
    }

    /// Gives each part a contiguous run of indices, the longer ones first.
    fn divide(&self, n_tasks: usize, parts: usize) {
        let (each, longer) = (n_tasks / parts.max(1), n_tasks % parts.max(1));
        let mut start = 0;
        for (part, share) in self.shares.iter().take(parts).enumerate() {
            let end = start + each + usize::from(part < longer);
            share.next.store(start, Ordering::Relaxed);
            share.end.store(end, Ordering::Relaxed);
            start = end;
        }
    }

    /// Runs tasks, those of the thread's own share first, until none is left.
    fn take_part(&self, job: Job, me: usize) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let own = self.shares.iter().take(job.parts).skip(me);
            let others = self.shares.iter().take(me.min(job.parts));
            for share in own.chain(others) {
                let end = share.end.load(Ordering::Relaxed);
                // The look before the claim keeps finished shares from being written to.
                while share.next.load(Ordering::Relaxed) < end {
                    let index = share.next.fetch_add(1, Ordering::Relaxed);
                    if index >= end || self.failed.load(Ordering::Relaxed) {
                        break;
                    }
                    (job.task)(index);
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
            let word = Word(self.gate.load(Ordering::Acquire));
            if word.is_shutdown() {
                return None;
            }
            if word.admits(me, last) {
                let inside = word.0 + Word::ONE_INSIDE;
                let entered = self.gate.compare_exchange_weak(
                    word.0,
                    inside,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
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
        let word = Word(self.gate.load(Ordering::SeqCst));
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
        let word = Word(self.gate.fetch_and(!Word::OPEN, Ordering::AcqRel));
        if word.inside() == 0 {
            return;
        }
        let anyone_inside = || Word(self.gate.load(Ordering::Acquire)).inside() != 0;
        let mut spin = Spin::new(self.spin);
        while anyone_inside() {
            if !spin.pause() {
                self.gate.fetch_or(Word::WAITING, Ordering::AcqRel);
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
