//! Transposed convolution: the derivative of a convolution by its input.

use super::Conv;
use super::number::{Accumulator, Number, accumulator, result_dtype, with_number};
use super::product::{add_matmul, permuted};
use super::window::{self, Axis, Taps};
use crate::builder::Builder;
use crate::dim::{Constraint, Dim};
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::eval::for_each_index;
use crate::graph::ValueId;
use crate::op;
use crate::op::{EvalCx, InferCx, OpRules, Rule, arg};
use crate::tensor::{Tensor, Value, checked_numel};
use crate::types::TensorType;

op! {
    /// Each cell of `x[N, C, spatial…]` adds its multiple of the kernel `w[C, O/groups, taps…]` to the result, cells being `strides` apart; plus `bias[O]` if there.
    pub struct ConvTranspose = "conv_transpose" {
        /// Distance of input cells in the result, per spatial axis.
        pub strides: Vec<i64>,
        /// Distance of taps.
        pub dilations: Vec<i64>,
        /// Cells cut off at the start of the result; negative adds zeros.
        pub pad_low: Vec<Dim>,
        /// Cells cut off at its end; negative adds zeros.
        pub pad_high: Vec<Dim>,
        /// Cells added at its end.
        pub output_pad: Vec<i64>,
        /// Channels are split into this many groups, each by itself.
        pub groups: i64,
        /// Whether there is a third operand, the bias.
        pub has_bias: bool,
    }
}

impl ConvTranspose {
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
        // The window slides over the result: its positions are the cells of `x`.
        let axes: Vec<Axis> = (0..self.strides.len())
            .map(|i| Axis {
                input: dims[i + 2],
                kernel: w.dims()[i + 2],
                output: x.dims()[i + 2],
                stride: self.strides[i],
                dilation: self.dilations[i],
                low: low[i],
                spread: 1,
            })
            .collect();
        let taps: Vec<usize> = axes.iter().map(|a| a.kernel).collect();
        let cells: usize = axes.iter().map(|a| a.output).product();
        let spots: usize = axes.iter().map(|a| a.input).product();
        let (ins, outs) = (w.dims()[0] / groups, w.dims()[1]);
        let rows = outs * checked_numel(&taps)?;
        let mut out = vec![T::ZERO; checked_numel(dims)?];
        if let Some(b) = bias {
            let b = T::widen(b);
            out.chunks_exact_mut(spots.max(1)).zip(b.iter().cycle()).for_each(|(o, &b)| o.fill(b));
        }
        if out.is_empty() || rows == 0 || ins == 0 || cells == 0 {
            return T::narrow(dtype, dims, out);
        }
        // Per group [O/g · taps, C/g].
        let kernels = permuted(T::widen(w), &[groups, ins, rows], &[0, 2, 1]);
        let xs = T::widen(x);
        let meets = Taps::new(&axes);
        let mut spread = vec![T::ZERO; cx.scratch(&[rows, cells])?];
        let one = T::ONE;
        for (block, sums) in out.chunks_exact_mut(outs * spots).enumerate() {
            spread.fill(T::ZERO);
            let group = block % groups;
            let kernel = &kernels[group * rows * ins..][..rows * ins];
            add_matmul(kernel, &xs[block * ins * cells..][..ins * cells], &mut spread, ins, cells);
            let mut lines = spread.chunks_exact(cells);
            for plane in sums.chunks_exact_mut(spots) {
                for_each_index(&taps, |tap| {
                    if let Some(line) = lines.next() {
                        meets.for_each_run(tap, &mut |cell, spot, count, step| {
                            let spots = plane[spot..].iter_mut().step_by(step);
                            spots.zip(&line[cell..cell + count]).for_each(|(p, &x)| *p = p.add_product(x, one));
                        });
                    }
                });
            }
        }
        T::narrow(dtype, dims, out)
    }
}

