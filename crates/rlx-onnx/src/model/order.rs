//! Orders of a directed graph given by predecessors: topological sort and its cycles.
//!
//! Both are iterative: a chain of a million nodes needs no stack.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// An order in which each node comes after its predecessors, or the cycles that prevent one.
///
/// `before[n]` are the predecessors of node `n`. Among the orders possible, the one that keeps
/// smaller numbers first is taken, so that a sorted list stays as it is.
pub(crate) fn order(before: &[Vec<usize>]) -> Result<Vec<usize>, Vec<Vec<usize>>> {
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); before.len()];
    let mut open: Vec<usize> = vec![0; before.len()];
    for (node, sources) in before.iter().enumerate() {
        for &source in sources {
            if let Some(list) = after.get_mut(source) {
                list.push(node);
                open[node] += 1;
            }
        }
    }
    let ready = open.iter().enumerate().filter(|(_, n)| **n == 0).map(|(node, _)| Reverse(node));
    let mut ready: BinaryHeap<Reverse<usize>> = ready.collect();
    let mut sorted = Vec::with_capacity(before.len());
    while let Some(Reverse(node)) = ready.pop() {
        sorted.push(node);
        for &next in &after[node] {
            open[next] -= 1;
            if open[next] == 0 {
                ready.push(Reverse(next));
            }
        }
    }
    if sorted.len() == before.len() { Ok(sorted) } else { Err(cycles(&after)) }
}

/// Strongly connected components of more than one node, and nodes that follow themselves
/// (Tarjan's algorithm). Members are in ascending order.
fn cycles(after: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const NEW: usize = usize::MAX;
    let count = after.len();
    let mut number = vec![NEW; count];
    let mut low = vec![0; count];
    let mut on_path = vec![false; count];
    let mut path = Vec::new();
    let mut next_number = 0;
    let mut found = Vec::new();
    // Each entry: a node and how many of its successors are done.
    let mut calls: Vec<(usize, usize)> = Vec::new();
    for root in 0..count {
        if number[root] != NEW {
            continue;
        }
        calls.push((root, 0));
        while let Some(call) = calls.last_mut() {
            let (node, done) = *call;
            // Once: a node with successors comes back with `done` above 0, one without is popped.
            if done == 0 {
                number[node] = next_number;
                low[node] = next_number;
                next_number += 1;
                path.push(node);
                on_path[node] = true;
            }
            if let Some(&next) = after[node].get(done) {
                call.1 += 1;
                if number[next] == NEW {
                    calls.push((next, 0));
                } else if on_path[next] {
                    low[node] = low[node].min(number[next]);
                }
                continue;
            }
            calls.pop();
            if let Some(&(parent, _)) = calls.last() {
                low[parent] = low[parent].min(low[node]);
            }
            if low[node] == number[node] {
                let start = path.iter().rposition(|&n| n == node).unwrap_or_default();
                let mut members = path.split_off(start);
                for &member in &members {
                    on_path[member] = false;
                }
                if members.len() > 1 || after[node].contains(&node) {
                    members.sort_unstable();
                    found.push(members);
                }
            }
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_lists_stay() {
        assert_eq!(order(&[vec![], vec![0], vec![], vec![1, 2]]), Ok(vec![0, 1, 2, 3]));
        assert_eq!(order(&[]), Ok(vec![]));
    }

    #[test]
    fn unsorted_lists_are_sorted() {
        assert_eq!(order(&[vec![2], vec![0, 0], vec![]]), Ok(vec![2, 0, 1]));
    }

    #[test]
    fn every_cycle_is_found_alone() {
        // 0 ⇄ 1 → 2 → 3 ⇄ 4, and 5 on itself; 2 and 6 lie on none.
        let before = [vec![1], vec![0], vec![1], vec![2, 4], vec![3], vec![5], vec![4]];
        assert_eq!(order(&before), Err(vec![vec![0, 1], vec![3, 4], vec![5]]));
    }

    #[test]
    fn length_costs_no_stack() {
        let n = 1_000_000;
        let mut before: Vec<Vec<usize>> = (0..n).map(|i: usize| vec![(i + 1) % n]).collect();
        let Err(found) = order(&before) else { panic!("one long cycle") };
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [n]);
        before[n - 1].clear();
        assert_eq!(order(&before).map(|o| (o[0], o[n - 1])), Ok((n - 1, 0)));
    }
}
