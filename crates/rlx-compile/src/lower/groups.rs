//! Groups: instructions that one kernel will compute, and the rules by which an elementwise op joins one.
//!
//! A group runs at the position of its last node. Joining moves it later, which is legal as long as nothing outside has read any of
//! its values; so the first outside reader closes a group. Everything that the group itself reads was computed before its last node.
//!
//! An op joins on the group's own iteration space: a value that is a reshape or transpose of a group's value is computed before that
//! view instead of after it, with the other operands seen through the inverse.

use rlx_ir::ops::Elementwise;
use rlx_ir::ops::reduction::ReduceKind;
use rlx_ir::{DType, Dim, Loc, NodeId};

use crate::lir::{Literal, Scope};

use super::planner::Planner;
use super::roots::{RootId, Source};
use super::views::{Step, Val, Walk, row_major};

/// A group of one graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GroupId(pub u32);

/// An instruction of any group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ItemId(pub u32);

impl GroupId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl ItemId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What an instruction does.
#[derive(Clone, Debug)]
pub(super) enum ItemOp {
    Apply(Elementwise),
    Reduce(ReduceKind),
    /// The accumulator of a contraction.
    Acc,
    /// Its argument.
    Copy,
}

/// What an instruction reads.
#[derive(Clone, Debug)]
pub(super) enum Arg {
    /// An earlier instruction of the group.
    Item(ItemId),
    /// A value from outside, walked over the instruction's space (all axes, or the outer ones of a row). The scope says whether it
    /// varies along the row.
    Val(Val, Scope),
    Literal(Literal, DType),
    /// A size as `i64`.
    Size(Dim),
}

/// An instruction.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub op: ItemOp,
    pub args: Vec<Arg>,
    pub dtype: DType,
    /// Whether it varies along the row; `Element` where there are no rows.
    pub scope: Scope,
    pub group: GroupId,
    /// The tensor that it makes, if it is a value of the graph.
    pub root: Option<RootId>,
}

/// The kernel that a group becomes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GroupKind {
    Map,
    /// Reduced axes, ascending.
    Row(Vec<usize>),
    Contract(NodeId),
    Conv(NodeId),
    /// A kernel of the node's own.
    Single(NodeId),
}

/// A group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub kind: GroupKind,
    /// Sizes of its iteration space.
    pub space: Vec<Dim>,
    pub items: Vec<ItemId>,
    /// Order of execution.
    pub last: u32,
    /// True once something outside has read one of its values.
    pub used: bool,
    /// The group that took its instructions over.
    pub merged: Option<GroupId>,
    /// Values read from memory, about.
    pub reads: usize,
    pub loc: Loc,
}

impl Group {
    /// The reduced axes; none where there are no rows.
    pub fn reduced(&self) -> &[usize] {
        match &self.kind {
            GroupKind::Row(axes) => axes,
            _ => &[],
        }
    }

    /// The axes that are not reduced.
    pub fn outer(&self) -> Vec<usize> {
        (0..self.space.len()).filter(|a| !self.reduced().contains(a)).collect()
    }

    /// Sizes of the axes that are not reduced.
    pub fn outer_dims(&self) -> Vec<Dim> {
        self.outer().into_iter().filter_map(|a| self.space.get(a).cloned()).collect()
    }

    /// The name of the fusion by which ops join.
    pub fn fusion(&self) -> &'static str {
        match self.kind {
            GroupKind::Map => "elementwise",
            GroupKind::Row(_) => "row",
            _ => "epilogue",
        }
    }
}

/// More instructions than this are no gain in one kernel.
const MAX_ITEMS: usize = 160;
/// Nor is reading more tensors than this.
const MAX_READS: usize = 20;

/// Said where a kernel has reached one of these.
pub(super) const TOO_LARGE: &str = "the kernel would grow too large";

/// How an op would join a group: on these sizes, from which `steps` lead to the op's result.
struct Frame {
    group: GroupId,
    steps: Vec<Step>,
    dims: Vec<Dim>,
    scope: Scope,
}

/// A join that was found legal.
struct Join {
    args: Vec<Arg>,
    absorbed: Vec<GroupId>,
    reads: usize,
}

