//! Functions of quantised operands: made real, computed, quantised again; products exact in integers.

use rlx_ir::ops::elementwise::{Binary, Unary};
use rlx_ir::{DType, Dim, ValueId};

use super::super::context::{Failure, NodeCx, Out};
use super::super::quantisation::{dynamic, round_to};
use super::super::{OpEntry, ms, pooling, quantisation};

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
    ms("QLinearConcat", concat),
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

/// Runs `f` on channels first where the node has them last.
fn channels(
    cx: &mut NodeCx<'_, '_>,
    x: ValueId,
    f: impl Fn(&mut NodeCx<'_, '_>, ValueId) -> Result<ValueId, Failure>,
) -> Result<ValueId, Failure> {
    let rank = cx.rank(x)?;
    if !cx.flag("channels_last", false)? || rank < 3 {
        return f(cx, x);
    }
    let first: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let last: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let x = cx.b().transpose(x, &first)?;
    let y = f(cx, x)?;
    Ok(cx.b().transpose(y, &last)?)
}

fn global_average(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<ValueId, Failure> {
    channels(cx, x, |cx, x| {
        let axes: Vec<i64> = (2..cx.rank(x)? as i64).collect();
        Ok(cx.b().reduce_mean(x, &axes, true)?)
    })
}

fn average(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<ValueId, Failure> {
    channels(cx, x, pooling::average_of)
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
