//! The tape: a straight program of vector operations in SSA form, and the level of [`Simd`] that writes one.
//!
//! The bodies of [`crate::simd::math`] and their like, run at this level, write down the very operations that they run
//! at the AVX2 level: there is no second version of a function, hence none that could give other bits. What has no
//! operation here (a scalar function for each lane, a branch on lanes) marks the tape as failed.

use crate::simd::{Kernel, Simd};
use std::cell::RefCell;
use std::collections::HashMap;

/// A value: its number on the tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct V(pub u32);

/// An operation of two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Two {
    Add,
    Sub,
    Mul,
    Div,
    /// `a < b ? a : b`.
    Min,
    /// `a > b ? a : b`.
    Max,
    And,
    Or,
    Xor,
    AddI,
    SubI,
    MulI,
    MinI,
    MaxI,
    EqI,
    /// `a > b`, with signs.
    GtI,
    /// A comparison by its predicate's number in the instruction set.
    Compare(u8),
}

/// An integer of 8 or 16 bits, as a lane of 32 holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Small {
    I8,
    U8,
    I16,
    U16,
}

impl Small {
    /// Bytes in memory.
    pub fn bytes(self) -> u32 {
        match self {
            Small::I8 | Small::U8 => 1,
            Small::I16 | Small::U16 => 2,
        }
    }

    /// The smallest and the largest.
    pub fn range(self) -> (i32, i32) {
        match self {
            Small::I8 => (-128, 127),
            Small::U8 => (0, 255),
            Small::I16 => (-32768, 32767),
            Small::U16 => (0, 65535),
        }
    }
}

/// An operation of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum One {
    Sqrt,
    /// By its rounding mode's number.
    Round(u8),
    ShiftLeft(u8),
    ShiftRight(u8),
    ToFloat,
    ToInt,
    /// Exchanges halves of the register.
    SwapHalves,
    /// Exchanges lanes within halves.
    Shuffle(u8),
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// All lanes these bits.
    Const(u32),
    /// An element of each lane from a port.
    Stream(u16),
    /// One byte, 0 or 1, of each lane from a port, as a mask.
    Mask(u16),
    /// An integer of fewer than 32 bits of each lane from a port.
    Small(u16, Small),
    /// One element from a port in all lanes.
    Uniform(u16),
    /// In a loop: the partial result of a reduction so far. There is one for each of [`PARTS`] vectors in turn.
    Partial(u16),
    /// After a loop: a partial result of a reduction.
    Part(u16, u8),
    /// In the last turns of a loop: the lanes that there are elements for.
    Tail,
    One(One, V),
    Two(Two, V, V),
    /// `a b + c`, or `c − a b`, rounded once.
    Fma(bool, V, V, V),
    /// `m ? a : b`.
    Select(V, V, V),
}

/// Vectors of partial results of a reduction: as many as the tile machine has lanes for.
pub const PARTS: u8 = 4;

impl Op {
    /// Values that it reads.
    pub fn args(&self) -> impl Iterator<Item = V> + use<> {
        let list = match *self {
            Op::One(_, a) => [Some(a), None, None],
            Op::Two(_, a, b) => [Some(a), Some(b), None],
            Op::Fma(_, a, b, c) | Op::Select(a, b, c) => [Some(a), Some(b), Some(c)],
            _ => [None; 3],
        };
        list.into_iter().flatten()
    }

    /// True of what is there without an operation, or is read where it is needed.
    pub fn is_source(&self) -> bool {
        !matches!(self, Op::One(..) | Op::Two(..) | Op::Fma(..) | Op::Select(..))
    }
}

/// Operations in order; equal ones are written once.
#[derive(Debug, Default)]
pub struct Tape {
    pub ops: Vec<Op>,
    known: HashMap<Op, V>,
    /// Something could not be written.
    pub failed: bool,
}

/// A tape longer than this is not worth the code.
const MOST: usize = 4096;

impl Tape {
    fn push(&mut self, op: Op) -> V {
        if let Some(&v) = self.known.get(&op) {
            return v;
        }
        if self.ops.len() >= MOST {
            self.failed = true;
            return V(0);
        }
        let v = V(self.ops.len() as u32);
        self.ops.push(op);
        self.known.insert(op, v);
        v
    }

    /// The operation of a value.
    pub fn op(&self, v: V) -> Op {
        self.ops.get(v.0 as usize).copied().unwrap_or(Op::Const(0))
    }
}

thread_local! {
    static TAPE: RefCell<Tape> = RefCell::new(Tape::default());
}

/// Runs `f` with an empty tape of this thread; what was written. Recordings do not nest.
pub fn record<R>(f: impl FnOnce(Recorder) -> R) -> (R, Tape) {
    TAPE.with_borrow_mut(|t| *t = Tape::default());
    let r = f(Recorder(()));
    (r, TAPE.with_borrow_mut(std::mem::take))
}

/// The level that writes down what it is asked to do.
#[derive(Clone, Copy)]
pub struct Recorder(());

impl Recorder {
    pub fn push(self, op: Op) -> V {
        TAPE.with_borrow_mut(|t| t.push(op))
    }

    fn fail(self) -> V {
        TAPE.with_borrow_mut(|t| t.failed = true);
        self.push(Op::Const(0))
    }

    pub fn one(self, op: One, a: V) -> V {
        self.push(Op::One(op, a))
    }

