//! Contractions of floats of up to 32 bits, as products of `crate::gemm`; and the plan of those of 8-bit integers.
//!
//! When sizes are known, the groups of axes are merged to one axis each where all walks allow it; what cannot be merged
//! becomes a loop around products. The result is written by the product itself where the epilogue is on the menu
//! ([`Menu`]) and its walks are matrices; else finished blocks go through the tile machine.

use super::ContractPlan;
use super::kept::{Kept, Numbers, Scales};
use super::operand::{Axes, Operand, Panels, Rights, has_panels, panels, with_panels};
use crate::buffers::{BindCx, BindError, BoundAccess, Ptr, RunCx, Sizes, Strides};
use crate::epilogue::Finish;
use crate::epilogue::direct::{self, Direct, Matrix};
use crate::epilogue::halves::{self, Halves};
use crate::epilogue::menu::Menu;
use crate::epilogue::tile::OnBlocks;
use crate::gemm::amx::{Parts, has_tiles, parts};
use crate::gemm::{self, BOperand, GemmArgs, Planned, Strided, TaskGrid, gemm_tasks, is_one_task};
use crate::space::position;
use crate::tile::code::Code;
use crate::tile::{Work, io, scratch};
use rlx_compile::lir::{ContractKernel, Storage};
use rlx_ir::DType;
use smallvec::{SmallVec, smallvec};

/// A contraction as products.
#[derive(Debug)]
pub struct Product {
    /// Sizes of the loops around products.
    pub outer: Sizes,
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Contracted elements.
    pub k: usize,
    /// The left operand.
    pub left: Operand,
    rights: Rights,
    /// The product of packed panels as a whole, where it is one task and reads and writes matrices where they lie.
    whole: Option<Planned>,
    /// What their elements stand for.
    pub left_scales: Scales,
    /// The same of the right one.
    pub right_scales: Scales,
    /// The narrow form in which a weight is kept.
    kept: Option<Kept>,
    /// Both operands are of bf16, and go to a unit that multiplies these.
    bf16: bool,
    /// What the matrix unit takes panels of f32 apart to; `None`: they are multiplied as they are.
    parts: Option<Parts>,
    /// Steps on the loops: slabs of the operands, rows and columns of the output.
    pub left_slab: Strides,
    /// The same of the right one.
    pub right_slab: Strides,
    /// Output rows.
    pub row: Strides,
    /// Output columns.
    pub col: Strides,
    /// Output rows from one row of the product to the next.
    pub row_step: usize,
}

/// An axis of the output.
#[derive(Clone, Debug)]
struct Axis {
    size: usize,
    /// Steps of both operands, output rows and columns, the write and the reads of the menu.
    steps: Steps,
}

impl Axis {
    /// Whether this axis, merged from some, has another one among them; `number` is the walk that counts rows or columns.
    fn spans(&self, one: &Axis, number: usize) -> bool {
        let (low, high) = (self.steps[number], self.steps[number].saturating_mul(self.size as i64));
        one.steps[number] >= low && one.steps[number] < high
    }
}

/// An axis's steps, by walk.
type Steps = SmallVec<[i64; 8]>;
/// Axes, outermost first.
type AxisList = SmallVec<[Axis; 6]>;

/// Positions of an axis's steps.
const LHS: usize = 0;
const RHS: usize = 1;
const ROW: usize = 2;
const COL: usize = 3;
/// Zero point and scale of the left operand, then of the right one.
const SCALING: usize = 4;
const WALKS: usize = 8;

/// Merges adjacent axes where the steps that matter allow it.
fn merge(axes: &[Axis], matters: &[bool]) -> AxisList {
    let mut out = AxisList::new();
    for a in axes.iter().filter(|a| a.size != 1) {
        if let Some(last) = out.last_mut() {
            let joins = (last.steps.iter().zip(&a.steps).zip(matters))
                .all(|((&o, &i), &m)| !m || i.checked_mul(a.size as i64) == Some(o));
            if joins {
                last.size *= a.size;
                last.steps.clone_from(&a.steps);
                continue;
            }
        }
        out.push(a.clone());
    }
    out
}

