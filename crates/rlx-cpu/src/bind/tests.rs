use super::{Interval, pack};

/// Every pair that lives at the same time is apart, found by looking at every pair.
fn check(buffers: &[Interval], align: usize) -> usize {
    let (offsets, total) = pack(buffers, align);
    for (i, a) in buffers.iter().enumerate() {
        assert_eq!(offsets[i] % align, 0);
        assert!(a.bytes == 0 || offsets[i] + a.bytes <= total);
        for (j, b) in buffers.iter().enumerate().skip(i + 1) {
            let together = a.first <= b.last && b.first <= a.last;
            let apart = offsets[i] + a.bytes <= offsets[j] || offsets[j] + b.bytes <= offsets[i];
            assert!(
                !together || apart || a.bytes == 0 || b.bytes == 0,
                "{a:?} at {} and {b:?} at {}",
                offsets[i],
                offsets[j]
            );
        }
    }
    total
}

#[test]
fn live_buffers_never_overlap() {
    let mut rng = crate::testing::Rng(99);
    for round in 0..200 {
        let buffers: Vec<Interval> = (0..rng.below(60))
            .map(|_| {
                let first = rng.below(40) as u32;
                Interval { first, last: first + rng.below(12) as u32, bytes: rng.below(5000) }
            })
            .collect();
        check(&buffers, if round % 2 == 0 { 64 } else { 1 });
    }
}

#[test]
fn a_chain_needs_two_buffers() {
    let chain: Vec<Interval> = (0..50).map(|i| Interval { first: i, last: i + 1, bytes: 1000 }).collect();
    assert_eq!(check(&chain, 64), 2048);
    assert_eq!(check(&[], 64), 0);
}

#[test]
fn small_buffers_fill_gaps() {
    let buffers = [
        Interval { first: 0, last: 1, bytes: 4096 },
        Interval { first: 0, last: 3, bytes: 1024 },
        Interval { first: 2, last: 3, bytes: 2048 },
        Interval { first: 2, last: 3, bytes: 2048 },
    ];
    assert_eq!(check(&buffers, 64), 5120);
}
