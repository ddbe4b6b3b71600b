//! Calls of the model's functions: their bodies take the place of the nodes.

use std::collections::BTreeMap;
use std::rc::Rc;

use rlx_ir::ValueId;

use super::scope::{DEEPEST, Entry, Importer};
use crate::model::{Attr, FunctionDef, NodeDef};
use crate::ops::Failure;

impl<'m> Importer<'m> {
    /// Imports the body of a function in the frame at hand.
    pub fn inline(&mut self, node: &'m NodeDef, function: &'m FunctionDef) -> Result<Vec<ValueId>, Failure> {
        if self.scopes.len() > DEEPEST {
            return Err(Failure::refused(format!("more than {DEEPEST} functions and graphs are inside each other")));
        }
        let attributes = self.call_attributes(node, function);
        if node.inputs.len() > function.body.inputs.len() {
            return Err(Failure::refused(format!(
                "the function takes {} operands, the call gives {}",
                function.body.inputs.len(),
                node.inputs.len()
            )));
        }
        // An operand left out stays without a meaning: nodes that it reaches see an operand left out.
        let mut entries: Vec<Entry> =
            node.inputs.iter().map(|n| if n.is_empty() { Entry::Absent } else { self.lookup(n) }).collect();
        entries.resize_with(function.body.inputs.len(), || Entry::Absent);
        let prefix: Rc<str> = format!("{}{}/", self.scope().prefix, node.label).into();
        let frame = self.frame_index();
        let loc = self.b().loc().clone();
        self.push_scope(frame, false, &function.opsets, Rc::new(attributes), prefix);
        for (input, entry) in function.body.inputs.iter().zip(entries) {
            self.define(&input.name, entry);
        }
        self.declare_initialisers(&function.body);
        self.nodes(&function.body);
        let results = self.function_results(node, function);
        self.scopes.pop();
        self.b().set_loc(loc);
        results
    }

    fn function_results(&mut self, node: &NodeDef, function: &FunctionDef) -> Result<Vec<ValueId>, Failure> {
        let wanted = node.outputs.iter().rposition(|n| !n.is_empty()).map_or(0, |i| i + 1);
        let mut results = Vec::new();
        for o in function.body.outputs.iter().take(wanted) {
            let entry = self.lookup(&o.name);
            results.push(self.value_of(&entry)?.ok_or(Failure::Operands)?);
        }
        Ok(results)
    }

    /// The attributes that the body's references mean: those of the call, then the function's defaults.
    fn call_attributes(&mut self, node: &'m NodeDef, function: &'m FunctionDef) -> BTreeMap<String, &'m Attr> {
        let outer = self.scope().attributes.clone();
        let mut attributes: BTreeMap<String, &'m Attr> =
            function.defaults.iter().map(|(n, a)| (n.clone(), a)).collect();
        for (name, attr) in &node.attributes {
            let attr = match attr {
                Attr::Reference(of) => outer.get(of).copied(),
                a => Some(a),
            };
            if let Some(a) = attr {
                attributes.insert(name.clone(), a);
            }
        }
        attributes
    }
}
