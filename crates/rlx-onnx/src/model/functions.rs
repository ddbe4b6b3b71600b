//! The functions of a model.

use std::collections::{BTreeMap, BTreeSet};

use super::order::order;
use super::read::{Reader, Scope, standard_domain};
use super::{FunctionDef, FunctionId, GraphDef, Opsets};
use crate::fault::{Fault, Faults};
use crate::proto::{FunctionProto, GraphProto, ValueInfoProto};
use crate::text::shown;

/// What names a function.
pub(super) fn function_id(proto: &FunctionProto) -> FunctionId {
    FunctionId {
        domain: standard_domain(proto.domain.clone().unwrap_or_default()),
        name: proto.name.clone().unwrap_or_default(),
        overload: proto.overload.clone().unwrap_or_default(),
    }
}

impl Reader<'_> {
    /// Reads all functions; one defined twice is a fault, and the first stays.
    pub(super) fn functions(
        &mut self,
        protos: Vec<FunctionProto>,
        model: &Opsets,
    ) -> BTreeMap<FunctionId, FunctionDef> {
        let mut functions = BTreeMap::new();
        for proto in protos {
            let function = self.function(proto, model);
            if functions.contains_key(&function.id) {
                let function = function.id.to_string();
                self.faults.push(Fault::DuplicateFunction { function });
            } else {
                functions.insert(function.id.clone(), function);
            }
        }
        functions
    }

    fn function(&mut self, proto: FunctionProto, model: &Opsets) -> FunctionDef {
        let id = function_id(&proto);
        let path = format!("function {}", shown(&id.to_string()));
        let mut opsets = self.opsets(proto.opset_import);
        for (domain, version) in model {
            opsets.entry(domain.clone()).or_insert(*version);
        }
        let scope = Scope { opsets: &opsets, in_function: true };
        let path = path.into();
        let (defaults, undefined) = self.attributes(proto.attribute_proto, &id.name, &scope, &path);
        self.report_undefined(undefined);
        let (body, undefined) = self.graph(
            GraphProto {
                name: Some(id.name.clone()),
                node: proto.node,
                input: proto.input.into_iter().map(untyped).collect(),
                output: proto.output.into_iter().map(untyped).collect(),
                value_info: proto.value_info,
                ..GraphProto::default()
            },
            &scope,
            path,
        );
        self.report_undefined(undefined);
        FunctionDef { id, attributes: proto.attribute, defaults, opsets, body }
    }
}

fn untyped(name: String) -> ValueInfoProto {
    ValueInfoProto { name: Some(name), ..ValueInfoProto::default() }
}

/// Refuses functions that call each other in a circle, because inlining them would not end.
pub(super) fn check_recursion(functions: &BTreeMap<FunctionId, FunctionDef>, faults: &mut Faults) {
    let numbers: BTreeMap<&FunctionId, usize> = functions.keys().enumerate().map(|(number, id)| (id, number)).collect();
    let calls: Vec<Vec<usize>> = functions
        .values()
        .map(|function| {
            let mut called = BTreeSet::new();
            collect_calls(&function.body, &numbers, &mut called);
            called.into_iter().collect()
        })
        .collect();
    let Err(cycles) = order(&calls) else { return };
    let ids: Vec<&FunctionId> = functions.keys().collect();
    for cycle in cycles {
        let name = |n: usize| ids.get(n).map(ToString::to_string);
        faults.push(Fault::RecursiveFunctions { functions: cycle.into_iter().filter_map(name).collect() });
    }
}

fn collect_calls(graph: &GraphDef, numbers: &BTreeMap<&FunctionId, usize>, called: &mut BTreeSet<usize>) {
    for node in &graph.nodes {
        called.extend(numbers.get(&node.function_id()));
        for nested in node.graphs() {
            collect_calls(nested, numbers, called);
        }
    }
}
