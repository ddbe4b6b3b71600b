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
        let at = Lines { data: c, row: c_row };
        dispatch(isa, ApplyMenu { epilogue, row: 0, col: 0, rows, cols, from: at, to: at });
    }
}

/// Rows with unit column stride.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    /// The first element.
    pub data: *mut f32,
    /// Elements from one row to the next.
    pub row: isize,
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
            v = match e.activation {
                Activation::None => v,
                Activation::Relu => math::relu(s, v),
                Activation::Gelu => math::gelu(s, v),
                Activation::GeluTanh => math::gelu_tanh(s, v),
                Activation::Silu => math::silu(s, v),
                Activation::Sigmoid => math::sigmoid(s, v),
                Activation::Tanh => math::tanh(s, v),
                Activation::HardSwish => math::hard_swish(s, v),
                Activation::Clip { lo, hi } => s.min_fast(s.splat(hi), s.max_fast(s.splat(lo), v)),
            };
            if let (Some(residual), true) = (&e.residual, e.residual_last) {
                v = s.add(v, lanes(s, residual, r, c, n));
            }
        }
        v
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
