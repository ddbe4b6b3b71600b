//! What traced values can do besides operators. Axes may count from the end.

use std::panic::Location;

use rlx_ir::ops::neural::Attention;
use rlx_ir::ops::reduction::{ArgKind, ReduceKind};
use rlx_ir::{Builder, DType, Dim, IrError, OpError, ValueId};

use super::operators::literal;
use super::tracer::Traced;

macro_rules! unary {
    ($($(#[doc = $doc:literal])+ $name:ident $op:ident;)*) => { impl<'t> Traced<'t> { $(
        $(#[doc = $doc])+
        #[track_caller]
        pub fn $name(self) -> Traced<'t> {
            self.tracer.record(Location::caller(), &[self], |b, x| b.$op(x[0]))
        }
    )* } };
}

macro_rules! binary {
    ($($(#[doc = $doc:literal])+ $name:ident $op:ident;)*) => { impl<'t> Traced<'t> { $(
        $(#[doc = $doc])+
        #[track_caller]
        pub fn $name(self, other: Traced<'t>) -> Traced<'t> {
            self.tracer.record(Location::caller(), &[self, other], |b, x| b.$op(x[0], x[1]))
        }
    )* } };
}

macro_rules! reduction {
    ($($(#[doc = $doc:literal])+ $name:ident $kind:ident;)*) => { impl<'t> Traced<'t> { $(
        $(#[doc = $doc])+
        #[track_caller]
        pub fn $name(self, axes: &[i64], keep_dims: bool) -> Traced<'t> {
            let place = Location::caller();
            self.tracer.record(place, &[self], |b, x| b.reduce(x[0], ReduceKind::$kind, axes, keep_dims))
        }
    )* } };
}

unary! {
    /// Absolute value.
    abs abs;
    /// −1, 0 or 1 by sign.
    sign sign;
    /// Smallest integer not below.
    ceil ceil;
    /// Largest integer not above.
    floor floor;
    /// Nearest integer, ties to even.
    round round_even;
    /// Square root.
    sqrt sqrt;
    /// One over the square root.
    rsqrt rsqrt;
    /// One over the value.
    reciprocal reciprocal;
    /// Exponential.
    exp exp;
    /// Natural logarithm.
    log log;
    /// `log(1 + x)`.
    log1p log1p;
    /// Sine, radians.
    sin sin;
    /// Cosine, radians.
    cos cos;
    /// Hyperbolic tangent.
    tanh tanh;
    /// Error function.
    erf erf;
    /// `1 / (1 + exp(−x))`.
    sigmoid sigmoid;
    /// `max(x, 0)`.
    relu relu;
    /// `x Φ(x)`.
    gelu gelu;
    /// The same by tanh.
    gelu_tanh gelu_tanh;
    /// `x sigmoid(x)`.
    silu silu;
    /// `log(1 + exp(x))`.
    softplus softplus;
    /// `x · clamp(x / 6 + 1/2, 0, 1)`.
    hard_swish hard_swish;
    /// True for NaN.
    is_nan is_nan;
    /// Without all axes whose size is 1.
    squeeze_all squeeze_all;
}

binary! {
    /// Matrix product with NumPy's rules for ranks.
    matmul matmul;
    /// Power.
    pow pow;
    /// The larger of two.
    maximum maximum;
    /// The smaller of two.
    minimum minimum;
    /// True where equal.
    eq eq;
    /// True where different.
    ne ne;
    /// True where less.
    lt lt;
    /// True where less or equal.
    le le;
    /// True where greater.
    gt gt;
    /// True where greater or equal.
    ge ge;
}

reduction! {
    /// Sum over axes.
    sum Sum;
    /// Product over axes.
    prod Prod;
    /// Largest over axes.
    max Max;
    /// Smallest over axes.
    min Min;
    /// True if any is.
    any Any;
    /// True if all are.
    all All;
}

impl<'t> Traced<'t> {
    /// Mean over axes.
    #[track_caller]
    pub fn mean(self, axes: &[i64], keep_dims: bool) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self], |b, x| b.reduce_mean(x[0], axes, keep_dims))
    }

    /// The index of the largest along an axis, `i64`, the first of equals.
    #[track_caller]
    pub fn argmax(self, axis: i64, keep_dims: bool) -> Traced<'t> {
        let place = Location::caller();
        self.tracer.record(place, &[self], |b, x| b.arg_reduce(x[0], ArgKind::Max, axis, keep_dims, false))
    }

    /// Softmax over an axis.
    #[track_caller]
    pub fn softmax(self, axis: i64) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self], |b, x| {
            let axis = b.axis("softmax", x[0], axis)?;
            b.softmax(x[0], axis)
        })
    }

    /// Logarithm of the softmax over an axis.
    #[track_caller]
    pub fn log_softmax(self, axis: i64) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self], |b, x| {
            let axis = b.axis("log_softmax", x[0], axis)?;
            b.log_softmax(x[0], axis)
        })
    }

    /// Layer normalisation over the last axis.
    #[track_caller]
    pub fn layer_norm(self, scale: Traced<'t>, bias: Traced<'t>, eps: f64) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self, scale, bias], |b, x| {
            let last = b.axis("layer_norm", x[0], -1)?;
            b.layer_norm(x[0], Some(x[1]), Some(x[2]), &[last], eps)
        })
    }

    /// Root-mean-square normalisation over the last axis.
    #[track_caller]
    pub fn rms_norm(self, scale: Traced<'t>, eps: f64) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self, scale], |b, x| {
            let last = b.axis("rms_norm", x[0], -1)?;
            b.rms_norm(x[0], Some(x[1]), &[last], eps)
        })
    }

    /// Attention of these queries to keys and values, in the op's layout; the mask must be there if the op says so.
    #[track_caller]
    pub fn attention(
        self,
        op: Attention,
        keys: Traced<'t>,
        values: Traced<'t>,
        mask: Option<Traced<'t>>,
    ) -> Traced<'t> {
        let operands: Vec<Traced<'t>> = [self, keys, values].into_iter().chain(mask).collect();
        self.tracer.record(Location::caller(), &operands, |b, x| b.op1(op, x))
    }

    /// The same elements under another shape; a size of −1 follows from the others.
    #[track_caller]
    pub fn reshape(self, dims: impl IntoIterator<Item = impl Into<Dim>>) -> Traced<'t> {
        let dims: Vec<Dim> = dims.into_iter().map(Into::into).collect();
        self.tracer.record(Location::caller(), &[self], |b, x| {
            let dims = whole(b, x[0], dims)?;
            b.reshape(x[0], dims)
        })
    }

    /// Axes reordered: axis `i` of the result is axis `perm[i]` of this.
    #[track_caller]
    pub fn transpose(self, perm: &[usize]) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self], |b, x| b.transpose(x[0], perm))
    }

    /// The last two axes swapped.
    #[track_caller]
    pub fn t(self) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self], |b, x| b.swap_axes(x[0], -1, -2))
    }

    /// Two axes swapped.
    #[track_caller]
    pub fn swap_axes(self, first: i64, second: i64) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self], |b, x| b.swap_axes(x[0], first, second))
    }

    /// New axes of size 1, numbered as in the result.
    #[track_caller]
    pub fn expand_dims(self, axes: &[i64]) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self], |b, x| b.expand_dims(x[0], axes))
    }

    /// Without these axes, whose sizes must be 1.
    #[track_caller]
    pub fn squeeze(self, axes: &[i64]) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self], |b, x| b.squeeze(x[0], axes))
    }

    /// Repeated along axes of size 1 and new leading axes, to exactly these sizes.
    #[track_caller]
    pub fn broadcast_to(self, dims: impl IntoIterator<Item = impl Into<Dim>>) -> Traced<'t> {
        let dims: Vec<Dim> = dims.into_iter().map(Into::into).collect();
        self.tracer.record(Location::caller(), &[self], |b, x| b.broadcast_to(x[0], dims))
    }

    /// A range of an axis, as Python's `start:end`; bounds may count from the end.
    #[track_caller]
    pub fn slice(self, axis: i64, start: impl Into<Dim>, end: impl Into<Dim>) -> Traced<'t> {
        let (start, end) = (start.into(), end.into());
        self.tracer.record(Location::caller(), &[self], |b, x| b.slice_axis(x[0], axis, start, end, 1))
    }

    /// Consecutive pieces of these sizes along an axis; if it fails, as many values that failed.
    #[track_caller]
    pub fn split<const N: usize>(self, axis: i64, sizes: [usize; N]) -> [Traced<'t>; N] {
        let dims: Vec<Dim> = sizes.iter().map(|&n| n.into()).collect();
        let made = self.tracer.record_many(Location::caller(), &[self], |b, x| b.split(x[0], axis, &dims));
        std::array::from_fn(|i| made.get(i).copied().unwrap_or(Traced { tracer: self.tracer, value: None }))
    }

    /// Slices along an axis at indices (NumPy `take`).
    #[track_caller]
    pub fn take(self, indices: Traced<'t>, axis: i64) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self, indices], |b, x| b.gather(x[0], x[1], axis))
    }

    /// `a` where this is true, else `b`.
    #[track_caller]
    pub fn select(self, a: Traced<'t>, b: Traced<'t>) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self, a, b], |builder, x| builder.select(x[0], x[1], x[2]))
    }

    /// Limited to a range.
    #[track_caller]
    pub fn clamp(self, low: f64, high: f64) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self], |b, x| {
            let (low, high) = (literal(b, x[0], low)?, literal(b, x[0], high)?);
            b.clamp(x[0], low, high)
        })
    }

    /// Converted to a dtype.
    #[track_caller]
    pub fn convert(self, to: DType) -> Traced<'t> {
        self.tracer.record(Location::caller(), &[self], |b, x| b.convert(x[0], to))
    }
}

/// Sizes with −1 replaced by what is left.
fn whole(b: &Builder, x: ValueId, mut dims: Vec<Dim>) -> Result<Vec<Dim>, IrError> {
    let open: Vec<usize> = dims.iter().enumerate().filter(|(_, d)| **d == -1).map(|(i, _)| i).collect();
    match open[..] {
        [] => {}
        [i] => {
            let rest = Dim::product(dims.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, d)| d.clone()));
            dims[i] = b.shape(x)?.numel().floor_div(rest);
        }
        _ => return Err(b.refuse("reshape", &[x], OpError::new("only one size may be −1"))),
    }
    Ok(dims)
}
