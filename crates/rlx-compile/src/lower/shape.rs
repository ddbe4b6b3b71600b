//! Shape ops: index maps, the two that put tensors into a larger one, and the one that reads bits as another dtype.

use rlx_ir::ops::ShapeOp;
use rlx_ir::ops::shape::{PadMode, Slice};
use rlx_ir::{Dim, Node, NodeId};

use crate::error::CompileError;
use crate::remark::RemarkKind;

use super::groups::ItemOp;
use super::planner::Planner;
use super::roots::Source;
use super::views::{Step, Val, Walk};

impl Planner<'_> {
    pub(super) fn shape_op(
        &mut self,
        id: NodeId,
        node: &Node,
        op: &ShapeOp,
        mut args: Vec<Val>,
    ) -> Result<(), CompileError> {
        match op {
            ShapeOp::Constant(c) => {
                let v = self.constant(&c.value);
                let r = self.result(node)?;
                self.set(r, v);
                return Ok(());
            }
            ShapeOp::Iota(i) => {
                let r = self.result(node)?;
                let t = self.ty(r)?;
                let root = self.new_root(Source::Iota(i.axis), t.dtype, t.shape.to_vec());
                self.set(r, Val::whole(root, &t.shape));
                return Ok(());
            }
            ShapeOp::Concat(_) => {
                self.single(id, node, &args)?;
                return Ok(());
            }
            ShapeOp::Pad(_) | ShapeOp::BitcastConvert(_) => {
                if matches!(op, ShapeOp::Pad(p) if p.mode == PadMode::Constant) {
                    self.single(id, node, &args)?;
                } else {
                    let stored: Vec<Val> = args.iter().map(|v| self.stored(v, &node.loc)).collect();
                    self.single(id, node, &stored)?;
                }
                return Ok(());
            }
            ShapeOp::ReadDims(_) => {
                let operand = args.pop();
                self.single(id, node, operand.as_slice())?;
                // The result is the operand; where its elements are wanted as numbers, they are sizes now.
                if !self.known_elements(node)?
                    && let Some(v) = operand
                {
                    let r = self.result(node)?;
                    self.set(r, v);
                }
                return Ok(());
            }
            ShapeOp::FromDims(_) | ShapeOp::ShapeOf(_) => {
                self.single(id, node, &args)?;
                return Ok(());
            }
            _ => {}
        }
        let r = self.result(node)?;
        let t = self.ty(r)?;
        let Some(x) = args.pop() else {
            return Err(CompileError::Lir(format!("`{}` has no operand", node.op)));
        };
        let v = match op {
            ShapeOp::Reshape(_) => {
                self.prefer_order(&x, &t.shape);
                x.reshape(&t.shape)
            }
            ShapeOp::Transpose(op) => x.transpose(&op.perm),
            ShapeOp::BroadcastTo(_) => x.broadcast(&t.shape),
            ShapeOp::Slice(op) => slice(x, op, &t.shape),
            ShapeOp::Reverse(op) => {
                let flip = |i: usize| op.axes.contains(&i);
                let starts = x.dims.iter().enumerate().map(|(i, d)| if flip(i) { d - 1 } else { Dim::ZERO }).collect();
                let steps = (0..x.dims.len()).map(|i| if flip(i) { -1 } else { 1 }).collect();
                x.slice(starts, steps, t.shape.to_vec())
            }
            _ => return Err(CompileError::Lir(format!("`{}` is no view", node.op))),
        };
        let v = if self.options.fusion.allows("views") {
            v
        } else {
            // Each node a kernel of its own.
            let copied = self.elementwise(ItemOp::Copy, &[v], t.dtype, &t.shape, &node.loc);
            self.remark(RemarkKind::Note, &node.loc, format!("copied: `{}` as views are off", node.op.name()));
            copied
        };
        self.set(r, v);
        Ok(())
    }

    /// A reshape that merges transposed axes is a view if the root lies in memory in that order.
    fn prefer_order(&mut self, x: &Val, to: &[Dim]) {
        let [Step::Transpose(perm)] = x.steps.as_slice() else { return };
        let root = self.root(x.root);
        let computed = matches!(root.source, Source::Item(_) | Source::Node(_));
        if !computed || root.order.is_some() || root.reshaped {
            return;
        }
        let reshape = Step::Reshape { from: x.dims.clone(), to: to.to_vec() };
        if Walk::dense(&root.dims).steps(&x.steps).and_then(|w| w.step(&reshape)).is_none() {
            self.roots[x.root.index()].order = Some(perm.clone());
        }
    }
}

fn slice(x: Val, op: &Slice, to: &[Dim]) -> Val {
    x.slice(op.starts.clone(), op.strides.clone(), to.to_vec())
}
