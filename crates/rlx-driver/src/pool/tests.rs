//! The pool's promises, on pools narrower and wider than the machine.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

const WIDTHS: [usize; 4] = [1, 2, 3, 7];

/// Runs a fork and counts how often each index ran.
fn counts(region: &Region<'_>, n_tasks: usize) -> Vec<usize> {
    let ran: Vec<AtomicUsize> = (0..n_tasks).map(|_| AtomicUsize::new(0)).collect();
    region.parallel_for(n_tasks, &|i| {
        ran[i].fetch_add(1, Ordering::Relaxed);
    });
    ran.into_iter().map(AtomicUsize::into_inner).collect()
}

/// Waits for what other threads do soon; false when they do not.
fn soon(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > Duration::from_secs(60) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

#[test]
fn every_task_runs_once() {
    for width in WIDTHS {
        let pool = ThreadPool::new(width);
        assert_eq!(pool.threads(), width);
        for n_tasks in [0, 1, 2, 3, 6, 7, 8, 13, 1000] {
            for limit in [1, 2, width, 100] {
                let region = pool.enter(limit);
                assert!(region.threads() <= width.min(limit));
                assert_eq!(counts(&region, n_tasks), vec![1; n_tasks]);
            }
        }
    }
}

#[test]
fn absurd_widths_are_brought_within_bounds() {
    assert_eq!(ThreadPool::new(0).threads(), 1);
    assert!(ThreadPool::new(usize::MAX).threads() <= MAX_THREADS);
}

#[test]
fn ten_thousand_forks() {
    for width in WIDTHS {
        let pool = ThreadPool::new(width);
        let region = pool.enter(width);
        let sum = AtomicUsize::new(0);
        for fork in 0..10_000 {
            let n_tasks = fork % 9;
            region.parallel_for(n_tasks, &|i| {
                sum.fetch_add(i + 1, Ordering::Relaxed);
            });
        }
        let expected: usize = (0..10_000).map(|f| (f % 9) * (f % 9 + 1) / 2).sum();
        assert_eq!(sum.into_inner(), expected);
    }
}

#[test]
fn forks_after_sleep_are_not_lost() {
    let pool = ThreadPool::new(3);
    for round in 0..50_u64 {
        std::thread::sleep(Duration::from_micros(round * 7));
        assert_eq!(counts(&pool.enter(3), 5), [1; 5]);
    }
}

#[test]
fn tasks_really_run_side_by_side() {
    for width in [2, 3, 7] {
        let pool = ThreadPool::new(width);
        // Each task waits for all others: fewer than `width` threads would never end.
        let barrier = std::sync::Barrier::new(width);
        let threads = Mutex::new(std::collections::HashSet::new());
        pool.parallel_for(width, &|_| {
            barrier.wait();
            threads.lock().unwrap().insert(std::thread::current().id());
        });
        assert_eq!(threads.into_inner().unwrap().len(), width);
    }
}

#[test]
fn a_narrow_region_uses_few_threads() {
    let pool = ThreadPool::new(7);
    let region = pool.enter(2);
    let threads = Mutex::new(std::collections::HashSet::new());
    for _ in 0..100 {
        region.parallel_for(50, &|_| {
            threads.lock().unwrap().insert(std::thread::current().id());
        });
    }
    assert!(threads.into_inner().unwrap().len() <= 2);
}

#[test]
fn one_run_has_the_pool_and_others_run_alone() {
    let pool = ThreadPool::new(2);
    let region = pool.try_enter(2).unwrap();
    assert_eq!(region.threads(), 2);
    assert!(pool.try_enter(2).is_none());
    let other = pool.enter(2);
    assert_eq!(other.threads(), 1);
    let me = std::thread::current().id();
    other.parallel_for(10, &|_| assert_eq!(std::thread::current().id(), me));
    drop(other);
    assert!(pool.try_enter(2).is_none(), "an inline region gave back what it never had");
    drop(region);
    assert!(pool.try_enter(2).is_some());
}

#[test]
fn many_callers_at_once() {
    for width in WIDTHS {
        let pool = ThreadPool::new(width);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for n_tasks in 0..300 {
                        let n_tasks = n_tasks % 11;
                        let region = pool.enter(width);
                        assert_eq!(counts(&region, n_tasks), vec![1; n_tasks]);
                        assert_eq!(counts(&region, 2), [1; 2]);
                    }
                });
            }
        });
        assert!(pool.try_enter(width).is_some());
    }
}

#[test]
fn one_region_forked_from_many_threads() {
    let pool = ThreadPool::new(3);
    let region = pool.enter(3);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    assert_eq!(counts(&region, 6), [1; 6]);
                }
            });
        }
    });
}

