//! Contractions of 8-bit integers summed in i32, as products of [`crate::gemm`]: zero points are taken off while operands
//! are widened, and what follows runs on the sums in registers where it is a factor or two and the menu.

use super::float::Product;
use super::kept::Numbers;
use super::operand::{Operand, fingerprint_of};
use crate::buffers::{Form, Ptr, RunCx};
use crate::epilogue::Finish;
use crate::epilogue::tile::OnBlocks;
use crate::gemm::{self, Bytes, IntArgs, IntLayout, gemm_integers, gemm_tasks, pack_integers};
use crate::space::position;
use crate::tile::code::Code;
use crate::tile::{io, scratch};
use rlx_ir::DType;

/// A right operand of 8-bit integers, less zero points.
#[derive(Clone, Copy)]
pub(crate) struct Right<'a> {
    /// The integers.
    pub operand: &'a Operand,
    /// What is subtracted from them.
    pub zero: Option<&'a Numbers>,
}

impl<'a> Right<'a> {
    fn of(p: &'a Product) -> Self {
        Right { operand: p.right(), zero: p.right_scales.zero.as_ref() }
    }

    fn rows(&self) -> usize {
        self.operand.rows.len()
    }

    fn cols(&self) -> usize {
        self.operand.cols.len()
    }
}

/// How the right operand's panels lie.
#[derive(Clone, Copy)]
struct Packing {
    form: Form,
    layout: IntLayout,
    /// Bytes of a slab.
    slab: usize,
}

impl Packing {
    /// `bytes` says that all elements less their zero points are within −128..=127.
    fn new(right: Right<'_>, run: &RunCx<'_>, bytes: bool) -> Option<Packing> {
        let b = right.operand;
        let layout = IntLayout::new(run.isa, right.rows(), bytes);
        let slab = layout.bytes(right.cols())?;
        let own = fingerprint_of(run.isa, b.buffer, b.offset, [&b.slabs, &b.rows, &b.cols]);
        let fingerprint = right.zero.iter().fold(own ^ layout.id(), |h, n| {
            h.rotate_left(7) ^ fingerprint_of(run.isa, n.buffer, n.offset, [&n.slabs, &n.rows, &n.cols])
        });
        Some(Packing { form: Form { fingerprint, bytes: slab.checked_mul(b.slabs.len()) }, layout, slab })
    }

    /// With its panels at `data`.
    fn at(self, data: Ptr) -> Panels {
        Panels { data, layout: self.layout, slab: self.slab }
    }
}

/// Packed right operands.
#[derive(Clone, Copy)]
pub(crate) struct Panels {
    /// The first slab's panels.
    data: Ptr,
    /// How they lie.
    pub layout: IntLayout,
    slab: usize,
}

impl Panels {
    /// The panels of a slab.
    pub fn slab(&self, slab: usize) -> *const u8 {
        self.data.get().wrapping_add(slab * self.slab)
    }
}

/// The panels that were kept, whichever elements they are of.
fn made(right: Right<'_>, run: &RunCx<'_>) -> Option<Panels> {
    let weight = run.weight?;
    [true, false].into_iter().find_map(|bytes| {
        let packing = Packing::new(right, run, bytes)?;
        Some(packing.at(weight.has(&packing.form)?))
    })
}

/// True if a run reads the right operand where it lies, and not only its kept panels.
pub fn reads_right(p: &Product, run: &RunCx<'_>) -> bool {
    made(Right::of(p), run).is_none()
}

/// The element of a right operand less its zero point.
struct Elements<'a> {
    rows: Vec<i64>,
    cols: Vec<i64>,
    base: Ptr,
    signed: bool,
    zero: Option<(&'a Numbers, Ptr)>,
    slab: usize,
    /// Zero points by column, where they do not differ by row.
    zeros: Vec<i32>,
}

