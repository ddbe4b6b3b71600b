//! One spelling for what can be spelled in several ways, and none for what does nothing.
//!
//! A graph is rebuilt node by node; each node is offered to the rules when its operands are already in their simplest form, and what a
//! rule emits is offered again. Rules keep every bit of the result: of x + 0 and x only one gives +0 for −0. A value whose elements
//! follow from shapes alone becomes a literal of dims, so that shape arithmetic disappears.

mod control;
mod elementwise;
mod facts;
mod views;

use std::borrow::Cow;

use rlx_ir::ops::ShapeOp;
use rlx_ir::ops::shape::{Constant, FromDims};
use rlx_ir::{Dim, Graph, IrError, Module, Op, Stage, Tensor, ValueId};

use super::bind_dims;
use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::remark::RemarkKind;
use crate::rewrite::{Rewriter, rebuild_graphs};

pub(super) use facts::{Number, uniform};

/// The pass.
pub const PASS: Pass = Pass {
    name: "canonicalise",
    phase: Phase::Canonical,
    summary: "removes what does nothing, merges chains, turns shape arithmetic into dims",
    run,
};

/// Rebuilding stops after so many rounds, whether or not anything still changes.
const MAX_ROUNDS: usize = 4;
/// Rules may emit what other rules rewrite, at most this deep.
const MAX_DEPTH: usize = 24;

type Found = Result<Option<ValueId>, IrError>;
type Rule = fn(&mut Canon<'_, '_>, &Op, &[ValueId]) -> Found;

/// Rules for ops of one result, by name. The first that applies wins.
const RULES: &[(&str, Rule)] = &[
    ("no-op elementwise", elementwise::no_op),
    ("constant operands last", elementwise::constants_last),
    ("double unary", elementwise::double_unary),
    ("sign of operands", elementwise::signs),
    ("power", elementwise::power),
    ("division by power of two", elementwise::divide),
    ("select", elementwise::select),
    ("convert", elementwise::convert),
    ("clamp", elementwise::clamp),
    ("implicit broadcast", elementwise::implicit_broadcast),
    ("no-op view", views::no_op),
    ("chain of views", views::chain),
    ("concat", views::concat),
    ("gather as slice", views::gather),
];

fn run(mut m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    for _ in 0..MAX_ROUNDS {
        let before = cx.total();
        let new = rebuild_graphs(&m, &mut |g| super::dce::eliminate(canonicalise(g, &[], cx)?))?;
        if let Stage::Mir { claims, .. } = &m.stage
            && let Some(op) = unclaimed(&new, claims)
        {
            cx.remark(RemarkKind::Missed, &rlx_ir::Loc::none(), format!("not simplified: the target lacks `{op}`"));
            return Ok(m);
        }
        m = new;
        if cx.total() == before {
            break;
        }
    }
    Ok(m)
}

/// An op of the module that is not among the claims.
fn unclaimed(m: &Module, claims: &std::collections::BTreeSet<String>) -> Option<&'static str> {
    fn graph(g: &Graph, claims: &std::collections::BTreeSet<String>) -> Option<&'static str> {
        g.nodes().iter().find_map(|n| {
            if claims.contains(n.op.name()) {
                n.regions.iter().find_map(|r| graph(r, claims))
            } else {
                Some(n.op.name())
            }
        })
    }
    graph(&m.main, claims).or_else(|| m.functions.values().find_map(|g| graph(g, claims)))
}

/// What is known of an input of a nested graph from outside.
#[derive(Clone, Default)]
struct Known {
    literal: Option<Tensor>,
    elems: Option<Vec<Dim>>,
}

/// A graph being rebuilt by the rules.
struct Canon<'a, 'c> {
    rw: Rewriter<'a>,
    cx: &'c PassCx<'c>,
    depth: usize,
}

