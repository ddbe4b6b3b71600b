//! How passes change graphs: by building a new one from the old, node by node, so that an edit is whole or not at all.

use rlx_ir::dim::ConstraintRecord;
use rlx_ir::graph::Def;
use rlx_ir::ops::shape::Constant;
use rlx_ir::{Builder, Graph, IrError, Loc, Module, Node, NodeId, Op, Symbol, Tensor, Type, ValueId};

use crate::passes::bind_dims::{Substitution, substitute, substitute_constraints, substitute_op};

/// A graph being rebuilt.
pub struct Rewriter<'a> {
    old: &'a Graph,
    /// Builds the new graph.
    pub b: Builder,
    map: Vec<Option<ValueId>>,
    /// What symbols stand for that nodes of the old graph define and those of the new one do not.
    gone: Substitution,
}

impl<'a> Rewriter<'a> {
    /// Starts a new graph with the old one's boundary: same inputs, parameters, states and bounds.
    pub fn new(old: &'a Graph) -> Result<Self, IrError> {
        Self::with_types(old, &|ty| ty.clone())
    }

    /// Starts a new graph with the old one's boundary, its types replaced.
    pub fn with_types(old: &'a Graph, ty: &dyn Fn(&Type) -> Type) -> Result<Self, IrError> {
        Self::with_boundary(old, ty, &|_| None)
    }

    /// As [`with_types`](Self::with_types); the parameters that have a value here become constants.
    pub fn with_boundary(
        old: &'a Graph,
        ty: &dyn Fn(&Type) -> Type,
        constant: &dyn Fn(&str) -> Option<Tensor>,
    ) -> Result<Self, IrError> {
        Self::start(old, &|_, t| ty(t), constant)
    }

    /// Starts a new graph with the old one's boundary, the types of values of the boundary replaced.
    pub fn with_value_types(old: &'a Graph, ty: &dyn Fn(ValueId, &Type) -> Type) -> Result<Self, IrError> {
        Self::start(old, ty, &|_| None)
    }

    fn start(
        old: &'a Graph,
        ty: &dyn Fn(ValueId, &Type) -> Type,
        constant: &dyn Fn(&str) -> Option<Tensor>,
    ) -> Result<Self, IrError> {
        let mut g = Graph::like(old);
        let mut map = vec![None; old.num_values()];
        // Values of the boundary keep their relative order, so that they can be declared between each other as before.
        for v in old.value_ids() {
            let info = old.value(v);
            let value = match info.def {
                Def::Param(n) => old.params().get(n as usize).and_then(|p| constant(&p.name)),
                Def::Input(_) | Def::State(_) => None,
                Def::Result(..) => continue,
            };
            map[v.index()] = match value {
                Some(value) => {
                    let node = g.add_node(Constant { value }.into(), Vec::new(), Vec::new(), Loc::none())?;
                    g.node(node).results.first().copied()
                }
                None => g.declare_as(old, v, ty(v, &info.ty))?,
            };
        }
        Ok(Rewriter { old, b: Builder::from_graph(g), map, gone: Substitution::new() })
    }

    /// The old graph.
    pub fn old(&self) -> &'a Graph {
        self.old
    }

    /// The new value of an old one.
    pub fn get(&self, v: ValueId) -> Result<ValueId, IrError> {
        self.map
            .get(v.index())
            .copied()
            .flatten()
            .ok_or_else(|| IrError::Eval(format!("{} was used before it was rebuilt", self.old.value_name(v))))
    }

    /// The new operands of an old node.
    pub fn operands(&self, node: &Node) -> Result<Vec<ValueId>, IrError> {
        node.operands.iter().map(|&v| self.get(v)).collect()
    }

    /// Says what an old value has become.
    pub fn set(&mut self, old: ValueId, new: ValueId) {
        if let Some(slot) = self.map.get_mut(old.index()) {
            *slot = Some(new);
        }
        if let (Some(name), None) = (&self.old.value(old).name, &self.b.graph().value(new).name) {
            let name = name.clone();
            self.b.graph_mut().set_value_name(new, name);
        }
    }

    /// Copies a node with its nested graphs as they are.
    pub fn copy(&mut self, node: &Node) -> Result<(), IrError> {
        let operands = self.operands(node)?;
        let as_known = |(&o, &n): (&ValueId, &ValueId)| {
            let (was, is) = (self.old.value(o), self.b.graph().value(n));
            was.ty == is.ty && was.elems == is.elems
        };
        if self.gone.is_empty() && node.operands.iter().zip(&operands).all(as_known) {
            let id = self.b.graph_mut().add_copy(self.old, node, operands);
            for (i, &old) in node.results.iter().enumerate() {
                if let Some(&new) = self.b.graph().node(id).results.get(i) {
                    self.set(old, new);
                }
            }
            return Ok(());
        }
        self.copy_with_regions(node, node.regions.clone())
    }

    /// Copies a node with other nested graphs.
    pub fn copy_with_regions(&mut self, node: &Node, mut regions: Vec<Graph>) -> Result<(), IrError> {
        let operands = self.operands(node)?;
        self.b.set_loc(node.loc.clone());
        if !self.gone.is_empty() {
            regions = regions.iter().map(|r| substitute(r, &self.gone)).collect::<Result<_, _>>()?;
        }
        self.control(node, substitute_op(&node.op, &self.gone), &operands, regions)
    }

    /// Appends what an old node has become, which may define other symbols where more is known now than when it was made.
    pub fn control(&mut self, node: &Node, op: Op, operands: &[ValueId], regions: Vec<Graph>) -> Result<(), IrError> {
        let results = self.b.control_again(op, operands, regions)?;
        let defines = node.op.def().defines();
        if !defines.is_empty() {
            for (&old, &new) in node.results.iter().zip(&results) {
                resolve(self.old.ty(old), self.b.graph().ty(new), &defines, &mut self.gone);
            }
        }
        self.replace(node, &results)
    }

    /// Says what symbols of an old type stand for in a new one of the same form.
    pub fn resolve(&mut self, was: &Type, is: &Type, among: &[Symbol]) {
        resolve(was, is, among, &mut self.gone);
    }

    /// What symbols stand for that nodes of the old graph define and those of the new one do not.
    pub fn gone(&self) -> &Substitution {
        &self.gone
    }

    /// Says what an old node's results have become.
    pub fn replace(&mut self, node: &Node, results: &[ValueId]) -> Result<(), IrError> {
        if results.len() != node.results.len() {
            return Err(IrError::Eval(format!(
                "`{}` has {} results but was replaced by {}",
                node.op,
                node.results.len(),
                results.len()
            )));
        }
        for (&old, &new) in node.results.iter().zip(results) {
            self.set(old, new);
        }
        Ok(())
    }

    /// Declares outputs and state successors and gives the new graph.
    pub fn finish(self) -> Result<Graph, IrError> {
        let constraints = self.old.constraints();
        self.finish_with(constraints)
    }

    /// [`finish`](Self::finish) with these constraints besides those that the new nodes recorded.
    pub fn finish_with(mut self, constraints: &[ConstraintRecord]) -> Result<Graph, IrError> {
        let substituted;
        let constraints = if self.gone.is_empty() {
            constraints
        } else {
            substituted = substitute_constraints(constraints, &self.gone);
            &substituted
        };
        for o in self.old.outputs() {
            let v = self.get(o.value)?;
            self.b.output(&o.name, v)?;
        }
        for (i, s) in self.old.states().iter().enumerate() {
            if let Some(next) = s.next {
                let v = self.get(next)?;
                self.b.graph_mut().set_state_next(i, v)?;
            }
        }
        self.b.graph_mut().add_constraints(constraints);
        Ok(self.b.finish())
    }
}

