//! The operands of f32 products as matrices of slabs × rows × columns, of any strides and of any float dtype of up to 32
//! bits: read where they are, gathered and widened into dense rows, or packed into panels once for all runs.

use crate::buffers::{Form, Ptr, RunCx, Sizes, Strides};
use crate::gemm::amx::has_tiles;
use crate::gemm::{AOperand, Strided, pack_b_panels, packed_b_len, panel_width};
use crate::simd::{Isa, Kernel, Simd, byte_format, dispatch, widen_byte_floats};
use crate::space::{Space, position};
use crate::tile::{io, scratch};
use rlx_ir::DType;
use smallvec::SmallVec;

/// Some axes with an operand's steps on them, outermost first, merged where they allow it.
#[derive(Clone, Debug, PartialEq)]
pub struct Axes {
    /// Sizes.
    pub sizes: Sizes,
    /// Steps.
    pub strides: Strides,
}

impl Axes {
    /// Merges axes.
    pub fn new(sizes: &[usize], strides: &[i64]) -> Axes {
        let mut space = Space::in_order(sizes, &[strides]);
        Axes { strides: space.walks.pop().unwrap_or_default(), sizes: space.sizes }
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The step, where there is one axis.
    pub fn single(&self) -> Option<isize> {
        match self.strides[..] {
            [s] => Some(s as isize),
            _ => None,
        }
    }

    /// Where point `i` lies, from `offset` on.
    pub fn at(&self, i: usize, offset: i64) -> i64 {
        position(i, &self.sizes, offset, &self.strides)
    }
}

/// An operand: K × N for a right one, M × K for a left one, and as many of them as there are slabs.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// The buffer.
    pub buffer: u32,
    /// Element type.
    pub dtype: DType,
    /// Position of element 0.
    pub offset: i64,
    /// Matrices.
    pub slabs: Axes,
    /// Rows.
    pub rows: Axes,
    /// Columns.
    pub cols: Axes,
}

impl Operand {
    /// The matrix of slab `slab` where it lies, if it is one of f32 with single steps.
    pub fn strided(&self, base: *const u8, slab: usize) -> Option<Strided> {
        let (row, col) = (self.rows.single()?, self.cols.single()?);
        (self.dtype == DType::F32).then(|| {
            let data = base.cast::<f32>().wrapping_offset(self.slabs.at(slab, self.offset) as isize);
            Strided { data, row, col }
        })
    }

    /// The same as the left operand of a product, where it may be one of bf16 too.
    pub fn left(&self, base: *const u8, slab: usize, bf16: bool) -> Option<AOperand<'static>> {
        if let (true, DType::BF16) = (bf16, self.dtype) {
            let data = base.cast::<u16>().wrapping_offset(self.slabs.at(slab, self.offset) as isize);
            return Some(AOperand::Bf16 { data, row: self.rows.single()?, col: self.cols.single()? });
        }
        Some(self.strided(base, slab)?.into())
    }

    /// Copies rows of a slab, widened, to dense rows.
    /// # Safety
    /// `base` is the operand's memory, `dst` has room for the rows and does not overlap it.
    pub unsafe fn gather(&self, isa: Isa, base: *const u8, slab: usize, rows: std::ops::Range<usize>, dst: *mut f32) {
        let offset = self.slabs.at(slab, self.offset);
        let width = self.cols.len();
        if matches!(self.dtype, DType::BF16 | DType::F16) && self.cols.single() == Some(1) {
            let bf16 = self.dtype == DType::BF16;
            for (i, r) in rows.enumerate() {
                let from = base.cast::<u16>().wrapping_offset(self.rows.at(r, offset) as isize);
                dispatch(isa, WidenRow { bf16, from, to: dst.wrapping_add(i * width), n: width });
            }
            return;
        }
        if let (Some(format), Some(1)) = (byte_format(self.dtype), self.cols.single()) {
            for (i, r) in rows.enumerate() {
                let from = base.wrapping_offset(self.rows.at(r, offset) as isize);
                // SAFETY: the caller's promise; the walk was checked at bind.
                unsafe { widen_byte_floats(isa, format, from, dst.add(i * width), width) };
            }
            return;
        }
        let block = io::Block { sizes: &self.cols.sizes, strides: &self.cols.strides };
        for (i, r) in rows.enumerate() {
            // SAFETY: the caller's promise; the walk was checked at bind.
            unsafe { io::load_f32(self.dtype, base, self.rows.at(r, offset), block, dst.add(i * width)) };
        }
    }

    /// What a packed form depends on, as a number that differs where they do.
    fn fingerprint(&self, isa: Isa) -> u64 {
        fingerprint_of(isa, self.buffer, self.offset, [&self.slabs, &self.rows, &self.cols])
    }
}

