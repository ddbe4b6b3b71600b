//! Edits that change no type, so that nothing is inferred anew: dropping nodes and inputs, renaming operands, replacing regions.

use super::{Def, Graph, Node, NodeId, ValueId};
use crate::dim::ConstraintRecord;
use crate::error::IrError;

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
    pub fn restrict(&self, keep: &Restriction<'_>) -> Result<Graph, IrError> {
        let mut g = Graph { name: self.name.clone(), bounds: self.bounds.clone(), ..Graph::default() };
        let mut kept_nodes = vec![None; self.nodes.len()];
        for (i, slot) in kept_nodes.iter_mut().enumerate() {
            if (keep.node)(NodeId(i as u32)) {
                *slot = Some(NodeId(g.nodes.len() as u32));
                // A placeholder for the count; filled below when values have their numbers.
                g.nodes.push(self.nodes[i].clone());
            }
        }
        let mut kept_inputs = 0u32;
        let mut map = vec![None; self.values.len()];
        for (i, info) in self.values.iter().enumerate() {
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
            map[i] = Some(g.push_value(super::ValueInfo { def, ..info.clone() }));
            if let (Def::Input(_), Some(v)) = (def, map[i]) {
                g.inputs.push(v);
            }
        }
        let own = |v: ValueId| {
            map.get(v.index()).copied().flatten().ok_or_else(|| IrError::UnknownValue(v.0, self.name.clone()))
        };
        let read = |v: ValueId| own((keep.read)(v));
        for node in &mut g.nodes {
            node.operands = node.operands.iter().map(|&v| read(v)).collect::<Result<_, _>>()?;
            node.results = node.results.iter().map(|&v| own(v)).collect::<Result<_, _>>()?;
        }
        for p in &self.params {
            g.params.push(super::Param { value: own(p.value)?, ..p.clone() });
        }
        for s in &self.states {
            g.states.push(super::State { value: own(s.value)?, next: s.next.map(read).transpose()?, ..s.clone() });
        }
        for o in &self.outputs {
            g.outputs.push(super::Output { name: o.name.clone(), value: read(o.value)? });
        }
        g.constraints = self.constraints.iter().filter(|c| (keep.constraint)(c)).cloned().collect();
        Ok(g)
    }

    /// The graph with regions replaced, and with them the operands of their nodes. Results must keep their types.
    pub fn map_regions(
        &self,
        f: &mut dyn FnMut(&Node) -> Result<OperandsAndRegions, IrError>,
    ) -> Result<Graph, IrError> {
        let mut g = self.clone();
        for node in g.nodes.iter_mut().filter(|n| !n.regions.is_empty()) {
            let (operands, regions) = f(node)?;
            (node.operands, node.regions) = (operands, regions);
        }
        Ok(g)
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
        self.nodes.push(Node { operands, results, ..node.clone() });
        id
    }
}
