//! Walks over memory at concrete sizes: what a kernel's plan holds, and what it runs on.
//!
//! A *plan* is made when the sizes of a call are known and kept with the binding; it names the kernel's buffers by slot,
//! since their memory differs from run to run and several kernels may share a plan. Invariant: [`BindCx::access`] has checked that every element that an access
//! of a plan reaches over its space lies within its buffer; kernels rely on that when they use raw pointers, and a
//! [`Buffers`] table holds, for every buffer, memory of at least the size that the binding gave it.

use rlx_compile::MatmulPrecision;
use rlx_compile::lir::{Access, BufId, DimId, Lir, View};
use rlx_driver::{AlignedBuffer, Isa, Region, Slab};
use rlx_ir::{DType, Tensor};
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

/// Sizes of a space.
pub type Sizes = SmallVec<[usize; 6]>;
/// Steps of a walk, in elements.
pub type Strides = SmallVec<[i64; 6]>;

/// What is wrong with sizes; the caller adds where.
pub type BindError = String;
/// What is wrong with data; the caller adds where.
pub type KernelError = String;

/// An address that tasks on several threads hold. Who dereferences it answers for what it reaches.
#[derive(Clone, Copy, Debug)]
pub struct Ptr(pub *mut u8);

// SAFETY: only an address; see the type's text.
unsafe impl Send for Ptr {}
// SAFETY: as above.
unsafe impl Sync for Ptr {}

impl Ptr {
    /// The address.
    #[inline(always)]
    pub fn get(self) -> *mut u8 {
        self.0
    }
}

/// A walk with concrete sizes: element (i0, i1, …) lies at `offset + Σ strides[a]·i_a`, in elements.
#[derive(Clone, Debug)]
pub struct BoundAccess {
    /// The buffer's slot.
    pub buffer: u32,
    /// Element type.
    pub dtype: DType,
    /// Position of index 0.
    pub offset: i64,
    /// Step of each axis.
    pub strides: Strides,
}

impl BoundAccess {
    /// Where the element with these indices on the first axes lies; 0 on the others.
    #[inline]
    pub fn start<const N: usize>(&self, index: [usize; N]) -> i64 {
        index.iter().zip(&self.strides).fold(self.offset, |at, (&i, &s)| at + i as i64 * s)
    }
}

/// A tensor with concrete sizes.
#[derive(Clone, Debug)]
pub struct BoundView {
    /// Sizes.
    pub sizes: Sizes,
    /// The walk over them.
    pub access: BoundAccess,
}

impl BoundView {
    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.sizes.iter().product()
    }

    /// True if its elements lie side by side in row-major order.
    pub fn is_dense(&self) -> bool {
        let mut step = 1i64;
        for (&n, &s) in self.sizes.iter().zip(&self.access.strides).rev() {
            if n != 1 && s != step {
                return false;
            }
            step = step.saturating_mul(n as i64);
        }
        true
    }
}

/// Memory of a kernel's buffers in one run, by slot.
#[derive(Clone, Copy, Debug)]
pub struct Buffers<'a> {
    ptrs: &'a [Ptr],
}

impl<'a> Buffers<'a> {
    /// A table of memory.
    pub fn new(ptrs: &'a [Ptr]) -> Self {
        Buffers { ptrs }
    }

    /// The first byte of a buffer.
    #[inline]
    pub fn base(&self, buffer: u32) -> *mut u8 {
        self.ptrs.get(buffer as usize).map_or(std::ptr::null_mut(), |p| p.get())
    }

    /// The address of an access's index 0, for dtypes of a byte or more.
    #[inline]
    pub fn at(&self, access: &BoundAccess) -> *mut u8 {
        let size = access.dtype.bits() / 8;
        self.base(access.buffer).wrapping_offset(access.offset as isize * size as isize)
    }

    /// [`Buffers::at`] as a typed address.
    #[inline]
    pub fn typed<T>(&self, access: &BoundAccess) -> *mut T {
        self.at(access).cast()
    }
}

/// The bytes of a kept form.
#[derive(Debug)]
pub enum Kept {
    /// Made here.
    Own(Arc<AlignedBuffer>),
    /// Made before, and read from an artefact. Its bytes may be anything: who reads them as panels checks how many there are.
    Stored(Tensor),
}

