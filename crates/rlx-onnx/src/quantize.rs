//! Static quantisation of files: products of an activation and a weight get `QuantizeLinear` and `DequantizeLinear` nodes (QDQ), which every
//! runtime reads as integer products or, at worst, as what they say.
//!
//! Weights become int8, symmetric, with a scale for each output channel; activations uint8 with one scale and zero point, found by who
//! calls. The rest of the file stays as it is.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use prost::bytes::Bytes;

use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, attribute_proto,
    tensor_proto, type_proto,
};

/// Why a file cannot be quantised: all of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the file cannot be quantised:\n  {}", .0.join("\n  "))]
pub struct QuantizeError(pub Vec<String>);

/// A node that can be quantised: `MatMul`, `Gemm` or `Conv` of an activation and a weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// The node's name, or that of its result.
    pub name: String,
    /// Its operator.
    pub op: String,
    /// The activation.
    pub activation: String,
    /// The weight: an initialiser in f32.
    pub weight: String,
    /// The axis of the weight that output channels lie on.
    pub axis: usize,
    /// The result.
    pub output: String,
}

/// How an activation becomes uint8: `q = round(x / scale) + zero_point`, saturated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActivationScale {
    /// The step.
    pub scale: f32,
    /// The number that stands for zero.
    pub zero_point: u8,
}

impl ActivationScale {
    /// The finest that covers a range, in which zero is exact.
    pub fn covering(low: f32, high: f32) -> Self {
        let (low, high) = (low.min(0.0), high.max(0.0));
        let scale = ((high - low) / 255.0).max(f32::MIN_POSITIVE);
        let zero_point = (-low / scale).round_ties_even().clamp(0.0, 255.0) as u8;
        ActivationScale { scale, zero_point }
    }

    /// A number as it comes back.
    pub fn rounded(&self, x: f32) -> f32 {
        let zero = f32::from(self.zero_point);
        (((x / self.scale).round_ties_even() + zero).clamp(0.0, 255.0) - zero) * self.scale
    }
}

fn decode(bytes: &[u8]) -> Result<ModelProto, QuantizeError> {
    ModelProto::decode(bytes).map_err(|e| QuantizeError(vec![format!("it is no ONNX file: {e}")]))
}

fn graph(m: &ModelProto) -> Result<&GraphProto, QuantizeError> {
    m.graph.as_ref().ok_or_else(|| QuantizeError(vec!["it has no graph".into()]))
}

/// The products of a file that can be quantised, in order. A file whose weights lie in other files, or of an operator set before 13 (which
/// has no scales by channel), is an error.
pub fn products(bytes: &[u8]) -> Result<Vec<Product>, QuantizeError> {
    let m = decode(bytes)?;
    let opset = m.opset_import.iter().find(|o| o.domain.as_deref().unwrap_or_default().is_empty());
    let version = opset.and_then(|o| o.version).unwrap_or(1);
    let mut wrong = Vec::new();
    if version < 13 {
        wrong.push(format!("its operator set is {version}; scales by channel came with 13: convert the file first"));
    }
    let g = graph(&m)?;
    let external = tensor_proto::DataLocation::External as i32;
    let outside: Vec<&str> =
        g.initializer.iter().filter(|t| t.data_location == Some(external)).filter_map(|t| t.name.as_deref()).collect();
    if let Some(first) = outside.first() {
        wrong.push(format!(
            "{} weights lie in other files, `{first}` among them: put them into this one",
            outside.len()
        ));
    }
    if !wrong.is_empty() {
        return Err(QuantizeError(wrong));
    }
    let f32_rank: BTreeMap<&str, usize> = (g.initializer.iter())
        .filter(|t| t.data_type == Some(tensor_proto::DataType::Float as i32))
        .filter_map(|t| Some((t.name.as_deref()?, t.dims.len())))
        .collect();
    let of = |n: &NodeProto| {
        let op = n.op_type.clone().unwrap_or_default();
        let [activation, weight, ..] = n.input.as_slice() else { return None };
        let rank = *f32_rank.get(weight.as_str())?;
        let int = |name: &str| n.attribute.iter().find(|a| a.name.as_deref() == Some(name)).and_then(|a| a.i);
        let axis = match (op.as_str(), rank) {
            ("MatMul", 2) => 1,
            ("Gemm", 2) if int("transA").unwrap_or(0) == 0 => usize::from(int("transB").unwrap_or(0) == 0),
            ("Conv", 3..) => 0,
            _ => return None,
        };
        let standard = n.domain.as_deref().unwrap_or_default().is_empty();
        if !standard || f32_rank.contains_key(activation.as_str()) {
            return None;
        }
        let output = n.output.first()?.clone();
        let name = n.name.clone().filter(|n| !n.is_empty()).unwrap_or_else(|| output.clone());
        Some(Product { name, op, activation: activation.clone(), weight: weight.clone(), axis, output })
    };
    Ok(g.node.iter().filter_map(of).collect())
}

