//! Contractions: batched matrix products with an epilogue.
//!
//! Floats of up to 32 bits go to packed products in f32 ([`float`]), f64 and integers to typed loops ([`typed`]), anything
//! else to loops over elements ([`generic`]).

mod float;
mod generic;
pub(crate) mod operand;
mod typed;

#[cfg(test)]
mod tests;

use crate::buffers::{BindCx, BindError, BoundAccess, RunCx, Sizes};
use crate::epilogue::{self, EpiloguePlan};
use crate::tile::code::Code;
use rlx_compile::lir::ContractKernel;
use rlx_ir::DType;

pub(crate) use generic::dot;

/// A contraction at concrete sizes.
#[derive(Debug)]
pub struct ContractPlan {
    batch: Sizes,
    m: Sizes,
    n: Sizes,
    k: Sizes,
    lhs: BoundAccess,
    rhs: BoundAccess,
    acc: DType,
    epilogue: EpiloguePlan,
    how: How,
}

#[derive(Debug)]
enum How {
    Nothing,
    Float(Box<float::Product>),
    Typed(Box<typed::Product>),
    Generic,
}

/// Plans a contraction.
pub fn plan(k: &ContractKernel, code: &Code, cx: &BindCx<'_>) -> Result<ContractPlan, BindError> {
    let (batch, m) = (cx.sizes(&k.batch)?, cx.sizes(&k.m)?);
    let (n, kk) = (cx.sizes(&k.n)?, cx.sizes(&k.k)?);
    let join = |parts: &[&Sizes]| parts.iter().flat_map(|p| p.iter().copied()).collect::<Sizes>();
    let lhs = cx.access(&k.lhs, &join(&[&batch, &m, &kk]))?;
    let rhs = cx.access(&k.rhs, &join(&[&batch, &n, &kk]))?;
    let out = join(&[&batch, &m, &n]);
    let order: Sizes = (0..out.len()).collect();
    let epilogue = epilogue::plan(&k.epilogue, code, &out, &order, batch.len() + m.len(), cx)?;
    let mut plan = ContractPlan { batch, m, n, k: kk, lhs, rhs, acc: k.acc, epilogue, how: How::Nothing };
    plan.how = if out.contains(&0) {
        How::Nothing
    } else if let Some(p) = float::plan(k, &plan, cx)? {
        How::Float(Box::new(p))
    } else if let Some(p) = typed::plan(&plan) {
        How::Typed(Box::new(p))
    } else {
        How::Generic
    };
    Ok(plan)
}

/// Runs a contraction.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &ContractPlan, code: &Code, run: &RunCx<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        match &p.how {
            How::Nothing => {}
            How::Float(f) => float::run(f, &p.epilogue, code, run),
            How::Typed(t) => typed::run(t, p, code, run),
            How::Generic => generic::run(p, code, run),
        }
    }
}
