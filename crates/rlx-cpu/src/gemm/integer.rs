//! Products of 8-bit integers, exact in i32: C = epilogue(Σ (a − a_zero) · (b − b_zero)), sums wrapping as i32 does.
//!
//! B is packed once, its zero points taken off, to panels as wide as those of f32 ([`IntLayout`]): pairs of rows of K lie
//! together, so that one instruction multiplies 16-bit integers and adds neighbours; no sum of two products leaves 32 bits.
//! (The instruction for pairs of bytes saturates and is not used.) Rows of A are widened to 16 bits, less their zero
//! points, a block of them at a time. Where the machine multiplies fours of bytes, fours of rows lie together, A stays as
//! it is, and the sums of B's columns take off A's zero points afterwards.
//!
//! A tile of sums is finished in registers: converted to f32, times one or two factors, then the short menu of f32
//! products; or it is written to scratch as i32 for the epilogue's hook.

use super::amx::{self, has_tiles, tiles};
use super::epilogue::{Activate, Activation, Epilogue, Finish, Lines, OutputBlock, Short};
use super::microkernel::panels_at_once;
use super::pack::row_tiles;
use super::{Strided, panel_width};
use crate::simd::{Isa, Kernel, MAX_TILE_VECTORS, Simd, dispatch, quads};
use std::marker::PhantomData;
use std::ops::Range;

/// Rows of A widened at a time.
const ROWS: usize = 96;
/// Bound on them in bytes.
const A_LIMIT: usize = 192 << 10;
/// Columns of C that the hook sees at a time.
const COLS: usize = 384;
/// Bytes ahead at which panels are asked for.
const AHEAD: usize = 768;
/// Rows of the largest tile.
const TILE_ROWS: usize = 6;
/// From so many rows on a panel of bytes is widened once for all tiles, instead of by each.
const WIDEN_ROWS: usize = 24;

/// What panels hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntElem {
    /// Bytes, pairs of rows together.
    Pairs8,
    /// 16 bits, pairs of rows together: where elements less their zero points do not fit bytes.
    Pairs16,
    /// Bytes, fours of rows together, after the sums of the columns.
    Quads8,
    /// The same in tiles of the matrix unit: panels of 16 columns, and rows of zeros up to a multiple of 64.
    Tiles8,
}

/// How packed integers lie: panel after panel, each a multiple of 64 bytes; rows past K and columns past N are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntLayout {
    /// The elements.
    pub elem: IntElem,
    /// Columns of a panel.
    pub width: usize,
    /// Rows of B.
    pub k: usize,
}

impl IntLayout {
    /// Changes when the same layout's bytes come to mean something else.
    pub const VERSION: u32 = 1;

    /// The layout for a level; `bytes` says that all elements less their zero points are within −128..=127.
    pub fn new(isa: Isa, k: usize, bytes: bool) -> IntLayout {
        let elem = match bytes {
            false => IntElem::Pairs16,
            true if has_tiles(isa) => IntElem::Tiles8,
            true if quads(isa) => IntElem::Quads8,
            true => IntElem::Pairs8,
        };
        let width = if elem == IntElem::Tiles8 { tiles::SIDE } else { panel_width(isa) };
        IntLayout { elem, width, k }
    }

    /// A number that says what the bytes mean: it differs where they do, also from those of other panels.
    pub fn id(&self) -> u64 {
        let elem = match self.elem {
            IntElem::Pairs8 => 16u64,
            IntElem::Pairs16 => 17,
            IntElem::Quads8 => 18,
            IntElem::Tiles8 => 19,
        };
        elem | (self.width as u64) << 8 | u64::from(Self::VERSION) << 56
    }

    /// Rows that lie together.
    fn together(&self) -> usize {
        if matches!(self.elem, IntElem::Quads8 | IntElem::Tiles8) { 4 } else { 2 }
    }

    /// What the number of rows is made a multiple of.
    fn whole(&self) -> usize {
        if self.elem == IntElem::Tiles8 { tiles::ROW_BYTES } else { self.together() }
    }

