//! Right operands that are kept in the narrow form that they have in memory: bf16, f16, integers with scales. Packed once
//! for all runs, they are widened while they are multiplied.

use super::operand::{Axes, Operand, fingerprint_of};
use crate::buffers::{Form, Ptr, RunCx};
use crate::gemm::amx::has_tiles;
use crate::gemm::{NarrowPanels, PanelElem, PanelLayout, pack_narrow};
use crate::simd::Isa;
use crate::tile::io;
use rlx_ir::DType;

/// Numbers that go with an operand's elements: zero points or scales, walked as the operand is.
#[derive(Clone, Debug)]
pub struct Numbers {
    /// The buffer.
    pub buffer: u32,
    /// Element type.
    pub dtype: DType,
    /// Position of element 0.
    pub offset: i64,
    /// Steps of slabs, rows and columns.
    pub slabs: Axes,
    /// Rows.
    pub rows: Axes,
    /// Columns.
    pub cols: Axes,
}

impl Numbers {
    /// Where the number of an element is.
    pub fn at(&self, slab: usize, row: usize, col: usize) -> i64 {
        self.cols.at(col, self.rows.at(row, self.slabs.at(slab, self.offset)))
    }

    /// The number.
    /// # Safety
    /// `base` is its memory, and the indices are in range.
    pub unsafe fn read(&self, base: *const u8, slab: usize, row: usize, col: usize) -> f64 {
        // SAFETY: the caller's promise; the walk was checked at bind.
        unsafe { io::read_f64(self.dtype, base, self.at(slab, row, col)) }
    }
}

/// What an operand's elements stand for: `(x − zero) · scale`.
#[derive(Clone, Debug, Default)]
pub struct Scales {
    /// What is subtracted.
    pub zero: Option<Numbers>,
    /// The factor.
    pub scale: Option<Numbers>,
}

impl Scales {
    /// What an element stands for.
    /// # Safety
    /// `run` has the numbers' memory, and the indices are in range.
    pub unsafe fn apply(&self, run: &RunCx<'_>, x: f32, slab: usize, row: usize, col: usize) -> f32 {
        // SAFETY: the caller's promise.
        let read = |n: &Numbers| unsafe { n.read(run.bufs.base(n.buffer), slab, row, col) as f32 };
        let x = self.zero.as_ref().map_or(x, |z| x - read(z));
        self.scale.as_ref().map_or(x, |s| x * read(s))
    }
}

/// Panels of a right operand as they are kept.
#[derive(Clone, Debug)]
pub struct Kept {
    layout: PanelLayout,
    /// Bytes of one slab's panels.
    slab: usize,
    /// Rows of K that share scales.
    group: usize,
}

impl Kept {
    /// The narrow form of an operand, if it has one; `bf16` says that both operands are of bf16.
    pub fn plan(isa: Isa, b: &Operand, scales: &Scales, bf16: bool) -> Option<Kept> {
        let (k, n) = (b.rows.len(), b.cols.len());
        let whole = |elem| PanelLayout::new(isa, elem, k, 1);
        let numbers = [&scales.zero, &scales.scale];
        // Rows in a row along which the numbers stay the same.
        let still = |n: &&Option<Numbers>| n.as_ref().map_or(k, |n| same_along(&n.rows));
        let mut group = numbers.iter().map(still).min().unwrap_or(k);
        while group > 1 && !k.is_multiple_of(group) {
            group -= 1;
        }
        let groups = k / group.max(1);
        let scaled = |elem| PanelLayout::new(isa, elem, k, groups);
        let layout = match b.dtype {
            DType::BF16 if bf16 && has_tiles(isa) => whole(PanelElem::Bf16Tiles),
            DType::BF16 => whole(PanelElem::Bf16),
            DType::F16 => whole(PanelElem::F16),
            DType::I8 if scales.zero.is_none() => scaled(PanelElem::I8),
            DType::I8 | DType::U8 => scaled(PanelElem::I8Zero),
            DType::I4 | DType::U4 => scaled(PanelElem::U4Zero).or_else(|| scaled(PanelElem::I8Zero)),
            _ => None,
        }?;
        Some(Kept { layout, slab: layout.bytes(n)?, group: group.max(1) })
    }

