//! How much arithmetic a kernel does, for reports.

use rlx_compile::lir::{DimId, Kernel, ScalarOp, ScalarProgram};

/// Arithmetic operations of a kernel at these sizes; a multiply-add counts as two.
pub fn operations(kernel: &Kernel, dims: &[i64]) -> u64 {
    let size = |d: &DimId| dims.get(d.index()).and_then(|&v| u64::try_from(v).ok()).unwrap_or(0);
    let points = |list: &[DimId]| list.iter().map(size).fold(1u64, u64::saturating_mul);
    let steps = |p: &ScalarProgram| {
        p.insts.iter().filter(|i| matches!(i.op, ScalarOp::Apply(_) | ScalarOp::Reduce(_))).count() as u64
    };
    match kernel {
        Kernel::Map(m) => points(&m.space).saturating_mul(steps(&m.program)),
        Kernel::Row(r) => points(&r.outer).saturating_mul(points(&r.reduced)).saturating_mul(steps(&r.program)),
        Kernel::Contract(c) => {
            let out = points(&c.batch).saturating_mul(points(&c.m)).saturating_mul(points(&c.n));
            out.saturating_mul(2 * points(&c.k) + steps(&c.epilogue.program))
        }
        Kernel::Conv(c) => {
            let channels = size(if c.transposed { &c.out_channels } else { &c.in_channels });
            let other = size(if c.transposed { &c.in_channels } else { &c.out_channels });
            let at = points(if c.transposed { &c.in_spatial } else { &c.out_spatial });
            let taps = points(&c.window).saturating_mul(channels / (c.groups.max(1) as u64));
            let out = size(&c.batch).saturating_mul(other).saturating_mul(at);
            out.saturating_mul(2 * taps + steps(&c.epilogue.program))
        }
        Kernel::Window(w) => {
            let taps: u64 = w.window.iter().map(|&n| u64::try_from(n).unwrap_or(0)).product();
            points(&w.outer).saturating_mul(points(&w.out_spatial)).saturating_mul(taps)
        }
        Kernel::Attention(a) => {
            let pairs = [a.batch, a.heads, a.queries, a.keys];
            points(&pairs).saturating_mul(2 * (size(&a.head_dim) + size(&a.value_dim)) + 4)
        }
        _ => 0,
    }
}
