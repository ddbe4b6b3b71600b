//! Kernels with accesses of fixed meaning: contractions, convolutions, attention, library ops.

use rlx_ir::ops::contraction::DotGeneral;
use rlx_ir::ops::neural::{Attention, AttnLayout, MaskKind};
use rlx_ir::ops::reduction::ReduceWindow;
use rlx_ir::ops::{Contraction, Op};
use rlx_ir::{Dim, Node, NodeId};

use crate::error::CompileError;
use crate::lir::{
    Access, AttentionKernel, AttentionMask, ContractKernel, ConvKernel, Kernel, LibraryKernel, Scaling, View,
    WindowKernel,
};

use super::contract::accumulator;
use super::emit::Emitter;
use super::groups::Group;
use super::scaled::{Scaled, Unmerged};
use super::views::{Val, Walk};

fn pick(dims: &[Dim], axes: &[usize]) -> Vec<Dim> {
    axes.iter().filter_map(|&a| dims.get(a).cloned()).collect()
}

fn short(node: &Node) -> CompileError {
    CompileError::Lir(format!("`{}` has too few operands or axes", node.op))
}

impl Emitter<'_> {
    pub(super) fn contract(&mut self, group: &Group, id: NodeId) -> Result<(), CompileError> {
        let node = self.p.graph.node(id);
        let Op::Contraction(Contraction::DotGeneral(op)) = &node.op else {
            return Err(CompileError::Lir(format!("`{}` is no contraction", node.op)));
        };
        let args = self.p.operands(node)?;
        let [a, b] = args.as_slice() else { return Err(short(node)) };
        let [a, b] = match self.p.scaled.get(&id) {
            Some(both) => both.clone(),
            None => [Scaled::plain(a), Scaled::plain(b)],
        };
        let ([ah, az], [bh, bz]) = ([a.scale, a.zero], [b.scale, b.zero]);
        let (a, b) = (&a.raw, &b.raw);
        let DotGeneral { lhs_batch, rhs_batch, lhs_contract, rhs_contract, .. } = op;
        let (lhs_free, rhs_free) = (op.lhs_free(a.dims.len()), op.rhs_free(b.dims.len()));
        // What each axis of the output space, and so of the operands, is split into.
        let runs =
            self.split_of(group).unwrap_or_else(|| group.space.iter().map(|d| vec![d.clone()]).collect::<Vec<_>>());
        let (batch, rest) = runs.split_at_checked(lhs_batch.len()).ok_or_else(|| short(node))?;
        let (m, n) = rest.split_at_checked(lhs_free.len()).ok_or_else(|| short(node))?;
        let mut k: Vec<Vec<Dim>> = pick(&a.dims, lhs_contract).into_iter().map(|d| vec![d]).collect();
        // Scales of blocks of a contracted axis split that axis.
        let unmerged = [&bz, &bh].map(|v| v.as_ref().and_then(|v| Unmerged::of(v, &self.p.root(v.root).dims)));
        for u in unmerged.iter().flatten() {
            for (run, &axis) in k.iter_mut().zip(rhs_contract) {
                match u.axes.get(axis).map(Vec::as_slice) {
                    Some(&[outer, inner]) if run.len() == 1 => {
                        *run = pick(&u.val.dims, &[outer, inner]);
                    }
                    _ => {}
                }
            }
        }
        let left = ([&lhs_batch[..], &lhs_free, lhs_contract].concat(), [batch, m, &k].concat());
        let right = ([&rhs_batch[..], &rhs_free, rhs_contract].concat(), [batch, n, &k].concat());
        let mut walk = |v: &Val, (axes, runs): &(Vec<usize>, Vec<Vec<Dim>>)| -> Result<Access, CompileError> {
            // An axis that lies as two is there in the runs' own sizes, or the value is copied.
            let apart = Unmerged::of(v, &self.p.root(v.root).dims).filter(|u| {
                let fits = |(&a, run): (&usize, &Vec<Dim>)| {
                    u.axes.get(a).is_some_and(|own| own.len() == 1 || pick(&u.val.dims, own) == *run)
                };
                axes.iter().zip(runs).all(fits)
            });
            let walk = match apart {
                Some(u) => {
                    let (buffer, walk) = self.read(&u.val)?;
                    let parts = axes.iter().zip(runs).filter_map(|(&a, run)| u.axes.get(a).zip(Some(run)));
                    let (mut own, mut own_runs) = (Vec::new(), Vec::new());
                    for (of, run) in parts {
                        own.extend(of.iter().copied());
                        match of.len() {
                            1 => own_runs.push(run.clone()),
                            _ => own_runs.extend(run.iter().map(|d| vec![d.clone()])),
                        }
                    }
                    (buffer, walk.picked(&own).split(&own_runs))
                }
                None => {
                    let (buffer, walk) = self.read(v)?;
                    (buffer, walk.picked(axes).split(runs))
                }
            };
            let (buffer, walk) = walk;
            let all: Vec<usize> = (0..walk.dims.len()).collect();
            Ok(self.access(buffer, &walk, &all))
        };
        let (lhs, rhs) = (walk(a, &left)?, walk(b, &right)?);
        let mut maybe = |v: Option<Val>, side| v.map(|v| walk(&v, side)).transpose();
        let lhs_scaling = Scaling { zero: maybe(az, &left)?, scale: maybe(ah, &left)? };
        let rhs_scaling = Scaling { zero: maybe(bz, &right)?, scale: maybe(bh, &right)? };
        let epilogue = self.epilogue(group)?;
        let result = self.p.ty(self.p.result(node)?)?;
        let kernel = ContractKernel {
            batch: self.dims(&batch.concat()),
            m: self.dims(&m.concat()),
            n: self.dims(&n.concat()),
            k: self.dims(&k.concat()),
            lhs,
            rhs,
            lhs_scaling,
            rhs_scaling,
            acc: accumulator(result.dtype),
            epilogue,
        };
        self.push(Kernel::Contract(kernel));
        Ok(())
    }

    pub(super) fn conv(&mut self, group: &Group, id: NodeId) -> Result<(), CompileError> {
        let node = self.p.graph.node(id);
        let (transposed, strides, dilations, pad_low, groups) = match &node.op {
            Op::Contraction(Contraction::Conv(c)) => (false, &c.strides, &c.dilations, &c.pad_low, c.groups),
            Op::Contraction(Contraction::ConvTranspose(c)) => (true, &c.strides, &c.dilations, &c.pad_low, c.groups),
            op => return Err(CompileError::Lir(format!("`{op}` is no convolution"))),
        };
        let args = self.p.operands(node)?;
        let [x, w, ..] = args.as_slice() else { return Err(short(node)) };
        let result = self.p.ty(self.p.result(node)?)?;
        let ([n, c, in_spatial @ ..], [_, o, out_spatial @ ..], [_, _, window @ ..]) =
            (x.dims.as_slice(), result.shape.dims(), w.dims.as_slice())
        else {
            return Err(short(node));
        };
        let axes: Vec<usize> = (0..x.dims.len()).collect();
        let integers = self.p.scaled.get(&id).cloned();
        let (x_of, w_of) = match &integers {
            Some([x, w]) => (x.clone(), w.clone()),
            None => (Scaled::plain(x), Scaled::plain(w)),
        };
        let mut walk = |v: &Val| {
            let (buffer, walk) = self.read(v)?;
            Ok::<_, CompileError>(self.access(buffer, &walk, &axes))
        };
        let (input, weight) = (walk(&x_of.raw)?, walk(&w_of.raw)?);
        let input_zero = x_of.zero.as_ref().map(&mut walk).transpose()?;
        let weight_zero = w_of.zero.as_ref().map(&mut walk).transpose()?;
        let epilogue = self.epilogue(group)?;
        let kernel = ConvKernel {
            transposed,
            batch: self.dim(n),
            groups,
            in_channels: self.dim(c),
            out_channels: self.dim(o),
            in_spatial: self.dims(in_spatial),
            out_spatial: self.dims(out_spatial),
            window: self.dims(window),
            strides: strides.clone(),
            dilations: dilations.clone(),
            pad_low: self.dims(pad_low),
            input,
            weight,
            input_zero,
            weight_zero,
            acc: accumulator(result.dtype),
            epilogue,
        };
        self.push(Kernel::Conv(kernel));
        Ok(())
    }

    pub(super) fn attention(&mut self, node: &Node, op: &Attention) -> Result<(), CompileError> {
        let args = self.p.operands(node)?;
        let [q, k, v, mask @ ..] = args.as_slice() else { return Err(short(node)) };
        let axes: &[usize] = match op.layout {
            AttnLayout::Bhsd => &[0, 1, 2, 3],
            AttnLayout::Bshd => &[0, 2, 1, 3],
        };
        let sizes = |v: &Val| -> Result<[Dim; 4], CompileError> {
            <[Dim; 4]>::try_from(pick(&v.dims, axes)).map_err(|_| short(node))
        };
        let ([b, h, s, d], [_, hk, t, _], [_, _, _, dv]) = (sizes(q)?, sizes(k)?, sizes(v)?);
        let mut accesses = Vec::new();
        for x in [q, k, v] {
            let (buffer, walk) = self.read(x)?;
            accesses.push(self.access(buffer, &walk, axes));
        }
        let mask = match (op.mask, mask) {
            (MaskKind::None, _) => None,
            (kind, [m]) => {
                let (buffer, walk) = self.read(&m.clone().broadcast(&[b.clone(), h.clone(), s.clone(), t.clone()]))?;
                let access = self.access(buffer, &walk, &[0, 1, 2, 3]);
                Some(AttentionMask { boolean: kind == MaskKind::Bool, access })
            }
            _ => return Err(short(node)),
        };
        let (root, _) = self.result_root(node)?;
        let place = self.place(root)?;
        let out = self.access(place.buffer, &place.walk, axes);
        let Ok([qa, ka, va]) = <[_; 3]>::try_from(accesses) else { return Err(short(node)) };
        let kernel = AttentionKernel {
            batch: self.dim(&b),
            heads: self.dim(&h),
            kv_heads: self.dim(&hk),
            queries: self.dim(&s),
            keys: self.dim(&t),
            head_dim: self.dim(&d),
            value_dim: self.dim(&dv),
            q: qa,
            k: ka,
            v: va,
            out,
            mask,
            scale: op.scale,
            causal: op.causal,
            window: op.window,
            softcap: op.softcap,
        };
        self.push(Kernel::Attention(kernel));
        Ok(())
    }

    pub(super) fn window(&mut self, node: &Node, op: &ReduceWindow) -> Result<(), CompileError> {
        let args = self.p.operands(node)?;
        let [x] = args.as_slice() else { return Err(short(node)) };
        let (root, dims) = self.result_root(node)?;
        let rank = x.dims.len().checked_sub(op.window.len()).ok_or_else(|| short(node))?;
        let (buffer, walk) = self.read(x)?;
        let axes: Vec<usize> = (0..x.dims.len()).collect();
        let input = self.access(buffer, &walk, &axes);
        let place = self.place(root)?;
        let output = self.access(place.buffer, &place.walk, &axes);
        let (outer, in_spatial) = x.dims.split_at(rank);
        let kernel = WindowKernel {
            kind: op.kind,
            outer: self.dims(outer),
            in_spatial: self.dims(in_spatial),
            out_spatial: self.dims(dims.get(rank..).unwrap_or(&[])),
            window: op.window.clone(),
            strides: op.strides.clone(),
            dilations: op.dilations.clone(),
            pad_low: self.dims(&op.pad_low),
            pad_high: self.dims(&op.pad_high),
            count_include_pad: op.count_include_pad,
            input,
            output,
        };
        self.push(Kernel::Window(kernel));
        Ok(())
    }

    /// An op with a kernel of its own: operands as they lie, results dense.
    pub(super) fn library(&mut self, node: &Node) -> Result<(), CompileError> {
        let mut inputs = Vec::new();
        for v in self.p.operands(node)? {
            let (buffer, walk) = self.read(&v)?;
            inputs.push(self.view(buffer, &walk));
        }
        let outputs = self.result_views(node)?;
        let mut dims = Vec::new();
        node.op.def().map_dims(&mut |d| {
            dims.push(d.clone());
            d.clone()
        });
        let dims = self.dims(&dims);
        self.push(Kernel::Library(LibraryKernel { op: node.op.clone(), dims, inputs, outputs }));
        Ok(())
    }

    /// Where a node's results go; none for those that are known without.
    pub(super) fn result_views(&mut self, node: &Node) -> Result<Vec<View>, CompileError> {
        let mut outputs = Vec::new();
        for &r in &node.results {
            let v = self.p.val(r)?;
            if !matches!(self.p.root(v.root).source, super::roots::Source::Node(n) if std::ptr::eq(self.p.graph.node(n), node))
            {
                continue;
            }
            let place = self.place(v.root)?;
            let walk: Walk = place.walk;
            outputs.push(self.view(place.buffer, &walk));
        }
        Ok(outputs)
    }
}
