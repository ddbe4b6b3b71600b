//! Parameters whose values the options state become constants; symbols in their types become their sizes.

use rlx_ir::dim::{Bounds, Equation, solve};
use rlx_ir::{Dim, DimBinding, Graph, IrError, Module};

use super::bind_dims::{Substitution, substitute};
use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::rewrite::Rewriter;

/// The pass.
pub const PASS: Pass =
    Pass { name: "bind-params", phase: Phase::Import, summary: "makes parameters constants as the options say", run };

fn run(m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    let values = &cx.options.param_bindings;
    if values.is_empty() {
        return Ok(m);
    }
    let sizes = sizes(&m.main, cx)?;
    let main = if sizes.is_empty() { m.main.clone() } else { substitute(&m.main, &sizes)? };
    let mut rw = Rewriter::with_boundary(&main, &|ty| ty.clone(), &|name| {
        let value = values.get(name).cloned();
        value.iter().for_each(|_| cx.count("parameter"));
        value
    })?;
    for node in main.nodes() {
        rw.copy(node)?;
    }
    Ok(Module { main: rw.finish()?, ..m })
}

/// What the values' sizes say of symbols; an error that lists every value that fits no parameter.
fn sizes(g: &Graph, cx: &PassCx<'_>) -> Result<Substitution, IrError> {
    let mut problems = Vec::new();
    let mut equations = Vec::new();
    for (name, value) in &cx.options.param_bindings {
        let Some(p) = g.params().iter().find(|p| &*p.name == name) else {
            let known: Vec<&str> = g.params().iter().map(|p| &*p.name).collect();
            problems.push(format!("there is no parameter `{name}`; there are: {}", known.join(", ")));
            continue;
        };
        let fits = g.tensor_type(p.value).filter(|t| t.dtype == value.dtype() && t.shape.rank() == value.rank());
        let Some(ty) = fits else {
            problems.push(format!("parameter `{name}` is {}, got {value:?}", g.ty(p.value)));
            continue;
        };
        for (axis, (d, &n)) in ty.shape.iter().zip(value.dims()).enumerate() {
            let n = i64::try_from(n).unwrap_or(i64::MAX);
            equations.push(Equation::new(d.clone(), n, format!("parameter `{name}` axis {axis}")));
        }
    }
    let binding = solve(&equations, &DimBinding::new(), &Bounds::default()).unwrap_or_else(|errors| {
        problems.extend(errors.iter().map(ToString::to_string));
        DimBinding::new()
    });
    if !problems.is_empty() {
        return Err(IrError::Eval(format!("options bind parameters: {}", problems.join("; "))));
    }
    Ok(binding.iter().map(|(s, n)| (s.clone(), Dim::from(n))).collect())
}
