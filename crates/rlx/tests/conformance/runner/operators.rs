//! What the cases show of each operator: the dtypes that pass, and what becomes of it. `docs/ops.md` has it from `operators.txt`.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;

/// One line for each operator with a case of one node that is good in all ways: name with its domain, what becomes of it, dtypes of
/// first operands.
pub fn lines(reports: &[Report]) -> String {
    let mut rows: BTreeMap<String, (usize, usize, BTreeSet<String>)> = BTreeMap::new();
    for r in reports.iter().filter(|r| r.is_good()) {
        let Some(made) = &r.made else { continue };
        let domain = if made.domain.is_empty() { "ai.onnx" } else { &made.domain };
        let row = rows.entry(format!("{domain}.{}", r.operator)).or_default();
        row.0 = row.0.max(made.ops);
        row.1 = row.1.max(made.kernels);
        row.2.extend(made.dtype.clone());
    }
    let line = |(name, (ops, kernels, dtypes)): (&String, &(usize, usize, BTreeSet<String>))| {
        let kind = match (ops, kernels) {
            (0 | 1, _) => "native",
            (_, 0 | 1) => "fused",
            _ => "decomposed",
        };
        let dtypes: Vec<&str> = dtypes.iter().map(String::as_str).collect();
        format!("{name} {kind} {}\n", dtypes.join(" ")).replace(" \n", "\n")
    };
    rows.iter().map(line).collect()
}
