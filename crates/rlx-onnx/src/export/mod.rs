//! ONNX files out: a graph of the IR as nodes of the standard's operators.
//!
//! Sizes that are not fixed are computed in the file from the shapes of its inputs. An op without a counterpart is written as its
//! decomposition; what has none is listed, all of it at once.

mod compute;
mod control;
mod custom;
mod dims;
mod elementwise;
mod shape;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use prost::Message as _;
use rlx_ir::ops::Custom;
use rlx_ir::{Builder, DType, Dim, Graph, IrError, Module, Node, Op, Symbol, Tensor, TensorType, ValueId};

use crate::dtype::OnnxType;
use crate::proto::attribute_proto::AttributeType;
use crate::proto::tensor_shape_proto::{Dimension, dimension};
use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto, TypeProto,
    ValueInfoProto, type_proto,
};

/// The operator set that files are written in, unless a node needs a newer one.
const OPSET: i64 = 20;

/// The deepest that functions call each other.
const DEEPEST_CALL: usize = 64;

/// What stands in the way of writing a module as a file: all of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the graph has no form in ONNX:\n  {}", problems.join("\n  "))]
pub struct ExportError {
    /// One line each.
    pub problems: Vec<String>,
}

/// Why a node has no form.
type Failure = String;

/// A module at its first stage as the bytes of an ONNX file (IR version 10, operator set 20, or 26 where bits are read as another
/// dtype). Parameters with a value become initialisers, those without become inputs. Functions are written where they are called. A
/// state becomes an input of its name after the others, and an output `<name>_next`, in the order of states.
pub fn export(module: &Module) -> Result<Vec<u8>, ExportError> {
    let functions = module.functions.iter().map(|(n, f)| (n.clone(), Arc::new(f.clone()))).collect();
    let mut w = Writer { opset: OPSET, functions, ..Writer::default() };
    let g = &module.main;
    let mut names = HashMap::new();
    let reserved = g.outputs().iter().map(|o| o.name.to_string());
    let sources = g.inputs().iter().map(|&v| g.value_name(v).trim_start_matches('%').to_owned());
    w.used = reserved.chain(sources).chain(g.params().iter().map(|p| p.name.to_string())).collect();
    let successors: Vec<String> = g.states().iter().map(|s| format!("{}_next", s.name)).collect();
    for name in g.states().iter().map(|s| s.name.to_string()).chain(successors.iter().cloned()) {
        if !w.used.insert(name.clone()) {
            w.problems.push(format!("state `{name}`: an input, parameter or output has that name too"));
        }
    }
    let mut inputs = Vec::new();
    for &v in g.inputs() {
        let name = g.value(v).name.as_deref().unwrap_or_default().to_owned();
        inputs.extend(w.declare(g, v, &name));
        names.insert(v, name);
    }
    for s in g.states() {
        inputs.extend(w.declare(g, s.value, &s.name));
        names.insert(s.value, s.name.to_string());
    }
    let mut initialisers = Vec::new();
    for p in g.params() {
        // A name that an output has is that output's, unless it is the same value.
        let taken = g.outputs().iter().any(|o| o.name == p.name && o.value != p.value);
        let name = if taken { w.fresh(&p.name) } else { p.name.to_string() };
        match &p.default {
            Some(t) => match tensor(&name, t) {
                Ok(t) => initialisers.push(t),
                Err(e) => w.problems.push(format!("parameter `{}`: {e}", p.name)),
            },
            None => inputs.extend(w.declare(g, p.value, &name)),
        }
        names.insert(p.value, name);
    }
    w.nodes_of(g, &mut names);
    let mut outputs = w.outputs_of(g, g.outputs().iter().map(|o| o.value), &names, |o| g.outputs()[o].name.to_string());
    let next = g.states().iter().map(|s| s.next.unwrap_or(s.value));
    outputs.extend(w.outputs_of(g, next, &names, |i| successors[i].clone()));
    if !w.problems.is_empty() {
        return Err(ExportError { problems: w.problems });
    }
    initialisers.append(&mut w.constants);
    let graph = GraphProto {
        name: Some(g.name().to_owned()),
        node: w.nodes,
        input: inputs,
        output: outputs,
        initializer: initialisers,
        ..Default::default()
    };
    let set = |domain: String, version| OperatorSetIdProto { domain: Some(domain), version: Some(version) };
    let own = w.domains.into_iter().map(|d| set(d, 1));
    let model = ModelProto {
        ir_version: Some(10),
        producer_name: Some("rlx".into()),
        opset_import: std::iter::once(set(String::new(), w.opset)).chain(own).collect(),
        graph: Some(graph),
        ..Default::default()
    };
    Ok(model.encode_to_vec())
}

