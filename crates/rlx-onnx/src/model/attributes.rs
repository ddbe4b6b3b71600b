//! The attributes of one node.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::read::{Reader, Scope, Use};
use super::{Attr, GraphDef, TypeDef};
use crate::fault::Fault;
use crate::proto::attribute_proto::AttributeType as T;
use crate::proto::{AttributeProto, GraphProto, SparseTensorProto, TensorProto, TypeProto};
use crate::tensor::{RawSparseTensor, RawTensor, TensorProblem};
use crate::text::shown;

/// Where an attribute stands.
struct Place<'a> {
    node: &'a str,
    attribute: &'a str,
    scope: &'a Scope<'a>,
    path: &'a Rc<str>,
}

/// Why an attribute has no value; the fault itself may be reported already.
enum Bad {
    Reason(String),
    Reported,
}

impl From<String> for Bad {
    fn from(reason: String) -> Bad {
        Bad::Reason(reason)
    }
}

impl Reader<'_> {
    /// Reads the attributes of a node, or the defaults of a function. What nested graphs use and
    /// do not define comes back with them.
    pub(super) fn attributes(
        &mut self,
        protos: Vec<AttributeProto>,
        node: &str,
        scope: &Scope<'_>,
        path: &Rc<str>,
    ) -> (BTreeMap<String, Attr>, Vec<Use>) {
        let mut attributes = BTreeMap::new();
        let mut uses = Vec::new();
        for mut proto in protos {
            let attribute = proto.name.take().unwrap_or_default();
            let place = Place { node, attribute: &attribute, scope, path };
            let fault = match self.attribute(proto, &place, &mut uses) {
                Ok(_) if attributes.contains_key(&attribute) => {
                    Fault::DuplicateAttribute { graph: path.to_string(), node: node.to_owned(), attribute }
                }
                Ok(value) => {
                    attributes.insert(attribute, value);
                    continue;
                }
                Err(Bad::Reason(reason)) => {
                    Fault::BadAttribute { graph: path.to_string(), node: node.to_owned(), attribute, reason }
                }
                Err(Bad::Reported) => continue,
            };
            self.faults.push(fault);
        }
        (attributes, uses)
    }

    fn attribute(&mut self, proto: AttributeProto, place: &Place<'_>, uses: &mut Vec<Use>) -> Result<Attr, Bad> {
        if place.attribute.is_empty() {
            return Err(Bad::Reason("it has no name".into()));
        }
        if let Some(name) = proto.ref_attr_name.clone().filter(|name| !name.is_empty()) {
            return if place.scope.in_function {
                Ok(Attr::Reference(name))
            } else {
                Err(Bad::Reason(format!("it refers to '{}' of a function, and stands in none", shown(&name))))
            };
        }
        let lacks = |what: &str| Bad::Reason(format!("its type is {what}, and it has none"));
        Ok(match attribute_type(&proto)? {
            T::Undefined => return Err(Bad::Reason("it has no content".into())),
            // Writers of proto3 leave out zeros.
            T::Float => Attr::Float(proto.f.unwrap_or_default()),
            T::Int => Attr::Int(proto.i.unwrap_or_default()),
            T::String => Attr::String(utf8(proto.s.unwrap_or_default().into())?),
            T::Tensor => {
                let tensor = proto.t.ok_or_else(|| lacks("a tensor"))?;
                Attr::Tensor(self.tensor(*tensor, place)?)
            }
            T::SparseTensor => {
                let tensor = proto.sparse_tensor.ok_or_else(|| lacks("a sparse tensor"))?;
                Attr::SparseTensor(self.sparse_tensor(*tensor, place)?)
            }
            T::Graph => {
                let graph = proto.g.ok_or_else(|| lacks("a graph"))?;
                Attr::Graph(Box::new(self.nested(*graph, place, None, uses)))
            }
            T::TypeProto => Attr::Type(type_def(*proto.tp.ok_or_else(|| lacks("a type"))?)?),
            T::Floats => Attr::Floats(proto.floats),
            T::Ints => Attr::Ints(proto.ints),
            T::Strings => {
                let strings = proto.strings.into_iter().map(|s| utf8(s.into()));
                Attr::Strings(strings.collect::<Result<_, _>>()?)
            }
            T::Tensors => {
                let tensors = proto.tensors.into_iter().map(|t| self.tensor(t, place));
                Attr::Tensors(tensors.collect::<Result<_, _>>()?)
            }
            T::SparseTensors => {
                let tensors = proto.sparse_tensors.into_iter();
                let tensors = tensors.map(|t| self.sparse_tensor(t, place));
                Attr::SparseTensors(tensors.collect::<Result<_, _>>()?)
            }
            T::Graphs => {
                let graphs = proto.graphs.into_iter().enumerate();
                Attr::Graphs(graphs.map(|(i, g)| self.nested(g, place, Some(i), uses)).collect())
            }
            T::TypeProtos => {
                let types = proto.type_protos.into_iter().map(type_def);
                Attr::Types(types.collect::<Result<_, _>>()?)
            }
        })
    }

    fn nested(&mut self, graph: GraphProto, place: &Place<'_>, number: Option<usize>, uses: &mut Vec<Use>) -> GraphDef {
        let (path, node, attribute) = (place.path, shown(place.node), shown(place.attribute));
        let path = match number {
            None => format!("{path}/{node}.{attribute}"),
            Some(number) => format!("{path}/{node}.{attribute}[{number}]"),
        };
        let (graph, undefined) = self.graph(graph, place.scope, path.into());
        uses.extend(undefined);
        graph
    }

    fn tensor(&mut self, proto: TensorProto, place: &Place<'_>) -> Result<RawTensor, Bad> {
        RawTensor::read(proto, &mut self.external, self.limits).map_err(|problem| self.tensor_fault(problem, place))
    }

    fn sparse_tensor(&mut self, proto: SparseTensorProto, place: &Place<'_>) -> Result<RawSparseTensor, Bad> {
        RawSparseTensor::read(proto, &mut self.external, self.limits)
            .map_err(|problem| self.tensor_fault(problem, place))
    }

    fn tensor_fault(&mut self, problem: TensorProblem, place: &Place<'_>) -> Bad {
        self.faults.push(Fault::Tensor {
            graph: place.path.to_string(),
            what: format!("node '{}', attribute", shown(place.node)),
            tensor: place.attribute.to_owned(),
            problem,
        });
        Bad::Reported
    }
}