    fn size(&self) -> usize {
        if self.elem == IntElem::Pairs16 { 2 } else { 1 }
    }

    /// Bytes before the elements of a panel: the sums of its columns as i32.
    pub(super) fn head(&self) -> usize {
        if self.together() == 4 { 4 * self.width } else { 0 }
    }

    /// Bytes of one panel; `None` where that overflows.
    pub fn panel_bytes(&self) -> Option<usize> {
        let rows = self.k.checked_next_multiple_of(self.whole())?;
        let bytes = rows.checked_mul(self.width)?.checked_mul(self.size())?.checked_add(self.head())?;
        bytes.checked_next_multiple_of(64)
    }

    /// Bytes of the panels of `n` columns; `None` where that overflows.
    pub fn bytes(&self, n: usize) -> Option<usize> {
        n.div_ceil(self.width.max(1)).checked_mul(self.panel_bytes()?)
    }

    #[inline(always)]
    pub(super) fn step(&self) -> usize {
        let rows = self.k.next_multiple_of(self.whole());
        (rows * self.width * self.size() + self.head()).next_multiple_of(64)
    }
}

/// Writes panels `panels` of a K by N matrix to memory whose panel 0 begins at `dst`; `value(k, column)` is an element less
/// its zero point.
///
/// # Safety
/// `dst` is valid for writing the panels' bytes, and aligned to 4.
pub unsafe fn pack_integers(
    layout: &IntLayout,
    n: usize,
    panels: Range<usize>,
    dst: *mut u8,
    value: impl Fn(usize, usize) -> i32,
) {
    let nr = layout.width;
    let Some(bytes) = layout.panel_bytes() else { return };
    let together = layout.together();
    for j in panels.start..panels.end.min(n.div_ceil(nr.max(1))) {
        let panel = dst.wrapping_add(j * bytes);
        // SAFETY: elements and sums lie within the panel's bytes, for which the caller answers.
        unsafe {
            std::ptr::write_bytes(panel, 0, bytes);
            let rows = panel.add(layout.head());
            for p in 0..layout.k {
                for c in 0..(n - j * nr).min(nr) {
                    let x = value(p, j * nr + c);
                    let at = (p / together * nr + c) * together + p % together;
                    match layout.elem {
                        IntElem::Pairs16 => rows.cast::<i16>().add(at).write(x as i16),
                        IntElem::Pairs8 => rows.cast::<i8>().add(at).write(x as i8),
                        IntElem::Quads8 | IntElem::Tiles8 => {
                            rows.cast::<i8>().add(at).write(x as i8);
                            let sum = panel.cast::<i32>().add(c);
                            *sum = (*sum).wrapping_add(x);
                        }
                    }
                }
            }
        }
    }
}

/// A left operand of bytes: element (r, c) stands at `data + r · row + c · col`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// Element (0, 0).
    pub data: *const u8,
    /// True: they have signs.
    pub signed: bool,
    /// From one row to the next.
    pub row: isize,
    /// From one column to the next.
    pub col: isize,
}

/// One product; see the module.
///
/// # Safety of use
/// As of [`super::GemmArgs`].
#[derive(Clone, Copy)]
pub struct IntArgs<'a> {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A.
    pub k: usize,
    /// The left operand.
    pub a: Bytes,
    /// The zero point of each row of A, in the range of its elements; `None`: zero.
    pub a_zero: Option<&'a (dyn Fn(usize) -> i32 + Sync)>,
    /// Panels that [`pack_integers`] wrote.
    pub b: *const u8,
    /// How they lie.
    pub layout: IntLayout,
    /// What the sums, converted to f32, are multiplied by in turn: matrices of C's shape by their strides, of which at least
    /// one is 0, and that along columns 0 or 1.
    pub factors: [Option<Strided>; 2],
    /// Element (0, 0) of the result, with a column stride of 1. Null: sums go to scratch as i32, and only the epilogue's
    /// hook sees them.
    pub c: *mut f32,
    /// Elements from one row of C to the next.
    pub c_row: isize,
    /// What happens after the factors: [`Epilogue::integers_fit`] says whether it can.
    pub epilogue: Epilogue<'a>,
}

