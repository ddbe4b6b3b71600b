//! Blind mutation of the corpus on the stable toolchain: `smoke SECONDS [TARGET]`. Prints what ran; a panic fails it and leaves the input.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Some inputs of a folder, the small ones.
fn corpus(folder: &Path, out: &mut Vec<Vec<u8>>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
    paths.sort();
    for p in paths {
        if p.is_dir() {
            corpus(&p, out);
        } else if let Ok(bytes) = std::fs::read(&p)
            && bytes.len() <= 1 << 16
        {
            out.push(bytes);
        }
    }
}

/// Changes a few places: flips, random bytes, cuts, repeats, pieces of another input, interesting numbers.
fn mutate(rng: &mut Rng, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut v = seed.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(v.len() + 1);
        match rng.below(7) {
            0 if !v.is_empty() => {
                let i = rng.below(v.len());
                v[i] ^= 1 << rng.below(8);
            }
            1 if !v.is_empty() => {
                let i = rng.below(v.len());
                v[i] = rng.next() as u8;
            }
            2 => v.truncate(at),
            3 => v.insert(at, rng.next() as u8),
            4 => {
                let from = rng.below(other.len() + 1);
                let to = from + rng.below(other.len() - from + 1).min(64);
                v.splice(at..at, other[from..to].iter().copied());
            }
            5 if !v.is_empty() => {
                let from = rng.below(v.len());
                let to = from + rng.below(v.len() - from + 1).min(32);
                let piece = v[from..to].to_vec();
                for _ in 0..rng.below(8) {
                    v.splice(at..at, piece.iter().copied());
                }
            }
            _ => {
                let big: &[&[u8]] = &[&[0xff; 9], &[0x80; 10], b"-1", b"9223372036854775807", b"((((", b"[[[[", &[0]];
                v.splice(at..at, big[rng.below(big.len())].iter().copied());
            }
        }
    }
    v.truncate(1 << 17);
    v
}

fn main() {
    let mut args = std::env::args().skip(1);
    let seconds: u64 = args.next().and_then(|s| s.parse().ok()).unwrap_or(60);
    let only = args.next();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let targets: Vec<_> = rlx_fuzz::TARGETS.iter().filter(|(n, _)| only.as_deref().is_none_or(|o| o == *n)).collect();
    let mut failed = 0;
    for (name, run) in &targets {
        let mut seeds = Vec::new();
        corpus(&root.join("corpus").join(name), &mut seeds);
        if *name == "text" {
            corpus(&root.join("../tests/filetests"), &mut seeds);
        }
        // A program that another version made is refused before it is looked at: these are made anew.
        #[cfg(feature = "artefact")]
        if *name == "artefact" {
            seeds.extend(rlx_fuzz::artefacts());
            assert!(seeds.len() > 30, "only {} artefacts could be made", seeds.len());
        }
        assert!(!seeds.is_empty(), "target {name} has no corpus");
        let start = Instant::now();
        let budget = Duration::from_millis(seconds * 1000 / targets.len() as u64);
        let mut rng = Rng(0x5eed);
        let (mut runs, mut slowest) = (0u64, Duration::ZERO);
        let mut check = |input: &[u8]| {
            let t = Instant::now();
            if std::panic::catch_unwind(|| run(input)).is_err() {
                let path = root.join(format!("failed-{name}"));
                let _ = std::fs::write(&path, input);
                println!("target {name} failed; the input is in fuzz/failed-{name}");
                return false;
            }
            slowest = slowest.max(t.elapsed());
            runs += 1;
            true
        };
        let mut ok = seeds.iter().all(|s| check(s));
        while ok && start.elapsed() < budget {
            let (a, b) = (rng.below(seeds.len()), rng.below(seeds.len()));
            let input = mutate(&mut rng, &seeds[a], &seeds[b]);
            ok = check(&input);
        }
        println!("target {name}: {runs} inputs, slowest {:.1} ms", slowest.as_secs_f64() * 1e3);
        failed += usize::from(!ok || slowest > Duration::from_secs(5));
    }
    println!("{} passed, {failed} failed", targets.len() - failed);
    std::process::exit(i32::from(failed > 0));
}