/// Takes out the axis that products run over: the last of the largest.
fn take_largest(axes: &mut AxisList, steps: usize) -> Axis {
    let at = axes.iter().enumerate().max_by_key(|(_, a)| a.size).map(|(i, _)| i);
    at.map_or_else(|| Axis { size: 1, steps: smallvec![0; steps] }, |i| axes.remove(i))
}

fn take_last(axes: &mut AxisList, steps: usize) -> Axis {
    axes.pop().unwrap_or_else(|| Axis { size: 1, steps: smallvec![0; steps] })
}

/// A contraction as products, if its dtypes are those of this file.
pub fn plan(
    k: &ContractKernel,
    p: &ContractPlan,
    cx: &BindCx<'_>,
) -> Result<Option<(Product, Option<Finish>)>, BindError> {
    let narrow = |d: DType| Work::of(d) == Some(Work::F32) || io::is_small_float(d);
    let byte = |d: DType| matches!(d, DType::I8 | DType::U8);
    let small = |d: DType| byte(d) || matches!(d, DType::I4 | DType::U4);
    let [left_scaling, right_scaling] = &p.scaling;
    let left_plain_zero = |a: &Option<BoundAccess>| {
        a.as_ref().is_none_or(|a| a.strides.get(p.batch.len() + p.m.len()..).is_none_or(|k| k.iter().all(|&s| s == 0)))
    };
    let integers = p.acc == DType::I32 && byte(p.lhs.dtype) && byte(p.rhs.dtype);
    let fits = match integers {
        // Zero points of the left side by row alone.
        true => left_plain_zero(&left_scaling[0]) && left_scaling[1].is_none() && right_scaling[1].is_none(),
        false => {
            let right = narrow(p.rhs.dtype) && right_scaling.iter().all(Option::is_none) || small(p.rhs.dtype);
            p.acc == DType::F32 && narrow(p.lhs.dtype) && right && left_scaling.iter().all(Option::is_none)
        }
    };
    if !fits {
        return Ok(None);
    }
    let (nb, nm, nn) = (p.batch.len(), p.m.len(), p.n.len());
    let half = if integers { None } else { halves::menu(&k.epilogue) };
    let menu = match half {
        Some(_) => half,
        None if integers => Menu::of_integers(&k.epilogue),
        None => Menu::of(&k.epilogue),
    };
    let space: Sizes = p.batch.iter().chain(&p.m).chain(&p.n).copied().collect();
    let mut walks: SmallVec<[BoundAccess; 3]> = SmallVec::new();
    if let Some(menu) = &menu {
        for a in k.epilogue.writes.iter().chain(menu.reads().filter_map(|r| k.epilogue.reads.get(r as usize))) {
            walks.push(cx.access(a, &space)?);
        }
    }
    let in_place = direct::in_place(&walks);
    let possible = menu.is_some()
        && in_place.is_some()
        && walks.iter().skip(usize::from(half.is_some())).all(|w| w.dtype == DType::F32);

    // Axes of the output with all steps.
    let step = |w: &BoundAccess, i: usize| w.strides.get(i).copied().unwrap_or(0);
    let after = |i: usize, end: usize| space[i + 1..end].iter().product::<usize>() as i64;
    let axis = |i: usize| {
        let (l, r, row, col) = if i < nb {
            (step(&p.lhs, i), step(&p.rhs, i), after(i, nb + nm), 0)
        } else if i < nb + nm {
            (step(&p.lhs, i), 0, after(i, nb + nm), 0)
        } else {
            (0, step(&p.rhs, i - nm), 0, after(i, nb + nm + nn))
        };
        // Where the axis is among those of an operand's walk, if it is.
        let own =
            [(i < nb + nm).then_some(i), if i < nb { Some(i) } else { i.checked_sub(nm).filter(|_| i >= nb + nm) }];
        let scaling = (p.scaling.iter().zip(own))
            .flat_map(|(s, i)| s.iter().map(move |a| a.as_ref().zip(i).map_or(0, |(a, i)| step(a, i))));
        let steps = [l, r, row, col].into_iter().chain(scaling).chain(walks.iter().map(|w| step(w, i))).collect();
        Axis { size: space[i], steps }
    };
    let axes: AxisList = (0..space.len()).map(axis).collect();
    // Trailing batch axes along which the right operand stays the same are rows.
    let shared = axes[..nb].iter().rev().take_while(|a| a.size == 1 || a.steps[RHS] == 0).count();
    let (batch, rest) = axes.split_at(nb - shared);
    let (rows, cols) = rest.split_at(shared + nm);

    let k_sizes = &p.k;
    let weight = matches!(cx.lir.buffer(k.rhs.buffer).storage, Storage::Param(_) | Storage::Const(_));
    let left_k = Axes::new(k_sizes, p.lhs.strides.get(nb + nm..).unwrap_or(&[]));
    let right_k = Axes::new(k_sizes, p.rhs.strides.get(nb + nn..).unwrap_or(&[]));
    // Operands that are not read where they lie need no merging: gathering goes along any axes.
    let bf16 = !integers && has_tiles(cx.isa) && [p.lhs.dtype, p.rhs.dtype] == [DType::BF16; 2];
    let whole = if integers { byte(p.lhs.dtype) } else { p.lhs.dtype == DType::F32 || bf16 };
    let left_plain = whole && left_k.single().is_some();
    let right_plain = p.rhs.dtype == DType::F32 && right_k.single().is_some();
    let matters = |left: bool, right: bool, walks_too: bool| -> SmallVec<[bool; 8]> {
        let mut m = smallvec![left, right, true, true];
        m.extend(p.scaling.iter().flatten().map(Option::is_some));
        m.extend(walks.iter().map(|_| walks_too));
        m
    };
    let width = WALKS + walks.len();
    // What an operand is gathered or packed along need not merge; but loops around products step through it.
    let apart = |axes: &[Axis], inner: &Axis, number: usize, direct: bool| {
        let rest: AxisList = axes.iter().filter(|a| !inner.spans(a, number)).cloned().collect();
        merge(&rest, &matters(true, true, direct))
    };
    let choose = |direct: bool| {
        let mut batch = merge(batch, &matters(true, true, direct));
        let mut m = merge(rows, &matters(left_plain, false, direct));
        let mut n = merge(cols, &matters(false, right_plain && !weight, direct));
        let inner_m = take_largest(&mut m, width);
        let inner_n = if direct { take_largest(&mut n, width) } else { take_last(&mut n, width) };
        batch.extend(apart(rows, &inner_m, ROW, direct));
        batch.extend(apart(cols, &inner_n, COL, direct));
        (batch, inner_m, inner_n)
    };
    let matrix = |w: usize, outer: &AxisList, inner_m: &Axis, inner_n: &Axis| Matrix {
        buffer: walks[w].buffer,
        offset: walks[w].offset,
        outer: outer.iter().map(|a| a.steps[WALKS + w]).collect(),
        row: inner_m.steps[WALKS + w],
        col: inner_n.steps[WALKS + w],
    };
    let by_blocks = choose(false);
    let mut chosen = None;
    if possible {
        let direct = choose(true);
        // Much smaller products are not worth it.
        if direct.1.size * 4 >= by_blocks.1.size.min(96) && direct.2.size * 4 >= by_blocks.2.size.min(96) {
            let (outer, inner_m, inner_n) = &direct;
            let matrices = (0..walks.len()).map(|w| matrix(w, outer, inner_m, inner_n));
            let made = menu.and_then(|menu| Direct::new(menu, matrices, in_place == Some(true)));
            let made = if integers { made.and_then(|d| d.for_integers(inner_n.size)) } else { made };
            chosen = made.map(|d| (direct, d));
        }
    }
    let ((outer, inner_m, inner_n), direct) = match chosen {
        Some((axes, direct)) => (axes, Some(direct)),
        None => (by_blocks, None),
    };

    // Where an operand is gathered, its inner axes are all those that make up the inner rows or columns.
    let sizes: Sizes = outer.iter().map(|a| a.size).collect();
    let steps = |i: usize| outer.iter().map(|a| a.steps[i]).collect::<Strides>();
    let inner = |axes: &[Axis], inner: &Axis, number: usize, own: usize| {
        let part: SmallVec<[&Axis; 6]> = axes.iter().filter(|a| a.size != 1 && inner.spans(a, number)).collect();
        let sizes: Sizes = part.iter().map(|a| a.size).collect();
        let strides: Strides = part.iter().map(|a| a.steps[own]).collect();
        Axes::new(&sizes, &strides)
    };
    let slabs = |own: usize| {
        // Loops along which the operand moves.
        let part: SmallVec<[&Axis; 6]> = outer.iter().filter(|a| a.steps[own] != 0).collect();
        let sizes: Sizes = part.iter().map(|a| a.size).collect();
        let strides: Strides = part.iter().map(|a| a.steps[own]).collect();
        let mut next: i64 = sizes.iter().product::<usize>() as i64;
        let mut number = Strides::new();
        for a in &outer {
            if a.steps[own] == 0 {
                number.push(0);
            } else {
                next /= a.size.max(1) as i64;
                number.push(next);
            }
        }
        (Axes { sizes, strides }, number)
    };
    let (left_slabs, left_slab) = slabs(LHS);
    let (right_slabs, right_slab) = slabs(RHS);
    let left = Operand {
        buffer: p.lhs.buffer,
        dtype: p.lhs.dtype,
        offset: p.lhs.offset,
        slabs: left_slabs,
        rows: inner(rows, &inner_m, ROW, LHS),
        cols: left_k,
    };
    let right = Operand {
        buffer: p.rhs.buffer,
        dtype: p.rhs.dtype,
        offset: p.rhs.offset,
        slabs: right_slabs,
        rows: right_k,
        cols: inner(cols, &inner_n, COL, RHS),
    };
    // What goes with an operand is walked as it is; along a loop on which the operand stands still so must that.
    let mut stray = false;
    let mut numbers = |side: usize, own: usize, axes: &[Axis], number: usize, k_axes: usize| {
        let mut of = |which: usize| {
            let a = p.scaling[side][which].as_ref()?;
            let at = SCALING + 2 * side + which;
            stray |= outer.iter().any(|x| x.steps[own] == 0 && x.steps[at] != 0);
            let moves: SmallVec<[&Axis; 6]> = outer.iter().filter(|x| x.steps[own] != 0).collect();
            let slabs = Axes {
                sizes: moves.iter().map(|x| x.size).collect(),
                strides: moves.iter().map(|x| x.steps[at]).collect(),
            };
            let along_k = Axes::new(k_sizes, a.strides.get(k_axes..).unwrap_or(&[]));
            let along = inner(axes, if side == 0 { &inner_m } else { &inner_n }, number, at);
            let (rows, cols) = if side == 0 { (along, along_k) } else { (along_k, along) };
            Some(Numbers { buffer: a.buffer, dtype: a.dtype, offset: a.offset, slabs, rows, cols })
        };
        Scales { zero: of(0), scale: of(1) }
    };
    let left_scales = numbers(0, LHS, rows, ROW, nb + nm);
    let right_scales = numbers(1, RHS, cols, COL, nb + nn);
    if stray {
        return Ok(None);
    }
    let kept = if integers { None } else { Kept::plan(cx.isa, &right, &right_scales, bf16).filter(|_| weight) };
    let parts = if integers || kept.is_some() { None } else { parts(cx.isa, cx.matmul, bf16, inner_m.size) };
    let mut product = Product {
        m: inner_m.size,
        n: inner_n.size,
        k: k_sizes.iter().product(),
        left,
        rights: Rights::new(cx.isa, smallvec![right]),
        whole: None,
        left_scales,
        right_scales,
        bf16: bf16 && (kept.is_some() || parts.is_some()),
        kept,
        parts,
        left_slab,
        right_slab,
        row: steps(ROW),
        col: steps(COL),
        row_step: usize::try_from(inner_m.steps[ROW]).unwrap_or(0),
        outer: sizes,
    };
    let direct = match direct {
        Some(d) if half.is_some() => {
            let halves = walks.first().map(|w| Halves::new(d, matrix(0, &outer, &inner_m, &inner_n), w));
            return Ok(Some((product, halves.map(|h| Finish::Halves(Box::new(h))))));
        }
        d => d,
    };
    let panels = product.kept.is_none() && parts.is_none() && !integers && product.right().dtype.is_float();
    let one = panels && product.outer.iter().all(|&n| n == 1) && is_one_task(product.m, product.n, product.k);
    if let (true, Some(direct), Some(a)) = (one, &direct, product.left.strided(std::ptr::null(), 0)) {
        let mut args = product.args(a, BOperand::Packed(std::ptr::null()));
        args.c = std::ptr::dangling_mut();
        args.epilogue.in_place = direct.in_place();
        product.whole = Some(Planned::new(cx.isa, &args));
    }
    Ok(Some((product, direct.map(|d| Finish::Direct(Box::new(d))))))
}

