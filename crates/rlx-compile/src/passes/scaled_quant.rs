//! Scaled quantisation: contractions of f32 become products of narrow numbers with scales found from the data of each run.
//!
//! A contraction without batch axes is `A · B` with A's free axes as rows and B's as columns, however many there are.
//!
//! - **int8**: each row of A and each column of B is scaled by its greatest magnitude to −127..127 and rounded to nearest even; products are summed in
//!   i32 and scaled back.
//! - **fp8**: the same with the greatest number of the format for 127; products are summed in f32.
//! - **MX** (8, 6 or 4 bits): blocks of 32 along the contracted axis share a scale, the power of two that the format's standard gives them; what is summed
//!   (in f32) are the numbers of the format times their scales. A last block that is not full is one.
//!
//! What depends on parameters alone is quantised in prepare, since the pass runs before the split. Attention is quantised on request: its
//! queries, keys and values are rounded to the format, each by rows of features (keys and values are rows too).
//!
//! Infinities and NaN make their whole row or column NaN or infinite, as a product with them would.

use rlx_ir::ops::elementwise::{Binary, Elementwise, Unary};
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::ops::shape::PadMode;
use rlx_ir::ops::{Contraction, Neural};
use rlx_ir::{Builder, DType, Dim, Graph, IrError, Module, Node, Op, ValueId};

use crate::options::ScaledQuant;
use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::remark::RemarkKind;
use crate::rewrite::{map_module, rewrite};

/// The pass.
pub const PASS: Pass = Pass {
    name: "scaled_quant",
    phase: Phase::Transform,
    summary: "quantises contractions to the format that the options name",
    run,
};

/// Elements of a block that share a scale.
const BLOCK: i64 = 32;
/// Magnitudes below this are scaled as if they were it: scales stay numbers, and it is far below what matters beside any other row.
const TINY: f64 = 7.888609052210118e-31;

fn run(m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    let Some(format) = cx.options.scaled_quant else { return Ok(m) };
    let claimed = |d: DType| cx.claims.is_none_or(|c| c.dtypes.contains(&d));
    if !claimed(format.dtype()) {
        return Ok(m);
    }
    Ok(map_module(m, &mut |g| {
        rewrite(&g, |rw, _, node| {
            if !matches!(node.op, Op::Contraction(_) | Op::Neural(Neural::Attention(_))) {
                return Ok(None);
            }
            match reason(rw.old(), node, cx, format) {
                Some(why) => {
                    cx.count("not rewritten");
                    let message = format!("not rewritten to {format}: `{}`: {why}", node.op.name());
                    cx.remark(RemarkKind::Missed, &node.loc, message);
                    Ok(None)
                }
                None => {
                    cx.count("rewritten");
                    cx.remark(RemarkKind::Applied, &node.loc, format!("rewritten to {format}: `{}`", node.op.name()));
                    let operands = rw.operands(node)?;
                    quantised(&mut rw.b, &node.op, &operands, format).map(|y| Some(vec![y]))
                }
            }
        })
    })?)
}

/// Why a node stays as it is.
fn reason(g: &Graph, node: &Node, cx: &PassCx<'_>, format: ScaledQuant) -> Option<String> {
    let types: Vec<_> = node.operands.iter().filter_map(|&v| g.tensor_type(v)).collect();
    if let Some(t) = types.iter().take(2).find(|t| t.dtype != DType::F32) {
        return Some(format!("its operands are {}, not f32", t.dtype));
    }
    match &node.op {
        Op::Neural(_) if !cx.options.scaled_quant_attention => Some("`scaled_quant_attention` is off".into()),
        Op::Neural(_) => None,
        Op::Contraction(Contraction::DotGeneral(dot)) => {
            if dot.accumulate.is_some_and(|a| a != DType::F32) {
                return Some("its sums are not f32".into());
            }
            if !dot.lhs_batch.is_empty() {
                return Some(format!("it has {} batch axes", dot.lhs_batch.len()));
            }
            if dot.lhs_contract.is_empty() {
                return Some("it contracts no axis".into());
            }
            if !format.is_mx() {
                return None;
            }
            if dot.lhs_contract.len() > 1 {
                return Some(format!("blocks lie along one contracted axis, it has {}", dot.lhs_contract.len()));
            }
            let size = dot.lhs_contract.first().and_then(|&a| types.first()?.shape.get(a));
            size.filter(|d| d.as_const().is_none_or(|n| n == 0))
                .map(|d| format!("the size of its contracted axis is {d}"))
        }
        op => Some(format!("`{}` is no matrix product", op.name())),
    }
}

