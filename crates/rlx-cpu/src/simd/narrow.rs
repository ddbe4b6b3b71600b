//! Lanes from and to memory of 8 and 16 bits: what levels without instructions of their own fall back to.

use super::{MAX_W, Simd};

/// Lanes made one by one.
#[inline(always)]
pub fn lanes_from<S: Simd>(s: S, f: impl Fn(usize) -> i32) -> S::I {
    let mut lanes = [0i32; MAX_W];
    for (i, lane) in lanes.iter_mut().enumerate().take(S::W) {
        *lane = f(i);
    }
    // SAFETY: the array has MAX_W ≥ W elements.
    s.bits(unsafe { s.load(lanes.as_ptr().cast()) })
}

/// Calls `f` with each lane.
#[inline(always)]
pub fn each_lane<S: Simd>(s: S, v: S::I, mut f: impl FnMut(usize, i32)) {
    let mut lanes = [0i32; MAX_W];
    // SAFETY: the array has MAX_W ≥ W elements.
    unsafe { s.store(lanes.as_mut_ptr().cast(), s.from_bits(v)) };
    for (i, lane) in lanes.into_iter().enumerate().take(S::W) {
        f(i, lane);
    }
}

/// Applies a function to each triple of lanes.
#[inline(always)]
pub fn zip_lanes<S: Simd>(s: S, x: S::I, y: S::I, z: S::I, f: impl Fn(i32, i32, i32) -> i32) -> S::I {
    let (mut a, mut b, mut c) = ([0i32; MAX_W], [0i32; MAX_W], [0i32; MAX_W]);
    each_lane(s, x, |i, v| a[i] = v);
    each_lane(s, y, |i, v| b[i] = v);
    each_lane(s, z, |i, v| c[i] = v);
    lanes_from(s, |i| f(a[i], b[i], c[i]))
}

/// Each lane as the bits of a bf16, rounded to nearest even; NaN stays NaN, with its sign and what fits of its payload.
#[inline(always)]
pub fn bf16_bits<S: Simd>(s: S, v: S::F) -> S::I {
    let x = s.bits(v);
    let (one, low) = (s.splat_i(1), s.splat_i(0xffff));
    let high = s.and_i(s.sar_i::<16>(x), low);
    let up = s.add_i(s.splat_i(0x7fff), s.and_i(high, one));
    let rounded = s.and_i(s.sar_i::<16>(s.add_i(x, up)), low);
    let quiet = s.or_i(high, s.splat_i(0x40));
    s.bits(s.select(s.is_nan(v), s.from_bits(quiet), s.from_bits(rounded)))
}
