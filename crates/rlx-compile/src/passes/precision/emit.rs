//! The graph with casts.

use rlx_ir::ops::{Contraction, Elementwise};
use rlx_ir::{DType, Graph, IrError, Node, Op, TensorType, Type, ValueId};

use super::plan::{Decision, Form, How, Plan, is_f32};
use crate::options::{OpClass, PrecisionPolicy};
use crate::pass::PassCx;
use crate::passes::regions;
use crate::remark::RemarkKind;
use crate::rewrite::Rewriter;

/// What graphs are rebuilt with.
pub(super) struct With<'a> {
    pub policy: &'a PrecisionPolicy,
    pub low: DType,
    pub cx: &'a PassCx<'a>,
}

/// The forms of a value that there are.
#[derive(Clone, Copy, Default)]
struct Forms {
    /// f32, rounded if it is kept low.
    wide: Option<ValueId>,
    low: Option<ValueId>,
}

struct Emitter<'w, 'a, 'g> {
    with: &'w With<'a>,
    rw: Rewriter<'g>,
    plan: Plan,
    forms: Vec<Forms>,
}

impl With<'_> {
    /// A graph; `given` says in which form each input comes.
    pub fn graph(&self, g: &Graph, given: &dyn Fn(ValueId) -> Form) -> Result<Graph, IrError> {
        let plan = Plan::of(g, self.policy, given);
        let ty = |v: ValueId, t: &Type| match t {
            Type::Tensor(t) if plan.form.get(v.index()) == Some(&Form::Low) => {
                Type::Tensor(TensorType::new(self.low, t.shape.clone()))
            }
            t => t.clone(),
        };
        let rw = Rewriter::with_value_types(g, &ty)?;
        let mut e = Emitter { with: self, rw, plan, forms: vec![Forms::default(); g.num_values()] };
        e.boundary(g)?;
        for (i, node) in g.nodes().iter().enumerate() {
            e.rw.b.set_loc(node.loc.clone());
            e.node(g, i, node)?;
        }
        for &v in g.outputs().iter().map(|o| &o.value).chain(g.states().iter().filter_map(|s| s.next.as_ref())) {
            if let Some(Forms { wide: None, low: Some(low) }) = e.forms.get(v.index()).copied() {
                let wide = e.cast(low, DType::F32)?;
                e.rw.set(v, wide);
            }
        }
        e.rw.finish()
    }

    /// Says what was decided of a node.
    fn report(&self, g: &Graph, i: usize, node: &Node, plan: &Plan) {
        let Some(d) = plan.nodes.get(i).filter(|_| node.results.iter().any(|&r| is_f32(g, r))) else { return };
        if d.class == OpClass::Control || node.op.as_constant().is_some() {
            return;
        }
        let (op, class, low) = (node.op.name(), d.class, self.low);
        if d.low || d.low_operands {
            self.cx.count("low");
            if d.class != OpClass::Move {
                let what = if d.low { "" } else { "operands " };
                self.cx.remark(RemarkKind::Applied, &node.loc, format!("{what}{low}: `{op}` ({class})"));
            }
        } else {
            self.cx.count("kept f32");
            if d.class != OpClass::Move {
                self.cx.remark(RemarkKind::Note, &node.loc, format!("kept f32: `{op}` ({class}): {}", d.why));
            }
        }
    }
}

