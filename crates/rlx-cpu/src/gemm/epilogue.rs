//! What happens to the product on its way to C.
//!
//! The menu (scale, bias, residual, activation) is applied to each register tile just after its last block of K, while
//! its lines are in the nearest cache. A [`TileEpilogue`] then sees larger blocks, while they are in the second cache.

use super::Strided;
use crate::simd::{Isa, Kernel, MAX_W, Simd, dispatch, math};
use std::ops::Range;

/// A function on each element of the result.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Activation {
    /// The identity.
    #[default]
    None,
    /// max(x, 0).
    Relu,
    /// x · Φ(x).
    Gelu,
    /// gelu by its tanh formula.
    GeluTanh,
    /// x · sigmoid(x).
    Silu,
    /// 1 / (1 + e⁻ˣ).
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// x · min(max(x + 3, 0), 6) / 6.
    HardSwish,
    /// min(max(x, lo), hi); NaN stays.
    Clip {
        /// Lower bound.
        lo: f32,
        /// Upper bound.
        hi: f32,
    },
}

/// A factor and a summand, each rounded on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Affine {
    /// Multiplies first.
    pub mul: Option<f32>,
    /// Is added then.
    pub add: Option<f32>,
}

impl Affine {
    #[inline(always)]
    fn apply<S: Simd>(&self, s: S, mut v: S::F) -> S::F {
        if let Some(mul) = self.mul {
            v = s.mul(v, s.splat(mul));
        }
        if let Some(add) = self.add {
            v = s.add(v, s.splat(add));
        }
        v
    }
}

/// C = activation(scale · A·B + bias + residual) · mul + add, or with the residual added after all that; then the hook.
///
/// Bias and residual are matrices of C's shape by their strides: a bias for each column has row stride 0 and column
/// stride 1, a scalar has both 0.
#[derive(Clone, Copy, Default)]
pub struct Epilogue<'a> {
    /// Multiplies the product.
    pub scale: Option<f32>,
    /// Added first.
    pub bias: Option<Strided>,
    /// Added second, on the side of the activation that `residual_last` says.
    pub residual: Option<Strided>,
    /// Add the residual after the activation.
    pub residual_last: bool,
    /// The function on each element.
    pub activation: Activation,
    /// Multiplies and is added after the activation.
    pub affine: Affine,
    /// Bias or residual is C itself, as it was: products are then kept elsewhere until C is written.
    pub in_place: bool,
    /// Sees every finished block once.
    pub hook: Option<&'a dyn TileEpilogue>,
}

/// A program on finished blocks of C.
pub trait TileEpilogue: Sync {
    /// Works on one block, in place or to somewhere else. Blocks of one product do not overlap and come in no
    /// particular order, from several threads at once. Which blocks C is cut into must not change what is computed.
    fn run(&self, block: OutputBlock<'_>);
}

/// A finished block of C.
pub struct OutputBlock<'a> {
    /// Its rows of C.
    pub rows: Range<usize>,
    /// Its columns of C.
    pub cols: Range<usize>,
    /// Its first element: valid for reading and writing at the strides below, within the block.
    pub data: *mut f32,
    /// Elements from one row to the next.
    pub row_stride: isize,
    /// Elements from one column to the next.
    pub col_stride: isize,
    /// What the caller gave beyond the product's own scratch.
    pub scratch: &'a mut [f32],
}