impl<'a> Elements<'a> {
    /// # Safety
    /// `run` has the memory.
    unsafe fn new(right: Right<'a>, run: &RunCx<'_>, slab: usize) -> Elements<'a> {
        let b = right.operand;
        let start = b.slabs.at(slab, b.offset);
        let zero = right.zero.map(|z| (z, Ptr(run.bufs.base(z.buffer))));
        let mut e = Elements {
            rows: (0..right.rows()).map(|r| b.rows.at(r, start)).collect(),
            cols: (0..right.cols()).map(|c| b.cols.at(c, 0)).collect(),
            base: Ptr(run.bufs.base(b.buffer)),
            signed: b.dtype == DType::I8,
            zero,
            slab,
            zeros: Vec::new(),
        };
        if let Some((z, _)) = zero
            && z.rows.strides.iter().all(|&s| s == 0)
        {
            // SAFETY: the caller's promise.
            e.zeros = (0..right.cols()).map(|c| unsafe { e.zero_at(0, c) }).collect();
        }
        e
    }

    /// # Safety
    /// The indices are in range, and the memory is there.
    unsafe fn zero_at(&self, r: usize, c: usize) -> i32 {
        // SAFETY: the caller's promise.
        self.zero.map_or(0, |(z, base)| unsafe { io::read_i128(z.dtype, base.get(), z.at(self.slab, r, c)) as i32 })
    }

    /// # Safety
    /// As [`Self::zero_at`].
    #[inline]
    unsafe fn at(&self, r: usize, c: usize) -> i32 {
        // SAFETY: the caller's promise.
        unsafe {
            let x = *self.base.get().cast_const().offset((self.rows[r] + self.cols[c]) as isize);
            let x = if self.signed { i32::from(x as i8) } else { i32::from(x) };
            let zero = match self.zeros.get(c) {
                Some(&z) => z,
                None => self.zero_at(r, c),
            };
            x - zero
        }
    }

    /// Whether all elements are within −128..=127.
    /// # Safety
    /// As [`Self::zero_at`].
    unsafe fn fit_bytes(&self) -> bool {
        if self.zero.is_none() && self.signed {
            return true;
        }
        let all = |r: usize| {
            (0..self.cols.len()).all(|c| {
                // SAFETY: the caller's promise.
                (-128..=127).contains(&unsafe { self.at(r, c) })
            })
        };
        (0..self.rows.len()).all(all)
    }
}

/// Packs all slabs to `to`.
/// # Safety
/// The elements' memory is there; `to` has room.
unsafe fn pack(cols: usize, run: &RunCx<'_>, packing: &Packing, elements: &[Elements<'_>], to: Ptr) {
    let layout = &packing.layout;
    for (s, e) in elements.iter().enumerate() {
        let dst = Ptr(to.get().wrapping_add(s * packing.slab));
        let e = Shared(e);
        run.region.parallel_for(cols.div_ceil(layout.width), &|j| {
            let e = e.get();
            // SAFETY: indices are in range; each task writes a panel of its own.
            unsafe { pack_integers(layout, cols, j..j + 1, dst.get(), |r, c| e.at(r, c)) };
        });
    }
}

/// Elements on several threads: they only read memory, for which `pack`'s caller answers.
#[derive(Clone, Copy)]
struct Shared<'a>(&'a Elements<'a>);
// SAFETY: see the type's text.
unsafe impl Sync for Shared<'_> {}
// SAFETY: as above.
unsafe impl Send for Shared<'_> {}
impl<'a> Shared<'a> {
    fn get(&self) -> &'a Elements<'a> {
        self.0
    }
}

/// Runs `f` with the right operand's panels: kept ones, or else packed for this run.
/// # Safety
/// `run` has its memory.
pub(crate) unsafe fn with_panels(right: Right<'_>, run: &RunCx<'_>, f: impl FnOnce(Panels)) {
    if let Some(panels) = made(right, run) {
        return f(panels);
    }
    let slabs = 0..right.operand.slabs.len();
    // SAFETY: the caller's promise, here and below.
    let elements: Vec<Elements<'_>> = slabs.map(|s| unsafe { Elements::new(right, run, s) }).collect();
    // SAFETY: as above.
    let bytes = elements.iter().all(|e| unsafe { e.fit_bytes() });
    let Some(packing) = Packing::new(right, run, bytes) else { return };
    // SAFETY: as above; there is room for all slabs.
    let fill = |to: Ptr| unsafe { pack(right.cols(), run, &packing, &elements, to) };
    if let Some(kept) = run.weight.and_then(|w| w.form(&packing.form, fill)) {
        return f(packing.at(kept));
    }
    let Some(len) = packing.form.bytes else { return };
    scratch::with(len, |memory| {
        let to = Ptr(memory.as_mut_ptr());
        fill(to);
        f(packing.at(to));
    });
}

/// Makes the panels that runs keep.
/// # Safety
/// `run` has the right operand's memory.
pub unsafe fn pack_kept(p: &Product, run: &RunCx<'_>) {
    if run.weight.is_some() {
        // SAFETY: the caller's promise.
        unsafe { with_panels(Right::of(p), run, |_| ()) };
    }
}