/// The file with more results of its main graph, named like values of it.
pub fn with_outputs(bytes: &[u8], names: &[String]) -> Result<Vec<u8>, QuantizeError> {
    let mut m = decode(bytes)?;
    graph(&m)?;
    let g = m.graph.get_or_insert_default();
    for name in names {
        if g.output.iter().any(|o| o.name.as_deref() == Some(name)) {
            continue;
        }
        let tensor = type_proto::Tensor { elem_type: Some(tensor_proto::DataType::Float as i32), shape: None };
        let ty = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..Default::default() };
        g.output.push(ValueInfoProto { name: Some(name.clone()), r#type: Some(ty), ..Default::default() });
    }
    Ok(m.encode_to_vec())
}

fn floats(t: &TensorProto) -> Vec<f32> {
    match &t.raw_data {
        Some(raw) => raw.chunks_exact(4).filter_map(|b| b.try_into().ok().map(f32::from_le_bytes)).collect(),
        None => t.float_data.clone(),
    }
}

fn tensor(name: &str, dims: Vec<i64>, dtype: tensor_proto::DataType, raw: Vec<u8>) -> TensorProto {
    let (name, data_type) = (Some(name.to_string()), Some(dtype as i32));
    TensorProto { name, dims, data_type, raw_data: Some(Bytes::from(raw)), ..Default::default() }
}

fn node(op: &str, name: String, input: [&str; 3], output: String, axis: Option<usize>) -> NodeProto {
    let attribute = axis.map(|a| AttributeProto {
        name: Some("axis".into()),
        r#type: Some(attribute_proto::AttributeType::Int as i32),
        i: Some(a as i64),
        ..Default::default()
    });
    NodeProto {
        op_type: Some(op.into()),
        name: Some(name),
        input: input.map(String::from).to_vec(),
        output: vec![output],
        attribute: attribute.into_iter().collect(),
        ..Default::default()
    }
}

/// How much of int8 weights use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WeightRange {
    /// From −127 to 127.
    #[default]
    Whole,
    /// From −64 to 64: sums of two products fit 16 bits, in which machines without VNNI add pairs in other runtimes.
    Reduced,
}

/// int8 with a scale for each index of an axis; what is not finite is refused.
fn by_channel(t: &TensorProto, axis: usize, range: WeightRange) -> Result<(Vec<u8>, Vec<f32>), String> {
    let largest = if range == WeightRange::Whole { 127.0 } else { 64.0 };
    let name = t.name.as_deref().unwrap_or_default();
    let values = floats(t);
    let dims: Vec<usize> = t.dims.iter().map(|&d| usize::try_from(d).unwrap_or(0)).collect();
    let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let channels = dims.get(axis).copied().unwrap_or(0);
    if count != Some(values.len()) || channels == 0 {
        return Err(format!("weight `{name}` has {} numbers for dims {:?}", values.len(), t.dims));
    }
    if values.iter().any(|x| !x.is_finite()) {
        return Err(format!("weight `{name}` holds numbers that are not finite"));
    }
    let inner: usize = dims.iter().skip(axis + 1).product::<usize>().max(1);
    let channel = |i: usize| (i / inner) % channels;
    let mut most = vec![0f32; channels];
    for (i, x) in values.iter().enumerate() {
        if let Some(m) = most.get_mut(channel(i)) {
            *m = m.max(x.abs());
        }
    }
    let scales: Vec<f32> = most.iter().map(|m| (m / largest).max(f32::MIN_POSITIVE)).collect();
    let one = |(i, x): (usize, &f32)| {
        let scale = scales.get(channel(i)).copied().unwrap_or(1.0);
        (x / scale).round_ties_even().clamp(-largest, largest) as i8 as u8
    };
    Ok((values.iter().enumerate().map(one).collect(), scales))
}

