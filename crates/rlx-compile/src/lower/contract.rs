//! Contractions: what they accumulate, as the first instruction of an epilogue.

use rlx_ir::ops::Contraction;
use rlx_ir::ops::elementwise::{Binary, Elementwise};
use rlx_ir::{DType, Dim, Node, NodeId, Op};

use crate::error::CompileError;
use crate::lir::Scope;
use crate::remark::RemarkKind;

use super::groups::{Arg, GroupId, GroupKind, ItemId, ItemOp};
use super::planner::Planner;
use super::scaled::Scaled;
use super::views::Val;

/// The dtype that products are summed in.
pub(super) fn accumulator(result: DType) -> DType {
    if result.is_float() && result.bits() <= 32 { DType::F32 } else { result }
}

impl Planner<'_> {
    pub(super) fn dot_general(&mut self, id: NodeId, node: &Node, args: &[Val]) -> Result<(), CompileError> {
        let [a, b] = args else { return Err(CompileError::Lir(format!("`{}` takes two operands", node.op))) };
        let mut operands = vec![a.clone(), b.clone()];
        let sum = accumulator(self.ty(self.result(node)?)?.dtype);
        if self.takes_scaled && self.options.fusion.allows("scaled") {
            let found = [self.scaled(a, sum, false), self.scaled(b, sum, true)];
            let refused = found.iter().filter_map(|s| s.as_ref().err().copied().flatten());
            let refused: Vec<String> =
                refused.map(|why| format!("integers of `{}` are widened first: {why}", node.op.name())).collect();
            self.missed_all(&node.loc, refused);
            let [left, right] = found.map(Result::ok);
            // Integers: both sides must be small for a product of small ones.
            let small = |s: &Option<Scaled>, v: &Val, p: &Self| {
                s.is_some() || matches!(p.root(v.root).dtype, DType::I8 | DType::U8)
            };
            let both = sum.is_float() || small(&left, a, self) && small(&right, b, self);
            if both && (left.is_some() || right.is_some()) {
                let pair = [left.unwrap_or_else(|| Scaled::plain(a)), right.unwrap_or_else(|| Scaled::plain(b))];
                operands = pair.iter().flat_map(|s| s.vals().cloned()).collect();
                let what = "its integer operands are read as they are".to_string();
                self.remark(RemarkKind::Applied, &node.loc, format!("`{}`: {what}", node.op.name()));
                self.scaled.insert(id, pair);
            }
        }
        let (group, acc) = self.accumulate(node, GroupKind::Contract(id), &operands)?;
        self.finish_acc(group, acc, node)
    }

    /// A convolution or its transpose.
    pub(super) fn conv(&mut self, id: NodeId, node: &Node, args: &[Val]) -> Result<(), CompileError> {
        let [x, w, bias @ ..] = args else {
            return Err(CompileError::Lir(format!("`{}` takes at least two operands", node.op)));
        };
        let operands = match self.integers(node, x, w)? {
            Some(pair) => {
                let operands = pair.iter().flat_map(|s| s.vals().cloned()).collect();
                self.scaled.insert(id, pair);
                operands
            }
            None => vec![x.clone(), w.clone()],
        };
        let (group, mut acc) = self.accumulate(node, GroupKind::Conv(id), &operands)?;
        if let [bias] = bias {
            let space = self.groups[group.index()].space.clone();
            let mut column = vec![Dim::ONE; space.len().saturating_sub(1)];
            if let (Some(c), Some(d)) = (column.first_mut(), bias.dims.first()) {
                *c = d.clone();
            }
            let dtype = self.items[acc.index()].dtype;
            let from = self.root(bias.root).dtype;
            let mut arg = self.operand(&bias.clone().reshape(&column), &space);
            if from != dtype {
                let convert = ItemOp::Apply(Elementwise::Convert { to: dtype, saturate: true });
                arg = Arg::Item(self.push_item(group, convert, vec![arg], dtype, Scope::Element));
            }
            let add = ItemOp::Apply(Elementwise::Binary(Binary::Add));
            acc = self.push_item(group, add, vec![Arg::Item(acc), arg], dtype, Scope::Element);
        }
        self.finish_acc(group, acc, node)
    }

    /// The operands of a convolution of 8-bit integers less zero points, if it is one: one zero point for the input, one for the
    /// weight or one for each output channel.
    fn integers(&mut self, node: &Node, x: &Val, w: &Val) -> Result<Option<[Scaled; 2]>, CompileError> {
        let sum = accumulator(self.ty(self.result(node)?)?.dtype);
        let plain = matches!(node.op, Op::Contraction(Contraction::Conv(_)));
        if !plain || sum != DType::I32 || !self.takes_scaled || !self.options.fusion.allows("scaled") {
            return Ok(None);
        }
        let (left, right) = (self.scaled(x, sum, false).ok(), self.scaled(w, sum, true).ok());
        let small = |s: &Option<Scaled>, v: &Val, p: &Self| {
            s.as_ref().is_none_or(|s| s.scale.is_none())
                && matches!(p.root(s.as_ref().map_or(v, |s| &s.raw).root).dtype, DType::I8 | DType::U8)
        };
        // Along which axes a zero point differs.
        let still = |s: &Option<Scaled>, p: &Self, from: usize| {
            s.as_ref().and_then(|s| s.zero.as_ref()).is_none_or(|z| {
                let walk = p.seen(z);
                (walk.dims.iter().zip(&walk.strides).skip(from)).all(|(d, s)| *d == Dim::ONE || *s == Dim::ZERO)
            })
        };
        if !small(&left, x, self) || !small(&right, w, self) || !still(&left, self, 0) || !still(&right, self, 1) {
            return Ok(None);
        }
        let what = "its integer operands are read as they are".to_string();
        self.remark(RemarkKind::Applied, &node.loc, format!("`{}`: {what}", node.op.name()));
        Ok(Some([left.unwrap_or_else(|| Scaled::plain(x)), right.unwrap_or_else(|| Scaled::plain(w))]))
    }

    fn accumulate(
        &mut self,
        node: &Node,
        kind: GroupKind,
        operands: &[Val],
    ) -> Result<(GroupId, ItemId), CompileError> {
        for v in operands {
            self.use_val(v);
        }
        let r = self.result(node)?;
        let t = self.ty(r)?;
        let group = self.new_group(kind, t.shape.to_vec(), node.loc.clone());
        let acc = self.push_item(group, ItemOp::Acc, Vec::new(), accumulator(t.dtype), Scope::Element);
        Ok((group, acc))
    }

    fn finish_acc(&mut self, group: GroupId, acc: ItemId, node: &Node) -> Result<(), CompileError> {
        let r = self.result(node)?;
        let t = self.ty(r)?;
        let mut item = acc;
        if self.items[acc.index()].dtype != t.dtype {
            let convert = ItemOp::Apply(Elementwise::Convert { to: t.dtype, saturate: true });
            item = self.push_item(group, convert, vec![Arg::Item(acc)], t.dtype, Scope::Element);
        }
        let root = self.item_root(item);
        self.set(r, Val::whole(root, &t.shape));
        Ok(())
    }
}
