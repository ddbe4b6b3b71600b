//! Walks the nodes of a graph.

use std::collections::BTreeMap;
use std::rc::Rc;

use rlx_ir::graph::Def;
use rlx_ir::{Loc, Module, ValueId};

use super::Imported;
use super::error::{ImportError, ImportFault, UnsupportedOp};
use super::scope::{Content, Entry, Importer, Scope};
use crate::model::{Attr, GraphDef, NodeDef, Opsets};
use crate::ops::{self, Failure, NodeCx};

impl<'m> Importer<'m> {
    /// Imports the model.
    pub fn run(mut self) -> Result<Imported, ImportError> {
        let graph = &self.model.main;
        let opsets = &self.model.opsets;
        self.push_scope(0, false, opsets, Rc::default(), "".into());
        self.warn_new_opset(opsets);
        self.declare_inputs(graph);
        self.declare_initialisers(graph);
        self.nodes(graph);
        self.outputs(graph);
        if !self.unsupported.is_empty() || !self.faults.is_empty() {
            return Err(ImportError::Model { unsupported: self.unsupported, faults: self.faults });
        }
        let main = self.frames.swap_remove(0).builder.finish();
        Ok(Imported { module: Module::from_graph(main), warnings: self.warnings })
    }

    fn warn_new_opset(&mut self, opsets: &Opsets) {
        if let Some(v) = opsets.get("").copied()
            && v > ops::NEWEST_OPSET
        {
            self.warn(
                "ai.onnx",
                format!("opset {v} is newer than {}, the newest known; ops are read as of then", ops::NEWEST_OPSET),
            );
        }
    }

    /// Opens a scope.
    pub fn push_scope(
        &mut self,
        frame: usize,
        open: bool,
        opsets: &'m Opsets,
        attributes: Rc<BTreeMap<String, &'m Attr>>,
        prefix: Rc<str>,
    ) {
        self.scopes.push(Scope { names: Default::default(), frame, open, opsets, attributes, prefix });
    }

    /// Opens a scope for a nested graph, in a frame.
    pub fn push_nested(&mut self, frame: usize) {
        let s = self.scope();
        let (opsets, attributes, prefix) = (s.opsets, s.attributes.clone(), s.prefix.clone());
        self.push_scope(frame, true, opsets, attributes, prefix);
    }

    /// Imports the nodes of a graph into the scope at hand.
    pub fn nodes(&mut self, graph: &'m GraphDef) {
        for node in &graph.nodes {
            match self.budget.checked_sub(1) {
                Some(left) => self.budget = left,
                None => {
                    self.value_fault(&graph.name, "the model has too many nodes once its functions are written out");
                    return;
                }
            }
            self.node(node);
        }
        self.check_hints(graph);
    }

    fn node(&mut self, node: &'m NodeDef) {
        let prefix = self.scope().prefix.clone();
        let label = if node.name.is_empty() { &node.label } else { &node.name };
        let loc = Loc::new(format!("{prefix}{label}"));
        let before = self.b().loc().clone();
        self.b().set_loc(loc);
        if node.op_type == "Constant" && node.domain.is_empty() {
            self.constant(node);
            self.b().set_loc(before);
            return;
        }
        let results = self.results(node);
        self.b().set_loc(before);
        match results {
            Ok(results) => self.name_results(node, &results),
            Err(failure) => {
                self.failed(node, failure);
                for name in node.outputs.iter().filter(|n| !n.is_empty()) {
                    self.define(name, Entry::Missing);
                }
            }
        }
    }

    fn results(&mut self, node: &'m NodeDef) -> Result<Vec<ValueId>, Failure> {
        if let Some(function) = self.model.function_of(node) {
            return self.inline(node, function);
        }
        let version = self.scope().opsets.get(&node.domain).copied().unwrap_or_default();
        let entry = match ops::find(&node.domain, &node.op_type, version) {
            Ok(entry) => entry,
            Err(failure) => match ops::custom_name(&node.domain, &node.op_type) {
                Some(name) => return ops::custom(&mut NodeCx::new(self, node, version)?, name),
                None => return Err(failure),
            },
        };
        let mut cx = NodeCx::new(self, node, version.min(ops::NEWEST_OPSET.max(1)))?;
        let results = (entry.run)(&mut cx)?;
        cx.warn_unread();
        Ok(results)
    }

