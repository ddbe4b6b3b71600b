//! Splits what depends on parameters only (*prepare*, run when they change) from the rest (*main*, run on every call).
//!
//! Prepared values become outputs `prepared:N` of prepare and parameters of the same names of main. A value larger than all it is made
//! of stays in main (a dequantised weight, a broadcast, a range), and so does a mere view. Random numbers, states, data-dependent sizes
//! and nodes with nested graphs are main's.

use std::collections::BTreeSet;

use rlx_ir::graph::Def;
use rlx_ir::op::Effect;
use rlx_ir::ops::ShapeOp;
use rlx_ir::{Builder, DType, Dim, Graph, IrError, Module, Node, NodeId, Op, Symbol, TensorType, ValueId};

use super::{dce, regions};
use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::remark::RemarkKind;
use crate::rewrite::Rewriter;

/// The pass. It shows the prepare graph as a function of the module; the pipeline calls [`split`] itself.
pub const PASS: Pass =
    Pass { name: "split", phase: Phase::Split, summary: "splits off what depends on parameters only", run };

/// Name of the prepare graph.
const PREPARE: &str = "prepare";

fn run(m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    let (prepare, mut main) = split(m, cx)?;
    if let Some(p) = prepare {
        main.functions.insert(PREPARE.into(), as_function(&p.main)?);
    }
    Ok(main)
}

/// The graph with inputs in place of parameters, as functions have it.
fn as_function(g: &Graph) -> Result<Graph, IrError> {
    let mut f = Graph::new(g.name());
    *f.bounds_mut() = g.bounds().clone();
    let mut map: Vec<Option<ValueId>> = vec![None; g.num_values()];
    for p in g.params() {
        map[p.value.index()] = Some(f.add_input(&p.name, g.ty(p.value).clone())?);
    }
    for node in g.nodes() {
        let operands = node.operands.iter().filter_map(|v| map[v.index()]).collect();
        let id = f.add_copy(g, node, operands);
        for (old, &new) in node.results.iter().zip(&f.node(id).results) {
            map[old.index()] = Some(new);
        }
    }
    for o in g.outputs() {
        if let Some(v) = map[o.value.index()] {
            f.add_output(&o.name, v)?;
        }
    }
    Ok(f)
}

/// The prepare module, if there is anything to prepare, and the main module.
pub fn split(m: Module, cx: &PassCx<'_>) -> Result<(Option<Module>, Module), IrError> {
    let g = &m.main;
    if !cx.options.cache_param_invariant {
        return Ok((None, m));
    }
    let plan = Plan::of(g, &invariants(g, &[], &|_| true), cx);
    if plan.prepared.is_empty() {
        return Ok((None, m));
    }
    plan.prepared.iter().for_each(|_| cx.count("prepared value"));
    let names = names(g, plan.prepared.len());
    let prepare = dce::eliminate(prepare_graph(g, &plan, &names)?)?;
    let main = dce::eliminate(main_graph(g, &plan, &names)?)?;
    let Module { functions, stage, .. } = m;
    let prepare = Module { main: prepare, functions: functions.clone(), stage: stage.clone() };
    Ok((Some(prepare), Module { main, functions, stage }))
}

/// Names that no parameter has.
fn names(g: &Graph, n: usize) -> Vec<String> {
    let taken: BTreeSet<&str> = g.params().iter().map(|p| &*p.name).collect();
    (0..).map(|i| format!("prepared:{i}")).filter(|n| !taken.contains(n.as_str())).take(n).collect()
}

