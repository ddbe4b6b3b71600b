//! Functions of each element.

use rlx_ir::ops::elementwise::{Binary, Compare, Elementwise, Unary};
use rlx_ir::{DType, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::{OpEntry, ms, op};

pub(super) const OPS: &[OpEntry] = &[
    op("Abs", 1, |cx| unary(cx, Unary::Abs)),
    op("Acos", 7, |cx| unary(cx, Unary::Acos)),
    op("Acosh", 9, |cx| unary(cx, Unary::Acosh)),
    op("Asin", 7, |cx| unary(cx, Unary::Asin)),
    op("Asinh", 9, |cx| unary(cx, Unary::Asinh)),
    op("Atan", 7, |cx| unary(cx, Unary::Atan)),
    op("Atanh", 9, |cx| unary(cx, Unary::Atanh)),
    op("BitwiseNot", 18, |cx| unary(cx, Unary::Not)),
    op("Ceil", 1, |cx| unary(cx, Unary::Ceil)),
    op("Cos", 7, |cx| unary(cx, Unary::Cos)),
    op("Cosh", 9, |cx| unary(cx, Unary::Cosh)),
    op("Erf", 9, |cx| unary(cx, Unary::Erf)),
    op("Exp", 1, |cx| unary(cx, Unary::Exp)),
    op("Floor", 1, |cx| unary(cx, Unary::Floor)),
    op("HardSwish", 14, |cx| unary(cx, Unary::HardSwish)),
    op("IsNaN", 9, |cx| unary(cx, Unary::IsNan)),
    op("Log", 1, |cx| unary(cx, Unary::Log)),
    op("Mish", 18, |cx| unary(cx, Unary::Mish)),
    op("Neg", 1, |cx| unary(cx, Unary::Neg)),
    op("Not", 1, |cx| unary(cx, Unary::Not)),
    op("Reciprocal", 1, |cx| unary(cx, Unary::Reciprocal)),
    op("Relu", 1, |cx| unary(cx, Unary::Relu)),
    op("Round", 11, |cx| unary(cx, Unary::RoundEven)),
    op("Sigmoid", 1, |cx| unary(cx, Unary::Sigmoid)),
    op("Sign", 9, |cx| unary(cx, Unary::Sign)),
    op("Sin", 7, |cx| unary(cx, Unary::Sin)),
    op("Sinh", 9, |cx| unary(cx, Unary::Sinh)),
    op("Softplus", 1, |cx| unary(cx, Unary::Softplus)),
    op("Softsign", 1, |cx| unary(cx, Unary::Softsign)),
    op("Sqrt", 1, |cx| unary(cx, Unary::Sqrt)),
    op("Tan", 7, |cx| unary(cx, Unary::Tan)),
    op("Tanh", 1, |cx| unary(cx, Unary::Tanh)),
    op("Add", 1, |cx| binary(cx, Binary::Add)),
    op("And", 1, |cx| binary(cx, Binary::And)),
    op("BitwiseAnd", 18, |cx| binary(cx, Binary::And)),
    op("BitwiseOr", 18, |cx| binary(cx, Binary::Or)),
    op("BitwiseXor", 18, |cx| binary(cx, Binary::Xor)),
    op("Div", 1, |cx| binary(cx, Binary::Div)),
    op("Mul", 1, |cx| binary(cx, Binary::Mul)),
    op("Or", 1, |cx| binary(cx, Binary::Or)),
    op("Sub", 1, |cx| binary(cx, Binary::Sub)),
    op("Xor", 1, |cx| binary(cx, Binary::Xor)),
    op("Equal", 1, |cx| compare(cx, Compare::Eq)),
    op("Greater", 1, |cx| compare(cx, Compare::Gt)),
    op("GreaterOrEqual", 12, |cx| compare(cx, Compare::Ge)),
    op("Less", 1, |cx| compare(cx, Compare::Lt)),
    op("LessOrEqual", 12, |cx| compare(cx, Compare::Le)),
    op("Max", 6, |cx| variadic(cx, Binary::Max)),
    op("Min", 6, |cx| variadic(cx, Binary::Min)),
    op("Sum", 6, |cx| variadic(cx, Binary::Add)),
    op("Mean", 6, mean),
    op("BitShift", 11, bit_shift),
    op("Cast", 6, cast),
    op("CastLike", 15, cast_like),
    op("Clip", 6, clip),
    op("IsInf", 10, is_inf),
    op("Mod", 10, modulo),
    op("Pow", 1, pow),
    op("Where", 9, select),
    op("Celu", 12, celu),
    op("Elu", 6, elu),
    op("Gelu", 20, gelu),
    op("HardSigmoid", 6, hard_sigmoid),
    op("LeakyRelu", 6, leaky_relu),
    op("PRelu", 1, prelu),
    op("Selu", 6, selu),
    op("Shrink", 9, shrink),
    op("Swish", 24, swish),
    op("ThresholdedRelu", 10, thresholded_relu),
    ms("Gelu", |cx| unary(cx, Unary::Gelu)),
    ms("QuickGelu", quick_gelu),
    ms("BiasGelu", |cx| bias_gelu(cx, Unary::Gelu)),
    ms("FastGelu", |cx| bias_gelu(cx, Unary::GeluTanh)),
];

fn unary(cx: &mut NodeCx<'_, '_>, f: Unary) -> Out {
    let x = cx.input(0)?;
    Ok(vec![cx.b().op1(f, &[x])?])
}

/// Both operands. Before operator set 7 the second one is spread only if asked for, and its axes then stand from attribute `axis` on.
fn pair(cx: &mut NodeCx<'_, '_>) -> Result<(ValueId, ValueId), Failure> {
    let (x, y) = (cx.input(0)?, cx.input(1)?);
    if cx.version >= 7 {
        return Ok((x, y));
    }
    cx.ignore(&["consumed_inputs"]);
    let (xs, ys) = (cx.shape(x)?, cx.shape(y)?);
    if !cx.flag("broadcast", false)? {
        if xs.rank() != ys.rank() {
            return Err(Failure::refused(format!("{xs} and {ys} differ, and attribute `broadcast` is not set")));
        }
        return Ok((x, y));
    }
    let Some(axis) = cx.opt_int("axis")? else { return Ok((x, y)) };
    let axis = cx.axis(x, axis)?;
    let Some(after) = xs.rank().checked_sub(axis + ys.rank()) else {
        return Err(Failure::refused(format!("{ys} has no place in {xs} from axis {axis} on")));
    };
    let dims = ys.into_dims().into_iter().chain(std::iter::repeat_n(rlx_ir::Dim::ONE, after));
    Ok((x, cx.b().reshape(y, dims)?))
}

fn binary(cx: &mut NodeCx<'_, '_>, f: Binary) -> Out {
    let (x, y) = pair(cx)?;
    Ok(vec![cx.b().op1(f, &[x, y])?])
}

fn compare(cx: &mut NodeCx<'_, '_>, f: Compare) -> Out {
    let (x, y) = pair(cx)?;
    if cx.dtype(x)? == DType::Str {
        return Err(Failure::unsupported("strings"));
    }
    Ok(vec![cx.b().op1(f, &[x, y])?])
}

fn fold(cx: &mut NodeCx<'_, '_>, f: Binary) -> Result<(ValueId, usize), Failure> {
    let all = cx.inputs_from(0)?;
    let (&first, rest) = all.split_first().ok_or_else(|| Failure::refused("takes at least one operand"))?;
    let mut sum = first;
    for &x in rest {
        sum = cx.b().op1(f, &[sum, x])?;
    }
    Ok((sum, all.len()))
}

fn variadic(cx: &mut NodeCx<'_, '_>, f: Binary) -> Out {
    Ok(vec![fold(cx, f)?.0])
}

fn mean(cx: &mut NodeCx<'_, '_>) -> Out {
    let (sum, n) = fold(cx, Binary::Add)?;
    let n = cx.scalar_like(sum, n as f64)?;
    Ok(vec![cx.b().div(sum, n)?])
}

fn bit_shift(cx: &mut NodeCx<'_, '_>) -> Out {
    let f = cx.word("direction", "", &[("LEFT", Binary::ShiftLeft), ("RIGHT", Binary::ShiftRight)])?;
    binary(cx, f)
}

/// Conversion with ONNX's `saturate`, which matters for small floats only.
pub(super) fn convert(cx: &mut NodeCx<'_, '_>, x: ValueId, to: DType, saturate: bool) -> Result<ValueId, Failure> {
    let from = cx.dtype(x)?;
    if from == to {
        return Ok(x);
    }
    if from == DType::Str || to == DType::Str {
        return Err(Failure::unsupported("conversion of strings"));
    }
    Ok(cx.b().op1(Elementwise::Convert { to, saturate }, &[x])?)
}

fn cast(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let to = cx.opt_dtype("to")?.ok_or_else(|| Failure::refused("attribute `to` is missing"))?;
    cast_to(cx, x, to)
}

fn cast_like(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, like) = (cx.input(0)?, cx.input(1)?);
    let to = cx.dtype(like)?;
    cast_to(cx, x, to)
}