// SAFETY: the pointers are only a description; whoever passes it to `gemm_integers` promises their validity there.
unsafe impl Send for IntArgs<'_> {}
// SAFETY: as above.
unsafe impl Sync for IntArgs<'_> {}

impl Epilogue<'_> {
    /// Whether a product of integers can take this menu.
    pub fn integers_fit(&self) -> bool {
        self.in_registers().is_some() && !self.in_place
    }
}

impl IntArgs<'_> {
    pub(super) fn block_rows(&self) -> usize {
        if self.layout.elem == IntElem::Tiles8 {
            return (A_LIMIT / self.a_row() / tiles::BLOCK * tiles::BLOCK).clamp(tiles::BLOCK, 2 * ROWS);
        }
        let most = A_LIMIT / (2 * self.k.max(1));
        (most / TILE_ROWS * TILE_ROWS).clamp(TILE_ROWS, ROWS)
    }

    /// i16 of one widened row, or bytes of one that stays as it is.
    pub(super) fn a_row(&self) -> usize {
        let whole = if self.layout.elem == IntElem::Tiles8 { tiles::ROW_BYTES } else { 4 };
        self.k.next_multiple_of(whole).max(whole)
    }

    fn a_bytes(&self, rows: usize) -> usize {
        if self.layout.elem == IntElem::Tiles8 {
            return self.block_rows().min(rows.next_multiple_of(tiles::SIDE)) * self.a_row() + 64;
        }
        (self.block_rows().min(rows) * self.a_row() * 2 + 64).next_multiple_of(64)
    }

    /// Bytes of a widened panel, where there is one.
    fn panel_bytes(&self) -> usize {
        let widens = self.layout.elem == IntElem::Pairs8 && self.m >= WIDEN_ROWS;
        if widens { (self.k.next_multiple_of(2) * self.layout.width * 2).next_multiple_of(64) } else { 0 }
    }

    /// Bytes of scratch that one call of [`gemm_integers`] needs. More may be given: the rest is the hook's.
    pub fn scratch_bytes(&self) -> usize {
        let c = if self.c.is_null() {
            self.block_rows().min(self.m) * COLS.next_multiple_of(self.layout.width) * 4
        } else {
            0
        };
        self.a_bytes(self.m) + self.panel_bytes() + c + 64
    }
}

/// Computes the rows and columns given of C; `cols` starts at a panel's edge. The division never changes a result.
///
/// # Safety
/// See [`IntArgs`]; rows and columns lie within C.
pub unsafe fn gemm_integers(isa: Isa, args: &IntArgs<'_>, rows: Range<usize>, cols: Range<usize>, scratch: &mut [u8]) {
    assert!(scratch.len() >= args.scratch_bytes(), "a product of integers needs more scratch");
    dispatch(isa, Block { args, rows, cols, scratch });
}

struct Block<'a> {
    args: &'a IntArgs<'a>,
    rows: Range<usize>,
    cols: Range<usize>,
    scratch: &'a mut [u8],
}

/// Rows of A as the tiles read them.
struct Widen<'a> {
    args: &'a IntArgs<'a>,
    rows: Range<usize>,
    to: *mut u8,
}

