//! From plan to kernels: where roots lie, how values are walked there, and the kernels in order.

use std::collections::{HashMap, HashSet};

use rlx_ir::ops::{Op, Reduction, ShapeOp};
use rlx_ir::{DType, Dim, Loc, Module, NodeId, Symbol, Tensor};

use crate::error::CompileError;
use crate::lir::{
    Access, BufId, Buffer, DimId, Kernel, KernelNode, Lir, Literal, MapKernel, ScalarOp, ScalarProgram, Scope, Storage,
    View,
};
use crate::options::CompileOptions;
use crate::remark::RemarkKind;
use crate::target::Claims;

use super::groups::{Arg, Group, GroupId, GroupKind};
use super::place::{Base, Place, Target};
use super::planner::Planner;
use super::program::Program;
use super::roots::{RootId, Source};
use super::views::{Step, Val, Walk, ordered};

/// A program being emitted.
pub(super) struct Emitter<'a> {
    pub p: Planner<'a>,
    pub module: &'a Module,
    pub claims: &'a Claims,
    pub options: &'a CompileOptions,
    pub lir: Lir,
    /// How deep nested graphs and calls may still go.
    pub depth: usize,
    pub(super) places: Vec<Option<Place>>,
    pub(super) targets: Vec<Option<Target>>,
    /// Roots that could not be written where they are wanted, and why.
    pub(super) apart: Vec<(RootId, Base, &'static str)>,
    /// Roots that lie in their targets.
    pub(super) met: HashSet<RootId>,
    pub(super) output_buffers: Vec<Option<BufId>>,
    pub(super) state_buffers: Vec<Option<BufId>>,
    /// Groups whose results are written to split axes, and how.
    pub(super) splits: HashMap<GroupId, Vec<Vec<Dim>>>,
    /// Kernels with the symbols that they define.
    pub defines: Vec<(u32, Vec<Symbol>)>,
    copies: HashMap<Val, BufId>,
    loc: Loc,
}

impl<'a> Emitter<'a> {
    pub fn new(
        p: Planner<'a>,
        module: &'a Module,
        claims: &'a Claims,
        options: &'a CompileOptions,
        depth: usize,
    ) -> Self {
        let (roots, g) = (p.roots.len(), p.graph);
        Emitter {
            p,
            module,
            claims,
            options,
            lir: Lir { name: g.name().into(), ..Lir::default() },
            depth,
            places: vec![None; roots],
            targets: vec![None; roots],
            apart: Vec::new(),
            met: HashSet::new(),
            output_buffers: vec![None; g.outputs().len()],
            state_buffers: vec![None; g.states().len()],
            splits: HashMap::new(),
            defines: Vec::new(),
            copies: HashMap::new(),
            loc: Loc::none(),
        }
    }

    /// The id of a dim.
    pub fn dim(&mut self, d: &Dim) -> DimId {
        self.lir.dims.intern(d)
    }

    /// Ids of dims.
    pub fn dims(&mut self, dims: &[Dim]) -> Vec<DimId> {
        dims.iter().map(|d| self.lir.dims.intern(d)).collect()
    }

    /// A new buffer.
    pub fn buffer(&mut self, storage: Storage, dtype: DType, dims: &[Dim], order: Option<&[usize]>) -> BufId {
        let shape = self.dims(dims);
        let numel = self.dim(&Dim::product(dims.iter().cloned()));
        let order = order.map_or_else(|| (0..dims.len()).collect(), <[usize]>::to_vec);
        let id = BufId(self.lir.buffers.len() as u32);
        self.lir.buffers.push(Buffer { dtype, shape, order, numel, storage, live: None, name: None });
        id
    }

    /// Appends a kernel, with the source of the group being emitted.
    pub fn push(&mut self, kernel: Kernel) -> u32 {
        let loc = Planner::loc_name(&self.loc, kernel.kind());
        self.lir.kernels.push(KernelNode { kernel, loc });
        (self.lir.kernels.len() - 1) as u32
    }

