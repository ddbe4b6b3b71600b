//! Which ops a backend may claim by saying which kernels it has.

use std::collections::BTreeSet;

use rlx_ir::ops::elementwise::{Binary, Compare, Unary};

/// Ops besides the elementwise ones that lowering makes of each kind of kernel. Any other op that is claimed becomes a kernel of its own,
/// [`Kernel::Library`](crate::lir::Kernel::Library).
const OPS: &[(&str, &[&str])] = &[
    (
        "map",
        &[
            "select",
            "clamp",
            "convert",
            "constant",
            "from_dims",
            "reshape",
            "transpose",
            "broadcast_to",
            "slice",
            "concat",
            "pad",
            "reverse",
            "iota",
            "shape_of",
        ],
    ),
    ("row", &["reduce", "softmax", "layer_norm", "rms_norm"]),
    ("contract", &["dot_general"]),
    ("conv", &["conv"]),
    ("conv_transpose", &["conv_transpose"]),
    ("window", &["reduce_window"]),
    ("attention", &["attention"]),
    ("branch", &["if"]),
    ("loop", &["loop"]),
    ("scan", &["scan"]),
    ("call", &["call"]),
];

/// Mnemonics of the ops that lowering turns into kernels of these kinds (names as of [`Kernel::kind`](crate::lir::Kernel::kind)). With
/// `map` come all elementwise ops and all views.
pub fn ops_of(kernels: &[&str]) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for (_, ops) in OPS.iter().filter(|(kind, _)| kernels.contains(kind)) {
        out.extend(ops.iter().map(|s| s.to_string()));
    }
    if kernels.contains(&"map") {
        out.extend(Unary::ALL.iter().map(|f| f.name().to_string()));
        out.extend(Binary::ALL.iter().map(|f| f.name().to_string()));
        out.extend(Compare::ALL.iter().map(|f| f.name().to_string()));
    }
    out
}