impl Kernel for Widen<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (a, k, width) = (self.args.a, self.args.k, self.args.a_row());
        let raw = self.args.layout.elem == IntElem::Quads8;
        for (i, r) in self.rows.clone().enumerate() {
            let from = a.data.wrapping_offset(r as isize * a.row);
            // SAFETY: the row's elements are valid, and the scratch holds `width` elements for each row.
            unsafe {
                if raw {
                    // Bytes without signs: what has signs is moved up, and so is its zero point later.
                    let to = self.to.add(i * width);
                    let flip = if a.signed { 0x80u8 } else { 0 };
                    for c in 0..k {
                        to.add(c).write(*from.offset(c as isize * a.col) ^ flip);
                    }
                    std::ptr::write_bytes(to.add(k), 0, width - k);
                    continue;
                }
                let zero = self.args.a_zero.map_or(0, |z| z(r));
                let to = self.to.cast::<i16>().add(i * width);
                let mut c = 0;
                if a.col == 1 {
                    let less = s.splat_i(zero);
                    while c + S::W <= k {
                        let p = from.wrapping_add(c);
                        let x = if a.signed { s.load_i8(p.cast()) } else { s.load_u8(p) };
                        s.store_i16(to.add(c), s.sub_i(x, less));
                        c += S::W;
                    }
                }
                while c < k {
                    let x = *from.offset(c as isize * a.col);
                    let x = if a.signed { i32::from(x as i8) } else { i32::from(x) };
                    to.add(c).write(x.wrapping_sub(zero) as i16);
                    c += 1;
                }
                std::ptr::write_bytes(to.add(k), 0, width - k);
            }
        }
    }
}

/// One panel of pairs of bytes to pairs of 16 bits.
struct WidenPanel {
    from: *const u8,
    count: usize,
    to: *mut u8,
}

impl Kernel for WidenPanel {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut i = 0;
        while i < self.count {
            // SAFETY: a panel is whole vectors; the scratch holds twice its bytes.
            unsafe {
                let pairs = s.load_pairs_i8(self.from.wrapping_add(i).cast());
                s.store(self.to.add(2 * i).cast(), s.from_bits(pairs));
            }
            i += 2 * S::W;
        }
    }
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let args = self.args;
        let nr = S::W * S::TILE_VECTORS;
        if self.rows.is_empty() || self.cols.is_empty() {
            return;
        }
        let skip = self.scratch.as_ptr().align_offset(64).min(63);
        let (_, rest) = self.scratch.split_at_mut(skip);
        let (a, rest) = rest.split_at_mut(args.a_bytes(args.m) - 64);
        let (panel, rest) = rest.split_at_mut(args.panel_bytes());
        let block_cols = COLS.next_multiple_of(nr);
        let c_len = if args.c.is_null() { args.block_rows().min(args.m) * block_cols * 4 } else { 0 };
        let (sums, hook_rest) = rest.split_at_mut(c_len);
        let (a, panel, sums) = (a.as_mut_ptr(), panel.as_mut_ptr(), sums.as_mut_ptr().cast::<i32>());
        // SAFETY: the bytes are not read but through what the hook makes of them, and any bytes are f32.
        let hook_rest = unsafe { hook_rest.align_to_mut::<f32>().1 };
        let short = args.epilogue.in_registers();
        for row in self.rows.clone().step_by(args.block_rows()) {
            let rows = row..self.rows.end.min(row + args.block_rows());
            let tiles = args.layout.elem == IntElem::Tiles8;
            if tiles {
                s.vectorize(amx::integer::Rows { args, rows: rows.clone(), to: a });
            } else {
                s.vectorize(Widen { args, rows: rows.clone(), to: a });
            }
            for col in self.cols.clone().step_by(block_cols) {
                let cols = col..self.cols.end.min(col + block_cols);
                let mut c = cols.start;
                if tiles {
                    let out = match (args.c.is_null(), short) {
                        (false, Some((short, long))) => Out::Floats(short, long),
                        _ => Out::Sums(sums, cols.len()),
                    };
                    s.vectorize(amx::integer::Tiles { args, a, rows: rows.clone(), cols: cols.clone(), out });
                    c = cols.end;
                }
                while c < cols.end {
                    let at_once = panels_at_once(rows.len());
                    let group = if (cols.end - c).div_ceil(nr) >= at_once { at_once } else { 1 };
                    let width = (cols.end - c).min(group * nr);
                    let (mut b, mut elem) = (args.b.wrapping_add(c / nr * args.layout.step()), args.layout.elem);
                    if elem == IntElem::Pairs8 && rows.len() >= WIDEN_ROWS {
                        s.vectorize(WidenPanel { from: b, count: args.k.next_multiple_of(2) * nr, to: panel });
                        (b, elem) = (panel, IntElem::Pairs16);
                    }
                    let mut r = rows.start;
                    for (height, count) in row_tiles(rows.len(), S::TILE_ROWS.min(TILE_ROWS)) {
                        if count == 0 {
                            continue;
                        }
                        let mut tile = Tile {
                            args,
                            a: a.wrapping_add(
                                (r - rows.start)
                                    * args.a_row()
                                    * if args.layout.elem == IntElem::Quads8 { 1 } else { 2 },
                            ),
                            b,
                            elem,
                            row: r,
                            col: c,
                            count,
                            width,
                            out: Out::Sums(
                                sums.wrapping_add((r - rows.start) * cols.len() + c - cols.start),
                                cols.len(),
                            ),
                        };
                        if let (false, Some((short, long))) = (args.c.is_null(), short) {
                            tile.out = Out::Floats(short, long);
                        }
                        tile.run(s, height, group);
                        r += height * count;
                    }
                    c += group * nr;
                }
                if let (true, Some(hook)) = (args.c.is_null(), args.epilogue.hook) {
                    hook.run(OutputBlock {
                        rows: rows.clone(),
                        cols: cols.clone(),
                        data: sums.cast(),
                        row_stride: cols.len() as isize,
                        col_stride: 1,
                        scratch: &mut *hook_rest,
                    });
                }
            }
        }
    }
}

