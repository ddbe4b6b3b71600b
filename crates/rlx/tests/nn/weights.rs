//! Weights from safetensors files: mapped, bound by name, and hostile files refused.

use std::path::PathBuf;

use rlx::nn::{Block, Conv, Layer, Linear, Net, Weights};
use rlx::runtime::safetensors::SafetensorsError;
use rlx::{DType, Dim};

use crate::harness::{compile, oracle, random, run, same};

/// A file in a folder of this test alone, gone at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Temporary {
        let path = std::env::temp_dir().join(format!("rlx-nn-{}-{name}.safetensors", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Temporary(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn floats(v: &[f32]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[test]
fn weights_bind_by_name_and_stay_in_the_file() {
    // An odd length of the header leaves the data unaligned.
    let header = r#"{"head.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"head.bias":{"dtype":"F32","shape":[2],"data_offsets":[24,32]},"more":{"dtype":"BF16","shape":[2],"data_offsets":[32,36]}}"#;
    for pad in 0..4 {
        let header = format!("{header}{}", " ".repeat(pad));
        let data = [floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), floats(&[0.5, -0.5]), vec![0x80, 0x3f, 0, 0x40]].concat();
        let f = Temporary::new(&format!("good{pad}"), &file(&header, &data));
        let weights = Weights::open(&f.0).unwrap();
        assert_eq!(weights.names().collect::<Vec<_>>(), ["head.bias", "head.weight", "more"]);
        assert_eq!(weights.get("more").unwrap().dtype(), DType::BF16);
        let mut net = Net::new("main").with_weights(weights);
        let x = net.input("x", DType::F32, [Dim::symbol("n"), Dim::from(3)]).unwrap();
        let y = Linear::new(3, 2).apply(&mut net.at("head"), x).unwrap();
        net.output("y", y).unwrap();
        assert_eq!(net.unused_weights(), ["more"]);
        let program = compile(&net.finish().unwrap());
        let x = rlx::Tensor::from_slice(&[1, 3], &[1.0f32, 10.0, 100.0]).unwrap();
        assert_eq!(*run(&program, &[("x", x)])[0].as_slice::<f32>().unwrap(), [321.5, 653.5]);
    }
}

/// Weights of convolutions at any address of a file, in kernels that pack them once and in those that read them again: the last input has
/// an infinity, for which windows are not transformed.
#[test]
fn convolutions_take_weights_at_odd_addresses() {
    let layers = [
        ("point", Conv::new(8, 16, &[1, 1]), 8),
        ("depthwise", Conv::new(8, 8, &[3, 3]).groups(8), 8),
        ("grouped", Conv::new(8, 8, &[3, 3]).groups(2).stride(2), 8),
        ("window", Conv::new(32, 64, &[3, 3]).padding(1), 32),
        ("wide", Conv::new(4, 8, &[5, 5]).stride(2), 4),
        ("line", Conv::new(4, 8, &[5]), 4),
    ];
    for (name, layer, channels) in layers {
        let params = layer.params(DType::F32);
        let dims_of = |p: &rlx::nn::ParamSpec| -> Vec<usize> {
            p.ty.shape.iter().map(|d| d.as_const().unwrap() as usize).collect()
        };
        let (w, b) = (random(1, &dims_of(&params[0])), random(2, &dims_of(&params[1])));
        let (n, m) = (w.bytes().len(), w.bytes().len() + b.bytes().len());
        let entry = |name: &str, t: &rlx::Tensor, from: usize, to: usize| {
            format!(r#""{name}":{{"dtype":"F32","shape":{:?},"data_offsets":[{from},{to}]}}"#, t.dims())
        };
        let header = format!("{{{},{}}}", entry("c.weight", &w, 0, n), entry("c.bias", &b, n, m));
        for pad in 0..4 {
            let header = format!("{header}{}", " ".repeat(pad));
            let f = Temporary::new(&format!("{name}{pad}"), &file(&header, &[w.bytes(), b.bytes()].concat()));
            let mut net = Net::new("main").with_weights(Weights::open(&f.0).unwrap());
            let sizes = [&[2, channels][..], &vec![16; w.dims().len() - 2]].concat();
            let dims = sizes.iter().enumerate().map(|(i, &n)| if i == 0 { Dim::symbol("n") } else { Dim::from(n) });
            let x = net.input("x", DType::F32, dims.collect::<Vec<_>>()).unwrap();
            let y = layer.apply(&mut net.at("c"), x).unwrap();
            net.output("y", y).unwrap();
            let module = net.finish().unwrap();
            let program = compile(&module);
            for infinite in [false, false, true] {
                let mut x = random(3, &sizes);
                if infinite {
                    let mut v = x.as_slice::<f32>().unwrap().into_owned();
                    v[7] = f32::INFINITY;
                    x = rlx::Tensor::from_slice(&sizes, &v).unwrap();
                }
                let inputs = [("x", x)];
                same(&oracle(&module, &inputs), &run(&program, &inputs), &format!("{name} {pad} {infinite}"));
            }
        }
    }
}

#[test]
fn damaged_files_are_errors() {
    let good = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let cases = [
        ("empty", vec![]),
        ("short", vec![1, 2, 3]),
        ("huge", [&u64::MAX.to_le_bytes()[..], b"{}"].concat()),
        ("json", file("{]", &[])),
        ("cut", file(good, &[0; 3])),
        ("shape", file(&good.replace("[1]", "[2]"), &[0; 4])),
        ("overflow", file(&good.replace("[1]", "[18446744073709551615, 18446744073709551615]"), &[0; 4])),
        ("offsets", file(&good.replace("[0,4]", "[4,0]"), &[0; 4])),
        ("dtype", file(&good.replace("F32", "F33"), &[0; 4])),
    ];
    for (name, bytes) in cases {
        let f = Temporary::new(name, &bytes);
        let e = Weights::open(&f.0).err().unwrap_or_else(|| panic!("{name} was taken"));
        assert!(matches!(e, SafetensorsError::Format { .. }), "{name}: {e}");
        assert!(e.to_string().contains(name), "{name}: {e}");
    }
    assert!(matches!(Weights::open("/no/such/file").unwrap_err(), SafetensorsError::File(_)));
}

#[test]
fn names_can_be_changed() {
    let f = Temporary::new(
        "names",
        &file(
            r#"{"model.a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"b":{"dtype":"BOOL","shape":[1],"data_offsets":[8,9]}}"#,
            &[7, 0, 0, 0, 0, 0, 0, 0, 1],
        ),
    );
    let w = Weights::open(&f.0).unwrap().renamed(|n| n.strip_prefix("model.").map(str::to_string));
    assert_eq!((w.len(), w.is_empty()), (1, false));
    assert_eq!(*w.get("a").unwrap().as_slice::<i64>().unwrap(), [7]);
}
