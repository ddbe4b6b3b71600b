//! Right operands kept in fewer than 32 bits, and widened on their way into the product.
//!
//! Panels are those of [`super::pack`], with elements of 16, 8 or 4 bits; a panel of integers begins with the scales of its
//! columns, and what is multiplied is `(element − zero) · scale`, rounded as that expression is in f32. With few rows of A
//! the register tile widens as it reads: the product then takes the time of reading the panels. With more, a panel is
//! widened once into the nearest cache, for the tiles of f32. Both give the bits of a product with widened panels.

use super::amx::{split, tiles};
use super::epilogue::{Finish, Lines};
use super::microkernel::{Column, Left};
use super::panel_width;
use crate::simd::{Isa, Kernel, MAX_TILE_VECTORS, Simd, dispatch};
use std::marker::PhantomData;
use std::ops::Range;

/// Up to so many rows the tile widens for itself.
pub(super) const DIRECT_ROWS: usize = 12;
/// Rows of the largest such tile of any level.
pub(super) const TILE_ROWS: usize = 6;
/// Bytes ahead of what is read at which memory is asked for.
const AHEAD: usize = 1024;

/// What the elements of a panel are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PanelElem {
    /// f32.
    F32,
    /// bf16.
    Bf16,
    /// bf16 in tiles of the matrix unit: for each 32 rows of K, pairs of rows, of each pair the 16 columns side by side. Rows
    /// past K are zero.
    Bf16Tiles,
    /// f16.
    F16,
    /// Integers of 8 bits with signs, and scales.
    I8,
    /// The same, and zero points.
    I8Zero,
    /// Integers of 4 bits without signs, two k-steps a byte (the first one low), scales and zero points.
    U4Zero,
}

impl PanelElem {
    /// Bits of an element.
    pub fn bits(self) -> usize {
        match self {
            PanelElem::F32 => 32,
            PanelElem::Bf16 | PanelElem::Bf16Tiles | PanelElem::F16 => 16,
            PanelElem::I8 | PanelElem::I8Zero => 8,
            PanelElem::U4Zero => 4,
        }
    }

    /// Numbers of f32 that each group of K has for each column: scale and zero point.
    fn tables(self) -> usize {
        match self {
            PanelElem::F32 | PanelElem::Bf16 | PanelElem::Bf16Tiles | PanelElem::F16 => 0,
            PanelElem::I8 => 1,
            PanelElem::I8Zero | PanelElem::U4Zero => 2,
        }
    }
}

/// How packed panels lie in memory. Panels follow one another; each holds a table of scales ([`Self::groups`] rows of
/// [`Self::width`] f32), one of zero points alike where the elements have them, and the elements, for each k in turn
/// those of all columns; columns past N are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PanelLayout {
    /// The elements.
    pub elem: PanelElem,
    /// Columns of a panel.
    pub width: usize,
    /// Rows of B.
    pub k: usize,
    /// Parts of K of one size with scales of their own; 1 for elements without scales.
    pub groups: usize,
}

impl PanelLayout {
    /// Changes when the same layout's bytes come to mean something else.
    pub const VERSION: u32 = 1;

    /// Panels for the level. `groups` must divide `k`, and for elements of 4 bits leave an even number of rows.
    pub fn new(isa: Isa, elem: PanelElem, k: usize, groups: usize) -> Option<PanelLayout> {
        let groups = groups.max(1);
        let fits = k.is_multiple_of(groups) && (elem != PanelElem::U4Zero || (k / groups).is_multiple_of(2));
        let width = if elem == PanelElem::Bf16Tiles { tiles::SIDE } else { panel_width(isa) };
        fits.then_some(PanelLayout { elem, width, k, groups })
    }

    /// A number that says what the bytes mean: it differs where they do.
    pub fn id(&self) -> u64 {
        let elem = match self.elem {
            PanelElem::F32 => 1u64,
            PanelElem::Bf16 => 2,
            PanelElem::F16 => 3,
            PanelElem::I8 => 4,
            PanelElem::I8Zero => 5,
            PanelElem::U4Zero => 6,
            PanelElem::Bf16Tiles => 7,
        };
        elem | (self.width as u64) << 8 | (self.groups as u64) << 20 | u64::from(Self::VERSION) << 56
    }

