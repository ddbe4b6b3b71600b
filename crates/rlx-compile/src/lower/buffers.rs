//! Buffers of a finished program: which are touched when, which maps write where they read, and where the kernels are cut.

use std::collections::HashSet;

use rlx_ir::Loc;

use crate::error::CompileError;
use crate::lir::{Access, BufId, Kernel, Lir, Segment, StatePort, Storage};

use super::emit::Emitter;

/// First and last kernel that touch each buffer.
pub(super) fn touches(lir: &Lir) -> Vec<Option<(u32, u32)>> {
    let mut live: Vec<Option<(u32, u32)>> = vec![None; lir.buffers.len()];
    for (i, k) in lir.kernels.iter().enumerate() {
        let i = i as u32;
        for a in k.kernel.reads().into_iter().chain(k.kernel.writes()) {
            if let Some(slot) = live.get_mut(a.buffer.index()) {
                *slot = Some(slot.map_or((i, i), |(first, _)| (first, i)));
            }
        }
    }
    live
}

/// Completes a program whose kernels are all there.
pub(super) fn finish(mut e: Emitter<'_>) -> Result<Lir, CompileError> {
    e.lir.constraints = e.p.graph.constraints().to_vec();
    e.lir.bounds = e.p.graph.bounds().clone();
    let mut lir = e.lir;
    segments(&mut lir, &e.defines);
    let kept: HashSet<BufId> =
        lir.outputs.iter().map(|o| o.buffer).chain(lir.states.iter().filter_map(|s| s.next)).collect();
    let copied = if e.claims.in_place {
        in_place(&mut lir, &kept);
        super::states::in_place(&mut lir)
    } else {
        let elsewhere = |s: &StatePort| s.next.is_some_and(|n| n != s.buffer);
        let moves = lir.states.iter().enumerate().filter(|(_, s)| elsewhere(s));
        moves.map(|(k, _)| (k, "the target writes nothing where it lies")).collect()
    };
    for (k, why) in copied {
        // Of those that grow it was said before.
        if let Some(s) = lir.states.get(k).filter(|s| s.grows.is_none()) {
            let loc = e.p.graph.states().get(k).and_then(|s| e.p.graph.def_node(s.next?)).map(|(_, n)| n.loc.clone());
            e.p.missed(&loc.unwrap_or_else(Loc::none), format!("state `{}` is copied after each run: {why}", s.name));
        }
    }
    compact(&mut lir);
    let end = lir.kernels.len().saturating_sub(1) as u32;
    let kept: HashSet<BufId> =
        lir.outputs.iter().map(|o| o.buffer).chain(lir.states.iter().filter_map(|s| s.next)).collect();
    for (i, t) in touches(&lir).into_iter().enumerate() {
        let b = &mut lir.buffers[i];
        b.live = match (&b.storage, t) {
            (Storage::Arena, Some((first, last))) => {
                // What outlives the kernels must stay to the end.
                Some((first, if kept.contains(&BufId(i as u32)) { end } else { last }))
            }
            _ => None,
        };
    }
    Ok(lir)
}

fn segments(lir: &mut Lir, defines: &[(u32, Vec<rlx_ir::Symbol>)]) {
    let mut start = 0;
    for (last, symbols) in defines {
        let end = last + 1;
        lir.segments.push(Segment { kernels: start..end, defines: symbols.clone() });
        start = end;
    }
    let end = lir.kernels.len() as u32;
    if start < end || lir.segments.is_empty() {
        lir.segments.push(Segment { kernels: start..end, defines: Vec::new() });
    }
}

/// Lets maps write to the memory of an operand that they are the last to read.
fn in_place(lir: &mut Lir, kept: &HashSet<BufId>) {
    let live = touches(lir);
    let mut renamed: Vec<BufId> = (0..lir.buffers.len() as u32).map(BufId).collect();
    // A buffer's last use, its tenants' included.
    let mut last: Vec<u32> = live.iter().map(|l| l.map_or(0, |l| l.1)).collect();
    for i in 0..lir.kernels.len() {
        rename_reads_and_writes(&mut lir.kernels[i].kernel, &renamed);
        let Kernel::Map(map) = &lir.kernels[i].kernel else { continue };
        let mut taken: Vec<BufId> = Vec::new();
        let mut found: Vec<(BufId, BufId)> = Vec::new();
        for w in &map.writes {
            let own = live[w.buffer.index()].is_some_and(|l| l.0 == i as u32)
                && lir.buffers[w.buffer.index()].storage == Storage::Arena
                && !kept.contains(&w.buffer)
                && map.writes.iter().filter(|x| x.buffer == w.buffer).count() == 1;
            if !own || renamed[w.buffer.index()] != w.buffer {
                continue;
            }
            let fits = |r: &&Access| {
                let (a, b) = (&lir.buffers[r.buffer.index()], &lir.buffers[w.buffer.index()]);
                a.storage == Storage::Arena
                    && r.buffer != w.buffer
                    && !kept.contains(&r.buffer)
                    && !taken.contains(&r.buffer)
                    && last[r.buffer.index()] == i as u32
                    && a.dtype == b.dtype
                    && a.numel == b.numel
                    && r.offset == w.offset
                    && r.strides == w.strides
                    && map.reads.iter().filter(|x| x.buffer == r.buffer).count() == 1
                    && map.writes.iter().all(|x| x.buffer != r.buffer)
            };
            if let Some(r) = map.reads.iter().find(fits) {
                taken.push(r.buffer);
                found.push((w.buffer, r.buffer));
            }
        }
        for (w, r) in found {
            last[r.index()] = last[w.index()];
            renamed[w.index()] = r;
            // Later tenants of w move along.
            rename_reads_and_writes(&mut lir.kernels[i].kernel, &renamed);
        }
    }
}

/// Replaces buffers of a kernel.
pub(super) fn rename_reads_and_writes(k: &mut Kernel, renamed: &[BufId]) {
    for a in k.accesses_mut() {
        if let Some(&to) = renamed.get(a.buffer.index()) {
            a.buffer = to;
        }
    }
}

/// Drops buffers that nothing names.
fn compact(lir: &mut Lir) {
    let mut used: Vec<bool> = touches(lir).iter().map(Option::is_some).collect();
    let mut mark = |b: BufId| {
        if let Some(u) = used.get_mut(b.index()) {
            *u = true;
        }
    };
    lir.inputs.iter().chain(&lir.outputs).for_each(|p| mark(p.buffer));
    lir.params.iter().for_each(|p| mark(p.buffer));
    lir.states.iter().for_each(|s| {
        mark(s.buffer);
        s.next.into_iter().for_each(&mut mark);
    });
    let mut renamed = Vec::with_capacity(used.len());
    let mut n = 0;
    for &u in &used {
        renamed.push(BufId(n));
        n += u32::from(u);
    }
    let mut keep = used.iter();
    lir.buffers.retain(|_| keep.next().copied().unwrap_or(false));
    let to = |b: &mut BufId| *b = renamed.get(b.index()).copied().unwrap_or(*b);
    lir.inputs.iter_mut().chain(&mut lir.outputs).for_each(|p| to(&mut p.buffer));
    lir.params.iter_mut().for_each(|p| to(&mut p.buffer));
    for s in &mut lir.states {
        to(&mut s.buffer);
        s.next.iter_mut().for_each(to);
    }
    for k in &mut lir.kernels {
        rename_reads_and_writes(&mut k.kernel, &renamed);
    }
}