    /// A constant is content under its result's name; it becomes a value when somebody asks for it.
    fn constant(&mut self, node: &'m NodeDef) {
        let Some(name) = node.outputs.first() else { return };
        let prefix = self.scope().prefix.clone();
        let made = NodeCx::new(self, node, ops::NEWEST_OPSET).and_then(|cx| {
            let tensor = ops::constant_tensor(&cx)?;
            cx.warn_unread();
            Ok(tensor)
        });
        let entry = match made {
            Ok(tensor) => Entry::Content(Rc::new(Content { name: name.clone(), prefix, tensor, overridable: false })),
            Err(failure) => {
                self.failed(node, failure);
                Entry::Missing
            }
        };
        self.define(name, entry);
    }

    fn name_results(&mut self, node: &'m NodeDef, results: &[ValueId]) {
        let prefix = self.scope().prefix.clone();
        for (i, name) in node.outputs.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
            match results.get(i) {
                Some(&v) => {
                    self.define_value(name, v);
                    let graph = self.b().graph_mut();
                    let info = graph.value(v);
                    if info.name.is_none() && matches!(info.def, Def::Result(..)) {
                        graph.set_value_name(v, format!("{prefix}{name}"));
                    }
                }
                None => {
                    self.define(name, Entry::Missing);
                    self.failed(node, Failure::unsupported(format!("output {i}")));
                }
            }
        }
    }

    /// Notes why a node could not be imported.
    fn failed(&mut self, node: &NodeDef, failure: Failure) {
        let label = format!("{}{}", self.scope().prefix, node.label);
        match failure {
            Failure::Operands => {}
            Failure::Unsupported(reason) => {
                let opset = self.scope().opsets.get(&node.domain).copied().unwrap_or_default();
                let same = |u: &&mut UnsupportedOp| {
                    u.domain == node.domain && u.op_type == node.op_type && u.opset == opset && u.reason == reason
                };
                match self.unsupported.iter_mut().find(same) {
                    Some(u) => {
                        if !u.nodes.contains(&label) {
                            u.nodes.push(label);
                        }
                    }
                    None => self.unsupported.push(UnsupportedOp {
                        domain: node.domain.clone(),
                        op_type: node.op_type.clone(),
                        opset,
                        reason,
                        nodes: vec![label],
                    }),
                }
            }
            Failure::Refused(message) => {
                let operands = node.inputs.iter().filter(|n| !n.is_empty()).map(|n| self.describe(n)).collect();
                self.fault(ImportFault::Node { node: label, op_type: node.op_type.clone(), operands, message });
            }
        }
    }

    /// A value as `name: type`.
    fn describe(&self, name: &str) -> String {
        let shown = crate::text::shown(name);
        match self.lookup(name) {
            Entry::Value(frame, v) => format!("{shown}: {}", self.frames[frame].builder.graph().ty(v)),
            Entry::Content(c) => {
                let dims: Vec<String> = c.tensor.dims().iter().map(ToString::to_string).collect();
                format!("{shown}: {}[{}]", c.tensor.dtype(), dims.join(", "))
            }
            Entry::Missing | Entry::Absent => format!("{shown}: ?"),
        }
    }

    /// Declares the outputs of the main graph.
    fn outputs(&mut self, graph: &'m GraphDef) {
        for (i, o) in graph.outputs.iter().enumerate() {
            let entry = self.lookup(&o.name);
            let mut name = o.name.clone();
            if graph.outputs.iter().take(i).any(|p| p.name == o.name) {
                name = format!("{name}#{}", i + 1);
                self.warn(&*o.name, format!("is an output more than once; this one is named {name}"));
            }
            match self.value_of(&entry) {
                Ok(Some(v)) => {
                    if let Err(e) = self.b().output(&name, v) {
                        self.value_fault(&o.name, e.to_string());
                    }
                }
                // What made it missing is on the list already.
                Ok(None) => {}
                Err(e) => self.value_fault(&o.name, e.to_string()),
            }
        }
    }
}