/// What a form of a walk that is packed for a level depends on, as a number that differs where they do.
pub fn fingerprint_of(isa: Isa, buffer: u32, offset: i64, axes: [&Axes; 3]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut mix = |v: u64| hash = (hash ^ v).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    mix(panel_width(isa) as u64);
    mix(buffer.into());
    mix(offset as u64);
    for axes in axes {
        mix(axes.sizes.len() as u64);
        axes.sizes.iter().for_each(|&n| mix(n as u64));
        axes.strides.iter().for_each(|&s| mix(s as u64));
    }
    hash
}

/// A row of 16-bit floats, widened.
struct WidenRow {
    bf16: bool,
    from: *const u16,
    to: *mut f32,
    n: usize,
}

impl Kernel for WidenRow {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let WidenRow { bf16, from, to, n } = self;
        // SAFETY: the maker answers for `n` elements on both sides; a vector stays within them.
        unsafe {
            let mut i = 0;
            while i + S::W <= n {
                let p = from.add(i);
                s.store(to.add(i), if bf16 { s.load_bf16(p) } else { s.load_f16(p) });
                i += S::W;
            }
            while i < n {
                let bits = from.add(i).read_unaligned();
                to.add(i).write(if bf16 {
                    half::bf16::from_bits(bits).to_f32()
                } else {
                    half::f16::from_bits(bits).to_f32()
                });
                i += 1;
            }
        }
    }
}

/// What the bytes of kept forms mean on a level: two levels with equal texts take each other's. Kinds of panels with their widths, the version
/// of what lies around them, and the sources that pack and read them.
pub fn layout(isa: Isa) -> String {
    let tiles = if has_tiles(isa) { ", bf16 in tiles" } else { "" };
    let width = panel_width(isa);
    format!("panels 2: f32 by {width}, 3x3 windows transformed{tiles}; rlx-cpu {}", env!("RLX_SOURCES"))
}

/// A right operand in panels.
#[derive(Clone, Copy, Debug)]
pub struct Panels {
    data: Ptr,
    slab: usize,
}

impl Panels {
    /// The panels of a slab.
    pub fn slab(&self, slab: usize) -> *const f32 {
        self.data.get().cast::<f32>().wrapping_add(slab * self.slab)
    }
}

/// Panels of several operands.
pub type PanelSet = SmallVec<[Panels; 4]>;

/// The right operands of a kernel and how their panels lie behind each other, worked out when sizes are known.
#[derive(Debug)]
pub struct Rights {
    operands: SmallVec<[Operand; 1]>,
    form: Form,
    /// Where each operand's panels begin, and how long a slab is, in elements.
    places: SmallVec<[(usize, usize); 2]>,
}

impl Rights {
    /// Lays panels out.
    pub fn new(isa: Isa, operands: SmallVec<[Operand; 1]>) -> Rights {
        let fingerprint = operands.iter().fold(1, |h: u64, b| h.rotate_left(7) ^ b.fingerprint(isa));
        let mut places = SmallVec::new();
        let lay_out = |places: &mut SmallVec<[(usize, usize); 2]>| {
            let mut total = 0usize;
            for b in &operands {
                let slab = packed_b_len(isa, b.rows.len(), b.cols.len())?;
                places.push((total, slab));
                total = total.checked_add(slab.checked_mul(b.slabs.len())?)?.checked_next_multiple_of(16)?;
            }
            total.checked_mul(size_of::<f32>())
        };
        let form = Form { fingerprint, bytes: lay_out(&mut places) };
        Rights { operands, form, places }
    }

    /// The operands.
    pub fn operands(&self) -> &[Operand] {
        &self.operands
    }

    /// The panels, from `start` on.
    fn at(&self, start: *mut u8) -> PanelSet {
        let start = start.cast::<f32>();
        self.places.iter().map(|&(at, slab)| Panels { data: Ptr(start.wrapping_add(at).cast()), slab }).collect()
    }

    /// # Safety
    /// `run` has the operands' memory; `set` has room.
    unsafe fn pack(&self, run: &RunCx<'_>, set: &PanelSet) {
        for (b, &to) in self.operands.iter().zip(set) {
            // SAFETY: the caller's promise.
            unsafe { pack(run, b, to) };
        }
    }
}

