//! Pooling: reductions over sliding windows.
//!
//! f32 runs in vectors ([`float`]), other dtypes element by element ([`generic`]).

mod float;
mod generic;

#[cfg(test)]
mod tests;

use crate::buffers::{BindCx, BindError, BoundAccess, RunCx, Sizes};
use rlx_compile::lir::WindowKernel;
use rlx_ir::ops::reduction::WindowKind;

/// A pooling kernel at concrete sizes.
#[derive(Debug)]
pub struct WindowPlan {
    kind: WindowKind,
    outer: Sizes,
    in_spatial: Sizes,
    out_spatial: Sizes,
    window: Sizes,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    pad_low: Vec<i64>,
    pad_high: Vec<i64>,
    count_include_pad: bool,
    input: BoundAccess,
    output: BoundAccess,
    float: Option<float::Pooling>,
}

/// Plans a pooling kernel.
pub fn plan(k: &WindowKernel, cx: &BindCx<'_>) -> Result<WindowPlan, BindError> {
    let (outer, in_spatial, out_spatial) = (cx.sizes(&k.outer)?, cx.sizes(&k.in_spatial)?, cx.sizes(&k.out_spatial)?);
    let window = k.window.iter().map(|&w| usize::try_from(w)).collect::<Result<Sizes, _>>();
    let window = window.map_err(|_| format!("a window of sizes {:?}", k.window))?;
    let rank = window.len();
    let ranks =
        [in_spatial.len(), out_spatial.len(), k.strides.len(), k.dilations.len(), k.pad_low.len(), k.pad_high.len()];
    if ranks != [rank; 6] {
        return Err("a window's spatial attributes differ in rank".into());
    }
    let space = |tail: &Sizes| outer.iter().chain(tail).copied().collect::<Sizes>();
    let input = cx.access(&k.input, &space(&in_spatial))?;
    let output = cx.access(&k.output, &space(&out_spatial))?;
    if k.strides.iter().chain(&k.dilations).any(|&s| s < 1) {
        return Err(format!("a window with strides {:?} and dilations {:?}", k.strides, k.dilations));
    }
    let mut plan = WindowPlan {
        kind: k.kind,
        input,
        output,
        outer,
        in_spatial,
        out_spatial,
        window,
        strides: k.strides.clone(),
        dilations: k.dilations.clone(),
        pad_low: k.pad_low.iter().map(|&d| cx.value(d)).collect(),
        pad_high: k.pad_high.iter().map(|&d| cx.value(d)).collect(),
        count_include_pad: k.count_include_pad,
        float: None,
    };
    plan.float = float::plan(&plan);
    Ok(plan)
}

/// Runs a pooling kernel.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &WindowPlan, run: &RunCx<'_>) {
    if p.outer.iter().chain(&p.out_spatial).any(|&n| n == 0) {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        match &p.float {
            Some(f) => float::run(f, p, run),
            None => generic::run(p, run),
        }
    }
}
