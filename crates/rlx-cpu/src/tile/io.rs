//! Between memory of any dtype and slots: gathering blocks of a walk, widening, narrowing, scattering.

use super::Work;
use super::convert::to_bf16;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rlx_ir::DType;
use rlx_ir::element::{SmallFloat, encode_small_float, small_float_values};

/// A block of a walk: `sizes` with their steps, in elements, innermost last.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Sizes.
    pub sizes: &'a [usize],
    /// Steps.
    pub strides: &'a [i64],
}

/// Calls `f(first element of the row, position of the row in the block)` for each innermost row.
fn rows(block: Block<'_>, start: i64, mut f: impl FnMut(i64, usize)) {
    let outer = block.sizes.len().saturating_sub(1);
    let (sizes, strides) = (&block.sizes[..outer], &block.strides[..outer]);
    let inner = block.sizes.last().copied().unwrap_or(1);
    match sizes {
        [] => f(start, 0),
        _ if sizes.contains(&0) => {}
        [n] => {
            for i in 0..*n {
                f(start + i as i64 * strides[0], i * inner);
            }
        }
        _ => {
            let mut index = [0usize; 16];
            let (mut at, mut done) = (start, 0);
            let rank = outer.min(16);
            loop {
                f(at, done);
                done += inner;
                let mut axis = rank;
                loop {
                    if axis == 0 {
                        return;
                    }
                    axis -= 1;
                    index[axis] += 1;
                    at += strides[axis];
                    if index[axis] < sizes[axis] {
                        break;
                    }
                    at -= strides[axis] * sizes[axis] as i64;
                    index[axis] = 0;
                }
            }
        }
    }
}

/// # Safety
/// The block's elements from `start` on lie in memory at `base`; `y` holds the block.
unsafe fn gather<T: Copy>(base: *const u8, start: i64, block: Block<'_>, y: *mut u8) {
    let (base, y) = (base.cast::<T>(), y.cast::<T>());
    let n = block.sizes.last().copied().unwrap_or(1);
    let step = block.strides.last().copied().unwrap_or(0) as isize;
    rows(block, start, |at, to| {
        // SAFETY: the caller's promise for each element of the block.
        unsafe {
            let (x, y) = (base.offset(at as isize), y.add(to));
            match step {
                1 => std::ptr::copy_nonoverlapping(x, y, n),
                0 => {
                    let v = *x;
                    for i in 0..n {
                        *y.add(i) = v;
                    }
                }
                _ => {
                    for i in 0..n {
                        *y.add(i) = *x.offset(i as isize * step);
                    }
                }
            }
        }
    });
}

/// # Safety
/// As [`gather`], the other way round.
unsafe fn scatter<T: Copy>(base: *mut u8, start: i64, block: Block<'_>, x: *const u8) {
    let (base, x) = (base.cast::<T>(), x.cast::<T>());
    let n = block.sizes.last().copied().unwrap_or(1);
    let step = block.strides.last().copied().unwrap_or(0) as isize;
    rows(block, start, |at, from| {
        // SAFETY: the caller's promise for each element of the block.
        unsafe {
            let (y, x) = (base.offset(at as isize), x.add(from));
            if step == 1 {
                std::ptr::copy(x, y, n);
            } else {
                for i in 0..n {
                    *y.offset(i as isize * step) = *x.add(i);
                }
            }
        }
    });
}

/// Elements that are widened at once from strided memory.
const PART: usize = 256;

