//! Nodes with nested graphs: what is known of captures is carried inside, a branch whose condition is known is taken, and a loop that
//! runs never or once is no loop.

use rlx_ir::ops::control::Loop;
use rlx_ir::ops::{Control, ShapeOp};
use rlx_ir::{Dim, Graph, IrError, Node, Op, Symbol, Tensor, ValueId};

use super::super::bind_dims::{Substitution, substitute, substitute_op};
use super::super::regions;
use super::{Canon, Known, canonicalise};
use crate::rewrite::resolve;

/// Larger literals are captured, not copied into nested graphs.
const LIMIT_BYTES: usize = 1 << 10;

/// Rebuilds a node with regions.
pub fn visit(c: &mut Canon<'_, '_>, node: &Node) -> Result<(), IrError> {
    let operands = c.rw.operands(node)?;
    let straight = match &node.op {
        Op::Control(Control::If(_)) => known_branch(c, node, &operands)?,
        Op::Control(Control::Loop(l)) => known_loop(c, node, l, &operands)?,
        _ => None,
    };
    if let Some(results) = straight {
        c.cx.count("known branch or loop");
        for (&old, &new) in node.results.iter().zip(&results) {
            let (was, is) = (c.rw.old().ty(old).clone(), c.g().ty(new).clone());
            c.rw.resolve(&was, &is, &node.op.def().defines());
        }
        return c.rw.replace(node, &results);
    }
    let captures = regions::captures(node);
    let known: Vec<Known> = operands[operands.len() - captures..].iter().map(|&v| know(c, v)).collect();
    let mut new = Vec::with_capacity(node.regions.len());
    for region in &node.regions {
        let region = if c.rw.gone().is_empty() { region.clone() } else { substitute(region, c.rw.gone())? };
        let mut inside = vec![Known::default(); region.inputs().len().saturating_sub(captures)];
        inside.extend(known.iter().cloned());
        let simpler = canonicalise(&region, &inside, c.cx)?;
        // The node's type rule compares its regions: their results keep their types to the letter.
        new.push(if simpler.same_boundary(&region) { simpler } else { region });
    }
    let op = substitute_op(&node.op, c.rw.gone());
    c.rw.control(node, op, &operands, new)
}

/// The results of a branch whose condition is known.
fn known_branch(c: &mut Canon<'_, '_>, node: &Node, operands: &[ValueId]) -> Result<Option<Vec<ValueId>>, IrError> {
    let Some((&cond, captures)) = operands.split_first() else { return Ok(None) };
    let taken = known_number(c, cond).map(|n| n != 0);
    match taken.and_then(|taken| node.regions.get(usize::from(!taken))) {
        Some(branch) => inline(c, branch, captures).map(Some),
        None => Ok(None),
    }
}

/// The results of a loop that is known to run never or once.
fn known_loop(
    c: &mut Canon<'_, '_>,
    node: &Node,
    l: &Loop,
    operands: &[ValueId],
) -> Result<Option<Vec<ValueId>>, IrError> {
    let first = usize::from(l.has_trip_count) + usize::from(l.has_cond);
    let trips = operands.first().filter(|_| l.has_trip_count).and_then(|&v| known_number(c, v));
    let cond = match operands.get(first.saturating_sub(1)).filter(|_| l.has_cond) {
        Some(&v) => known_number(c, v).map(|n| n != 0),
        None => Some(true),
    };
    let (Some(carried), Some(body)) = (operands.get(first..first + l.carried), node.regions.first()) else {
        return Ok(None);
    };
    let never = cond == Some(false) || trips.is_some_and(|n| n <= 0);
    if never && l.scans == 0 {
        return Ok(Some(carried.to_vec()));
    }
    if trips != Some(1) || cond != Some(true) {
        return Ok(None);
    }
    let iteration = c.rw.b.constant(Tensor::scalar(0i64))?;
    let going = Tensor::from_bools(&[], &[true]).map_err(|e| IrError::Eval(e.to_string()))?;
    let going = c.rw.b.constant(going)?;
    let args: Vec<ValueId> = [iteration, going].into_iter().chain(operands[first..].iter().copied()).collect();
    let mut results = inline(c, body, &args)?.split_off(1);
    for scan in results.iter_mut().skip(l.carried) {
        let dims = [Dim::ONE].into_iter().chain(c.rw.b.shape(*scan)?.into_dims());
        *scan = c.rw.b.reshape(*scan, dims)?;
    }
    Ok(Some(results))
}

/// The number that a scalar is known to be.
fn known_number(c: &Canon<'_, '_>, v: ValueId) -> Option<i64> {
    match c.g().elems(v) {
        Some([d]) => d.as_const(),
        _ => None,
    }
}

fn know(c: &Canon<'_, '_>, v: ValueId) -> Known {
    let literal = c.g().as_constant(v).filter(|t| t.bytes().len() <= LIMIT_BYTES).cloned();
    Known { literal, elems: c.g().elems(v).map(<[Dim]>::to_vec) }
}

/// Appends the nodes of a region, its inputs being these values.
fn inline(c: &mut Canon<'_, '_>, region: &Graph, args: &[ValueId]) -> Result<Vec<ValueId>, IrError> {
    // Symbols of the region's inputs follow the arguments; those that its nodes define must be new here.
    let mut map = Substitution::new();
    for (&v, &arg) in region.inputs().iter().zip(args) {
        let symbols: Vec<Symbol> = region.input_symbols().into_iter().collect();
        let is = c.g().ty(arg).clone();
        resolve(region.ty(v), &is, &symbols, &mut map);
    }
    map.retain(|s, d| d.as_symbol() != Some(s));
    for (s, d) in c.rw.gone() {
        map.entry(s.clone()).or_insert_with(|| d.clone());
    }
    let region = if map.is_empty() { region.clone() } else { substitute(region, &map)? };
    let mut values: Vec<Option<ValueId>> = vec![None; region.num_values()];
    for (&v, &arg) in region.inputs().iter().zip(args) {
        values[v.index()] = Some(arg);
    }
    let get = |values: &[Option<ValueId>], v: ValueId| {
        let value = values.get(v.index()).copied().flatten();
        value.ok_or_else(|| IrError::UnknownValue(v.index() as u32, region.name().into()))
    };
    for node in region.nodes() {
        c.rw.b.set_loc(node.loc.clone());
        let operands = node.operands.iter().map(|&v| get(&values, v)).collect::<Result<Vec<_>, _>>()?;
        let plain = node.results.len() == 1 && node.regions.is_empty() && node.op.def().defines().is_empty();
        let results = if plain && !matches!(node.op, Op::ShapeOp(ShapeOp::Constant(_))) {
            vec![c.emit(node.op.clone(), &operands)?]
        } else {
            c.rw.b.op_with_regions(node.op.clone(), &operands, node.regions.clone())?
        };
        for (&r, v) in node.results.iter().zip(results) {
            values[r.index()] = Some(v);
        }
    }
    c.rw.b.graph_mut().add_constraints(region.constraints());
    region.outputs().iter().map(|o| get(&values, o.value)).collect()
}