fn cast_to(cx: &mut NodeCx<'_, '_>, x: ValueId, to: DType) -> Out {
    let saturate = cx.flag("saturate", true)?;
    let mode = cx.word("round_mode", "up", &[("up", Some(true)), ("down", Some(false)), ("nearest", None)])?;
    let from = cx.dtype(x)?;
    if to == DType::F8E8M0 && from.is_float() {
        return Ok(vec![power_of_two(cx, x, mode, saturate)?]);
    }
    // The standard leaves floats out of range open; its cases for these types keep the low bits.
    if from.is_float() && to.is_int() && to.bits() < 8 {
        let wide = cx.b().convert(x, DType::I32)?;
        return Ok(vec![convert(cx, wide, to, saturate)?]);
    }
    Ok(vec![convert(cx, x, to, saturate)?])
}

/// The power of two next to x: above it, below it, or the nearest.
fn power_of_two(cx: &mut NodeCx<'_, '_>, x: ValueId, up: Option<bool>, saturate: bool) -> Result<ValueId, Failure> {
    let near = convert(cx, x, DType::F8E8M0, saturate)?;
    let Some(up) = up else { return Ok(near) };
    let x = cx.b().convert(x, DType::F32)?;
    let at = cx.b().convert(near, DType::F32)?;
    let step = cx.scalar_like(at, if up { 2.0 } else { 0.5 })?;
    let b = cx.b();
    let next = b.mul(at, step)?;
    let off = if up { b.lt(at, x)? } else { b.gt(at, x)? };
    let at = b.select(off, next, at)?;
    convert(cx, at, DType::F8E8M0, saturate)
}