impl Product {
    /// The right operand.
    pub fn right(&self) -> &Operand {
        &self.rights.operands()[0]
    }

    /// A product of all rows, without a result.
    fn args(&self, a: Strided, b: BOperand) -> GemmArgs<'static> {
        GemmArgs {
            m: self.m,
            n: self.n,
            k: self.k,
            a: a.into(),
            b,
            c: std::ptr::null_mut(),
            c_row: 0,
            c_col: 1,
            accumulate: false,
            epilogue: gemm::Epilogue::default(),
        }
    }
}

/// Fewest and most rows that are gathered at a time, and elements of them that leave the second cache room for the right operand.
const GATHERED: (usize, usize, usize) = (96, 384, 1 << 16);

/// Rows that tiles of every level divide.
const TILES: usize = 12;

/// Rows of `m` with `k` elements that are gathered at a time: as many in each part, whole tiles.
fn gathered_rows(m: usize, k: usize) -> usize {
    let (least, most, elements) = GATHERED;
    let rows = (elements / k.max(1)).clamp(least, most);
    m.div_ceil(m.div_ceil(rows).max(1)).next_multiple_of(TILES).min(m.max(1))
}

/// Where the right operand is found.
enum Right {
    Panels(Panels),
    /// Kept in a narrow form.
    Narrow(Ptr),
    /// Where it lies.
    Plain,
    /// Gathered, dense: all slabs.
    Dense(Ptr),
}