fn canonicalise(g: &Graph, known: &[Known], cx: &PassCx<'_>) -> Result<Graph, IrError> {
    let mut c = Canon { rw: Rewriter::new(g)?, cx, depth: 0 };
    for (&v, k) in g.inputs().iter().zip(known) {
        let input = c.rw.get(v)?;
        if let Some(t) = &k.literal {
            let literal = c.rw.b.constant(t.clone())?;
            c.rw.set(v, literal);
        } else if k.elems.is_some() && g.elems(v).is_none() {
            c.rw.b.graph_mut().set_input_elems(input, k.elems.clone());
        }
    }
    for node in g.nodes() {
        c.rw.b.set_loc(node.loc.clone());
        if !node.regions.is_empty() {
            control::visit(&mut c, node)?;
            continue;
        }
        let operands = c.rw.operands(node)?;
        let op = match c.rw.gone() {
            gone if gone.is_empty() => Cow::Borrowed(&node.op),
            gone => Cow::Owned(bind_dims::substitute_op(&node.op, gone)),
        };
        let simpler = if node.results.len() == 1 { c.simplify(&op, &operands)? } else { None };
        let results = match simpler {
            Some(v) => vec![v],
            None if c.rw.gone().is_empty() => {
                c.rw.copy(node)?;
                for &r in &node.results {
                    let v = c.rw.get(r)?;
                    let known = c.known(v)?;
                    if known != v {
                        c.rw.set(r, known);
                    }
                }
                continue;
            }
            None => c.rw.b.op(op.into_owned(), &operands)?,
        };
        let results = results.into_iter().map(|v| c.known(v)).collect::<Result<Vec<_>, _>>()?;
        c.rw.replace(node, &results)?;
    }
    c.rw.finish()
}

impl Canon<'_, '_> {
    fn g(&self) -> &Graph {
        self.rw.b.graph()
    }

    /// The op that defines a value, with its operands.
    fn def(&self, v: ValueId) -> Option<(&Op, &[ValueId])> {
        self.g().def_node(v).map(|(_, n)| (&n.op, &n.operands[..]))
    }

    /// Offers an op of one result to the rules.
    fn simplify(&mut self, op: &Op, operands: &[ValueId]) -> Found {
        if self.depth >= MAX_DEPTH {
            return Ok(None);
        }
        for (name, rule) in RULES {
            self.depth += 1;
            let found = rule(self, op, operands);
            self.depth -= 1;
            if let Some(v) = found? {
                self.cx.count(name);
                return Ok(Some(v));
            }
        }
        Ok(None)
    }

    /// Appends an op of one result in its simplest form.
    fn emit(&mut self, op: impl Into<Op>, operands: &[ValueId]) -> Result<ValueId, IrError> {
        let op = op.into();
        match self.simplify(&op, operands)? {
            Some(v) => Ok(v),
            None => {
                let v = self.rw.b.op1(op, operands)?;
                self.known(v)
            }
        }
    }

    /// A value, or the literal that it is known to be.
    fn known(&mut self, v: ValueId) -> Result<ValueId, IrError> {
        let Some(elems) = self.g().elems(v).map(<[Dim]>::to_vec) else { return Ok(v) };
        let is_literal = match self.def(v) {
            Some((Op::ShapeOp(ShapeOp::Constant(_)), _)) | None => true,
            Some((Op::ShapeOp(ShapeOp::FromDims(_)), _)) => elems.iter().any(|d| !d.is_const()),
            // What defines symbols is where data becomes sizes, however much is known of it afterwards.
            Some((op, _)) => !op.def().defines().is_empty(),
        };
        let Some(t) = self.g().tensor_type(v).filter(|_| !is_literal) else { return Ok(v) };
        let Some(shape) = t.shape.as_static() else { return Ok(v) };
        let dtype = t.dtype;
        self.cx.count("known elements");
        let literal: Option<Vec<i128>> = elems.iter().map(|d| d.as_const().map(i128::from)).collect();
        match literal {
            Some(ints) => {
                let value = Tensor::from_elements(dtype, &shape, &rlx_ir::element::Elements::Int(ints));
                let value = value.map_err(|e| IrError::Eval(e.to_string()))?;
                self.rw.b.op1(Constant { value }, &[])
            }
            None => self.rw.b.op1(FromDims { dtype, shape, elems }, &[]),
        }
    }
}
