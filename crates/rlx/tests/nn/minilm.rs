//! minilm with blocks, traced, and from ONNX: outputs as another engine gives them in f64, and the same kernels.

use std::path::{Path, PathBuf};

use crate::bert::{Bert, weights_of};
use crate::harness::{Case, kernels};

const SIZES: Bert = Bert { words: 30522, positions: 512, width: 384, heads: 12, hidden: 1536, layers: 6, eps: 1e-12 };

/// The model's folder, in `shared/models` beside the repository or above it.
pub fn folder() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let found = root.ancestors().map(|a| a.join("shared/models/minilm_l6_v2")).find(|f| f.join("model.onnx").is_file());
    if found.is_none() {
        println!("skipped: there is no shared/models/minilm_l6_v2 beside the repository");
    }
    found
}

#[test]
fn minilm_is_the_same_whichever_way_it_is_made() {
    let Some(folder) = folder() else { return };
    let onnx = rlx::onnx::load(folder.join("model.onnx"), &rlx::onnx::ImportOptions::default()).unwrap().module;
    let weights = weights_of(&onnx);
    let blocks = SIZES.blocks(weights.clone()).unwrap_or_else(|e| panic!("{e}"));
    let traced = SIZES.traced(weights).unwrap_or_else(|e| panic!("{e}"));
    let case = Case::load(&folder.join("case_1x16.npz"));
    let programs = [("onnx", onnx), ("blocks", blocks), ("traced", traced)];
    let programs = programs.map(|(name, module)| (name, case.check(&module, name)));
    let want = kernels(&programs[0].1);
    for (name, program) in &programs {
        println!("{name}: {:?}", kernels(program));
        assert_eq!(kernels(program), want, "kernels of {name}");
    }
}
