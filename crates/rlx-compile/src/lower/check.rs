//! An independent check of a finished program: it knows nothing of how the program was made.
//!
//! 1. Every buffer and dim that is named exists, lists are as long as they must be, ports and buffers agree on what a buffer is, and the
//!    segments cut the kernels without gap ([`structure`]).
//! 2. What a kernel reads was written before, or is there from the start; what is there from the start is never written, but for states
//!    that are their own successors.
//! 3. A kernel that writes a buffer that it reads is a map that walks both alike, or replaces a block of it.
//! 4. The live interval of every arena buffer covers all kernels that touch it, and the end of the program if it outlives it.
//! 5. For sample sizes, every access stays inside its buffer, no kernel writes an element twice, and of a state that grows in place none
//!    writes what was there before.
//! 6. Outputs and successors of states are written, and lie dense; the axis on which a state grows in place is the outermost in memory.
//!
//! [`sound`] leaves out the fifth, which evaluates sizes: backends check at bind that accesses stay inside. It is for programs from files.

use std::collections::{BTreeSet, HashSet};

use rlx_ir::{DimBinding, Symbol};

use super::structure;
use crate::lir::{Access, BufId, DimId, Kernel, Lir, StatePort, Storage};

/// Checks a program and those nested in it; every fault is listed.
pub fn check(lir: &Lir) -> Result<(), Vec<String>> {
    let mut faults = Vec::new();
    check_into(lir, false, Some(&BTreeSet::new()), &mut faults);
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Checks a program and those nested in it as far as no size has to be known.
pub fn sound(lir: &Lir) -> Result<(), Vec<String>> {
    let mut faults = Vec::new();
    check_into(lir, false, None, &mut faults);
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Checks a planned arena: `(buffer, offset, length)`, in bytes. Buffers that are live at the same time must not overlap.
pub fn check_offsets(lir: &Lir, planned: &[(BufId, usize, usize)]) -> Result<(), Vec<String>> {
    let live = intervals(lir);
    let mut faults = Vec::new();
    for (i, &(a, at, len)) in planned.iter().enumerate() {
        for &(b, from, n) in &planned[i + 1..] {
            let bytes = at < from.saturating_add(n) && from < at.saturating_add(len) && len > 0 && n > 0;
            let (Some(Some(x)), Some(Some(y))) = (live.get(a.index()), live.get(b.index())) else { continue };
            if bytes && x.0 <= y.1 && y.0 <= x.1 {
                faults.push(format!(
                    "b{} at {at}+{len} (live {}..={}) overlaps b{} at {from}+{n} (live {}..={})",
                    a.0, x.0, x.1, b.0, y.0, y.1
                ));
            }
        }
    }
    let named: HashSet<BufId> = planned.iter().map(|p| p.0).collect();
    for (i, b) in lir.buffers.iter().enumerate() {
        let id = BufId(i as u32);
        if b.storage == Storage::Arena && live[i].is_some() && !named.contains(&id) {
            faults.push(format!("b{i} is touched but has no place in the arena"));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// For each buffer, from its first to its last touch, or to the end if the program gives it out.
fn intervals(lir: &Lir) -> Vec<Option<(usize, usize)>> {
    let mut live: Vec<Option<(usize, usize)>> = vec![None; lir.buffers.len()];
    let mut touch = |b: BufId, at: usize| {
        if let Some(l) = live.get_mut(b.index()) {
            *l = Some(l.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
        }
    };
    for (i, k) in lir.kernels.iter().enumerate() {
        for a in k.kernel.reads().into_iter().chain(k.kernel.writes()) {
            touch(a.buffer, i);
        }
    }
    let end = lir.kernels.len().saturating_sub(1);
    for b in given_out(lir) {
        touch(b, end);
    }
    live
}

fn given_out(lir: &Lir) -> impl Iterator<Item = BufId> + '_ {
    lir.outputs.iter().map(|o| o.buffer).chain(lir.states.iter().filter_map(|s| s.next))
}

/// `outer` are the symbols of the surrounding programs, if sizes are to be tried.
fn check_into(lir: &Lir, nested: bool, outer: Option<&BTreeSet<Symbol>>, faults: &mut Vec<String>) {
    let before = faults.len();
    structure::check(lir, nested, faults);
    if faults.len() > before {
        // What follows looks up buffers and dims.
        return;
    }
    order(lir, faults);
    lives(lir, faults);
    let symbols = outer.map(|outer| {
        let mut symbols = outer.clone();
        lir.dims.dims().iter().for_each(|d| symbols.extend(d.symbols()));
        symbols
    });
    for binding in symbols.iter().flat_map(|s| samples(lir, s)) {
        bounds(lir, &binding, faults);
        if faults.len() > before + 20 {
            return;
        }
    }
    for k in &lir.kernels {
        for sub in k.kernel.nested() {
            check_into(&sub.program, true, symbols.as_ref(), faults);
        }
    }
}

fn order(lir: &Lir, faults: &mut Vec<String>) {
    let there = |s: &Storage| !matches!(s, Storage::Output(_) | Storage::Arena);
    let mut written: Vec<bool> = lir.buffers.iter().map(|b| there(&b.storage)).collect();
    for (i, k) in lir.kernels.iter().enumerate() {
        let (reads, writes) = (k.kernel.reads(), k.kernel.writes());
        for r in &reads {
            if !written[r.buffer.index()] {
                faults.push(format!("kernel {i} ({}) reads b{}, which nothing wrote", k.kernel.kind(), r.buffer.0));
            }
        }
        for w in &writes {
            let replaced = lir.states.iter().any(|s| s.buffer == w.buffer && s.next == Some(w.buffer));
            if there(&lir.buffer(w.buffer).storage) && !replaced {
                faults.push(format!("kernel {i} ({}) writes b{}, which is read only", k.kernel.kind(), w.buffer.0));
            }
            let alike = matches!(k.kernel, Kernel::Map(_));
            let once = reads.iter().filter(|r| r.buffer == w.buffer).count() == 1;
            let block = once && super::states::replaces(&k.kernel, w.buffer, w.buffer);
            // Of a state that grows, kernels read what is there and write behind it: see [`bounds`].
            let behind = lir.states.iter().any(|s| s.buffer == w.buffer && s.grows_in_place().is_some());
            if reads.iter().any(|r| r.buffer == w.buffer && !(alike && r == w)) && !block && !behind {
                faults.push(format!("kernel {i} ({}) writes b{} where it reads it", k.kernel.kind(), w.buffer.0));
            }
            written[w.buffer.index()] = true;
        }
    }
    for b in given_out(lir) {
        if !written[b.index()] {
            faults.push(format!("b{} is given out, but nothing wrote it", b.0));
        }
        let grows = |s: &&StatePort| s.buffer == b && s.grows_in_place().is_some();
        let order = &lir.buffer(b).order;
        match lir.states.iter().find(grows) {
            Some(s) => {
                let axis = s.grows_in_place();
                let inner = (0..order.len()).filter(|&a| Some(a) != axis);
                if order.iter().copied().ne(axis.into_iter().chain(inner)) {
                    faults.push(format!("state `{}` grows in b{}, but not on its outermost axis", s.name, b.0));
                }
                if lir.outputs.iter().any(|o| o.buffer == b) && order.iter().copied().ne(0..order.len()) {
                    faults.push(format!("b{} is given out, but is not row-major", b.0));
                }
            }
            None if order.iter().copied().ne(0..order.len()) => {
                faults.push(format!("b{} is given out, but is not row-major", b.0));
            }
            None => {}
        }
    }
}

fn lives(lir: &Lir, faults: &mut Vec<String>) {
    for (i, (b, want)) in lir.buffers.iter().zip(intervals(lir)).enumerate() {
        if b.storage != Storage::Arena {
            continue;
        }
        match (b.live, want) {
            (_, None) => {}
            (Some((first, last)), Some((x, y))) if first as usize <= x && y <= last as usize => {}
            (live, Some((x, y))) => {
                faults.push(format!("b{i} is touched from {x} to {y}, but its interval is {live:?}"));
            }
        }
    }
}

/// Bindings at odd sizes that the constraints allow.
fn samples(lir: &Lir, symbols: &BTreeSet<Symbol>) -> Vec<DimBinding> {
    const SIZES: [i64; 8] = [1, 2, 3, 0, 5, 7, 4, 11];
    let mut out = Vec::new();
    let rounds = if symbols.is_empty() { 1 } else { 2 * SIZES.len() };
    for round in 0..rounds {
        let binding: DimBinding = symbols
            .iter()
            .enumerate()
            .map(|(i, s)| {
                // First all alike, then each its own.
                let n = if round < SIZES.len() { SIZES[round] } else { SIZES[(round + 3 * i) % SIZES.len()] };
                let (lo, hi) = lir.bounds.get(s);
                (s.clone(), n.max(lo).min(hi.unwrap_or(i64::MAX)))
            })
            .collect();
        let allowed = lir.constraints.iter().all(|c| c.check(&binding).is_ok());
        let sizes = |d: DimId| lir.dims.get(d).eval(&binding).is_ok_and(|v| v >= 0);
        if allowed && lir.buffers.iter().all(|b| b.shape.iter().all(|&d| sizes(d))) {
            out.push(binding);
        }
    }
    out
}

/// One access with the sizes that it is walked over.
struct Walked<'a> {
    access: &'a Access,
    sizes: Vec<i64>,
    write: bool,
}

fn bounds(lir: &Lir, binding: &DimBinding, faults: &mut Vec<String>) {
    let size = |d: DimId| lir.dims.get(d).eval(binding).ok();
    for (i, k) in lir.kernels.iter().enumerate() {
        let Some(walks) = walked(&k.kernel, &size) else { continue };
        let mut seen: HashSet<(BufId, i64)> = HashSet::new();
        for w in walks {
            let fault = |why: String| {
                let sizes: Vec<String> = binding.iter().map(|(s, v)| format!("{s}={v}")).collect();
                format!(
                    "kernel {i} ({}) b{} over {:?}: {why} at {}",
                    k.kernel.kind(),
                    w.access.buffer.0,
                    w.sizes,
                    sizes.join(" ")
                )
            };
            if w.sizes.contains(&0) {
                continue;
            }
            let strides: Option<Vec<i64>> = w.access.strides.iter().map(|&d| size(d)).collect();
            let (Some(strides), Some(offset), Some(numel)) =
                (strides, size(w.access.offset), size(lir.buffer(w.access.buffer).numel))
            else {
                continue;
            };
            // No sum of products of 64 bits leaves 128 in a space of so few axes.
            let reach = |low: bool| -> i128 {
                let spans = strides.iter().zip(&w.sizes).map(|(s, n)| i128::from(*s) * (i128::from(*n) - 1));
                spans.filter(|&d| (d < 0) == low).fold(i128::from(offset), i128::saturating_add)
            };
            if reach(true) < 0 || reach(false) >= i128::from(numel) {
                faults.push(fault(format!("elements {}..={} of {numel}", reach(true), reach(false))));
                continue;
            }
            if w.write
                && let Some(old) = kept(lir, w.access.buffer, &size)
                && reach(true) < i128::from(old)
            {
                faults.push(fault(format!("element {} of a state is written, which has {old}", reach(true))));
            }
            let points = w.sizes.iter().fold(1i64, |a, &n| a.saturating_mul(n));
            if w.write && points <= 2048 {
                let twice = each(&w.sizes, &strides, offset).any(|at| !seen.insert((w.access.buffer, at)));
                if twice {
                    faults.push(fault("an element is written twice".into()));
                }
            }
        }
    }
}

/// How many elements a state that grows in a buffer has when a run starts.
fn kept(lir: &Lir, buffer: BufId, size: &impl Fn(DimId) -> Option<i64>) -> Option<i64> {
    let port = lir.states.iter().find(|s| s.buffer == buffer && s.grows_in_place().is_some())?;
    port.shape.iter().try_fold(1i64, |n, &d| n.checked_mul(size(d)?))
}

/// Every element of a walk.
fn each<'a>(sizes: &'a [i64], strides: &'a [i64], offset: i64) -> impl Iterator<Item = i64> + 'a {
    let points: i64 = sizes.iter().product();
    (0..points).map(move |mut p| {
        let mut at = offset;
        for (n, s) in sizes.iter().zip(strides).rev() {
            at += p % n * s;
            p /= n;
        }
        at
    })
}

/// A kernel's accesses with their spaces; `None` where a size cannot be evaluated.
fn walked<'a>(k: &'a Kernel, size: &impl Fn(DimId) -> Option<i64>) -> Option<Vec<Walked<'a>>> {
    let of = |dims: &[&[DimId]]| dims.iter().copied().flatten().map(|&d| size(d)).collect::<Option<Vec<i64>>>();
    let mut out = Vec::new();
    let mut add = |access: &'a Access, sizes: Vec<i64>, write: bool| out.push(Walked { access, sizes, write });
    match k {
        Kernel::Map(m) => {
            let space = of(&[&m.space])?;
            m.reads.iter().for_each(|a| add(a, space.clone(), false));
            m.writes.iter().for_each(|a| add(a, space.clone(), true));
        }
        Kernel::Row(r) => {
            let (whole, outer) = (of(&[&r.outer, &r.reduced])?, of(&[&r.outer])?);
            r.reads.iter().for_each(|a| add(a, whole.clone(), false));
            for a in &r.writes {
                let sizes = if a.strides.len() == outer.len() { &outer } else { &whole };
                add(a, sizes.clone(), true);
            }
        }
        Kernel::Contract(c) => {
            add(&c.lhs, of(&[&c.batch, &c.m, &c.k])?, false);
            add(&c.rhs, of(&[&c.batch, &c.n, &c.k])?, false);
            let (left, right) = (of(&[&c.batch, &c.m, &c.k])?, of(&[&c.batch, &c.n, &c.k])?);
            c.lhs_scaling.accesses().for_each(|a| add(a, left.clone(), false));
            c.rhs_scaling.accesses().for_each(|a| add(a, right.clone(), false));
            let space = of(&[&c.batch, &c.m, &c.n])?;
            c.epilogue.reads.iter().for_each(|a| add(a, space.clone(), false));
            c.epilogue.writes.iter().for_each(|a| add(a, space.clone(), true));
        }
        Kernel::Conv(c) => {
            let input = of(&[&[c.batch, c.in_channels], &c.in_spatial])?;
            [&c.input].into_iter().chain(&c.input_zero).for_each(|a| add(a, input.clone(), false));
            let (i, o) = (size(c.in_channels)?, size(c.out_channels)?);
            let head = if c.transposed { [i, o / c.groups.max(1)] } else { [o, i / c.groups.max(1)] };
            let weight = [&head[..], &of(&[&c.window])?].concat();
            [&c.weight].into_iter().chain(&c.weight_zero).for_each(|a| add(a, weight.clone(), false));
            let space = of(&[&[c.batch, c.out_channels], &c.out_spatial])?;
            c.epilogue.reads.iter().for_each(|a| add(a, space.clone(), false));
            c.epilogue.writes.iter().for_each(|a| add(a, space.clone(), true));
        }
        Kernel::Window(w) => {
            add(&w.input, of(&[&w.outer, &w.in_spatial])?, false);
            add(&w.output, of(&[&w.outer, &w.out_spatial])?, true);
        }
        Kernel::Attention(a) => {
            add(&a.q, of(&[&[a.batch, a.heads, a.queries, a.head_dim]])?, false);
            add(&a.k, of(&[&[a.batch, a.kv_heads, a.keys, a.head_dim]])?, false);
            add(&a.v, of(&[&[a.batch, a.kv_heads, a.keys, a.value_dim]])?, false);
            if let Some(m) = &a.mask {
                add(&m.access, of(&[&[a.batch, a.heads, a.queries, a.keys]])?, false);
            }
            add(&a.out, of(&[&[a.batch, a.heads, a.queries, a.value_dim]])?, true);
        }
        Kernel::Library(l) => {
            for v in &l.inputs {
                add(&v.access, of(&[&v.sizes])?, false);
            }
            for v in &l.outputs {
                add(&v.access, of(&[&v.sizes])?, true);
            }
        }
        Kernel::Branch(b) => {
            for v in std::iter::once(&b.cond).chain(&b.captures) {
                add(&v.access, of(&[&v.sizes])?, false);
            }
            for v in &b.outputs {
                add(&v.access, of(&[&v.sizes])?, true);
            }
        }
        Kernel::Loop(l) => {
            for v in l.trip_count.iter().chain(&l.cond).chain(&l.carried).chain(&l.captures) {
                add(&v.access, of(&[&v.sizes])?, false);
            }
            for v in &l.outputs {
                add(&v.access, of(&[&v.sizes])?, true);
            }
        }
        Kernel::Scan(s) => {
            for v in s.carried.iter().chain(s.scanned.iter().map(|s| &s.0)).chain(&s.captures) {
                add(&v.access, of(&[&v.sizes])?, false);
            }
            for v in s.outputs.iter().chain(s.stacked.iter().map(|s| &s.0)) {
                add(&v.access, of(&[&v.sizes])?, true);
            }
        }
        Kernel::Call(c) => {
            for v in &c.inputs {
                add(&v.access, of(&[&v.sizes])?, false);
            }
            for v in &c.outputs {
                add(&v.access, of(&[&v.sizes])?, true);
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lir::{Buffer, KernelNode, MapKernel, Port, ScalarOp, ScalarProgram, Segment};
    use rlx_ir::{DType, Dim};

    /// `out = copy(copy(in))` through an arena buffer, over `n` elements.
    fn program() -> Lir {
        let mut lir = Lir::default();
        let n = lir.dims.intern(Dim::symbol("n"));
        let (zero, one) = (lir.dims.intern(0), lir.dims.intern(1));
        for storage in [Storage::Input(0), Storage::Arena, Storage::Output(0)] {
            let live = (storage == Storage::Arena).then_some((0, 1));
            let buffer =
                Buffer { dtype: DType::F32, shape: vec![n], order: vec![0], numel: n, storage, live, name: None };
            lir.buffers.push(buffer);
        }
        let access = |b: u32| Access { buffer: BufId(b), offset: zero, strides: vec![one] };
        for i in 0..2 {
            let mut program = ScalarProgram::default();
            let v = program.push(ScalarOp::Read(0), vec![], DType::F32);
            program.results.push(v);
            let map = MapKernel { space: vec![n], reads: vec![access(i)], program, writes: vec![access(i + 1)] };
            lir.kernels.push(KernelNode { kernel: Kernel::Map(map), loc: "copy".into() });
        }
        lir.segments.push(Segment { kernels: 0..2, defines: vec![] });
        lir.inputs.push(Port { name: "x".into(), buffer: BufId(0) });
        lir.outputs.push(Port { name: "y".into(), buffer: BufId(2) });
        lir
    }

    fn faults(change: impl FnOnce(&mut Lir)) -> String {
        let mut lir = program();
        change(&mut lir);
        check(&lir).err().map(|f| f.join("\n")).unwrap_or_default()
    }

    fn map(lir: &mut Lir, i: usize) -> &mut MapKernel {
        match &mut lir.kernels[i].kernel {
            Kernel::Map(m) => m,
            _ => unreachable!("the program has maps only"),
        }
    }

    #[test]
    fn a_good_program_passes() {
        assert_eq!(check(&program()), Ok(()));
    }

    #[test]
    fn faults_are_found() {
        assert!(faults(|l| l.kernels.swap(0, 1)).contains("nothing wrote"));
        assert!(faults(|l| l.buffers[1].live = Some((0, 0))).contains("its interval"));
        assert!(faults(|l| l.segments[0].kernels = 0..1).contains("segments end"));
        assert!(faults(|l| l.outputs[0].buffer = BufId(9)).contains("of 3 buffers"));
        assert!(faults(|l| map(l, 0).writes[0].buffer = BufId(0)).contains("read only"));
        let two = |l: &mut Lir| l.dims.intern(2);
        assert!(
            faults(|l| {
                let d = two(l);
                map(l, 0).reads[0].strides = vec![d]
            })
            .contains("elements 0..=")
        );
        assert!(
            faults(|l| {
                let d = l.dims.intern(0);
                map(l, 1).writes[0].strides = vec![d]
            })
            .contains("twice")
        );
        assert!(
            faults(|l| {
                let d = l.dims.intern(-1);
                map(l, 1).reads[0].strides = vec![d]
            })
            .contains("elements -")
        );
    }

    #[test]
    fn overlapping_live_buffers_are_rejected() {
        let mut lir = program();
        let arena = Buffer { storage: Storage::Arena, live: Some((1, 1)), ..lir.buffers[1].clone() };
        lir.buffers.push(arena);
        map(&mut lir, 1).writes.push(Access { buffer: BufId(3), ..map(&mut program(), 1).writes[0].clone() });
        assert!(check_offsets(&lir, &[(BufId(1), 0, 64), (BufId(3), 64, 64)]).is_ok());
        assert!(check_offsets(&lir, &[(BufId(1), 0, 64), (BufId(3), 63, 64)]).is_err());
        assert!(check_offsets(&lir, &[(BufId(1), 0, 64)]).is_err());
    }
}