    /// A walk as an access over axes of its space in another order.
    pub fn access(&mut self, buffer: BufId, walk: &Walk, axes: &[usize]) -> Access {
        let offset = self.dim(&walk.offset);
        let strides = axes
            .iter()
            .map(|&a| match walk.strides.get(a) {
                Some(s) => self.lir.dims.intern(s),
                None => self.lir.dims.intern(Dim::ZERO),
            })
            .collect();
        Access { buffer, offset, strides }
    }

    /// A walk as a view.
    pub fn view(&mut self, buffer: BufId, walk: &Walk) -> View {
        let axes: Vec<usize> = (0..walk.dims.len()).collect();
        View { sizes: self.dims(&walk.dims), access: self.access(buffer, walk, &axes) }
    }

    /// Memory of a root: found, or made.
    pub fn place(&mut self, root: RootId) -> Result<Place, CompileError> {
        if let Some(Some(p)) = self.places.get(root.index()) {
            return Ok(p.clone());
        }
        let r = self.p.root(root).clone();
        let place = match &r.source {
            Source::Boundary(storage) => {
                let buffer = self.buffer(storage.clone(), r.dtype, &r.dims, None);
                Place { buffer, walk: Walk::dense(&r.dims) }
            }
            Source::Const(t) => self.literal(t.clone(), &r.dims, &r.dims),
            Source::Literal(l) => {
                let t = literal_tensor(r.dtype, *l)?;
                let mut place = self.literal(t, &[], &[]);
                place.walk = Walk { strides: vec![Dim::ZERO; r.dims.len()], dims: r.dims.clone(), offset: Dim::ZERO };
                place
            }
            Source::Sizes(elems) if elems.iter().all(Dim::is_const) => {
                let ints = elems.iter().map(|d| i128::from(d.as_const().unwrap_or(0))).collect();
                let sizes: Vec<usize> =
                    r.dims.iter().map(|d| usize::try_from(d.as_const().unwrap_or(0)).unwrap_or(0)).collect();
                let t = Tensor::from_elements(r.dtype, &sizes, &rlx_ir::element::Elements::Int(ints))
                    .map_err(|e| CompileError::Lir(e.to_string()))?;
                self.literal(t, &r.dims, &r.dims)
            }
            Source::Size(d) => {
                let mut place = self.sizes(std::slice::from_ref(d), r.dtype, &[])?;
                place.walk = Walk { strides: vec![Dim::ZERO; r.dims.len()], dims: r.dims.clone(), offset: Dim::ZERO };
                place
            }
            Source::Sizes(elems) => self.sizes(elems, r.dtype, &r.dims)?,
            Source::Iota(_) => {
                let buffer = self.buffer(Storage::Arena, r.dtype, &r.dims, None);
                let walk = Walk::dense(&r.dims);
                self.copy_into(&Val::whole(root, &r.dims), buffer, &walk)?;
                Place { buffer, walk }
            }
            Source::Item(_) | Source::Node(_) => match self.target_place(root)? {
                Some(p) => p,
                None => {
                    let buffer = self.buffer(Storage::Arena, r.dtype, &r.dims, r.order.as_deref());
                    let walk = match &r.order {
                        Some(order) => Walk { strides: ordered(&r.dims, order), ..Walk::dense(&r.dims) },
                        None => Walk::dense(&r.dims),
                    };
                    Place { buffer, walk }
                }
            },
        };
        if let Some(b) = self.lir.buffers.get_mut(place.buffer.index())
            && b.name.is_none()
        {
            b.name = r.name;
        }
        if let Some(slot) = self.places.get_mut(root.index()) {
            *slot = Some(place.clone());
        }
        Ok(place)
    }

    fn literal(&mut self, t: Tensor, dims: &[Dim], walk: &[Dim]) -> Place {
        let dtype = t.dtype();
        let buffer = self.buffer(Storage::Const(t), dtype, dims, None);
        Place { buffer, walk: Walk::dense(walk) }
    }