/// Reads a block of a dtype into a slot of its working type.
/// # Safety
/// The block's elements from `start` on lie in the buffer at `base`, aligned for the dtype; `y` holds the block.
pub unsafe fn load(dtype: DType, base: *const u8, start: i64, block: Block<'_>, y: *mut u8) {
    let n = block.sizes.last().copied().unwrap_or(1);
    let step = block.strides.last().copied().unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::I8 | DType::U8 => gather::<u8>(base, start, block, y),
            DType::I16 | DType::U16 => gather::<u16>(base, start, block, y),
            DType::F32 | DType::I32 | DType::U32 => gather::<u32>(base, start, block, y),
            DType::F64 | DType::I64 | DType::U64 => gather::<u64>(base, start, block, y),
            DType::C128 => gather::<[u64; 2]>(base, start, block, y),
            DType::F16 | DType::BF16 => rows(block, start, |at, to| {
                let (x, y) = (base.cast::<u16>().offset(at as isize), y.cast::<f32>().add(to));
                if step == 1 {
                    widen(dtype, x, y, n);
                    return;
                }
                let mut part = [0u16; PART];
                let mut i = 0;
                while i < n {
                    let m = PART.min(n - i);
                    for (k, p) in part.iter_mut().enumerate().take(m) {
                        *p = *x.offset((i + k) as isize * step as isize);
                    }
                    widen(dtype, part.as_ptr(), y.add(i), m);
                    i += m;
                }
            }),
            d if is_small_float(d) => small(d, base, start, block, |v, to| *y.cast::<f64>().add(to) = v.into()),
            _ => rows(block, start, |at, to| {
                for i in 0..n {
                    load_one(dtype, base, at + i as i64 * step, y, to + i);
                }
            }),
        }
    }
}

/// True for floats of 8 bits and fewer.
pub fn is_small_float(dtype: DType) -> bool {
    dtype.is_float() && dtype.bits() <= 8
}

/// [`load`] of floats whose values f32 holds, as f32.
/// # Safety
/// As [`load`].
pub unsafe fn load_f32(dtype: DType, base: *const u8, start: i64, block: Block<'_>, y: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            d if is_small_float(d) => small(d, base, start, block, |v, to| *y.add(to) = v),
            d => load(d, base, start, block, y.cast()),
        }
    }
}

/// Gives each element of a block of small floats, with its place in the block.
/// # Safety
/// As [`load`].
#[inline(always)]
unsafe fn small(dtype: DType, base: *const u8, start: i64, block: Block<'_>, put: impl Fn(f32, usize)) {
    let n = block.sizes.last().copied().unwrap_or(1);
    let step = block.strides.last().copied().unwrap_or(0);
    let values = small_float_values(dtype);
    let bytes = dtype.bits() == 8;
    rows(block, start, |at, to| {
        if bytes && step == 1 {
            // SAFETY: the caller's promise.
            let row = unsafe { std::slice::from_raw_parts(base.offset(at as isize), n) };
            row.iter().enumerate().for_each(|(i, &bits)| put(values[usize::from(bits)], to + i));
            return;
        }
        for i in 0..n {
            let at = at + i as i64 * step;
            // SAFETY: the caller's promise.
            let bits = unsafe { if bytes { *base.offset(at as isize) } else { narrow(dtype, base, at) } };
            put(values[usize::from(bits)], to + i);
        }
    });
}

/// # Safety
/// `x` and `y` hold n elements.
unsafe fn widen(dtype: DType, x: *const u16, y: *mut f32, n: usize) {
    // SAFETY: the caller's promise; f16 and bf16 are u16 in memory.
    unsafe {
        let y = std::slice::from_raw_parts_mut(y, n);
        if dtype == DType::F16 {
            std::slice::from_raw_parts(x.cast::<f16>(), n).convert_to_f32_slice(y);
        } else {
            let x = std::slice::from_raw_parts(x, n);
            for (y, &x) in y.iter_mut().zip(x) {
                *y = f32::from_bits(u32::from(x) << 16);
            }
        }
    }
}

