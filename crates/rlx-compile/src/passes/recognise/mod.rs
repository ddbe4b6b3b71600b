//! Makes whole again what exporters broke up: activations, softmax, norms, attention, rotary embedding, batch normalisation after a
//! convolution, rows taken from a table.
//!
//! A graph is copied node by node; after each node the rules look at it and at what it is made of in the new graph, so that a rule sees
//! what earlier rules made. A rule only replaces the value at its root: what nothing reads any more is dropped by DCE, and other users
//! of intermediate values are served as before. A rule that has found what a composite is made of, and not what it needs of it, says why
//! in a remark. Results agree within rounding, not bit for bit; a NaN of an overflow that the composite
//! avoids (`exp(x)/Σexp(x)`, a row of attention without any key) goes away.

mod activation;
mod attention;
mod conv;
mod look;
mod mask;
mod norm;
mod one_hot;
mod quantised;
mod rotary;
mod softmax;

use rlx_ir::graph::Def;
use rlx_ir::op::Effect;
use rlx_ir::{Graph, IrError, Module, Op, ValueId};

use crate::pass::{Pass, PassCx, PassError, Phase};
use crate::remark::RemarkKind;
use crate::rewrite::{Rewriter, map_graphs};
use look::Look;

/// The pass.
pub const PASS: Pass =
    Pass { name: "recognise", phase: Phase::Recognise, summary: "makes composites of what exporters broke up", run };

type Found = Result<Option<ValueId>, IrError>;

/// A rule: what a value may be the result of, for it to be looked at, and what it becomes.
struct Rule {
    name: &'static str,
    roots: &'static [&'static str],
    apply: fn(&mut Recogniser<'_>, ValueId) -> Found,
}

const fn rule(
    name: &'static str,
    roots: &'static [&'static str],
    apply: fn(&mut Recogniser<'_>, ValueId) -> Found,
) -> Rule {
    Rule { name, roots, apply }
}

/// The rules. The first that applies wins; what it makes is looked at again.
const RULES: &[Rule] = &[
    rule("sigmoid", &["div", "reciprocal"], activation::sigmoid),
    rule("softplus", &["log", "log1p"], activation::softplus),
    rule("silu", &["mul", "div"], activation::silu),
    rule("gelu", &["mul", "div"], activation::gelu),
    rule("gelu_tanh", &["mul", "div"], activation::gelu_tanh),
    rule("hard_swish", &["mul", "div"], activation::hard_swish),
    rule("mish", &["mul"], activation::mish),
    rule("softmax", &["div", "mul"], softmax::softmax),
    rule("log_softmax", &["log", "sub"], softmax::log_softmax),
    rule("layer_norm", &["div", "mul"], norm::layer_norm),
    rule("layer_norm from moments", &["add", "sub"], norm::from_moments),
    rule("rms_norm", &["div", "mul"], norm::rms_norm),
    rule("scale of norm", &["mul"], norm::scale),
    rule("bias of norm", &["add"], norm::bias),
    rule("rotary_embedding", &["add"], rotary::rotary),
    rule("attention", &["dot_general"], attention::attention),
    rule("rows of a table", &["dot_general"], one_hot::product),
    rule("integer product", &["dot_general"], quantised::product),
    rule("integer convolution", &["conv"], quantised::convolution),
    rule("narrow integer convolution", &["conv"], quantised::narrow_convolution),
    rule("rows before their numbers", &["gather"], quantised::rows),
    rule("batch_norm into conv", &["batch_norm"], conv::batch_norm),
    rule("scale into conv", &["mul", "div"], conv::scale),
    rule("bias into conv", &["add", "sub"], conv::bias),
];

/// Names of the rules.
pub fn rule_names() -> Vec<&'static str> {
    RULES.iter().map(|r| r.name).collect()
}

/// What one rule makes another may take, at most this often for one node.
const MAX_STEPS: usize = 6;

fn run(m: Module, cx: &PassCx<'_>) -> Result<Module, PassError> {
    Ok(map_graphs(m, &mut |g| super::dce::eliminate(recognise(&g, cx)?))?)
}

/// A graph being rebuilt by the rules.
struct Recogniser<'a> {
    rw: Rewriter<'a>,
    /// For each new value, how often the old graph reads what it stands for.
    uses: Vec<usize>,
    /// For each new value, whether it depends on parameters and literals only.
    invariant: Vec<bool>,
    /// Why the rule that looks at a value gives up, if it is nearly right.
    why: Option<&'static str>,
}

