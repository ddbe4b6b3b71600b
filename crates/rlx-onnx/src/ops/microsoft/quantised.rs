//! Functions of quantised operands: made real, computed, quantised again; products exact in integers.

use rlx_ir::ops::elementwise::{Binary, Unary};
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, Dim, ValueId};

use super::super::context::{Failure, NodeCx, Out};
use super::super::quantisation::{dynamic, round_to};
use super::super::{OpEntry, ms, pooling, quantisation, recurrent};
use super::attention::attend_packed;
use super::diffusion::channels_first;
use super::fused::normed;

pub(super) const OPS: &[OpEntry] = &[
    ms("QuantizeLinear", quantisation::quantize),
    ms("DequantizeLinear", quantisation::dequantize),
    ms("QLinearAdd", |cx| binary(cx, Binary::Add)),
    ms("QLinearMul", |cx| binary(cx, Binary::Mul)),
    ms("QLinearSigmoid", |cx| unary(cx, |cx, x| Ok(cx.b().op1(Unary::Sigmoid, &[x])?))),
    ms("QLinearLeakyRelu", |cx| {
        unary(cx, |cx, x| {
            let alpha = cx.float("alpha", 0.01)?;
            Ok(cx.b().leaky_relu(x, alpha)?)
        })
    }),
    ms("QLinearSoftmax", |cx| {
        unary(cx, |cx, x| {
            cx.ignore(&["opset"]);
            let axis = cx.int("axis", -1)?;
            let axis = cx.axis(x, axis)?;
            Ok(cx.b().softmax(x, axis)?)
        })
    }),
    ms("QLinearGlobalAveragePool", |cx| unary(cx, global_average)),
    ms("QLinearAveragePool", |cx| unary(cx, average)),
    ms("QLinearReduceMean", |cx| {
        unary(cx, |cx, x| {
            let axes = cx.opt_ints("axes")?.unwrap_or_default();
            let keep = cx.flag("keepdims", true)?;
            let axes = if axes.is_empty() { (0..cx.rank(x)? as i64).collect() } else { axes };
            Ok(cx.b().reduce_mean(x, &axes, keep)?)
        })
    }),
    ms("ReduceSumInteger", sum),
    ms("MulInteger", product),
    ms("QLinearConcat", concat),
    ms("QLinearConv", |cx| {
        let x = cx.input(0)?;
        let last = cx.flag("channels_last", false)?;
        Ok(vec![channels_first(cx, x, last, quantisation::quantized_conv_of)?])
    }),
    ms("QAttention", projected),
    ms("QEmbedLayerNormalization", embeddings),
    ms("DynamicQuantizeLSTM", lstm),
    ms("QLinearWhere", select),
    ms("QGemm", gemm),
    ms("MatMulIntegerToFloat", integer_to_float),
    ms("DynamicQuantizeMatMul", dynamic_matmul),
];

/// Operand `i` with its scale and zero point after it, made real.
fn real(cx: &mut NodeCx<'_, '_>, i: usize) -> Result<ValueId, Failure> {
    let (x, scale, zero) = (cx.input(i)?, cx.input(i + 1)?, cx.opt(i + 2)?);
    let x = less(cx, x, zero, None)?;
    let scale = spread(cx, scale, None)?;
    let b = cx.b();
    let (x, scale) = (b.convert(x, DType::F32)?, b.convert(scale, DType::F32)?);
    Ok(b.mul(x, scale)?)
}

/// A scale or zero point: a scalar, or one along an axis of a number of axes.
fn spread(cx: &mut NodeCx<'_, '_>, v: ValueId, along: Option<(usize, usize)>) -> Result<ValueId, Failure> {
    match along {
        Some((axis, rank)) if cx.shape(v)?.numel() != Dim::ONE => cx.along(v, axis, rank),
        _ => crate::import::scalar(cx.b(), v),
    }
}

/// An integer operand less its zero point, in i32.
fn less(
    cx: &mut NodeCx<'_, '_>,
    x: ValueId,
    zero: Option<ValueId>,
    along: Option<(usize, usize)>,
) -> Result<ValueId, Failure> {
    let x = cx.b().convert(x, DType::I32)?;
    let Some(zero) = zero else { return Ok(x) };
    let zero = spread(cx, zero, along)?;
    let zero = cx.b().convert(zero, DType::I32)?;
    Ok(cx.b().sub(x, zero)?)
}

/// Quantised with the scale that is operand `i` and the zero point after it.
fn quantised(cx: &mut NodeCx<'_, '_>, y: ValueId, i: usize, like: ValueId) -> Out {
    let (scale, zero) = (cx.input(i)?, cx.opt(i + 1)?);
    let to = match zero {
        Some(z) => cx.dtype(z)?,
        None => cx.dtype(like)?,
    };
    let scale = spread(cx, scale, None)?;
    let zero = zero.map(|z| spread(cx, z, None)).transpose()?;
    let scale = cx.b().convert(scale, DType::F32)?;
    let y = cx.b().div(y, scale)?;
    Ok(vec![round_to(cx, y, to, zero, true)?])
}