/// The file with these products quantised, each with the scale of its activation.
pub fn quantize(
    bytes: &[u8],
    plan: &[(Product, ActivationScale)],
    weights: WeightRange,
) -> Result<Vec<u8>, QuantizeError> {
    use tensor_proto::DataType;
    let mut m = decode(bytes)?;
    graph(&m)?;
    let g = m.graph.get_or_insert_default();
    let mut used: BTreeSet<String> = g.node.iter().flat_map(|n| n.input.iter().chain(&n.output)).cloned().collect();
    used.extend(g.initializer.iter().filter_map(|t| t.name.clone()));
    let mut fresh = |base: String| {
        let name =
            std::iter::once(base.clone()).chain((1..).map(|i| format!("{base}_{i}"))).find(|n| !used.contains(n));
        let name = name.unwrap_or(base);
        used.insert(name.clone());
        name
    };
    let (mut initialisers, mut wrong, range) = (Vec::new(), Vec::new(), weights);
    // What stands for a weight on an axis, and for an activation.
    let mut weights: BTreeMap<(String, usize), String> = BTreeMap::new();
    let mut activations: BTreeMap<String, String> = BTreeMap::new();
    let mut nodes: Vec<NodeProto> = Vec::with_capacity(g.node.len());
    for mut n in std::mem::take(&mut g.node) {
        let found = plan.iter().find(|(p, _)| n.output.first() == Some(&p.output));
        let Some((p, scale)) = found else {
            nodes.push(n);
            continue;
        };
        let key = (p.weight.clone(), p.axis);
        if !weights.contains_key(&key) {
            let Some(t) = g.initializer.iter().find(|t| t.name.as_deref() == Some(&p.weight)) else { continue };
            match by_channel(t, p.axis, range) {
                Ok((raw, scales)) => {
                    let base = fresh(format!("{}_quantized", p.weight));
                    let (s, z) = (fresh(format!("{}_scale", p.weight)), fresh(format!("{}_zero_point", p.weight)));
                    let channels = vec![scales.len() as i64];
                    initialisers.push(tensor(&base, t.dims.clone(), DataType::Int8, raw));
                    let bytes = scales.iter().flat_map(|s| s.to_le_bytes()).collect();
                    initialisers.push(tensor(&s, channels.clone(), DataType::Float, bytes));
                    initialisers.push(tensor(&z, channels, DataType::Int8, vec![0; scales.len()]));
                    let out = fresh(format!("{}_dequantized", p.weight));
                    nodes.push(node("DequantizeLinear", out.clone(), [&base, &s, &z], out.clone(), Some(p.axis)));
                    weights.insert(key.clone(), out);
                }
                Err(e) => wrong.push(format!("{}: {e}", p.name)),
            }
        }
        if !activations.contains_key(&p.activation) {
            let (s, z) = (fresh(format!("{}_scale", p.activation)), fresh(format!("{}_zero_point", p.activation)));
            initialisers.push(tensor(&s, vec![], DataType::Float, scale.scale.to_le_bytes().to_vec()));
            initialisers.push(tensor(&z, vec![], DataType::Uint8, vec![scale.zero_point]));
            let q = fresh(format!("{}_quantized", p.activation));
            let out = fresh(format!("{}_dequantized", p.activation));
            nodes.push(node("QuantizeLinear", q.clone(), [&p.activation, &s, &z], q.clone(), None));
            nodes.push(node("DequantizeLinear", out.clone(), [&q, &s, &z], out.clone(), None));
            activations.insert(p.activation.clone(), out);
        }
        for (slot, name) in n.input.iter_mut().zip([activations.get(&p.activation), weights.get(&key)]) {
            if let Some(name) = name {
                slot.clone_from(name);
            }
        }
        nodes.push(n);
    }
    if !wrong.is_empty() {
        return Err(QuantizeError(wrong));
    }
    g.node = nodes;
    // Weights that nothing reads any more; nested graphs may read any of them.
    let nested = g.node.iter().any(|n| n.attribute.iter().any(|a| a.g.is_some() || !a.graphs.is_empty()));
    let read: BTreeSet<&str> = (g.node.iter().flat_map(|n| n.input.iter().map(String::as_str)))
        .chain(g.output.iter().filter_map(|o| o.name.as_deref()))
        .collect();
    let gone = |t: &TensorProto| {
        let name = t.name.as_deref().unwrap_or_default();
        !nested && !read.contains(name) && plan.iter().any(|(p, _)| p.weight == name)
    };
    let names: BTreeSet<String> = g.initializer.iter().filter(|t| gone(t)).filter_map(|t| t.name.clone()).collect();
    let stays = |name: &Option<String>| name.as_ref().is_none_or(|n| !names.contains(n));
    g.initializer.retain(|t| stays(&t.name));
    g.input.retain(|v| stays(&v.name));
    g.initializer.extend(initialisers);
    Ok(m.encode_to_vec())
}
