//! Embedded models give what the same models give from their files.
#![allow(missing_docs, clippy::unwrap_used)]

use rlx::embed::View;
use rlx::{Device, Session, Tensor};
use rlx_example_embed::{Product, Vad, speech};

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 100.0).collect()
}

#[test]
fn the_model_in_the_program_is_the_model_in_the_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/silero_vad/model.onnx");
    let model = rlx::onnx::load(path, &rlx::onnx::ImportOptions::default()).unwrap();
    let program = Session::new(Device::Cpu).unwrap().compile_hir(&model.module).unwrap();
    let mut vad = Vad::new(Device::Cpu).unwrap();
    for batch in [1, 3] {
        let (sound, state) = (numbers(batch * 576), numbers(2 * batch * 128));
        let tensors = [
            Tensor::from_slice(&[batch, 576], &sound).unwrap(),
            Tensor::from_slice(&[2, batch, 128], &state).unwrap(),
            Tensor::scalar(16_000i64),
        ];
        let want = program.run_tensors(&[("input", &tensors[0]), ("state", &tensors[1]), ("sr", &tensors[2])]).unwrap();
        let got = vad.run(View::new([batch, 576], &sound), View::new([2, batch, 128], &state), 16_000).unwrap();
        assert_eq!(got.output.as_flattened(), &*want[0].as_slice::<f32>().unwrap());
        assert_eq!((got.staten.dims, &got.staten.data[..]), ([2, batch, 128], &*want[1].as_slice::<f32>().unwrap()));
    }
    assert!(speech(&mut vad, &[0.0; 4096]).unwrap().iter().all(|&p| p < 0.2));
}

#[test]
fn sizes_are_in_the_types_or_checked() {
    let mut product = Product::new(Device::Cpu).unwrap();
    let out = product.run(&[[1.0, 1.0], [0.0, 2.0]], &[true, false, true]).unwrap();
    assert_eq!(out.y, [[5.0, 7.0, 9.0], [8.0, 10.0, 12.0]]);
    assert_eq!((*out.not, out.sum), ([false, true, false], 51.0));
    assert_eq!(product.run(&[], &[true; 3]).unwrap().y.len(), 0);
    product.program().set_param("w", &[0.0; 6]).unwrap();
    assert_eq!(product.run(&[[1.0, 1.0]], &[true; 3]).unwrap().sum, 0.0);

    let mut vad = Vad::new(Device::Cpu).unwrap();
    let e = vad.run(View::new([1, 576], &[0.0; 5]), View::new([2, 1, 128], &[0.0; 256]), 16_000).unwrap_err();
    assert!(e.to_string().contains("`input`"), "{e}");
    assert!(Vad::new(Device::Cuda).is_err());
}
