//! Branches and loops.

use rlx_ir::dim::Constraint;
use rlx_ir::op::Op;
use rlx_ir::ops::control::Scan;
use rlx_ir::ops::elementwise::{Compare, Elementwise, Unary};
use rlx_ir::{Dim, Graph, Shape, Type, ValueId};

use super::context::{Failure, NodeCx, Out};
use super::{OpEntry, op};
use crate::import::{Turn, scalar};
use crate::model::GraphDef;

pub(super) const OPS: &[OpEntry] = &[op("If", 1, branch), op("Loop", 1, repeat), op("Scan", 8, scan)];

fn branch(cx: &mut NodeCx<'_, '_>) -> Out {
    let (then, otherwise) = (cx.graph("then_branch")?, cx.graph("else_branch")?);
    let cond = match cx.input(0) {
        Ok(cond) => cond,
        Err(failure) => {
            // Both branches are looked at, so that what is wrong in them is listed too.
            let _ = cx.imp.region("then", then, &[], &[], Turn::Once, |_, _| Ok(()));
            let _ = cx.imp.region("else", otherwise, &[], &[], Turn::Once, |_, _| Ok(()));
            return Err(failure);
        }
    };
    if let Some(taken) = cx.known_bool(cond) {
        return cx.imp.inline_graph(if taken { then } else { otherwise }, &[]);
    }
    let first = cx.imp.region("then", then, &[], &[], Turn::Once, |_, _| Ok(()));
    let captured = first.as_ref().map_or(&[][..], |r| &r.captures[..]);
    let second = cx.imp.region("else", otherwise, &[], captured, Turn::Once, |_, _| Ok(()));
    let (mut first, second) = (first?, second?);
    if ranks(&first.graph) != ranks(&second.graph)
        && let Some((a, b, taken)) = equality(cx, cond)
    {
        // What exporters write for `squeeze`: the rank depends on whether a size is 1. Only one of the two ranks fits what follows, and
        // it is the squeezed one, or the model would not squeeze.
        cx.require(Constraint::Eq(a, b), "a branch that changes the rank")?;
        let message =
            "the branches give results of different rank; the one for equal sizes is taken, and checked at run time";
        cx.imp.warn(&*cx.node.label, message);
        return cx.imp.inline_graph(if taken { then } else { otherwise }, &[]);
    }
    let cond = scalar(cx.b(), cond)?;
    cx.imp.extend_captures(&mut first, &second.captures)?;
    Ok(cx.b().if_regions(cond, &second.captures, first.graph, second.graph)?)
}

fn ranks(g: &Graph) -> Vec<Option<usize>> {
    g.outputs().iter().map(|o| g.tensor_type(o.value).map(|t| t.shape.rank())).collect()
}

/// The two sizes whose equality a condition is, and what the condition is when they are equal.
fn equality(cx: &mut NodeCx<'_, '_>, cond: ValueId) -> Option<(Dim, Dim, bool)> {
    let g = cx.b().graph();
    let (_, node) = g.def_node(cond)?;
    match node.op {
        Op::Elementwise(Elementwise::Compare(Compare::Eq)) => match node.operands[..] {
            [a, b] => match (g.elems(a)?, g.elems(b)?) {
                ([a], [b]) => Some((a.clone(), b.clone(), true)),
                _ => None,
            },
            _ => None,
        },
        Op::Elementwise(Elementwise::Unary(Unary::Not)) => {
            let inner = *node.operands.first()?;
            equality(cx, inner).map(|(a, b, taken)| (a, b, !taken))
        }
        _ => None,
    }
}

fn types(cx: &mut NodeCx<'_, '_>, values: &[ValueId]) -> Result<Vec<Type>, Failure> {
    values.iter().map(|&v| Ok(cx.b().ty(v)?.clone())).collect()
}

fn repeat(cx: &mut NodeCx<'_, '_>) -> Out {
    let body = cx.graph("body")?;
    let mut heads = [cx.opt(0)?, cx.opt(1)?];
    for head in heads.iter_mut().flatten() {
        *head = scalar(cx.b(), *head)?;
    }
    let inits = cx.inputs_from(2)?;
    let carried = types(cx, &inits)?;
    let region = cx.imp.loop_body(body, &carried)?;
    let [trips, cond] = heads;
    Ok(cx.b().loop_regions(trips, cond, &inits, &region.captures, region.graph)?)
}

fn scan(cx: &mut NodeCx<'_, '_>) -> Out {
    if cx.version < 9 {
        return batched_scan(cx);
    }
    let body = cx.graph("body")?;
    let all = cx.inputs_from(0)?;
    let n = cx.need_int_attr("num_scan_inputs")?;
    let n = usize::try_from(n).ok().filter(|&n| n >= 1 && n <= all.len());
    let n = n.ok_or_else(|| Failure::refused(format!("num_scan_inputs does not fit {} operands", all.len())))?;
    let (inits, scanned) = all.split_at(all.len() - n);
    let outputs = body.outputs.len().saturating_sub(inits.len());
    let op = scan_op(cx, inits.len(), scanned, outputs, body)?;
    let mut args = types(cx, inits)?;
    for (&v, &axis) in scanned.iter().zip(&op.input_axes) {
        let t = cx.ty(v)?;
        let slice: Shape = t.shape.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, d)| d.clone()).collect();
        args.push(Type::tensor(t.dtype, slice));
    }
    let region = cx.imp.region("body", body, &args, &[], Turn::Unnumbered, |_, _| Ok(()))?;
    Ok(cx.b().scan_regions(op, inits, scanned, &region.captures, region.graph)?)
}