impl Epilogue<'_> {
    /// Does the menu leave the product as it is?
    pub(super) fn is_identity(&self) -> bool {
        self.scale.is_none()
            && self.bias.is_none()
            && self.residual.is_none()
            && self.activation == Activation::None
            && self.affine == Affine::default()
    }

    /// The menu for register tiles: its short steps, and the activation that is left if it is a long one. `None` where
    /// operands do not lie along rows, or something follows a long activation.
    pub(super) fn in_registers(&self) -> Option<(Short, Activation)> {
        let (short, long) = match self.activation {
            Activation::None => (ShortActivation::None, Activation::None),
            Activation::Relu => (ShortActivation::Relu, Activation::None),
            Activation::Clip { lo, hi } => (ShortActivation::Clip { lo, hi }, Activation::None),
            Activation::HardSwish => (ShortActivation::HardSwish, Activation::None),
            other => (ShortActivation::None, other),
        };
        let bias = self.bias.is_none_or(|b| b.row == 0 && (b.col == 1 || b.col == 0));
        let residual = self.residual.is_none_or(|r| r.col == 1);
        let last = long == Activation::None || self.residual.is_none() || !self.residual_last;
        let affine = if long == Activation::None { self.affine } else { Affine::default() };
        (bias && residual && last).then_some((Short { scale: self.scale, activation: short, affine }, long))
    }

    /// The menu, if a kernel with rows along C can take it on its sums in registers; operands from the first element on.
    pub(crate) fn finish_at_once(&self) -> Option<Finish> {
        let (short, long) = self.in_registers()?;
        (long == Activation::None).then(|| self.finish(short, 0, 0))
    }

    /// The short menu for a tile from `row` and `col` on.
    #[inline]
    pub(super) fn finish(&self, short: Short, row: usize, col: usize) -> Finish {
        let residual = self.residual.map_or(Lines::NONE, |r| Lines { data: r.at(row, col).cast_mut(), row: r.row });
        Finish {
            is_some: !self.is_identity(),
            bias: self.bias.map_or(std::ptr::null(), |b| b.at(row, col)),
            one_bias: self.bias.is_some_and(|b| b.col == 0),
            residual,
            residual_last: self.residual_last,
            short,
        }
    }
}

/// The steps of a menu that a register tile takes itself: what is longer would be compiled into every tile.
#[derive(Clone, Copy)]
pub(crate) struct Short {
    scale: Option<f32>,
    activation: ShortActivation,
    affine: Affine,
}

#[derive(Clone, Copy)]
enum ShortActivation {
    None,
    Relu,
    Clip { lo: f32, hi: f32 },
    HardSwish,
}

/// A short menu at a tile.
#[derive(Clone, Copy)]
pub(crate) struct Finish {
    /// False: nothing is to be done.
    pub is_some: bool,
    /// One element a column; null: none.
    pub bias: *const f32,
    /// One element for all columns.
    one_bias: bool,
    /// Read only; null: none.
    pub residual: Lines,
    residual_last: bool,
    short: Short,
}

impl Finish {
    /// Leaves the product as it is.
    pub const NONE: Finish = Finish {
        is_some: false,
        bias: std::ptr::null(),
        one_bias: false,
        residual: Lines::NONE,
        residual_last: false,
        short: Short { scale: None, activation: ShortActivation::None, affine: Affine { mul: None, add: None } },
    };

    /// Takes the steps of the menu on R rows of one vector of columns, `lanes` of them from column `j` on, and writes
    /// them: the same steps as those of [`ApplyMenu`]. What is in `before` is added first.
    ///
    /// # Safety
    /// The lanes are valid in R rows of `before`, the menu's operands and `c`; they are a whole vector if WHOLE.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    pub unsafe fn store<S: Simd, const R: usize, const WHOLE: bool>(
        &self,
        s: S,
        mut v: [S::F; R],
        (before, c): (Lines, Lines),
        j: usize,
        lanes: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            if !before.data.is_null() {
                for r in 0..R {
                    v[r] = s.add(load::<S, WHOLE>(s, before.at(r, j), lanes), v[r]);
                }
            }
            if self.is_some {
                if let Some(by) = self.short.scale {
                    let by = s.splat(by);
                    for r in 0..R {
                        v[r] = s.mul(v[r], by);
                    }
                }
                if !self.bias.is_null() {
                    let bias = if self.one_bias {
                        s.splat(*self.bias)
                    } else {
                        load::<S, WHOLE>(s, self.bias.wrapping_add(j), lanes)
                    };
                    for r in 0..R {
                        v[r] = s.add(v[r], bias);
                    }
                }
                let more = !self.residual.data.is_null();
                if more && !self.residual_last {
                    for r in 0..R {
                        v[r] = s.add(v[r], load::<S, WHOLE>(s, self.residual.at(r, j), lanes));
                    }
                }
                match self.short.activation {
                    ShortActivation::None => {}
                    ShortActivation::Relu => {
                        for r in 0..R {
                            v[r] = math::relu(s, v[r]);
                        }
                    }
                    ShortActivation::Clip { lo, hi } => {
                        for r in 0..R {
                            v[r] = clip(s, v[r], lo, hi);
                        }
                    }
                    ShortActivation::HardSwish => {
                        for r in 0..R {
                            v[r] = math::hard_swish(s, v[r]);
                        }
                    }
                }
                for r in 0..R {
                    v[r] = self.short.affine.apply(s, v[r]);
                }
                if more && self.residual_last {
                    for r in 0..R {
                        v[r] = s.add(v[r], load::<S, WHOLE>(s, self.residual.at(r, j), lanes));
                    }
                }
            }
            for r in 0..R {
                let to = c.at(r, j);
                if WHOLE { s.store(to, v[r]) } else { s.store_partial(to, v[r], lanes) }
            }
        }
    }
}

