//! One graph, with the graphs nested in it.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::order::order;
use super::read::{Reader, Scope, Use, User, standard_domain};
use super::{GraphDef, Initialiser, InitialiserContent, NodeDef, ValueDef};
use crate::fault::Fault;
use crate::proto::{GraphProto, NodeProto, SparseTensorProto, TensorProto, ValueInfoProto};
use crate::tensor::{RawSparseTensor, RawTensor};

/// From this IR version on, a declared initialiser is a default that a caller may override.
const OVERRIDABLE_SINCE: i64 = 4;

/// What defines a value in a graph.
#[derive(Clone, Copy)]
enum Definition {
    Input,
    Initialiser,
    Node(usize),
}

/// The values of one graph.
struct Definitions {
    path: Rc<str>,
    by_name: HashMap<String, Definition>,
}

impl Definitions {
    fn describe(definition: Definition, nodes: &[NodeDef]) -> String {
        match definition {
            Definition::Input => "a graph input".into(),
            Definition::Initialiser => "an initialiser".into(),
            Definition::Node(index) => {
                let label = nodes.get(index).map(|n| n.label.as_str()).unwrap_or_default();
                format!("an output of node '{}'", crate::text::shown(label))
            }
        }
    }

    /// Defines a value; the first definition of a name stays, a second one is a fault.
    fn add(&mut self, name: &str, new: Definition, nodes: &[NodeDef]) -> Option<Fault> {
        let Some(&first) = self.by_name.get(name) else {
            self.by_name.insert(name.to_owned(), new);
            return None;
        };
        Some(Fault::DuplicateValue {
            graph: self.path.to_string(),
            value: name.to_owned(),
            first: Self::describe(first, nodes),
            second: Self::describe(new, nodes),
        })
    }
}

