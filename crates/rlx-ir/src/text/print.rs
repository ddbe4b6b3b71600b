//! The printer.

use std::collections::HashSet;
use std::fmt;

use super::{MAX_INLINE_ELEMS, name_text};
use crate::attr::{AttrValue, AttrWriter, quote};
use crate::dim::{Constraint, ConstraintRecord, Dim};
use crate::graph::{Graph, Module, Node, Stage, ValueId};
use crate::tensor::Tensor;

/// Longest head of a graph that stands on one line.
const LINE: usize = 110;

/// Most bytes of strings in a default value that is printed in place.
const MAX_INLINE_BYTES: usize = 1024;

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Stage::Mir { target, claims } = &self.stage {
            let claims: Vec<String> = claims.iter().cloned().collect();
            writeln!(f, "module {{stage = mir, target = {}, claims = {}}}", quote(target), claims.print())?;
        }
        write!(f, "func ")?;
        graph(f, &self.main, self.main.name(), 0)?;
        for (name, g) in &self.functions {
            write!(f, "func ")?;
            graph(f, g, name, 0)?;
        }
        Ok(())
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "func ")?;
        graph(f, self, self.name(), 0)
    }
}

/// Values in order of printing.
fn printed_order(g: &Graph) -> impl Iterator<Item = ValueId> + '_ {
    g.inputs()
        .iter()
        .copied()
        .chain(g.params().iter().map(|p| p.value))
        .chain(g.states().iter().map(|s| s.value))
        .chain(g.nodes().iter().flat_map(|n| n.results.iter().copied()))
}

/// How each value is spelled where it is used, and the name that its definition must add.
struct Names(Vec<Option<(String, Option<String>)>>);

impl Names {
    /// The first value of a name has it; other values are numbered by their position in order of printing.
    fn new(g: &Graph) -> Self {
        let mut names = vec![None; g.num_values()];
        let mut taken: HashSet<&str> = HashSet::new();
        for (position, v) in printed_order(g).enumerate() {
            let name = g.get_value(v).and_then(|i| i.name.as_deref());
            let spelled = match name {
                Some(n) if taken.insert(n) => (format!("%{}", name_text(n)), None),
                other => (format!("%{position}"), other.map(quote)),
            };
            if let Some(slot) = names.get_mut(v.index()) {
                *slot = Some(spelled);
            }
        }
        Names(names)
    }

    fn used(&self, v: ValueId) -> String {
        match self.0.get(v.index()) {
            Some(Some((text, _))) => text.clone(),
            // A value that nothing defines: only in a broken graph, and no text that reads back.
            _ => format!("%?{}", v.index()),
        }
    }

    fn defined(&self, v: ValueId) -> String {
        match self.0.get(v.index()) {
            Some(Some((text, Some(note)))) => format!("{text} {note}"),
            _ => self.used(v),
        }
    }
}

fn type_text(g: &Graph, v: ValueId) -> String {
    g.get_value(v).map_or_else(|| "?".into(), |i| i.ty.to_string())
}

fn dim_list(dims: &[Dim]) -> String {
    let items: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("[{}]", items.join(", "))
}

fn literal(value: &Option<Tensor>, name: &str) -> String {
    let Some(t) = value else { return String::new() };
    let strings = t.strings().map_or(0, |s| s.iter().map(String::len).sum());
    if t.numel() <= MAX_INLINE_ELEMS && strings <= MAX_INLINE_BYTES {
        format!(" = {}", t.print())
    } else {
        format!(" = external {}", quote(name))
    }
}

fn constraint_text(c: &ConstraintRecord) -> String {
    let word = match c.constraint {
        Constraint::Eq(..) => "eq",
        Constraint::Broadcastable(..) => "broadcastable",
        Constraint::Le(..) => "le",
        Constraint::Divisible(..) => "divisible",
    };
    let (a, b) = c.constraint.dims();
    format!("{word}({a}, {b}) @{}", quote(&c.origin))
}

/// Constraints that inference of the nodes does not give back.
fn own_constraints(g: &Graph) -> Vec<&ConstraintRecord> {
    if g.constraints().is_empty() {
        return Vec::new();
    }
    let mut inferred: HashSet<Constraint> = HashSet::new();
    for n in g.nodes() {
        if let Ok((_, records)) = g.infer(&n.op, &n.operands, &n.regions, &n.loc) {
            inferred.extend(records.into_iter().map(|r| r.constraint));
        }
    }
    g.constraints().iter().filter(|c| !inferred.contains(&c.constraint)).collect()
}

/// A graph from its `@name` on, with the end of its last line.
fn graph(f: &mut fmt::Formatter<'_>, g: &Graph, name: &str, indent: usize) -> fmt::Result {
    region(f, g, name, indent)?;
    writeln!(f)
}