impl OpRules for ConvTranspose {
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
            &[("strides", &self.strides), ("dilations", &self.dilations)],
            &[("pad_low", &self.pad_low), ("pad_high", &self.pad_high)],
            self.groups,
        )?;
        if self.output_pad.len() != n || self.output_pad.iter().any(|&p| p < 0) {
            return Err(OpError::new(format!(
                "output_pad {:?} needs one entry ≥ 0 for each of the {n} spatial axes",
                self.output_pad
            )));
        }
        cx.require_eq(&x.shape[1], &w.shape[0], "channels of the input and of the kernel")?;
        if self.groups != 1 {
            cx.require(Constraint::Divisible(w.shape[0].clone(), self.groups.into()), "input channels by groups")?;
        }
        let channels = &w.shape[1] * self.groups;
        if self.has_bias {
            super::conv::check_bias(cx, dtype, &channels)?;
        }
        let mut dims = vec![x.shape[0].clone(), channels];
        for i in 0..n {
            let full = window::extent(&x.shape[i + 2], self.strides[i]) + (&w.shape[i + 2] - 1) * self.dilations[i];
            let size = full - &self.pad_low[i] - &self.pad_high[i] + self.output_pad[i];
            cx.require(Constraint::Le(Dim::ZERO, size.clone()), "the result must have a size ≥ 0")?;
            dims.push(size);
        }
        cx.result(dtype, dims);
        Ok(())
    }

    fn work(&self, operands: &[TensorType], _results: &[TensorType]) -> Dim {
        let window = |t: &TensorType| Dim::product(t.shape.iter().skip(1).cloned());
        Dim::product(operands.get(1).map(window).into_iter().chain(operands.first().map(|t| t.shape.numel()))) * 2
    }

    fn eval(&self, cx: &EvalCx<'_>, args: &[Value]) -> Result<Vec<Value>, OpError> {
        let (x, w) = (arg(args, 0)?, arg(args, 1)?);
        let bias = if self.has_bias { Some(arg(args, 2)?) } else { None };
        let (low, high) = (window::pads(cx, &self.pad_low)?, window::pads(cx, &self.pad_high)?);
        let mut dims = vec![x.dims()[0], w.dims()[1] * self.groups.max(1) as usize];
        for i in 0..self.strides.len() {
            let wide = |d: usize| d as i128 - 1;
            let full = wide(x.dims()[i + 2]) * i128::from(self.strides[i])
                + wide(w.dims()[i + 2]) * i128::from(self.dilations[i])
                + 1;
            let size = full - i128::from(low[i]) - i128::from(high[i]) + i128::from(self.output_pad[i]);
            dims.push(
                usize::try_from(size)
                    .map_err(|_| OpError::new(format!("spatial axis {i} of the result would have size {size}")))?,
            );
        }
        let dtype = x.dtype();
        let out =
            with_number!(accumulator(dtype, cx.options)?, T => self.convolve::<T>(cx, dtype, &low, &dims, x, w, bias)?);
        Ok(vec![out.into()])
    }

    fn decompose(&self, b: &mut Builder, args: &[ValueId]) -> Rule<Vec<ValueId>> {
        Some(self.as_conv(b, args).map(|y| vec![y]))
    }
}

impl ConvTranspose {
    /// A plain convolution of the spread input with the kernel turned round.
    fn as_conv(&self, b: &mut Builder, args: &[ValueId]) -> Result<ValueId, IrError> {
        let (Some(&x), Some(&w)) = (args.first(), args.get(1)) else {
            return Err(b.refuse(Self::NAME, args, OpError::new("operands are missing")));
        };
        let shape = b.shape(w)?;
        let n = self.strides.len();
        let spatial: Vec<i64> = (0..n).map(|i| i as i64 + 2).collect();
        let mut turned = b.reverse(w, &spatial)?;
        let outs = &shape[1] * self.groups;
        if self.groups == 1 {
            let perm: Vec<usize> = [1, 0].into_iter().chain(2..n + 2).collect();
            turned = b.transpose(turned, &perm)?;
        } else {
            // [g · C/g, O/g, …] to [g · O/g, C/g, …].
            let per = shape[0].floor_div(self.groups);
            let taps = &shape[2..];
            let split = [self.groups.into(), per.clone(), shape[1].clone()];
            turned = b.reshape(turned, split.iter().chain(taps))?;
            let perm: Vec<usize> = [0, 2, 1].into_iter().chain(3..n + 3).collect();
            turned = b.transpose(turned, &perm)?;
            turned = b.reshape(turned, [outs, per].iter().chain(taps))?;
        }
        let reach = |i: usize| (&shape[i + 2] - 1) * self.dilations[i];
        let op = Conv {
            strides: vec![1; n],
            dilations: self.dilations.clone(),
            pad_low: (0..n).map(|i| reach(i) - &self.pad_low[i]).collect(),
            pad_high: (0..n).map(|i| reach(i) - &self.pad_high[i] + self.output_pad[i]).collect(),
            lhs_dilation: self.strides.clone(),
            groups: self.groups,
            has_bias: self.has_bias,
        };
        let operands: Vec<ValueId> = [x, turned].into_iter().chain(args.get(2).copied()).collect();
        b.op1(op, &operands)
    }
}

impl Builder {
    /// Transposed convolution with all attributes given; `bias` is optional.
    #[allow(clippy::too_many_arguments)]
    pub fn conv_transpose(
        &mut self,
        x: ValueId,
        w: ValueId,
        bias: Option<ValueId>,
        strides: &[i64],
        dilations: &[i64],
        pad_low: &[Dim],
        pad_high: &[Dim],
        output_pad: &[i64],
        groups: i64,
    ) -> Result<ValueId, IrError> {
        let op = ConvTranspose {
            strides: strides.to_vec(),
            dilations: dilations.to_vec(),
            pad_low: pad_low.to_vec(),
            pad_high: pad_high.to_vec(),
            output_pad: output_pad.to_vec(),
            groups,
            has_bias: bias.is_some(),
        };
        let operands: Vec<ValueId> = [x, w].into_iter().chain(bias).collect();
        self.op1(op, &operands)
    }
}