fn clip(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let (lo, hi) = if cx.version < 11 {
        let (lo, hi) = (cx.opt_float("min")?, cx.opt_float("max")?);
        let lo = lo.map(|lo| cx.scalar_like(x, lo)).transpose()?;
        (lo, hi.map(|hi| cx.scalar_like(x, hi)).transpose()?)
    } else {
        (cx.opt(1)?, cx.opt(2)?)
    };
    let b = cx.b();
    Ok(vec![match (lo, hi) {
        (Some(lo), Some(hi)) => b.clamp(x, lo, hi)?,
        (Some(lo), None) => b.maximum(x, lo)?,
        (None, Some(hi)) => b.minimum(x, hi)?,
        (None, None) => x,
    }])
}

fn is_inf(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let (neg, pos) = (cx.flag("detect_negative", true)?, cx.flag("detect_positive", true)?);
    if neg && pos {
        return Ok(vec![cx.b().is_inf(x)?]);
    }
    let which = match (neg, pos) {
        (true, false) => f64::NEG_INFINITY,
        (false, true) => f64::INFINITY,
        // Nothing to detect: nothing is unordered and equal at once.
        _ => f64::NAN,
    };
    let which = cx.scalar_like(x, which)?;
    Ok(vec![cx.b().eq(x, which)?])
}

fn modulo(cx: &mut NodeCx<'_, '_>) -> Out {
    let f = if cx.flag("fmod", false)? { Binary::Rem } else { Binary::Mod };
    binary(cx, f)
}

