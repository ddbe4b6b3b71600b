//! How much arithmetic a kernel does, for reports.

use rlx_compile::lir::{DimId, Kernel, ScalarOp, ScalarProgram, View};
use rlx_ir::{DType, Dim, Shape, TensorType};

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
        Kernel::Library(l) => {
            // The op's declaration says; no op's work depends on dtypes.
            let ty = |v: &View| {
                let sizes = v.sizes.iter().map(|d| Dim::from(i64::try_from(size(d)).unwrap_or(i64::MAX)));
                TensorType::new(DType::F32, sizes.collect::<Shape>())
            };
            let types = |views: &[View]| views.iter().map(ty).collect::<Vec<_>>();
            let work = l.op.def().work(&types(&l.inputs), &types(&l.outputs));
            work.as_const().and_then(|w| u64::try_from(w).ok()).unwrap_or(0)
        }
        // What nested programs do is counted by their own kernels.
        Kernel::Branch(_) | Kernel::Loop(_) | Kernel::Scan(_) | Kernel::Call(_) => 0,
    }
}