/// Where a tile goes.
#[derive(Clone, Copy)]
pub(super) enum Out {
    /// Sums, to rows of so many.
    Sums(*mut i32, usize),
    /// Finished f32, to C.
    Floats(Short, Activation),
}

/// Tiles below one another.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    pub args: &'a IntArgs<'a>,
    pub a: *const u8,
    /// The first panel.
    pub b: *const u8,
    /// What it holds.
    pub elem: IntElem,
    pub row: usize,
    pub col: usize,
    pub count: usize,
    pub width: usize,
    pub out: Out,
}

impl Tile<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S, rows: usize, panels: usize) {
        match self.elem {
            IntElem::Pairs8 => self.sized::<S, Pairs8>(s, rows, panels),
            IntElem::Pairs16 => self.sized::<S, Pairs16>(s, rows, panels),
            IntElem::Quads8 => self.sized::<S, Quads8>(s, rows, panels),
            IntElem::Tiles8 => debug_assert!(false, "tiles of the matrix unit are its own"),
        }
    }

    #[inline(always)]
    fn sized<S: Simd, E: Elem>(self, s: S, rows: usize, panels: usize) {
        macro_rules! tiles {
            ($(($rows:literal, $panels:literal))*) => {
                match (rows, panels) {
                    $(($rows, $panels) if E::QUADS => s.vectorize_quads(Fixed::<E, $rows, $panels>(self, PhantomData)),
                      ($rows, $panels) => s.vectorize(Fixed::<E, $rows, $panels>(self, PhantomData)),)*
                    _ => debug_assert!(false, "no register tile of {rows} rows by {panels} panels"),
                }
            };
        }
        // The condition is a constant: a level only gets the tiles it can hold.
        if S::TILE_ROWS < TILE_ROWS {
            tiles!((1, 4)(2, 2)(3, 2)(1, 1)(2, 1)(3, 1)(4, 1))
        } else {
            tiles!((1, 4)(2, 2)(3, 2)(1, 1)(2, 1)(3, 1)(4, 1)(5, 1)(6, 1))
        }
    }
}

/// How panels are multiplied.
trait Elem: Copy {
    /// Fours of bytes.
    const QUADS: bool;
    /// Bytes of a vector of columns.
    const BYTES: usize;
    /// A vector of columns.
    /// # Safety
    /// `p` is valid for it.
    unsafe fn load<S: Simd>(s: S, p: *const u8) -> S::I;
    /// Adds products.
    fn dot<S: Simd>(s: S, acc: S::I, a: S::I, b: S::I) -> S::I;
}

