//! Runs a program's function on rows of a kernel: finds each port's memory, gathers what does not lie in place.

use super::Compiled;
use super::integers::Lane;
use super::nest::{Port, Width};
use super::small_floats::is_byte_float;
use crate::buffers::{Buffers, Sizes, Strides};
use crate::space::position;
use crate::tile::code::{Bits, Code, What};
use crate::tile::io::{self, Block};
use crate::tile::machine::{Class, Modes};
use crate::tile::scratch;
use rlx_driver::HostFacts;
use rlx_ir::DType;
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

/// A walk: steps over rows, and over the elements of a row.
#[derive(Clone, Debug)]
pub struct Line {
    pub buffer: u32,
    pub dtype: DType,
    pub offset: i64,
    pub outer: Strides,
    pub inner: Strides,
}

/// Where a port's memory comes from.
#[derive(Debug)]
enum Feed {
    /// It lies in place.
    Place(Line),
    /// It is gathered into a slot.
    Gather(Line, usize),
    /// A boolean or small integer for the whole row, as a lane in a slot.
    Word(Line, usize),
    /// Indices in a slot: steps over rows and elements, whether one is all, whether they are integers.
    Index(Strides, Strides, usize, bool, bool),
    /// A number known at bind.
    Number(Bits),
    /// A result that is scattered from a slot.
    Scatter(Line, usize),
    /// A slot.
    Slot(usize),
}

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
    feeds: Vec<Feed>,
    slots: usize,
    /// Many rows can be had with one call.
    many: bool,
}

/// What [`Rows::new`] is told of a kernel at concrete sizes.
pub struct Site<'a> {
    pub code: &'a Code,
    pub modes: &'a Modes,
    pub outer: Sizes,
    pub inner: Sizes,
    /// See [`Rows`]; all rows are of one length if this is the product of `inner`.
    pub last: usize,
    /// Walks of the reads and how they become values.
    pub reads: Vec<(Line, Class)>,
    /// Walks of the writes and whether results may be computed where they are written; without, a write of one element a row.
    pub writes: Vec<(Line, Option<bool>)>,
    /// Steps of indices, by value.
    pub indices: Vec<(u32, Strides, Strides)>,
}

impl Rows {
    /// Plans the run; `None` if the program has no function for this.
    pub fn new(site: Site<'_>) -> Option<Rows> {
        let Site { code, modes, outer, inner, last, mut reads, mut writes, indices } = site;
        // Machine code makes numbers of the bytes of small floats by itself.
        let lines = reads.iter_mut().map(|r| &mut r.0).chain(writes.iter_mut().map(|w| &mut w.0));
        lines.filter(|l| is_byte_float(l.dtype)).for_each(|l| l.dtype = DType::U8);
        // A copy has nothing to compute.
        if !code.steps.iter().any(|s| s.live && matches!(s.what, What::Run(_))) {
            return None;
        }
        let along: Vec<bool> = writes.iter().map(|w| w.1.is_some()).collect();
        let cache = code.jit.as_ref()?;
        let compiled = cache.get(code, &modes.uniform, &along, false)?;
        let (mut feeds, mut slots) = (Vec::with_capacity(compiled.ports.len()), 0);
        let mut slot = || {
            slots += 1;
            slots - 1
        };
        // What is narrower than a lane is written, and read, eight at a time; only whole eights may lie in place.
        let eights = inner.iter().product::<usize>() % 8 == 0 && last % 8 == 0;
        for (port, width) in compiled.ports.iter().zip(&compiled.widths) {
            let lies = *width == Width::Word || eights;
            feeds.push(match *port {
                Port::Source(v) => {
                    let step = code.steps.get(v as usize)?;
                    match step.what {
                        What::Read(k) => {
                            let (line, class) = reads.get(k as usize)?.clone();
                            match (class, Lane::stored(step.dtype)?) {
                                (Class::Uniform, Lane::Mask | Lane::Small(_)) => Feed::Word(line, slot()),
                                (Class::Uniform | Class::InPlace, Lane::Int) => Feed::Place(line),
                                (Class::Uniform | Class::InPlace, Lane::Float) if line.dtype == DType::F32 => {
                                    Feed::Place(line)
                                }
                                (Class::InPlace, Lane::Small(_)) if lies => Feed::Place(line),
                                _ => Feed::Gather(line, slot()),
                            }
                        }
                        What::Index(_) => {
                            let (_, outer, inner) = indices.iter().find(|i| i.0 == v)?.clone();
                            Feed::Index(outer, inner, slot(), modes.uniform[v as usize], step.dtype == DType::I32)
                        }
                        What::Size(_) => Feed::Number(modes.sizes.iter().find(|s| s.0 == v)?.1),
                        _ => return None,
                    }
                }
                Port::Result(i) => {
                    let (line, direct) = writes.get(i as usize)?.clone();
                    // A row at a time may be read where it is written only by the very same walk.
                    let apart = reads.iter().all(|(r, _)| r.buffer != line.buffer || r.same_walk(&line));
                    if direct? && apart && lies { Feed::Place(line) } else { Feed::Scatter(line, slot()) }
                }
                Port::RowResult(i) => Feed::Place(writes.get(i as usize)?.0.clone()),
                Port::Kept => Feed::Slot(slot()),
            });
        }
        let many =
            !feeds.iter().any(|f| matches!(f, Feed::Gather(..) | Feed::Word(..) | Feed::Index(..) | Feed::Scatter(..)));
        let moves = |p: &Port| match *p {
            Port::Source(v) => !modes.uniform.get(v as usize).copied().unwrap_or(false),
            _ => true,
        };
        let moves: Vec<bool> = compiled.ports.iter().map(moves).collect();
        let points = outer.iter().chain(&inner).fold(size_of::<f32>(), |n, &s| n.saturating_mul(s));
        let touched = points.saturating_mul(moves.iter().filter(|&&m| m).count());
        let results = compiled.ports.iter().all(|p| !matches!(p, Port::RowResult(_) | Port::Kept));
        let words = compiled.widths.iter().all(|&w| w == Width::Word);
        let long = many && results && words && inner.iter().product::<usize>() >= LONG;
        let past = if long && touched > past_caches() { cache.get(code, &modes.uniform, &along, true) } else { None };
        Some(Rows { code: compiled, past, moves, outer, inner, last, feeds, slots, many })
    }

