//! How far two right implementations may be apart.
//!
//! Nodes of tame graphs neither step nor divide by small numbers, so that what each rounds away stays of the size of its unit in the last
//! place times the largest number in the value's history. A value's tolerance is some tens of such units of the coarsest dtype in its
//! history: one rounding per node, sums in another order, and factors of up to `1/√0.25 = 2` where a norm divides. Values without
//! rounding in their history (integers, booleans, moved floats) must be equal.

use std::collections::BTreeMap;

use rlx::ir::ValueId;
use rlx::ir::element::Elements;
use rlx::ir::eval::{EvalInputs, evaluate_observed};
use rlx::ir::op::EvalOptions;
use rlx::{DType, Module, Value};

/// Units in the last place that the nodes before a value may cost in all.
const UNITS: f64 = 48.0;

/// Tolerances of a graph's values.
pub struct Tolerance(BTreeMap<ValueId, History>);

/// What stands behind a value.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    /// Unit in the last place of 1 in the coarsest float dtype that was computed in.
    unit: f64,
    /// Largest finite magnitude.
    scale: f64,
}

impl Tolerance {
    /// Of every value of the main graph.
    pub fn of(m: &Module, inputs: &EvalInputs) -> Result<Self, String> {
        let mut own = BTreeMap::new();
        evaluate_observed(m, inputs, EvalOptions { f64_accumulate: true, ..EvalOptions::default() }, &mut |id, v| {
            own.insert(id, magnitude(v));
        })
        .map_err(|e| format!("evaluator: {e}"))?;
        let g = &m.main;
        let mut all: BTreeMap<ValueId, History> = BTreeMap::new();
        for v in g.value_ids() {
            let scale = own.get(&v).copied().unwrap_or(0.0);
            all.insert(v, History { unit: 0.0, scale });
        }
        for node in g.nodes() {
            let before = node
                .operands
                .iter()
                .filter_map(|o| all.get(o))
                .fold(History::default(), |a, b| History { unit: a.unit.max(b.unit), scale: a.scale.max(b.scale) });
            for r in &node.results {
                let dtype = g.tensor_type(*r).map_or(DType::Bool, |t| t.dtype);
                let Some(h) = all.get_mut(r) else { continue };
                if dtype.is_float() || dtype.is_complex() {
                    h.unit = before.unit.max(unit(dtype));
                    h.scale = h.scale.max(before.scale);
                }
            }
        }
        Ok(Tolerance(all))
    }

    /// Relative and absolute tolerance of a value.
    pub fn get(&self, v: ValueId) -> (f64, f64) {
        let h = self.0.get(&v).copied().unwrap_or_default();
        (UNITS * h.unit, UNITS * h.unit * h.scale)
    }
}

fn magnitude(v: &Value) -> f64 {
    let largest = |x: &[f64]| x.iter().filter(|x| x.is_finite()).fold(0.0, |m: f64, x| m.max(x.abs()));
    match v.as_tensor().map(|t| t.elements()) {
        Some(Elements::Float(x)) => largest(&x),
        Some(Elements::Complex(x)) => largest(x.as_flattened()),
        _ => 0.0,
    }
}

/// The distance from 1 to the next number.
fn unit(d: DType) -> f64 {
    match d {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        // The narrow floats are moved and converted to, not computed in; a conversion of a number that was rounded may fall to the
        // other side.
        _ => 0.5,
    }
}
