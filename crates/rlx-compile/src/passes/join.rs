//! Joins products that share their left operand: queries, keys and values of attention are one product, of their weights side by side.
//!
//! `dot(x, a)`, `dot(x, b)`, `dot(x, c)` become slices of `dot(x, concat(a, b, c))`: `x` is read and packed once, and one kernel runs
//! where three did. The weights are joined in prepare, so only those that depend on parameters alone are. Biases are joined too; where
//! one product has none its own is −0, which leaves every number as it is.
//!
//! Only for targets whose products are worth it ([`Claims::joined_products`](crate::Claims::joined_products)), and only products that go (through views) to attention, rotary embeddings or norms: elsewhere what follows runs in the product's own
//! kernel, which reading a slice would prevent.

use std::collections::{BTreeMap, BTreeSet};

use rlx_ir::ops::contraction::DotGeneral;
use rlx_ir::ops::elementwise::{Binary, Elementwise};
use rlx_ir::ops::{Contraction, Neural, ShapeOp};
use rlx_ir::{DType, Dim, Graph, IrError, Loc, Module, Node, NodeId, Op, Tensor, ValueId};

use super::split::invariants;
use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::remark::RemarkKind;
use crate::rewrite::{Rewriter, map_module};

/// The pass.
pub const PASS: Pass =
    Pass { name: "join", phase: Phase::Transform, summary: "joins products that share their left operand", run };

fn run(m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    if !cx.claims.is_none_or(|c| c.joined_products) {
        return Ok(m);
    }
    Ok(map_module(m, &mut |g| join(g, cx))?)
}

/// How many views are followed.
const DEEPEST: usize = 8;

/// A product that can be joined with others.
struct Member {
    node: NodeId,
    rhs: ValueId,
    /// Size of the right operand's free axis.
    columns: i64,
    /// The node that adds the bias, and the bias.
    bias: Option<(NodeId, ValueId)>,
    /// What the others read: the product, or its sum with the bias.
    result: ValueId,
}

/// What members of a group have in common: the left operand, the product, and the right operand's type but for its free axis.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    lhs: ValueId,
    lhs_contract: Vec<usize>,
    rhs_contract: Vec<usize>,
    accumulate: Option<DType>,
    dtype: DType,
}

/// What is looked at.
struct Finder<'g> {
    g: &'g Graph,
    users: Vec<Vec<NodeId>>,
    counts: Vec<usize>,
    /// Nodes that depend on parameters alone.
    invariant: Vec<bool>,
}