    /// Runs rows `first..end`.
    /// # Safety
    /// As [`crate::map::run`]; no other thread has these rows.
    pub unsafe fn run(&self, bufs: &Buffers<'_>, first: usize, end: usize) {
        let full: usize = self.inner.iter().product();
        let slot_len = (full * size_of::<f32>()).next_multiple_of(64) + 64;
        let across = self.outer.last().copied().unwrap_or(1).max(1);
        scratch::with(self.slots * slot_len, |memory| {
            let slots = memory.as_mut_ptr();
            let mut args: SmallVec<[u64; 48]> = smallvec::smallvec![0; 3 + 2 * self.feeds.len()];
            let mut r = first;
            while r < end {
                let at = r % across;
                let short = self.last != full;
                let n = if short && at + 1 == across { self.last } else { full };
                let run = if short { across.saturating_sub(at + 1).max(1) } else { across - at };
                let rows = if self.many { run.min(end - r) } else { 1 };
                // SAFETY: the caller's promise; slots hold a row each.
                unsafe {
                    for (k, feed) in self.feeds.iter().enumerate() {
                        let (p, step) = self.feed(feed, bufs, r, n, slots, slot_len);
                        args[3 + 2 * k] = p as u64;
                        args[4 + 2 * k] = step as u64;
                    }
                    args[0] = n as u64;
                    args[1] = rows as u64;
                    match &self.past {
                        Some(past) => self.around(past, &args, rows),
                        None => self.code.call(&mut args),
                    }
                    for feed in &self.feeds {
                        if let Feed::Scatter(line, slot) = feed {
                            let start = position(r, &self.outer, line.offset, &line.outer);
                            let sizes = self.sizes(n);
                            let block = Block { sizes: &sizes, strides: &line.inner };
                            let from = slots.wrapping_add(slot * slot_len);
                            io::store(line.dtype, bufs.base(line.buffer), start, block, from);
                        }
                    }
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

    /// A port's address at row `r`, and its step from row to row in bytes.
    /// # Safety
    /// As [`Rows::run`].
    unsafe fn feed(
        &self,
        feed: &Feed,
        bufs: &Buffers<'_>,
        r: usize,
        n: usize,
        slots: *mut u8,
        slot_len: usize,
    ) -> (*mut u8, i64) {
        let slot = |s: usize| slots.wrapping_add(s * slot_len);
        // SAFETY: the caller's promise.
        unsafe {
            match feed {
                Feed::Place(line) => {
                    let at = position(r, &self.outer, line.offset, &line.outer);
                    let size = line.dtype.bits() as i64 / 8;
                    let p = bufs.base(line.buffer).wrapping_offset((at * size) as isize);
                    (p, line.outer.last().copied().unwrap_or(0).wrapping_mul(size))
                }
                Feed::Gather(line, s) => {
                    let start = position(r, &self.outer, line.offset, &line.outer);
                    let sizes = self.sizes(n);
                    let block = Block { sizes: &sizes, strides: &line.inner };
                    io::load(line.dtype, bufs.base(line.buffer), start, block, slot(*s));
                    (slot(*s), 0)
                }
                Feed::Word(line, s) => {
                    let start = position(r, &self.outer, line.offset, &line.outer);
                    let mut bits = 0u64;
                    let one = Block { sizes: &[], strides: &[] };
                    io::load(line.dtype, bufs.base(line.buffer), start, one, (&raw mut bits).cast());
                    let lane = Lane::of(line.dtype).unwrap_or(Lane::Int);
                    *slot(*s).cast::<i32>() = lane.bits(u64::from_le(bits));
                    (slot(*s), 0)
                }
                Feed::Index(outer, inner, s, uniform, whole) => {
                    let start = position(r, &self.outer, 0, outer);
                    let sizes = self.sizes(n);
                    let y = slot(*s).cast::<f32>();
                    for i in 0..if *uniform { 1 } else { n } {
                        let at = position(i, &sizes, start, inner);
                        match whole {
                            true => *y.add(i).cast::<i32>() = at as i32,
                            false => *y.add(i) = at as f32,
                        }
                    }
                    (y.cast(), 0)
                }
                // Little-endian bits begin with the element.
                Feed::Number(bits) => (bits.as_ptr().cast::<u8>().cast_mut(), 0),
                Feed::Scatter(_, s) | Feed::Slot(s) => (slot(*s), 0),
            }
        }
    }
}

impl Line {
    fn same_walk(&self, other: &Line) -> bool {
        self.offset == other.offset && self.outer == other.outer && self.inner == other.inner
    }
}
