//! Convolution.

use super::number::{Accumulator, Number, accumulator, result_dtype, with_number};
use super::product::add_matmul;
use super::window::{self, Axis, Taps};
use crate::builder::Builder;
use crate::dim::{Constraint, Dim};
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::eval::for_each_index;
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, Rule, arg};
use crate::ops::shape::PadMode;
use crate::tensor::{Tensor, Value, checked_numel};
use crate::types::TensorType;

op! {
    /// Cross-correlation of `x[N, C, spatial…]` with kernels `w[O, C/groups, taps…]`, plus `bias[O]` if there.
    pub struct Conv = "conv" {
        /// Step of the window, per spatial axis.
        pub strides: Vec<i64>,
        /// Distance of taps.
        pub dilations: Vec<i64>,
        /// Zeros before the input; negative crops.
        pub pad_low: Vec<Dim>,
        /// Zeros after the input; negative crops.
        pub pad_high: Vec<Dim>,
        /// Distance of input cells, the gaps being zeros: 1 for plain convolution, the stride for a transposed one.
        pub lhs_dilation: Vec<i64>,
        /// Channels are split into this many groups, each convolved by itself.
        pub groups: i64,
        /// Whether there is a third operand, the bias.
        pub has_bias: bool,
    }
}

impl Conv {
    fn convolve<T: Number>(
        &self,
        cx: &EvalCx<'_>,
        dtype: DType,
        low: &[i64],
        dims: &[usize],
        x: &Tensor,
        w: &Tensor,
        bias: Option<&Tensor>,
    ) -> Result<Tensor, OpError> {
        let groups = self.groups.max(1) as usize;
        let axes: Vec<Axis> = (0..self.strides.len())
            .map(|i| Axis {
                input: x.dims()[i + 2],
                kernel: w.dims()[i + 2],
                output: dims[i + 2],
                stride: self.strides[i],
                dilation: self.dilations[i],
                low: low[i],
                spread: self.lhs_dilation[i],
            })
            .collect();
        let taps: Vec<usize> = axes.iter().map(|a| a.kernel).collect();
        let cells: usize = axes.iter().map(|a| a.input).product();
        let spots: usize = axes.iter().map(|a| a.output).product();
        let (outs, ins) = (w.dims()[0] / groups, w.dims()[1]);
        let k = ins * checked_numel(&taps)?;
        let (xs, ws) = (T::widen(x), T::widen(w));
        let mut out = vec![T::ZERO; checked_numel(dims)?];
        if let Some(b) = bias {
            let b = T::widen(b);
            out.chunks_exact_mut(spots.max(1)).zip(b.iter().cycle()).for_each(|(o, &b)| o.fill(b));
        }
        if out.is_empty() || k == 0 {
            return T::narrow(dtype, dims, out);
        }
        // Row (channel, tap) of the patch matrix holds what that tap sees at each output position.
        let meets = Taps::new(&axes);
        let mut patches = vec![T::ZERO; cx.scratch(&[k, spots])?];
        for (block, sums) in out.chunks_exact_mut(outs * spots).enumerate() {
            patches.fill(T::ZERO);
            let mut rows = patches.chunks_exact_mut(spots);
            for channel in 0..ins {
                let plane = &xs[(block * ins + channel) * cells..][..cells];
                for_each_index(&taps, |tap| {
                    if let Some(row) = rows.next() {
                        meets.for_each_run(tap, &mut |o, i, count, step| {
                            let cells = plane[i..].iter().step_by(step);
                            row[o..o + count].iter_mut().zip(cells).for_each(|(r, &x)| *r = x);
                        });
                    }
                });
            }
            let group = block % groups;
            add_matmul(&ws[group * outs * k..][..outs * k], &patches, sums, k, spots);
        }
        T::narrow(dtype, dims, out)
    }

    fn output_dims(&self, cx: &EvalCx<'_>, x: &Tensor, w: &Tensor) -> Result<(Vec<i64>, Vec<usize>), OpError> {
        let (low, high) = (window::pads(cx, &self.pad_low)?, window::pads(cx, &self.pad_high)?);
        let mut dims = vec![x.dims()[0], w.dims()[0]];
        for i in 0..self.strides.len() {
            let wide = |d: usize| d as i128;
            let (input, kernel) = (wide(x.dims()[i + 2]), wide(w.dims()[i + 2]));
            let spread = (input - 1) * i128::from(self.lhs_dilation[i]) + 1;
            let window = (kernel - 1) * i128::from(self.dilations[i]) + 1;
            let free = spread + i128::from(low[i]) + i128::from(high[i]) - window;
            let n = free.div_euclid(i128::from(self.strides[i])) + 1;
            dims.push(usize::try_from(n).map_err(|_| {
                OpError::new(format!("the kernel {w:?} does not fit into the padded input {x:?} on spatial axis {i}"))
            })?);
        }
        Ok((low, dims))
    }
}

