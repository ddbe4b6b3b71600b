//! Lowers a graph, checks the plan, and compares what it computes with the evaluator.

use std::collections::BTreeMap;

use rlx_compile::lir::Lir;
use rlx_compile::lower::{check, lower};
use rlx_compile::remark::Remark;
use rlx_compile::target::InputStage;
use rlx_compile::{Claims, CompileOptions};
use rlx_ir::element::Elements;
use rlx_ir::eval::{EvalInputs, evaluate};
use rlx_ir::op::EvalOptions;
use rlx_ir::{DType, DimBinding, Module, Tensor, Value};

use crate::interp;

pub fn claims() -> Claims {
    Claims {
        symbolic_shapes: true,
        in_place: true,
        growing_states: true,
        scaled_operands: true,
        ..Claims::new("test", InputStage::Lir)
    }
}

pub fn lowered(m: &Module, options: &CompileOptions) -> (Lir, Vec<Remark>) {
    let mut remarks = Vec::new();
    let lir = lower(m, &claims(), options, &mut remarks).unwrap();
    if let Err(faults) = check::check(&lir) {
        panic!("{}\n{lir}", faults.join("\n"));
    }
    (lir, remarks)
}

/// Small numbers of alternating sign that differ by position.
pub fn sample(dtype: DType, dims: &[usize], seed: usize) -> Tensor {
    let n: usize = dims.iter().product();
    let at = |i: usize| ((i * 37 + seed * 101) % 23) as i128 - 11;
    let e = match dtype {
        DType::Bool => Elements::Int((0..n).map(|i| i128::from(at(i) > 0)).collect()),
        d if d.is_float() => Elements::Float((0..n).map(|i| at(i) as f64 / 8.0).collect()),
        d if d.is_unsigned() => Elements::Int((0..n).map(|i| at(i).abs()).collect()),
        _ => Elements::Int((0..n).map(at).collect()),
    };
    Tensor::from_elements(dtype, dims, &e).unwrap()
}

fn close(a: &Tensor, b: &Tensor) -> bool {
    if a.dims() != b.dims() || a.dtype() != b.dtype() {
        return false;
    }
    // One rounding to the dtype may fall the other way.
    let tolerance = match a.dtype().bits() {
        ..=8 => 0.3,
        16 => 2e-2,
        _ => 2e-4,
    };
    match (a.elements(), b.elements()) {
        (Elements::Float(x), Elements::Float(y)) => x.iter().zip(&y).all(|(x, y)| {
            x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= tolerance * (1.0 + x.abs().max(y.abs()))
        }),
        (x, y) => x == y,
    }
}

/// Sizes of a graph's inputs and parameters under a binding; `None` where one is below 0.
pub fn arguments(m: &Module, binding: &DimBinding) -> Option<(Vec<Tensor>, Vec<Tensor>)> {
    let g = &m.main;
    let make = |v, seed| {
        let t = g.tensor_type(v)?;
        let dims = t.shape.eval(binding).ok()?;
        let dims = dims.into_iter().map(|d| usize::try_from(d).ok()).collect::<Option<Vec<_>>>()?;
        Some(sample(t.dtype, &dims, seed))
    };
    let inputs = g.inputs().iter().enumerate().map(|(i, &v)| make(v, i)).collect::<Option<Vec<_>>>()?;
    let params = g.params().iter().enumerate().map(|(i, p)| make(p.value, 50 + i)).collect::<Option<Vec<_>>>()?;
    Some((inputs, params))
}

/// Compares a lowered program with the evaluator; false where the binding is not allowed.
pub fn agree(m: &Module, lir: &Lir, binding: &DimBinding) -> bool {
    let Some((inputs, params)) = arguments(m, binding) else { return false };
    agree_on(m, lir, inputs, params, binding)
}

pub fn agree_on(m: &Module, lir: &Lir, inputs: Vec<Tensor>, params: Vec<Tensor>, binding: &DimBinding) -> bool {
    let names = m.main.params().iter().map(|p| p.name.to_string());
    let given = EvalInputs {
        inputs: inputs.iter().cloned().map(Value::from).collect(),
        params: names.zip(params.iter().cloned()).collect(),
        states: BTreeMap::new(),
        binding: DimBinding::new(),
    };
    let Ok(want) = evaluate(m, &given, EvalOptions::accurate()) else { return false };
    let got =
        interp::run(lir, &inputs, &params, &DimBinding::new()).unwrap_or_else(|e| panic!("{binding}: {e}\n{lir}"));
    for ((o, want), got) in m.main.outputs().iter().zip(&want.outputs).zip(&got) {
        let want = want.as_tensor().unwrap();
        assert!(
            close(want, got),
            "output {} at {binding}:\n want {want:?} {:?}\n  got {got:?} {:?}\n{lir}",
            o.name,
            want.elements(),
            got.elements()
        );
    }
    true
}

/// Lowers with and without fusion and compares both at many sizes.
pub fn verify(m: &Module, bindings: &[DimBinding]) -> Lir {
    let (fused, _) = lowered(m, &CompileOptions::default());
    let (plain, _) = lowered(m, &CompileOptions::default().fusion(rlx_compile::Fusion::Off));
    let n = bindings.iter().filter(|b| agree(m, &fused, b) && agree(m, &plain, b)).count();
    assert!(n > 0, "no binding is allowed");
    fused
}
