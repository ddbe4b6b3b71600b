//! Losses.

use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::{OpEntry, op};

pub(super) const OPS: &[OpEntry] =
    &[op("NegativeLogLikelihoodLoss", 12, negative_log_likelihood), op("SoftmaxCrossEntropyLoss", 12, cross_entropy)];

/// How the losses of all elements become the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reduction {
    None,
    Sum,
    Mean,
}

const REDUCTIONS: &[(&str, Reduction)] =
    &[("none", Reduction::None), ("sum", Reduction::Sum), ("mean", Reduction::Mean)];

fn negative_log_likelihood(cx: &mut NodeCx<'_, '_>) -> Out {
    let log_probabilities = cx.input(0)?;
    Ok(vec![loss(cx, log_probabilities)?])
}

fn cross_entropy(cx: &mut NodeCx<'_, '_>) -> Out {
    let scores = cx.input(0)?;
    let log_probabilities = cx.b().log_softmax(scores, 1)?;
    Ok(vec![loss(cx, log_probabilities)?, log_probabilities])
}

/// Minus the log-probability of each target (axis 1 holds the classes), times the class's weight; targets to ignore weigh nothing.
fn loss(cx: &mut NodeCx<'_, '_>, x: ValueId) -> Result<ValueId, Failure> {
    let target = cx.input(1)?;
    let reduction = cx.word("reduction", "mean", REDUCTIONS)?;
    let mut target = cx.b().convert(target, DType::I64)?;
    let zero = cx.scalar_like(x, 0.0)?;
    let mut ignored = None;
    if let Some(index) = cx.opt_int("ignore_index")? {
        let index = cx.b().constant(rlx_ir::Tensor::scalar(index))?;
        let first = cx.scalar_like(target, 0.0)?;
        let b = cx.b();
        let skip = b.eq(target, index)?;
        target = b.select(skip, first, target)?;
        ignored = Some(skip);
    }
    let column = cx.b().expand_dims(target, &[1])?;
    let picked = cx.b().gather_elements(x, column, 1)?;
    let picked = cx.b().squeeze(picked, &[1])?;
    let dims = cx.shape(picked)?.into_dims();
    let mut weight = match cx.opt(2)? {
        Some(w) => cx.b().gather(w, target, 0)?,
        None => {
            let one = cx.scalar_like(x, 1.0)?;
            cx.b().broadcast_to(one, dims.clone())?
        }
    };
    if let Some(skip) = ignored {
        weight = cx.b().select(skip, zero, weight)?;
    }
    let b = cx.b();
    let weighted = b.mul(picked, weight)?;
    let each = b.neg(weighted)?;
    let axes: Vec<i64> = (0..dims.len() as i64).collect();
    let sum = |cx: &mut NodeCx<'_, '_>, v: ValueId| -> Result<ValueId, Failure> {
        // A rank-0 operand has no axis to reduce and is its own sum.
        Ok(cx.b().reduce(v, ReduceKind::Sum, &axes, false)?)
    };
    Ok(match reduction {
        Reduction::None => each,
        Reduction::Sum => sum(cx, each)?,
        Reduction::Mean => {
            let (total, weights) = (sum(cx, each)?, sum(cx, weight)?);
            cx.b().div(total, weights)?
        }
    })
}