fn recognise(g: &Graph, cx: &PassCx<'_>) -> Result<Graph, IrError> {
    let mut r = Recogniser { rw: Rewriter::new(g)?, uses: Vec::new(), invariant: Vec::new(), why: None };
    let uses = g.use_counts();
    // What is only a part of something that is recognised later says nothing.
    let mut nearly: Vec<(ValueId, &'static str, &'static str)> = Vec::new();
    for node in g.nodes() {
        r.rw.b.set_loc(node.loc.clone());
        if node.regions.is_empty() {
            r.rw.copy(node)?;
        } else {
            let region = |region: &Graph| {
                let new = recognise(region, cx)?;
                Ok(if new.same_boundary(region) { new } else { region.clone() })
            };
            let regions = node.regions.iter().map(region).collect::<Result<Vec<_>, IrError>>()?;
            r.rw.copy_with_regions(node, regions)?;
        }
        let &[result] = &node.results[..] else { continue };
        for _ in 0..MAX_STEPS {
            let v = r.rw.get(result)?;
            r.note(v, uses[result.index()]);
            let mut here = Vec::new();
            let Some((name, new)) = r.look_at(v, &mut here)? else {
                nearly.extend(here.into_iter().map(|(name, why)| (v, name, why)));
                break;
            };
            let loc = node.loc.clone();
            cx.count(name);
            cx.remark(RemarkKind::Applied, &loc, format!("recognised {name}"));
            r.rw.set(result, new);
        }
    }
    let done = r.rw.finish()?;
    let live = super::dce::live(&done);
    for (v, name, why) in nearly {
        if let Some((id, node)) = done.def_node(v)
            && live.get(id.index()) == Some(&true)
        {
            cx.remark(RemarkKind::Missed, &node.loc, format!("not recognised as {name}: {why}"));
        }
    }
    Ok(done)
}

impl Recogniser<'_> {
    fn look(&self) -> Look<'_> {
        Look { g: self.rw.b.graph() }
    }

    /// The first rule that applies to a value, and what the value becomes; or those that nearly did, and why they did not.
    fn look_at(
        &mut self,
        v: ValueId,
        nearly: &mut Vec<(&'static str, &'static str)>,
    ) -> Result<Option<(&'static str, ValueId)>, IrError> {
        let Some((op, _)) = self.look().op(v) else { return Ok(None) };
        let root = op.name();
        let ty = self.look().g.ty(v).clone();
        for rule in RULES.iter().filter(|r| r.roots.contains(&root)) {
            self.why = None;
            match (rule.apply)(self, v)? {
                // Whatever a rule believes, users see the type that they were built for.
                Some(new) if *self.look().g.ty(new) == ty => return Ok(Some((rule.name, new))),
                Some(_) => nearly.push((rule.name, "it would have another type")),
                None => nearly.extend(self.why.take().map(|why| (rule.name, why))),
            }
        }
        Ok(None)
    }

    /// Notes what is known of a value and of those that rules made on the way to it.
    fn note(&mut self, v: ValueId, uses: usize) {
        let g = self.rw.b.graph();
        for v in g.value_ids().skip(self.invariant.len()) {
            let invariant = match g.value(v).def {
                Def::Param(_) => true,
                Def::Input(_) | Def::State(_) => false,
                Def::Result(n, _) => {
                    let node = g.node(n);
                    let def = node.op.def();
                    let plain = def.traits().effect == Effect::Pure && def.defines().is_empty();
                    plain
                        && node.regions.is_empty()
                        && !matches!(node.op, Op::Control(_))
                        && node.operands.iter().all(|o| self.invariant.get(o.index()).copied().unwrap_or(false))
                }
            };
            self.invariant.push(invariant);
        }
        self.uses.resize(g.num_values(), 0);
        if let Some(slot) = self.uses.get_mut(v.index()) {
            *slot = uses;
        }
    }

    /// Gives up on what is nearly right.
    fn nearly(&mut self, why: &'static str) -> Found {
        self.why = Some(why);
        Ok(None)
    }

    fn is_invariant(&self, v: ValueId) -> bool {
        self.invariant.get(v.index()).copied().unwrap_or(false)
    }

    fn used_once(&self, v: ValueId) -> bool {
        self.uses.get(v.index()) == Some(&1)
    }
}