/// Runs a contraction.
/// # Safety
/// As [`crate::map::run`].
pub unsafe fn run(p: &Product, finish: &Finish, code: &Code, run: &RunCx<'_>) {
    // SAFETY: the caller's promise.
    unsafe { with_panels(Right::of(p), run, |panels| products(p, finish, code, run, panels)) };
}

/// # Safety
/// As [`run`].
unsafe fn products(p: &Product, finish: &Finish, code: &Code, run: &RunCx<'_>, panels: Panels) {
    let outer: usize = p.outer.iter().product();
    let left_base = Ptr(run.bufs.base(p.left.buffer));
    let signed = p.left.dtype == DType::I8;
    let threads = run.region.threads().div_ceil(outer.max(1));
    let grid = gemm_tasks(run.isa, p.m, p.n, p.k, threads);
    let tasks = grid.len();
    let single = p.left.rows.single().zip(p.left.cols.single());
    run.region.parallel_for(outer * tasks, &|index| {
        let (o, task) = (index / tasks, index % tasks);
        let at = |strides: &crate::buffers::Strides| usize::try_from(position(o, &p.outer, 0, strides)).unwrap_or(0);
        let slab = at(&p.left_slab);
        let (rows, cols) = grid.block(task);
        let gather_len = if single.is_none() { (rows.len() * p.k).next_multiple_of(64) } else { 0 };
        let row = at(&p.row);
        // Rows that are gathered count from the task's first one.
        let first = if single.is_none() { rows.start } else { 0 };
        let on_row = |r: usize| row + (first + r) * p.row_step;
        let hook = finish.program().map(|plan| OnBlocks {
            plan,
            code,
            bufs: run.bufs,
            isa: run.isa,
            row: &on_row,
            col: at(&p.col),
        });
        let zero = p.left_scales.zero.as_ref().map(|z| (z, Ptr(run.bufs.base(z.buffer))));
        let zero_of = move |r: usize| match zero {
            // SAFETY: the walk was checked at bind.
            Some((z, base)) => unsafe { io::read_i128(z.dtype, base.get(), z.at(slab, first + r, 0)) as i32 },
            None => 0,
        };
        let mut args = IntArgs {
            m: rows.len() + if single.is_none() { 0 } else { rows.start },
            n: p.n,
            k: p.k,
            a: Bytes { data: std::ptr::null(), signed, row: p.k as isize, col: 1 },
            a_zero: zero.is_some().then_some(&zero_of as _),
            b: panels.slab(at(&p.right_slab)),
            layout: panels.layout,
            factors: [None, None],
            c: std::ptr::null_mut(),
            c_row: 0,
            epilogue: gemm::Epilogue::default(),
        };
        match finish.direct() {
            Some(d) => {
                let (c, menu) = d.at(&run.bufs, &p.outer, o, first, 0);
                (args.c, args.c_row, args.epilogue) = (c.data.cast_mut(), c.row, menu);
                args.factors = d.factors(&run.bufs, &p.outer, o, first);
            }
            None => args.epilogue.hook = hook.as_ref().map(|h| h as _),
        }
        let len = gather_len + args.scratch_bytes();
        scratch::with(len, |memory| {
            // SAFETY: the memory has room for `len` bytes; the operands' walks were checked at bind; the result's parts
            // are disjoint.
            unsafe {
                let memory = std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast::<u8>(), len);
                let (dense, memory) = memory.split_at_mut(gather_len);
                let offset = p.left.slabs.at(slab, p.left.offset);
                match single {
                    Some((row, col)) => {
                        args.a.data = left_base.get().cast_const().wrapping_offset(offset as isize);
                        (args.a.row, args.a.col) = (row, col);
                        gemm_integers(run.isa, &args, rows, cols, memory);
                    }
                    None => {
                        for (i, r) in rows.clone().enumerate() {
                            let start = p.left.rows.at(r, offset);
                            let block = io::Block { sizes: &p.left.cols.sizes, strides: &p.left.cols.strides };
                            io::load(p.left.dtype, left_base.get(), start, block, dense.as_mut_ptr().add(i * p.k));
                        }
                        args.a.data = dense.as_ptr();
                        gemm_integers(run.isa, &args, 0..rows.len(), cols, memory);
                    }
                }
            }
        });
    });
}
