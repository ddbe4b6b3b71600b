//! Whether a program is one at all: every number in it names something, lists that belong together are as long as each other, and buffers
//! and ports agree on what a buffer is. Nothing here evaluates a size; backends check at bind that walks stay within their buffers.
//!
//! A program from a file is hostile until it has passed here: what follows looks things up without asking.

use std::collections::HashSet;

use rlx_ir::{DType, Symbol};

use crate::lir::{Access, BufId, DimId, Epilogue, Kernel, Lir, ScalarOp, ScalarProgram, Storage, SubProgram, View};

/// Every fault of a program's structure, those of nested programs not among them. `nested` programs have neither parameters nor states.
pub(super) fn check(lir: &Lir, nested: bool, faults: &mut Vec<String>) {
    let mut s = Structure { lir, faults };
    s.buffers();
    s.ports(nested);
    s.segments();
    for (i, k) in lir.kernels.iter().enumerate() {
        let before = s.faults.len();
        s.kernel(&k.kernel);
        for fault in s.faults.iter_mut().skip(before) {
            *fault = format!("kernel {i} ({}): {fault}", k.kernel.kind());
        }
        if s.faults.len() > 50 {
            return;
        }
    }
}

struct Structure<'a> {
    lir: &'a Lir,
    faults: &'a mut Vec<String>,
}

