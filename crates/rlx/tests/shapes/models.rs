//! Models from files, each compiled once and run at many shapes.

use std::path::PathBuf;

use rlx::{DimBinding, Module, Tensor};

use crate::harness::{Once, case, ids, random, root, rows, same, scalar};

fn load(path: &std::path::Path) -> Module {
    rlx::onnx::load(path, &rlx::onnx::ImportOptions::default()).unwrap().module
}

/// The folder of a model in `shared/models` beside the repository or above it, if it is there.
fn shared(name: &str) -> Option<PathBuf> {
    let folders = root().ancestors().map(|a| a.join("shared/models").join(name)).collect::<Vec<_>>();
    let found = folders.into_iter().find(|f| f.join("model.onnx").is_file());
    if found.is_none() {
        println!("skipped: there is no shared/models/{name} beside the repository");
    }
    found
}

/// Sound of some batch at a sampling rate, the state after other sound, and the rate.
fn sound(batch: usize, rate: i64) -> Vec<Tensor> {
    let samples = if rate == 16000 { 576 } else { 288 };
    vec![random(batch as u64, &[batch, samples]), random(5, &[2, batch, 128]), scalar(rate)]
}

#[test]
fn the_shipped_model_runs_at_any_batch_and_rate() {
    let folder = root().join("models/silero_vad");
    let once = Once::new(load(&folder.join("model.onnx")));
    for name in ["speech", "silence", "speech_8k_b2"] {
        let (inputs, want) = case(&folder.join(format!("{name}.npz")), &once.program);
        same(&want, &once.run(&inputs), name);
    }
    for (batch, rate) in [(1, 16000), (3, 16000), (1, 8000), (3, 8000), (2, 16000)] {
        let inputs = sound(batch, rate);
        let got = once.check(&inputs, &format!("batch {batch} at {rate}"));
        assert_eq!((got[0].dims(), got[1].dims()), (&[batch, 1][..], &[2, batch, 128][..]));
    }
    once.compiled_once();
}

#[test]
fn one_minilm_serves_all_shapes() {
    let Some(folder) = shared("minilm_l6_v2") else { return };
    let mut once = Once::new(load(&folder.join("model.onnx")));
    for name in ["case_1x16", "case_8x128"] {
        let (inputs, want) = case(&folder.join(format!("{name}.npz")), &once.program);
        same(&want, &once.run(&inputs), name);
    }
    let text = |batch: usize, seq: usize| {
        let mask: Vec<i64> = (0..batch * seq).map(|i| i64::from(i / seq != 1 || i % seq < seq - seq / 3)).collect();
        let mask = Tensor::from_slice(&[batch, seq], &mask).unwrap();
        let types = Tensor::from_slice(&[batch, seq], &vec![0i64; batch * seq]).unwrap();
        vec![ids(3, &[batch, seq], 30000), mask, types]
    };
    once.check(&text(1, 1), "1x1");
    let inputs = text(3, 77);
    let together = once.run(&inputs);
    let first: Vec<Tensor> = inputs.iter().map(|t| rows(t, 1, 1)).collect();
    same(&once.oracle(&first, &[]), &[rows(&together[0], 1, 1)], "3x77, row 1");
    for i in [0, 2] {
        let alone: Vec<Tensor> = inputs.iter().map(|t| rows(t, i, 1)).collect();
        same(&once.run(&alone), &[rows(&together[0], i, 1)], &format!("3x77, row {i}"));
    }
    once.alternate(&text(1, 5), &text(2, 6));
    let (short, long) =
        (once.arena(&[("batch", 1), ("seq", 256)]) as f64, once.arena(&[("batch", 1), ("seq", 512)]) as f64);
    assert!((1.9..2.1).contains(&(long / short)), "{short} bytes at 256, {long} at 512");
    // Its table has 512 places, which is known before anything runs.
    let too_long = DimBinding::from_iter([("batch", 1), ("seq", 513)]);
    let e = once.program.prepare_for(&too_long).unwrap_err().to_string();
    assert!(e.contains("513") && e.contains("512"), "{e}");
    once.compiled_once();
}

#[test]
fn one_detector_serves_four_sizes() {
    let Some(folder) = shared("ppocr_det") else { return };
    let once = Once::new(load(&folder.join("model.onnx")));
    for name in ["case_96x96", "case_160x224"] {
        let (inputs, want) = case(&folder.join(format!("{name}.npz")), &once.program);
        same(&want, &once.run(&inputs), name);
    }
    for (batch, h, w) in [(1, 32, 64), (2, 64, 32)] {
        let got = once.check(&[random(8, &[batch, 3, h, w])], &format!("{batch}x3x{h}x{w}"));
        assert_eq!(got[0].dims(), [batch, 1, h, w]);
    }
    once.compiled_once();
}