impl Planner<'_> {
    /// The group that an item is in now.
    pub fn group_of(&self, item: ItemId) -> GroupId {
        let mut g = self.items[item.index()].group;
        while let Some(next) = self.groups[g.index()].merged {
            g = next;
        }
        g
    }

    /// The item that makes a value's root, if that is in a group.
    pub fn item_of(&self, root: RootId) -> Option<ItemId> {
        match self.root(root).source {
            Source::Item(i) => Some(i),
            _ => None,
        }
    }

    /// The group of a root and its item, if it can still take instructions.
    pub fn open_group(&self, root: RootId) -> Option<(GroupId, ItemId)> {
        let item = self.item_of(root)?;
        let g = self.group_of(item);
        (!self.groups[g.index()].used).then_some((g, item))
    }

    /// A new group.
    pub fn new_group(&mut self, kind: GroupKind, space: Vec<Dim>, loc: Loc) -> GroupId {
        let id = GroupId(self.groups.len() as u32);
        let last = self.position();
        self.groups.push(Group { kind, space, items: Vec::new(), last, used: false, merged: None, reads: 0, loc });
        id
    }

    /// Appends an instruction to a group.
    pub fn push_item(&mut self, group: GroupId, op: ItemOp, args: Vec<Arg>, dtype: DType, scope: Scope) -> ItemId {
        let id = ItemId(self.items.len() as u32);
        for a in &args {
            if let Arg::Val(v, _) = a {
                self.use_val(v);
                self.groups[group.index()].reads += 1;
            }
        }
        self.items.push(Item { op, args, dtype, scope, group, root: None });
        let last = self.position();
        let g = &mut self.groups[group.index()];
        g.items.push(id);
        g.last = last;
        id
    }

    /// The tensor that an instruction makes.
    pub fn item_root(&mut self, item: ItemId) -> RootId {
        let it = &self.items[item.index()];
        if let Some(r) = it.root {
            return r;
        }
        let (dtype, scope) = (it.dtype, it.scope);
        let g = &self.groups[self.group_of(item).index()];
        let dims =
            if scope == Scope::Row && matches!(g.kind, GroupKind::Row(_)) { g.outer_dims() } else { g.space.clone() };
        let root = self.new_root(Source::Item(item), dtype, dims);
        self.items[item.index()].root = Some(root);
        root
    }

    /// Whether a value read over these sizes varies along the reduced axes.
    pub fn scope_of(&self, v: &Val, reduced: &[usize]) -> Scope {
        let root = self.root(v.root);
        match root.source {
            Source::Literal(_) | Source::Size(_) => return Scope::Row,
            _ => {}
        }
        let walk = self.seen(v);
        let still = reduced.iter().all(|&a| walk.strides.get(a).is_none_or(|s| s.as_const() == Some(0)));
        if still && !reduced.is_empty() { Scope::Row } else { Scope::Element }
    }

    /// A value as a walk over its root, taken as dense row-major memory (or as the index itself); copied where a reshape needs it.
    pub fn seen(&self, v: &Val) -> Walk {
        let root = self.root(v.root);
        let mut walk = Walk::dense(&root.dims);
        if let Source::Iota(axis) = root.source {
            walk.strides = (0..root.dims.len()).map(|a| if a == axis { Dim::ONE } else { Dim::ZERO }).collect();
        }
        for s in &v.steps {
            walk = match (walk.step(s), s) {
                (Some(w), _) => w,
                (None, Step::Reshape { to, .. }) => Walk::dense(to),
                (None, _) => walk,
            };
        }
        walk
    }

    /// True if a value, read over a frame of a group, is at each point the very element that the group's item has there.
    fn is_own_element(&self, v: &Val, item: ItemId, group: GroupId, frame: Scope) -> bool {
        let g = &self.groups[group.index()];
        let own = if matches!(g.kind, GroupKind::Row(_)) { self.items[item.index()].scope } else { Scope::Element };
        if frame == Scope::Row && own == Scope::Element {
            return false;
        }
        let root = self.root(v.root);
        if v.steps.is_empty() {
            return own == frame;
        }
        let Some(walk) = Walk::dense(&root.dims).steps(&v.steps) else { return false };
        let (dims, strides) = if own == frame {
            (root.dims.clone(), row_major(&root.dims))
        } else {
            let mut strides = vec![Dim::ZERO; g.space.len()];
            for (axis, s) in g.outer().into_iter().zip(row_major(&root.dims)) {
                strides[axis] = s;
            }
            (g.space.clone(), strides)
        };
        let want = Walk { dims, offset: Dim::ZERO, strides };
        walk.dims == want.dims && walk.offset == want.offset && walk.normal_strides() == want.normal_strides()
    }

    /// Whether a group's instructions can move into another one on the same space.
    fn can_absorb(&self, into: GroupId, other: GroupId) -> bool {
        let allowed = self.options.fusion.allows(self.groups[other.index()].fusion());
        allowed && self.why_not_absorbed(into, other).is_none()
    }

    /// Whether a kernel of so many instructions that reads so many tensors is no gain.
    pub fn is_too_large(&self, items: usize, reads: usize) -> bool {
        items > MAX_ITEMS || reads > MAX_READS
    }

    /// True if every instruction of a map would vary along rows over these axes, so that its results keep their place in a row kernel.
    pub fn varies_along(&self, map: GroupId, reduced: &[usize]) -> bool {
        let g = &self.groups[map.index()];
        let mut varying = std::collections::HashSet::new();
        for &i in &g.items {
            let any = self.items[i.index()].args.iter().any(|a| match a {
                Arg::Item(j) => varying.contains(j),
                Arg::Val(v, _) => self.scope_of(v, reduced) == Scope::Element,
                Arg::Literal(..) | Arg::Size(_) => false,
            });
            if any {
                varying.insert(i);
            } else if self.items[i.index()].root.is_some() {
                return false;
            }
        }
        true
    }

    /// Makes a map a row group over these axes.
    pub fn become_row(&mut self, map: GroupId, reduced: &[usize]) {
        self.groups[map.index()].kind = GroupKind::Row(reduced.to_vec());
        self.rescope(map, 0);
    }

    /// States anew which instructions of a row group, from the n-th on, vary along the row.
    fn rescope(&mut self, group: GroupId, from: usize) {
        let reduced = self.groups[group.index()].reduced().to_vec();
        for i in self.groups[group.index()].items.get(from..).unwrap_or(&[]).to_vec() {
            let mut args = std::mem::take(&mut self.items[i.index()].args);
            let mut scope = Scope::Row;
            for a in &mut args {
                match a {
                    Arg::Item(j) => scope = scope.max(self.items[j.index()].scope),
                    Arg::Val(v, s) => {
                        *s = self.scope_of(v, &reduced);
                        scope = scope.max(*s);
                    }
                    Arg::Literal(..) | Arg::Size(_) => {}
                }
            }
            let item = &mut self.items[i.index()];
            item.args = args;
            item.scope = scope;
        }
    }

    /// Moves a group's instructions into another one.
    pub fn absorb(&mut self, into: GroupId, other: GroupId) {
        let was_map = self.groups[other.index()].kind == GroupKind::Map;
        if was_map && let GroupKind::Row(axes) = self.groups[into.index()].kind.clone() {
            self.become_row(other, &axes);
        }
        let h = &mut self.groups[other.index()];
        h.merged = Some(into);
        let (items, reads, loc) = (std::mem::take(&mut h.items), h.reads, h.loc.clone());
        let last = self.position();
        let g = &mut self.groups[into.index()];
        g.items.extend(items);
        // Ids ascend with time, so that sorting keeps arguments before their users.
        g.items.sort_unstable();
        g.reads += reads;
        g.last = last;
        g.loc = g.loc.merge(&loc);
    }

    /// Lowers an elementwise op: into the group of one of its operands, or into a map of its own.
    pub fn elementwise(&mut self, op: ItemOp, args: &[Val], dtype: DType, to: &[Dim], loc: &Loc) -> Val {
        let mut refused: Vec<(GroupId, &'static str)> = Vec::new();
        for frame in self.frames(args, to) {
            match self.try_join(&frame, args, to) {
                Ok(join) => {
                    let apart = self.left_apart(args, &join.args, to, frame.group);
                    self.missed_all(loc, apart);
                    return self.join(frame, join, op, dtype, to, loc);
                }
                Err(why) => refused.push((frame.group, why)),
            }
        }
        let apart = args.iter().filter_map(|v| {
            let own = self.item_of(v.root).map(|i| self.group_of(i))?;
            match refused.iter().find(|(g, _)| *g == own) {
                Some((g, why)) => Some(format!("not fused into {}: {why}", self.groups[g.index()].kind.describe())),
                None => self.why_apart(v, to, None).map(|why| format!("not fused: {why}")),
            }
        });
        let apart = apart.collect();
        self.missed_all(loc, apart);
        let g = self.new_group(GroupKind::Map, to.to_vec(), loc.clone());
        let args = args.iter().map(|v| self.operand(v, to)).collect();
        let item = self.push_item(g, op, args, dtype, Scope::Element);
        let root = self.item_root(item);
        Val::whole(root, to)
    }

    /// A value as an argument over a space.
    pub fn operand(&self, v: &Val, space: &[Dim]) -> Arg {
        match self.root(v.root).source {
            Source::Literal(l) => Arg::Literal(l, self.root(v.root).dtype),
            _ => Arg::Val(v.clone().broadcast(space), Scope::Element),
        }
    }

    /// The ways in which an op could join groups of its operands, the best first.
    fn frames(&self, args: &[Val], to: &[Dim]) -> Vec<Frame> {
        let mut frames: Vec<(u8, Frame)> = Vec::new();
        for v in args {
            let Some((group, item)) = self.open_group(v.root) else { continue };
            let g = &self.groups[group.index()];
            if !self.options.fusion.allows(g.fusion()) {
                continue;
            }
            let rank = match g.kind {
                GroupKind::Contract(_) | GroupKind::Conv(_) => 0,
                GroupKind::Row(_) => 1,
                GroupKind::Map => 2,
                GroupKind::Single(_) => continue,
            };
            let row = matches!(g.kind, GroupKind::Row(_)) && self.items[item.index()].scope == Scope::Row;
            let mut add = |steps: &[Step], dims: Vec<Dim>, scope| {
                let same = |(_, f): &(u8, Frame)| f.group == group && f.scope == scope && f.steps == steps;
                if !frames.iter().any(same) {
                    frames.push((rank, Frame { group, steps: steps.to_vec(), dims, scope }));
                }
            };
            if v.is_bijective() && v.dims == to {
                let (dims, scope) = if row { (g.outer_dims(), Scope::Row) } else { (g.space.clone(), Scope::Element) };
                add(&v.steps, dims, scope);
            }
            if row && g.space == to {
                add(&[], g.space.clone(), Scope::Element);
            }
        }
        frames.sort_by_key(|(rank, f)| (*rank, f.steps.len()));
        frames.into_iter().map(|(_, f)| f).collect()
    }

    fn try_join(&self, frame: &Frame, args: &[Val], to: &[Dim]) -> Result<Join, &'static str> {
        let g = &self.groups[frame.group.index()];
        let reduced = g.reduced();
        let mut join = Join { args: Vec::new(), absorbed: Vec::new(), reads: g.reads };
        let mut scope = Scope::Row;
        let mut items = g.items.len();
        for a in args {
            if let Source::Literal(l) = self.root(a.root).source {
                join.args.push(Arg::Literal(l, self.root(a.root).dtype));
                continue;
            }
            let v = a.clone().broadcast(to).pull_back(&frame.steps);
            if let Some((h, item)) = self.item_of(v.root).map(|i| (self.group_of(i), i)) {
                let own = h == frame.group || join.absorbed.contains(&h);
                if (own || self.can_absorb(frame.group, h)) && self.is_own_element(&v, item, h, frame.scope) {
                    if !own {
                        join.absorbed.push(h);
                        items += self.groups[h.index()].items.len();
                        join.reads += self.groups[h.index()].reads;
                    }
                    let map = self.groups[h.index()].kind == GroupKind::Map;
                    scope = scope.max(if map { Scope::Element } else { self.items[item.index()].scope });
                    join.args.push(Arg::Item(item));
                    continue;
                }
                if own {
                    return Err("it reads the result at other positions too");
                }
            }
            let s = match frame.scope {
                Scope::Row => Scope::Row,
                Scope::Element => self.scope_of(&v, reduced),
            };
            scope = scope.max(s);
            join.reads += usize::from(!self.root(v.root).is_free());
            join.args.push(Arg::Val(v, s));
        }
        // A group taken along must not be one whose values are also read from memory here.
        let from_memory = |h: GroupId| {
            join.args
                .iter()
                .any(|a| matches!(a, Arg::Val(v, _) if self.item_of(v.root).is_some_and(|i| self.group_of(i) == h)))
        };
        if join.absorbed.iter().any(|&h| from_memory(h)) {
            return Err("it reads a fused operand at other positions too");
        }
        if scope != frame.scope && matches!(g.kind, GroupKind::Row(_)) {
            return Err("the result does not vary along the row");
        }
        if items >= MAX_ITEMS || join.reads > MAX_READS {
            return Err(TOO_LARGE);
        }
        Ok(join)
    }

    fn join(&mut self, frame: Frame, join: Join, op: ItemOp, dtype: DType, to: &[Dim], loc: &Loc) -> Val {
        for &h in &join.absorbed {
            self.absorb(frame.group, h);
        }
        let scope = match self.groups[frame.group.index()].kind {
            GroupKind::Row(_) => frame.scope,
            _ => Scope::Element,
        };
        let what = match &op {
            ItemOp::Apply(e) => rlx_ir::op::OpDef::name(e),
            _ => "copy",
        };
        let item = self.push_item(frame.group, op, join.args, dtype, scope);
        let g = &mut self.groups[frame.group.index()];
        g.loc = g.loc.merge(loc);
        let into = g.kind.describe();
        self.applied(loc, format!("fused {what} into {into}"));
        let root = self.item_root(item);
        let mut v = Val::whole(root, &frame.dims);
        v.steps = frame.steps;
        v.dims = to.to_vec();
        v
    }
}

impl GroupKind {
    /// The kernel's name in remarks.
    pub fn describe(&self) -> &'static str {
        match self {
            GroupKind::Map => "map",
            GroupKind::Row(_) => "row",
            GroupKind::Contract(_) => "contract",
            GroupKind::Conv(_) => "conv",
            GroupKind::Single(_) => "kernel",
        }
    }
}
