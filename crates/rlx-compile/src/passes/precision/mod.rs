//! Precision: which f32 values become 16-bit floats, as the policy of the options says. The same for graphs from every source.
//!
//! Each f32 value is *low* or not; what that means for its op stands in [`plan`]. Scalar functions, norms, softmax and reductions
//! compute in f32 whatever they read: their operands are widened as they are loaded and their results rounded as they are stored, by
//! casts that lowering puts into the kernels around. Products take low operands and accumulate in f32. A value that is not stored, because the
//! only op that reads it runs in the same kernel, is not rounded.
//!
//! The boundary keeps its dtypes: inputs, outputs, parameters, states and what loops carry are f32 outside, and cast inside. A cast of a
//! parameter is prepared once. Captures of nested graphs are handed in as they are kept.
//!
//! A target that does not claim the dtype gets the graph as it is; the session's report says so.

mod emit;
mod plan;

use rlx_ir::{Graph, IrError, Module};

use crate::options::{MatmulPrecision, Precision, PrecisionPolicy};
use crate::pass::{Pass, PassCx, PassError, Phase};

/// The pass.
pub const PASS: Pass =
    Pass { name: "precision", phase: Phase::Transform, summary: "gives ops the precision that the policy says", run };

fn run(m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    let m = by_policy(&m, &cx.options.effective_policy(), cx)?;
    Ok(match cx.options.matmul_precision {
        // Operands of what is left in f32 are rounded to bf16; sums and results are f32.
        MatmulPrecision::Medium => by_policy(&m, &PrecisionPolicy::ConservativeMixed(Precision::BF16), cx)?,
        MatmulPrecision::High | MatmulPrecision::Highest => m,
    })
}

fn by_policy(m: &Module, policy: &PrecisionPolicy, cx: &PassCx<'_>) -> Result<Module, IrError> {
    let Some(low) = policy.low().map(|p| p.dtype()) else { return Ok(m.clone()) };
    if cx.claims.is_some_and(|c| !c.dtypes.contains(&low)) {
        return Ok(m.clone());
    }
    let with = emit::With { policy, low, cx };
    let whole = |g: &Graph| with.graph(g, &|_| plan::Form::Wide);
    let functions = m.functions.iter().map(|(n, g)| Ok((n.clone(), whole(g)?))).collect::<Result<_, IrError>>()?;
    Ok(Module { main: whole(&m.main)?, functions, stage: m.stage.clone() })
}