/// True if the panels of right operands are kept, so that [`panels`] will not read the operands.
pub fn has_panels(run: &RunCx<'_>, rights: &Rights) -> bool {
    run.weight.is_some_and(|w| w.has(&rights.form).is_some())
}

/// The panels of one right operand that stays the same from run to run, as [`with_panels`] would have them.
/// # Safety
/// `run` has the operand's memory.
#[inline]
pub unsafe fn panels(run: &RunCx<'_>, rights: &Rights) -> Option<Panels> {
    let &(_, slab) = rights.places.first()?;
    // SAFETY: the caller's promise.
    Some(Panels { data: unsafe { kept(run, rights) }?, slab })
}

/// Where the kept panels begin, made now if they are not yet.
/// # Safety
/// `run` has the operands' memory.
#[inline]
unsafe fn kept(run: &RunCx<'_>, rights: &Rights) -> Option<Ptr> {
    // SAFETY: the caller's promise; there is room for all panels.
    run.weight?.form(&rights.form, |start| unsafe { rights.pack(run, &rights.at(start.get())) })
}

/// Runs `f` with the panels of right operands: kept ones, or else packed for this run.
/// # Safety
/// `run` has the operands' memory.
pub unsafe fn with_panels(run: &RunCx<'_>, rights: &Rights, f: impl FnOnce(&[Panels])) {
    // SAFETY: the caller's promise.
    if let Some(kept) = unsafe { kept(run, rights) } {
        return f(&rights.at(kept.get()));
    }
    let Some(bytes) = rights.form.bytes else { return };
    scratch::with(bytes, |memory| {
        let set = rights.at(memory.as_mut_ptr());
        // SAFETY: the caller's promise; the memory has room.
        unsafe { rights.pack(run, &set) };
        f(&set);
    });
}

/// Packs all slabs.
/// # Safety
/// `run` has the operand's memory; `to` has room.
unsafe fn pack(run: &RunCx<'_>, b: &Operand, to: Panels) {
    let (k, n) = (b.rows.len(), b.cols.len());
    let base = Ptr(run.bufs.base(b.buffer));
    let panel = panel_width(run.isa);
    let panel_count = n.div_ceil(panel);
    /// Panels of a task.
    const SOME: usize = 8;
    for slab in 0..b.slabs.len() {
        let dst = Ptr(to.slab(slab).cast_mut().cast());
        if let Some(src) = b.strided(base.get(), slab) {
            let src = SendStrided(src);
            run.region.parallel_ranges(panel_count, SOME, &|panels| {
                // SAFETY: the caller's promise; tasks write panels of their own.
                unsafe { pack_b_panels(run.isa, src.get(), k, n, panels, dst.get().cast()) };
            });
            continue;
        }
        // Columns of a few panels at a time, gathered first.
        run.region.parallel_for(panel_count, &|p| {
            let cols = p * panel..n.min((p + 1) * panel);
            let width = cols.len();
            scratch::with((k * width).max(1) * size_of::<f32>(), |memory| {
                let dense = memory.as_mut_ptr().cast::<f32>();
                let offset = b.slabs.at(slab, b.offset);
                for r in 0..k {
                    let row = b.rows.at(r, offset);
                    if let Some(step) = b.cols.single() {
                        let block = io::Block { sizes: &[width], strides: &[step as i64] };
                        let first = b.cols.at(cols.start, row);
                        // SAFETY: the walk was checked at bind; the memory holds k · width elements.
                        unsafe { io::load_f32(b.dtype, base.get(), first, block, dense.add(r * width)) };
                        continue;
                    }
                    for (i, c) in cols.clone().enumerate() {
                        let one = io::Block { sizes: &[], strides: &[] };
                        // SAFETY: the walk was checked at bind; the memory holds k · width elements.
                        unsafe { io::load_f32(b.dtype, base.get(), b.cols.at(c, row), one, dense.add(r * width + i)) };
                    }
                }
                let src = Strided { data: dense, row: width as isize, col: 1 };
                let to = dst.get().cast::<f32>().wrapping_add(p * panel * k);
                // SAFETY: one panel's columns go to that panel's place.
                unsafe { pack_b_panels(run.isa, src, k, width, 0..1, to) };
            });
        });
    }
}

/// A matrix's description, for other threads.
#[derive(Clone, Copy)]
struct SendStrided(Strided);
// SAFETY: only addresses; who reads them answers for it.
unsafe impl Send for SendStrided {}
// SAFETY: as above.
unsafe impl Sync for SendStrided {}
impl SendStrided {
    fn get(&self) -> Strided {
        self.0
    }
}
