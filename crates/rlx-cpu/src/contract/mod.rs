//! Contractions: batched matrix products with an epilogue.
//!
//! Floats of up to 32 bits go to packed products in f32 ([`float`]), weights in the form in which they lie ([`kept`]);
//! 8-bit integers summed in i32 to those of [`integer`], f64 and other integers to typed loops ([`typed`]), anything else
//! to loops over elements ([`generic`]).

mod float;
mod generic;
pub(crate) mod integer;
pub(crate) mod kept;
pub(crate) mod operand;
mod typed;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_scaled;

use crate::buffers::{BindCx, BindError, BoundAccess, RunCx, Sizes};
use crate::epilogue::{self, Finish};
use crate::tile::code::Code;
use rlx_compile::lir::{Access, ContractKernel, Scaling};
use rlx_ir::DType;

pub(crate) use generic::dot;
pub use operand::layout;

/// A contraction at concrete sizes.
#[derive(Debug)]
pub struct ContractPlan {
    batch: Sizes,
    m: Sizes,
    n: Sizes,
    k: Sizes,
    lhs: BoundAccess,
    rhs: BoundAccess,
    /// Zero point and scale of the left operand, then of the right one.
    scaling: [[Option<BoundAccess>; 2]; 2],
    acc: DType,
    finish: Finish,
    how: How,
}

#[derive(Debug)]
enum How {
    Nothing,
    Float(Box<float::Product>),
    Integer(Box<float::Product>),
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
    let scaling = |s: &Scaling, space: &Sizes| {
        let bound = |a: &Option<Access>| a.as_ref().map(|a| cx.access(a, space)).transpose();
        Ok::<_, BindError>([bound(&s.zero)?, bound(&s.scale)?])
    };
    let scaling =
        [scaling(&k.lhs_scaling, &join(&[&batch, &m, &kk]))?, scaling(&k.rhs_scaling, &join(&[&batch, &n, &kk]))?];
    let out = join(&[&batch, &m, &n]);
    let row_axes = batch.len() + m.len();
    let finish = Finish::Nothing;
    let mut plan = ContractPlan { batch, m, n, k: kk, lhs, rhs, scaling, acc: k.acc, finish, how: How::Nothing };
    if out.contains(&0) {
        return Ok(plan);
    }
    if let Some((product, direct)) = float::plan(k, &plan, cx)? {
        let integers = !plan.acc.is_float();
        plan.how = if integers { How::Integer(Box::new(product)) } else { How::Float(Box::new(product)) };
        if let Some(finish) = direct {
            plan.finish = finish;
            return Ok(plan);
        }
    } else {
        let plain = plan.scaling.iter().flatten().all(Option::is_none);
        let typed = if plain { typed::plan(&plan) } else { None };
        plan.how = typed.map_or(How::Generic, |p| How::Typed(Box::new(p)));
    }
    let order: Sizes = (0..out.len()).collect();
    plan.finish = Finish::Program(Box::new(epilogue::plan(&k.epilogue, code, &out, &order, row_axes, cx)?));
    Ok(plan)
}

/// True if a run reads the right operand where it lies, and not only a kept form of it.
pub fn reads_right(p: &ContractPlan, run: &RunCx<'_>) -> bool {
    match &p.how {
        How::Nothing => false,
        How::Float(f) => float::reads_right(f, run),
        How::Integer(f) => integer::reads_right(f, run),
        How::Typed(_) | How::Generic => true,
    }
}

/// Makes the form of the right operand that runs keep, if there is one.
/// # Safety
/// `run` has the right operand's memory.
pub unsafe fn pack(p: &ContractPlan, run: &RunCx<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        match &p.how {
            How::Float(f) => float::pack(f, run),
            How::Integer(f) => integer::pack_kept(f, run),
            How::Nothing | How::Typed(_) | How::Generic => {}
        }
    }
}

/// Runs a contraction.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &ContractPlan, code: &Code, run: &RunCx<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        match &p.how {
            How::Nothing => {}
            How::Float(f) => float::run(f, &p.finish, code, run),
            How::Integer(f) => integer::run(f, &p.finish, code, run),
            How::Typed(t) => typed::run(t, p, code, run),
            How::Generic => generic::run(p, code, run),
        }
    }
}