/// Elements of constants that are looked at.
const MOST_LOOKED_AT: usize = 4096;

/// A file being written.
#[derive(Default)]
struct Writer {
    /// Nodes of the graph at hand.
    nodes: Vec<NodeProto>,
    /// Constants of the whole file: nested graphs see them too.
    constants: Vec<TensorProto>,
    /// Names of constants that hold integers, none of which is 0.
    without_zeros: BTreeSet<String>,
    /// Names of constants that are lists of integers.
    lists: HashMap<Vec<i64>, String>,
    /// Where symbols stand: a tensor and its axis, or an element of a tensor.
    symbols: HashMap<Symbol, Place>,
    /// Sizes that are computed already.
    dims: HashMap<Dim, String>,
    used: BTreeSet<String>,
    /// The module's functions, and how many calls are open.
    functions: BTreeMap<String, Arc<Graph>>,
    calls: usize,
    opset: i64,
    /// Domains of custom ops.
    domains: BTreeSet<String>,
    count: usize,
    problems: Vec<String>,
}

/// Where a symbol's value can be read.
#[derive(Clone)]
enum Place {
    Axis(String, usize),
    Element(String, usize),
}

/// Names of the values of a graph.
type Names = HashMap<ValueId, String>;

/// A tensor as its message.
fn tensor(name: &str, t: &Tensor) -> Result<TensorProto, Failure> {
    if t.dtype() == DType::Str {
        return Err("strings are not written".into());
    }
    Ok(TensorProto {
        name: Some(name.to_owned()),
        dims: t.dims().iter().map(|&n| n as i64).collect(),
        data_type: Some(code(t.dtype())?),
        raw_data: Some(t.bytes().to_vec().into()),
        ..Default::default()
    })
}

/// The code of a dtype in files.
fn code(d: DType) -> Result<i32, Failure> {
    let known = OnnxType::ALL.iter().find(|&&t| crate::import::dtype(t) == Some(d));
    known.map(|t| t.code()).ok_or_else(|| format!("{d} has no code"))
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(kind as i32), ..Default::default() }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { i: Some(i), ..attribute(name, AttributeType::Int) }
}

fn flag(name: &str, b: bool) -> AttributeProto {
    int(name, i64::from(b))
}

fn ints(name: &str, v: &[i64]) -> AttributeProto {
    AttributeProto { ints: v.to_vec(), ..attribute(name, AttributeType::Ints) }
}

fn float(name: &str, x: f64) -> AttributeProto {
    AttributeProto { f: Some(x as f32), ..attribute(name, AttributeType::Float) }
}

fn string(name: &str, s: &str) -> AttributeProto {
    AttributeProto { s: Some(s.as_bytes().to_vec().into()), ..attribute(name, AttributeType::String) }
}

impl Writer {
    /// A name that nothing has yet.
    fn fresh(&mut self, base: &str) -> String {
        loop {
            self.count += 1;
            let name = format!("{base}_{}", self.count);
            if self.used.insert(name.clone()) {
                return name;
            }
        }
    }

    /// Adds a node; gives the names of its results.
    fn emit_n(&mut self, op: &str, inputs: &[&str], n: usize, attributes: Vec<AttributeProto>) -> Vec<String> {
        let output: Vec<String> = (0..n).map(|_| self.fresh(op)).collect();
        let name = self.fresh("node");
        self.nodes.push(NodeProto {
            op_type: Some(op.into()),
            name: Some(name),
            input: inputs.iter().map(|s| (*s).to_owned()).collect(),
            output: output.clone(),
            attribute: attributes,
            ..Default::default()
        });
        output
    }