impl Structure<'_> {
    fn fault(&mut self, why: impl Into<String>) {
        self.faults.push(why.into());
    }

    fn dims<'d>(&mut self, what: &str, mut dims: impl Iterator<Item = &'d DimId>) {
        let n = self.lir.dims.len();
        if dims.any(|d| d.index() >= n) {
            self.fault(format!("{what} names a size that the table does not have"));
        }
    }

    fn dtype(&self, b: BufId) -> Option<DType> {
        self.lir.buffers.get(b.index()).map(|b| b.dtype)
    }

    fn buffers(&mut self) {
        let lir = self.lir;
        for (i, b) in lir.buffers.iter().enumerate() {
            let id = BufId(i as u32);
            self.dims(&format!("b{i}"), b.shape.iter().chain([&b.numel]));
            let mut order = b.order.clone();
            order.sort_unstable();
            if order.iter().copied().ne(0..b.shape.len()) {
                self.fault(format!("b{i}: {:?} is no order of its {} axes", b.order, b.shape.len()));
            }
            let named = match &b.storage {
                Storage::Input(n) => lir.inputs.get(*n as usize).map(|p| p.buffer),
                Storage::Param(n) => lir.params.get(*n as usize).map(|p| p.buffer),
                Storage::State(n) => lir.states.get(*n as usize).map(|p| p.buffer),
                Storage::Output(n) => lir.outputs.get(*n as usize).map(|p| p.buffer),
                Storage::Const(t) if t.dtype() != b.dtype => {
                    self.fault(format!("b{i} is {}, its literal {}", b.dtype, t.dtype()));
                    continue;
                }
                Storage::Const(_) | Storage::Arena => Some(id),
            };
            if named != Some(id) {
                self.fault(format!("b{i} is {:?}, but that port is another buffer", b.storage));
            }
        }
    }

    fn ports(&mut self, nested: bool) {
        let lir = self.lir;
        let roles = (lir.inputs.iter().enumerate().map(|(n, p)| (p.buffer, Storage::Input(n as u32))))
            .chain(lir.params.iter().enumerate().map(|(n, p)| (p.buffer, Storage::Param(n as u32))))
            .chain(lir.states.iter().enumerate().map(|(n, p)| (p.buffer, Storage::State(n as u32))));
        for (b, role) in roles {
            if lir.buffers.get(b.index()).is_none_or(|x| x.storage != role) {
                self.fault(format!("the port of {role:?} is b{}, which is something else", b.0));
            }
        }
        for (i, o) in lir.outputs.iter().enumerate() {
            if o.buffer.index() >= lir.buffers.len() {
                self.fault(format!("output {i} is b{}, of {} buffers", o.buffer.0, lir.buffers.len()));
            }
        }
        for s in &lir.states {
            self.dims(&format!("state `{}`", s.name), s.shape.iter());
            let Some(buffer) = lir.buffers.get(s.buffer.index()) else { continue };
            let (rank, axis) = (s.shape.len(), s.grows.map(|a| a as usize));
            if rank != buffer.shape.len() || axis.is_some_and(|a| a >= rank) {
                self.fault(format!(
                    "state `{}` has {rank} axes and grows on {axis:?}, b{} has {}",
                    s.name,
                    s.buffer.0,
                    buffer.shape.len()
                ));
            }
            let same = |(a, (x, y)): (usize, (&DimId, &DimId))| x == y || s.grows_in_place() == Some(a);
            if !s.shape.iter().zip(&buffer.shape).enumerate().all(same) {
                self.fault(format!("state `{}` is not of the sizes of b{}", s.name, s.buffer.0));
            }
            let Some(next) = s.next else { continue };
            if self.dtype(next).is_none() || self.dtype(next) != self.dtype(s.buffer) {
                self.fault(format!("state `{}` becomes b{}, which is none of its dtype", s.name, next.0));
            }
        }
        let lists = [
            lir.inputs.iter().map(|p| &*p.name).collect::<Vec<&str>>(),
            lir.params.iter().map(|p| &*p.name).collect(),
            lir.states.iter().map(|p| &*p.name).collect(),
        ];
        for names in lists.iter().filter(|_| !nested) {
            let mut seen = HashSet::new();
            if let Some(name) = names.iter().find(|n| !seen.insert(**n)) {
                self.fault(format!("two ports are called `{name}`"));
            }
        }
        if nested && !(lir.params.is_empty() && lir.states.is_empty()) {
            self.fault(format!("the nested program `{}` has parameters or states", lir.name));
        }
    }

    fn segments(&mut self) {
        let (mut at, mut defined) = (0, HashSet::<&Symbol>::new());
        let lir = self.lir;
        for s in &lir.segments {
            if s.kernels.start != at || s.kernels.end < at {
                self.fault(format!("segment {:?} does not begin at kernel {at}", s.kernels));
            }
            at = s.kernels.end;
            if let Some(twice) = s.defines.iter().find(|d| !defined.insert(*d)) {
                self.fault(format!("size `{twice}` is defined twice"));
            }
        }
        if at as usize != lir.kernels.len() {
            self.fault(format!("segments end at kernel {at} of {}", lir.kernels.len()));
        }
    }

    /// A walk over a space of so many axes.
    fn access(&mut self, a: &Access, rank: usize) {
        let buffers = self.lir.buffers.len();
        if a.buffer.index() >= buffers {
            self.fault(format!("it names b{}, of {buffers} buffers", a.buffer.0));
        }
        self.dims("a walk", std::iter::once(&a.offset).chain(&a.strides));
        if a.strides.len() != rank {
            self.fault(format!("b{}: {} strides for {rank} axes", a.buffer.0, a.strides.len()));
        }
    }

    fn accesses(&mut self, list: &[Access], rank: usize) {
        list.iter().for_each(|a| self.access(a, rank));
    }

    fn view(&mut self, v: &View) {
        self.dims("a view", v.sizes.iter());
        self.access(&v.access, v.sizes.len());
    }

    fn program(&mut self, p: &ScalarProgram, reads: usize, writes: usize, rank: usize) {
        for (i, inst) in p.insts.iter().enumerate() {
            if inst.args.iter().any(|&a| a as usize >= i) {
                self.fault(format!("instruction {i} reads a later one"));
            }
            match inst.op {
                ScalarOp::Read(n) if n as usize >= reads => {
                    self.fault(format!("instruction {i} is read {n} of {reads}"))
                }
                ScalarOp::Index(n) if n as usize >= rank => {
                    self.fault(format!("instruction {i} is axis {n} of {rank}"))
                }
                ScalarOp::Size(d) => self.dims(&format!("instruction {i}"), [d].iter()),
                _ => {}
            }
        }
        if p.results.len() != writes || p.results.iter().any(|&r| r as usize >= p.insts.len()) {
            self.fault(format!("its results {:?} are not for {writes} writes", p.results));
        }
    }

    fn epilogue(&mut self, e: &Epilogue, rank: usize) {
        self.accesses(&e.reads, rank);
        self.accesses(&e.writes, rank);
        self.program(&e.program, e.reads.len(), e.writes.len(), rank);
    }

    /// A nested program that takes `inputs` and gives `outputs` values.
    fn nested(&mut self, p: &SubProgram, inputs: usize, outputs: usize) {
        let got = (p.program.inputs.len(), p.program.outputs.len());
        if got != (inputs, outputs) {
            self.fault(format!(
                "the nested program `{}` takes {} and gives {} values, not {inputs} and {outputs}",
                p.program.name, got.0, got.1
            ));
        }
    }

    fn same_rank(&mut self, what: &str, lengths: &[usize]) {
        if lengths.windows(2).any(|w| w.first() != w.get(1)) {
            self.fault(format!("the spatial attributes of {what} differ in rank: {lengths:?}"));
        }
    }

    fn kernel(&mut self, k: &Kernel) {
        match k {
            Kernel::Map(m) => {
                self.dims("its space", m.space.iter());
                self.accesses(&m.reads, m.space.len());
                self.accesses(&m.writes, m.space.len());
                self.program(&m.program, m.reads.len(), m.writes.len(), m.space.len());
            }
            Kernel::Row(r) => {
                self.dims("its space", r.outer.iter().chain(&r.reduced));
                let (outer, rank) = (r.outer.len(), r.outer.len() + r.reduced.len());
                self.accesses(&r.reads, rank);
                for w in &r.writes {
                    self.access(w, if w.strides.len() == outer { outer } else { rank });
                }
                self.program(&r.program, r.reads.len(), r.writes.len(), rank);
            }
            Kernel::Contract(c) => {
                self.dims("its space", c.batch.iter().chain(&c.m).chain(&c.n).chain(&c.k));
                let (b, m, n, k) = (c.batch.len(), c.m.len(), c.n.len(), c.k.len());
                self.access(&c.lhs, b + m + k);
                self.access(&c.rhs, b + n + k);
                c.lhs_scaling.accesses().for_each(|a| self.access(a, b + m + k));
                c.rhs_scaling.accesses().for_each(|a| self.access(a, b + n + k));
                self.epilogue(&c.epilogue, b + m + n);
            }
            Kernel::Conv(c) => {
                let channels = [c.batch, c.in_channels, c.out_channels];
                let spatial = c.in_spatial.iter().chain(&c.out_spatial).chain(&c.window).chain(&c.pad_low);
                self.dims("its space", channels.iter().chain(spatial));
                let (rank, out) = (c.window.len(), c.out_spatial.len());
                let lengths = [c.in_spatial.len(), out, c.strides.len(), c.dilations.len(), c.pad_low.len(), rank];
                self.same_rank("a convolution", &lengths);
                self.access(&c.input, 2 + rank);
                self.access(&c.weight, 2 + rank);
                c.input_zero.iter().chain(&c.weight_zero).for_each(|a| self.access(a, 2 + rank));
                self.epilogue(&c.epilogue, 2 + rank);
            }
            Kernel::Window(w) => {
                let spatial = w.in_spatial.iter().chain(&w.out_spatial).chain(&w.pad_low).chain(&w.pad_high);
                self.dims("its space", w.outer.iter().chain(spatial));
                let rank = w.window.len();
                let lengths = [w.in_spatial.len(), w.out_spatial.len(), w.strides.len(), w.dilations.len()];
                self.same_rank("a window", &[&lengths[..], &[w.pad_low.len(), w.pad_high.len(), rank]].concat());
                self.access(&w.input, w.outer.len() + rank);
                self.access(&w.output, w.outer.len() + rank);
            }
            Kernel::Attention(a) => {
                let sizes = [a.batch, a.heads, a.kv_heads, a.queries, a.keys, a.head_dim, a.value_dim];
                self.dims("its space", sizes.iter());
                [&a.q, &a.k, &a.v, &a.out].into_iter().for_each(|x| self.access(x, 4));
                if let Some(m) = &a.mask {
                    self.access(&m.access, 4);
                }
            }
            Kernel::Library(l) => {
                self.dims("its attributes", l.dims.iter());
                l.inputs.iter().chain(&l.outputs).for_each(|v| self.view(v));
            }
            Kernel::Branch(b) => {
                std::iter::once(&b.cond).chain(&b.captures).chain(&b.outputs).for_each(|v| self.view(v));
                for p in [&b.then_branch, &b.else_branch] {
                    self.nested(p, b.captures.len(), b.outputs.len());
                }
            }
            Kernel::Loop(l) => {
                let views = l.trip_count.iter().chain(&l.cond).chain(&l.carried).chain(&l.captures);
                views.chain(&l.outputs).for_each(|v| self.view(v));
                self.nested(&l.body, 2 + l.carried.len() + l.captures.len(), 1 + l.outputs.len());
                if l.outputs.len() < l.carried.len() {
                    self.fault("it carries more values than it gives");
                }
            }
            Kernel::Scan(s) => {
                self.dims("its steps", [s.steps].iter());
                let sliced = || s.scanned.iter().chain(&s.stacked);
                let views = s.carried.iter().chain(&s.captures).chain(&s.outputs).chain(sliced().map(|p| &p.0));
                views.for_each(|v| self.view(v));
                if let Some((v, axis, _)) = sliced().find(|(v, axis, _)| *axis >= v.sizes.len()) {
                    self.fault(format!("it slices axis {axis} of {} axes", v.sizes.len()));
                }
                if s.outputs.len() != s.carried.len() {
                    self.fault("it does not give what it carries");
                }
                let inputs = s.carried.len() + s.scanned.len() + s.captures.len();
                self.nested(&s.body, inputs, s.outputs.len() + s.stacked.len());
            }
            Kernel::Call(c) => {
                c.inputs.iter().chain(&c.outputs).for_each(|v| self.view(v));
                self.nested(&c.body, c.inputs.len(), c.outputs.len());
            }
        }
    }
}
