//! Running one op or a small graph in tests.

use crate::error::IrError;
use crate::eval::{EvalInputs, evaluate};
use crate::graph::{Module, ValueId};
use crate::op::EvalOptions;
use crate::tensor::{Element, Tensor, Value};
use crate::{Builder, DType, Dim};

/// A tensor of typed contents.
pub(crate) fn t<E: Element>(dims: &[usize], values: &[E]) -> Tensor {
    Tensor::from_slice(dims, values).unwrap()
}

/// An `f32` tensor of 0, 1, 2, ….
pub(crate) fn arange(dims: &[usize]) -> Tensor {
    let n: usize = dims.iter().product();
    t(dims, &(0..n).map(|i| i as f32).collect::<Vec<_>>())
}

/// Builds a graph over inputs of the tensors' dtypes whose dims are all symbols of their own, evaluates it, and gives its outputs.
/// The evaluator checks every value against its inferred type and known elements.
pub(crate) fn run(
    inputs: &[Tensor],
    build: impl FnOnce(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>, IrError>,
) -> Result<Vec<Tensor>, IrError> {
    run_with(inputs, EvalOptions::default(), true, build)
}

/// [`run`] with static input dims.
pub(crate) fn run_static(
    inputs: &[Tensor],
    build: impl FnOnce(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>, IrError>,
) -> Result<Vec<Tensor>, IrError> {
    run_with(inputs, EvalOptions::default(), false, build)
}

/// [`run`] with options.
pub(crate) fn run_with(
    inputs: &[Tensor],
    options: EvalOptions,
    symbolic: bool,
    build: impl FnOnce(&mut Builder, &[ValueId]) -> Result<Vec<ValueId>, IrError>,
) -> Result<Vec<Tensor>, IrError> {
    let mut b = Builder::new("main");
    let mut ids = Vec::new();
    for (i, x) in inputs.iter().enumerate() {
        let dims: Vec<Dim> = x
            .dims()
            .iter()
            .enumerate()
            .map(|(a, &n)| if symbolic { Dim::symbol(format!("d{i}_{a}")) } else { Dim::from(n as i64) })
            .collect();
        ids.push(b.input(&format!("x{i}"), x.dtype(), dims)?);
    }
    for (i, v) in build(&mut b, &ids)?.into_iter().enumerate() {
        b.output(&format!("y{i}"), v)?;
    }
    let module = Module::from_graph(b.finish());
    let values: Vec<Value> = inputs.iter().cloned().map(Value::from).collect();
    let results = evaluate(&module, &EvalInputs { inputs: values, ..Default::default() }, options)?;
    Ok(results.outputs.into_iter().map(|v| v.as_tensor().unwrap().clone()).collect())
}

/// [`run`] for a graph of one output that must succeed.
pub(crate) fn run1(
    inputs: &[Tensor],
    build: impl FnOnce(&mut Builder, &[ValueId]) -> Result<ValueId, IrError>,
) -> Tensor {
    run(inputs, |b, x| Ok(vec![build(b, x)?])).unwrap().remove(0)
}

/// The error of a graph of one output that must fail, at building or at running.
pub(crate) fn fails(
    inputs: &[Tensor],
    build: impl FnOnce(&mut Builder, &[ValueId]) -> Result<ValueId, IrError>,
) -> String {
    run(inputs, |b, x| Ok(vec![build(b, x)?])).unwrap_err().to_string()
}

/// Floats of a tensor of any float dtype.
pub(crate) fn floats(x: &Tensor) -> Vec<f64> {
    x.elements().to_f64().unwrap()
}

/// A tensor of a dtype from wide floats.
pub(crate) fn of(dtype: DType, dims: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_elements(dtype, dims, &crate::element::Elements::Float(values.to_vec())).unwrap()
}
