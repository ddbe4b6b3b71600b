//! The memory of a function's ports: what lies in place, what is gathered into a slot before a call or scattered from one after it.

use super::integers::Lane;
use super::nest::{Port, Width};
use super::small_floats::is_byte_float;
use super::{Compiled, Form};
use crate::buffers::{Buffers, Strides};
use crate::space::position;
use crate::tile::code::{Bits, Code, What};
use crate::tile::io::{self, Block};
use crate::tile::machine::{Class, Modes};
use rlx_ir::DType;

/// A walk: steps over rows, and over the elements of a row.
#[derive(Clone, Debug)]
pub struct Line {
    pub buffer: u32,
    pub dtype: DType,
    pub offset: i64,
    pub outer: Strides,
    pub inner: Strides,
}

impl Line {
    fn same_walk(&self, other: &Line) -> bool {
        self.offset == other.offset && self.outer == other.outer && self.inner == other.inner
    }
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
    /// What the kernel has summed.
    Sums,
    /// A result that is scattered from a slot.
    Scatter(Line, usize),
    /// A slot.
    Slot(usize),
}

/// The walks of a kernel at concrete sizes.
pub struct Walks<'a> {
    pub code: &'a Code,
    pub modes: &'a Modes,
    /// Reads and how they become values.
    pub reads: Vec<(Line, Class)>,
    /// Writes and whether results may be computed where they are written; without, a write of one element a row.
    pub writes: Vec<(Line, Option<bool>)>,
    /// Steps of indices, by value.
    pub indices: Vec<(u32, Strides, Strides)>,
}

impl Walks<'_> {
    /// The program's function, if there is one for this, in a kernel of so many points.
    pub fn function(&self, points: usize, past_caches: bool) -> Option<std::sync::Arc<Compiled>> {
        // A copy has nothing to compute.
        if !self.code.steps.iter().any(|s| s.live && matches!(s.what, What::Run(_))) {
            return None;
        }
        let along: Vec<bool> = self.writes.iter().map(|w| w.1.is_some()).collect();
        let form = Form { uniform: &self.modes.uniform, along: &along, past_caches };
        self.code.jit.as_ref()?.get(self.code, form, points)
    }
}

/// Elements of a row, or of rows that follow each other along the innermost of their axes.
pub struct Piece<'a> {
    /// Sizes of the space of rows, and the first row.
    pub outer: &'a [usize],
    pub row: usize,
    /// Sizes of a row, and the first element.
    pub inner: &'a [usize],
    pub column: usize,
    /// Sizes of the piece along the last axes of a row.
    pub block: &'a [usize],
    /// What the kernel has summed, and the bytes from row to row of it.
    pub sums: (*mut u8, i64),
}

impl Piece<'_> {
    /// Elements of one row.
    pub fn len(&self) -> usize {
        self.block.iter().product()
    }

    fn at(&self, offset: i64, outer: &Strides, inner: &Strides) -> i64 {
        let row = position(self.row, self.outer, offset, outer);
        position(self.column, self.inner, row, inner)
    }

    /// The piece of a walk.
    fn of<'b>(&'b self, inner: &'b Strides) -> Block<'b> {
        Block { sizes: self.block, strides: &inner[inner.len() - self.block.len()..] }
    }
}

/// Where a function finds each of its ports.
#[derive(Debug)]
pub struct Feeds {
    list: Vec<Feed>,
    slots: usize,
    /// Many rows can be had with one call.
    pub many: bool,
}

impl Feeds {
    /// `eights` says that pieces are of whole eights: what is narrower than a lane is read and written eight at a time, and only whole
    /// eights may lie in place. `None` if something has no machine code.
    pub fn new(compiled: &Compiled, walks: &Walks<'_>, eights: bool) -> Option<Feeds> {
        let (mut list, mut slots) = (Vec::with_capacity(compiled.ports.len()), 0);
        let mut slot = || {
            slots += 1;
            slots - 1
        };
        // Machine code makes numbers of the bytes of small floats by itself.
        let stored = |line: &Line| {
            let dtype = if is_byte_float(line.dtype) { DType::U8 } else { line.dtype };
            Line { dtype, ..line.clone() }
        };
        for (port, width) in compiled.ports.iter().zip(&compiled.widths) {
            let lies = *width == Width::Word || eights;
            list.push(match *port {
                Port::Source(v) => {
                    let step = walks.code.steps.get(v as usize)?;
                    match step.what {
                        What::Read(k) => {
                            let (line, class) = walks.reads.get(k as usize)?;
                            let line = stored(line);
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
                            let (_, outer, inner) = walks.indices.iter().find(|i| i.0 == v)?.clone();
                            let uniform = walks.modes.uniform[v as usize];
                            Feed::Index(outer, inner, slot(), uniform, step.dtype == DType::I32)
                        }
                        What::Size(_) => Feed::Number(walks.modes.sizes.iter().find(|s| s.0 == v)?.1),
                        What::Acc => Feed::Sums,
                        _ => return None,
                    }
                }
                Port::Result(i) => {
                    let (line, direct) = walks.writes.get(i as usize)?;
                    let line = stored(line);
                    // A row at a time may be read where it is written only by the very same walk.
                    let apart = walks.reads.iter().all(|(r, _)| r.buffer != line.buffer || r.same_walk(&line));
                    if (*direct)? && apart && lies { Feed::Place(line) } else { Feed::Scatter(line, slot()) }
                }
                Port::RowResult(i) => Feed::Place(walks.writes.get(i as usize)?.0.clone()),
                Port::Kept => Feed::Slot(slot()),
            });
        }
        let once = |f: &Feed| matches!(f, Feed::Gather(..) | Feed::Word(..) | Feed::Index(..) | Feed::Scatter(..));
        let many = !list.iter().any(once);
        Some(Feeds { list, slots, many })
    }