impl Kept {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Kept::Own(m) => m.as_slice(),
            Kept::Stored(t) => t.bytes(),
        }
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.as_slice().as_ptr()
    }
}

/// Bytes before a form: its fingerprint.
const HEADER: usize = 64;

/// Which form of a weight.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// What it is made from and how: differs where the bytes would.
    pub fingerprint: u64,
    /// How many bytes it has; `None` for more than memory can have.
    pub bytes: Option<usize>,
}

impl Form {
    /// Where the bytes begin in a kept form, if that is this one and all there: it may have been read from a file.
    #[inline]
    fn within(&self, kept: &Kept) -> Option<Ptr> {
        let found = kept.as_slice();
        let same = found.first_chunk::<8>().is_some_and(|&b| u64::from_le_bytes(b) == self.fingerprint);
        let whole = found.len().checked_sub(HEADER).zip(self.bytes).is_some_and(|(n, bytes)| n >= bytes);
        (same && whole).then(|| Ptr(kept.as_ptr().wrapping_add(HEADER).cast_mut()))
    }
}

/// Forms of a weight that kernels read faster, each made at its first run and kept while the parameter keeps its value. There is room for
/// two: kernels of different bindings, or of one binding for data of different kinds, may read the weight as different matrices.
#[derive(Debug, Default)]
pub struct Weight {
    forms: [OnceLock<Kept>; 2],
    /// Where forms are put.
    slab: Arc<Slab>,
}

impl Weight {
    /// One without forms, which are put in a slab.
    pub fn within(slab: Arc<Slab>) -> Self {
        Weight { forms: Default::default(), slab }
    }

    /// Where this form lies, if it was made.
    #[inline]
    pub fn has(&self, form: &Form) -> Option<Ptr> {
        self.forms.iter().find_map(|slot| form.within(slot.get()?))
    }

    /// Where this form lies; written by `make` into memory aligned to a cache line unless there is one. `None` where two other forms are
    /// kept or there is no memory: then use the weight as it is.
    #[inline]
    pub fn form(&self, form: &Form, make: impl FnOnce(Ptr)) -> Option<Ptr> {
        if let Some(found) = self.has(form) {
            return Some(found);
        }
        if self.forms.iter().any(|slot| slot.get().is_none()) {
            let mut memory = self.slab.uninit(form.bytes?.checked_add(HEADER)?).ok()?;
            let start = memory.as_mut_ptr();
            // SAFETY: the header is within the memory, which is aligned beyond 8 bytes.
            unsafe { start.cast::<u64>().write(form.fingerprint.to_le()) };
            make(Ptr(start.wrapping_add(HEADER)));
            let mut kept = Kept::Own(Arc::new(memory));
            for slot in &self.forms {
                // Another run may have been first, with this form or another.
                match slot.set(kept) {
                    Ok(()) => break,
                    Err(back) => kept = back,
                }
                if slot.get().is_some_and(|k| form.within(k).is_some()) {
                    break;
                }
            }
        }
        self.has(form)
    }

    /// The first form that was made.
    pub fn made(&self) -> Option<&Kept> {
        self.forms.first()?.get()
    }

    /// Takes a form that was made before, unless there is one.
    pub fn set(&self, kept: Kept) {
        if let Some(first) = self.forms.first() {
            let _ = first.set(kept);
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.forms.iter().filter_map(OnceLock::get).map(|w| w.as_slice().len()).sum()
    }
}

/// What a kernel runs with.
pub struct RunCx<'a> {
    /// Memory.
    pub bufs: Buffers<'a>,
    /// Threads.
    pub region: &'a Region<'a>,
    /// Instruction set of the kernels.
    pub isa: Isa,
    /// Where to keep the packed form of the kernel's weight operand; there only if that operand stays the
    /// same from run to run.
    pub weight: Option<&'a Weight>,
}

/// What a kernel's plan is made from.
pub struct BindCx<'a> {
    /// The program.
    pub lir: &'a Lir,
    /// Values of its table of dims; those that are not known yet are `None`-like and never asked for.
    pub dims: &'a [i64],
    /// Elements that each buffer has; −1 where not known yet.
    pub numels: &'a [i64],
    /// Instruction set of the kernels.
    pub isa: Isa,
    /// How exact products of f32 are to be.
    pub matmul: MatmulPrecision,
    /// The kernel's buffers by slot: see [`crate::classes`].
    pub slots: &'a [u32],
}