fn prepare_graph(g: &Graph, plan: &Plan, names: &[String]) -> Result<Graph, IrError> {
    let mut out = Graph::new(PREPARE);
    *out.bounds_mut() = g.bounds().clone();
    let mut map: Vec<Option<ValueId>> = vec![None; g.num_values()];
    // Parameters that are not read are there for their shapes.
    let symbols = plan.symbols_of_prepare(g);
    let read = |v: &ValueId| {
        let mut own = BTreeSet::new();
        g.ty(*v).collect_symbols(&mut own);
        plan.leaves.contains(v) || !own.is_disjoint(&symbols)
    };
    for p in g.params().iter().filter(|p| read(&p.value)) {
        map[p.value.index()] = Some(out.add_param(&p.name, g.ty(p.value).clone(), p.default.clone())?);
    }
    let mut b = Builder::from_graph(out);
    for id in g.node_ids().filter(|id| plan.in_prepare[id.index()]) {
        let node = g.node(id);
        let operands: Option<Vec<ValueId>> = node.operands.iter().map(|v| map[v.index()]).collect();
        let operands = operands.ok_or_else(|| IrError::Eval(format!("`{}` reads what is not prepared", node.op)))?;
        b.set_loc(node.loc.clone());
        let results = b.op(node.op.clone(), &operands)?;
        for (&old, new) in node.results.iter().zip(results) {
            map[old.index()] = Some(new);
            if let Some(name) = &g.value(old).name {
                b.graph_mut().set_value_name(new, name.clone());
            }
        }
    }
    for (&v, name) in plan.prepared.iter().zip(names) {
        if let Some(new) = map[v.index()] {
            b.output(name, new)?;
        }
    }
    Ok(b.finish())
}

fn main_graph(g: &Graph, plan: &Plan, names: &[String]) -> Result<Graph, IrError> {
    let mut rw = Rewriter::new(g)?;
    for (&v, name) in plan.prepared.iter().zip(names) {
        let new = rw.b.graph_mut().add_param(name, g.ty(v).clone(), None)?;
        rw.set(v, new);
    }
    for id in g.node_ids().filter(|id| plan.in_main[id.index()]) {
        rw.copy(g.node(id))?;
    }
    rw.finish()
}

/// What runs where: in main, or before it.
pub(super) struct Plan {
    /// Nodes of main.
    pub in_main: Vec<bool>,
    /// Nodes that run before.
    pub in_prepare: Vec<bool>,
    /// Values handed to main, in order of definition.
    pub prepared: Vec<ValueId>,
    /// Parameters that run before it reads.
    leaves: BTreeSet<ValueId>,
}

impl Plan {
    /// Takes out of main those of the `invariant` nodes that are worth it.
    pub fn of(g: &Graph, invariant: &[bool], cx: &PassCx<'_>) -> Plan {
        let n = g.nodes().len();
        let mut plan =
            Plan { in_main: vec![true; n], in_prepare: vec![false; n], prepared: Vec::new(), leaves: BTreeSet::new() };
        let mut read_by_main = vec![false; g.num_values()];
        for v in g.outputs().iter().map(|o| o.value).chain(g.states().iter().filter_map(|s| s.next)) {
            read_by_main[v.index()] = true;
        }
        let mut read_by_prepare = vec![false; g.num_values()];
        for id in g.node_ids().rev() {
            let (i, node) = (id.index(), g.node(id));
            let wanted: Vec<ValueId> = node.results.iter().copied().filter(|r| read_by_main[r.index()]).collect();
            let prepares = invariant[i] && !wanted.is_empty() && worthwhile(g, id, &wanted, cx);
            if prepares {
                plan.prepared.extend(wanted.iter().rev());
            }
            plan.in_main[i] = !invariant[i] || (!wanted.is_empty() && !prepares);
            plan.in_prepare[i] = prepares || node.results.iter().any(|r| read_by_prepare[r.index()]);
            for &v in &node.operands {
                read_by_main[v.index()] |= plan.in_main[i];
                if plan.in_prepare[i] {
                    read_by_prepare[v.index()] = true;
                    if matches!(g.value(v).def, Def::Param(_)) {
                        plan.leaves.insert(v);
                    }
                }
            }
        }
        plan.prepared.reverse();
        plan
    }

    /// Symbols that the sizes of prepare are made of.
    fn symbols_of_prepare(&self, g: &Graph) -> BTreeSet<Symbol> {
        let mut symbols = BTreeSet::new();
        self.leaves.iter().for_each(|&v| g.ty(v).collect_symbols(&mut symbols));
        for id in g.node_ids().filter(|id| self.in_prepare[id.index()]) {
            regions::collect_symbols(g, g.node(id), &mut symbols);
        }
        symbols
    }
}