macro_rules! elem {
    ($name:ident, $quads:literal, $bytes:literal, |$s:ident, $p:ident| $load:expr, $dot:ident) => {
        #[derive(Clone, Copy)]
        struct $name;
        impl Elem for $name {
            const QUADS: bool = $quads;
            const BYTES: usize = $bytes;
            #[inline(always)]
            unsafe fn load<S: Simd>($s: S, $p: *const u8) -> S::I {
                // SAFETY: the caller's promise.
                unsafe { $load }
            }
            #[inline(always)]
            fn dot<S: Simd>(s: S, acc: S::I, a: S::I, b: S::I) -> S::I {
                s.$dot(acc, a, b)
            }
        }
    };
}
elem!(Pairs8, false, 2, |s, p| s.load_pairs_i8(p.cast()), dot_pairs);
elem!(Pairs16, false, 4, |s, p| s.bits(s.load(p.cast())), dot_pairs);
elem!(Quads8, true, 4, |s, p| s.bits(s.load(p.cast())), dot_quads);

struct Fixed<'a, E, const R: usize, const P: usize>(Tile<'a>, PhantomData<E>);

impl<E: Elem, const R: usize, const P: usize> Kernel for Fixed<'_, E, R, P> {
    type Output = ();

    // Plain index loops: constant bounds, unrolled whole, so that the sums stay in registers.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let t = self.0;
        let nr = S::W * S::TILE_VECTORS;
        let layout = &t.args.layout;
        let (panel_step, head) = (layout.step(), layout.head());
        let steps = t.args.k.div_ceil(layout.together());
        let row_bytes = t.args.a_row() * if E::QUADS { 1 } else { 2 };
        let zero = s.splat_i(0);
        let (mut a, mut row, mut out) = (t.a, t.row, t.out);
        for _ in 0..t.count {
            let mut acc = [[[zero; MAX_TILE_VECTORS]; P]; R];
            let mut b = t.b.wrapping_add(head);
            // SAFETY: the maker of the tile answers for its rows, and for whole panels.
            unsafe {
                for i in 0..steps {
                    for q in 0..P {
                        let panel = b.wrapping_add(q * panel_step);
                        s.prefetch(panel.wrapping_add(AHEAD).cast());
                        let mut bv = [zero; MAX_TILE_VECTORS];
                        for v in 0..S::TILE_VECTORS {
                            bv[v] = E::load(s, panel.wrapping_add(v * S::W * E::BYTES));
                        }
                        for r in 0..R {
                            let av = s.splat_i(*a.wrapping_add(r * row_bytes).cast::<i32>().wrapping_add(i));
                            for v in 0..S::TILE_VECTORS {
                                acc[r][q][v] = E::dot(s, acc[r][q][v], av, bv[v]);
                            }
                        }
                    }
                    b = b.wrapping_add(nr * E::BYTES);
                }
                for q in 0..P {
                    for v in 0..S::TILE_VECTORS {
                        let j = (q * S::TILE_VECTORS + v) * S::W;
                        let lanes = t.width.saturating_sub(j).min(S::W);
                        if lanes == 0 {
                            continue;
                        }
                        let mut sums = [acc[0][q][v]; R];
                        for r in 1..R {
                            sums[r] = acc[r][q][v];
                        }
                        if E::QUADS {
                            let head = t.b.wrapping_add(q * panel_step).cast::<i32>();
                            // Bytes with signs were moved up.
                            let moved = if t.args.a.signed { 128 } else { 0 };
                            t.less_zeros(s, &mut sums, row, moved, head.wrapping_add(v * S::W));
                        }
                        t.write(s, sums, out, (row, j, lanes));
                    }
                }
            }
            a = a.wrapping_add(R * row_bytes);
            row += R;
            if let Out::Sums(to, width) = &mut out {
                *to = to.wrapping_add(R * *width);
            }
        }
    }
}