/// One element of a dtype whose memory is not its working type.
/// # Safety
/// As [`load`], for one element.
unsafe fn load_one(dtype: DType, base: *const u8, at: i64, y: *mut u8, to: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::Bool => *y.add(to) = u8::from(*base.offset(at as isize) != 0),
            DType::C64 => {
                let c = *base.cast::<[f32; 2]>().offset(at as isize);
                *y.cast::<[f64; 2]>().add(to) = [f64::from(c[0]), f64::from(c[1])];
            }
            DType::I2 | DType::I4 => {
                let bits = dtype.bits() as u32;
                *y.cast::<i8>().add(to) = ((narrow(dtype, base, at) << (8 - bits)) as i8) >> (8 - bits);
            }
            DType::U2 | DType::U4 => *y.add(to) = narrow(dtype, base, at),
            _ => {}
        }
    }
}

/// The bits of an element of a dtype narrower than a byte.
/// # Safety
/// The element lies in the buffer at `base`.
pub unsafe fn narrow(dtype: DType, base: *const u8, at: i64) -> u8 {
    let bits = dtype.bits() as i64;
    let per = 8 / bits;
    // SAFETY: the caller's promise.
    let byte = unsafe { *base.offset((at / per) as isize) };
    byte >> (bits * (at % per)) & ((1u8 << bits) - 1)
}

/// Writes a slot to a block of a dtype's memory.
/// # Safety
/// As [`load`]; no other thread touches the block's bytes.
pub unsafe fn store(dtype: DType, base: *mut u8, start: i64, block: Block<'_>, x: *const u8) {
    let n = block.sizes.last().copied().unwrap_or(1);
    let step = block.strides.last().copied().unwrap_or(0);
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::I8 | DType::U8 | DType::Bool => scatter::<u8>(base, start, block, x),
            DType::I16 | DType::U16 => scatter::<u16>(base, start, block, x),
            DType::F32 | DType::I32 | DType::U32 => scatter::<u32>(base, start, block, x),
            DType::F64 | DType::I64 | DType::U64 => scatter::<u64>(base, start, block, x),
            DType::C128 => scatter::<[u64; 2]>(base, start, block, x),
            DType::F16 | DType::BF16 => rows(block, start, |at, from| {
                let (y, x) = (base.cast::<u16>().offset(at as isize), x.cast::<f32>().add(from));
                if step == 1 {
                    shorten(dtype, x, y, n);
                    return;
                }
                let mut part = [0u16; PART];
                let mut i = 0;
                while i < n {
                    let m = PART.min(n - i);
                    shorten(dtype, x.add(i), part.as_mut_ptr(), m);
                    for (k, p) in part.iter().enumerate().take(m) {
                        *y.offset((i + k) as isize * step as isize) = *p;
                    }
                    i += m;
                }
            }),
            _ => rows(block, start, |at, from| {
                for i in 0..n {
                    store_one(dtype, base, at + i as i64 * step, x, from + i);
                }
            }),
        }
    }
}

/// # Safety
/// `x` and `y` hold n elements.
unsafe fn shorten(dtype: DType, x: *const f32, y: *mut u16, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let x = std::slice::from_raw_parts(x, n);
        if dtype == DType::F16 {
            std::slice::from_raw_parts_mut(y.cast::<f16>(), n).convert_from_f32_slice(x);
        } else {
            for (y, &x) in std::slice::from_raw_parts_mut(y, n).iter_mut().zip(x) {
                *y = to_bf16(x);
            }
        }
    }
}

/// # Safety
/// As [`store`], for one element.
unsafe fn store_one(dtype: DType, base: *mut u8, at: i64, x: *const u8, from: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::C64 => {
                let c = *x.cast::<[f64; 2]>().add(from);
                *base.cast::<[f32; 2]>().offset(at as isize) = [c[0] as f32, c[1] as f32];
            }
            DType::I2 | DType::I4 | DType::U2 | DType::U4 => set_narrow(dtype, base, at, *x.add(from)),
            _ => {
                let v = *x.cast::<f64>().add(from);
                // Numbers that f32 holds are rounded without branches.
                let format = SmallFloat::of(dtype).filter(|_| f64::from(v as f32) == v);
                let bits = match format {
                    Some(f) => f.bits_of(f.round_f32(v as f32, false)),
                    None => encode_small_float(dtype, v, false),
                };
                if dtype.bits() == 8 { *base.offset(at as isize) = bits } else { set_narrow(dtype, base, at, bits) }
            }
        }
    }
}

