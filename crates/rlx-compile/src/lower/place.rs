//! Where results are written: into memory of their own, or straight into an output or a part of a larger tensor.

use rlx_ir::ops::shape::{Pad, PadMode};
use rlx_ir::ops::{Neural, Op, Reduction, ShapeOp};
use rlx_ir::{Dim, Node};

use crate::error::CompileError;
use crate::lir::{BufId, ParamPort, Port, StatePort, Storage};
use crate::remark::RemarkKind;

use super::emit::{Emitter, part};
use super::groups::GroupKind;
use super::roots::{RootId, Source};
use super::views::{Step, Val, Walk, ordered, split_axes};

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
            let buffer = match self.grown_place(i)? {
                Some(buffer) => buffer,
                None => make(self, s.value, Storage::State(i as u32))?,
            };
            let shape = &self.p.ty(s.value)?.shape;
            let (shape, grows) = (self.dims(shape), s.grows.map(|axis| axis as u32));
            let (name, init) = (s.name.clone(), s.init.clone());
            self.lir.states.push(StatePort { name, buffer, shape, init, grows, next: None });
        }
        Ok(())
    }

    /// The buffer of a state that grows where it lies: its successor is the state with more appended on the axis on which it grows. That
    /// axis is the outermost in memory, so that what is there stays where it is, and what is appended lies behind it.
    fn grown_place(&mut self, k: usize) -> Result<Option<BufId>, CompileError> {
        let g = self.p.graph;
        let Some((s, (axis, next))) = g.states().get(k).and_then(|s| Some((s, s.grows.zip(s.next)?))) else {
            return Ok(None);
        };
        let (old, grown) = (self.p.val(s.value)?, self.p.val(next)?);
        let name = g.def_node(next).map_or_else(rlx_ir::Loc::none, |(_, n)| n.loc.clone());
        let why = if !self.claims.growing_states {
            "the target keeps states dense".to_string()
        } else if !self.options.fusion.allows("concat") {
            "fusion of concatenations is off".to_string()
        } else {
            match self.appends(&old, &grown, axis) {
                Ok(()) => String::new(),
                Err(why) => why,
            }
        };
        if !why.is_empty() {
            if grown != old {
                self.p.missed(&name, format!("state `{}` is copied in each run: {why}", s.name));
            }
            return Ok(None);
        }
        let order: Vec<usize> = std::iter::once(axis).chain((0..grown.dims.len()).filter(|&a| a != axis)).collect();
        let dtype = self.p.root(grown.root).dtype;
        let buffer = self.buffer(Storage::State(k as u32), dtype, &grown.dims, Some(&order));
        if let Some(b) = self.lir.buffers.get_mut(buffer.index()) {
            b.name = Some(s.name.clone());
        }
        for v in [&old, &grown] {
            let walk = Walk { strides: ordered(&v.dims, &order), ..Walk::dense(&v.dims) };
            if let Some(slot) = self.places.get_mut(v.root.index()) {
                *slot = Some(Place { buffer, walk });
            }
        }
        if let Some(slot) = self.targets.get_mut(grown.root.index()) {
            *slot = Some(Target { base: Base::State(k), steps: Vec::new() });
        }
        self.met.extend([old.root, grown.root]);
        self.p.applied(&name, format!("fused concat: what is appended to state `{}` is written behind it", s.name));
        Ok(Some(buffer))
    }

    /// Whether a value is another with more appended on an axis, all of which can lie in the memory of a state; or why not.
    fn appends(&self, old: &Val, grown: &Val, axis: usize) -> Result<(), String> {
        let node = match self.p.root(grown.root).source {
            Source::Node(n) if grown.steps.is_empty() => self.p.graph.node(n),
            _ => return Err("what it becomes is no concatenation".into()),
        };
        let Op::ShapeOp(ShapeOp::Concat(c)) = &node.op else {
            return Err(format!("what it becomes is the result of `{}`, no concatenation", node.op.name()));
        };
        if c.axis != axis {
            return Err(format!("what it becomes is concatenated on axis {}, and it grows on axis {axis}", c.axis));
        }
        let whole = old.steps.is_empty() && matches!(self.p.root(old.root).source, Source::Boundary(_));
        let first = self.p.operands(node).ok().and_then(|v| v.into_iter().next());
        if !whole || first.as_ref() != Some(old) {
            return Err("what it becomes does not begin with it".into());
        }
        if self.targets.get(grown.root.index()).is_none_or(Option::is_some) {
            return Err("what it becomes is that of another state too".into());
        }
        // The memory is there before the first kernel runs.
        let late = |d: &Dim| d.symbols().iter().any(|s| self.p.defined.iter().any(|(t, _)| t == s));
        match grown.dims.iter().any(late) {
            true => Err("its new length depends on data".into()),
            false => Ok(()),
        }
    }

    /// Finds what can be written straight to where it is wanted.
    pub(super) fn plan_targets(&mut self) -> Result<(), CompileError> {
        let g = self.p.graph;
        for (k, o) in g.outputs().iter().enumerate() {
            let v = self.p.val(o.value)?;
            self.aim_noting(&v, Base::Output(k));
        }
        for (k, s) in g.states().iter().enumerate() {
            if let Some(next) = s.next {
                let v = self.p.val(next)?;
                self.aim_noting(&v, Base::State(k));
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
                        self.aim_part(&v, root, &dims, step);
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
                        self.aim_part(v, root, &dims, step);
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

    fn aim_part(&mut self, v: &Val, base: RootId, dims: &[Dim], part: Step) {
        let r = self.p.root(v.root);
        if !matches!(r.source, Source::Item(_) | Source::Node(_)) {
            return;
        }
        // With other readers, a kernel could read one part of the memory whose other part it writes.
        let done = if r.uses == 1 { self.aim(v, Base::Root(base), dims, Some(part)) } else { Err("it has two users") };
        if let Err(why) = done {
            self.apart.push((v.root, Base::Root(base), why));
        }
    }

    /// Aims a value at the whole of an output or of a state's next value, and notes why it cannot be.
    fn aim_noting(&mut self, v: &Val, base: Base) {
        if let Err(why) = self.aim(v, base, &v.dims, None) {
            self.apart.push((v.root, base, why));
        }
    }

    /// Why a root does not lie where it is wanted.
    fn why_apart(&self, root: RootId, base: Base) -> &'static str {
        let noted = self.apart.iter().find(|(r, b, _)| *r == root && *b == base);
        noted.map_or("its kernel cannot write it as it lies there", |(_, _, why)| *why)
    }

    /// Aims a computed value at a part of memory of sizes `dims`; or why it cannot be written there.
    fn aim(&mut self, v: &Val, base: Base, dims: &[Dim], part: Option<Step>) -> Result<(), &'static str> {
        if !matches!(self.p.root(v.root).source, Source::Item(_) | Source::Node(_)) {
            return Err("no kernel writes it");
        }
        if self.targets.get(v.root.index()).is_none_or(Option::is_some) {
            return Err("it is written elsewhere already");
        }
        if !v.is_bijective() {
            return Err("it is only a part of what its kernel writes, or is broadcast");
        }
        if !self.can_write_parts(v.root, part.is_none() && v.steps.is_empty()) {
            return Err("its kernel writes whole tensors alone");
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
                return Err("not all sizes there are known when it is written");
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
        Ok(())
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
        let g = self.p.graph;
        let what = match base {
            Base::Output(k) => g.outputs().get(k).map(|o| format!("output `{}`", o.name)),
            Base::State(k) => g.states().get(k).map(|s| format!("the next value of state `{}`", s.name)),
            Base::Root(_) => None,
        };
        let why = match self.p.root(v.root).source {
            Source::Boundary(Storage::State(_)) if v.steps.is_empty() => "the state has another value by then",
            Source::Boundary(_) | Source::Const(_) if !v.steps.is_empty() => "it is a view of what is given",
            Source::Item(_) | Source::Node(_) => self.why_apart(v.root, base),
            _ => "no kernel writes it",
        };
        let what = what.unwrap_or_else(|| "a value".into());
        self.p.remark(RemarkKind::Note, &rlx_ir::Loc::none(), format!("copied: {what}, because {why}"));
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
            self.fill_part(&v, root, &place, step, node)?;
            at += size;
        }
        Ok(())
    }

    /// Copies a value into a part of a place, unless its root was written there.
    fn fill_part(&mut self, v: &Val, root: RootId, place: &Place, step: Step, node: &Node) -> Result<(), CompileError> {
        let is_pad = matches!(node.op, Op::ShapeOp(ShapeOp::Pad(_)));
        // What a state was lies where it grows.
        let begins = |s: &Step| matches!(s, Step::Slice { starts, .. } if starts.iter().all(|d| *d == Dim::ZERO));
        if let Source::Boundary(Storage::State(k)) = self.p.root(v.root).source
            && v.steps.is_empty()
            && begins(&step)
            && self
                .targets
                .get(root.index())
                .is_some_and(|t| t.as_ref().is_some_and(|t| t.base == Base::State(k as usize)))
            && self.places.get(v.root.index()).is_some_and(|p| p.as_ref().is_some_and(|p| p.buffer == place.buffer))
        {
            return Ok(());
        }
        if self.met.contains(&v.root)
            && let Some(Some(t)) = self.targets.get(v.root.index())
            && t.base == Base::Root(root)
            // The same tensor may be concatenated twice.
            && (is_pad || t.steps.first() == Some(&step))
        {
            self.p.applied(&node.loc, format!("fused {}: an operand is written in place", node.op.name()));
            return Ok(());
        }
        if matches!(self.p.root(v.root).source, Source::Item(_) | Source::Node(_)) {
            let why = match self.options.fusion.allows("concat") {
                true => self.why_apart(v.root, Base::Root(root)),
                false => "fusion `concat` is off",
            };
            self.p.missed(&node.loc, format!("operand not fused into {}: {why}", node.op.name()));
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
        self.fill_part(&inner, root, &place, step, node)?;
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
