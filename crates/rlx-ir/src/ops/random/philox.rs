//! The generator Philox4x32 with ten rounds (Salmon, Moraes, Dror and Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011).

/// The four words of a counter under a key.
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let (mut c, mut k) = (counter, key);
    for _ in 0..10 {
        let wide = |m: u32, x: u32| u64::from(m) * u64::from(x);
        let (a, b) = (wide(MULTIPLIERS[0], c[0]), wide(MULTIPLIERS[1], c[2]));
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(STEPS[0]), k[1].wrapping_add(STEPS[1])];
    }
    c
}
