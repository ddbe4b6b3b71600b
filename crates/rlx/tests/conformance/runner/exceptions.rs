//! The list of cases that need not pass.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;

/// The list, one `suite/case: reason` a line; `#` begins a comment.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut out = BTreeMap::new();
    for (i, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty() && !l.starts_with('#')) {
        let (case, reason) = line.split_once(": ").ok_or_else(|| format!("line {}: no reason", i + 1))?;
        if out.insert(case.trim().into(), reason.trim().into()).is_some() {
            return Err(format!("line {}: `{case}` is listed twice", i + 1));
        }
    }
    Ok(out)
}

/// What disagrees with the list: failures that are not on it, and entries that pass or do not exist.
pub fn problems(list: &BTreeMap<String, String>, reports: &[Report]) -> Vec<String> {
    let mut out = Vec::new();
    for r in reports {
        let label = r.case.label();
        match (r.why(), list.contains_key(&label)) {
            (Some(why), false) => out.push(format!("{label} fails: {why}")),
            (None, true) => out.push(format!("{label} passes: take it off the list of exceptions")),
            _ => {}
        }
    }
    let suites: BTreeSet<&str> = reports.iter().map(|r| r.case.suite).collect();
    let names: BTreeSet<String> = reports.iter().map(|r| r.case.label()).collect();
    for entry in list.keys().filter(|e| suites.contains(e.split('/').next().unwrap_or_default())) {
        if !names.contains(entry) {
            out.push(format!("{entry} is on the list of exceptions, but there is no such case"));
        }
    }
    out
}