impl Finder<'_> {
    /// The only reader of a value that nothing else needs.
    fn only_user(&self, v: ValueId) -> Option<NodeId> {
        match (self.counts.get(v.index()), &self.users.get(v.index())?[..]) {
            (Some(1), &[user]) => Some(user),
            _ => None,
        }
    }

    fn is_invariant(&self, v: ValueId) -> bool {
        let by_node = self.g.def_node(v).map(|(id, _)| self.invariant.get(id.index()).copied().unwrap_or(false));
        by_node.unwrap_or_else(|| self.g.params().iter().any(|p| p.value == v))
    }

    /// True for a parameter or literal, perhaps under other axes or in fewer bits. Of one that is made wider a kernel keeps the
    /// narrow form, which joining would lose.
    fn is_stored(&self, v: ValueId, depth: usize) -> bool {
        let Some((_, node)) = self.g.def_node(v) else { return self.is_invariant(v) };
        if depth >= DEEPEST {
            return false;
        }
        match (&node.op, &node.operands[..]) {
            (Op::ShapeOp(ShapeOp::Constant(_)), _) => true,
            (Op::ShapeOp(ShapeOp::Transpose(_) | ShapeOp::Reshape(_)), &[x]) => self.is_stored(x, depth + 1),
            (Op::Elementwise(Elementwise::Convert { .. }), &[x]) => {
                let bits = |v| self.g.tensor_type(v).filter(|t| t.dtype.is_float()).map(|t| t.dtype.bits());
                matches!((bits(x), bits(v)), (Some(from), Some(to)) if to <= from) && self.is_stored(x, depth + 1)
            }
            _ => false,
        }
    }

    /// The bias that is added to a product of so many columns.
    fn bias(&self, product: ValueId, columns: i64) -> Option<(NodeId, ValueId)> {
        let id = self.only_user(product)?;
        let node = self.g.node(id);
        let (Op::Elementwise(Elementwise::Binary(Binary::Add)), &[x, y]) = (&node.op, &node.operands[..]) else {
            return None;
        };
        let bias = if x == product { y } else { x };
        let ty = self.g.tensor_type(bias)?;
        let fits = ty.shape.rank() == 1 && ty.shape.first().and_then(Dim::as_const) == Some(columns);
        (fits && self.is_invariant(bias)).then_some((id, bias))
    }

    /// True if all that reads a value walks it where it lies: no elementwise op that would run in the product's kernel, no output.
    fn is_walked(&self, v: ValueId, depth: usize) -> bool {
        let users = &self.users[v.index()];
        self.counts[v.index()] == users.len()
            && !users.is_empty()
            && depth < DEEPEST
            && users.iter().all(|&u| {
                let node = self.g.node(u);
                match &node.op {
                    Op::Neural(
                        Neural::Attention(_) | Neural::RotaryEmbedding(_) | Neural::RmsNorm(_) | Neural::LayerNorm(_),
                    ) => true,
                    Op::ShapeOp(ShapeOp::Transpose(_) | ShapeOp::Reshape(_)) => {
                        node.results.iter().all(|&r| self.is_walked(r, depth + 1))
                    }
                    _ => false,
                }
            })
    }

    fn member(&self, id: NodeId) -> Option<(Key, Member)> {
        let node = self.g.node(id);
        let (Op::Contraction(Contraction::DotGeneral(dot)), &[lhs, rhs], &[product]) =
            (&node.op, &node.operands[..], &node.results[..])
        else {
            return None;
        };
        let ty = self.g.tensor_type(rhs)?;
        let [free] = dot.rhs_free(ty.shape.rank())[..] else { return None };
        let columns = ty.shape.get(free).and_then(Dim::as_const).filter(|&n| n > 0)?;
        let joins = dot.lhs_batch.is_empty()
            && !dot.rhs_contract.is_empty()
            && ty.dtype.is_float()
            && !self.is_invariant(lhs)
            && self.is_invariant(rhs)
            && self.is_stored(rhs, 0);
        if !joins {
            return None;
        }
        let bias = self.bias(product, columns);
        let result = bias.and_then(|(id, _)| self.g.node(id).results.first().copied()).unwrap_or(product);
        let DotGeneral { lhs_contract, rhs_contract, accumulate, .. } = dot.clone();
        let key = Key { lhs, lhs_contract, rhs_contract, accumulate, dtype: ty.dtype };
        self.is_walked(result, 0).then_some((key, Member { node: id, rhs, columns, bias, result }))
    }

    /// Groups of two and more.
    fn groups(&self) -> Vec<Vec<Member>> {
        let mut found: BTreeMap<Key, Vec<Member>> = BTreeMap::new();
        for (key, member) in self.g.node_ids().filter_map(|id| self.member(id)) {
            found.entry(key).or_default().push(member);
        }
        found.into_values().filter(|of| of.len() > 1).collect()
    }
}