    /// A small buffer of sizes: one kernel at one point with a result for each.
    fn sizes(&mut self, elems: &[Dim], dtype: DType, dims: &[Dim]) -> Result<Place, CompileError> {
        let buffer = self.buffer(Storage::Arena, dtype, dims, None);
        let mut program = ScalarProgram::default();
        let mut writes = Vec::with_capacity(elems.len());
        for (i, d) in elems.iter().enumerate() {
            let id = self.dim(d);
            let mut v = program.push(ScalarOp::Size(id), Vec::new(), DType::I64);
            if dtype != DType::I64 {
                v = program.push(super::program::convert(dtype), vec![v], dtype);
            }
            program.results.push(v);
            let offset = self.dim(&Dim::from(i));
            writes.push(Access { buffer, offset, strides: Vec::new() });
        }
        self.push(Kernel::Map(MapKernel { space: Vec::new(), reads: Vec::new(), program, writes }));
        Ok(Place { buffer, walk: Walk::dense(dims) })
    }

    /// A value as a walk over memory. Where a reshape is no view there, what is reshaped is copied first.
    pub fn read(&mut self, v: &Val) -> Result<(BufId, Walk), CompileError> {
        let place = self.place(v.root)?;
        let (mut buffer, mut walk) = (place.buffer, place.walk);
        for (i, step) in v.steps.iter().enumerate() {
            if let Some(w) = walk.step(step) {
                walk = w;
                continue;
            }
            let prefix = Val { root: v.root, steps: v.steps[..i].to_vec(), dims: walk.dims.clone() };
            buffer = self.copied(&prefix, "a reshape of it is no view of its memory")?;
            walk = Walk::dense(&prefix.dims)
                .step(step)
                .ok_or_else(|| CompileError::Lir(format!("{step:?} is no view of dense memory")))?;
        }
        Ok((buffer, walk))
    }

    /// A value in dense row-major memory of its own.
    pub fn copied(&mut self, v: &Val, why: &str) -> Result<BufId, CompileError> {
        if let Some(&b) = self.copies.get(v) {
            return Ok(b);
        }
        let dtype = self.p.root(v.root).dtype;
        let buffer = self.buffer(Storage::Arena, dtype, &v.dims, None);
        self.copy_into(v, buffer, &Walk::dense(&v.dims))?;
        let loc = self.loc.clone();
        let name = self.p.root(v.root).name.clone();
        let name = name.map_or_else(|| "a value".to_string(), |n| format!("%{n}"));
        self.p.remark(RemarkKind::Note, &loc, format!("copied: {name}, because {why}"));
        self.copies.insert(v.clone(), buffer);
        Ok(buffer)
    }

    /// A value as a walk over dense row-major memory, copied if it is not.
    pub fn dense(&mut self, v: &Val, why: &str) -> Result<(BufId, Walk), CompileError> {
        let (buffer, walk) = self.read(v)?;
        if walk.is_dense() {
            return Ok((buffer, walk));
        }
        Ok((self.copied(v, why)?, Walk::dense(&v.dims)))
    }

    /// A value as a dense view.
    pub fn dense_view(&mut self, v: &Val, why: &str) -> Result<View, CompileError> {
        let (b, w) = self.dense(v, why)?;
        Ok(self.view(b, &w))
    }

    /// A map that writes a value over a walk of the same sizes.
    pub fn copy_into(&mut self, v: &Val, buffer: BufId, to: &Walk) -> Result<(), CompileError> {
        let axes: Vec<usize> = (0..v.dims.len()).collect();
        let mut program = Program::new(axes.clone(), axes.len());
        let value = program.arg(self, &Arg::Val(v.clone(), Scope::Element), &[])?;
        program.scalar.results.push(value);
        let write = self.access(buffer, to, &axes);
        let space = self.dims(&v.dims);
        let kernel = MapKernel { space, reads: program.reads, program: program.scalar, writes: vec![write] };
        self.push(Kernel::Map(kernel));
        Ok(())
    }

