//! The syntax: from text to [`ast`](super::ast). Stops at the first error.

use super::MAX_NESTING;
use super::ast::{Decl, DeclKind, Defined, GraphText, Key, Literal, ModuleText, NodeText, OutputDecl, Range, Ref};
use super::cursor::{Cursor, Parsed, SyntaxError};
use crate::dim::{Constraint, ConstraintRecord, Dim};
use crate::types::{Shape, Type};

/// Greatest nesting of `seq<…>` and `opt<…>`.
const MAX_TYPE_NESTING: usize = 32;

/// Most inputs, parameters and states of one graph, which are looked up by name one against all.
const MAX_DECLS: usize = 1 << 16;

pub(super) fn module(text: &str) -> Parsed<ModuleText> {
    let mut c = Cursor::new(text);
    let mut module = ModuleText { header_at: c.at(), ..Default::default() };
    if c.eat_word("module") {
        module.header = attrs(&mut c)?;
    }
    while c.eat_word("func") {
        module.graphs.push(graph(&mut c, 0)?);
    }
    if !c.at_end() || module.graphs.is_empty() {
        return Err(c.expected("`func`"));
    }
    Ok(module)
}

/// Reads `item { "," item }` up to the closing mark.
fn list<T>(c: &mut Cursor<'_>, close: &str, mut item: impl FnMut(&mut Cursor<'_>) -> Parsed<T>) -> Parsed<Vec<T>> {
    let mut out = Vec::new();
    if c.eat(close) {
        return Ok(out);
    }
    loop {
        out.push(item(c)?);
        if c.eat(close) {
            return Ok(out);
        }
        if !c.eat(",") {
            return Err(c.expected(&format!("`,` or `{close}`")));
        }
    }
}

fn attrs(c: &mut Cursor<'_>) -> Parsed<Vec<(String, String)>> {
    c.expect("{", "before attributes")?;
    list(c, "}", |c| {
        let name = c.word("the name of an attribute")?;
        c.expect("=", "after the attribute's name")?;
        Ok((name.to_string(), c.raw_value("the attribute's value")?.to_string()))
    })
}

fn key(c: &mut Cursor<'_>) -> Parsed<Key> {
    c.expect("%", "before the name of a value")?;
    let digits = c.digits();
    if digits.is_empty() { c.name("the name of a value").map(Key::Name) } else { Ok(Key::Number(digits.into())) }
}

fn reference(c: &mut Cursor<'_>) -> Parsed<Ref> {
    let at = c.at();
    Ok(Ref { key: key(c)?, at })
}

fn defined(c: &mut Cursor<'_>) -> Parsed<Defined> {
    let at = c.at();
    let key = key(c)?;
    let note = if c.peek() == Some(b'"') { Some(c.string("a name")?) } else { None };
    Ok(Defined { key, note, at })
}

fn dim(c: &mut Cursor<'_>) -> Parsed<Dim> {
    let at = c.at();
    let (d, len) =
        Dim::parse_prefix(c.rest()).map_err(|e| SyntaxError { at: at + e.offset, message: e.message.clone() })?;
    c.advance(len);
    Ok(d)
}

fn ty(c: &mut Cursor<'_>, nesting: usize) -> Parsed<Type> {
    if nesting > MAX_TYPE_NESTING {
        return Err(c.error(format!("types nest deeper than {MAX_TYPE_NESTING} levels")));
    }
    let at = c.at();
    let word = c.word("a type like f32[n, 4]")?;
    if word == "seq" || word == "opt" {
        c.expect("<", "after seq or opt")?;
        let inner = Box::new(ty(c, nesting + 1)?);
        c.expect(">", "after the element type")?;
        return Ok(if word == "seq" { Type::Sequence(inner) } else { Type::Optional(inner) });
    }
    let dtype = word
        .parse()
        .map_err(|e: crate::dtype::UnknownDType| SyntaxError { at, message: format!("expected a type: {e}") })?;
    c.expect("[", "after the dtype")?;
    Ok(Type::tensor(dtype, Shape::from(list(c, "]", dim)?)))
}

fn decl(c: &mut Cursor<'_>) -> Parsed<Decl> {
    let kind = if c.eat_word("param") {
        DeclKind::Param
    } else if c.eat_word("state") {
        DeclKind::State
    } else {
        DeclKind::Input
    };
    let value = defined(c)?;
    c.expect(":", "and a type")?;
    let mut d = Decl { kind, value, ty: ty(c, 0)?, elems: None, literal: None, grows: None, next: None };
    if kind == DeclKind::Input {
        if c.eat_word("elems") {
            c.expect("[", "before the known elements")?;
            d.elems = Some(list(c, "]", dim)?);
        }
        return Ok(d);
    }
    if c.eat("=") {
        d.literal = Some(if c.eat_word("external") {
            Literal::External(c.string("the name of an external value")?)
        } else {
            let at = c.at();
            Literal::Inline { text: c.raw_tensor()?.to_string(), at }
        });
    }
    if kind == DeclKind::State {
        let at = c.at();
        if c.eat_word("grows") {
            let axis = c.integer()?;
            let wrong = || SyntaxError { at, message: format!("a state grows on an axis, and {axis} is none") };
            d.grows = Some((usize::try_from(axis).map_err(|_| wrong())?, at));
        }
    }
    if kind == DeclKind::State && c.eat("->") {
        d.next = Some(reference(c)?);
    }
    Ok(d)
}

