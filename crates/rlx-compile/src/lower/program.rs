//! Scalar programs of groups.

use std::collections::HashMap;

use rlx_ir::ops::Elementwise;
use rlx_ir::ops::elementwise::Binary;
use rlx_ir::{DType, Dim};

use crate::error::CompileError;
use crate::lir::{Access, Epilogue, Kernel, Literal, MapKernel, RowKernel, ScalarOp, ScalarProgram, Scope};

use super::emit::Emitter;
use super::groups::{Arg, Group, ItemId, ItemOp};
use super::roots::Source;
use super::views::{Val, Walk};

/// A program being put together.
pub(super) struct Program {
    /// For each axis of the kernel, the axis of the group's space.
    axes: Vec<usize>,
    /// How many of them, the first ones, are not reduced.
    outer: usize,
    /// What the axes of the group's space are split into, if its result is written to split axes.
    split: Option<Vec<Vec<Dim>>>,
    pub reads: Vec<Access>,
    pub scalar: ScalarProgram,
    values: HashMap<ItemId, u32>,
}

/// Conversion to a dtype.
pub(super) fn convert(to: DType) -> ScalarOp {
    ScalarOp::Apply(Elementwise::Convert { to, saturate: true })
}

impl Program {
    pub fn new(axes: Vec<usize>, outer: usize) -> Self {
        Program {
            axes,
            outer,
            split: None,
            reads: Vec::new(),
            scalar: ScalarProgram::default(),
            values: HashMap::new(),
        }
    }

    /// A program over all axes of a group's space, split or not.
    fn over(e: &Emitter<'_>, group: &Group, axes: Option<Vec<usize>>) -> Self {
        let split = e.split_of(group);
        let rank = split.as_ref().map_or(group.space.len(), |runs| runs.iter().map(Vec::len).sum());
        let axes = axes.filter(|a| split.is_none() && a.len() == rank).unwrap_or_else(|| (0..rank).collect());
        Program { split, ..Program::new(axes, rank) }
    }

    /// A walk over the group's space as one over the kernel's axes.
    fn fitted(&self, walk: Walk) -> Walk {
        match &self.split {
            Some(runs) if walk.dims.len() == runs.len() => walk.split(runs),
            _ => walk,
        }
    }

    /// The instruction that an argument is. Walks of values go over all axes, or over the outer ones alone.
    pub fn arg(&mut self, e: &mut Emitter<'_>, arg: &Arg, reduced: &[usize]) -> Result<u32, CompileError> {
        match arg {
            Arg::Item(i) => self
                .values
                .get(i)
                .copied()
                .ok_or_else(|| CompileError::Lir("an instruction reads one that comes later".into())),
            Arg::Literal(l, dtype) => Ok(self.scalar.push(ScalarOp::Const(*l), Vec::new(), *dtype)),
            Arg::Size(d) => {
                let d = e.dim(d);
                Ok(self.scalar.push(ScalarOp::Size(d), Vec::new(), DType::I64))
            }
            Arg::Val(v, scope) => {
                let root = e.p.root(v.root);
                let dtype = root.dtype;
                match &root.source {
                    Source::Literal(l) => {
                        let l = *l;
                        return Ok(self.scalar.push(ScalarOp::Const(l), Vec::new(), dtype));
                    }
                    Source::Size(d) => {
                        let d = e.dim(&d.clone());
                        let v = self.scalar.push(ScalarOp::Size(d), Vec::new(), DType::I64);
                        return Ok(self.converted(v, dtype));
                    }
                    Source::Iota(axis) => {
                        let mut walk = Walk::dense(&root.dims);
                        walk.strides =
                            (0..root.dims.len()).map(|a| if a == *axis { Dim::ONE } else { Dim::ZERO }).collect();
                        if let Some(walk) = walk.steps(&v.steps) {
                            let walk = self.fitted(walk);
                            return Ok(self.index(e, &walk, dtype));
                        }
                    }
                    _ => {}
                }
                self.read(e, v, *scope, reduced)
            }
        }
    }

    fn converted(&mut self, v: u32, dtype: DType) -> u32 {
        if dtype == DType::I64 { v } else { self.scalar.push(convert(dtype), vec![v], dtype) }
    }

    /// For each axis of the kernel, the axis of a walk.
    fn axes_of(&self, walk: &Walk) -> Vec<Option<usize>> {
        if walk.dims.len() < self.axes.len() {
            (0..self.axes.len()).map(|k| (k < self.outer).then_some(k)).collect()
        } else {
            self.axes.iter().map(|&a| Some(a)).collect()
        }
    }

    /// The index that an element of an iota is.
    fn index(&mut self, e: &mut Emitter<'_>, walk: &Walk, dtype: DType) -> u32 {
        let i64_op = |op| ScalarOp::Apply(Elementwise::Binary(op));
        let mut sum = None;
        if walk.offset.as_const() != Some(0) {
            let d = e.dim(&walk.offset);
            sum = Some(self.scalar.push(ScalarOp::Size(d), Vec::new(), DType::I64));
        }
        for (kernel_axis, axis) in self.axes_of(walk).into_iter().enumerate() {
            let Some(stride) = axis.and_then(|a| walk.strides.get(a)) else { continue };
            if stride.as_const() == Some(0) {
                continue;
            }
            let mut v = self.scalar.push(ScalarOp::Index(kernel_axis as u32), Vec::new(), DType::I64);
            if stride.as_const() != Some(1) {
                let d = e.dim(stride);
                let s = self.scalar.push(ScalarOp::Size(d), Vec::new(), DType::I64);
                v = self.scalar.push(i64_op(Binary::Mul), vec![v, s], DType::I64);
            }
            sum = Some(match sum {
                Some(s) => self.scalar.push(i64_op(Binary::Add), vec![s, v], DType::I64),
                None => v,
            });
        }
        let v = match sum {
            Some(v) => v,
            None => self.scalar.push(ScalarOp::Const(Literal::Int(0)), Vec::new(), DType::I64),
        };
        self.converted(v, dtype)
    }