impl Emitter<'_, '_, '_> {
    fn cast(&mut self, v: ValueId, to: DType) -> Result<ValueId, IrError> {
        self.with.cx.count("cast");
        self.rw.b.op1(Elementwise::Convert { to, saturate: true }, &[v])
    }

    /// Inputs, parameters and states in the forms that are needed. What a program is given is f32; captures come as they are.
    fn boundary(&mut self, g: &Graph) -> Result<(), IrError> {
        let states = g.states().iter().map(|s| s.value);
        for v in g.inputs().iter().copied().chain(g.params().iter().map(|p| p.value)).chain(states) {
            if is_f32(g, v) {
                let new = self.rw.get(v)?;
                self.define(v, new)?;
            }
        }
        Ok(())
    }

    /// Says what an f32 value has become, and makes the other forms that are needed at once, while its kernel can still take them.
    fn define(&mut self, v: ValueId, new: ValueId) -> Result<(), IrError> {
        let at = v.index();
        let needs = |list: &[bool]| list.get(at).copied().unwrap_or(false);
        let (wide, low) = (needs(&self.plan.wide), needs(&self.plan.low));
        let kept_low = self.plan.form.get(at) == Some(&Form::Low);
        let mut forms = Forms::default();
        if self.rw.b.dtype(new)? == DType::F32 {
            if low || wide && kept_low {
                forms.low = Some(self.cast(new, self.with.low)?);
            }
            forms.wide = match forms.low.filter(|_| wide && kept_low) {
                Some(low) => Some(self.cast(low, DType::F32)?),
                None => Some(new),
            };
            // What leaves the graph is not rounded on the way.
            self.rw.set(v, new);
        } else {
            forms.low = Some(new);
            if wide {
                let wide = self.cast(new, DType::F32)?;
                forms.wide = Some(wide);
                self.rw.set(v, wide);
            }
        }
        if let Some(slot) = self.forms.get_mut(at) {
            *slot = forms;
        }
        Ok(())
    }

    fn operand(&self, g: &Graph, v: ValueId, form: Form) -> Result<ValueId, IrError> {
        if !is_f32(g, v) {
            return self.rw.get(v);
        }
        let forms = self.forms.get(v.index()).copied().unwrap_or_default();
        let found = if form == Form::Low { forms.low } else { forms.wide };
        found.ok_or_else(|| IrError::Eval(format!("{} has no form that a node reads", g.value_name(v))))
    }

    fn node(&mut self, g: &Graph, i: usize, node: &Node) -> Result<(), IrError> {
        self.with.report(g, i, node, &self.plan);
        let needs: Vec<Form> = (0..node.operands.len()).map(|k| self.plan.need(node, i, k)).collect();
        let operands = node.operands.iter().zip(&needs).map(|(&v, &f)| self.operand(g, v, f));
        let mut operands = operands.collect::<Result<Vec<_>, _>>()?;
        // A product of f32 whose result would be rounded with its operands: they are rounded alone.
        let rounds = |d: &Decision| d.how == How::Typed && d.low_operands && !d.low;
        if self.plan.nodes.get(i).is_some_and(rounds) {
            for (v, _) in operands.iter_mut().zip(&needs).filter(|(_, f)| **f == Form::Low) {
                *v = self.cast(*v, DType::F32)?;
            }
        }
        let first = node.operands.len() - regions::captures(node);
        let nested = |r: &Graph| {
            // The last inputs are the captures.
            let arguments = (r.inputs().len() + first).saturating_sub(node.operands.len());
            let form = |v: ValueId| {
                let at = r.inputs().iter().position(|&i| i == v).and_then(|at| at.checked_sub(arguments));
                let outer = at.and_then(|at| node.operands.get(first + at));
                match outer.filter(|&&o| is_f32(g, o)).and_then(|_| at.and_then(|at| needs.get(first + at))) {
                    Some(&form) => form,
                    None => Form::Wide,
                }
            };
            self.with.graph(r, &form)
        };
        let regions = node.regions.iter().map(nested).collect::<Result<Vec<_>, _>>()?;
        let mut op = node.op.clone();
        if let (Op::Contraction(Contraction::DotGeneral(dot)), Some(Form::Low)) = (&mut op, needs.first()) {
            dot.accumulate = Some(DType::F32);
        }
        self.rw.control(node, op, &operands, regions)?;
        for &r in node.results.iter().filter(|&&r| is_f32(g, r)) {
            let new = self.rw.get(r)?;
            self.define(r, new)?;
        }
        Ok(())
    }
}