    /// What the axes of a group's space are split into, if they are.
    pub fn split_of(&self, group: &Group) -> Option<Vec<Vec<Dim>>> {
        let item = group.items.first()?;
        self.splits.get(&self.p.group_of(*item)).cloned()
    }

    /// Emits everything.
    pub fn run(mut self) -> Result<Lir, CompileError> {
        self.boundary()?;
        self.plan_targets()?;
        let mut order: Vec<GroupId> = (0..self.p.groups.len() as u32).map(GroupId).collect();
        order.retain(|g| self.p.groups[g.index()].merged.is_none());
        order.sort_by_key(|g| (self.p.groups[g.index()].last, *g));
        for g in order {
            self.group(g)?;
        }
        self.loc = Loc::none();
        self.outputs()?;
        super::buffers::finish(self)
    }

    fn group(&mut self, id: GroupId) -> Result<(), CompileError> {
        let group = self.p.groups[id.index()].clone();
        self.loc = group.loc.clone();
        if let GroupKind::Single(node) = group.kind {
            return self.single(node);
        }
        let needed = |i: &super::groups::ItemId| self.p.items[i.index()].root.is_some_and(|r| self.p.root(r).uses > 0);
        if !group.items.iter().any(needed) {
            return Ok(());
        }
        match group.kind {
            GroupKind::Map => self.map(&group),
            GroupKind::Row(_) => self.row(&group),
            GroupKind::Contract(node) => self.contract(&group, node),
            GroupKind::Conv(node) => self.conv(&group, node),
            GroupKind::Single(_) => Ok(()),
        }
    }

    fn single(&mut self, id: NodeId) -> Result<(), CompileError> {
        let graph = self.p.graph;
        let node = graph.node(id);
        let defines = super::planner::defines(node, graph, &self.p.known);
        let mut used = !defines.is_empty();
        for &r in &node.results {
            used |= self.p.root(self.p.val(r)?.root).uses > 0;
        }
        if !used {
            return Ok(());
        }
        match &node.op {
            Op::ShapeOp(ShapeOp::Concat(c)) => self.concat(node, c.axis)?,
            Op::ShapeOp(ShapeOp::Pad(p)) if p.mode == rlx_ir::ops::shape::PadMode::Constant => self.pad(node, p)?,
            Op::Reduction(Reduction::ReduceWindow(op)) => self.window(node, op)?,
            Op::Neural(rlx_ir::ops::Neural::Attention(op)) => self.attention(node, op)?,
            Op::Control(op) => self.control(node, op)?,
            _ => self.library(node)?,
        }
        if !defines.is_empty() {
            let last = self.lir.kernels.len().saturating_sub(1) as u32;
            self.p.known.extend(defines.iter().cloned());
            self.defines.push((last, defines));
        }
        Ok(())
    }
}

/// A scalar tensor of a literal.
pub(super) fn literal_tensor(dtype: DType, l: Literal) -> Result<Tensor, CompileError> {
    use rlx_ir::element::Elements;
    let e = match l {
        Literal::Float(x) => Elements::Float(vec![x.get()]),
        Literal::Int(x) => Elements::Int(vec![x]),
        Literal::Complex(a, b) => Elements::Complex(vec![[a.get(), b.get()]]),
    };
    Tensor::from_elements(dtype, &[], &e).map_err(|e| CompileError::Lir(e.to_string()))
}

/// What a slice of axis `axis` is as a step.
pub(super) fn part(dims: &[Dim], axis: usize, start: &Dim, size: &Dim) -> Step {
    let starts = (0..dims.len()).map(|a| if a == axis { start.clone() } else { Dim::ZERO }).collect();
    let to = dims.iter().enumerate().map(|(a, d)| if a == axis { size.clone() } else { d.clone() }).collect();
    Step::Slice { starts, steps: vec![1; dims.len()], to }
}