    /// Rows of K that share scales.
    pub fn group(&self) -> usize {
        (self.k / self.groups.max(1)).max(1)
    }

    /// Bytes before the elements of a panel.
    fn head(&self) -> usize {
        self.elem.tables() * self.groups * self.width * size_of::<f32>()
    }

    /// Bytes from one row of K to the next.
    fn step(&self) -> usize {
        self.width * self.elem.bits() / 8
    }

    /// Rows of a panel.
    fn rows(&self) -> Option<usize> {
        if self.elem == PanelElem::Bf16Tiles { self.k.checked_next_multiple_of(split::DEPTH) } else { Some(self.k) }
    }

    /// Bytes of one panel; `None` where that overflows.
    pub fn panel_bytes(&self) -> Option<usize> {
        let bits = self.width.checked_mul(self.elem.bits())?.checked_mul(self.rows()?)?;
        let tables =
            self.elem.tables().checked_mul(self.groups)?.checked_mul(self.width)?.checked_mul(size_of::<f32>())?;
        let bytes = bits.div_ceil(8).checked_add(tables)?;
        // Panels of f32 lie as `pack_b` writes them.
        if self.elem == PanelElem::F32 { Some(bytes) } else { bytes.checked_next_multiple_of(64) }
    }

    /// Bytes of the panels of `n` columns; `None` where that overflows.
    pub fn bytes(&self, n: usize) -> Option<usize> {
        n.div_ceil(self.width.max(1)).checked_mul(self.panel_bytes()?)
    }
}

/// A right operand in such panels.
#[derive(Clone, Copy, Debug)]
pub struct NarrowPanels {
    /// The first panel.
    pub data: *const u8,
    /// How they lie. The elements are not f32: those are [`super::BOperand::Packed`].
    pub layout: PanelLayout,
}

impl NarrowPanels {
    /// Bytes from one panel to the next.
    #[inline(always)]
    pub(super) fn step(&self) -> usize {
        let l = &self.layout;
        let rows = if l.elem == PanelElem::Bf16Tiles { l.k.next_multiple_of(split::DEPTH) } else { l.k };
        (l.head() + l.step() * rows).next_multiple_of(64)
    }

    /// Where the elements of panel `j` from row `k` on are.
    #[inline(always)]
    pub(super) fn at(&self, j: usize, k: usize) -> *const u8 {
        self.data.wrapping_add(j * self.step() + self.layout.head() + k * self.layout.step())
    }
}

/// Writes panels `panels` of a K by N matrix to memory whose panel 0 begins at `dst`. `value(k, column)` gives an
/// element's bits (the integer itself, without its zero point, for integers); `table(group, column)` its scale and zero
/// point, asked for where the elements have them.
///
/// # Safety
/// `dst` is valid for writing the panels' bytes.
pub unsafe fn pack_narrow(
    layout: &PanelLayout,
    n: usize,
    panels: Range<usize>,
    dst: *mut u8,
    value: impl Fn(usize, usize) -> i32,
    table: impl Fn(usize, usize) -> (f32, f32),
) {
    let nr = layout.width;
    let Some(bytes) = layout.panel_bytes() else { return };
    for j in panels.start..panels.end.min(n.div_ceil(nr.max(1))) {
        let panel = dst.wrapping_add(j * bytes);
        let width = (n - j * nr).min(nr);
        // SAFETY: tables and elements lie within the panel's bytes, for which the caller answers.
        unsafe {
            std::ptr::write_bytes(panel, 0, bytes);
            let numbers = panel.cast::<f32>();
            for g in 0..if layout.elem.tables() > 0 { layout.groups } else { 0 } {
                for c in 0..width {
                    let (scale, zero) = table(g, j * nr + c);
                    numbers.add(g * nr + c).write(scale);
                    if layout.elem.tables() > 1 {
                        numbers.add((layout.groups + g) * nr + c).write(zero);
                    }
                }
            }
            let rows = panel.add(layout.head());
            for p in 0..layout.k {
                for c in 0..width {
                    let x = value(p, j * nr + c);
                    match layout.elem {
                        PanelElem::F32 => rows.cast::<i32>().add(p * nr + c).write(x),
                        PanelElem::Bf16 | PanelElem::F16 => rows.cast::<u16>().add(p * nr + c).write(x as u16),
                        PanelElem::Bf16Tiles => rows.cast::<u16>().add((p / 2 * nr + c) * 2 + p % 2).write(x as u16),
                        PanelElem::I8 | PanelElem::I8Zero => rows.add(p * nr + c).write(x as u8),
                        PanelElem::U4Zero => *rows.add(p / 2 * nr + c) |= ((x & 15) as u8) << (p % 2 * 4),
                    }
                }
            }
        }
    }
}

