//! Where results are written: into memory of their own, or straight into an output or a part of a larger tensor.

use rlx_ir::ops::shape::{Pad, PadMode};
use rlx_ir::ops::{Neural, Op, Reduction, ShapeOp};
use rlx_ir::{Dim, Node};

use crate::error::CompileError;
use crate::lir::{BufId, ParamPort, Port, StatePort, Storage};

use super::emit::{Emitter, part};
use super::groups::GroupKind;
use super::roots::{RootId, Source};
use super::views::{Step, Val, Walk, split_axes};

/// Memory of a root.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub buffer: BufId,
    /// Over the root's sizes, or over the axes that its kernel splits them into.
    pub walk: Walk,
}

/// Memory that a root could be written to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Base {
    Output(usize),
    State(usize),
    Root(RootId),
}

/// A part of other memory, seen as the root's sizes.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub base: Base,
    pub steps: Vec<Step>,
}

impl Emitter<'_> {
    /// Buffers of inputs, parameters and states, all of them, in order.
    pub(super) fn boundary(&mut self) -> Result<(), CompileError> {
        let g = self.p.graph;
        let make = |e: &mut Self, v, storage: Storage| -> Result<BufId, CompileError> {
            let val = e.p.val(v)?;
            if matches!(e.p.root(val.root).source, Source::Boundary(_)) {
                return Ok(e.place(val.root)?.buffer);
            }
            // Known from shapes, so that nothing reads it; the caller passes it all the same.
            let t = e.p.ty(v)?;
            let b = e.buffer(storage, t.dtype, &t.shape, None);
            e.lir.buffers[b.index()].name = g.value(v).name.clone();
            Ok(b)
        };
        for (i, &v) in g.inputs().iter().enumerate() {
            let buffer = make(self, v, Storage::Input(i as u32))?;
            let name = g.value(v).name.clone().unwrap_or_else(|| format!("input{i}").into());
            self.lir.inputs.push(Port { name, buffer });
        }
        for (i, p) in g.params().iter().enumerate() {
            let buffer = make(self, p.value, Storage::Param(i as u32))?;
            self.lir.params.push(ParamPort { name: p.name.clone(), buffer, default: p.default.clone() });
        }
        for (i, s) in g.states().iter().enumerate() {
            let buffer = make(self, s.value, Storage::State(i as u32))?;
            self.lir.states.push(StatePort { name: s.name.clone(), buffer, init: s.init.clone(), next: None });
        }
        Ok(())
    }

    /// Finds what can be written straight to where it is wanted.
    pub(super) fn plan_targets(&mut self) -> Result<(), CompileError> {
        let g = self.p.graph;
        for (k, o) in g.outputs().iter().enumerate() {
            let v = self.p.val(o.value)?;
            self.aim(&v, Base::Output(k), &v.dims, None);
        }
        for (k, s) in g.states().iter().enumerate() {
            if let Some(next) = s.next {
                let v = self.p.val(next)?;
                self.aim(&v, Base::State(k), &v.dims, None);
            }
        }
        if !self.options.fusion.allows("concat") {
            return Ok(());
        }
        for node in g.nodes() {
            match &node.op {
                Op::ShapeOp(ShapeOp::Concat(c)) => {
                    let (root, dims) = self.result_root(node)?;
                    let mut at = Dim::ZERO;
                    for v in self.p.operands(node)? {
                        let Some(size) = v.dims.get(c.axis).cloned() else { continue };
                        let step = part(&dims, c.axis, &at, &size);
                        self.aim_part(&v, root, &dims, step, node);
                        at += size;
                    }
                }
                Op::ShapeOp(ShapeOp::Pad(p)) if p.mode == PadMode::Constant => {
                    let (root, dims) = self.result_root(node)?;
                    let args = self.p.operands(node)?;
                    if let Some(v) = args.first()
                        && !crops(p)
                    {
                        let step =
                            Step::Slice { starts: p.low.clone(), steps: vec![1; dims.len()], to: v.dims.clone() };
                        self.aim_part(v, root, &dims, step, node);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The root of a node's result and its sizes.
    pub(super) fn result_root(&self, node: &Node) -> Result<(RootId, Vec<Dim>), CompileError> {
        let v = self.p.val(self.p.result(node)?)?;
        Ok((v.root, self.p.root(v.root).dims.clone()))
    }

    fn aim_part(&mut self, v: &Val, base: RootId, dims: &[Dim], part: Step, node: &Node) {
        let r = self.p.root(v.root);
        // With other readers, a kernel could read one part of the memory whose other part it writes.
        let free = r.uses == 1;
        if !matches!(r.source, Source::Item(_) | Source::Node(_)) {
            return;
        }
        if free && self.aim(v, Base::Root(base), dims, Some(part)) {
            self.p.applied(&node.loc, format!("fused {}: an operand is written in place", node.op.name()));
        } else {
            self.p.missed(&node.loc, format!("not fused {}: an operand has two users", node.op.name()));
        }
    }

    /// Aims a computed value at a part of memory of sizes `dims`.
    fn aim(&mut self, v: &Val, base: Base, dims: &[Dim], part: Option<Step>) -> bool {
        let taken = self.targets.get(v.root.index()).is_none_or(Option::is_some);
        if taken || !v.is_bijective() || !self.can_write_parts(v.root, part.is_none() && v.steps.is_empty()) {
            return false;
        }
        // Memory whose size is not known yet when the root is written cannot take it.
        if !self.p.defined.is_empty() {
            let at = self.written_at(v.root);
            // What a kernel defines itself the executor puts into an output once it has a size, but not into a part of something.
            let own = !matches!(base, Base::Root(_));
            let late = |d: &Dim| {
                let mut late = false;
                d.for_each_symbol(&mut |s| {
                    late |= self.p.defined.iter().any(|(t, pos)| t == s && (*pos > at || *pos == at && !own));
                });
                late
            };
            if dims.iter().any(late) {
                return false;
            }
        }
        let mut whole = Val::whole(v.root, dims);
        if let Some(part) = part {
            if let Step::Slice { to, .. } = &part {
                whole.dims = to.clone();
            }
            whole.steps.push(part);
        }
        let steps = match self.split_for(v, dims, &whole) {
            Some(steps) => steps,
            None => whole.pull_back(&v.steps).steps,
        };
        if let Some(slot) = self.targets.get_mut(v.root.index()) {
            *slot = Some(Target { base, steps });
        }
        true
    }

    /// Where memory can be seen as a root only with the root's axes split (a projection written as transposed heads): splits the axes of
    /// its kernel, and gives the steps to them.
    fn split_for(&mut self, v: &Val, dims: &[Dim], whole: &Val) -> Option<Vec<Step>> {
        let (Step::Reshape { from, to }, rest) = v.steps.split_first()? else { return None };
        let walk = |steps: &[Step]| Walk::dense(dims).steps(steps);
        let root = self.p.root(v.root);
        if root.uses != 1 || root.order.is_some() || walk(&whole.clone().pull_back(&v.steps).steps).is_some() {
            return None;
        }
        let group = self.p.group_of(self.p.item_of(v.root)?);
        let splits = matches!(self.p.groups[group.index()].kind, GroupKind::Map | GroupKind::Contract(_))
            && !self.splits.contains_key(&group);
        let runs = split_axes(from, to).filter(|_| splits && *from == root.dims)?;
        let steps = whole.clone().pull_back(rest).steps;
        walk(&steps)?;
        self.splits.insert(group, runs);
        Some(steps)
    }

    /// Order of execution of the kernel that writes a root.
    fn written_at(&self, root: RootId) -> u32 {
        match self.p.root(root).source {
            Source::Item(i) => self.p.groups[self.p.group_of(i).index()].last,
            Source::Node(n) => 2 * n.index() as u32 + 1,
            _ => 0,
        }
    }

    /// Whether the kernel of a root can write with any strides, or only to a whole, dense one.
    fn can_write_parts(&self, root: RootId, whole: bool) -> bool {
        match self.p.root(root).source {
            Source::Item(_) => true,
            Source::Node(n) => match &self.p.graph.node(n).op {
                Op::ShapeOp(ShapeOp::Concat(_)) => true,
                Op::ShapeOp(ShapeOp::Pad(p)) => p.mode == PadMode::Constant || whole,
                Op::Reduction(Reduction::ReduceWindow(_)) | Op::Neural(Neural::Attention(_)) => true,
                _ => whole,
            },
            _ => false,
        }
    }

    /// The place of a root in its target, if the target's memory can be seen as the root.
    pub(super) fn target_place(&mut self, root: RootId) -> Result<Option<Place>, CompileError> {
        let Some(t) = self.targets.get(root.index()).cloned().flatten() else { return Ok(None) };
        let base = match t.base {
            Base::Output(k) => self.output_place(k)?,
            Base::State(k) => self.state_place(k)?,
            Base::Root(r) => self.place(r)?,
        };
        let Some(walk) = base.walk.steps(&t.steps) else { return Ok(None) };
        self.met.insert(root);
        Ok(Some(Place { buffer: base.buffer, walk }))
    }

    fn output_place(&mut self, k: usize) -> Result<Place, CompileError> {
        let g = self.p.graph;
        let o = g.outputs().get(k).ok_or_else(|| CompileError::Lir(format!("there is no output {k}")))?;
        let t = self.p.ty(o.value)?;
        let buffer = match self.output_buffers.get(k).copied().flatten() {
            Some(b) => b,
            None => {
                let b = self.buffer(Storage::Output(k as u32), t.dtype, &t.shape, None);
                self.lir.buffers[b.index()].name = Some(o.name.clone());
                if let Some(slot) = self.output_buffers.get_mut(k) {
                    *slot = Some(b);
                }
                b
            }
        };
        Ok(Place { buffer, walk: Walk::dense(&t.shape) })
    }

    fn state_place(&mut self, k: usize) -> Result<Place, CompileError> {
        let g = self.p.graph;
        let s = g.states().get(k).ok_or_else(|| CompileError::Lir(format!("there is no state {k}")))?;
        let t = self.p.ty(s.next.unwrap_or(s.value))?;
        let buffer = match self.state_buffers.get(k).copied().flatten() {
            Some(b) => b,
            None => {
                let b = self.buffer(Storage::Arena, t.dtype, &t.shape, None);
                self.lir.buffers[b.index()].name = Some(s.name.clone());
                if let Some(slot) = self.state_buffers.get_mut(k) {
                    *slot = Some(b);
                }
                b
            }
        };
        Ok(Place { buffer, walk: Walk::dense(&t.shape) })
    }

    /// Declares outputs and successors of states, copying what does not lie right.
    pub(super) fn outputs(&mut self) -> Result<(), CompileError> {
        let g = self.p.graph;
        for (k, o) in g.outputs().iter().enumerate() {
            let v = self.p.val(o.value)?;
            let buffer = self.final_buffer(&v, Base::Output(k))?;
            self.lir.outputs.push(Port { name: o.name.clone(), buffer });
        }
        for (k, s) in g.states().iter().enumerate() {
            if let Some(next) = s.next {
                let v = self.p.val(next)?;
                let buffer = self.final_buffer(&v, Base::State(k))?;
                if let Some(port) = self.lir.states.get_mut(k) {
                    port.next = Some(buffer);
                }
            }
        }
        Ok(())
    }

    /// A buffer that is exactly a value, dense.
    fn final_buffer(&mut self, v: &Val, base: Base) -> Result<BufId, CompileError> {
        let target = self.targets.get(v.root.index()).cloned().flatten();
        if let Some(t) = &target
            && self.met.contains(&v.root)
        {
            if t.base == base {
                return Ok(self.place(v.root)?.buffer);
            }
            // The same value as an earlier output.
            if let Base::Output(j) = t.base
                && let Some(o) = self.p.graph.outputs().get(j)
                && self.p.val(o.value)? == *v
            {
                return Ok(self.place(v.root)?.buffer);
            }
        }
        let root = self.p.root(v.root);
        let as_it_is = match root.source {
            Source::Boundary(Storage::State(k)) => {
                base == Base::State(k as usize) || !self.is_replaced(k as usize, v)?
            }
            Source::Boundary(_) | Source::Const(_) => true,
            _ => false,
        };
        if v.steps.is_empty() && as_it_is {
            return Ok(self.place(v.root)?.buffer);
        }
        let place = match base {
            Base::Output(k) => self.output_place(k)?,
            Base::State(k) => self.state_place(k)?,
            Base::Root(r) => self.place(r)?,
        };
        self.copy_into(v, place.buffer, &place.walk)?;
        Ok(place.buffer)
    }

    /// True if a state whose old value this is has another by the time it is given out.
    fn is_replaced(&self, k: usize, old: &Val) -> Result<bool, CompileError> {
        match self.p.graph.states().get(k).and_then(|s| s.next) {
            Some(next) => Ok(self.p.val(next)? != *old),
            None => Ok(false),
        }
    }

    /// A concatenation: what is not there already is copied into its part.
    pub(super) fn concat(&mut self, node: &Node, axis: usize) -> Result<(), CompileError> {
        let (root, dims) = self.result_root(node)?;
        let place = self.place(root)?;
        let mut at = Dim::ZERO;
        for v in self.p.operands(node)? {
            let Some(size) = v.dims.get(axis).cloned() else { continue };
            let step = part(&dims, axis, &at, &size);
            self.fill_part(&v, root, &place, step, false)?;
            at += size;
        }
        Ok(())
    }

    /// Copies a value into a part of a place, unless its root was written there.
    fn fill_part(
        &mut self,
        v: &Val,
        root: RootId,
        place: &Place,
        step: Step,
        is_pad: bool,
    ) -> Result<(), CompileError> {
        if self.met.contains(&v.root)
            && let Some(Some(t)) = self.targets.get(v.root.index())
            && t.base == Base::Root(root)
            // The same tensor may be concatenated twice.
            && (is_pad || t.steps.first() == Some(&step))
        {
            return Ok(());
        }
        let walk =
            place.walk.step(&step).ok_or_else(|| CompileError::Lir("a part of a tensor is no walk over it".into()))?;
        self.copy_into(&v.clone().broadcast(&walk.dims), place.buffer, &walk)
    }

    /// Padding with a constant: the operand in the middle, maps over the borders, each element written once.
    pub(super) fn pad(&mut self, node: &Node, p: &Pad) -> Result<(), CompileError> {
        let (root, dims) = self.result_root(node)?;
        let place = self.place(root)?;
        let args = self.p.operands(node)?;
        let [x, fill] = args.as_slice() else {
            return Err(CompileError::Lir(format!("`{}` takes two operands", node.op)));
        };
        let positive = |d: &Dim| d.max(Dim::ZERO);
        let (mut starts, mut kept, mut low) = (Vec::new(), Vec::new(), Vec::new());
        for (((d, l), h), to) in x.dims.iter().zip(&p.low).zip(&p.high).zip(&dims) {
            let first = positive(&-l.clone()).min(d);
            let end = d - positive(&-h.clone()).min(d);
            kept.push(positive(&(end - &first)));
            starts.push(first);
            // Cropping may go beyond the operand and take of the border too.
            let whole = h.lower_bound().is_some_and(|b| b >= 0);
            low.push(if whole { positive(l) } else { positive(l).min(to) });
        }
        let inner = x.clone().slice(starts, vec![1; dims.len()], kept.clone());
        let step = Step::Slice { starts: low.clone(), steps: vec![1; dims.len()], to: kept.clone() };
        self.fill_part(&inner, root, &place, step, true)?;
        // Borders of axis a: inside on the axes before it, whole on those after.
        let (mut from, mut size) = (vec![Dim::ZERO; dims.len()], dims.clone());
        for a in 0..dims.len() {
            let after = &low[a] + &kept[a];
            let rest = &dims[a] - &after;
            for (start, len) in [(Dim::ZERO, low[a].clone()), (after.clone(), rest)] {
                if len.as_const() == Some(0) {
                    continue;
                }
                let (mut starts, mut to) = (from.clone(), size.clone());
                starts[a] = start;
                to[a] = len;
                let walk = place.walk.step(&Step::Slice { starts, steps: vec![1; dims.len()], to });
                let walk = walk.ok_or_else(|| CompileError::Lir("a border is no walk over its tensor".into()))?;
                self.copy_into(&fill.clone().reshape(&[]).broadcast(&walk.dims), place.buffer, &walk)?;
            }
            from[a] = low[a].clone();
            size[a] = kept[a].clone();
        }
        Ok(())
    }
}

/// True unless no padding is negative.
fn crops(p: &Pad) -> bool {
    p.low.iter().chain(&p.high).any(|d| d.lower_bound().is_none_or(|b| b < 0))
}