    fn form(&self, b: &Operand, scales: &Scales, isa: Isa) -> Form {
        let numbers = [&scales.zero, &scales.scale].into_iter().flatten();
        let own = fingerprint_of(isa, b.buffer, b.offset, [&b.slabs, &b.rows, &b.cols]);
        let fingerprint = numbers.fold(own ^ self.layout.id(), |h, n| {
            h.rotate_left(7) ^ fingerprint_of(isa, n.buffer, n.offset, [&n.slabs, &n.rows, &n.cols])
        });
        Form { fingerprint, bytes: self.slab.checked_mul(b.slabs.len()) }
    }

    /// True if the panels are there, so that [`Kept::panels`] will not read the operand.
    pub fn is_made(&self, b: &Operand, scales: &Scales, run: &RunCx<'_>) -> bool {
        run.weight.is_some_and(|w| w.has(&self.form(b, scales, run.isa)).is_some())
    }

    /// The first slab's panels, made at the first run; `None` where they cannot be kept.
    /// # Safety
    /// `run` has the operand's memory, and that of its scales.
    pub unsafe fn panels(&self, b: &Operand, scales: &Scales, run: &RunCx<'_>) -> Option<Ptr> {
        // SAFETY: the caller's promise; there is room for the panels of all slabs.
        run.weight?.form(&self.form(b, scales, run.isa), |to| unsafe { self.pack(b, scales, run, to) })
    }

    /// The panels of a slab.
    pub fn slab(&self, panels: Ptr, slab: usize) -> NarrowPanels {
        NarrowPanels { data: panels.get().wrapping_add(slab * self.slab), layout: self.layout }
    }

    /// # Safety
    /// As [`Kept::panels`]; `to` has room for all slabs.
    unsafe fn pack(&self, b: &Operand, scales: &Scales, run: &RunCx<'_>, to: Ptr) {
        let (k, n) = (b.rows.len(), b.cols.len());
        let base = Ptr(run.bufs.base(b.buffer));
        // Integers without signs are kept less 128, and 4-bit ones with signs plus 8: so are their zero points.
        let narrow = self.layout.elem == PanelElem::U4Zero;
        let shift = match b.dtype {
            DType::U8 => -128,
            DType::I4 if narrow => 8,
            _ => 0,
        };
        for slab in 0..b.slabs.len() {
            let dst = Ptr(to.get().wrapping_add(slab * self.slab));
            let start = b.slabs.at(slab, b.offset);
            let rows: Vec<i64> = (0..k).map(|r| b.rows.at(r, start)).collect();
            let cols: Vec<i64> = (0..n).map(|c| b.cols.at(c, 0)).collect();
            run.region.parallel_for(n.div_ceil(self.layout.width), &|j| {
                let at = |r: usize, c: usize| (rows[r] + cols[c]) as isize;
                let memory = base.get().cast_const();
                let table = |g: usize, c: usize| {
                    // SAFETY: the caller's promise.
                    let read = |x: &Option<Numbers>, none: f64| unsafe {
                        x.as_ref().map_or(none, |x| x.read(run.bufs.base(x.buffer), slab, g * self.group, c))
                    };
                    (read(&scales.scale, 1.0) as f32, read(&scales.zero, 0.0) as f32 + shift as f32)
                };
                let panels = j..j + 1;
                let (layout, to) = (&self.layout, dst.get());
                // SAFETY: the walk was checked at bind; each task writes a panel of its own.
                unsafe {
                    match b.dtype {
                        DType::BF16 | DType::F16 => pack_narrow(
                            layout,
                            n,
                            panels,
                            to,
                            |r, c| i32::from(memory.cast::<u16>().offset(at(r, c)).read_unaligned()),
                            table,
                        ),
                        DType::I8 | DType::U8 => {
                            let signed = b.dtype == DType::I8;
                            let value = |r, c| {
                                let x = *memory.offset(at(r, c));
                                if signed { i32::from(x as i8) } else { i32::from(x) - 128 }
                            };
                            pack_narrow(layout, n, panels, to, value, table);
                        }
                        _ => {
                            let value = |r, c| io::read_i128(b.dtype, memory, at(r, c) as i64) as i32 + shift;
                            pack_narrow(layout, n, panels, to, value, table);
                        }
                    }
                }
            });
        }
    }
}

/// How many rows from any multiple of that number on have the same number.
fn same_along(rows: &Axes) -> usize {
    let still = rows.sizes.iter().zip(&rows.strides).rev().take_while(|(_, s)| **s == 0);
    still.map(|(&n, _)| n).product()
}