fn binary(cx: &mut NodeCx<'_, '_>, f: Binary) -> Out {
    let like = cx.input(0)?;
    let (x, y) = (real(cx, 0)?, real(cx, 3)?);
    let z = cx.b().op1(f, &[x, y])?;
    quantised(cx, z, 6, like)
}

fn unary(cx: &mut NodeCx<'_, '_>, f: impl Fn(&mut NodeCx<'_, '_>, ValueId) -> Result<ValueId, Failure>) -> Out {
    let like = cx.input(0)?;
    let x = real(cx, 0)?;
    let y = f(cx, x)?;
    quantised(cx, y, 3, like)
}

fn global_average(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<ValueId, Failure> {
    let last = cx.flag("channels_last", false)?;
    channels_first(cx, x, last, |cx, x| {
        let axes: Vec<i64> = (2..cx.rank(x)? as i64).collect();
        Ok(cx.b().reduce_mean(x, &axes, true)?)
    })
}

fn average(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<ValueId, Failure> {
    let last = cx.flag("channels_last", false)?;
    channels_first(cx, x, last, pooling::average_of)
}

/// Result scale and zero point come first, then each operand with its own.
fn concat(cx: &mut NodeCx<'_, '_>) -> Out {
    let axis = cx.need_int_attr("axis")?;
    let like = cx.input(2)?;
    let mut all = Vec::new();
    let mut i = 2;
    while cx.has(i) {
        all.push(real(cx, i)?);
        i += 3;
    }
    let y = cx.b().concat(&all, axis)?;
    quantised(cx, y, 0, like)
}

fn select(cx: &mut NodeCx<'_, '_>) -> Out {
    let (condition, like) = (cx.input(0)?, cx.input(1)?);
    let (x, y) = (real(cx, 1)?, real(cx, 4)?);
    let z = cx.b().select(condition, x, y)?;
    quantised(cx, z, 7, like)
}

/// `alpha · A B + C`, C being in the product's own scale; without a result scale it stays real.
fn gemm(cx: &mut NodeCx<'_, '_>) -> Out {
    let (a, b) = (cx.input(0)?, cx.input(3)?);
    let (trans_a, trans_b) = (cx.flag("transA", false)?, cx.flag("transB", false)?);
    let alpha = cx.float("alpha", 1.0)?;
    let (za, zb) = (cx.opt(2)?, cx.opt(5)?);
    let x = less(cx, a, za, None)?;
    let y = less(cx, b, zb, Some((usize::from(!trans_b), 2)))?;
    let mut z = cx.b().dot_general(x, y, &[], &[], &[usize::from(!trans_a)], &[usize::from(trans_b)], None)?;
    if let Some(c) = cx.opt(6)? {
        z = cx.b().add(z, c)?;
    }
    let (sa, sb) = (cx.input(1)?, cx.input(4)?);
    let (sa, sb) = (spread(cx, sa, None)?, spread(cx, sb, Some((1, 2)))?);
    let scale = cx.b().mul(sa, sb)?;
    let scale = cx.times(scale, alpha)?;
    let z = cx.b().convert(z, DType::F32)?;
    let z = cx.b().mul(z, scale)?;
    if cx.has(7) { quantised(cx, z, 7, a) } else { Ok(vec![z]) }
}

/// A product of integers scaled to floats; what stands along the columns may differ by column.
struct Product {
    a: ValueId,
    b: ValueId,
    scale_a: ValueId,
    scale_b: ValueId,
    bias: Option<ValueId>,
}

impl Product {
    fn run(self, cx: &mut NodeCx<'_, '_>) -> Out {
        let scale_a = spread(cx, self.scale_a, None)?;
        let scale_b = if cx.shape(self.scale_b)?.numel() == Dim::ONE {
            crate::import::scalar(cx.b(), self.scale_b)?
        } else {
            self.scale_b
        };
        let y = cx.b().matmul(self.a, self.b)?;
        let y = cx.b().convert(y, DType::F32)?;
        let scale = cx.b().mul(scale_a, scale_b)?;
        let mut y = cx.b().mul(y, scale)?;
        if let Some(bias) = self.bias {
            y = cx.b().add(y, bias)?;
        }
        Ok(vec![y])
    }
}

fn integer_to_float(cx: &mut NodeCx<'_, '_>) -> Out {
    let (a, b, scale_a, scale_b) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3)?);
    let (za, zb, bias) = (cx.opt(4)?, cx.opt(5)?, cx.opt(6)?);
    let a = less(cx, a, za, None)?;
    let rank = cx.rank(b)?;
    let b = less(cx, b, zb, Some((rank.saturating_sub(1), rank)))?;
    Product { a, b, scale_a, scale_b, bias }.run(cx)
}