fn quantised(b: &mut Builder, op: &Op, operands: &[ValueId], format: ScaledQuant) -> Result<ValueId, IrError> {
    match (op, operands) {
        (Op::Contraction(Contraction::DotGeneral(dot)), &[x, y]) => {
            let mut dot = dot.clone();
            dot.accumulate = Some(DType::F32);
            if format.is_mx() {
                let x = in_blocks(b, x, dot.lhs_contract.first().copied().unwrap_or(0), format)?;
                let y = in_blocks(b, y, dot.rhs_contract.first().copied().unwrap_or(0), format)?;
                return b.op1(dot, &[x, y]);
            }
            let (rows, cols) = (dot.lhs_free(b.shape(x)?.rank()), dot.rhs_free(b.shape(y)?.rank()));
            let (qx, sx) = scaled(b, x, &dot.lhs_contract, format)?;
            let (qy, sy) = scaled(b, y, &dot.rhs_contract, format)?;
            if format == ScaledQuant::Int8 {
                dot.accumulate = Some(DType::I32);
            }
            let sum = b.op1(dot, &[qx, qy])?;
            let sum = b.convert(sum, DType::F32)?;
            // Scales over the result's axes: those of rows, then those of columns.
            let mut of_rows: Vec<Dim> = rows.iter().filter_map(|&a| b.shape(x).ok()?.get(a).cloned()).collect();
            of_rows.extend(cols.iter().map(|_| Dim::ONE));
            let of_cols: Vec<Dim> = cols.iter().filter_map(|&a| b.shape(y).ok()?.get(a).cloned()).collect();
            let sx = b.reshape(sx, of_rows)?;
            let sy = b.reshape(sy, of_cols)?;
            let scaled = b.mul(sum, sx)?;
            b.mul(scaled, sy)
        }
        (op, [q, k, v, mask @ ..]) => {
            let mut all = Vec::with_capacity(operands.len());
            for &x in [q, k, v] {
                let last = b.shape(x)?.rank().saturating_sub(1);
                all.push(rounded(b, x, last, format)?);
            }
            all.extend(mask);
            b.op1(op.clone(), &all)
        }
        (op, _) => Err(IrError::Eval(format!("`{op}` has too few operands"))),
    }
}

/// An elementwise function.
fn ew(b: &mut Builder, op: Elementwise, args: &[ValueId]) -> Result<ValueId, IrError> {
    b.op1(op, args)
}

fn scalar(b: &mut Builder, like: ValueId, x: f64) -> Result<ValueId, IrError> {
    b.scalar_like(like, x)
}

/// The greatest magnitude along axes, which keep their places; at least [`TINY`].
fn greatest(b: &mut Builder, x: ValueId, axes: &[usize]) -> Result<ValueId, IrError> {
    let magnitude = ew(b, Elementwise::Unary(Unary::Abs), &[x])?;
    let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
    let most = b.reduce(magnitude, ReduceKind::Max, &axes, true)?;
    let tiny = scalar(b, most, TINY)?;
    ew(b, Elementwise::Binary(Binary::Max), &[most, tiny])
}

/// A tensor's numbers in the format, and what they are to be multiplied by: one scale for all elements along `axes`.
fn scaled(b: &mut Builder, x: ValueId, axes: &[usize], format: ScaledQuant) -> Result<(ValueId, ValueId), IrError> {
    let most = greatest(b, x, axes)?;
    let largest = scalar(b, most, format.largest())?;
    let up = ew(b, Elementwise::Binary(Binary::Div), &[largest, most])?;
    let down = ew(b, Elementwise::Binary(Binary::Div), &[most, largest])?;
    let mut q = b.mul(x, up)?;
    if format == ScaledQuant::Int8 {
        q = ew(b, Elementwise::Unary(Unary::RoundEven), &[q])?;
    }
    let q = ew(b, Elementwise::Convert { to: format.dtype(), saturate: true }, &[q])?;
    Ok((q, down))
}