/// What symbols of a type stand for in another of the same form.
pub fn resolve(was: &Type, is: &Type, among: &[Symbol], out: &mut Substitution) {
    match (was, is) {
        (Type::Tensor(a), Type::Tensor(b)) => {
            for (d, e) in a.shape.iter().zip(b.shape.iter()) {
                if let Some(s) = d.as_symbol().filter(|&s| among.contains(s) && e.as_symbol() != Some(s)) {
                    out.entry(s.clone()).or_insert_with(|| e.clone());
                }
            }
        }
        (Type::Sequence(a), Type::Sequence(b)) | (Type::Optional(a), Type::Optional(b)) => resolve(a, b, among, out),
        _ => {}
    }
}

/// Rebuilds a graph: `f` gives a node's replacement, or `None` to copy it.
pub fn rewrite(
    old: &Graph,
    mut f: impl FnMut(&mut Rewriter<'_>, NodeId, &Node) -> Result<Option<Vec<ValueId>>, IrError>,
) -> Result<Graph, IrError> {
    let mut rw = Rewriter::new(old)?;
    for id in old.node_ids() {
        let node = old.node(id);
        rw.b.set_loc(node.loc.clone());
        match f(&mut rw, id, node)? {
            Some(results) => rw.replace(node, &results)?,
            None => rw.copy(node)?,
        }
    }
    rw.finish()
}

/// Applies a function to a graph after its nested graphs, innermost first.
pub fn map_nested(g: Graph, f: &mut dyn FnMut(Graph) -> Result<Graph, IrError>) -> Result<Graph, IrError> {
    if g.nodes().iter().all(|n| n.regions.is_empty()) {
        return f(g);
    }
    let mut rw = Rewriter::new(&g)?;
    for node in g.nodes() {
        let regions = node.regions.iter().map(|r| map_nested(r.clone(), f)).collect::<Result<Vec<_>, _>>()?;
        rw.copy_with_regions(node, regions)?;
    }
    f(rw.finish()?)
}

/// Applies a function to every graph of a module: functions, nested graphs, main.
pub fn map_module(m: Module, f: &mut dyn FnMut(Graph) -> Result<Graph, IrError>) -> Result<Module, IrError> {
    map_graphs(m, &mut |g| map_nested(g, f))
}

/// Applies a function, which visits nested graphs by itself, to functions and main. What it leaves alone it gives back as it is.
pub fn map_graphs(m: Module, f: &mut dyn FnMut(Graph) -> Result<Graph, IrError>) -> Result<Module, IrError> {
    let functions = m.functions.into_iter().map(|(n, g)| Ok((n, f(g)?))).collect::<Result<_, IrError>>()?;
    Ok(Module { main: f(m.main)?, functions, stage: m.stage })
}

/// As [`map_graphs`], of a module that is kept.
pub fn rebuild_graphs(m: &Module, f: &mut dyn FnMut(&Graph) -> Result<Graph, IrError>) -> Result<Module, IrError> {
    let functions = m.functions.iter().map(|(n, g)| Ok((n.clone(), f(g)?))).collect::<Result<_, IrError>>()?;
    Ok(Module { main: f(&m.main)?, functions, stage: m.stage.clone() })
}