fn dynamic_matmul(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, b, scale_b) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (zb, bias) = (cx.opt(3)?, cx.opt(4)?);
    let [q, scale_a, za] = dynamic(cx, x)?;
    let a = less(cx, q, Some(za), None)?;
    let rank = cx.rank(b)?;
    let b = less(cx, b, zb, Some((rank.saturating_sub(1), rank)))?;
    Product { a, b, scale_a, scale_b, bias }.run(cx)
}

/// The sum of small integers in i32.
fn sum(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let axes = cx.opt_ints("axes")?.unwrap_or_default();
    let keep = cx.flag("keepdims", true)?;
    let axes = if axes.is_empty() { (0..cx.rank(x)? as i64).collect() } else { axes };
    let unsigned = cx.dtype(x)?.is_unsigned();
    let x = cx.b().convert(x, if unsigned { DType::U32 } else { DType::I32 })?;
    Ok(vec![cx.b().reduce(x, ReduceKind::Sum, &axes, keep)?])
}

/// The product of small integers less their zero points, in i32.
fn product(cx: &mut NodeCx<'_, '_>) -> Out {
    let (a, za, b, zb) = (cx.input(0)?, cx.opt(1)?, cx.input(2)?, cx.opt(3)?);
    let (a, b) = (less(cx, a, za, None)?, less(cx, b, zb, None)?);
    Ok(vec![cx.b().mul(a, b)?])
}

/// Attention whose projection is a product of integers.
fn projected(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, w, bias) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (scale_a, scale_b, zx, zw) = (cx.input(3)?, cx.input(4)?, cx.opt(6)?, cx.opt(7)?);
    let a = less(cx, x, zx, None)?;
    let b = less(cx, w, zw, Some((1, 2)))?;
    let y = Product { a, b, scale_a, scale_b, bias: Some(bias) }.run(cx)?;
    let [y] = y[..] else { return Err(Failure::refused("a product gave nothing")) };
    let (mask, past) = (cx.opt(5)?, cx.opt(8)?);
    attend_packed(cx, y, mask, past, None)
}

/// Embeddings and their norm, all tables quantised.
fn embeddings(cx: &mut NodeCx<'_, '_>) -> Out {
    let mut parts = Vec::new();
    for (i, scale) in [(2, 8), (3, 9), (4, 10), (5, 11), (6, 12)] {
        let part = match cx.opt(i)? {
            None => None,
            Some(table) => {
                let (scale, zero) = (cx.input(scale)?, cx.opt(scale + 5)?);
                let table = less(cx, table, zero, None)?;
                let scale = spread(cx, scale, None)?;
                let b = cx.b();
                let (table, scale) = (b.convert(table, DType::F32)?, b.convert(scale, DType::F32)?);
                Some(b.mul(table, scale)?)
            }
        };
        parts.push(part);
    }
    let [Some(words), Some(places), segments, Some(scale), Some(shift)] = parts[..] else {
        return Err(Failure::refused("the tables of words and positions, scale and shift are needed"));
    };
    normed(cx, [words, places], segments, [scale, shift], None)
}

/// An LSTM of quantised weights `[directions, input, 4 · hidden]`, which are made real. Where the original quantises what it multiplies
/// them with at each step, nothing is lost here.
fn lstm(cx: &mut NodeCx<'_, '_>) -> Out {
    let mut weights = [cx.input(1)?; 2];
    for (i, v) in weights.iter_mut().enumerate() {
        let (w, scale, zero) = (cx.input(1 + i)?, cx.input(8 + 2 * i)?, cx.opt(9 + 2 * i)?);
        let fit = |cx: &mut NodeCx<'_, '_>, v: ValueId| -> Result<ValueId, Failure> {
            // One for each direction, or for each of its columns.
            if cx.rank(v)? == 1 { cx.along(v, 0, 3) } else { Ok(cx.b().expand_dims(v, &[1])?) }
        };
        let w = cx.b().convert(w, DType::I32)?;
        let w = match zero {
            Some(z) => {
                let z = fit(cx, z)?;
                let z = cx.b().convert(z, DType::I32)?;
                cx.b().sub(w, z)?
            }
            None => w,
        };
        let scale = fit(cx, scale)?;
        let b = cx.b();
        let w = b.convert(w, DType::F32)?;
        let w = b.mul(w, scale)?;
        *v = b.transpose(w, &[0, 2, 1])?;
    }
    recurrent::lstm_of(cx, weights)
}
