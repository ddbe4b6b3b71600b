//! The discrete Fourier transform.

use std::f64::consts::TAU;

use crate::builder::Builder;
use crate::dim::{Constraint, Dim};
use crate::dtype::DType;
use crate::element::Elements;
use crate::error::{IrError, OpError};
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, Rule, arg};
use crate::ops::shape::PadMode;
use crate::tensor::{Tensor, Value, checked_numel};
use crate::types::{Shape, TensorType};

op! {
    /// `y[k] = Σ x[j]·e^(−2πi·jk/length)` along an axis; the inverse has `+` and the factor `1/length`. The last axis holds real and
    /// imaginary parts, or real parts alone. Angles and sums are of f64 whatever the dtype; beyond the operand's end there are zeros.
    pub struct Fft = "fft" {
        /// The axis, any but the last.
        pub axis: usize,
        /// Points of the transform, 1 or more.
        pub length: Dim,
        /// From spectrum to signal.
        pub inverse: bool,
        /// Only the first `length/2 + 1` elements of the spectrum are there, the rest being their mirror image: the signal is real.
        pub onesided: bool,
    }
}

impl Fft {
    /// Elements of the spectrum that are there when it is one-sided.
    fn half(&self) -> Dim {
        self.length.floor_div(2) + 1
    }

    /// Elements that are read, and elements that are made.
    fn ends(&self) -> (Dim, Dim) {
        match (self.onesided, self.inverse) {
            (true, true) => (self.half(), self.length.clone()),
            (true, false) => (self.length.clone(), self.half()),
            (false, _) => (self.length.clone(), self.length.clone()),
        }
    }

    /// Whether the result has real parts alone.
    pub fn gives_real(&self) -> bool {
        self.inverse && self.onesided
    }
}

impl OpRules for Fft {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(1)?;
        let t = cx.tensor(0)?.clone();
        if !t.dtype.is_float() || t.dtype.bits() < 16 {
            return Err(OpError::new(format!("takes floats of 16 bits or more, got {}", t.dtype)));
        }
        let last = t.shape.rank().checked_sub(1).filter(|&last| self.axis < last);
        let last = last.ok_or_else(|| {
            OpError::new(format!("axis {} of {} must stand before the axis of parts", self.axis, t.shape))
        })?;
        if !matches!(t.shape[last].as_const(), Some(1 | 2)) {
            return Err(OpError::new(format!("the last axis must have 1 or 2 elements, the operand is {}", t.shape)));
        }
        cx.require(Constraint::Le(Dim::ONE, self.length.clone()), "the length of the transform")?;
        let mut dims = t.shape.to_vec();
        dims[self.axis] = self.ends().1;
        dims[last] = Dim::from(if self.gives_real() { 1 } else { 2 });
        cx.result(t.dtype, Shape::from(dims));
        Ok(())
    }

    fn work(&self, operands: &[TensorType], results: &[TensorType]) -> Dim {
        // A fast transform does 5 operations for each point and doubling; lengths of a thousand double ten times.
        let elements = |list: &[TensorType]| list.first().map_or(Dim::ZERO, |t| t.shape.numel());
        (elements(operands) + elements(results)) * 25
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let x = arg(args, 0)?;
        let Elements::Float(from) = x.elements() else { return Err(OpError::new("takes floats")) };
        let (Some(&parts), Some(&size)) = (x.dims().last(), x.dims().get(self.axis)) else {
            return Err(OpError::new("the operand has no axes"));
        };
        let (length, (taken, bins)) = (cx.size(&self.length)?, self.ends());
        let (taken, bins) = (cx.size(&taken)?.min(size), cx.size(&bins)?);
        let mut dims = x.dims().to_vec();
        let inner: usize = dims[self.axis + 1..dims.len() - 1].iter().product();
        let outer: usize = dims[..self.axis].iter().product();
        let gives = if self.gives_real() { 1 } else { 2 };
        (dims[self.axis], *dims.last_mut().unwrap_or(&mut 0)) = (bins, gives);
        let mut out = vec![0.0; checked_numel(&dims)?];
        let sign = if self.inverse { 1.0 } else { -1.0 };
        let turns: Vec<(f64, f64)> = (0..length).map(|t| (sign * TAU * t as f64 / length as f64).sin_cos()).collect();
        for at in 0..outer * inner {
            let (o, i) = (at / inner.max(1), at % inner.max(1));
            for k in 0..bins {
                let (mut re, mut im) = (0.0, 0.0);
                for j in 0..taken {
                    let point = ((o * size + j) * inner + i) * parts;
                    // A bin with a mirror image counts for both: all but the first, and the middle one of an even number.
                    let twice = self.gives_real() && j > 0 && 2 * j != length;
                    let weight = if twice { 2.0 } else { 1.0 };
                    let (a, b) = (weight * from[point], if parts == 2 { weight * from[point + 1] } else { 0.0 });
                    let (sin, cos) = turns[(j as u128 * k as u128 % length as u128) as usize];
                    (re, im) = (re + a * cos - b * sin, im + a * sin + b * cos);
                }
                let scale = if self.inverse { 1.0 / length as f64 } else { 1.0 };
                let point = ((o * bins + k) * inner + i) * gives;
                out[point] = re * scale;
                if gives == 2 {
                    out[point + 1] = im * scale;
                }
            }
        }
        Ok(vec![Tensor::from_elements(x.dtype(), &dims, &Elements::Float(out))?.into()])
    }

    fn decompose(&self, b: &mut Builder, args: &[ValueId]) -> Rule<Vec<ValueId>> {
        Some(self.as_products(b, args).map(|y| vec![y]))
    }
}

