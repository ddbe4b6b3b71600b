//! Ops over rows as scalar programs: reductions, softmax, norms.

use rlx_ir::op::OpDef;
use rlx_ir::ops::elementwise::{Binary, Elementwise, Unary};
use rlx_ir::ops::neural::{LayerNorm, RmsNorm, Softmax};
use rlx_ir::ops::reduction::{Reduce, ReduceKind};
use rlx_ir::{DType, Dim, Node};

use crate::error::CompileError;
use crate::lir::{Literal, Scope};

use super::groups::{Arg, GroupId, GroupKind, Item, ItemId, ItemOp};
use super::planner::Planner;
use super::views::Val;

/// The dtype that rows of a float dtype are computed in.
fn row_dtype(d: DType) -> DType {
    if d.is_float() && d.bits() < 32 { DType::F32 } else { d }
}

/// A row group being appended to.
struct Rows<'p, 'a> {
    p: &'p mut Planner<'a>,
    group: GroupId,
}

impl Rows<'_, '_> {
    fn scope(&self, args: &[Arg]) -> Scope {
        args.iter()
            .map(|a| match a {
                Arg::Item(i) => self.p.items[i.index()].scope,
                Arg::Val(_, s) => *s,
                Arg::Literal(..) | Arg::Size(_) => Scope::Row,
            })
            .max()
            .unwrap_or(Scope::Row)
    }

    fn push(&mut self, op: Elementwise, args: Vec<Arg>, dtype: DType) -> ItemId {
        let scope = self.scope(&args);
        self.p.push_item(self.group, ItemOp::Apply(op), args, dtype, scope)
    }

    fn unary(&mut self, op: Unary, a: ItemId, dtype: DType) -> ItemId {
        self.push(Elementwise::Unary(op), vec![Arg::Item(a)], dtype)
    }

    fn binary(&mut self, op: Binary, a: ItemId, b: ItemId, dtype: DType) -> ItemId {
        self.push(Elementwise::Binary(op), vec![Arg::Item(a), Arg::Item(b)], dtype)
    }

    fn reduce(&mut self, kind: ReduceKind, a: ItemId, dtype: DType) -> ItemId {
        self.p.push_item(self.group, ItemOp::Reduce(kind), vec![Arg::Item(a)], dtype, Scope::Row)
    }

    /// An argument as an item of a dtype.
    fn converted(&mut self, a: Arg, from: DType, to: DType) -> ItemId {
        match a {
            Arg::Item(i) if from == to => i,
            a if from == to => {
                let scope = self.scope(std::slice::from_ref(&a));
                self.p.push_item(self.group, ItemOp::Copy, vec![a], to, scope)
            }
            a => self.push(Elementwise::Convert { to, saturate: true }, vec![a], to),
        }
    }

    /// An operand broadcast over the whole rows, converted.
    fn operand(&mut self, v: &Val, to: DType) -> ItemId {
        let group = &self.p.groups[self.group.index()];
        let (space, reduced) = (group.space.clone(), group.reduced().to_vec());
        let dtype = self.p.root(v.root).dtype;
        let arg = match self.p.operand(v, &space) {
            Arg::Val(v, _) => {
                let scope = self.p.scope_of(&v, &reduced);
                Arg::Val(v, scope)
            }
            other => other,
        };
        self.converted(arg, dtype, to)
    }

    /// The number of elements of a row.
    fn count(&mut self, dtype: DType) -> ItemId {
        let group = &self.p.groups[self.group.index()];
        let n = Dim::product(group.reduced().iter().filter_map(|&a| group.space.get(a).cloned()));
        match n.as_const() {
            Some(c) => {
                let literal = Arg::Literal(Literal::Float((c as f64).into()), dtype);
                self.p.push_item(self.group, ItemOp::Copy, vec![literal], dtype, Scope::Row)
            }
            None => self.push(Elementwise::Convert { to: dtype, saturate: true }, vec![Arg::Size(n)], dtype),
        }
    }

    fn mean(&mut self, a: ItemId, dtype: DType) -> ItemId {
        let sum = self.reduce(ReduceKind::Sum, a, dtype);
        let n = self.count(dtype);
        self.binary(Binary::Div, sum, n, dtype)
    }

    /// `1 / √(x + eps)`.
    fn inverse_deviation(&mut self, variance: ItemId, eps: f64, dtype: DType) -> ItemId {
        let eps = Arg::Literal(Literal::Float(rlx_ir::element::round_float(dtype, eps).into()), dtype);
        let shifted = self.push(Elementwise::Binary(Binary::Add), vec![Arg::Item(variance), eps], dtype);
        self.unary(Unary::Rsqrt, shifted, dtype)
    }

    /// Times scale, plus bias, where they are.
    fn affine(&mut self, mut y: ItemId, scale: bool, bias: bool, params: &[Val], d: DType) -> ItemId {
        let mut params = params.iter();
        for (there, op) in [(scale, Binary::Mul), (bias, Binary::Add)] {
            if there && let Some(v) = params.next() {
                let v = self.operand(v, d);
                y = self.binary(op, y, v, d);
            }
        }
        y
    }

