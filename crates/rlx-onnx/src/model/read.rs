//! From the decoded message to the checked model.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::functions::{check_recursion, function_id};
use super::{FunctionId, Model, NodeDef, Opsets};
use crate::error::OnnxError;
use crate::external::ExternalFiles;
use crate::fault::{Fault, Faults};
use crate::options::Limits;
use crate::proto::{ModelProto, OperatorSetIdProto, StringStringEntryProto};

/// What all graphs of a file share while they are read.
pub(super) struct Reader<'a> {
    pub ir_version: i64,
    pub external: ExternalFiles,
    pub limits: &'a Limits,
    pub faults: Faults,
    /// Functions that the file defines.
    pub function_ids: BTreeSet<FunctionId>,
    /// Domains without a version: first graph and node that use each, and how many do.
    missing: BTreeMap<String, (Rc<str>, String, usize)>,
}

/// What the graphs of the main graph, or of one function, share.
pub(super) struct Scope<'a> {
    pub opsets: &'a Opsets,
    pub in_function: bool,
}

/// A value that a graph uses and does not define.
pub(super) struct Use {
    pub value: String,
    pub graph: Rc<str>,
    pub user: User,
}

/// What uses it.
pub(super) enum User {
    Node { label: String, op: String, operand: usize },
    Output,
}

impl Reader<'_> {
    /// Notes a node whose domain has no version.
    pub(super) fn check_domain(&mut self, node: &NodeDef, scope: &Scope<'_>, graph: &Rc<str>) {
        if scope.opsets.contains_key(&node.domain) || self.function_ids.contains(&node.function_id()) {
            return;
        }
        self.missing
            .entry(node.domain.clone())
            .and_modify(|(_, _, count)| *count += 1)
            .or_insert_with(|| (graph.clone(), node.label.clone(), 1));
    }

    /// Reports what no enclosing graph defines.
    pub(super) fn report_undefined(&mut self, uses: Vec<Use>) {
        for Use { value, graph, user } in uses {
            let graph = graph.to_string();
            self.faults.push(match user {
                User::Node { label: node, op, operand } => Fault::DanglingInput { graph, node, op, operand, value },
                User::Output => Fault::OutputNotProduced { graph, value },
            });
        }
    }

    /// Reads operator set imports.
    pub(super) fn opsets(&mut self, imports: Vec<OperatorSetIdProto>) -> Opsets {
        let mut opsets = Opsets::new();
        for import in imports {
            let domain = standard_domain(import.domain.unwrap_or_default());
            let version = import.version.unwrap_or_default();
            let earlier = opsets.get(&domain).copied();
            if version < 1 || earlier.is_some_and(|e| e != version) {
                let versions = match earlier {
                    Some(earlier) => format!("the versions {earlier} and {version}"),
                    None => format!("the version {version}; versions start at 1"),
                };
                self.faults.push(Fault::BadOpset { domain, versions });
            } else {
                opsets.insert(domain, version);
            }
        }
        opsets
    }
}

/// The standard domain has two spellings.
pub(super) fn standard_domain(domain: String) -> String {
    if domain == "ai.onnx" { String::new() } else { domain }
}

/// Reads a model, or lists all that is wrong with it.
pub(crate) fn read_model(proto: ModelProto, external: ExternalFiles, limits: &Limits) -> Result<Model, OnnxError> {
    let Some(main) = proto.graph else {
        return Err(OnnxError::NoGraph);
    };
    let mut reader = Reader {
        ir_version: proto.ir_version.unwrap_or_default(),
        external,
        limits,
        faults: Faults::new(limits.max_faults),
        function_ids: proto.functions.iter().map(function_id).collect(),
        missing: BTreeMap::new(),
    };
    let opsets = reader.opsets(proto.opset_import);
    let functions = reader.functions(proto.functions, &opsets);
    let scope = Scope { opsets: &opsets, in_function: false };
    let (main, undefined) = reader.graph(main, &scope, "main".into());
    reader.report_undefined(undefined);
    check_recursion(&functions, &mut reader.faults);
    for (domain, (graph, node, count)) in std::mem::take(&mut reader.missing) {
        let graph = graph.to_string();
        reader.faults.push(Fault::MissingOpset { domain, graph, node, count });
    }
    if !reader.faults.is_empty() {
        return Err(OnnxError::Invalid(reader.faults));
    }
    let producer = [proto.producer_name, proto.producer_version];
    let producer: Vec<String> = producer.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    Ok(Model {
        ir_version: reader.ir_version,
        opsets,
        producer: producer.join(" "),
        functions,
        main,
        metadata: entries(proto.metadata_props),
        sources: reader.external.into_sources(),
    })
}

/// Key-value entries as a map; the last of a key counts.
fn entries(props: Vec<StringStringEntryProto>) -> BTreeMap<String, String> {
    props.into_iter().map(|e| (e.key.unwrap_or_default(), e.value.unwrap_or_default())).collect()
}