/// For each node that `may` move, whether its results depend on parameters, the `given` inputs and literals only, sizes
/// included.
pub(super) fn invariants(g: &Graph, given: &[bool], may: &dyn Fn(&Node) -> bool) -> Vec<bool> {
    let mut values: Vec<bool> = g
        .value_ids()
        .map(|v| match g.value(v).def {
            Def::Param(_) => true,
            Def::Input(i) => given.get(i as usize).copied().unwrap_or(false),
            _ => false,
        })
        .collect();
    let mut symbols = BTreeSet::new();
    for v in g.value_ids().filter(|v| values[v.index()]) {
        match (g.value(v).def, g.tensor_type(v)) {
            // A symbol within an expression may have no solution from parameters alone.
            (Def::Param(_), Some(t)) => symbols.extend(t.shape.iter().filter_map(Dim::as_symbol).cloned()),
            // The surrounding graph knows the sizes of what it passes.
            _ => g.ty(v).collect_symbols(&mut symbols),
        }
    }
    let mut nodes = Vec::with_capacity(g.nodes().len());
    for node in g.nodes() {
        let is =
            pure(node) && may(node) && node.operands.iter().all(|v| values[v.index()]) && within(g, node, &symbols);
        nodes.push(is);
        node.results.iter().for_each(|r| values[r.index()] = is);
    }
    nodes
}

fn pure(node: &Node) -> bool {
    let def = node.op.def();
    let calls = matches!(node.op, Op::Control(_)) || !node.regions.is_empty();
    def.traits().effect == Effect::Pure && def.defines().is_empty() && !calls
}

fn within(g: &Graph, node: &Node, symbols: &BTreeSet<Symbol>) -> bool {
    let mut used = BTreeSet::new();
    regions::collect_symbols(g, node, &mut used);
    node.operands.iter().for_each(|&v| g.ty(v).collect_symbols(&mut used));
    used.is_subset(symbols)
}

/// True for a view: main walks its operand's memory instead.
fn is_view(op: &Op) -> bool {
    matches!(
        op,
        Op::ShapeOp(
            ShapeOp::Reshape(_)
                | ShapeOp::Transpose(_)
                | ShapeOp::Slice(_)
                | ShapeOp::Reverse(_)
                | ShapeOp::BroadcastTo(_)
        )
    )
}

/// True if the results are worth keeping from call to call: more than views, and no larger than what they are made of.
fn worthwhile(g: &Graph, id: NodeId, results: &[ValueId], cx: &PassCx<'_>) -> bool {
    let (mut todo, mut seen) = (vec![id], BTreeSet::from([id]));
    let (mut params, mut literals, mut views) = (BTreeSet::new(), BTreeSet::new(), true);
    while let Some(at) = todo.pop() {
        let node = g.node(at);
        if node.op.as_constant().is_some() {
            literals.extend(node.results.iter().copied());
            continue;
        }
        views &= is_view(&node.op);
        for &v in &node.operands {
            match g.value(v).def {
                Def::Result(n, _) if seen.insert(n) => todo.push(n),
                Def::Param(_) | Def::Input(_) => {
                    params.insert(v);
                }
                _ => {}
            }
        }
    }
    if views {
        return false;
    }
    let total = |vs: &mut dyn Iterator<Item = ValueId>| {
        vs.map(|v| g.tensor_type(v).and_then(bits)).try_fold(Dim::ZERO, |sum, b| b.map(|b| sum + b))
    };
    let (size, sources) = (total(&mut results.iter().copied()), total(&mut params.iter().chain(&literals).copied()));
    let fits = matches!((size, sources), (Some(a), Some(b)) if a.known_le_with(&b, g.bounds()) == Some(true));
    if !fits && !params.is_empty() {
        cx.remark(
            RemarkKind::Missed,
            &g.node(id).loc,
            format!("not prepared: the result of `{}` is larger than what it is made of", g.node(id).op.name()),
        );
    }
    fits
}

fn bits(t: &TensorType) -> Option<Dim> {
    (t.dtype != DType::Str).then(|| t.shape.numel() * t.dtype.bits() as i64)
}