impl Tile<'_> {
    /// Takes A's zero points off sums of products with bytes that were moved up by `moved`.
    ///
    /// # Safety
    /// `columns` holds the sums of a vector of B's columns.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    pub(super) unsafe fn less_zeros<S: Simd, const R: usize>(
        &self,
        s: S,
        sums: &mut [S::I; R],
        row: usize,
        moved: i32,
        columns: *const i32,
    ) {
        if self.args.a_zero.is_none() && moved == 0 {
            return;
        }
        // SAFETY: the caller's promise.
        let columns = s.bits(unsafe { s.load(columns.cast()) });
        for r in 0..R {
            let zero = self.args.a_zero.map_or(0, |z| z(row + r)) + moved;
            sums[r] = s.sub_i(sums[r], s.mul_i(columns, s.splat_i(zero)));
        }
    }

    /// Writes a vector of columns of R rows, from column `j` of the tile on.
    ///
    /// # Safety
    /// The lanes lie within C.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    pub(super) unsafe fn write<S: Simd, const R: usize>(
        &self,
        s: S,
        sums: [S::I; R],
        out: Out,
        (row, j, lanes): (usize, usize, usize),
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match out {
                Out::Sums(to, width) => {
                    for r in 0..R {
                        let to = to.wrapping_add(r * width + j).cast::<f32>();
                        s.store_partial(to, s.from_bits(sums[r]), lanes);
                    }
                }
                Out::Floats(short, long) => self.floats(s, sums, (row, j, lanes), short, long),
            }
        }
    }

    /// Finishes a vector of columns, from column `j` of the tile on.
    ///
    /// # Safety
    /// The lanes lie within C.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    unsafe fn floats<S: Simd, const R: usize>(
        &self,
        s: S,
        sums: [S::I; R],
        (row, j, lanes): (usize, usize, usize),
        short: Short,
        long: Activation,
    ) {
        let mut v = [s.zero(); R];
        for r in 0..R {
            v[r] = s.to_float(sums[r]);
        }
        let col = self.col + j;
        // SAFETY: the caller's promise; factors cover C.
        unsafe {
            for f in self.args.factors.iter().flatten() {
                if f.col == 1 {
                    let by = s.load_partial(f.at(row, col), lanes);
                    for r in 0..R {
                        v[r] = s.mul(v[r], by);
                    }
                } else {
                    for r in 0..R {
                        v[r] = s.mul(v[r], s.splat(*f.at(row + r, 0)));
                    }
                }
            }
            let args = self.args;
            let c = args.c.wrapping_offset(row as isize * args.c_row).wrapping_add(col);
            let finish = args.epilogue.finish(short, row, col);
            let to = Lines { data: c, row: args.c_row };
            if long == Activation::None {
                return store(s, &finish, v, to, lanes);
            }
            let mut buffer = [0.0f32; 16 * TILE_ROWS];
            let tile = Lines { data: buffer.as_mut_ptr(), row: S::W as isize };
            store(s, &finish, v, tile, lanes);
            let affine = args.epilogue.affine;
            if lanes == S::W {
                s.vectorize(Activate { activation: long, affine, tile: tile.data, rows: R, cols: S::W, to });
                return;
            }
            s.vectorize(Activate { activation: long, affine, tile: tile.data, rows: R, cols: S::W, to: tile });
            for r in 0..R {
                s.store_partial(to.at(r, 0), s.load(tile.at(r, 0)), lanes);
            }
        }
    }
}

/// # Safety
/// As [`Finish::store`].
#[inline(always)]
unsafe fn store<S: Simd, const R: usize>(s: S, finish: &Finish, v: [S::F; R], to: Lines, lanes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if lanes == S::W {
            finish.store::<S, R, true>(s, v, (Lines::NONE, to), 0, lanes);
        } else {
            finish.store::<S, R, false>(s, v, (Lines::NONE, to), 0, lanes);
        }
    }
}
