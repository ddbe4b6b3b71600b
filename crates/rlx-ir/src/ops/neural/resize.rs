//! Resizing by interpolation, axis by axis.

use super::rows;
use crate::attr::FloatBits;
use crate::builder::Builder;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::element::Elements;
use crate::error::{IrError, OpError};
use crate::eval::{gather_elements, row_major_strides};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, arg};
use crate::tensor::{Tensor, Value};

mod taps;

pub use taps::Taps;

crate::attr_enum! {
    /// How a value between elements is made.
    pub enum ResizeMode {
        /// The nearest element.
        Nearest = "nearest",
        /// Linearly from two elements.
        Linear = "linear",
        /// By a cubic through four elements.
        Cubic = "cubic",
    }
}

crate::attr_enum! {
    /// Where an element of the result lies in the operand.
    pub enum CoordMode {
        /// Centres of cells match: `(i + 1/2) / scale − 1/2`.
        HalfPixel = "half_pixel",
        /// As half_pixel, with the centre of the image kept where size × scale is no integer.
        HalfPixelSymmetric = "half_pixel_symmetric",
        /// As half_pixel, but −1/2 for a result of size 1.
        PytorchHalfPixel = "pytorch_half_pixel",
        /// First and last elements match.
        AlignCorners = "align_corners",
        /// `i / scale`.
        Asymmetric = "asymmetric",
        /// The region of interest is stretched over the result; outside the operand is `extrapolation`.
        TfCropAndResize = "tf_crop_and_resize",
    }
}

crate::attr_enum! {
    /// Which neighbour is the nearest.
    pub enum NearestMode {
        /// The nearer; the lower of two equally near.
        RoundPreferFloor = "round_prefer_floor",
        /// The nearer; the upper of two equally near.
        RoundPreferCeil = "round_prefer_ceil",
        /// The lower.
        Floor = "floor",
        /// The upper.
        Ceil = "ceil",
    }
}

op! {
    /// Interpolates to another size along each axis, as ONNX `Resize` does.
    pub struct Resize = "resize" {
        /// Sizes of the result.
        pub sizes: Vec<Dim>,
        /// Scale of each axis; none is the ratio of sizes.
        pub scales: Vec<Option<FloatBits>>,
        /// How values are made.
        pub mode: ResizeMode,
        /// Where elements lie.
        pub coords: CoordMode,
        /// Which neighbour is the nearest.
        pub nearest: NearestMode,
        /// The coefficient a of cubic interpolation, −0.75 or −0.5.
        pub cubic_a: FloatBits,
        /// Whether weights of neighbours outside the operand are zero (and the others scaled up); else the border is repeated.
        pub exclude_outside: bool,
        /// Whether the filter is widened when shrinking.
        pub antialias: bool,
        /// For tf_crop_and_resize: start of the region on each axis, in parts of its size.
        pub roi_start: Vec<FloatBits>,
        /// End of the region on each axis.
        pub roi_end: Vec<FloatBits>,
        /// For tf_crop_and_resize: the value outside the operand.
        pub extrapolation: FloatBits,
    }
}

impl Resize {
    /// A resize to sizes with ONNX's defaults for all else.
    pub fn to_sizes(sizes: Vec<Dim>, mode: ResizeMode, coords: CoordMode) -> Self {
        Resize {
            scales: vec![None; sizes.len()],
            sizes,
            mode,
            coords,
            nearest: NearestMode::RoundPreferFloor,
            cubic_a: FloatBits::new(-0.75),
            exclude_outside: false,
            antialias: false,
            roi_start: Vec::new(),
            roi_end: Vec::new(),
            extrapolation: FloatBits::new(0.0),
        }
    }

    /// What the elements of an axis of the result are made of, in the order of the axis; `None` where the axis stays as it is. An error
    /// where there is nothing to make them from.
    pub fn taps(&self, axis: usize, input: usize, output: usize) -> Result<Option<Vec<Taps>>, OpError> {
        if self.is_identity(axis, input, output) {
            return Ok(None);
        }
        if input == 0 && output > 0 {
            return Err(OpError::new(format!("axis {axis} has no elements to make {output} from")));
        }
        let table = output.saturating_mul(self.taps_per_element(axis, input, output));
        if table > MAX_TABLE {
            return Err(OpError::new(format!(
                "axis {axis} from {input} to {output} elements needs {table} weights, more than {MAX_TABLE}"
            )));
        }
        Ok(Some(Taps::of_axis(self, axis, input, output)))
    }

    /// Whether it leaves an axis as it is.
    fn is_identity(&self, axis: usize, input: usize, output: usize) -> bool {
        let scale = self.scales.get(axis).copied().flatten().map_or(1.0, FloatBits::get);
        let whole = self.coords != CoordMode::TfCropAndResize || self.region(axis) == (0.0, 1.0);
        input == output && (scale - 1.0).abs() < 1e-9 && whole
    }

