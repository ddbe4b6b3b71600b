//! Constraints.

use super::dim;
use crate::dim::{Constraint, ConstraintRecord, DimBinding};

type Relation = fn(crate::dim::Dim, crate::dim::Dim) -> Constraint;

#[test]
fn decided_where_known() {
    for (relation, a, b, expected) in [
        (Constraint::Eq as Relation, "n", "n", Some(true)),
        (Constraint::Eq, "n", "n + 1", Some(false)),
        (Constraint::Eq, "n", "m", None),
        (Constraint::Broadcastable, "n", "1", Some(true)),
        (Constraint::Broadcastable, "n", "n", Some(true)),
        (Constraint::Broadcastable, "n", "m", None),
        (Constraint::Broadcastable, "n", "n + 1", None),
        (Constraint::Broadcastable, "n + 2", "n + 3", Some(false)),
        (Constraint::Broadcastable, "2", "3", Some(false)),
        (Constraint::Le, "n", "n + m", Some(true)),
        (Constraint::Le, "n + 1", "n", Some(false)),
        (Constraint::Le, "n", "m", None),
        (Constraint::Divisible, "12*n", "4", Some(true)),
        (Constraint::Divisible, "12*n + 1", "4", Some(false)),
        (Constraint::Divisible, "n", "4", None),
        (Constraint::Divisible, "n*m", "n", None),
        (Constraint::Divisible, "m*(n + 1)", "n + 1", Some(true)),
        (Constraint::Divisible, "7", "2", Some(false)),
        (Constraint::Divisible, "7", "0", Some(false)),
        (Constraint::Divisible, "0", "0", Some(true)),
    ] {
        let constraint = relation(dim(a), dim(b));
        assert_eq!(constraint.decide(), expected, "{constraint}");
    }
}

#[test]
fn violations_name_dims_values_and_origin() {
    let binding = [("n", 3), ("m", 4)].into_iter().collect::<DimBinding>();
    for (relation, a, b, message) in [
        (
            Constraint::Eq as Relation,
            "n + 1",
            "m + 1",
            Some("`n + 1` = 4 and `m + 1` = 5 must be equal (from add `y`)"),
        ),
        (Constraint::Eq, "n + 1", "m", None),
        (
            Constraint::Broadcastable,
            "n",
            "m",
            Some("`n` = 3 and `m` = 4 do not broadcast: they must be equal or one of them 1 (from add `y`)"),
        ),
        (Constraint::Broadcastable, "n - 2", "m", None),
        (Constraint::Broadcastable, "m", "n - 2", None),
        (Constraint::Le, "m", "3", Some("`m` = 4 must be at most 3 (from add `y`)")),
        (Constraint::Le, "n", "m", None),
        (Constraint::Divisible, "m", "n", Some("`m` = 4 must be a multiple of `n` = 3 (from add `y`)")),
        (Constraint::Divisible, "m", "n - 1", None),
        (
            Constraint::Eq,
            "k",
            "n",
            Some(
                "cannot check that `k` equals `n` (from add `y`): symbol `k` in `k` has no value; bind it explicitly or pass an input whose shape gives it",
            ),
        ),
    ] {
        let record = ConstraintRecord::new(relation(dim(a), dim(b)), "add `y`");
        let found = record.check(&binding).err().map(|violation| violation.to_string());
        assert_eq!(found.as_deref(), message);
    }
}