    /// Number of ports.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Bytes of a slot for rows of so many elements.
    pub fn slot_len(elements: usize) -> usize {
        (elements * size_of::<f32>()).next_multiple_of(64) + 64
    }

    /// Bytes of all slots.
    pub fn bytes(&self, slot_len: usize) -> usize {
        self.slots * slot_len
    }

    /// Writes each port's address and its step from row to row in bytes, and gathers what does not lie in place.
    /// # Safety
    /// The walks lie within the buffers at this piece; `slots` has a slot of `slot_len` bytes for each, which hold a row of the piece.
    pub unsafe fn fill(
        &self,
        ports: &mut [u64],
        bufs: &Buffers<'_>,
        piece: &Piece<'_>,
        slots: *mut u8,
        slot_len: usize,
    ) {
        for (feed, port) in self.list.iter().zip(ports.chunks_exact_mut(2)) {
            // SAFETY: the caller's promise.
            let (p, step) = unsafe { self.port(feed, bufs, piece, slots, slot_len) };
            (port[0], port[1]) = (p as u64, step as u64);
        }
    }

    /// Moves results from their slots to where they are written.
    /// # Safety
    /// As [`Feeds::fill`], after a call; nothing else writes there.
    pub unsafe fn scatter(&self, bufs: &Buffers<'_>, piece: &Piece<'_>, slots: *mut u8, slot_len: usize) {
        for feed in &self.list {
            if let Feed::Scatter(line, slot) = feed {
                let start = piece.at(line.offset, &line.outer, &line.inner);
                let from = slots.wrapping_add(slot * slot_len);
                // SAFETY: the caller's promise.
                unsafe { io::store(line.dtype, bufs.base(line.buffer), start, piece.of(&line.inner), from) };
            }
        }
    }

    /// # Safety
    /// As [`Feeds::fill`].
    unsafe fn port(
        &self,
        feed: &Feed,
        bufs: &Buffers<'_>,
        piece: &Piece<'_>,
        slots: *mut u8,
        slot_len: usize,
    ) -> (*mut u8, i64) {
        let slot = |s: usize| slots.wrapping_add(s * slot_len);
        let start = |line: &Line| piece.at(line.offset, &line.outer, &line.inner);
        // SAFETY: the caller's promise.
        unsafe {
            match feed {
                Feed::Place(line) => {
                    let size = line.dtype.bits() as i64 / 8;
                    let p = bufs.base(line.buffer).wrapping_offset((start(line) * size) as isize);
                    (p, line.outer.last().copied().unwrap_or(0).wrapping_mul(size))
                }
                Feed::Gather(line, s) => {
                    io::load(line.dtype, bufs.base(line.buffer), start(line), piece.of(&line.inner), slot(*s));
                    (slot(*s), 0)
                }
                Feed::Word(line, s) => {
                    let mut bits = 0u64;
                    let one = Block { sizes: &[], strides: &[] };
                    io::load(line.dtype, bufs.base(line.buffer), start(line), one, (&raw mut bits).cast());
                    let lane = Lane::of(line.dtype).unwrap_or(Lane::Int);
                    *slot(*s).cast::<i32>() = lane.bits(u64::from_le(bits));
                    (slot(*s), 0)
                }
                Feed::Index(outer, inner, s, uniform, whole) => {
                    let start = piece.at(0, outer, inner);
                    let steps = piece.of(inner).strides;
                    let y = slot(*s).cast::<f32>();
                    for i in 0..if *uniform { 1 } else { piece.len() } {
                        let at = position(i, piece.block, start, steps);
                        match whole {
                            true => *y.add(i).cast::<i32>() = at as i32,
                            false => *y.add(i) = at as f32,
                        }
                    }
                    (y.cast(), 0)
                }
                // Little-endian bits begin with the element.
                Feed::Number(bits) => (bits.as_ptr().cast::<u8>().cast_mut(), 0),
                Feed::Sums => piece.sums,
                Feed::Scatter(_, s) | Feed::Slot(s) => (slot(*s), 0),
            }
        }
    }
}
