//! The thread pool: persistent workers, fork and join over task indices.
//!
//! - **Results never depend on it.** A task is an index; which thread runs it, and how many threads there are, changes
//!   nothing but time. Callers cut work into tasks by the work's size alone, never by the number of threads.
//! - **One run at a time has the pool.** A run enters it and keeps it for all its kernels, as a [`Region`]; any other
//!   caller meanwhile gets a region that runs on its own thread. So do tasks that fork again: nothing ever waits for
//!   a busy pool, and nothing can deadlock.
//! - **Hot between kernels.** A worker out of work polls for up to 50 µs before it sleeps, and the polling starts anew
//!   at each fork; the kernels of one run find the workers awake, and an idle pool costs no CPU time. A pool with more
//!   threads than usable cores does not poll at all, since a polling thread would hold the core that its peer needs.
//! - **Helping is optional.** The forking thread takes tasks itself until none is left, then waits only for workers in
//!   the midst of one. A worker that the system does not schedule in time delays nobody.
//! - **A panic in a task** stops the handing out of further tasks and goes on in the thread that forked; the pool
//!   stays usable.
//! - A fork allocates nothing.

mod crew;
mod gate;
mod spin;

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crate::host::HostFacts;
use crew::Crew;

/// More threads than this are never started.
const MAX_THREADS: usize = 1024;

/// A fork-join thread pool. See the module's text for what it promises.
#[derive(Debug)]
pub struct ThreadPool {
    crew: Arc<Crew>,
    workers: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// A pool of `threads` threads, the calling one included: `threads - 1` workers are started.
    ///
    /// The number is kept within 1 and 1024, and where the system refuses a thread the pool makes do with those it
    /// has; [`ThreadPool::threads`] tells.
    pub fn new(threads: usize) -> ThreadPool {
        let threads = threads.clamp(1, MAX_THREADS);
        let polls = threads <= HostFacts::get().usable_cores();
        let crew = Arc::new(Crew::new(threads, polls));
        let workers = (1..threads)
            .map_while(|me| {
                let crew = Arc::clone(&crew);
                std::thread::Builder::new().name(format!("rlx-worker-{me}")).spawn(move || crew.work(me)).ok()
            })
            .collect();
        ThreadPool { crew, workers }
    }

    /// The pool that all runs of this process share, as wide as the host has usable cores; started on the first call.
    pub fn global() -> &'static ThreadPool {
        static POOL: OnceLock<ThreadPool> = OnceLock::new();
        POOL.get_or_init(|| ThreadPool::new(HostFacts::get().usable_cores()))
    }

    /// Threads that a fork runs on, the calling one included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Takes the pool for a run of at most `max_threads` threads, unless another run has it.
    pub fn try_enter(&self, max_threads: usize) -> Option<Region<'_>> {
        if self.crew.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(Region { pool: Some(self), threads: max_threads.clamp(1, self.threads()) })
    }

    /// Takes the pool for a run of at most `max_threads` threads, or one thread when another run has it.
    pub fn enter(&self, max_threads: usize) -> Region<'_> {
        if max_threads <= 1 {
            return Region::inline();
        }
        self.try_enter(max_threads).unwrap_or(Region::inline())
    }

    /// Runs `task(0)` to `task(n_tasks - 1)` in a region of its own. See [`Region::parallel_for`].
    pub fn parallel_for(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.enter(self.threads()).parallel_for(n_tasks, task);
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.crew.dismiss(&self.workers);
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks, so it ends well; a destructor could not report it otherwise.
            let _ = worker.join();
        }
    }
}

/// The threads of one run: a hold on the pool, given back on drop, or the calling thread alone.
///
/// Kernels of a run fork through its region: forking through the pool while the region holds it runs on one thread.
#[derive(Debug)]
pub struct Region<'pool> {
    pool: Option<&'pool ThreadPool>,
    threads: usize,
}

impl Region<'_> {
    /// A region of the calling thread alone.
    pub const fn inline() -> Region<'static> {
        Region { pool: None, threads: 1 }
    }

    /// Threads that a fork runs on at most, the calling one included. For choosing between algorithms of equal result;
    /// never for cutting up a reduction.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `task(0)` to `task(n_tasks - 1)`, each once, and returns when all are done.
    ///
    /// Each thread begins with its own contiguous share, the same in every fork of equal size, and then helps others.
    /// A task that forks through the same region runs that fork on its own thread.
    ///
    /// # Panics
    /// With the payload of the first task that panicked; some tasks may then not have run.
    pub fn parallel_for(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        match self.pool {
            Some(pool) if self.threads > 1 && n_tasks > 1 => {
                let threads = self.threads.min(n_tasks);
                pool.crew.fork(&pool.workers, threads, n_tasks, task);
            }
            _ => (0..n_tasks).for_each(task),
        }
    }

    /// Cuts `0..len` into ranges of `chunk` (the last may be shorter) and runs `task` on each.
    ///
    /// # Panics
    /// As [`Region::parallel_for`].
    pub fn parallel_ranges(&self, len: usize, chunk: usize, task: &(dyn Fn(Range<usize>) + Sync)) {
        let chunk = chunk.max(1);
        self.parallel_for(len.div_ceil(chunk), &|index| {
            // No overflow: `index` is below the number of chunks, so the start is below `len`.
            let start = index * chunk;
            task(start..start.saturating_add(chunk).min(len));
        });
    }

    /// Cuts `data` into chunks (the last may be shorter) and runs `task(index, chunk)` on each.
    ///
    /// # Panics
    /// As [`Region::parallel_for`].
    pub fn parallel_chunks_mut<T: Send>(&self, data: &mut [T], chunk: usize, task: &(dyn Fn(usize, &mut [T]) + Sync)) {
        let chunk = chunk.max(1);
        let len = data.len();
        let base = SharedPtr(data.as_mut_ptr());
        self.parallel_ranges(len, chunk, &|range| {
            // SAFETY: ranges lie within `data`, which is borrowed exclusively until the join, and no two of them
            // overlap, so each element is reached by one task alone. `T: Send` lets that be another thread.
            let part = unsafe { std::slice::from_raw_parts_mut(base.get().add(range.start), range.len()) };
            task(range.start / chunk, part);
        });
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        if let Some(pool) = self.pool {
            pool.crew.taken.store(false, Ordering::Release);
        }
    }
}

/// A pointer that tasks on several threads may hold.
struct SharedPtr<T>(*mut T);

// SAFETY: the pointer is only an address; who dereferences it answers for what it reaches.
unsafe impl<T: Send> Sync for SharedPtr<T> {}

impl<T> SharedPtr<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

#[cfg(test)]
mod tests;