/// The declared type; for files of old IR versions, which declare none, the one field with content.
fn attribute_type(proto: &AttributeProto) -> Result<T, Bad> {
    let present = [
        (T::Float, proto.f.is_some_and(|f| f.to_bits() != 0)),
        (T::Int, proto.i.is_some_and(|i| i != 0)),
        (T::String, proto.s.as_ref().is_some_and(|s| !s.is_empty())),
        (T::Tensor, proto.t.is_some()),
        (T::SparseTensor, proto.sparse_tensor.is_some()),
        (T::Graph, proto.g.is_some()),
        (T::TypeProto, proto.tp.is_some()),
        (T::Floats, !proto.floats.is_empty()),
        (T::Ints, !proto.ints.is_empty()),
        (T::Strings, !proto.strings.is_empty()),
        (T::Tensors, !proto.tensors.is_empty()),
        (T::SparseTensors, !proto.sparse_tensors.is_empty()),
        (T::Graphs, !proto.graphs.is_empty()),
        (T::TypeProtos, !proto.type_protos.is_empty()),
    ];
    let code = proto.r#type.unwrap_or_default();
    let declared = T::try_from(code).map_err(|_| Bad::Reason(format!("attribute type {code} is unknown")))?;
    let mut content = present.iter().filter(|(_, there)| *there).map(|(kind, _)| *kind);
    if declared != T::Undefined {
        return match content.find(|kind| *kind != declared) {
            Some(other) => Err(Bad::Reason(format!(
                "its type is {}, and it holds {}",
                declared.as_str_name(),
                other.as_str_name()
            ))),
            None => Ok(declared),
        };
    }
    match (content.next(), content.next()) {
        (Some(kind), None) => Ok(kind),
        (Some(_), Some(_)) => Err(Bad::Reason("it has no type and more than one content".into())),
        // A lone zero is content all the same.
        (None, _) if proto.i.is_some() => Ok(T::Int),
        (None, _) if proto.f.is_some() => Ok(T::Float),
        (None, _) if proto.s.is_some() => Ok(T::String),
        (None, _) => Ok(T::Undefined),
    }
}

fn utf8(bytes: Vec<u8>) -> Result<String, Bad> {
    String::from_utf8(bytes).map_err(|_| Bad::Reason("its text is not UTF-8".into()))
}

fn type_def(proto: TypeProto) -> Result<TypeDef, Bad> {
    TypeDef::read(proto)?.ok_or_else(|| Bad::Reason("its type is empty".into()))
}
