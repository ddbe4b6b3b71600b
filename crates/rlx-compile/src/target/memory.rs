//! What memory a run takes, known before it runs as far as it can be.

use std::fmt;
use std::ops::Range;

/// How many bytes something takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So many.
    Exact(u64),
    /// So many where data gives the largest sizes that it can.
    AtMost(u64),
    /// As many as the data says: some size has no bound.
    Open,
}

impl Extent {
    /// The bytes, if they are known.
    pub fn exact(self) -> Option<u64> {
        match self {
            Extent::Exact(n) => Some(n),
            _ => None,
        }
    }

    /// The most bytes that it can be.
    pub fn most(self) -> Option<u64> {
        match self {
            Extent::Exact(n) | Extent::AtMost(n) => Some(n),
            Extent::Open => None,
        }
    }

    /// Both together.
    pub fn plus(self, other: Extent) -> Extent {
        match (self, other) {
            (Extent::Exact(a), Extent::Exact(b)) => Extent::Exact(a.saturating_add(b)),
            (a, b) => match a.most().zip(b.most()) {
                Some((a, b)) => Extent::AtMost(a.saturating_add(b)),
                None => Extent::Open,
            },
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extent::Exact(n) => write!(f, "{n} bytes"),
            Extent::AtMost(n) => write!(f, "at most {n} bytes"),
            Extent::Open => f.write_str("as many bytes as data says"),
        }
    }
}

/// Memory of the kernels between two sizes that depend on data. Its sizes are known when those of its symbols are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentMemory {
    /// The kernels, by their position in the program.
    pub kernels: Range<u32>,
    /// Symbols whose values data gives before it begins.
    pub symbols: Vec<String>,
    /// Its arena, and what nested programs add to it.
    pub arena: Extent,
    /// Outputs whose sizes are known when it begins.
    pub outputs: Extent,
    /// What the kernel before it hands over, whose size data gives; it is freed when it lies where it belongs.
    pub handed: Extent,
    /// Why what is open is so.
    pub open: Vec<String>,
}

/// Bytes that a run of some sizes takes. Parameters are the caller's memory or a mapped file; all else is allocated by the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryReport {
    /// Values of the parameters, as set or by default.
    pub params: u64,
    /// Results of the prepare program.
    pub prepared: u64,
    /// Packed forms of weights.
    pub packed: u64,
    /// Arenas of one run, as far as they are known before it.
    pub arena: u64,
    /// Outputs of one run, as far as they are known before it.
    pub outputs: u64,
    /// States.
    pub states: u64,
    /// True if more is to come whose size is not known before the run.
    pub partial: bool,
    /// Where that is: the program, cut where sizes depend on data.
    pub segments: Vec<SegmentMemory>,
    /// Why what belongs to no segment is not known.
    pub open: Vec<String>,
}

impl MemoryReport {
    /// All but the parameters, as far as it is known: what is held against
    /// [`CompileOptions::memory_limit`](crate::CompileOptions::memory_limit).
    pub fn own(&self) -> u64 {
        [self.prepared, self.packed, self.arena, self.outputs, self.states].iter().fold(0, |a, &b| a.saturating_add(b))
    }

    /// The most that all but the parameters can take; `None` where a size has no bound.
    pub fn at_most(&self) -> Option<u64> {
        if !self.open.is_empty() {
            return None;
        }
        // What is known of the segments is in the sums.
        let more = self.segments.iter().flat_map(|s| [s.arena, s.outputs, s.handed]);
        more.filter(|e| e.exact().is_none()).try_fold(self.own(), |sum, e| Some(sum.saturating_add(e.most()?)))
    }

    /// Why no more is known; empty if all is, or has bounds.
    pub fn reasons(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().flat_map(|s| &s.open).chain(&self.open).map(String::as_str)
    }
}

impl fmt::Display for MemoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes: {} prepared and {} packed parameters, {} arena, {} outputs, {} states",
            self.own(),
            self.prepared,
            self.packed,
            self.arena,
            self.outputs,
            self.states,
        )?;
        match (self.partial, self.at_most()) {
            (false, _) => {}
            (true, Some(most)) => write!(f, ", and more where sizes depend on data, at most {most} in all")?,
            (true, None) => {
                let why: Vec<&str> = self.reasons().collect();
                write!(f, ", and more where sizes depend on data: {}", why.join("; "))?;
            }
        }
        write!(f, " (parameters themselves: {})", self.params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(arena: Extent, handed: Extent) -> SegmentMemory {
        let open = if arena == Extent::Open { vec!["`n` has no bound".into()] } else { Vec::new() };
        SegmentMemory { kernels: 0..1, symbols: Vec::new(), arena, outputs: Extent::Exact(0), handed, open }
    }

    #[test]
    fn what_is_bounded_adds_to_what_is_known() {
        let mut r = MemoryReport { arena: 100, outputs: 10, partial: true, ..MemoryReport::default() };
        r.segments =
            vec![segment(Extent::Exact(100), Extent::Exact(0)), segment(Extent::AtMost(30), Extent::AtMost(5))];
        assert_eq!((r.own(), r.at_most()), (110, Some(145)));
        assert!(r.to_string().contains("at most 145"), "{r}");
        r.segments.push(segment(Extent::Open, Extent::Exact(0)));
        assert_eq!(r.at_most(), None);
        assert!(r.to_string().contains("`n` has no bound"), "{r}");
        let (all, part) = (Extent::Exact(1).plus(Extent::Exact(2)), Extent::Exact(1).plus(Extent::AtMost(2)));
        assert_eq!((all, part, part.plus(Extent::Open)), (Extent::Exact(3), Extent::AtMost(3), Extent::Open));
    }
}