    /// Adds a node of one result.
    fn emit(&mut self, op: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> String {
        self.emit_n(op, inputs, 1, attributes).pop().unwrap_or_default()
    }

    /// A constant.
    fn constant(&mut self, t: &Tensor) -> Result<String, Failure> {
        let name = self.fresh("constant");
        self.constants.push(tensor(&name, t)?);
        if t.dtype().is_int() && t.numel() <= MOST_LOOKED_AT && t.elements().ints().is_some_and(|v| !v.contains(&0)) {
            self.without_zeros.insert(name.clone());
        }
        Ok(name)
    }

    /// A constant vector of integers.
    fn list(&mut self, v: &[i64]) -> Result<String, Failure> {
        if let Some(name) = self.lists.get(v) {
            return Ok(name.clone());
        }
        let name = self.constant(&Tensor::from_slice(&[v.len()], v).map_err(|e| e.to_string())?)?;
        self.lists.insert(v.to_vec(), name.clone());
        Ok(name)
    }

    /// A scalar of a dtype.
    fn scalar(&mut self, d: DType, x: f64) -> Result<String, Failure> {
        self.constant(&Tensor::full(d, &[], x).map_err(|e| e.to_string())?)
    }

    /// Another dtype.
    fn cast(&mut self, x: &str, to: DType) -> Result<String, Failure> {
        let to = code(to)?;
        Ok(self.emit("Cast", &[x], vec![int("to", i64::from(to))]))
    }

    /// Declares a value, and notes the symbols that its shape tells.
    fn declare(&mut self, g: &Graph, v: ValueId, name: &str) -> Option<ValueInfoProto> {
        let Some(t) = g.tensor_type(v) else {
            self.problems.push(format!("`{name}`: only tensors are written, not {}", g.ty(v)));
            return None;
        };
        self.learn(name, t);
        match code(t.dtype) {
            Ok(c) => Some(value_info(name, c, &t.shape)),
            Err(e) => {
                self.problems.push(format!("`{name}`: {e}"));
                None
            }
        }
    }

    /// Symbols that are sizes of a value can be read from it.
    fn learn(&mut self, name: &str, t: &TensorType) {
        for (axis, d) in t.shape.iter().enumerate() {
            if let Some(s) = d.as_symbol() {
                self.symbols.entry(s.clone()).or_insert_with(|| Place::Axis(name.to_owned(), axis));
            }
        }
    }

    /// Writes all nodes of a graph.
    fn nodes_of(&mut self, g: &Graph, names: &mut Names) {
        for node in g.nodes() {
            let known = |v: &ValueId| names.get(v).cloned();
            // What a failed node gives is missing; that is on the list already.
            let Some(inputs) = node.operands.iter().map(known).collect::<Option<Vec<_>>>() else { continue };
            match self.node(g, node, &inputs) {
                Ok(results) => {
                    for (&v, name) in node.results.iter().zip(results) {
                        if let Some(t) = g.tensor_type(v) {
                            self.learn(&name, t);
                        }
                        names.insert(v, name);
                    }
                }
                Err(why) => {
                    let place = node.loc.name().map_or(String::new(), |n| format!(" at {n}"));
                    self.problems.push(format!("`{}`{place}: {why}", node.op.name()));
                }
            }
        }
    }

    /// Gives outputs their names, and declares them.
    fn outputs_of(
        &mut self,
        g: &Graph,
        values: impl Iterator<Item = ValueId>,
        names: &Names,
        name: impl Fn(usize) -> String,
    ) -> Vec<ValueInfoProto> {
        let mut out = Vec::new();
        for (i, v) in values.enumerate() {
            let (Some(from), Some(t)) = (names.get(&v), g.tensor_type(v)) else { continue };
            let name = name(i);
            if *from != name {
                self.nodes.push(NodeProto {
                    op_type: Some("Identity".into()),
                    input: vec![from.clone()],
                    output: vec![name.clone()],
                    ..Default::default()
                });
            }
            if let Ok(c) = code(t.dtype) {
                out.push(value_info(&name, c, &t.shape));
            }
        }
        out
    }

    /// Writes one node; names of its results.
    fn node(&mut self, g: &Graph, node: &Node, inputs: &[String]) -> Result<Vec<String>, Failure> {
        let x: Vec<&str> = inputs.iter().map(String::as_str).collect();
        let types = |list: &[ValueId]| list.iter().filter_map(|&v| g.tensor_type(v).cloned()).collect::<Vec<_>>();
        let (from, to) = (types(&node.operands), types(&node.results));
        let one = |r: Result<String, Failure>| r.map(|name| Some(vec![name]));
        let written = match &node.op {
            Op::Elementwise(op) => one(self.elementwise(op, &x, &from)),
            Op::ShapeOp(op) => one(self.shape_op(op, &x, &from, &to)),
            Op::Control(op) => self.control(op, node, &x),
            op => self.compute(op, &x, &from, &to),
        }?;
        match (written, &node.op) {
            (Some(results), _) => Ok(results),
            (None, Op::Custom(Custom::CustomOp(op))) => match self.decomposed(node, inputs, g)? {
                Some(results) => Ok(results),
                None => self.custom(op, &x, node.results.len()),
            },
            (None, _) => Ok(self.decomposed(node, inputs, g)?.ok_or("it has no counterpart and no decomposition")?),
        }
    }

    /// Writes an op as what it decomposes into; `None` if it does not.
    fn decomposed(&mut self, node: &Node, inputs: &[String], g: &Graph) -> Result<Option<Vec<String>>, Failure> {
        let build = || -> Option<Result<Graph, IrError>> {
            let mut b = Builder::new("part");
            let mut args = Vec::new();
            for (i, &v) in node.operands.iter().enumerate() {
                match b.graph_mut().add_input(&format!("x{i}"), g.ty(v).clone()) {
                    Ok(v) => args.push(v),
                    Err(e) => return Some(Err(e)),
                }
            }
            let results = match node.op.def().decompose(&mut b, &args)? {
                Ok(r) => r,
                Err(e) => return Some(Err(e)),
            };
            for (i, v) in results.into_iter().enumerate() {
                if let Err(e) = b.output(&format!("y{i}"), v) {
                    return Some(Err(e));
                }
            }
            Some(Ok(b.finish()))
        };
        let Some(part) = build() else { return Ok(None) };
        self.in_place(&part.map_err(|e| e.to_string())?, inputs).map(Some)
    }

    /// Writes the nodes of a graph that stands alone where they are used; names of its outputs.
    fn in_place(&mut self, part: &Graph, inputs: &[String]) -> Result<Vec<String>, Failure> {
        let mut names: Names = part.inputs().iter().copied().zip(inputs.iter().cloned()).collect();
        let before = self.problems.len();
        self.nodes_of(part, &mut names);
        if self.problems.len() > before {
            let inner = self.problems.split_off(before);
            return Err(inner.join("; "));
        }
        let result =
            |o: &rlx_ir::graph::Output| names.get(&o.value).cloned().ok_or_else(|| "a result is missing".into());
        part.outputs().iter().map(result).collect()
    }

    /// Writes the body of a function where it is called. Its symbols are its own.
    fn call(&mut self, callee: &str, inputs: &[String]) -> Result<Vec<String>, Failure> {
        let body = self.functions.get(callee).cloned().ok_or_else(|| format!("there is no function `{callee}`"))?;
        if self.calls >= DEEPEST_CALL {
            return Err(format!("more than {DEEPEST_CALL} calls are inside each other"));
        }
        self.calls += 1;
        let outside = (std::mem::take(&mut self.symbols), std::mem::take(&mut self.dims));
        for (&v, name) in body.inputs().iter().zip(inputs) {
            if let Some(t) = body.tensor_type(v) {
                self.learn(name, t);
            }
        }
        let results = self.in_place(&body, inputs);
        (self.symbols, self.dims) = outside;
        self.calls -= 1;
        results
    }
}

/// A declared tensor. Sizes that are no number and no name are left open.
fn value_info(name: &str, code: i32, dims: &[Dim]) -> ValueInfoProto {
    let dim = |d: &Dim| {
        let value = match (d.as_const(), d.as_symbol()) {
            (Some(n), _) => Some(dimension::Value::DimValue(n)),
            (None, Some(s)) => Some(dimension::Value::DimParam(s.name().to_owned())),
            _ => None,
        };
        Dimension { value, ..Default::default() }
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(code), shape: Some(shape) };
    let ty = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
    ValueInfoProto { name: Some(name.into()), r#type: Some(ty), ..Default::default() }
}
