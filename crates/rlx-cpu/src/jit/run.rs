//! Runs a program's function on the rows of a kernel.

use super::Compiled;
use super::feeds::{Feeds, Piece, Walks};
use super::nest::{Port, Width};
use crate::buffers::{Buffers, Sizes};
use crate::tile::scratch;
use rlx_driver::HostFacts;
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

/// Elements that a row has at least for its results to go past the caches.
const LONG: usize = 4096;

/// Bytes from which on what a kernel reads and writes is not expected to be found in a cache later.
pub fn past_caches() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| HostFacts::get().caches.l3.max(16 << 20))
}

/// Rows and how the function runs on them.
#[derive(Debug)]
pub struct Rows {
    code: Arc<Compiled>,
    /// The function that writes past the caches, for kernels that fill them.
    past: Option<Arc<Compiled>>,
    /// Which ports move along with the elements.
    moves: Vec<bool>,
    /// The space of rows.
    outer: Sizes,
    /// Elements of a row: sizes.
    inner: Sizes,
    /// Elements of the row at the last index of the innermost outer axis.
    last: usize,
    feeds: Feeds,
}

/// What [`Rows::new`] is told of a kernel at concrete sizes.
pub struct Site<'a> {
    pub walks: Walks<'a>,
    pub outer: Sizes,
    pub inner: Sizes,
    /// See [`Rows`]; all rows are of one length if this is the product of `inner`.
    pub last: usize,
}

impl Rows {
    /// Plans the run; `None` if the program has no function for this.
    pub fn new(site: Site<'_>) -> Option<Rows> {
        let Site { walks, outer, inner, last } = site;
        let points = outer.iter().chain(&inner).fold(1usize, |n, &s| n.saturating_mul(s));
        let compiled = walks.function(points, false)?;
        let eights = inner.iter().product::<usize>() % 8 == 0 && last % 8 == 0;
        let feeds = Feeds::new(&compiled, &walks, eights)?;
        let moves = |p: &Port| match *p {
            Port::Source(v) => !walks.modes.uniform.get(v as usize).copied().unwrap_or(false),
            _ => true,
        };
        let moves: Vec<bool> = compiled.ports.iter().map(moves).collect();
        let streams = moves.iter().filter(|&&m| m).count();
        let touched = points.saturating_mul(streams.saturating_mul(size_of::<f32>()));
        let results = compiled.ports.iter().all(|p| !matches!(p, Port::RowResult(_) | Port::Kept));
        let words = compiled.widths.iter().all(|&w| w == Width::Word);
        let long = feeds.many && results && words && inner.iter().product::<usize>() >= LONG;
        let past = if long && touched > past_caches() { walks.function(points, true) } else { None };
        Some(Rows { code: compiled, past, moves, outer, inner, last, feeds })
    }

    /// Runs rows `first..end`.
    /// # Safety
    /// As [`crate::map::run`]; no other thread has these rows.
    pub unsafe fn run(&self, bufs: &Buffers<'_>, first: usize, end: usize) {
        let full: usize = self.inner.iter().product();
        let slot_len = Feeds::slot_len(full);
        let across = self.outer.last().copied().unwrap_or(1).max(1);
        scratch::with(self.feeds.bytes(slot_len), |memory| {
            let slots = memory.as_mut_ptr();
            let mut args: SmallVec<[u64; 48]> = smallvec::smallvec![0; 3 + 2 * self.feeds.len()];
            let mut r = first;
            while r < end {
                let at = r % across;
                let short = self.last != full;
                let n = if short && at + 1 == across { self.last } else { full };
                let run = if short { across.saturating_sub(at + 1).max(1) } else { across - at };
                let rows = if self.feeds.many { run.min(end - r) } else { 1 };
                let (outer, inner) = (&self.outer, &self.inner);
                let shorter = (n != full).then(|| self.sizes(n));
                let block = shorter.as_ref().unwrap_or(inner);
                let piece = Piece { outer, row: r, inner, column: 0, block, sums: (std::ptr::null_mut(), 0) };
                // SAFETY: the caller's promise; slots hold a row each.
                unsafe {
                    self.feeds.fill(&mut args[3..], bufs, &piece, slots, slot_len);
                    args[0] = n as u64;
                    args[1] = rows as u64;
                    match &self.past {
                        Some(past) => self.around(past, &args, rows),
                        None => self.code.call(&mut args),
                    }
                    self.feeds.scatter(bufs, &piece, slots, slot_len);
                }
                r += rows;
            }
        });
    }

    /// Runs rows with results written past the caches, up to where they are aligned in the usual way.
    /// # Safety
    /// As [`Compiled::call`].
    unsafe fn around(&self, past: &Compiled, args: &[u64], rows: usize) {
        const ALIGN: u64 = 32;
        const ELEMENT: u64 = size_of::<f32>() as u64;
        for row in 0..rows as u64 {
            let mut args: SmallVec<[u64; 48]> = args.into();
            args[1] = 1;
            for port in args[3..].chunks_exact_mut(2) {
                port[0] = port[0].wrapping_add(port[1].wrapping_mul(row));
            }
            let mut results = (self.code.ports.iter().zip(args[3..].chunks_exact(2)))
                .filter(|(p, _)| matches!(p, Port::Result(_)))
                .map(|(_, port)| port[0].wrapping_neg() % ALIGN);
            let head = results.next().unwrap_or(0);
            let together = head % ELEMENT == 0 && results.all(|h| h == head);
            // SAFETY: the caller's promise, for parts of a row; results of the second part are aligned.
            unsafe {
                if !together || head / ELEMENT >= args[0] {
                    self.code.call(&mut args);
                    continue;
                }
                if head > 0 {
                    let mut part = args.clone();
                    part[0] = head / ELEMENT;
                    self.code.call(&mut part);
                    args[0] -= head / ELEMENT;
                    for (port, _) in args[3..].chunks_exact_mut(2).zip(&self.moves).filter(|(_, m)| **m) {
                        port[0] = port[0].wrapping_add(head);
                    }
                }
                past.call(&mut args);
            }
        }
    }

    /// Sizes of a row of `n` elements.
    fn sizes(&self, n: usize) -> Sizes {
        let mut sizes = self.inner.clone();
        let rest: usize = sizes.iter().skip(1).product();
        if let Some(first) = sizes.first_mut() {
            *first = n / rest.max(1);
        }
        sizes
    }
}