impl BindCx<'_> {
    /// A dim's value.
    pub fn value(&self, id: DimId) -> i64 {
        self.dims.get(id.index()).copied().unwrap_or(0)
    }

    /// A dim's value as a size.
    pub fn size(&self, id: DimId) -> Result<usize, BindError> {
        usize::try_from(self.value(id)).map_err(|_| format!("size `{}` is {}", self.lir.dims.get(id), self.value(id)))
    }

    /// Values as sizes.
    pub fn sizes(&self, ids: &[DimId]) -> Result<Sizes, BindError> {
        ids.iter().map(|&id| self.size(id)).collect()
    }

    /// Dtype of a buffer.
    pub fn dtype(&self, buffer: BufId) -> DType {
        self.lir.buffers.get(buffer.index()).map_or(DType::U8, |b| b.dtype)
    }

    /// A walk over a space of these sizes, checked to stay within its buffer.
    pub fn access(&self, access: &Access, space: &[usize]) -> Result<BoundAccess, BindError> {
        let strides: Strides = access.strides.iter().map(|&s| self.value(s)).collect();
        let Some(slot) = self.slots.iter().position(|&s| s == access.buffer.0) else {
            return Err(format!("buffer {} is none of the kernel's", access.buffer.0));
        };
        let bound = BoundAccess {
            buffer: slot as u32,
            dtype: self.dtype(access.buffer),
            offset: self.value(access.offset),
            strides,
        };
        if bound.strides.len() != space.len() {
            return Err(format!(
                "a walk over buffer {} has {} strides for {} axes",
                access.buffer.0,
                bound.strides.len(),
                space.len()
            ));
        }
        let numel = self.numels.get(access.buffer.index()).copied().unwrap_or(-1);
        check_reach(&bound, space, numel)?;
        Ok(bound)
    }

    /// A view, checked as [`BindCx::access`] does.
    pub fn view(&self, view: &View) -> Result<BoundView, BindError> {
        let sizes = self.sizes(&view.sizes)?;
        let access = self.access(&view.access, &sizes)?;
        Ok(BoundView { sizes, access })
    }
}

/// The least and greatest position that a walk reaches over a space; `None` if the space is empty.
pub fn reach(access: &BoundAccess, space: &[usize]) -> Result<Option<(i64, i64)>, BindError> {
    if space.contains(&0) {
        return Ok(None);
    }
    let overflow = || format!("a walk over buffer {} leaves the range of 64 bits", access.buffer);
    let (mut low, mut high) = (access.offset, access.offset);
    for (&n, &stride) in space.iter().zip(&access.strides) {
        let last = i64::try_from(n - 1).map_err(|_| overflow())?;
        let span = stride.checked_mul(last).ok_or_else(overflow)?;
        let end = if span < 0 { &mut low } else { &mut high };
        *end = end.checked_add(span).ok_or_else(overflow)?;
    }
    Ok(Some((low, high)))
}

fn check_reach(access: &BoundAccess, space: &[usize], numel: i64) -> Result<(), BindError> {
    match reach(access, space)? {
        Some((low, high)) if low < 0 || high >= numel => Err(format!(
            "a walk over buffer {} of {numel} elements reaches positions {low} to {high} (sizes {space:?}, strides {:?})",
            access.buffer, access.strides
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(offset: i64, strides: &[i64]) -> BoundAccess {
        BoundAccess { buffer: 0, dtype: DType::F32, offset, strides: strides.into() }
    }

    #[test]
    fn reach_of_negative_and_broadcast_strides() {
        assert_eq!(reach(&access(11, &[-4, 0, 1]), &[3, 9, 2]), Ok(Some((3, 12))));
        assert_eq!(reach(&access(5, &[i64::MAX]), &[0]), Ok(None));
        assert_eq!(reach(&access(7, &[]), &[]), Ok(Some((7, 7))));
        assert!(reach(&access(0, &[i64::MAX]), &[3]).is_err());
    }

    #[test]
    fn walks_past_the_end_are_refused() {
        assert!(check_reach(&access(0, &[1]), &[10], 10).is_ok());
        assert!(check_reach(&access(1, &[1]), &[10], 10).is_err());
        assert!(check_reach(&access(0, &[-1]), &[2], 10).is_err());
        assert!(check_reach(&access(100, &[1]), &[0], 10).is_ok());
    }
}