/// `lanes` elements; all of a vector if WHOLE.
///
/// # Safety
/// They are valid.
#[inline(always)]
pub(crate) unsafe fn load<S: Simd, const WHOLE: bool>(s: S, p: *const f32, lanes: usize) -> S::F {
    // SAFETY: the caller's promise.
    unsafe { if WHOLE { s.load(p) } else { s.load_partial(p, lanes) } }
}

/// min(max(x, lo), hi); NaN stays.
#[inline(always)]
fn clip<S: Simd>(s: S, v: S::F, lo: f32, hi: f32) -> S::F {
    s.min_fast(s.splat(hi), s.max_fast(s.splat(lo), v))
}

/// Applies the menu (not the hook) to rows that other kernels have computed, with a column stride of 1. Operands of the
/// menu are seen from the first element on.
///
/// # Safety
/// `c` holds `rows` by `cols` elements at a row stride of `c_row`, and the menu's operands cover them.
pub unsafe fn apply_menu(isa: Isa, epilogue: &Epilogue<'_>, c: *mut f32, c_row: isize, rows: usize, cols: usize) {
    if !epilogue.is_identity() {
        let at = Lines { data: c, row: c_row };
        // SAFETY: the caller's promise.
        unsafe { apply_menu_to(isa, epilogue, (at, at), rows, cols) };
    }
}

/// The same from one place to another.
///
/// # Safety
/// As [`apply_menu`], of both places.
pub(crate) unsafe fn apply_menu_to(
    isa: Isa,
    epilogue: &Epilogue<'_>,
    (from, to): (Lines, Lines),
    rows: usize,
    cols: usize,
) {
    dispatch(isa, ApplyMenu { epilogue, row: 0, col: 0, rows, cols, from, to });
}

/// Rows with unit column stride.
#[derive(Clone, Copy)]
pub(crate) struct Lines {
    /// The first element.
    pub data: *mut f32,
    /// Elements from one row to the next.
    pub row: isize,
}

impl Lines {
    /// None.
    pub const NONE: Lines = Lines { data: std::ptr::null_mut(), row: 0 };

    /// The same from row `r` on.
    #[inline(always)]
    pub fn below(self, r: usize) -> Self {
        let data = self.data.wrapping_offset(r as isize * self.row);
        if self.data.is_null() { self } else { Lines { data, ..self } }
    }

    /// Where an element is.
    #[inline(always)]
    pub fn at(&self, r: usize, c: usize) -> *mut f32 {
        self.data.wrapping_offset(r as isize * self.row).wrapping_add(c)
    }
}

/// The menu on one tile, in one pass.
pub(super) struct ApplyMenu<'a> {
    pub epilogue: &'a Epilogue<'a>,
    /// First row and column of the tile in C.
    pub row: usize,
    pub col: usize,
    pub rows: usize,
    pub cols: usize,
    /// Where the product is.
    pub from: Lines,
    /// Where the result goes: the same place, or another.
    pub to: Lines,
}

impl Kernel for ApplyMenu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for r in 0..self.rows {
            // SAFETY: r and j stay within the tile, which the maker of this kernel answers for.
            unsafe {
                let from = self.from.data.offset(r as isize * self.from.row);
                let to = self.to.data.offset(r as isize * self.to.row);
                let mut j = 0;
                while j + S::W <= self.cols {
                    let v = self.steps(s, self.row + r, self.col + j, S::W, s.load(from.add(j)));
                    s.store(to.add(j), v);
                    j += S::W;
                }
                let rest = self.cols - j;
                if rest > 0 {
                    let v = s.load_partial(from.add(j), rest);
                    let v = self.steps(s, self.row + r, self.col + j, rest, v);
                    s.store_partial(to.add(j), v, rest);
                }
            }
        }
    }
}