/// How elements are read.
trait Elem: Copy {
    /// They have scales.
    const SCALED: bool;
    /// They have zero points.
    const ZERO: bool;
    /// Rows of K that one load gives: 1 or 2.
    const ROWS: usize;
    /// Bits of one.
    const BITS: usize;
    /// A vector of columns: one row of K, or two.
    /// # Safety
    /// The bytes are valid.
    unsafe fn load<S: Simd>(s: S, p: *const u8) -> [S::F; 2];
}

macro_rules! elem {
    ($name:ident, $scaled:literal, $zero:literal, $rows:literal, $bits:literal, |$s:ident, $p:ident| $load:expr) => {
        #[derive(Clone, Copy)]
        struct $name;
        impl Elem for $name {
            const SCALED: bool = $scaled;
            const ZERO: bool = $zero;
            const ROWS: usize = $rows;
            const BITS: usize = $bits;
            #[inline(always)]
            unsafe fn load<S: Simd>($s: S, $p: *const u8) -> [S::F; 2] {
                // SAFETY: the caller's promise.
                unsafe { $load }
            }
        }
    };
}
elem!(Bf16, false, false, 1, 16, |s, p| [s.load_bf16(p.cast()), s.zero()]);
elem!(F16, false, false, 1, 16, |s, p| [s.load_f16(p.cast()), s.zero()]);
elem!(I8, true, false, 1, 8, |s, p| [s.to_float(s.load_i8(p.cast())), s.zero()]);
elem!(I8Zero, true, true, 1, 8, |s, p| [s.to_float(s.load_i8(p.cast())), s.zero()]);
elem!(U4Zero, true, true, 2, 4, |s, p| {
    let both = s.load_u8(p);
    [s.to_float(s.and_i(both, s.splat_i(15))), s.to_float(s.sar_i::<4>(both))]
});

/// Runs `$call` with the type of the elements.
macro_rules! with_elem {
    ($elem:expr, $t:ident => $call:expr) => {
        match $elem {
            PanelElem::F32 | PanelElem::Bf16Tiles => debug_assert!(false, "panels that are not widened"),
            PanelElem::Bf16 => {
                type $t = Bf16;
                $call
            }
            PanelElem::F16 => {
                type $t = F16;
                $call
            }
            PanelElem::I8 => {
                type $t = I8;
                $call
            }
            PanelElem::I8Zero => {
                type $t = I8Zero;
                $call
            }
            PanelElem::U4Zero => {
                type $t = U4Zero;
                $call
            }
        }
    };
}

/// The values of one vector of columns at one load: `(x − zero) · scale`, zero and scale from the tables' rows at `table`.
///
/// # Safety
/// The bytes at `p` and the tables' vectors are valid.
#[inline(always)]
unsafe fn values<S: Simd, E: Elem>(s: S, p: *const u8, table: *const f32, zeros: usize) -> [S::F; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut x = E::load(s, p);
        if E::ZERO {
            let zero = s.load(table.wrapping_add(zeros));
            x = [s.sub(x[0], zero), s.sub(x[1], zero)];
        }
        if E::SCALED {
            let scale = s.load(table);
            x = [s.mul(x[0], scale), s.mul(x[1], scale)];
        }
        x
    }
}

