//! Edits that change no type, so that nothing is inferred anew: dropping nodes and inputs, renaming operands, replacing regions.

use super::{Def, Graph, Node, NodeId, ValueId};
use crate::dim::ConstraintRecord;
use crate::error::IrError;
use crate::types::Type;

/// What [`Graph::restrict`] keeps.
pub struct Restriction<'a> {
    /// Which nodes stay.
    pub node: &'a dyn Fn(NodeId) -> bool,
    /// Which inputs stay, by position.
    pub input: &'a dyn Fn(usize) -> bool,
    /// Which constraints stay.
    pub constraint: &'a dyn Fn(&ConstraintRecord) -> bool,
    /// What is read instead of a value: itself, or one of the same type that is defined before all its readers.
    pub read: &'a dyn Fn(ValueId) -> ValueId,
}

/// What a node reads and nests, together, since captures are operands.
pub type OperandsAndRegions = (Vec<ValueId>, Vec<Graph>);

impl Graph {
    /// The graph without some nodes, inputs and constraints. What stays must not read what goes.
    pub fn restrict(self, keep: &Restriction<'_>) -> Result<Graph, IrError> {
        let Graph { name, bounds, nodes, values, params, states, outputs, constraints, inputs: _ } = self;
        let mut g = Graph { name, bounds, ..Graph::default() };
        let mut kept_nodes = vec![None; nodes.len()];
        g.nodes.reserve(nodes.len());
        for (i, (slot, node)) in kept_nodes.iter_mut().zip(nodes).enumerate() {
            if (keep.node)(NodeId(i as u32)) {
                *slot = Some(NodeId(g.nodes.len() as u32));
                // As it was; filled below when values have their numbers.
                g.nodes.push(node);
            }
        }
        let mut kept_inputs = 0u32;
        let mut map = vec![None; values.len()];
        g.values.reserve(values.len());
        for (i, info) in values.into_iter().enumerate() {
            let def = match info.def {
                Def::Input(n) if !(keep.input)(n as usize) => continue,
                Def::Input(_) => {
                    kept_inputs += 1;
                    Def::Input(kept_inputs - 1)
                }
                Def::Result(n, r) => match kept_nodes.get(n.index()).copied().flatten() {
                    Some(n) => Def::Result(n, r),
                    None => continue,
                },
                d => d,
            };
            map[i] = Some(g.push_value(super::ValueInfo { def, ..info }));
            if let (Def::Input(_), Some(v)) = (def, map[i]) {
                g.inputs.push(v);
            }
        }
        let graph = g.name.clone();
        let own =
            |v: ValueId| map.get(v.index()).copied().flatten().ok_or_else(|| IrError::UnknownValue(v.0, graph.clone()));
        let read = |v: ValueId| own((keep.read)(v));
        for node in &mut g.nodes {
            node.operands.iter_mut().try_for_each(|v| read(*v).map(|new| *v = new))?;
            node.results.iter_mut().try_for_each(|v| own(*v).map(|new| *v = new))?;
        }
        for p in params {
            g.params.push(super::Param { value: own(p.value)?, ..p });
        }
        for s in states {
            g.states.push(super::State { value: own(s.value)?, next: s.next.map(read).transpose()?, ..s });
        }
        for o in outputs {
            g.outputs.push(super::Output { value: read(o.value)?, ..o });
        }
        g.constraints = constraints;
        g.constraints.retain(|c| (keep.constraint)(c));
        Ok(g)
    }

    /// The graph with regions replaced, and with them the operands of their nodes. Results must keep their types.
    pub fn map_regions(
        mut self,
        f: &mut dyn FnMut(&Node) -> Result<OperandsAndRegions, IrError>,
    ) -> Result<Graph, IrError> {
        for node in self.nodes.iter_mut().filter(|n| !n.regions.is_empty()) {
            let (operands, regions) = f(node)?;
            (node.operands, node.regions) = (operands, regions);
        }
        Ok(self)
    }

    /// True if inputs and outputs are of the same types.
    pub fn same_boundary(&self, other: &Graph) -> bool {
        let types = |g: &Graph| {
            let values = g.inputs.iter().copied().chain(g.outputs.iter().map(|o| o.value));
            (g.inputs.len(), values.map(|v| g.ty(v).clone()).collect::<Vec<_>>())
        };
        types(self) == types(other)
    }

    /// Appends a copy of another graph's node whose operands here have the same types, so that its results have them too.
    pub fn add_copy(&mut self, from: &Graph, node: &Node, operands: Vec<ValueId>) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        let results = (0u32..)
            .zip(&node.results)
            .map(|(i, &r)| {
                let info = from.value(r);
                let def = Def::Result(id, i);
                self.push_value(super::ValueInfo { ty: info.ty.clone(), def, name: None, elems: info.elems.clone() })
            })
            .collect();
        // Not `..node.clone()`: its lists would be copied to be dropped.
        let (op, regions, loc) = (node.op.clone(), node.regions.clone(), node.loc.clone());
        self.nodes.push(Node { op, operands, results, regions, loc });
        id
    }

    /// An empty graph of another's name and bounds, with room for as many nodes and values, to be rebuilt from it.
    pub fn like(other: &Graph) -> Graph {
        Graph {
            name: other.name.clone(),
            bounds: other.bounds.clone(),
            nodes: Vec::with_capacity(other.nodes.len()),
            values: Vec::with_capacity(other.values.len()),
            ..Graph::default()
        }
    }

    /// Declares an input, parameter or state as another graph has it, but for its type; `None` for the result of a node. Names are not
    /// compared with each other: the other graph's are unique.
    pub fn declare_as(&mut self, other: &Graph, v: ValueId, ty: Type) -> Result<Option<ValueId>, IrError> {
        let info = other.value(v);
        let name = info.name.as_deref().unwrap_or_default();
        let (kind, def) = match info.def {
            Def::Input(_) => ("input", Def::Input(self.inputs.len() as u32)),
            Def::Param(_) => ("parameter", Def::Param(self.params.len() as u32)),
            Def::State(_) => ("state", Def::State(self.states.len() as u32)),
            Def::Result(..) => return Ok(None),
        };
        self.check_sizes(kind, name, &ty)?;
        let elems = if matches!(def, Def::Input(_)) { info.elems.clone() } else { None };
        let value = self.push_value(super::ValueInfo { ty, def, name: info.name.clone(), elems });
        match info.def {
            Def::Input(_) => self.inputs.push(value),
            Def::Param(n) => {
                self.params.extend(other.params.get(n as usize).map(|p| super::Param { value, ..p.clone() }))
            }
            Def::State(n) => {
                let state = other.states.get(n as usize);
                self.states.extend(state.map(|s| super::State { value, next: None, ..s.clone() }));
            }
            Def::Result(..) => {}
        }
        Ok(Some(value))
    }
}