impl ApplyMenu<'_> {
    /// All steps on one vector: `n` lanes from row `r` and column `c` of C on.
    ///
    /// # Safety
    /// The lanes lie within C.
    #[inline(always)]
    unsafe fn steps<S: Simd>(&self, s: S, r: usize, c: usize, n: usize, mut v: S::F) -> S::F {
        let e = self.epilogue;
        // SAFETY: the caller's promise; the menu's operands cover C.
        unsafe {
            if let Some(by) = e.scale {
                v = s.mul(v, s.splat(by));
            }
            if let Some(bias) = e.bias {
                v = s.add(v, lanes(s, &bias, r, c, n));
            }
            if let (Some(residual), false) = (&e.residual, e.residual_last) {
                v = s.add(v, lanes(s, residual, r, c, n));
            }
            v = e.affine.apply(s, activate(s, e.activation, v));
            if let (Some(residual), true) = (&e.residual, e.residual_last) {
                v = s.add(v, lanes(s, residual, r, c, n));
            }
        }
        v
    }
}

#[inline(always)]
fn activate<S: Simd>(s: S, activation: Activation, v: S::F) -> S::F {
    match activation {
        Activation::None => v,
        Activation::Relu => math::relu(s, v),
        Activation::Gelu => math::gelu(s, v),
        Activation::GeluTanh => math::gelu_tanh(s, v),
        Activation::Silu => math::silu(s, v),
        Activation::Sigmoid => math::sigmoid(s, v),
        Activation::Tanh => math::tanh(s, v),
        Activation::HardSwish => math::hard_swish(s, v),
        Activation::Clip { lo, hi } => clip(s, v, lo, hi),
    }
}

/// A long activation, and what follows it, on a dense tile on its way to C.
pub(super) struct Activate {
    pub activation: Activation,
    pub affine: Affine,
    /// `rows` by `cols` elements. Overwritten.
    pub tile: *mut f32,
    pub rows: usize,
    pub cols: usize,
    pub to: Lines,
}

impl Kernel for Activate {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Activate { activation, affine, tile, rows, cols, to } = self;
        // SAFETY: the maker answers for the tile, its room, and C.
        unsafe {
            let mut activation = activation;
            if activation == Activation::Gelu && (rows * cols).is_multiple_of(S::W) {
                math::gelu_block(s, tile, rows * cols / S::W);
                activation = Activation::None;
            }
            if cols.is_multiple_of(S::W) {
                for r in 0..rows {
                    let to = to.data.offset(r as isize * to.row);
                    for j in (0..cols).step_by(S::W) {
                        let v = activate(s, activation, s.load(tile.add(r * cols + j)));
                        s.store(to.add(j), affine.apply(s, v));
                    }
                }
                return;
            }
            // Vectors run across rows: short rows would leave most lanes idle.
            let dense = to.row == cols as isize;
            let out = if dense { to.data } else { tile };
            for i in (0..rows * cols).step_by(S::W) {
                let n = (rows * cols - i).min(S::W);
                let v = if n == S::W { s.load(tile.add(i)) } else { s.load_partial(tile.add(i), n) };
                let v = affine.apply(s, activate(s, activation, v));
                if n == S::W {
                    s.store(out.add(i), v);
                } else {
                    s.store_partial(out.add(i), v, n);
                }
            }
            if dense {
                return;
            }
            for r in 0..rows {
                let (from, to) = (tile.add(r * cols), to.data.offset(r as isize * to.row));
                for j in (0..cols).step_by(S::W) {
                    let n = (cols - j).min(S::W);
                    s.store_partial(to.add(j), s.load_partial(from.add(j), n), n);
                }
            }
        }
    }
}

/// `n` lanes of a matrix from row `r` and column `c` on.
///
/// # Safety
/// They lie within the matrix.
#[inline(always)]
unsafe fn lanes<S: Simd>(s: S, m: &Strided, r: usize, c: usize, n: usize) -> S::F {
    let p = m.at(r, c);
    // SAFETY: the caller's promise; the array has MAX_W ≥ W elements.
    unsafe {
        match m.col {
            0 => s.splat(*p),
            1 if n == S::W => s.load(p),
            1 => s.load_partial(p, n),
            _ => {
                let mut lanes = [0.0f32; MAX_W];
                for (i, lane) in lanes.iter_mut().enumerate().take(n) {
                    *lane = *m.at(r, c + i);
                }
                s.load(lanes.as_ptr())
            }
        }
    }
}
