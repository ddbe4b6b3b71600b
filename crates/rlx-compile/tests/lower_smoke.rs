use rlx_compile::{Claims, CompileOptions, lower::lower, target::InputStage};
use rlx_ir::{Builder, DType, Dim, Module};

fn claims() -> Claims {
    Claims { target: "test".into(), stage: InputStage::Lir, ops: Default::default(), dtypes: Default::default(), filter: None, symbolic_shapes: true, in_place: true }
}

#[test]
fn smoke() {
    let mut b = Builder::new("main");
    let s = |n: &str| Dim::symbol(n);
    let x = b.input("x", DType::F32, [s("b"), s("s"), 64.into()]).unwrap();
    let r = b.input("r", DType::F32, [s("b"), s("s"), 64.into()]).unwrap();
    let w = b.param("w", DType::F32, [64, 64]).unwrap();
    let bias = b.param("bias", DType::F32, [64]).unwrap();
    let g = b.param("g", DType::F32, [64]).unwrap();
    let h = b.matmul(x, w).unwrap();
    let h = b.add(h, bias).unwrap();
    let h = b.gelu(h).unwrap();
    let h = b.reshape(h, [s("b"), s("s"), 4.into(), 16.into()]).unwrap();
    let q = b.transpose(h, &[0, 2, 1, 3]).unwrap();
    let two = b.scalar(DType::F32, 0.25).unwrap();
    let q = b.mul(q, two).unwrap();
    let k = b.transpose(q, &[0, 1, 3, 2]).unwrap();
    let sc = b.matmul(q, k).unwrap();
    let p = b.softmax(sc, 3).unwrap();
    let o = b.matmul(p, q).unwrap();
    let o = b.transpose(o, &[0, 2, 1, 3]).unwrap();
    let o = b.reshape(o, [s("b"), s("s"), 64.into()]).unwrap();
    let o = b.relu(o).unwrap();
    let o = b.add(o, r).unwrap();
    let y = b.layer_norm(o, Some(g), Some(bias), &[2], 1e-5).unwrap();
    let y = b.relu(y).unwrap();
    b.output("y", y).unwrap();
    b.output("o", o).unwrap();
    let m = Module::from_graph(b.finish());
    let mut remarks = vec![];
    let lir = lower(&m, &claims(), &CompileOptions::default(), &mut remarks).unwrap();
    println!("{lir}");
    for r in remarks { println!("{r}"); }
}
