//! Types that the file declares for values: hints, compared with what is inferred.

use rlx_ir::{TensorType, Type};

use super::scope::{Entry, Importer};
use super::values::dtype;
use crate::model::{DimDef, GraphDef, TypeDef, ValueDef};

impl<'m> Importer<'m> {
    /// Warns of declared types of a graph's values that do not agree with the inferred ones.
    pub fn check_hints(&mut self, graph: &'m GraphDef) {
        for v in graph.value_infos.iter().chain(&graph.outputs) {
            let Some(entry) = self.scope().names.get(&v.name).cloned() else { continue };
            let Entry::Value(frame, id) = entry else { continue };
            let Type::Tensor(t) = self.frames[frame].builder.graph().ty(id).clone() else { continue };
            if let Some(message) = disagreement(v, &t) {
                self.warn(&*v.name, message);
            }
        }
    }
}

fn disagreement(declared: &ValueDef, t: &TensorType) -> Option<String> {
    let Some(TypeDef::Tensor { dtype: d, shape }) = &declared.ty else {
        return declared.ty.as_ref().map(|_| format!("is declared as something else than the {t} that it is"));
    };
    if let Some(d) = d
        && dtype(*d) != Some(t.dtype)
    {
        return Some(format!("is declared with data type {d}, but is {t}"));
    }
    let dims = shape.as_ref()?;
    if dims.len() != t.shape.rank() {
        return Some(format!("is declared with {} axes, but is {t}", dims.len()));
    }
    let axis = dims.iter().zip(t.shape.iter()).position(|(d, e)| match d {
        DimDef::Fixed(n) => e.as_const().is_some_and(|c| c != *n),
        DimDef::Named(_) | DimDef::Unknown => false,
    })?;
    let said = match dims.get(axis) {
        Some(DimDef::Fixed(n)) => *n,
        _ => return None,
    };
    Some(format!("is declared with size {said} on axis {axis}, but is {t}"))
}