fn decls(c: &mut Cursor<'_>) -> Parsed<Vec<Decl>> {
    c.expect("(", "before the inputs")?;
    let mut out = Vec::new();
    c.eat(";");
    if c.eat(")") {
        return Ok(out);
    }
    loop {
        if out.len() >= MAX_DECLS {
            return Err(c.error(format!("a graph has at most {MAX_DECLS} inputs, parameters and states")));
        }
        out.push(decl(c)?);
        if c.eat(")") {
            return Ok(out);
        }
        if !c.eat(",") && !c.eat(";") {
            return Err(c.expected("`,`, `;` or `)`"));
        }
    }
}

fn output(c: &mut Cursor<'_>) -> Parsed<OutputDecl> {
    let at = c.at();
    // A type is a word with `[` or `<` behind it; anything else is a name.
    let word = c.peek_word();
    let after = c.rest().get(word.len()..).unwrap_or("");
    if !word.is_empty() && after.starts_with(['[', '<']) {
        return Ok(OutputDecl { name: None, ty: Some(ty(c, 0)?), at });
    }
    let name = Some(c.name("an output's name or type")?);
    let ty = if c.eat(":") { Some(ty(c, 0)?) } else { None };
    Ok(OutputDecl { name, ty, at })
}

fn range(c: &mut Cursor<'_>) -> Parsed<Range> {
    let at = c.at();
    let d = dim(c)?;
    let symbol =
        d.as_symbol().cloned().ok_or_else(|| SyntaxError { at, message: format!("expected a symbol, found `{d}`") })?;
    c.expect("=", "and a range like 1..16")?;
    let min = c.integer()?;
    c.expect("..", "in a range like 1..16 or 1..")?;
    let max = match c.peek() {
        Some(b'0'..=b'9' | b'-') => Some(c.integer()?),
        _ => None,
    };
    Ok(Range { symbol, min, max })
}

fn constraint(c: &mut Cursor<'_>) -> Parsed<ConstraintRecord> {
    let at = c.at();
    let word = c.word("eq, broadcastable, le or divisible")?;
    let make = match word {
        "eq" => Constraint::Eq,
        "broadcastable" => Constraint::Broadcastable,
        "le" => Constraint::Le,
        "divisible" => Constraint::Divisible,
        _ => {
            let message = format!("expected eq, broadcastable, le or divisible, found `{word}`");
            return Err(SyntaxError { at, message });
        }
    };
    c.expect("(", "before two dims")?;
    let a = dim(c)?;
    c.expect(",", "between two dims")?;
    let b = dim(c)?;
    c.expect(")", "after two dims")?;
    let origin = if c.eat("@") { c.string("where the constraint comes from")? } else { "text".into() };
    Ok(ConstraintRecord::new(make(a, b), origin))
}

/// A graph from its `@name` on.
fn graph(c: &mut Cursor<'_>, nesting: usize) -> Parsed<GraphText> {
    if nesting > MAX_NESTING {
        return Err(c.error(format!("graphs nest deeper than {MAX_NESTING} levels")));
    }
    let at = c.at();
    c.expect("@", "and the graph's name")?;
    let name = c.name("the graph's name")?;
    let decls = decls(c)?;
    let outputs = if c.eat("->") {
        c.expect("(", "before the outputs")?;
        Some(list(c, ")", output)?)
    } else {
        None
    };
    let bounds = if c.eat_word("bounds") {
        c.expect("(", "before bounds")?;
        list(c, ")", range)?
    } else {
        Vec::new()
    };
    let constraints = if c.eat_word("requires") {
        c.expect("(", "before constraints")?;
        list(c, ")", constraint)?
    } else {
        Vec::new()
    };
    c.expect("{", "before the graph's nodes")?;
    let mut nodes = Vec::new();
    loop {
        let return_at = c.at();
        if c.eat_word("return") {
            let mut returns = Vec::new();
            if c.peek() == Some(b'%') {
                returns.push(reference(c)?);
                while c.eat(",") {
                    returns.push(reference(c)?);
                }
            }
            c.expect("}", "after `return`")?;
            return Ok(GraphText { name, at, decls, outputs, bounds, constraints, nodes, returns, return_at });
        }
        nodes.push(node(c, nesting)?);
    }
}

fn node(c: &mut Cursor<'_>, nesting: usize) -> Parsed<NodeText> {
    let mut results = Vec::new();
    if c.peek() == Some(b'%') {
        results.push(defined(c)?);
        while c.eat(",") {
            results.push(defined(c)?);
        }
        c.expect("=", "after the results")?;
    }
    let op_at = c.at();
    let op = c.word("an op, a result like `%0 =` or `return`")?.to_string();
    let operands = if c.eat("(") { list(c, ")", reference)? } else { Vec::new() };
    let attrs = if c.peek() == Some(b'{') { attrs(c)? } else { Vec::new() };
    let types = if c.eat(":") {
        let mut types = vec![ty(c, 0)?];
        while c.eat(",") {
            types.push(ty(c, 0)?);
        }
        Some(types)
    } else {
        None
    };
    let loc = if c.eat("@") { Some(c.string("the source's name of the node")?) } else { None };
    let regions = if c.eat("(") { list(c, ")", |c| graph(c, nesting + 1))? } else { Vec::new() };
    Ok(NodeText { results, op, op_at, operands, attrs, types, loc, regions })
}