    /// The last step: rounds to the op's dtype and makes the result a tensor.
    fn finish(mut self, item: ItemId, from: DType, to: DType, node: &Node) -> Result<(), CompileError> {
        let item = self.converted(Arg::Item(item), from, to);
        let root = self.p.item_root(item);
        let r = self.p.result(node)?;
        let shape = &self.p.ty(r)?.shape;
        let dims = self.p.root(root).dims.clone();
        let v = Val::whole(root, &dims).reshape(shape);
        self.p.set(r, v);
        Ok(())
    }
}

impl<'a> Planner<'a> {
    /// The row group in which an op over rows of `x` is computed, and its argument there: the group that makes `x`, if it can take it.
    /// `others` are further operands, which must not be of that group.
    fn rows(&mut self, node: &Node, x: &Val, axes: &[usize], others: &[Val]) -> (GroupId, Arg) {
        let x = &self.stored_rows(x, axes, node);
        let from = |v: &Val, p: &Self| p.item_of(v.root).map(|i| p.group_of(i));
        let crossed = from(x, self).is_some_and(|g| others.iter().any(|v| from(v, self) == Some(g)));
        if self.options.fusion.allows("row")
            && x.steps.is_empty()
            && let Some((g, item)) = self.open_group(x.root)
        {
            let group = &self.groups[g.index()];
            let whole = group.space == x.dims;
            let fits = match &group.kind {
                GroupKind::Map => whole && self.varies_along(g, axes),
                GroupKind::Row(reduced) => whole && reduced == axes && self.items[item.index()].scope == Scope::Element,
                _ => false,
            };
            if fits && !crossed {
                let was = group.kind.describe();
                if group.kind == GroupKind::Map {
                    self.become_row(g, axes);
                }
                let loc = self.groups[g.index()].loc.merge(&node.loc);
                self.groups[g.index()].loc = loc;
                self.applied(&node.loc, format!("fused {was} into row of {}", node.op.name()));
                self.scales_apart(node, others);
                return (g, Arg::Item(item));
            }
        }
        if let Some(r) = self.sunk_rows(node, x, axes, crossed) {
            self.scales_apart(node, others);
            return r;
        }
        if let Some(why) = self.why_not_in_rows(x, axes, crossed) {
            self.missed(&node.loc, format!("operand not fused into row of {}: {why}", node.op.name()));
        }
        self.scales_apart(node, others);
        if let Some(r) = self.shared_rows(x, axes, others) {
            return r;
        }
        let g = self.new_group(GroupKind::Row(axes.to_vec()), x.dims.clone(), node.loc.clone());
        (g, Arg::Val(x.clone(), Scope::Element))
    }

    /// Rows over what a kernel makes by a cheap function of another of its values: that value is read instead, so that it is in memory once
    /// where both are needed, as a tensor and the largest of its magnitudes are.
    fn sunk_rows(&mut self, node: &Node, x: &Val, axes: &[usize], crossed: bool) -> Option<(GroupId, Arg)> {
        if crossed || !self.options.fusion.allows("row") || self.root(x.root).uses > 0 {
            return None;
        }
        let item = self.item_of(x.root)?;
        let own = self.group_of(item);
        let Item { op, args, dtype, .. } = self.items.get(item.index())?.clone();
        let (ItemOp::Apply(cheap @ Elementwise::Unary(Unary::Abs | Unary::Neg)), [Arg::Item(from)]) = (op, &args[..])
        else {
            return None;
        };
        let kind = &self.groups[own.index()].kind;
        if !matches!(kind, GroupKind::Contract(_) | GroupKind::Conv(_)) || self.group_of(*from) != own {
            return None;
        }
        let root = self.item_root(*from);
        let source = Val { root, ..x.clone() };
        self.sunk = true;
        self.applied(&node.loc, format!("moved {} into row of {}", cheap.name(), node.op.name()));
        let g = self.new_group(GroupKind::Row(axes.to_vec()), source.dims.clone(), node.loc.clone());
        let op = ItemOp::Apply(cheap);
        let made = self.push_item(g, op, vec![Arg::Val(source, Scope::Element)], dtype, Scope::Element);
        Some((g, Arg::Item(made)))
    }

    /// Says of scales and biases that a kernel computes that they are read from memory.
    fn scales_apart(&mut self, node: &Node, others: &[Val]) {
        if others.iter().any(|v| self.item_of(v.root).is_some()) {
            let why = "scale and bias are read from memory";
            self.missed(&node.loc, format!("operand not fused into row of {}: {why}", node.op.name()));
        }
    }

    /// An open row group over the same axes that already reads `x`, so that it is read once.
    fn shared_rows(&self, x: &Val, axes: &[usize], others: &[Val]) -> Option<(GroupId, Arg)> {
        if !self.options.fusion.allows("row") {
            return None;
        }
        let g = GroupId(self.groups.len().checked_sub(1)? as u32);
        let group = &self.groups[g.index()];
        let same = group.kind == GroupKind::Row(axes.to_vec()) && group.space == x.dims;
        let reads = |i: &ItemId| self.items[i.index()].args.iter().any(|a| matches!(a, Arg::Val(v, _) if v == x));
        let crossed = others.iter().any(|v| self.item_of(v.root).is_some_and(|i| self.group_of(i) == g));
        (same && !crossed && !group.used && group.merged.is_none() && group.items.iter().any(reads))
            .then(|| (g, Arg::Val(x.clone(), Scope::Element)))
    }