    fn read(&mut self, e: &mut Emitter<'_>, v: &Val, scope: Scope, reduced: &[usize]) -> Result<u32, CompileError> {
        let (mut buffer, mut walk) = e.read(v)?;
        if !reduced.is_empty() && walk.dims.len() == self.axes.len() {
            // Whether a value varies along the row was decided when the program was made; memory must agree.
            if scope == Scope::Row {
                for &a in reduced {
                    if let Some(s) = walk.strides.get_mut(a) {
                        *s = Dim::ZERO;
                    }
                }
            } else if reduced.iter().all(|&a| walk.strides.get(a).is_some_and(|s| s.as_const() == Some(0))) {
                buffer = e.copied(v, "it is the same all along a row")?;
                walk = Walk::dense(&v.dims);
            }
        }
        let walk = self.fitted(walk);
        let dtype = e.lir.buffer(buffer).dtype;
        let offset = e.dim(&walk.offset);
        let mut strides = Vec::with_capacity(self.axes.len());
        for axis in self.axes_of(&walk) {
            strides.push(match axis.and_then(|a| walk.strides.get(a)) {
                Some(s) => e.dim(s),
                None => e.dim(&Dim::ZERO),
            });
        }
        let access = Access { buffer, offset, strides };
        let n = match self.reads.iter().position(|a| *a == access) {
            Some(n) => n,
            None => {
                self.reads.push(access);
                self.reads.len() - 1
            }
        };
        Ok(self.scalar.push(ScalarOp::Read(n as u32), Vec::new(), dtype))
    }

    /// Appends a group's instructions; gives the walks of its results.
    fn group(&mut self, e: &mut Emitter<'_>, group: &Group) -> Result<Vec<Access>, CompileError> {
        let reduced = group.reduced().to_vec();
        let mut writes = Vec::new();
        for &id in &group.items {
            let item = e.p.items[id.index()].clone();
            let args = item.args.iter().map(|a| self.arg(e, a, &reduced)).collect::<Result<Vec<_>, _>>()?;
            let v = match item.op {
                ItemOp::Apply(op) => self.scalar.push(ScalarOp::Apply(op), args, item.dtype),
                ItemOp::Reduce(kind) => self.scalar.push(ScalarOp::Reduce(kind), args, item.dtype),
                ItemOp::Acc => self.scalar.push(ScalarOp::Acc, args, item.dtype),
                ItemOp::Copy => args.first().copied().unwrap_or_default(),
            };
            self.values.insert(id, v);
            let Some(root) = item.root.filter(|&r| e.p.root(r).uses > 0) else { continue };
            let place = e.place(root)?;
            let axes: Vec<usize> = if item.scope == Scope::Row && !reduced.is_empty() {
                (0..self.outer).collect()
            } else {
                self.axes.clone()
            };
            let walk = self.fitted(place.walk);
            writes.push(e.access(place.buffer, &walk, &axes));
            self.scalar.results.push(v);
        }
        Ok(writes)
    }
}

impl Emitter<'_> {
    pub(super) fn map(&mut self, group: &Group) -> Result<(), CompileError> {
        // The space is walked in the order in which the first result lies in memory.
        let first = group.items.iter().find_map(|i| self.p.items[i.index()].root.filter(|&r| self.p.root(r).uses > 0));
        let order = first.and_then(|r| self.p.root(r).order.clone());
        let mut program = Program::over(self, group, order);
        let writes = program.group(self, group)?;
        let space = program.split.as_ref().map_or_else(|| group.space.clone(), |runs| runs.concat());
        let sizes: Vec<Dim> = program.axes.iter().filter_map(|&a| space.get(a).cloned()).collect();
        let space = self.dims(&sizes);
        self.push(Kernel::Map(MapKernel { space, reads: program.reads, program: program.scalar, writes }));
        Ok(())
    }

    pub(super) fn row(&mut self, group: &Group) -> Result<(), CompileError> {
        let outer_axes = group.outer();
        let axes: Vec<usize> = outer_axes.iter().chain(group.reduced()).copied().collect();
        let mut program = Program::new(axes, outer_axes.len());
        let writes = program.group(self, group)?;
        let outer = self.dims(&group.outer_dims());
        let reduced: Vec<Dim> = group.reduced().iter().filter_map(|&a| group.space.get(a).cloned()).collect();
        let reduced = self.dims(&reduced);
        self.push(Kernel::Row(RowKernel { outer, reduced, reads: program.reads, program: program.scalar, writes }));
        Ok(())
    }

    /// The epilogue of a contraction over its output space.
    pub(super) fn epilogue(&mut self, group: &Group) -> Result<Epilogue, CompileError> {
        let mut program = Program::over(self, group, None);
        let writes = program.group(self, group)?;
        Ok(Epilogue { reads: program.reads, program: program.scalar, writes })
    }
}