impl OpRules for Conv {
    fn infer(&self, cx: &mut InferCx<'_>) -> Result<(), OpError> {
        cx.expect_operands(2 + usize::from(self.has_bias))?;
        let (x, w) = (cx.tensor(0)?, cx.tensor(1)?);
        let dtype = result_dtype(&[x.dtype, w.dtype], None)?;
        let n = x
            .shape
            .rank()
            .checked_sub(2)
            .ok_or_else(|| OpError::new(format!("the input must have axes [N, C, spatial…], got {}", x.shape)))?;
        if w.shape.rank() != x.shape.rank() {
            return Err(OpError::new(format!("input {} and kernel {} must have as many axes", x.shape, w.shape)));
        }
        window::check_attributes(
            n,
            &[("strides", &self.strides), ("dilations", &self.dilations), ("lhs_dilation", &self.lhs_dilation)],
            &[("pad_low", &self.pad_low), ("pad_high", &self.pad_high)],
            self.groups,
        )?;
        cx.require_eq(
            &x.shape[1],
            &(&w.shape[1] * self.groups),
            "channels of the input and of the kernel times groups",
        )?;
        if self.groups != 1 {
            cx.require(Constraint::Divisible(w.shape[0].clone(), self.groups.into()), "output channels by groups")?;
        }
        if self.has_bias {
            check_bias(cx, dtype, &w.shape[0])?;
        }
        let mut dims = vec![x.shape[0].clone(), w.shape[0].clone()];
        for i in 0..n {
            let padded = window::extent(&x.shape[i + 2], self.lhs_dilation[i]) + &self.pad_low[i] + &self.pad_high[i];
            let kernel = window::extent(&w.shape[i + 2], self.dilations[i]);
            dims.push(window::positions(cx, padded, kernel, self.strides[i])?);
        }
        cx.result(dtype, dims);
        Ok(())
    }

    fn work(&self, operands: &[TensorType], results: &[TensorType]) -> Dim {
        let window = |t: &TensorType| Dim::product(t.shape.iter().skip(1).cloned());
        Dim::product(operands.get(1).map(window).into_iter().chain(results.first().map(|t| t.shape.numel()))) * 2
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let (x, w) = (arg(args, 0)?, arg(args, 1)?);
        let bias = if self.has_bias { Some(arg(args, 2)?) } else { None };
        let (low, dims) = self.output_dims(cx, x, w)?;
        let dtype = x.dtype();
        let out =
            with_number!(accumulator(dtype, cx.options)?, T => self.convolve::<T>(cx, dtype, &low, &dims, x, w, bias)?);
        Ok(vec![out.into()])
    }

    /// Only a dilated input is broken up: zeros are put between its cells, and a plain convolution is left.
    fn decompose(&self, b: &mut Builder, args: &[ValueId]) -> Rule<Vec<ValueId>> {
        let dilated = self.lhs_dilation.iter().any(|&d| d != 1);
        dilated.then(|| self.over_spread_input(b, args).map(|y| vec![y]))
    }
}

impl Conv {
    fn over_spread_input(&self, b: &mut Builder, args: &[ValueId]) -> Result<ValueId, IrError> {
        let Some((&x, rest)) = args.split_first() else {
            return Err(IrError::Eval("a convolution without operands".into()));
        };
        let zero = b.scalar(b.dtype(x)?, 0.0)?;
        let (mut wide, mut pad_high) = (x, self.pad_high.clone());
        for (axis, &d) in self.lhs_dilation.iter().enumerate().map(|(i, d)| (i + 2, d)).filter(|(_, d)| **d != 1) {
            let dims = b.shape(wide)?.into_dims();
            let mut cells = dims.clone();
            cells.insert(axis + 1, Dim::ONE);
            let apart = b.reshape(wide, cells)?;
            let mut high = vec![Dim::ZERO; dims.len() + 1];
            high[axis + 1] = Dim::from(d - 1);
            let gaps = b.pad(apart, Some(zero), vec![Dim::ZERO; dims.len() + 1], high, PadMode::Constant)?;
            let mut limits = dims;
            let extent = window::extent(&limits[axis], d);
            limits[axis] = limits[axis].clone() * d;
            let spread = b.reshape(gaps, limits.iter().cloned())?;
            // No gap after the last cell. Of no cell less than nothing would be left, which the padding takes on.
            limits[axis] = extent.max(&Dim::ZERO);
            pad_high[axis - 2] = &pad_high[axis - 2] + &(&extent - &limits[axis]);
            let rank = limits.len();
            wide = b.slice(spread, vec![Dim::ZERO; rank], limits, vec![1; rank])?;
        }
        let plain = Conv { lhs_dilation: vec![1; self.lhs_dilation.len()], pad_high, ..self.clone() };
        let operands: Vec<ValueId> = [wide].iter().chain(rest).copied().collect();
        b.op1(plain, &operands)
    }
}

/// Checks that operand 2 is a bias of one element for each of `channels`.
pub(super) fn check_bias(cx: &mut InferCx<'_>, dtype: DType, channels: &Dim) -> Result<(), OpError> {
    let b = cx.tensor(2)?;
    if b.dtype != dtype || b.shape.rank() != 1 {
        return Err(OpError::new(format!("the bias must be {dtype}[{channels}], got {b}")));
    }
    cx.require_eq(&b.shape[0], channels, "elements of the bias and output channels")
}

impl Builder {
    /// Convolution with all attributes given; `bias` is optional.
    #[allow(clippy::too_many_arguments)]
    pub fn conv(
        &mut self,
        x: ValueId,
        w: ValueId,
        bias: Option<ValueId>,
        strides: &[i64],
        dilations: &[i64],
        pad_low: &[Dim],
        pad_high: &[Dim],
        groups: i64,
    ) -> Result<ValueId, IrError> {
        let op = Conv {
            strides: strides.to_vec(),
            dilations: dilations.to_vec(),
            pad_low: pad_low.to_vec(),
            pad_high: pad_high.to_vec(),
            lhs_dilation: vec![1; strides.len()],
            groups,
            has_bias: bias.is_some(),
        };
        let operands: Vec<ValueId> = [x, w].into_iter().chain(bias).collect();
        self.op1(op, &operands)
    }
}