    fn region(&self, axis: usize) -> (f64, f64) {
        let at = |v: &[FloatBits], default| v.get(axis).map_or(default, |x| x.get());
        (at(&self.roi_start, 0.0), at(&self.roi_end, 1.0))
    }
}

/// How many weights the table of an axis may have.
const MAX_TABLE: usize = crate::ops::shape::MAX_AXIS_TABLE / 8;

/// The filter's width is the inverse of the scale; a smaller stated scale would only exhaust memory.
const MIN_ANTIALIAS_SCALE: f64 = 1e-4;

impl OpRules for Resize {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?;
        let rank = t.shape.rank();
        if self.sizes.len() != rank || self.scales.len() != rank {
            return Err(OpError::new(format!("sizes and scales need one entry for each of the {rank} axes")));
        }
        if t.dtype.is_complex() || t.dtype == DType::Str {
            return Err(OpError::new(format!("takes real numbers, got {}", t.dtype)));
        }
        if let Some(s) = self.scales.iter().flatten().find(|s| !s.get().is_finite() || s.get() <= 0.0) {
            return Err(OpError::new(format!("scale {s} must be positive and finite")));
        }
        if let Some(d) = self.sizes.iter().find(|d| d.as_const().is_some_and(|c| c < 0)) {
            return Err(OpError::new(format!("size {d} is negative")));
        }
        if self.antialias && self.scales.iter().flatten().any(|s| s.get() < MIN_ANTIALIAS_SCALE) {
            return Err(OpError::new(format!("antialias takes scales of at least {MIN_ANTIALIAS_SCALE}")));
        }
        if self.antialias && self.mode == ResizeMode::Nearest {
            return Err(OpError::new("antialias has no meaning for mode nearest").hint("use linear or cubic"));
        }
        let roi = [&self.roi_start, &self.roi_end];
        if self.coords == CoordMode::TfCropAndResize && roi.iter().any(|r| r.len() != rank) {
            return Err(OpError::new(format!(
                "tf_crop_and_resize needs roi_start and roi_end for each of the {rank} axes"
            )));
        }
        cx.result(t.dtype, self.sizes.clone());
        Ok(())
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let sizes = cx.sizes(&self.sizes)?;
        let mut axes = Vec::new();
        for (axis, (&input, &output)) in x.dims().iter().zip(&sizes).enumerate() {
            if let Some(taps) = self.taps(axis, input, output)? {
                axes.push((axis, taps));
            }
        }
        if self.mode == ResizeMode::Nearest && axes.iter().all(|(_, t)| t.iter().all(|t| t.extrapolated.is_none())) {
            return Ok(vec![pick(x, &sizes, &axes)?.into()]);
        }
        let mut values = x.elements().to_f64().unwrap_or_default();
        let mut dims = x.dims().to_vec();
        for (axis, taps) in &axes {
            values = interpolate(&values, &dims, *axis, taps);
            dims[*axis] = sizes[*axis];
        }
        if x.dtype().is_float() {
            return Ok(vec![rows::tensor(x.dtype(), &dims, values)?]);
        }
        // Interpolated integers lose their fraction, as the standard's reference does.
        let ints = values.iter().map(|&v| crate::element::float_to_int(x.dtype(), v)).collect();
        Ok(vec![Tensor::from_elements(x.dtype(), &dims, &Elements::Int(ints))?.into()])
    }
}

/// Nearest elements, copied whatever their dtype.
fn pick(x: &Tensor, sizes: &[usize], axes: &[(usize, Vec<Taps>)]) -> Result<Tensor, OpError> {
    let strides = row_major_strides(x.dims());
    let mut sources: Vec<Vec<usize>> = sizes.iter().map(|&n| (0..n).collect()).collect();
    for (axis, taps) in axes {
        sources[*axis] = taps.iter().map(Taps::strongest).collect();
    }
    gather_elements(x, sizes, |index| index.iter().enumerate().map(|(a, &i)| sources[a][i] * strides[a]).sum())
}

/// Weighted sums along one axis.
fn interpolate(values: &[f64], dims: &[usize], axis: usize, taps: &[Taps]) -> Vec<f64> {
    let inner: usize = dims.iter().skip(axis + 1).product();
    let n = dims[axis];
    let mut out = Vec::with_capacity(values.len() / n.max(1) * taps.len());
    for block in values.chunks_exact((n * inner).max(1)) {
        for t in taps {
            let start = out.len();
            out.resize(start + inner, t.extrapolated.unwrap_or(0.0));
            if t.extrapolated.is_none() {
                for &(i, w) in &t.weights {
                    out[start..].iter_mut().zip(&block[i * inner..]).for_each(|(o, x)| *o += w * x);
                }
            }
        }
    }
    out
}

impl Builder {
    /// Resizes; see [`Resize::to_sizes`] for defaults.
    pub fn resize(&mut self, op: Resize, x: ValueId) -> Result<ValueId, IrError> {
        self.op1(op, &[x])
    }
}