fn region(f: &mut fmt::Formatter<'_>, g: &Graph, name: &str, indent: usize) -> fmt::Result {
    let names = Names::new(g);
    let pad = " ".repeat(indent);
    let declared = |v: ValueId| format!("{}: {}", names.defined(v), type_text(g, v));
    let inputs: Vec<String> = g
        .inputs()
        .iter()
        .map(|&v| {
            let elems = g.get_value(v).and_then(|i| i.elems.as_deref());
            format!("{}{}", declared(v), elems.map_or(String::new(), |e| format!(" elems {}", dim_list(e))))
        })
        .collect();
    let mut kept: Vec<String> = Vec::new();
    for p in g.params() {
        kept.push(format!("param {}{}", declared(p.value), literal(&p.default, &p.name)));
    }
    for s in g.states() {
        let next = s.next.map_or(String::new(), |n| format!(" -> {}", names.used(n)));
        let grows = s.grows.map_or(String::new(), |axis| format!(" grows {axis}"));
        kept.push(format!("state {}{}{grows}{next}", declared(s.value), literal(&s.init, &s.name)));
    }
    let outputs: Vec<String> =
        g.outputs().iter().map(|o| format!("{}: {}", name_text(&o.name), type_text(g, o.value))).collect();

    let mut tail = format!(" -> ({})", outputs.join(", "));
    let bounds: Vec<String> = g
        .bounds()
        .iter()
        .map(|(s, (min, max))| format!("{s} = {min}..{}", max.map_or(String::new(), |m| m.to_string())))
        .collect();
    if !bounds.is_empty() {
        tail.push_str(&format!(" bounds({})", bounds.join(", ")));
    }
    let constraints: Vec<String> = own_constraints(g).into_iter().map(constraint_text).collect();
    if !constraints.is_empty() {
        tail.push_str(&format!(" requires({})", constraints.join(", ")));
    }

    let head = format!("@{}", name_text(name));
    let semi = if kept.is_empty() { "" } else { ";" };
    let gap = if inputs.is_empty() || kept.is_empty() { "" } else { " " };
    let line = format!("{head}({}{semi}{gap}{}){tail} {{", inputs.join(", "), kept.join(", "));
    if indent + line.len() <= LINE || inputs.len() + kept.len() == 0 {
        writeln!(f, "{line}")?;
    } else {
        writeln!(f, "{head}(")?;
        for (items, end) in [(&inputs, semi), (&kept, "")] {
            for (i, item) in items.iter().enumerate() {
                writeln!(f, "{pad}  {item}{}", if i + 1 < items.len() { "," } else { end })?;
            }
        }
        writeln!(f, "{pad}){tail} {{")?;
    }
    for n in g.nodes() {
        node(f, g, n, &names, indent + 2)?;
    }
    let returned: Vec<String> = g.outputs().iter().map(|o| names.used(o.value)).collect();
    writeln!(f, "{pad}  return{}{}", if returned.is_empty() { "" } else { " " }, returned.join(", "))?;
    write!(f, "{pad}}}")
}

fn node(f: &mut fmt::Formatter<'_>, g: &Graph, n: &Node, names: &Names, indent: usize) -> fmt::Result {
    let pad = " ".repeat(indent);
    write!(f, "{pad}")?;
    if !n.results.is_empty() {
        let results: Vec<String> = n.results.iter().map(|&v| names.defined(v)).collect();
        write!(f, "{} = ", results.join(", "))?;
    }
    let def = n.op.def();
    f.write_str(def.name())?;
    if !n.operands.is_empty() || !n.regions.is_empty() {
        let operands: Vec<String> = n.operands.iter().map(|&v| names.used(v)).collect();
        write!(f, "({})", operands.join(", "))?;
    }
    let mut attrs = AttrWriter::default();
    def.attrs(&mut attrs);
    if !attrs.entries().is_empty() {
        let items: Vec<String> = attrs.entries().iter().map(|(name, value)| format!("{name} = {value}")).collect();
        write!(f, " {{{}}}", items.join(", "))?;
    }
    if !n.results.is_empty() {
        let types: Vec<String> = n.results.iter().map(|&v| type_text(g, v)).collect();
        write!(f, " : {}", types.join(", "))?;
    }
    if let Some(name) = n.loc.name() {
        write!(f, " @{}", quote(name))?;
    }
    if !n.regions.is_empty() {
        writeln!(f, " (")?;
        for (i, r) in n.regions.iter().enumerate() {
            write!(f, "{pad}  ")?;
            region(f, r, r.name(), indent + 2)?;
            writeln!(f, "{}", if i + 1 < n.regions.len() { "," } else { "" })?;
        }
        write!(f, "{pad})")?;
    }
    writeln!(f)
}
