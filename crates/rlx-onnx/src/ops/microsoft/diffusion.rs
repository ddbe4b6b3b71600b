//! Pieces of diffusion models: sums with biases, gates, norms and pools of images whose channels may stand last.

use rlx_ir::ops::elementwise::Unary;
use rlx_ir::{Dim, ValueId};

use super::super::context::{Failure, NodeCx, Out};
use super::super::sizes::product;
use super::super::{OpEntry, convolution, ms, pooling};

pub(super) const OPS: &[OpEntry] = &[
    ms("BiasAdd", bias_add),
    ms("BiasSplitGelu", bias_split_gelu),
    ms("BiasSoftmax", bias_softmax),
    ms("GroupNorm", |cx| {
        let x = cx.input(0)?;
        Ok(vec![group_norm(cx, x)?])
    }),
    ms("SkipGroupNorm", skip_group_norm),
    ms("NhwcMaxPool", |cx| {
        let x = cx.input(0)?;
        Ok(vec![channels_first(cx, x, true, pooling::max_of)?])
    }),
    ms("NhwcConv", nhwc_conv),
];

/// Runs `f` on an image with its channels second, also where they stand last.
pub(super) fn channels_first(
    cx: &mut NodeCx<'_, '_>,
    x: ValueId,
    last: bool,
    f: impl FnOnce(&mut NodeCx<'_, '_>, ValueId) -> Result<ValueId, Failure>,
) -> Result<ValueId, Failure> {
    let rank = cx.rank(x)?;
    if !last || rank < 3 {
        return f(cx, x);
    }
    let first: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let back: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let x = cx.b().transpose(x, &first)?;
    let y = f(cx, x)?;
    Ok(cx.b().transpose(y, &back)?)
}

fn bias_add(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, bias, skip) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let y = cx.b().add(x, bias)?;
    Ok(vec![cx.b().add(y, skip)?])
}

/// The first half of a biased operand times the GELU of the second.
fn bias_split_gelu(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, bias) = (cx.input(0)?, cx.input(1)?);
    let y = cx.b().add(x, bias)?;
    match cx.b().split_even(y, -1, 2)?[..] {
        [value, gate] => {
            let gate = cx.b().op1(Unary::Gelu, &[gate])?;
            Ok(vec![cx.b().mul(value, gate)?])
        }
        _ => Err(Failure::refused("the operand has no two halves")),
    }
}

/// Softmax of a sum over all axes from `axis` on.
fn bias_softmax(cx: &mut NodeCx<'_, '_>) -> Out {
    // Which axes the bias is repeated along shows in its shape.
    cx.ignore(&["is_inner_broadcast"]);
    let (x, bias) = (cx.input(0)?, cx.input(1)?);
    let shape = cx.shape(x)?.into_dims();
    let axis = cx.int("axis", 1)?;
    let axis = cx.axis(x, axis)?;
    let y = cx.b().add(x, bias)?;
    if axis + 1 == shape.len() {
        return Ok(vec![cx.b().softmax(y, axis)?]);
    }
    let (outer, inner) = shape.split_at(axis);
    let y = cx.b().reshape(y, [product(outer), product(inner)])?;
    let y = cx.b().softmax(y, 1)?;
    Ok(vec![cx.b().reshape(y, shape)?])
}

/// The norm that a node describes: scale and shift are operands 1 and 2.
fn group_norm(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<ValueId, Failure> {
    let (scale, shift) = (cx.input(1)?, cx.input(2)?);
    let groups = cx.need_int_attr("groups")?;
    let eps = cx.float("epsilon", 1e-5)?;
    let gated = match cx.int("activation", 0)? {
        0 => false,
        1 => true,
        a => return Err(Failure::unsupported(format!("activation {a}"))),
    };
    let last = cx.flag("channels_last", true)?;
    channels_first(cx, x, last, |cx, x| {
        let dtype = cx.dtype(x)?;
        let (scale, shift) = (cx.b().convert(scale, dtype)?, cx.b().convert(shift, dtype)?);
        let y = cx.b().group_norm(x, Some(scale), Some(shift), groups, eps)?;
        Ok(if gated { cx.b().silu(y)? } else { y })
    })
}

/// The norm of a sum of image, skip and bias; the second result is the sum.
fn skip_group_norm(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, mut skip) = (cx.input(0)?, cx.input(3)?);
    let last = cx.flag("channels_last", true)?;
    let rank = cx.rank(x)?;
    // One number for each image and channel is the same at all pixels.
    let pixels: Vec<i64> = if last { (1..rank as i64 - 1).collect() } else { (2..rank as i64).collect() };
    if cx.rank(skip)? == 2 {
        skip = cx.b().expand_dims(skip, &pixels)?;
    }
    let mut sum = cx.b().add(x, skip)?;
    if let Some(bias) = cx.opt(4)? {
        let bias = cx.along(bias, if last { rank - 1 } else { 1 }, rank)?;
        sum = cx.b().add(sum, bias)?;
    }
    Ok(vec![group_norm(cx, sum)?, sum])
}

/// A convolution of an image with its channels last; the kernel has them second.
fn nhwc_conv(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    Ok(vec![channels_first(cx, x, true, convolution::conv_of)?])
}

/// Heads packed beside each other: part `i` of axis 3 of `[b, s, heads, parts, d]`, as `[b, s, heads · d]`.
pub(super) fn packed_part(cx: &mut NodeCx<'_, '_>, x: ValueId, i: i64) -> Result<ValueId, Failure> {
    let shape = cx.shape(x)?;
    let [b, s, heads, _, d] = shape.dims() else {
        return Err(Failure::refused(format!(
            "packed heads must have axes [batch, sequence, heads, parts, size], got {shape}"
        )));
    };
    let (b, s, width) = (b.clone(), s.clone(), heads * d);
    let part = cx.range_of(x, 3, Dim::from(i), Dim::from(i + 1), 1)?;
    Ok(cx.b().reshape(part, [b, s, width])?)
}