fn join(g: Graph, cx: &PassCx<'_>) -> Result<Graph, IrError> {
    let product = |n: &Node| matches!(n.op, Op::Contraction(Contraction::DotGeneral(_)));
    if g.nodes().iter().filter(|n| product(n)).nth(1).is_none() {
        return Ok(g);
    }
    let invariant = invariants(&g, &[], &|_| true);
    let groups = Finder { g: &g, users: g.users(), counts: g.use_counts(), invariant }.groups();
    if groups.is_empty() {
        return Ok(g);
    }
    // Weights and biases may be made after the first product of a group: what they are made of goes before all else.
    let mut early: BTreeSet<NodeId> = BTreeSet::new();
    let mut wanted: Vec<ValueId> = Vec::new();
    let mut first: BTreeMap<NodeId, &[Member]> = BTreeMap::new();
    let mut gone: BTreeSet<NodeId> = BTreeSet::new();
    for group in &groups {
        first.extend(group.first().map(|m| (m.node, &group[..])));
        for m in group {
            wanted.push(m.rhs);
            wanted.extend(m.bias.map(|(_, v)| v));
            gone.insert(m.node);
            gone.extend(m.bias.map(|(id, _)| id));
        }
    }
    while let Some(v) = wanted.pop() {
        if let Some((id, node)) = g.def_node(v)
            && early.insert(id)
        {
            wanted.extend(&node.operands);
        }
    }
    let mut rw = Rewriter::new(&g)?;
    for &id in &early {
        rw.copy(g.node(id))?;
    }
    for id in g.node_ids().filter(|id| !early.contains(id)) {
        match first.get(&id) {
            Some(group) => emit(&mut rw, group, cx)?,
            None if gone.contains(&id) => {}
            None => rw.copy(g.node(id))?,
        }
    }
    rw.finish()
}

/// The product of a group, and what its members have become.
fn emit(rw: &mut Rewriter<'_>, group: &[Member], cx: &PassCx<'_>) -> Result<(), IrError> {
    let g = rw.old();
    let Some(head) = group.first().map(|m| g.node(m.node)) else { return Ok(()) };
    let (Op::Contraction(Contraction::DotGeneral(dot)), &[lhs, rhs]) = (&head.op, &head.operands[..]) else {
        return Ok(());
    };
    let loc = group.iter().fold(Loc::none(), |l, m| l.merge(&g.node(m.node).loc));
    rw.b.set_loc(loc.clone());
    let free = dot.rhs_free(rw.b.shape(rw.get(rhs)?)?.rank()).first().copied().unwrap_or(0);
    let weights: Vec<ValueId> = group.iter().map(|m| rw.get(m.rhs)).collect::<Result<_, _>>()?;
    let weights = rw.b.concat(&weights, free as i64)?;
    let lhs = rw.get(lhs)?;
    let mut y = rw.b.op1(dot.clone(), &[lhs, weights])?;
    if group.iter().any(|m| m.bias.is_some()) {
        let dtype = rw.b.dtype(y)?;
        let mut parts = Vec::with_capacity(group.len());
        for m in group {
            parts.push(match m.bias {
                Some((_, bias)) => rw.get(bias)?,
                None => {
                    let columns = usize::try_from(m.columns).unwrap_or(0);
                    let zeros = Tensor::full(dtype, &[columns], -0.0).map_err(|e| IrError::Eval(e.to_string()))?;
                    rw.b.constant(zeros)?
                }
            });
        }
        let bias = rw.b.concat(&parts, 0)?;
        y = rw.b.add(y, bias)?;
    }
    let whole: Vec<Dim> = rw.b.shape(y)?.iter().cloned().collect();
    let mut from = 0;
    for m in group {
        let mut starts = vec![Dim::ZERO; whole.len()];
        let mut limits = whole.clone();
        if let (Some(s), Some(l)) = (starts.last_mut(), limits.last_mut()) {
            *s = from.into();
            *l = (from + m.columns).into();
        }
        from += m.columns;
        let part = rw.b.slice(y, starts, limits, vec![1; whole.len()])?;
        rw.set(m.result, part);
    }
    group.iter().for_each(|_| cx.count("joined product"));
    cx.remark(RemarkKind::Applied, &loc, format!("{} products of one left operand are one", group.len()));
    Ok(())
}