fn scan_op(
    cx: &mut NodeCx<'_, '_>,
    carried: usize,
    scanned: &[ValueId],
    outputs: usize,
    body: &GraphDef,
) -> Result<Scan, Failure> {
    let list = |v: Option<Vec<i64>>, n: usize, what: &str| match v {
        None => Ok(vec![0; n]),
        Some(v) if v.len() == n => Ok(v),
        Some(v) => Err(Failure::refused(format!("attribute `{what}` has {} entries, {n} are needed", v.len()))),
    };
    let n = scanned.len();
    let input_axes = list(cx.opt_ints("scan_input_axes")?, n, "scan_input_axes")?;
    let input_reverse = list(cx.opt_ints("scan_input_directions")?, n, "scan_input_directions")?;
    let output_axes = list(cx.opt_ints("scan_output_axes")?, outputs, "scan_output_axes")?;
    let output_reverse = list(cx.opt_ints("scan_output_directions")?, outputs, "scan_output_directions")?;
    let input_axes = scanned.iter().zip(&input_axes).map(|(&v, &a)| cx.axis(v, a)).collect::<Result<Vec<_>, _>>()?;
    let mut axes = Vec::with_capacity(outputs);
    for (i, &a) in output_axes.iter().enumerate() {
        // A position from the end needs the rank, which the body's declared output may tell.
        let rank = match body.outputs.get(carried + i).and_then(|o| o.ty.as_ref()) {
            Some(crate::model::TypeDef::Tensor { shape: Some(s), .. }) => Some(s.len() as i64 + 1),
            _ => None,
        };
        let at = if a < 0 { rank.map(|r| a + r) } else { Some(a) };
        let at = at.and_then(|a| usize::try_from(a).ok());
        axes.push(at.ok_or_else(|| Failure::refused(format!("scan output axis {a} cannot be told from the end")))?);
    }
    let flags = |v: Vec<i64>| v.into_iter().map(|d| d != 0).collect();
    Ok(Scan {
        carried,
        num_scan_inputs: n,
        input_axes,
        input_reverse: flags(input_reverse),
        output_axes: axes,
        output_reverse: flags(output_reverse),
    })
}

/// Batches of a scan that are written out.
const MOST_BATCHES: i64 = 64;

/// `Scan` before operator set 9: over the second axis, for each element of the first one by itself.
fn batched_scan(cx: &mut NodeCx<'_, '_>) -> Out {
    let body = cx.graph("body")?;
    if cx.has(0) {
        return Err(Failure::unsupported("Scan with lengths of sequences, before operator set 9"));
    }
    let all = cx.inputs_from(1)?;
    let n = cx.need_int_attr("num_scan_inputs")?;
    let n = usize::try_from(n).ok().filter(|&n| n >= 1 && n <= all.len());
    let n = n.ok_or_else(|| Failure::refused(format!("num_scan_inputs does not fit {} operands", all.len())))?;
    let (inits, scanned) = all.split_at(all.len() - n);
    let first = all.first().map_or_else(|| Err(Failure::refused("there is no operand")), |&v| cx.shape(v))?;
    let batches = first.first().and_then(Dim::as_const).filter(|b| (1..=MOST_BATCHES).contains(b));
    let Some(batches) = batches else {
        return Err(Failure::unsupported("Scan with a batch axis of another size than 1 to 64, before operator set 9"));
    };
    let reverse = match cx.opt_ints("directions")? {
        None => vec![false; n],
        Some(d) if d.len() == n => d.into_iter().map(|d| d != 0).collect(),
        Some(d) => return Err(Failure::refused(format!("attribute `directions` has {} entries for {n}", d.len()))),
    };
    let outputs = body.outputs.len().saturating_sub(inits.len());
    let op = Scan {
        carried: inits.len(),
        num_scan_inputs: n,
        input_axes: vec![0; n],
        input_reverse: reverse,
        output_axes: vec![0; outputs],
        output_reverse: vec![false; outputs],
    };
    let mut results: Vec<Vec<ValueId>> = Vec::new();
    for i in 0..batches {
        let mut part = |list: &[ValueId]| -> Result<Vec<ValueId>, Failure> {
            let one = |&v: &ValueId| {
                let v = cx.range_of(v, 0, Dim::from(i), Dim::from(i + 1), 1)?;
                Ok(cx.b().squeeze(v, &[0])?)
            };
            list.iter().map(one).collect()
        };
        let (inits, scanned) = (part(inits)?, part(scanned)?);
        let mut args = types(cx, &inits)?;
        for &v in &scanned {
            let t = cx.ty(v)?;
            args.push(Type::tensor(t.dtype, t.shape.iter().skip(1).cloned().collect::<Shape>()));
        }
        let region = cx.imp.region("body", body, &args, &[], Turn::Unnumbered, |_, _| Ok(()))?;
        results.push(cx.b().scan_regions(op.clone(), &inits, &scanned, &region.captures, region.graph)?);
    }
    let count = results.first().map_or(0, Vec::len);
    (0..count)
        .map(|k| {
            let all: Vec<ValueId> = results.iter().filter_map(|r| r.get(k).copied()).collect();
            Ok(cx.b().stack(&all, 0)?)
        })
        .collect()
}
