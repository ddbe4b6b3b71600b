//! What follows a convolution per channel goes into its weights and bias: batch normalisation, a scale, a bias.
//!
//! Only where the convolution has no other reader (it would be computed twice) and the factors depend on parameters only, so that the new
//! weights are the work of *prepare*.

use rlx_ir::ops::Contraction;
use rlx_ir::ops::contraction::{Conv, ConvTranspose};
use rlx_ir::ops::elementwise::Binary;
use rlx_ir::ops::{Neural, ShapeOp};
use rlx_ir::{Dim, IrError, Op, ValueId};

use super::{Found, Recogniser};

/// A convolution whose weights may change.
struct Convolution {
    op: Op,
    has_bias: bool,
    operands: Vec<ValueId>,
    /// The shape that lies along the output channels of the weights.
    along_weights: Vec<Dim>,
}

impl Convolution {
    /// The convolution that a value is, if its weights may change; or why they may not.
    fn of(r: &Recogniser<'_>, v: ValueId) -> Result<Self, &'static str> {
        const NONE: &str = "it is no convolution";
        let l = r.look();
        let (op, operands) = l.op(v).ok_or(NONE)?;
        let &[_, w, ..] = operands else { return Err(NONE) };
        let (weights, channels) = l.shape(w).zip(l.shape(v).and_then(|s| s.get(1)).cloned()).ok_or(NONE)?;
        let mut along_weights = vec![Dim::ONE; weights.rank()];
        let (has_bias, axis) = match op {
            Op::Contraction(Contraction::Conv(c)) => (c.has_bias, 0),
            // Output channels of a group lie on the second axis; with several groups they lie on two.
            Op::Contraction(Contraction::ConvTranspose(c)) if c.groups == 1 => (c.has_bias, 1),
            Op::Contraction(Contraction::ConvTranspose(_)) => return Err("it is a transposed convolution in groups"),
            _ => return Err(NONE),
        };
        *along_weights.get_mut(axis).ok_or(NONE)? = channels;
        if !r.used_once(v) {
            return Err("the convolution has two users");
        }
        if !r.is_invariant(w) || operands.get(2).is_some_and(|&b| !r.is_invariant(b)) {
            return Err("its weights depend on more than parameters");
        }
        Ok(Convolution { op: op.clone(), has_bias, operands: operands.to_vec(), along_weights })
    }

    /// True if a value is a convolution.
    fn is(r: &Recogniser<'_>, v: ValueId) -> bool {
        let op = r.look().op(v).map(|(op, _)| op);
        matches!(op, Some(Op::Contraction(Contraction::Conv(_) | Contraction::ConvTranspose(_))))
    }

    fn bias(&self) -> Option<ValueId> {
        self.operands.get(2).copied().filter(|_| self.has_bias)
    }

    /// The same convolution with other weights and bias.
    fn with(&self, r: &mut Recogniser<'_>, weights: ValueId, bias: Option<ValueId>) -> Found {
        let has_bias = bias.is_some();
        let op: Op = match &self.op {
            Op::Contraction(Contraction::Conv(c)) => Conv { has_bias, ..c.clone() }.into(),
            Op::Contraction(Contraction::ConvTranspose(c)) => ConvTranspose { has_bias, ..c.clone() }.into(),
            _ => return Ok(None),
        };
        let x = self.operands.first().copied();
        let operands: Vec<ValueId> = [x, Some(weights), bias].into_iter().flatten().collect();
        r.rw.b.op1(op, &operands).map(Some)
    }

    /// Weights and bias times a factor per output channel.
    fn scaled(&self, r: &mut Recogniser<'_>, factor: ValueId) -> Result<(ValueId, Option<ValueId>), IrError> {
        let spread = r.rw.b.reshape(factor, self.along_weights.clone())?;
        let weights = self.operands.get(1).copied().unwrap_or(factor);
        let weights = r.rw.b.mul(weights, spread)?;
        Ok((weights, self.bias().map(|b| r.rw.b.mul(b, factor)).transpose()?))
    }
}

/// A value that depends on parameters only and is one number per channel (axis 1) of `of`, or one for all, as `[channels]`.
fn per_channel(r: &mut Recogniser<'_>, v: ValueId, of: ValueId) -> Found {
    let l = r.look();
    let (Some(s), Some(full)) = (l.shape(v), l.shape(of)) else { return Ok(None) };
    if !r.is_invariant(v) && l.number(v).is_none() || s.rank() > full.rank() {
        return Ok(None);
    }
    let missing = full.rank() - s.rank();
    let on_channels = |(i, d): (usize, &Dim)| *d == Dim::ONE || (i + missing == 1 && Some(d) == full.get(1));
    if !s.iter().enumerate().all(on_channels) {
        return Ok(None);
    }
    let Some(channels) = full.get(1).cloned() else { return Ok(None) };
    let is_one = s.iter().all(|d| *d == Dim::ONE);
    if !is_one {
        return r.rw.b.reshape(v, [channels]).map(Some);
    }
    let scalar = match l.op(v) {
        Some((Op::ShapeOp(ShapeOp::Constant(_)), _)) if s.is_empty() => v,
        _ => r.rw.b.reshape(v, [1])?,
    };
    r.rw.b.broadcast_to(scalar, [channels]).map(Some)
}

/// Batch normalisation of a convolution.
pub fn batch_norm(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let (eps, operands) = match r.look().op(v) {
        Some((Op::Neural(Neural::BatchNorm(n)), operands)) => (n.eps.get(), operands.to_vec()),
        _ => return Ok(None),
    };
    let &[x, scale, bias, mean, variance] = &operands[..] else { return Ok(None) };
    if !Convolution::is(r, x) {
        return Ok(None);
    }
    if ![scale, bias, mean, variance].iter().all(|&p| r.is_invariant(p)) {
        return r.nearly("its statistics depend on more than parameters");
    }
    let conv = match Convolution::of(r, x) {
        Ok(conv) => conv,
        Err(why) => return r.nearly(why),
    };
    let b = &mut r.rw.b;
    let eps = b.scalar_like(variance, eps)?;
    let deviation = b.add(variance, eps)?;
    let deviation = b.sqrt(deviation)?;
    let factor = b.div(scale, deviation)?;
    let (weights, scaled) = conv.scaled(r, factor)?;
    let b = &mut r.rw.b;
    let shift = b.mul(mean, factor)?;
    let shift = b.sub(bias, shift)?;
    let bias = match scaled {
        Some(s) => b.add(s, shift)?,
        None => shift,
    };
    conv.with(r, weights, Some(bias))
}

/// Of pairs of values, a convolution that can be made anew with the numbers, one for each channel, that stand beside it.
fn beside_numbers(
    r: &mut Recogniser<'_>,
    pairs: Vec<(ValueId, ValueId)>,
) -> Result<Option<(Convolution, ValueId, ValueId)>, IrError> {
    for (x, number) in pairs {
        if !Convolution::is(r, x) {
            continue;
        }
        let fixed = r.is_invariant(number) || r.look().number(number).is_some();
        let Some(number) = per_channel(r, number, x)? else {
            // Any other sum or product is an epilogue's.
            r.why = fixed.then_some("it is not one number for each channel").or(r.why);
            continue;
        };
        match Convolution::of(r, x) {
            Ok(conv) => return Ok(Some((conv, x, number))),
            Err(why) => r.why = Some(why),
        }
    }
    Ok(None)
}

/// A convolution times, or divided by, a number per channel.
pub fn scale(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let divided = l.binary(v, Binary::Div);
    let pairs: Vec<_> = divided.into_iter().chain(l.either(v, Binary::Mul)).collect();
    let Some((conv, _, factor)) = beside_numbers(r, pairs)? else { return Ok(None) };
    let factor = if divided.is_some() { r.rw.b.reciprocal(factor)? } else { factor };
    let (weights, bias) = conv.scaled(r, factor)?;
    conv.with(r, weights, bias)
}

/// A convolution plus, or minus, a number per channel.
pub fn bias(r: &mut Recogniser<'_>, v: ValueId) -> Found {
    let l = r.look();
    let difference = l.binary(v, Binary::Sub);
    let pairs: Vec<_> = difference.into_iter().chain(l.either(v, Binary::Add)).collect();
    let Some((conv, x, shift)) = beside_numbers(r, pairs)? else { return Ok(None) };
    let b = &mut r.rw.b;
    let shift = if difference.is_some() { b.neg(shift)? } else { shift };
    let bias = match conv.bias() {
        Some(old) => b.add(old, shift)?,
        None => shift,
    };
    let weights = conv.operands.get(1).copied().unwrap_or(x);
    conv.with(r, weights, Some(bias))
}
