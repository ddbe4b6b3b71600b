//! Applies what the options say of symbols: fixed sizes are substituted, bounds are stated.

use std::collections::BTreeMap;

use rlx_ir::dim::{Constraint, ConstraintRecord};
use rlx_ir::{Dim, Graph, IrError, Module, Op, Symbol};

use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::rewrite::Rewriter;

/// The pass.
pub const PASS: Pass =
    Pass { name: "bind-dims", phase: Phase::Import, summary: "fixes and bounds symbols as the options say", run };

/// What symbols stand for.
pub type Substitution = BTreeMap<Symbol, Dim>;

fn run(m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    let (fixed, bounds) = (&cx.options.dim_bindings, &cx.options.dim_bounds);
    let known = m.main.input_symbols();
    let named = fixed.iter().map(|(s, _)| s).chain(bounds.iter().map(|(s, _)| s));
    let unknown: Vec<String> = named.filter(|s| !known.contains(*s)).map(|s| format!("`{}`", s.name())).collect();
    if !unknown.is_empty() {
        let known: Vec<&str> = known.iter().map(Symbol::name).collect();
        let (unknown, known) = (unknown.join(", "), known.join(", "));
        return Err(IrError::Eval(format!("options speak of unknown symbols {unknown}; there are: {known}")).into());
    }
    let map: Substitution = fixed.iter().map(|(s, v)| (s.clone(), Dim::from(v))).collect();
    let mut main = if map.is_empty() { m.main } else { substitute(&m.main, &map)? };
    for (s, (lo, hi)) in bounds.iter() {
        main.bounds_mut().set(s.clone(), lo, hi);
    }
    Ok(Module { main, functions: m.functions, stage: m.stage })
}

/// An op with symbols replaced in its attributes.
pub fn substitute_op(op: &Op, map: &Substitution) -> Op {
    if map.is_empty() { op.clone() } else { op.def().map_dims(&mut |d| d.substitute(map)) }
}

/// Constraints with symbols replaced.
pub fn substitute_constraints(records: &[ConstraintRecord], map: &Substitution) -> Vec<ConstraintRecord> {
    let sub = |d: &Dim| d.substitute(map);
    let constraint = |c: &Constraint| match c {
        Constraint::Eq(a, b) => Constraint::Eq(sub(a), sub(b)),
        Constraint::Broadcastable(a, b) => Constraint::Broadcastable(sub(a), sub(b)),
        Constraint::Le(a, b) => Constraint::Le(sub(a), sub(b)),
        Constraint::Divisible(a, b) => Constraint::Divisible(sub(a), sub(b)),
    };
    let records = records.iter().map(|r| ConstraintRecord { constraint: constraint(&r.constraint), ..r.clone() });
    records.filter(|r| r.constraint.decide() != Some(true)).collect()
}

/// A graph and its nested graphs with symbols replaced everywhere.
pub fn substitute(g: &Graph, map: &Substitution) -> Result<Graph, IrError> {
    let mut rw = Rewriter::with_types(g, &|ty| ty.substitute(map))?;
    for &v in g.inputs() {
        let elems = g.elems(v).map(|e| e.iter().map(|d| d.substitute(map)).collect());
        let new = rw.get(v)?;
        rw.b.graph_mut().set_input_elems(new, elems);
    }
    for node in g.nodes() {
        rw.b.set_loc(node.loc.clone());
        // Sizes that the substitution makes known are no longer defined by nodes.
        let whole: Option<Substitution> = (!rw.gone().is_empty()).then(|| {
            let own = map.iter().map(|(s, d)| (s.clone(), d.substitute(rw.gone())));
            rw.gone().clone().into_iter().chain(own).collect()
        });
        let map = whole.as_ref().unwrap_or(map);
        let regions = node.regions.iter().map(|r| substitute(r, map)).collect::<Result<Vec<_>, _>>()?;
        let operands = rw.operands(node)?;
        rw.control(node, substitute_op(&node.op, map), &operands, regions)?;
    }
    rw.finish_with(&substitute_constraints(g.constraints(), map))
}