/// A tensor rounded to the format, with one scale for the elements along an axis, or for each block of it.
fn rounded(b: &mut Builder, x: ValueId, axis: usize, format: ScaledQuant) -> Result<ValueId, IrError> {
    let fixed = b.shape(x)?.get(axis).and_then(Dim::as_const).is_some_and(|n| n > 0);
    if format.is_mx() && fixed {
        return in_blocks(b, x, axis, format);
    }
    let (q, down) = scaled(b, x, &[axis], format)?;
    let q = b.convert(q, DType::F32)?;
    b.mul(q, down)
}

/// A tensor rounded to the format in blocks along an axis of fixed size.
fn in_blocks(b: &mut Builder, x: ValueId, axis: usize, format: ScaledQuant) -> Result<ValueId, IrError> {
    let shape = b.shape(x)?;
    let size = shape.get(axis).and_then(Dim::as_const).unwrap_or(BLOCK);
    let missing = (BLOCK - size % BLOCK) % BLOCK;
    let whole = if missing == 0 {
        x
    } else {
        let mut high = vec![Dim::ZERO; shape.rank()];
        if let Some(d) = high.get_mut(axis) {
            *d = missing.into();
        }
        b.pad(x, None, vec![Dim::ZERO; shape.rank()], high, PadMode::Constant)?
    };
    let padded = b.shape(whole)?;
    let mut split = padded.to_vec();
    split.splice(axis..axis + 1, [Dim::from((size + missing) / BLOCK), Dim::from(BLOCK)]);
    let blocks = b.reshape(whole, split)?;
    let most = greatest(b, blocks, &[axis + 1])?;
    // The scale's exponent is that of the greatest magnitude less that of the format's greatest number.
    let scale = leading_power(b, most, -format.largest_exponent())?;
    let mut q = ew(b, Elementwise::Binary(Binary::Div), &[blocks, scale])?;
    if let Some((fraction, least)) = format.coarser() {
        q = on_grid(b, q, format.largest(), fraction, least)?;
    }
    let q = ew(b, Elementwise::Convert { to: format.dtype(), saturate: true }, &[q])?;
    let q = b.convert(q, DType::F32)?;
    let y = b.mul(q, scale)?;
    let y = b.reshape(y, padded.to_vec())?;
    if missing == 0 {
        return Ok(y);
    }
    b.slice_axis(y, axis as i64, Dim::ZERO, Dim::from(size), 1)
}

/// The nearest number (of two, the even one) with so many bits of fraction, no greater than `largest`; steps below the power of two of exponent
/// `least` are as long as at it.
fn on_grid(b: &mut Builder, x: ValueId, largest: f64, fraction: i32, least: i32) -> Result<ValueId, IrError> {
    let (low, high) = (scalar(b, x, -largest)?, scalar(b, x, largest)?);
    let x = b.clamp(x, low, high)?;
    let magnitude = ew(b, Elementwise::Unary(Unary::Abs), &[x])?;
    let least = scalar(b, x, f64::from(least).exp2())?;
    let magnitude = ew(b, Elementwise::Binary(Binary::Max), &[magnitude, least])?;
    let step = leading_power(b, magnitude, -fraction)?;
    let steps = ew(b, Elementwise::Binary(Binary::Div), &[x, step])?;
    let steps = ew(b, Elementwise::Unary(Unary::RoundEven), &[steps])?;
    b.mul(steps, step)
}

/// The greatest power of two that is not above `x` (at least [`TINY`]), times two to the `exponent`.
///
/// With u half of f32's last place, q = φx for φ = 1 / 2u + 1, and q − (1 − u) q in f32 is that power (Rump, Ogita, Oishi). It is found
/// of x / 2²⁴, so that q does not overflow.
fn leading_power(b: &mut Builder, x: ValueId, exponent: i32) -> Result<ValueId, IrError> {
    let times = |b: &mut Builder, x: ValueId, by: f64| {
        let by = scalar(b, x, by)?;
        b.mul(x, by)
    };
    let small = times(b, x, (-24f64).exp2())?;
    let q = times(b, small, 23f64.exp2() + 1.0)?;
    let less = times(b, q, 1.0 - (-24f64).exp2())?;
    let power = b.sub(q, less)?;
    times(b, power, f64::from(24 + exponent).exp2())
}
