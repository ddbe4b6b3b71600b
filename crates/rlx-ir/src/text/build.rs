//! From syntax to graphs: names, ops and types get their meaning. All errors are collected, up to a limit.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::ast::{Decl, DeclKind, GraphText, Key, Literal, ModuleText, NodeText};
use super::cursor::SyntaxError;
use super::syntax;
use crate::attr::{AttrReader, AttrValue};
use crate::error::IrError;
use crate::graph::{Graph, Loc, Module, Stage, ValueId};
use crate::op::Op;
use crate::tensor::Tensor;
use crate::types::Type;

/// Most errors that are listed.
const MAX_ERRORS: usize = 100;

/// What a large value belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalKind {
    /// The default of a parameter.
    Param,
    /// The initial value of a state.
    State,
}

/// A value that text names but does not hold.
#[derive(Clone, Copy, Debug)]
pub struct External<'a> {
    /// What it belongs to.
    pub kind: ExternalKind,
    /// The name in `external "name"`: that of the parameter or state.
    pub name: &'a str,
    /// The declared type.
    pub ty: &'a Type,
}

/// Reads a module. Values that are `external` are left out: their parameters have no default.
pub fn parse_module(text: &str) -> Result<Module, IrError> {
    parse_module_with(text, &mut |_| None)
}

/// Reads a module, with a resolver of `external` values.
pub fn parse_module_with(
    text: &str,
    resolver: &mut dyn FnMut(&External<'_>) -> Option<Tensor>,
) -> Result<Module, IrError> {
    let module = syntax::module(text).map_err(|e| e.locate(text))?;
    let mut b = Build { resolver, errors: Vec::new() };
    let built = b.module(module);
    let errors = b.errors.into_iter().map(|e| e.locate(text)).collect();
    IrError::from_list(errors).map_or(Ok(built), Err)
}

/// Reads a text of one graph.
pub fn parse_graph(text: &str) -> Result<Graph, IrError> {
    let module = parse_module(text)?;
    if module.functions.is_empty() {
        return Ok(module.main);
    }
    Err(IrError::Parse { line: 1, column: 1, message: "expected one graph, found several".into() })
}

struct Build<'r> {
    resolver: &'r mut dyn FnMut(&External<'_>) -> Option<Tensor>,
    errors: Vec<SyntaxError>,
}

/// Values in scope. `None` stands for one whose definition is in error, so that its users are not errors too.
type Scope = HashMap<Key, Option<ValueId>>;