/// True if a run reads the right operand where it lies, and not only its kept panels.
pub fn reads_right(p: &Product, run: &RunCx<'_>) -> bool {
    match &p.kept {
        Some(kept) => !kept.is_made(p.right(), &p.right_scales, run),
        None => !has_panels(run, &p.rights),
    }
}

/// Makes the panels that runs keep.
/// # Safety
/// `run` has the right operand's memory.
pub unsafe fn pack(p: &Product, run: &RunCx<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        match &p.kept {
            Some(kept) => drop(kept.panels(p.right(), &p.right_scales, run)),
            None if p.right().dtype.is_float() => drop(panels(run, &p.rights)),
            None => {}
        }
    }
}

/// Runs a contraction.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &Product, finish: &Finish, code: &Code, run: &RunCx<'_>) {
    if let Some(kept) = &p.kept {
        // SAFETY: the caller's promise.
        if let Some(panels) = unsafe { kept.panels(p.right(), &p.right_scales, run) } {
            // SAFETY: as above.
            return unsafe { products(p, finish, code, run, &Right::Narrow(panels)) };
        }
    } else if p.right().dtype.is_float() && p.parts.is_some() {
        // SAFETY: the caller's promise, here and below.
        return unsafe {
            with_panels(run, &p.rights, |set| {
                if let [packed, ..] = set {
                    products(p, finish, code, run, &Right::Panels(*packed));
                }
            })
        };
    } else if p.right().dtype.is_float()
        // SAFETY: the caller's promise.
        && let Some(packed) = unsafe { panels(run, &p.rights) }
    {
        // SAFETY: as above.
        return unsafe {
            match (&p.whole, finish.direct()) {
                (Some(planned), Some(direct)) => whole(p, planned, direct, run, packed),
                _ => products(p, finish, code, run, &Right::Panels(packed)),
            }
        };
    }
    let right = p.right();
    let base = Ptr(run.bufs.base(right.buffer));
    if right.strided(base.get(), 0).is_some() {
        // SAFETY: as above.
        return unsafe { products(p, finish, code, run, &Right::Plain) };
    }
    let (slabs, slab) = (right.slabs.len(), p.k * p.n);
    scratch::with((slabs * slab).max(1) * size_of::<f32>(), |memory| {
        let dense = Ptr(memory.as_mut_ptr());
        run.region.parallel_for(slabs * p.k, &|i| {
            let (s, row) = (i / p.k, i % p.k);
            let dst = dense.get().cast::<f32>().wrapping_add(s * slab + row * p.n);
            // SAFETY: the caller's promise; each row has a place of its own.
            unsafe {
                if right.dtype.is_float() {
                    return right.gather(run.isa, base.get(), s, row..row + 1, dst);
                }
                let start = right.rows.at(row, right.slabs.at(s, right.offset));
                for c in 0..p.n {
                    let x = io::read_f64(right.dtype, base.get(), right.cols.at(c, start)) as f32;
                    dst.add(c).write(p.right_scales.apply(run, x, s, row, c));
                }
            }
        });
        // SAFETY: the caller's promise.
        unsafe { products(p, finish, code, run, &Right::Dense(dense)) };
    });
}