impl Reader<'_> {
    /// Reads a graph. What it uses and does not define comes back with it.
    pub(super) fn graph(&mut self, proto: GraphProto, scope: &Scope<'_>, path: Rc<str>) -> (GraphDef, Vec<Use>) {
        let mut values = Definitions { path: path.clone(), by_name: HashMap::new() };
        let declared = self.values(proto.input, &path, Some("a graph input"));
        let declared_inputs: Vec<String> = declared.iter().map(|v| v.name.clone()).collect();
        let (inputs, initialisers) = self.sources(declared, proto.initializer, proto.sparse_initializer, &mut values);
        let mut nodes = Vec::with_capacity(proto.node.len());
        let mut nested_uses = Vec::with_capacity(proto.node.len());
        for (index, node) in proto.node.into_iter().enumerate() {
            let (node, uses) = self.node(node, index, scope, &path);
            nodes.push(node);
            nested_uses.push(uses);
        }
        self.define_results(&nodes, &mut values);
        let mut undefined = Vec::new();
        let before = predecessors(&nodes, nested_uses, &values, &mut undefined);
        let nodes = self.sorted(nodes, &before, &path);
        let outputs = self.values(proto.output, &path, Some("a graph output"));
        for output in outputs.iter().filter(|o| !values.by_name.contains_key(&o.name)) {
            if !output.name.is_empty() {
                let value = output.name.clone();
                undefined.push(Use { value, graph: path.clone(), user: User::Output });
            }
        }
        let mut seen = HashSet::new();
        let captures = undefined.iter().map(|u| u.value.as_str()).filter(|v| seen.insert(*v));
        let graph = GraphDef {
            name: proto.name.unwrap_or_default(),
            inputs,
            declared_inputs,
            outputs,
            initialisers,
            value_infos: self.values(proto.value_info, &path, None),
            nodes,
            captures: captures.map(str::to_owned).collect(),
        };
        (graph, undefined)
    }

    /// Reads declarations. `what` names them where a name is needed.
    fn values(&mut self, protos: Vec<ValueInfoProto>, path: &Rc<str>, what: Option<&str>) -> Vec<ValueDef> {
        let mut values = Vec::with_capacity(protos.len());
        for proto in protos {
            let (value, outcome) = ValueDef::read(proto);
            let graph = || path.to_string();
            if let Err(reason) = outcome {
                let value = value.name.clone();
                self.faults.push(Fault::BadType { graph: graph(), value, reason });
            }
            match what {
                Some(what) if value.name.is_empty() => {
                    self.faults.push(Fault::Unnamed { graph: graph(), what: what.to_owned() });
                }
                _ => values.push(value),
            }
        }
        values
    }

    /// Inputs and initialisers: the values that no node makes.
    fn sources(
        &mut self,
        declared: Vec<ValueDef>,
        dense: Vec<TensorProto>,
        sparse: Vec<SparseTensorProto>,
        values: &mut Definitions,
    ) -> (Vec<ValueDef>, Vec<Initialiser>) {
        let mut initialisers = Vec::with_capacity(dense.len() + sparse.len());
        for proto in dense {
            let name = proto.name.clone().unwrap_or_default();
            let content = RawTensor::read(proto, &mut self.external, self.limits);
            let content = content.map(InitialiserContent::Dense);
            self.initialiser(name, content, values, &mut initialisers);
        }
        for proto in sparse {
            let name = proto.values.as_ref().and_then(|v| v.name.clone()).unwrap_or_default();
            let content = RawSparseTensor::read(proto, &mut self.external, self.limits);
            let content = content.map(InitialiserContent::Sparse);
            self.initialiser(name, content, values, &mut initialisers);
        }
        let positions: HashMap<String, usize> =
            initialisers.iter().enumerate().map(|(i, init)| (init.name.clone(), i)).collect();
        let mut seen = HashSet::new();
        let mut inputs = Vec::new();
        for value in declared {
            if !seen.insert(value.name.clone()) {
                self.faults.push(Fault::DuplicateValue {
                    graph: values.path.to_string(),
                    value: value.name,
                    first: "a graph input".into(),
                    second: "a graph input".into(),
                });
                continue;
            }
            match positions.get(&value.name).and_then(|&i| initialisers.get_mut(i)) {
                Some(initialiser) => {
                    initialiser.declared = Some(value);
                    initialiser.overridable = self.ir_version >= OVERRIDABLE_SINCE;
                }
                // One whose initialiser is at fault is defined already.
                None if values.by_name.contains_key(&value.name) => {}
                None => {
                    values.by_name.insert(value.name.clone(), Definition::Input);
                    inputs.push(value);
                }
            }
        }
        (inputs, initialisers)
    }

    fn initialiser(
        &mut self,
        name: String,
        content: Result<InitialiserContent, crate::TensorProblem>,
        values: &mut Definitions,
        initialisers: &mut Vec<Initialiser>,
    ) {
        let graph = values.path.to_string();
        if name.is_empty() {
            self.faults.push(Fault::Unnamed { graph, what: "an initialiser".into() });
            return;
        }
        if values.add(&name, Definition::Initialiser, &[]).is_some() {
            self.faults.push(Fault::DuplicateInitialiser { graph, value: name });
            return;
        }
        match content {
            Ok(content) => initialisers.push(Initialiser { name, content, declared: None, overridable: false }),
            Err(problem) => {
                let what = "initialiser".into();
                self.faults.push(Fault::Tensor { graph, what, tensor: name, problem });
            }
        }
    }

    fn node(&mut self, proto: NodeProto, index: usize, scope: &Scope<'_>, path: &Rc<str>) -> (NodeDef, Vec<Use>) {
        let name = proto.name.unwrap_or_default();
        let op_type = proto.op_type.unwrap_or_default();
        let label = if name.is_empty() { format!("{op_type}_{index}") } else { name.clone() };
        let (attributes, uses) = self.attributes(proto.attribute, &label, scope, path);
        let node = NodeDef {
            name,
            label,
            op_type,
            domain: standard_domain(proto.domain.unwrap_or_default()),
            overload: proto.overload.unwrap_or_default(),
            inputs: proto.input,
            outputs: proto.output,
            attributes,
            index,
        };
        if node.op_type.is_empty() {
            let fault = Fault::NoOpType { graph: path.to_string(), node: node.label.clone() };
            self.faults.push(fault);
        } else {
            self.check_domain(&node, scope, path);
        }
        (node, uses)
    }

    fn define_results(&mut self, nodes: &[NodeDef], values: &mut Definitions) {
        for (index, node) in nodes.iter().enumerate() {
            for name in node.outputs.iter().filter(|name| !name.is_empty()) {
                if let Some(fault) = values.add(name, Definition::Node(index), nodes) {
                    self.faults.push(fault);
                }
            }
        }
    }

    /// The nodes in order; as they stand when they have none.
    fn sorted(&mut self, nodes: Vec<NodeDef>, before: &[Vec<usize>], path: &Rc<str>) -> Vec<NodeDef> {
        match order(before) {
            Ok(order) => {
                let mut nodes: Vec<Option<NodeDef>> = nodes.into_iter().map(Some).collect();
                order.into_iter().filter_map(|n| nodes.get_mut(n)?.take()).collect()
            }
            Err(cycles) => {
                for cycle in cycles {
                    let label = |n: usize| nodes.get(n).map(|node| node.label.clone());
                    let nodes = cycle.into_iter().filter_map(label).collect();
                    self.faults.push(Fault::Cycle { graph: path.to_string(), nodes });
                }
                nodes
            }
        }
    }
}

/// For each node, the nodes that make what it and its nested graphs use. What no value of this
/// graph answers goes to `undefined`.
fn predecessors(
    nodes: &[NodeDef],
    nested_uses: Vec<Vec<Use>>,
    values: &Definitions,
    undefined: &mut Vec<Use>,
) -> Vec<Vec<usize>> {
    let mut before = Vec::with_capacity(nodes.len());
    for (node, nested) in nodes.iter().zip(nested_uses) {
        let mut sources = Vec::new();
        for (operand, name) in node.inputs.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
            match values.by_name.get(name) {
                Some(&Definition::Node(source)) => sources.push(source),
                Some(_) => {}
                None => undefined.push(Use {
                    value: name.clone(),
                    graph: values.path.clone(),
                    user: User::Node { label: node.label.clone(), op: node.op_type.clone(), operand },
                }),
            }
        }
        for need in nested {
            match values.by_name.get(&need.value) {
                Some(&Definition::Node(source)) => sources.push(source),
                Some(_) => {}
                None => undefined.push(need),
            }
        }
        before.push(sources);
    }
    before
}