impl Fft {
    /// The same as products with matrices of cosines and sines.
    fn as_products(&self, b: &mut Builder, args: &[ValueId]) -> Result<ValueId, IrError> {
        let &[x] = args else { return Err(b.refuse("fft", args, OpError::new("takes one operand"))) };
        let to = b.dtype(x)?;
        let rank = b.shape(x)?.rank();
        let (taken, bins) = self.ends();
        let wide = b.convert(x, DType::F64)?;
        // The axis as the last but one, before that of the parts.
        let axis = self.axis as i64;
        let x = if self.axis + 2 == rank { wide } else { b.swap_axes(wide, axis, -2)? };
        let x = fit(b, x, &taken)?;
        let shape = b.shape(x)?;
        let mut part = |i: i64| -> Result<ValueId, IrError> {
            let (mut starts, mut limits) = (vec![Dim::ZERO; rank], shape.to_vec());
            (starts[rank - 1], limits[rank - 1]) = (Dim::from(i), Dim::from(i + 1));
            let p = b.slice(x, starts, limits, vec![1; rank])?;
            b.squeeze(p, &[-1])
        };
        let re = part(0)?;
        let im = if shape.last().and_then(Dim::as_const) == Some(2) { Some(part(1)?) } else { None };
        let (cos, sin) = self.turns(b, &taken, &bins)?;
        // e^{-iφ} = cos φ − i sin φ.
        let mut out = b.matmul(re, cos)?;
        if let Some(im) = im {
            let a = b.matmul(im, sin)?;
            out = b.add(out, a)?;
        }
        let mut y = b.expand_dims(out, &[-1])?;
        if !self.gives_real() {
            let cross = b.matmul(re, sin)?;
            let mut out = b.neg(cross)?;
            if let Some(im) = im {
                let c = b.matmul(im, cos)?;
                out = b.add(out, c)?;
            }
            let second = b.expand_dims(out, &[-1])?;
            y = b.concat(&[y, second], -1)?;
        }
        let y = if self.axis + 2 == rank { y } else { b.swap_axes(y, axis, -2)? };
        b.convert(y, to)
    }

    /// `cos φ` and `sin φ` with `φ = 2π·jk/length`, `[taken, bins]`; of the inverse with the sine's sign turned and its factors.
    fn turns(&self, b: &mut Builder, taken: &Dim, bins: &Dim) -> Result<(ValueId, ValueId), IrError> {
        let row = b.iota(DType::I64, [taken.clone(), Dim::ONE], 0)?;
        let column = b.iota(DType::I64, [Dim::ONE, bins.clone()], 1)?;
        let whole = b.from_dim(self.length.clone())?;
        let points = b.convert(whole, DType::F64)?;
        // Whole turns are taken off while the numbers are exact.
        let p = b.mul(row, column)?;
        let p = b.rem(p, whole)?;
        let p = b.convert(p, DType::F64)?;
        let p = b.div(p, points)?;
        let tau = b.scalar(DType::F64, TAU)?;
        let angle = b.mul(p, tau)?;
        let (mut cos, mut sin) = (b.cos(angle)?, b.sin(angle)?);
        if self.inverse {
            let mut weight = b.reciprocal(points)?;
            if self.onesided {
                let zero = b.scalar_like(row, 0.0)?;
                let first = b.eq(row, zero)?;
                let twice = b.add(row, row)?;
                let middle = b.eq(twice, whole)?;
                let single = b.or(first, middle)?;
                let double = b.add(weight, weight)?;
                weight = b.select(single, weight, double)?;
            }
            (cos, sin) = (b.mul(cos, weight)?, b.mul(sin, weight)?);
            sin = b.neg(sin)?;
        }
        Ok((cos, sin))
    }
}

/// The first `n` elements of the last axis but one, zeros after those that are there.
fn fit(b: &mut Builder, x: ValueId, n: &Dim) -> Result<ValueId, IrError> {
    let shape = b.shape(x)?;
    let rank = shape.rank();
    let Some(size) = shape.get(rank.wrapping_sub(2)).filter(|&size| size != n).cloned() else { return Ok(x) };
    let kept = size.min(n.clone());
    let mut limits = shape.into_dims();
    limits[rank - 2] = kept.clone();
    let x = b.slice(x, vec![Dim::ZERO; rank], limits, vec![1; rank])?;
    let mut high = vec![Dim::ZERO; rank];
    high[rank - 2] = n - kept;
    let zero = b.scalar_like(x, 0.0)?;
    b.pad(x, Some(zero), vec![Dim::ZERO; rank], high, PadMode::Constant)
}

impl Builder {
    /// The discrete Fourier transform of an axis, of `length` points; the last axis holds real and imaginary parts (2) or real ones (1).
    pub fn fft(&mut self, x: ValueId, op: Fft) -> Result<ValueId, IrError> {
        self.op1(op, &[x])
    }
}
