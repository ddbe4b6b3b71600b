//! Runs ONNX's own cases five ways. The test and the example `conformance` share it.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

pub mod cases;
pub mod compare;
pub mod exceptions;
pub mod operators;
pub mod table;
pub mod ways;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cases::Case;

/// How one way of running a case ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Every output has the expected value.
    Passed,
    /// Random results of the right type, shape and distribution.
    Random,
    /// What is wrong.
    Failed(String),
}

impl Outcome {
    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        !matches!(self, Outcome::Failed(_))
    }
}

/// How a case ended in each of [`ways::WAYS`].
#[derive(Clone, Debug)]
pub struct Report {
    /// The case.
    pub case: Case,
    /// The operator that it is about.
    pub operator: String,
    /// Why some operand had to be fixed when the model was imported, if one had to be.
    pub fixed: Option<String>,
    /// One for each way.
    pub ways: Vec<Outcome>,
    /// What became of the operator, if the case is one node.
    pub made: Option<Made>,
}

/// What became of a single node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The node's domain.
    pub domain: String,
    /// Dtype of its first operand, if it has one.
    pub dtype: Option<String>,
    /// Ops of the graph that the import gave, constants left out.
    pub ops: usize,
    /// Kernels of the compiled program.
    pub kernels: usize,
}

impl Report {
    /// Whether all ways are good.
    pub fn is_good(&self) -> bool {
        self.ways.iter().all(Outcome::is_good)
    }

    /// What is wrong first, with its way.
    pub fn why(&self) -> Option<String> {
        ways::WAYS.iter().zip(&self.ways).find_map(|(way, o)| match o {
            Outcome::Failed(why) => Some(format!("{way}: {}", why.replace('\n', " | "))),
            _ => None,
        })
    }
}

/// Runs cases on two threads; reports in the order of the cases.
pub fn run_all(cases: &[Case]) -> Vec<Report> {
    let next = AtomicUsize::new(0);
    let reports = Mutex::new(Vec::with_capacity(cases.len()));
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let run = catch_unwind(AssertUnwindSafe(|| ways::run(case)));
                    let report = run.unwrap_or_else(|p| {
                        let text = p.downcast_ref::<String>().map(String::as_str);
                        let text = text.or_else(|| p.downcast_ref::<&str>().copied()).unwrap_or("?");
                        ways::all_failed(case, "(panicked)", format!("panicked: {text}"))
                    });
                    reports.lock().unwrap().push(report);
                }
            });
        }
    });
    let mut reports = reports.into_inner().unwrap();
    reports.sort_by_key(|r| r.case.label());
    reports
}