    pub fn two(self, op: Two, a: V, b: V) -> V {
        self.push(Op::Two(op, a, b))
    }
}

impl Simd for Recorder {
    type F = V;
    type I = V;
    type M = V;
    const W: usize = 8;
    const TILE_ROWS: usize = 1;
    const TILE_VECTORS: usize = 1;

    fn vectorize<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }
    fn splat(self, v: f32) -> V {
        self.push(Op::Const(v.to_bits()))
    }
    fn splat_i(self, v: i32) -> V {
        self.push(Op::Const(v as u32))
    }
    unsafe fn load(self, _: *const f32) -> V {
        self.fail()
    }
    unsafe fn store(self, _: *mut f32, _: V) {
        self.fail();
    }
    unsafe fn load_partial(self, _: *const f32, _: usize) -> V {
        self.fail()
    }
    unsafe fn store_partial(self, _: *mut f32, _: V, _: usize) {
        self.fail();
    }
    fn add(self, a: V, b: V) -> V {
        self.two(Two::Add, a, b)
    }
    fn sub(self, a: V, b: V) -> V {
        self.two(Two::Sub, a, b)
    }
    fn mul(self, a: V, b: V) -> V {
        self.two(Two::Mul, a, b)
    }
    fn div(self, a: V, b: V) -> V {
        self.two(Two::Div, a, b)
    }
    fn fma(self, a: V, b: V, c: V) -> V {
        self.push(Op::Fma(false, a, b, c))
    }
    fn mul_add(self, a: V, b: V, c: V) -> V {
        self.fma(a, b, c)
    }
    fn fnma(self, a: V, b: V, c: V) -> V {
        self.push(Op::Fma(true, a, b, c))
    }
    fn sqrt(self, a: V) -> V {
        self.one(One::Sqrt, a)
    }
    fn floor(self, a: V) -> V {
        self.one(One::Round(9), a)
    }
    fn ceil(self, a: V) -> V {
        self.one(One::Round(10), a)
    }
    fn trunc(self, a: V) -> V {
        self.one(One::Round(11), a)
    }
    fn round_even(self, a: V) -> V {
        self.one(One::Round(8), a)
    }
    fn min_fast(self, a: V, b: V) -> V {
        self.two(Two::Min, a, b)
    }
    fn max_fast(self, a: V, b: V) -> V {
        self.two(Two::Max, a, b)
    }
    fn lt(self, a: V, b: V) -> V {
        self.two(Two::Compare(0x11), a, b)
    }
    fn le(self, a: V, b: V) -> V {
        self.two(Two::Compare(0x12), a, b)
    }
    fn eq(self, a: V, b: V) -> V {
        self.two(Two::Compare(0), a, b)
    }
    fn and_m(self, a: V, b: V) -> V {
        self.two(Two::And, a, b)
    }
    fn or_m(self, a: V, b: V) -> V {
        self.two(Two::Or, a, b)
    }
    fn not_m(self, a: V) -> V {
        let all = self.splat_i(-1);
        self.two(Two::Xor, a, all)
    }
    fn any(self, _: V) -> bool {
        self.fail();
        false
    }
    fn select(self, m: V, a: V, b: V) -> V {
        self.push(Op::Select(m, a, b))
    }
    fn bits(self, a: V) -> V {
        a
    }
    fn from_bits(self, a: V) -> V {
        a
    }
    fn and_i(self, a: V, b: V) -> V {
        self.two(Two::And, a, b)
    }
    fn or_i(self, a: V, b: V) -> V {
        self.two(Two::Or, a, b)
    }
    fn xor_i(self, a: V, b: V) -> V {
        self.two(Two::Xor, a, b)
    }
    fn add_i(self, a: V, b: V) -> V {
        self.two(Two::AddI, a, b)
    }
    fn sub_i(self, a: V, b: V) -> V {
        self.two(Two::SubI, a, b)
    }
    fn shl_i<const N: u32>(self, a: V) -> V {
        self.one(One::ShiftLeft(N as u8), a)
    }
    fn sar_i<const N: u32>(self, a: V) -> V {
        self.one(One::ShiftRight(N as u8), a)
    }
    fn eq_i(self, a: V, b: V) -> V {
        self.two(Two::EqI, a, b)
    }
    fn to_float(self, a: V) -> V {
        self.one(One::ToFloat, a)
    }
    fn to_int(self, a: V) -> V {
        self.one(One::ToInt, a)
    }
    /// Unordered with itself: the same as not equal to itself, in one operation.
    fn is_nan(self, a: V) -> V {
        self.two(Two::Compare(3), a, a)
    }
    /// What either order gives, or-ed: they differ for zeros, where the sign stays, and for NaN, which stays NaN.
    fn min(self, a: V, b: V) -> V {
        let (x, y) = (self.min_fast(a, b), self.min_fast(b, a));
        self.two(Two::Or, x, y)
    }
    /// What either order gives, and-ed; all bits where either is NaN.
    fn max(self, a: V, b: V) -> V {
        let (x, y) = (self.max_fast(a, b), self.max_fast(b, a));
        let both = self.two(Two::And, x, y);
        let nan = self.two(Two::Compare(3), a, b);
        self.two(Two::Or, both, nan)
    }
    fn map(self, _: V, _: impl Fn(f32) -> f32) -> V {
        self.fail()
    }
    fn map2(self, _: V, _: V, _: impl Fn(f32, f32) -> f32) -> V {
        self.fail()
    }
}
