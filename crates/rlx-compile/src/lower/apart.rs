//! Why two kernels did not become one: what is said of each value that one kernel writes to memory and another, which could have computed
//! it, reads there. The rules themselves stand where they are applied ([`groups`](super::groups), [`row`](super::row)).

use rlx_ir::{Dim, Loc};

use crate::remark::RemarkKind;

use super::groups::{Arg, GroupId, GroupKind};
use super::planner::Planner;
use super::views::Val;

/// Said of what several ops read.
pub(super) const TWO_USERS: &str = "result has two users";

impl Planner<'_> {
    /// Why an elementwise op over these sizes does not run with what computes its operand, given that it runs in `joined`, if in any;
    /// `None` for an operand that nothing in a group computes, or that runs with it.
    pub(super) fn why_apart(&self, v: &Val, to: &[Dim], joined: Option<GroupId>) -> Option<String> {
        let h = self.group_of(self.item_of(v.root)?);
        if joined == Some(h) {
            return Some("it is read at other positions too".into());
        }
        let other = &self.groups[h.index()];
        if !self.options.fusion.allows(other.fusion()) {
            return Some(format!("fusion `{}` is off", other.fusion()));
        }
        if other.used {
            return Some(TWO_USERS.into());
        }
        if let Some(why) = joined.and_then(|g| self.why_not_absorbed(g, h)) {
            return Some(why.into());
        }
        let why = match !v.is_bijective() || v.dims != to {
            true => "it is read broadcast or in part",
            false => "it is read at other positions",
        };
        Some(why.into())
    }

    /// Why a group's instructions cannot move into another one; `None` if they can.
    pub(super) fn why_not_absorbed(&self, into: GroupId, other: GroupId) -> Option<&'static str> {
        let (g, h) = (&self.groups[into.index()], &self.groups[other.index()]);
        if h.used {
            return Some(TWO_USERS);
        }
        let products = |k: &GroupKind| matches!(k, GroupKind::Contract(_) | GroupKind::Conv(_));
        match (&g.kind, &h.kind) {
            (a, b) if products(a) && products(b) => return Some("two products have no kernel in common"),
            (GroupKind::Row(_), b) if products(b) => return Some("rows do not run in the kernel of a product"),
            (_, b) if products(b) => return Some("the kernel of a product takes in what follows it alone"),
            (GroupKind::Row(a), GroupKind::Row(b)) if a != b => return Some("its rows lie along other axes"),
            (a, GroupKind::Row(_)) if products(a) => return Some("rows do not run in the kernel of a product"),
            (GroupKind::Map, GroupKind::Row(_)) => return Some("rows do not run in a map"),
            _ => {}
        }
        if g.space != h.space {
            return Some("the two run over different sizes");
        }
        if self.is_too_large(g.items.len() + h.items.len(), g.reads + h.reads) {
            return Some(super::groups::TOO_LARGE);
        }
        match (&g.kind, &h.kind) {
            (GroupKind::Row(axes), GroupKind::Map) if !self.varies_along(other, axes) => {
                Some("not all of it varies along the row")
            }
            _ => None,
        }
    }

    /// Says once what keeps an op's operands apart from it.
    pub(super) fn missed_all(&mut self, loc: &Loc, messages: Vec<String>) {
        let mut said: Vec<&String> = Vec::new();
        for m in &messages {
            if !said.contains(&m) {
                said.push(m);
            }
        }
        let said: Vec<String> = said.into_iter().cloned().collect();
        said.into_iter().for_each(|m| self.remark(RemarkKind::Missed, loc, m));
    }

    /// Operands of a join that stay in memory, although a group computes them: why.
    pub(super) fn left_apart(&self, args: &[Val], joined: &[Arg], to: &[Dim], group: GroupId) -> Vec<String> {
        let into = self.groups[group.index()].kind.describe();
        let apart = args.iter().zip(joined).filter(|(_, a)| matches!(a, Arg::Val(..)));
        apart
            .filter_map(|(v, _)| self.why_apart(v, to, Some(group)))
            .map(|why| format!("operand not fused into {into}: {why}"))
            .collect()
    }

    /// Why an op over rows does not run with what computes its operand; `None` for an operand that nothing in a group computes.
    /// `crossed` says that other operands come from there too.
    pub(super) fn why_not_in_rows(&self, x: &Val, axes: &[usize], crossed: bool) -> Option<String> {
        let h = self.group_of(self.item_of(x.root)?);
        let g = &self.groups[h.index()];
        let why = match &g.kind {
            GroupKind::Contract(_) | GroupKind::Conv(_) => "rows do not run in the kernel of a product",
            _ if !self.options.fusion.allows("row") => "fusion `row` is off",
            _ if g.used => TWO_USERS,
            _ if !x.steps.is_empty() => "it is seen through a view",
            _ if crossed => "other operands come from it too",
            GroupKind::Row(reduced) if reduced != axes => "its rows lie along other axes",
            _ if g.space != x.dims => "the two run over different sizes",
            GroupKind::Map => "not all of it varies along the row",
            _ => "it does not vary along the row",
        };
        Some(why.into())
    }
}
