//! Scaled dot-product attention.
//!
//! Floats of up to 32 bits go block by block ([`float`]), anything else row by row ([`generic`]).

mod float;
mod generic;

#[cfg(test)]
mod tests;

use crate::buffers::{BindCx, BindError, BoundAccess, RunCx};
use rlx_compile::lir::AttentionKernel;

/// An attention at concrete sizes.
#[derive(Debug)]
pub struct AttentionPlan {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    queries: usize,
    keys: usize,
    head_dim: usize,
    value_dim: usize,
    q: BoundAccess,
    k: BoundAccess,
    v: BoundAccess,
    out: BoundAccess,
    mask: Option<(bool, BoundAccess)>,
    scale: f64,
    causal: bool,
    window: Option<i64>,
    softcap: Option<f64>,
}

/// Plans an attention.
pub fn plan(k: &AttentionKernel, cx: &BindCx<'_>) -> Result<AttentionPlan, BindError> {
    let s = |d| cx.size(d);
    let (batch, heads, kv_heads) = (s(k.batch)?, s(k.heads)?, s(k.kv_heads)?);
    let (queries, keys) = (s(k.queries)?, s(k.keys)?);
    let (head_dim, value_dim) = (s(k.head_dim)?, s(k.value_dim)?);
    if kv_heads == 0 && heads > 0 || kv_heads > 0 && heads % kv_heads != 0 {
        return Err(format!("{heads} query heads do not divide into groups of {kv_heads} key heads"));
    }
    let mask = match &k.mask {
        Some(m) => Some((m.boolean, cx.access(&m.access, &[batch, heads, queries, keys])?)),
        None => None,
    };
    Ok(AttentionPlan {
        batch,
        heads,
        kv_heads,
        queries,
        keys,
        head_dim,
        value_dim,
        q: cx.access(&k.q, &[batch, heads, queries, head_dim])?,
        k: cx.access(&k.k, &[batch, kv_heads, keys, head_dim])?,
        v: cx.access(&k.v, &[batch, kv_heads, keys, value_dim])?,
        out: cx.access(&k.out, &[batch, heads, queries, value_dim])?,
        mask,
        scale: k.scale.get(),
        causal: k.causal,
        window: k.window,
        softcap: k.softcap.map(|c| c.get()),
    })
}

impl AttentionPlan {
    /// Whether a query may be unable to see some key.
    fn can_hide(&self) -> bool {
        self.mask.is_some() || self.causal || self.window.is_some()
    }
}

/// Runs an attention.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &AttentionPlan, run: &RunCx<'_>) {
    if p.batch * p.heads * p.queries * p.value_dim == 0 {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { if float::takes(p) { float::run(p, run) } else { generic::run(p, run) } }
}