/// Runs a product that was planned as a whole.
/// # Safety
/// As [`run`]; `panels` hold the right operand.
unsafe fn whole(p: &Product, planned: &Planned, direct: &Direct, run: &RunCx<'_>, panels: Panels) {
    let Some(a) = p.left.strided(run.bufs.base(p.left.buffer), 0) else { return };
    let mut args = p.args(a, BOperand::Packed(panels.slab(0)));
    direct.set(&mut args, &run.bufs, &[], 0, (0, 0), 1);
    let multiply = |memory: &mut [f32]| {
        // SAFETY: the operands' walks were checked at bind, and the memory has room.
        unsafe { gemm::gemm_planned(run.isa, &args, planned, memory) };
    };
    match planned.scratch_len() {
        0 => multiply(&mut []),
        len => scratch::with(len * size_of::<f32>(), |memory| {
            // SAFETY: the memory has room for `len` elements and is aligned to a cache line.
            multiply(unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<f32>(), len) });
        }),
    }
}

/// # Safety
/// As [`run`]; `right` holds the right operand.
unsafe fn products(p: &Product, finish: &Finish, code: &Code, run: &RunCx<'_>, right: &Right) {
    let outer: usize = p.outer.iter().product();
    let in_place = p.right();
    let (left_base, right_base) = (Ptr(run.bufs.base(p.left.buffer)), Ptr(run.bufs.base(in_place.buffer)));
    // Multiply-adds take f32.
    let bf16 = p.bf16 && matches!(right, Right::Narrow(_) | Right::Panels(_));
    let gathered = p.left.left(left_base.get(), 0, bf16).is_none();
    // Many products share the threads; few are divided.
    let threads = run.region.threads().div_ceil(outer.max(1));
    let grid = gemm_tasks(run.isa, p.m, p.n, p.k, threads);
    // Rows that are gathered are so by each task; where there are few, columns are divided.
    let part_rows = gathered_rows(p.m, p.k);
    let parts = p.m.div_ceil(part_rows);
    let columns = TaskGrid::columns(run.isa, part_rows, p.n, p.k, threads.div_ceil(parts.max(1)));
    let tasks = if gathered { parts * columns.len() } else { grid.len() };
    run.region.parallel_for(outer * tasks, &|index| {
        let (o, task) = (index / tasks, index % tasks);
        let at = |strides: &Strides| usize::try_from(position(o, &p.outer, 0, strides)).unwrap_or(0);
        let slab = at(&p.left_slab);
        let b_slab = at(&p.right_slab);
        let b = match right {
            Right::Panels(panels) => match p.parts {
                Some(parts) => BOperand::Split(panels.slab(b_slab), parts),
                None => BOperand::Packed(panels.slab(b_slab)),
            },
            Right::Narrow(panels) => match &p.kept {
                Some(kept) => BOperand::Narrow(kept.slab(*panels, b_slab)),
                None => return,
            },
            Right::Dense(dense) => BOperand::Strided(Strided {
                data: dense.get().cast::<f32>().wrapping_add(b_slab * p.k * p.n),
                row: p.n as isize,
                col: 1,
            }),
            Right::Plain => match in_place.strided(right_base.get(), b_slab) {
                Some(b) => BOperand::Strided(b),
                None => return,
            },
        };
        let (part, column) = (task % parts.max(1), task / parts.max(1));
        let first = if gathered { part * part_rows } else { 0 };
        let rows = if gathered { (p.m - first).min(part_rows) } else { p.m };
        let gather_len = if gathered { (rows * p.k).next_multiple_of(16) } else { 0 };
        let row = at(&p.row);
        let on_row = |r| row + (first + r) * p.row_step;
        let hook = finish.program().map(|plan| OnBlocks {
            plan,
            code,
            bufs: run.bufs,
            isa: run.isa,
            row: &on_row,
            col: at(&p.col),
        });
        let mut args = p.args(Strided { data: std::ptr::null(), row: p.k as isize, col: 1 }, b);
        args.m = rows;
        let store = finish.halves().map(|h| h.set(&mut args, &run.bufs, &p.outer, o, first));
        match (&store, finish.direct()) {
            (Some(store), _) => args.epilogue.hook = Some(store),
            (None, Some(d)) => d.set(&mut args, &run.bufs, &p.outer, o, (first, 0), 1),
            (None, None) => args.epilogue.hook = hook.as_ref().map(|h| h as _),
        }
        let len = gather_len + args.scratch_len(run.isa);
        scratch::with(len * size_of::<f32>(), |memory| {
            // SAFETY: the memory has room for `len` elements and is aligned to a cache line; the operands' walks were
            // checked at bind; the result's parts are disjoint.
            unsafe {
                let memory = std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<f32>(), len);
                let (dense, memory) = memory.split_at_mut(gather_len);
                if gathered {
                    p.left.gather(run.isa, left_base.get(), slab, first..first + rows, dense.as_mut_ptr());
                    args.a = Strided { data: dense.as_ptr(), row: p.k as isize, col: 1 }.into();
                    gemm::gemm_columns(run.isa, &args, &columns, column, memory);
                } else if let Some(a) = p.left.left(left_base.get(), slab, bf16) {
                    args.a = a;
                    gemm::gemm_task(run.isa, &args, &grid, task, memory);
                }
            }
        });
    });
}
