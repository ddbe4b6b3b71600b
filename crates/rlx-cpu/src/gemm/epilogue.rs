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

/// C = activation(scale · A·B + bias + residual), or with the residual added after the activation; then the hook.
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
        self.scale.is_none() && self.bias.is_none() && self.residual.is_none() && self.activation == Activation::None
    }
}

/// Applies the menu (not the hook) to rows that other kernels have computed, with a column stride of 1. Operands of the
/// menu are seen from the first element on.
///
/// # Safety
/// `c` holds `rows` by `cols` elements at a row stride of `c_row`, and the menu's operands cover them.
pub unsafe fn apply_menu(isa: Isa, epilogue: &Epilogue<'_>, c: *mut f32, c_row: isize, rows: usize, cols: usize) {
    if !epilogue.is_identity() {
        dispatch(isa, ApplyMenu { epilogue, row: 0, col: 0, rows, cols, c, c_row });
    }
}

/// The menu on one tile with unit column stride.
pub(super) struct ApplyMenu<'a> {
    pub epilogue: &'a Epilogue<'a>,
    /// First row and column of the tile in C.
    pub row: usize,
    pub col: usize,
    pub rows: usize,
    pub cols: usize,
    pub c: *mut f32,
    pub c_row: isize,
}

impl Kernel for ApplyMenu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let e = self.epilogue;
        if let Some(by) = e.scale {
            self.each(s, Scale { by });
        }
        if let Some(bias) = e.bias {
            self.add(s, bias);
        }
        if let (Some(residual), false) = (e.residual, e.residual_last) {
            self.add(s, residual);
        }
        match e.activation {
            Activation::None => {}
            Activation::Relu => self.each(s, Relu {}),
            Activation::Gelu => self.each(s, Gelu {}),
            Activation::GeluTanh => self.each(s, GeluTanh {}),
            Activation::Silu => self.each(s, Silu {}),
            Activation::Sigmoid => self.each(s, Sigmoid {}),
            Activation::Tanh => self.each(s, Tanh {}),
            Activation::HardSwish => self.each(s, HardSwish {}),
            Activation::Clip { lo, hi } => self.each(s, Clip { lo, hi }),
        }
        if let (Some(residual), true) = (e.residual, e.residual_last) {
            self.add(s, residual);
        }
    }
}

/// A step of the menu on one vector: `n` lanes from row `r` and column `c` of C on. A trait and not a closure, because
/// only a function can be `#[inline(always)]`, which the level's features ask for.
trait Step {
    /// # Safety
    /// The lanes lie within C.
    unsafe fn apply<S: Simd>(&self, s: S, r: usize, c: usize, n: usize, v: S::F) -> S::F;
}

macro_rules! steps {
    ($($name:ident { $($field:ident: $type:ty),* } = |$s:ident, $v:ident| $body:expr;)*) => {
        $(
            struct $name { $($field: $type),* }
            impl Step for $name {
                #[inline(always)]
                unsafe fn apply<S: Simd>(&self, $s: S, _: usize, _: usize, _: usize, $v: S::F) -> S::F {
                    let $name { $($field),* } = *self;
                    $body
                }
            }
        )*
    };
}

steps! {
    Scale { by: f32 } = |s, v| s.mul(v, s.splat(by));
    Relu {} = |s, v| math::relu(s, v);
    Gelu {} = |s, v| math::gelu(s, v);
    GeluTanh {} = |s, v| math::gelu_tanh(s, v);
    Silu {} = |s, v| math::silu(s, v);
    Sigmoid {} = |s, v| math::sigmoid(s, v);
    Tanh {} = |s, v| math::tanh(s, v);
    HardSwish {} = |s, v| math::hard_swish(s, v);
    Clip { lo: f32, hi: f32 } = |s, v| s.min_fast(s.splat(hi), s.max_fast(s.splat(lo), v));
}

/// Adds a matrix that is constant along rows.
struct AddColumn(Strided);
impl Step for AddColumn {
    #[inline(always)]
    unsafe fn apply<S: Simd>(&self, s: S, r: usize, _: usize, _: usize, v: S::F) -> S::F {
        // SAFETY: row r lies within C, whose shape the matrix covers.
        s.add(v, s.splat(unsafe { *self.0.at(r, 0) }))
    }
}

/// Adds a matrix with unit column stride.
struct AddRows(Strided);
impl Step for AddRows {
    #[inline(always)]
    unsafe fn apply<S: Simd>(&self, s: S, r: usize, c: usize, n: usize, v: S::F) -> S::F {
        let p = self.0.at(r, c);
        // SAFETY: n lanes from (r, c) on lie within C, whose shape the matrix covers.
        let x = unsafe { if n == S::W { s.load(p) } else { s.load_partial(p, n) } };
        s.add(v, x)
    }
}

/// Adds any matrix.
struct AddAny(Strided);
impl Step for AddAny {
    #[inline(always)]
    unsafe fn apply<S: Simd>(&self, s: S, r: usize, c: usize, n: usize, v: S::F) -> S::F {
        let mut lanes = [0.0f32; MAX_W];
        for (i, lane) in lanes.iter_mut().enumerate().take(n) {
            // SAFETY: n lanes from (r, c) on lie within C, whose shape the matrix covers.
            *lane = unsafe { *self.0.at(r, c + i) };
        }
        // SAFETY: the array has MAX_W ≥ W elements.
        s.add(v, unsafe { s.load(lanes.as_ptr()) })
    }
}

impl ApplyMenu<'_> {
    #[inline(always)]
    fn add<S: Simd>(&self, s: S, m: Strided) {
        match m.col {
            0 => self.each(s, AddColumn(m)),
            1 => self.each(s, AddRows(m)),
            _ => self.each(s, AddAny(m)),
        }
    }

    /// Runs a step over the vectors of the tile.
    #[inline(always)]
    fn each<S: Simd>(&self, s: S, step: impl Step) {
        for r in 0..self.rows {
            // SAFETY: r and j stay within the tile, which the maker of this kernel answers for.
            unsafe {
                let row = self.c.offset(r as isize * self.c_row);
                let mut j = 0;
                while j + S::W <= self.cols {
                    let p = row.add(j);
                    s.store(p, step.apply(s, self.row + r, self.col + j, S::W, s.load(p)));
                    j += S::W;
                }
                let rest = self.cols - j;
                if rest > 0 {
                    let p = row.add(j);
                    let v = s.load_partial(p, rest);
                    s.store_partial(p, step.apply(s, self.row + r, self.col + j, rest, v), rest);
                }
            }
        }
    }
}