impl Build<'_> {
    fn error(&mut self, at: usize, message: impl Into<String>) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(SyntaxError { at, message: message.into() });
        }
    }

    fn module(&mut self, text: ModuleText) -> Module {
        let stage = if text.header.is_empty() {
            Stage::Hir
        } else {
            stage(text.header).unwrap_or_else(|e| {
                self.error(text.header_at, format!("module: {e}"));
                Stage::Hir
            })
        };
        let mut graphs = text.graphs.into_iter();
        let main = graphs.next().map(|g| self.graph(g)).unwrap_or_default();
        let mut functions = BTreeMap::new();
        for g in graphs {
            let (at, name) = (g.at, g.name.clone());
            let graph = self.graph(g);
            if functions.insert(name.clone(), graph).is_some() {
                self.error(at, format!("function `{name}` is defined twice"));
            }
        }
        Module { main, functions, stage }
    }

    fn graph(&mut self, text: GraphText) -> Graph {
        let mut g = Graph::new(text.name);
        let mut scope = Scope::new();
        for r in text.bounds {
            g.bounds_mut().set(r.symbol, r.min, r.max);
        }
        let mut next = Vec::new();
        for d in text.decls {
            let state = g.states().len();
            if let Some(n) = d.next.clone() {
                next.push((state, n));
            }
            let grows = d.grows;
            self.declare(&mut g, &mut scope, d);
            if let Some((axis, at)) = grows
                && g.states().len() > state
                && let Err(e) = g.set_state_grows(state, axis)
            {
                self.error(at, e.to_string());
            }
        }
        for n in text.nodes {
            self.node(&mut g, &mut scope, n);
        }
        for (state, r) in next {
            if let Some(v) = self.resolve(&scope, &r.key, r.at)
                && let Err(e) = g.set_state_next(state, v)
            {
                self.error(r.at, e.to_string());
            }
        }
        let outputs = text.outputs.unwrap_or_default();
        if !outputs.is_empty() && outputs.len() != text.returns.len() {
            let message = format!("{} outputs are declared, {} are returned", outputs.len(), text.returns.len());
            self.error(text.return_at, message);
        }
        for (i, r) in text.returns.iter().enumerate() {
            let Some(v) = self.resolve(&scope, &r.key, r.at) else { continue };
            let declared = outputs.get(i);
            let name = declared.and_then(|o| o.name.clone()).unwrap_or_else(|| format!("out{i}"));
            if let Some((o, ty)) = declared.and_then(|o| o.ty.as_ref().map(|t| (o, t)))
                && g.ty(v) != ty
            {
                self.error(o.at, format!("output `{name}` is declared {ty} but {} is {}", r.key.text(), g.ty(v)));
            }
            if let Err(e) = g.add_output(&name, v) {
                self.error(r.at, e.to_string());
            }
        }
        g.add_constraints(&text.constraints);
        g
    }

    fn define(&mut self, scope: &mut Scope, key: Key, value: Option<ValueId>, at: usize) {
        let text = key.text();
        if scope.insert(key, value).is_some() {
            self.error(at, format!("{text} is defined twice"));
        }
    }

    fn resolve(&mut self, scope: &Scope, key: &Key, at: usize) -> Option<ValueId> {
        match scope.get(key) {
            Some(v) => *v,
            None => {
                self.error(at, format!("{} is not defined before this use", key.text()));
                None
            }
        }
    }

    fn literal(&mut self, d: &Decl, name: &str) -> Option<Tensor> {
        let kind = if d.kind == DeclKind::State { ExternalKind::State } else { ExternalKind::Param };
        match d.literal.as_ref()? {
            Literal::External(external) => {
                let found = (self.resolver)(&External { kind, name: external, ty: &d.ty });
                let fits = |t: &Tensor| {
                    d.ty.as_tensor().is_some_and(|ty| ty.dtype == t.dtype() && ty.shape.rank() == t.rank())
                };
                if let Some(t) = found.as_ref().filter(|t| !fits(t)) {
                    self.error(d.value.at, format!("external value of `{name}` is {t:?}, declared {}", d.ty));
                }
                found
            }
            Literal::Inline { text, at } => match <Tensor as AttrValue>::parse(text) {
                Ok(t) => Some(t),
                Err(e) => {
                    self.error(*at, e);
                    None
                }
            },
        }
    }

    fn declare(&mut self, g: &mut Graph, scope: &mut Scope, d: Decl) {
        let name = match (d.value.name(), &d.value.key) {
            (Some(n), _) => n.to_string(),
            (None, Key::Name(n) | Key::Number(n)) => n.clone(),
        };
        let literal = self.literal(&d, &name);
        let added = match d.kind {
            DeclKind::Input => g.add_input(&name, d.ty),
            DeclKind::Param => g.add_param(&name, d.ty, literal),
            DeclKind::State => g.add_state(&name, d.ty, literal),
        };
        match added {
            Ok(v) => {
                g.set_input_elems(v, d.elems);
                self.define(scope, d.value.key, Some(v), d.value.at);
            }
            Err(e) => {
                self.error(d.value.at, e.to_string());
                scope.entry(d.value.key).or_insert(None);
            }
        }
    }

    fn node(&mut self, g: &mut Graph, scope: &mut Scope, n: NodeText) {
        let regions: Vec<Graph> = n.regions.into_iter().map(|r| self.graph(r)).collect();
        let op = Op::parse(&n.op, AttrReader::new(n.attrs)).map_err(|e| self.error(n.op_at, e)).ok();
        let operands: Vec<Option<ValueId>> = n.operands.iter().map(|r| self.resolve(scope, &r.key, r.at)).collect();
        let loc = n.loc.map(Loc::new).unwrap_or_default();
        let built = op.zip(operands.into_iter().collect::<Option<Vec<_>>>()).and_then(|(op, operands)| {
            g.add_node(op, operands, regions, loc).map_err(|e| self.error(n.op_at, e.to_string())).ok()
        });
        let values = built.map(|id| g.node(id).results.clone());
        if let Some(values) = &values {
            if values.len() != n.results.len() {
                let message = format!("`{}` has {} results, the text names {}", n.op, values.len(), n.results.len());
                self.error(n.op_at, message);
            }
            if let Some(types) = &n.types {
                let inferred: Vec<&Type> = values.iter().map(|&v| g.ty(v)).collect();
                if inferred.iter().copied().ne(types.iter()) {
                    let list = |t: Vec<String>| t.join(", ");
                    let message = format!(
                        "results of `{}` are declared {} but inferred {}",
                        n.op,
                        list(types.iter().map(ToString::to_string).collect()),
                        list(inferred.iter().map(ToString::to_string).collect())
                    );
                    self.error(n.op_at, message);
                }
            }
        }
        for (i, r) in n.results.into_iter().enumerate() {
            let value = values.as_ref().and_then(|v| v.get(i).copied());
            if let (Some(v), Some(name)) = (value, r.name()) {
                g.set_value_name(v, name);
            }
            self.define(scope, r.key, value, r.at);
        }
    }
}

/// What the `module` line says.
fn stage(mut attrs: Vec<(String, String)>) -> Result<Stage, String> {
    let word = attrs.iter().position(|(name, _)| name == "stage").map(|i| attrs.remove(i).1);
    let mut attrs = AttrReader::new(attrs);
    let stage = match word.as_deref() {
        Some("hir") => Stage::Hir,
        Some("mir") => {
            let target = attrs.take("target")?;
            let claims: Vec<String> = attrs.take("claims")?;
            Stage::Mir { target, claims: claims.into_iter().collect::<BTreeSet<_>>() }
        }
        _ => return Err("expected `stage = hir` or `stage = mir`".into()),
    };
    attrs.finish()?;
    Ok(stage)
}