/// Widens rows `k0..k0 + k` of adjacent panels, from panel `j` on, to panels of f32 of `k` rows each.
pub(super) struct Widen {
    pub b: NarrowPanels,
    pub j: usize,
    pub panels: usize,
    pub k0: usize,
    pub k: usize,
    /// Has room for them.
    pub dst: *mut f32,
}

impl Kernel for Widen {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        with_elem!(self.b.layout.elem, E => self.widen::<S, E>(s));
    }
}

impl Widen {
    #[inline(always)]
    fn widen<S: Simd, E: Elem>(&self, s: S) {
        let nr = S::W * S::TILE_VECTORS;
        let layout = &self.b.layout;
        let zeros = layout.groups * nr;
        for q in 0..self.panels {
            let tables = self.b.data.wrapping_add((self.j + q) * self.b.step()).cast::<f32>();
            let mut dst = self.dst.wrapping_add(q * self.k * nr);
            let mut from = self.b.at(self.j + q, self.k0);
            let mut done = 0;
            while done < self.k {
                let at = self.k0 + done;
                let g = at / layout.group();
                let n = (self.k - done).min((g + 1) * layout.group() - at);
                let table = tables.wrapping_add(g * nr);
                for _ in 0..n / E::ROWS {
                    for v in 0..S::TILE_VECTORS {
                        // SAFETY: whoever made this answers for the panels; rows of them are whole, and so is each
                        // row of the result.
                        unsafe {
                            let p = from.wrapping_add(v * S::W * E::BITS * E::ROWS / 8);
                            let x = values::<S, E>(s, p, table.wrapping_add(v * S::W), zeros);
                            s.store(dst.wrapping_add(v * S::W), x[0]);
                            if E::ROWS == 2 {
                                s.store(dst.wrapping_add(nr + v * S::W), x[1]);
                            }
                        }
                    }
                    dst = dst.wrapping_add(nr * E::ROWS);
                    from = from.wrapping_add(nr * E::BITS * E::ROWS / 8);
                }
                done += n;
            }
        }
    }
}

/// Where a tile finds its part of narrow panels.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub b: NarrowPanels,
    /// The first panel.
    pub j: usize,
    /// The block of K's first row.
    pub k0: usize,
}

/// Tiles of `rows` ≤ [`TILE_ROWS`] by `panels`, as [`super::microkernel::run`] runs those of f32.
///
/// # Safety
/// As there; `part` names whole panels.
#[inline(always)]
pub(super) unsafe fn run<S: Simd>(s: S, rows: usize, panels: usize, part: &Part, tile: &Column) {
    with_elem!(part.b.layout.elem, E => tiles::<S, E>(s, rows, panels, part, tile));
}