#[test]
fn nested_forks_run_to_the_end() {
    for width in WIDTHS {
        let pool = ThreadPool::new(width);
        let sum = AtomicUsize::new(0);
        let region = pool.enter(width);
        region.parallel_for(5, &|i| {
            region.parallel_for(4, &|j| {
                pool.parallel_for(3, &|k| {
                    sum.fetch_add(i * 100 + j * 10 + k, Ordering::Relaxed);
                });
            });
        });
        let expected: usize = (0..60).map(|x| x / 12 * 100 + x / 3 % 4 * 10 + x % 3).sum();
        assert_eq!(sum.into_inner(), expected);
    }
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
    for width in WIDTHS {
        let pool = ThreadPool::new(width);
        for bad in [0, 5, 19] {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.parallel_for(20, &|i| assert!(i != bad, "task {i} failed"));
            }));
            let payload = outcome.unwrap_err();
            let message = payload.downcast_ref::<String>().unwrap();
            assert_eq!(*message, format!("task {bad} failed"));
            assert_eq!(counts(&pool.try_enter(width).unwrap(), 20), [1; 20]);
        }
        let all = catch_unwind(AssertUnwindSafe(|| {
            pool.parallel_for(20, &|_| panic!("all"));
        }));
        assert!(all.is_err());
        assert_eq!(counts(&pool.enter(width), 20), [1; 20]);
    }
}

#[test]
fn a_panic_on_a_worker_reaches_the_caller() {
    let pool = ThreadPool::new(2);
    let caller = std::thread::current().id();
    let barrier = std::sync::Barrier::new(2);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        pool.parallel_for(2, &|_| {
            barrier.wait();
            assert!(std::thread::current().id() == caller, "on the worker");
        });
    }));
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"on the worker"));
    assert_eq!(counts(&pool.enter(2), 3), [1; 3]);
}

#[test]
fn the_join_waits_for_a_slow_worker_and_sees_its_writes() {
    let pool = ThreadPool::new(2);
    let caller = std::thread::current().id();
    for _ in 0..5 {
        let barrier = std::sync::Barrier::new(2);
        let done = AtomicBool::new(false);
        pool.parallel_for(2, &|_| {
            barrier.wait();
            if std::thread::current().id() != caller {
                std::thread::sleep(Duration::from_millis(5));
                done.store(true, Ordering::Relaxed);
            }
        });
        assert!(done.into_inner());
    }
}

#[test]
fn idle_workers_sleep_and_wake() {
    for width in [2, 7] {
        let pool = ThreadPool::new(width);
        for _ in 0..3 {
            assert!(soon(|| pool.crew.sleepers() == width - 1));
            let barrier = std::sync::Barrier::new(width);
            pool.parallel_for(width, &|_| {
                barrier.wait();
            });
        }
    }
}

#[test]
fn dropping_a_pool_ends_its_workers() {
    for pause in [0, 1, 100] {
        let pool = ThreadPool::new(4);
        let crew = Arc::downgrade(&pool.crew);
        pool.parallel_for(8, &|_| {});
        std::thread::sleep(Duration::from_micros(pause));
        drop(pool);
        assert!(crew.upgrade().is_none());
    }
}

#[test]
fn ranges_cover_the_whole_once() {
    let pool = ThreadPool::new(3);
    let region = pool.enter(3);
    for (len, chunk) in [(0, 4), (1, 4), (8, 4), (9, 4), (5, 0), (5, usize::MAX)] {
        let seen = Mutex::new(Vec::new());
        region.parallel_ranges(len, chunk, &|range| {
            assert!(range.len() <= chunk.max(1));
            seen.lock().unwrap().extend(range);
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, (0..len).collect::<Vec<_>>());
    }
}

#[test]
fn chunks_are_written_by_index() {
    for width in WIDTHS {
        let pool = ThreadPool::new(width);
        let region = pool.enter(width);
        for len in [0, 1, 15, 16, 17, 100] {
            let mut data = vec![0; len];
            region.parallel_chunks_mut(&mut data, 8, &|index, part| {
                part.iter_mut().for_each(|x| *x += index + 1);
            });
            assert_eq!(data, (0..len).map(|i| i / 8 + 1).collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_global_pool_is_as_wide_as_the_host() {
    let pool = ThreadPool::global();
    assert!(std::ptr::eq(pool, ThreadPool::global()));
    assert!(pool.threads() <= HostFacts::get().usable_cores());
    assert_eq!(counts(&pool.enter(usize::MAX), 10), [1; 10]);
}
