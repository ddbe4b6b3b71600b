//! Counts by operator, and by suite and way.

use std::collections::{BTreeMap, BTreeSet};

use super::ways::WAYS;
use super::{Outcome, Report};

/// Cases by operator: how many pass all ways, how many of those needed operands fixed or are random, how many fail.
pub fn by_operator(reports: &[Report]) -> String {
    let mut rows: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    let mut why: BTreeMap<&str, String> = BTreeMap::new();
    for r in reports {
        let row = rows.entry(&r.operator).or_default();
        let random = r.ways.contains(&Outcome::Random);
        match r.why() {
            Some(reason) => {
                row[3] += 1;
                why.entry(&r.operator).or_insert_with(|| reason);
            }
            None if random => row[2] += 1,
            None if r.fixed.is_some() => row[1] += 1,
            None => row[0] += 1,
        }
    }
    let mut out =
        format!("{:<34} {:>7} {:>7} {:>7} {:>7}  first reason\n", "operator", "passed", "fixed", "random", "failed");
    for (op, [passed, fixed, random, failed]) in &rows {
        let reason: String = why.get(op).map_or("", String::as_str).chars().take(90).collect();
        out += &format!("{op:<34} {passed:>7} {fixed:>7} {random:>7} {failed:>7}  {reason}\n");
    }
    out
}

/// Cases by suite and way.
pub fn by_way(reports: &[Report]) -> String {
    let mut out = format!("{:<20} {:>6}", "suite", "cases");
    for way in WAYS {
        out += &format!(" {way:>12}");
    }
    out += &format!(" {:>9} {:>7} {:>7}\n", "all ways", "fixed", "random");
    let suites: BTreeSet<&str> = reports.iter().map(|r| r.case.suite).collect();
    for suite in suites {
        let of: Vec<&Report> = reports.iter().filter(|r| r.case.suite == suite).collect();
        out += &format!("{suite:<20} {:>6}", of.len());
        for (i, _) in WAYS.iter().enumerate() {
            let good = of.iter().filter(|r| r.ways.get(i) == Some(&Outcome::Passed)).count();
            out += &format!(" {good:>12}");
        }
        let random = of.iter().filter(|r| r.is_good() && r.ways.contains(&Outcome::Random)).count();
        let good = of.iter().filter(|r| r.is_good()).count() - random;
        let fixed = of.iter().filter(|r| r.is_good() && r.fixed.is_some()).count();
        out += &format!(" {good:>9} {fixed:>7} {random:>7}\n");
    }
    out
}

/// The cases of which an operand had to be fixed, by reason.
pub fn fixed(reports: &[Report]) -> String {
    let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for r in reports {
        if let Some(why) = &r.fixed {
            reasons.entry(why.replace('\n', " | ")).or_default().push(r.case.label());
        }
    }
    let n: usize = reasons.values().map(Vec::len).sum();
    let mut out = format!("{n} cases need an operand that is known when the model is compiled\n");
    for (why, cases) in &reasons {
        out += &format!("FIXED {}: {why} (such as {})\n", cases.len(), cases[0]);
    }
    out
}