#[inline(always)]
fn tiles<S: Simd, E: Elem>(s: S, rows: usize, panels: usize, part: &Part, tile: &Column) {
    macro_rules! tiles {
        ($(($rows:literal, $panels:literal))*) => {
            match (rows, panels) {
                $(($rows, $panels) => s.vectorize(Fixed::<E, $rows, $panels>(part, tile, PhantomData)),)*
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

struct Fixed<'a, E, const R: usize, const P: usize>(&'a Part, &'a Column, PhantomData<E>);

impl<E: Elem, const R: usize, const P: usize> Kernel for Fixed<'_, E, R, P> {
    type Output = ();

    // Plain index loops: constant bounds, unrolled whole, so that the sums stay in registers.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let nr = S::W * S::TILE_VECTORS;
        let (part, mut t) = (self.0, *self.1);
        let layout = &part.b.layout;
        let (zeros, panel_step) = (layout.groups * nr, part.b.step());
        let tables = part.b.data.wrapping_add(part.j * panel_step);
        let step = nr * E::BITS * E::ROWS / 8;
        // One line is asked for once.
        let line = (64 / step).max(1);
        let mut rows = match t.a {
            Left::Packed(a, _) => Lines { data: a.cast_mut(), row: 0 },
            Left::InPlace(a) => a,
            Left::Segments(_) => return,
        };
        for _ in 0..t.count {
            let mut acc = [[[s.zero(); MAX_TILE_VECTORS]; P]; R];
            let mut b = part.b.at(part.j, part.k0);
            let mut done = 0;
            while done < t.k {
                let at = part.k0 + done;
                let g = at / layout.group();
                let n = (t.k - done).min((g + 1) * layout.group() - at);
                let table = tables.cast::<f32>().wrapping_add(g * nr);
                let mut i = 0;
                while i < n {
                    for q in 0..P {
                        s.prefetch(b.wrapping_add(q * panel_step + AHEAD).cast());
                    }
                    let end = n.min(i + line * E::ROWS);
                    while i < end {
                        for q in 0..P {
                            let from = b.wrapping_add(q * panel_step);
                            let table = table.cast::<u8>().wrapping_add(q * panel_step).cast::<f32>();
                            let mut x = [[s.zero(); MAX_TILE_VECTORS]; 2];
                            for v in 0..S::TILE_VECTORS {
                                // SAFETY: `run`'s caller answers for whole panels.
                                let two = unsafe {
                                    let from = from.wrapping_add(v * S::W * E::BITS * E::ROWS / 8);
                                    values::<S, E>(s, from, table.wrapping_add(v * S::W), zeros)
                                };
                                x[0][v] = two[0];
                                x[1][v] = two[1];
                            }
                            for r in 0..R {
                                let a = rows.at(r, done + i);
                                // SAFETY: and for `k` elements of each row.
                                let av = s.splat(unsafe { *a });
                                for v in 0..S::TILE_VECTORS {
                                    acc[r][q][v] = s.mul_add(av, x[0][v], acc[r][q][v]);
                                }
                            }
                            if E::ROWS == 2 {
                                for r in 0..R {
                                    let a = rows.at(r, done + i + 1);
                                    // SAFETY: as above; groups have even numbers of rows.
                                    let av = s.splat(unsafe { *a });
                                    for v in 0..S::TILE_VECTORS {
                                        acc[r][q][v] = s.mul_add(av, x[1][v], acc[r][q][v]);
                                    }
                                }
                            }
                        }
                        b = b.wrapping_add(step);
                        i += E::ROWS;
                    }
                }
                done += n;
            }
            for q in 0..P {
                for v in 0..S::TILE_VECTORS {
                    let j = (q * S::TILE_VECTORS + v) * S::W;
                    let lanes = t.width.saturating_sub(j).min(S::W);
                    let mut column = [acc[0][q][v]; R];
                    for r in 1..R {
                        column[r] = acc[r][q][v];
                    }
                    // SAFETY: the caller's promise: `lanes` lanes from column j on lie within the tile.
                    unsafe { finish::<S, R>(s, &t, column, j, lanes) };
                }
            }
            rows = rows.below(R);
            t.c = t.c.below(R);
            t.before = t.before.below(R);
            t.finish.residual = t.finish.residual.below(R);
        }
    }
}

/// # Safety
/// As [`Finish::store`].
#[inline(always)]
unsafe fn finish<S: Simd, const R: usize>(s: S, t: &Column, column: [S::F; R], j: usize, lanes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if lanes == S::W {
            Finish::store::<S, R, true>(&t.finish, s, column, (t.before, t.c), j, lanes);
        } else if lanes > 0 {
            Finish::store::<S, R, false>(&t.finish, s, column, (t.before, t.c), j, lanes);
        }
    }
}

/// Widens all panels to those of f32: for what reads these alone, and for tests.
///
/// # Safety
/// `b` holds the panels of `n` columns; `dst` is valid for writing as many elements as `pack_b` would.
pub unsafe fn widen_panels(isa: Isa, b: NarrowPanels, n: usize, dst: *mut f32) {
    let panels = n.div_ceil(b.layout.width.max(1));
    dispatch(isa, Widen { b, j: 0, panels, k0: 0, k: b.layout.k, dst });
}