/// # Safety
/// The element lies in the buffer at `base`, and no other thread touches its byte.
pub unsafe fn set_narrow(dtype: DType, base: *mut u8, at: i64, value: u8) {
    let bits = dtype.bits() as i64;
    let per = 8 / bits;
    let mask = (1u8 << bits) - 1;
    let shift = bits * (at % per);
    // SAFETY: the caller's promise.
    unsafe {
        let byte = base.offset((at / per) as isize);
        *byte = (*byte & !(mask << shift)) | (value & mask) << shift;
    }
}

/// One element as f64 (complex: its real part), for loops that care for correctness alone.
/// # Safety
/// As [`load`], for one element.
pub unsafe fn read_f64(dtype: DType, base: *const u8, at: i64) -> f64 {
    let mut slot = [0u64; 2];
    let y = slot.as_mut_ptr().cast::<u8>();
    // SAFETY: the slot holds one element of any working type.
    unsafe {
        match dtype {
            DType::F32 => return f64::from(*base.cast::<f32>().offset(at as isize)),
            DType::F16 => return (*base.cast::<f16>().offset(at as isize)).to_f64(),
            DType::BF16 => return (*base.cast::<bf16>().offset(at as isize)).to_f64(),
            _ => load(dtype, base, at, Block { sizes: &[], strides: &[] }, y),
        }
        match Work::of(dtype) {
            Some(Work::F64 | Work::Complex) => *y.cast::<f64>(),
            Some(Work::F32) => f64::from(*y.cast::<f32>()),
            _ => read_int(dtype, y) as f64,
        }
    }
}

/// One integer or boolean element.
/// # Safety
/// As [`load`], for one element.
pub unsafe fn read_i128(dtype: DType, base: *const u8, at: i64) -> i128 {
    let mut slot = [0u64; 2];
    let y = slot.as_mut_ptr().cast::<u8>();
    // SAFETY: the slot holds one element of any working type.
    unsafe {
        load(dtype, base, at, Block { sizes: &[], strides: &[] }, y);
        read_int(dtype, y)
    }
}

/// # Safety
/// `y` holds an element of the dtype's working type.
unsafe fn read_int(dtype: DType, y: *const u8) -> i128 {
    // SAFETY: the caller's promise.
    unsafe {
        match Work::of(dtype) {
            Some(Work::I8) => i128::from(*y.cast::<i8>()),
            Some(Work::I16) => i128::from(*y.cast::<i16>()),
            Some(Work::I32) => i128::from(*y.cast::<i32>()),
            Some(Work::I64) => i128::from(*y.cast::<i64>()),
            Some(Work::U16) => i128::from(*y.cast::<u16>()),
            Some(Work::U32) => i128::from(*y.cast::<u32>()),
            Some(Work::U64) => i128::from(*y.cast::<u64>()),
            Some(Work::U8 | Work::Bool) => i128::from(*y),
            _ => 0,
        }
    }
}

/// Writes an integer, wrapped, as element `i` of a slot.
/// # Safety
/// `y` holds more than `i` elements of the dtype's working type, an integer or boolean.
pub unsafe fn write_i128(dtype: DType, y: *mut u8, i: usize, v: i128) {
    // SAFETY: the caller's promise.
    unsafe {
        match Work::of(dtype) {
            Some(Work::I8 | Work::U8) => *y.add(i) = rlx_ir::element::wrap_int(dtype, v) as u8,
            Some(Work::Bool) => *y.add(i) = u8::from(v != 0),
            Some(Work::I16 | Work::U16) => *y.cast::<u16>().add(i) = v as u16,
            Some(Work::I32 | Work::U32) => *y.cast::<u32>().add(i) = v as u32,
            Some(Work::I64 | Work::U64) => *y.cast::<u64>().add(i) = v as u64,
            _ => {}
        }
    }
}