    /// Rows must vary along themselves: what readers make themselves or what is broadcast along the row is put into memory first.
    fn stored_rows(&mut self, x: &Val, axes: &[usize], node: &Node) -> Val {
        let free = self.root(x.root).is_free();
        if !free && (axes.is_empty() || self.scope_of(x, axes) == Scope::Element) {
            return x.clone();
        }
        if free {
            return self.stored(x, &node.loc);
        }
        let why = format!("copied: the operand of {}, because it does not vary along the row", node.op.name());
        self.remark(crate::remark::RemarkKind::Note, &node.loc, why);
        let dtype = self.root(x.root).dtype;
        let g = self.new_group(GroupKind::Map, x.dims.clone(), node.loc.clone());
        let arg = self.operand(x, &x.dims);
        let item = self.push_item(g, ItemOp::Copy, vec![arg], dtype, Scope::Element);
        self.groups[g.index()].last = self.position().saturating_sub(1);
        let root = self.item_root(item);
        Val::whole(root, &x.dims)
    }

    pub(super) fn reduce(&mut self, node: &Node, op: &Reduce, args: &[Val]) -> Result<(), CompileError> {
        let [x] = args else { return Err(CompileError::Lir(format!("`{}` takes one operand", node.op))) };
        if op.axes.is_empty() {
            let r = self.result(node)?;
            self.set(r, x.clone());
            return Ok(());
        }
        let dtype = self.root(x.root).dtype;
        let acc = row_dtype(dtype);
        let (group, x) = self.rows(node, x, &op.axes, &[]);
        let mut rows = Rows { p: self, group };
        let x = rows.converted(x, dtype, acc);
        let y = rows.reduce(op.kind, x, acc);
        rows.finish(y, acc, dtype, node)
    }

    pub(super) fn softmax(&mut self, node: &Node, op: &Softmax, args: &[Val]) -> Result<(), CompileError> {
        let [x] = args else { return Err(CompileError::Lir(format!("`{}` takes one operand", node.op))) };
        let dtype = self.root(x.root).dtype;
        let d = row_dtype(dtype);
        let (group, x) = self.rows(node, x, &[op.axis], &[]);
        let mut rows = Rows { p: self, group };
        let x = rows.converted(x, dtype, d);
        let max = rows.reduce(ReduceKind::Max, x, d);
        let shifted = rows.binary(Binary::Sub, x, max, d);
        let e = rows.unary(Unary::Exp, shifted, d);
        let sum = rows.reduce(ReduceKind::Sum, e, d);
        let y = if op.log {
            let l = rows.unary(Unary::Log, sum, d);
            rows.binary(Binary::Sub, shifted, l, d)
        } else {
            rows.binary(Binary::Div, e, sum, d)
        };
        rows.finish(y, d, dtype, node)
    }

    pub(super) fn layer_norm(&mut self, node: &Node, op: &LayerNorm, args: &[Val]) -> Result<(), CompileError> {
        let Some((x, params)) = args.split_first() else {
            return Err(CompileError::Lir(format!("`{}` has no operand", node.op)));
        };
        let dtype = self.root(x.root).dtype;
        let d = row_dtype(dtype);
        let (group, x) = self.rows(node, x, &op.axes, params);
        let mut rows = Rows { p: self, group };
        let x = rows.converted(x, dtype, d);
        let mean = rows.mean(x, d);
        let centred = rows.binary(Binary::Sub, x, mean, d);
        let square = rows.binary(Binary::Mul, centred, centred, d);
        let variance = rows.mean(square, d);
        let inverse = rows.inverse_deviation(variance, op.eps.get(), d);
        let y = rows.binary(Binary::Mul, centred, inverse, d);
        let y = rows.affine(y, op.has_scale, op.has_bias, params, d);
        rows.finish(y, d, dtype, node)
    }

    pub(super) fn rms_norm(&mut self, node: &Node, op: &RmsNorm, args: &[Val]) -> Result<(), CompileError> {
        let Some((x, params)) = args.split_first() else {
            return Err(CompileError::Lir(format!("`{}` has no operand", node.op)));
        };
        let dtype = self.root(x.root).dtype;
        let d = row_dtype(dtype);
        let (group, x) = self.rows(node, x, &op.axes, params);
        let mut rows = Rows { p: self, group };
        let x = rows.converted(x, dtype, d);
        let square = rows.binary(Binary::Mul, x, x, d);
        let mean = rows.mean(square, d);
        let inverse = rows.inverse_deviation(mean, op.eps.get(), d);
        let y = rows.binary(Binary::Mul, x, inverse, d);
        let y = rows.affine(y, op.has_scale, false, params, d);
        rows.finish(y, d, dtype, node)
    }
}
