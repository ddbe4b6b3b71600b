//! Section 6: ways to make a graph. HIR blocks, traced closures and ONNX are in `tests/nn`; here builder and text.

use rlx::{CompileOptions, Module, Precision, PrecisionPolicy};

use crate::harness::{dense, numbers, session};

#[test]
fn spec_6_builder_and_text_give_equal_outputs_and_kernels() {
    let built = Module::from_graph(dense());
    let read = rlx::ir::text::parse_module(&built.to_string()).unwrap();
    for options in [
        CompileOptions::new(),
        CompileOptions::new().policy(PrecisionPolicy::Mixed(Precision::BF16)),
        CompileOptions::new().unoptimised(),
    ] {
        let a = session().compile_hir_with(&built, &options).unwrap();
        let b = session().compile_hir_with(&read, &options).unwrap();
        let x = numbers(8, &[6, 4]);
        assert_eq!(a.run_tensors(&[("x", &x)]).unwrap(), b.run_tensors(&[("x", &x)]).unwrap());
        assert_eq!(a.report().kernels, b.report().kernels);
        assert_eq!(a.report().fallbacks, b.report().fallbacks);
    }
}