/// The result has the base's dtype, whatever the exponent's is.
fn pow(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, y) = pair(cx)?;
    let (dx, dy) = (cx.dtype(x)?, cx.dtype(y)?);
    let common = match (dx.is_float(), dy.is_float()) {
        (true, true) if dy.bits() > dx.bits() => dy,
        (false, true) => DType::F64,
        (false, false) if dy.bits() > dx.bits() => dy,
        _ => dx,
    };
    let b = cx.b();
    let (x, y) = (b.convert(x, common)?, b.convert(y, common)?);
    let p = b.pow(x, y)?;
    Ok(vec![b.convert(p, dx)?])
}

fn select(cx: &mut NodeCx<'_, '_>) -> Out {
    let (c, x, y) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    Ok(vec![cx.b().select(c, x, y)?])
}

fn celu(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let alpha = cx.float("alpha", 1.0)?;
    Ok(vec![cx.b().celu(x, alpha)?])
}

fn elu(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let alpha = cx.float("alpha", 1.0)?;
    Ok(vec![cx.b().elu(x, alpha)?])
}

fn selu(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let alpha = cx.float("alpha", 1.673_263_2)?;
    let gamma = cx.float("gamma", 1.050_701)?;
    Ok(vec![cx.b().selu(x, alpha, gamma)?])
}

fn gelu(cx: &mut NodeCx<'_, '_>) -> Out {
    let f = cx.word("approximate", "none", &[("none", Unary::Gelu), ("tanh", Unary::GeluTanh)])?;
    unary(cx, f)
}

fn hard_sigmoid(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let (alpha, beta) = (cx.float("alpha", 0.2)?, cx.float("beta", 0.5)?);
    Ok(vec![cx.b().hard_sigmoid(x, alpha, beta)?])
}

fn leaky_relu(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let alpha = cx.float("alpha", 0.01)?;
    Ok(vec![cx.b().leaky_relu(x, alpha)?])
}

fn prelu(cx: &mut NodeCx<'_, '_>) -> Out {
    let (x, mut slope) = (cx.input(0)?, cx.input(1)?);
    // Before operator set 7 a vector of slopes is one for each channel.
    if cx.version < 7 && cx.rank(slope)? == 1 && cx.shape(slope)?.numel() != rlx_ir::Dim::ONE {
        let rank = cx.rank(x)?;
        slope = cx.along(slope, 1.min(rank.saturating_sub(1)), rank)?;
    }
    Ok(vec![cx.b().prelu(x, slope)?])
}

fn shrink(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let (lambda, bias) = (cx.float("lambd", 0.5)?, cx.float("bias", 0.0)?);
    Ok(vec![cx.b().shrink(x, lambda, bias)?])
}

fn swish(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let alpha = cx.float("alpha", 1.0)?;
    swish_of(cx, x, alpha)
}

pub(super) fn swish_of(cx: &mut NodeCx<'_, '_>, x: ValueId, alpha: f64) -> Out {
    if alpha == 1.0 {
        return Ok(vec![cx.b().silu(x)?]);
    }
    let alpha = cx.scalar_like(x, alpha)?;
    let y = cx.b().mul(x, alpha)?;
    let s = cx.b().sigmoid(y)?;
    Ok(vec![cx.b().mul(x, s)?])
}

fn thresholded_relu(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let alpha = cx.float("alpha", 1.0)?;
    Ok(vec![cx.b().thresholded_relu(x, alpha)?])
}

fn quick_gelu(cx: &mut NodeCx<'_, '_>) -> Out {
    let x = cx.input(0)?;
    let alpha = cx.float("alpha", 1.702)?;
    swish_of(cx, x, alpha)
}

fn bias_gelu(cx: &mut NodeCx<'_, '_>, f: Unary) -> Out {
    let x = cx.input(0)?;
    let x = match cx.opt(1)? {
        Some(bias) => cx.b().add(x, bias)?,
        None => x,
    };
    Ok(vec![cx.b().op1(f, &[x])?])
}
