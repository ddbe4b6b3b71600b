//! States that are written where they lie: a successor whose kernel comes after the last read of the old value, or replaces it element by
//! element or block by block, needs no memory of its own and no copy after the run.

use rlx_ir::Op;
use rlx_ir::ops::Indexing;

use crate::lir::{Access, BufId, Kernel, KernelNode, Lir, Storage};

use super::buffers::rename_reads_and_writes;

/// Lets successors lie in their states' memory where that changes nothing that is read later. Gives the states that are copied after each
/// run, and why.
pub(super) fn in_place(lir: &mut Lir) -> Vec<(usize, &'static str)> {
    let mut copied = Vec::new();
    for k in 0..lir.states.len() {
        let (state, next) = match candidate(lir, k) {
            Ok(found) => found,
            Err(why) => {
                copied.extend(why.map(|why| (k, why)));
                continue;
            }
        };
        let renamed: Vec<BufId> =
            (0..lir.buffers.len() as u32).map(|b| if BufId(b) == next { state } else { BufId(b) }).collect();
        lir.kernels.iter_mut().for_each(|k| rename_reads_and_writes(&mut k.kernel, &renamed));
        if let Some(port) = lir.states.get_mut(k) {
            port.next = Some(state);
        }
    }
    copied
}

/// The buffers of a state and of its successor, if the second may lie in the first; or why not, for a state that has one elsewhere.
fn candidate(lir: &Lir, k: usize) -> Result<(BufId, BufId), Option<&'static str>> {
    let port = lir.states.get(k).ok_or(None)?;
    let (state, next) = (port.buffer, port.next.ok_or(None)?);
    // What a state that grows becomes either lies behind it already, or may be of any length.
    if state == next || port.grows.is_some() {
        return Err(None);
    }
    let (Some(a), Some(b)) = (lir.buffers.get(state.index()), lir.buffers.get(next.index())) else { return Err(None) };
    let others = lir.states.iter().enumerate().filter(|(i, _)| *i != k);
    let shared = |b: BufId| lir.outputs.iter().any(|o| o.buffer == b);
    if shared(next) {
        return Err(Some("its next value is given out too"));
    }
    if shared(state) {
        return Err(Some("its old value is given out"));
    }
    if others.into_iter().any(|(_, s)| s.next == Some(state) || s.next == Some(next)) {
        return Err(Some("another state becomes what it is or was"));
    }
    if b.storage != Storage::Arena {
        return Err(Some("no kernel computes its next value"));
    }
    if a.dtype != b.dtype || a.shape != b.shape || a.order != b.order {
        return Err(Some("its next value is of other sizes"));
    }
    let writes = |k: &Kernel| k.writes().iter().any(|w| w.buffer == next);
    let first = lir.kernels.iter().position(|k| writes(&k.kernel)).ok_or(Some("no kernel computes its next value"))?;
    if lir.kernels.iter().skip(first + 1).any(|k| k.kernel.reads().iter().any(|r| r.buffer == state)) {
        return Err(Some("its old value is read after its next one is written"));
    }
    let Some(KernelNode { kernel, .. }) = lir.kernels.get(first) else { return Err(None) };
    let fits = match kernel.reads().iter().filter(|r| r.buffer == state).count() {
        0 => true,
        1 => replaces(kernel, state, next),
        _ => false,
    };
    if fits {
        Ok((state, next))
    } else {
        Err(Some("the kernel that computes its next value reads the old one elsewhere too"))
    }
}

/// True if a kernel that reads `from` once and writes `to` reads each element before it writes there, whatever the order of its work.
pub(super) fn replaces(kernel: &Kernel, from: BufId, to: BufId) -> bool {
    let same = |r: &Access, w: &Access| r.buffer == from && r.offset == w.offset && r.strides == w.strides;
    match kernel {
        Kernel::Map(m) => {
            let mut writes = m.writes.iter().filter(|w| w.buffer == to);
            match (writes.next(), writes.next()) {
                (Some(w), None) => m.reads.iter().any(|r| same(r, w)),
                _ => false,
            }
        }
        Kernel::Library(l) => match (&l.op, l.inputs.first(), l.outputs.first()) {
            (Op::Indexing(op), Some(x), Some(out)) => {
                let block = matches!(
                    op,
                    Indexing::DynamicUpdateSlice(_) | Indexing::ScatterElements(_) | Indexing::ScatterNd(_)
                );
                block && x.sizes == out.sizes && out.access.buffer == to && same(&x.access, &out.access)
            }
            _ => false,
        },
        _ => false,
    }
}
