//! Packing of buffers into an arena by the intervals in which they live.

/// A buffer to be placed: live from kernel `first` to kernel `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// First kernel that touches it.
    pub first: u32,
    /// Last kernel that touches it.
    pub last: u32,
    /// Its size.
    pub bytes: usize,
}

/// An offset for each buffer, a multiple of `align`, so that buffers which live at the same time do not overlap; and
/// the size of the arena. The largest are placed first, each into the smallest gap that holds it.
pub fn pack(buffers: &[Interval], align: usize) -> (Vec<usize>, usize) {
    let align = align.max(1);
    let mut order: Vec<usize> = (0..buffers.len()).filter(|&i| buffers[i].bytes > 0).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(buffers[i].bytes), buffers[i].first));
    let mut offsets = vec![0usize; buffers.len()];
    // Placed buffers by offset.
    let mut placed: Vec<(usize, usize)> = Vec::with_capacity(order.len());
    let mut total = 0usize;
    for i in order {
        let b = buffers[i];
        let bytes = b.bytes.next_multiple_of(align);
        let (mut end, mut best): (usize, Option<(usize, usize)>) = (0, None);
        for &(offset, j) in &placed {
            let other = buffers[j];
            if other.last < b.first || b.last < other.first {
                continue;
            }
            let gap = offset.saturating_sub(end);
            if gap >= bytes && best.is_none_or(|(size, _)| gap < size) {
                best = Some((gap, end));
            }
            end = end.max(offset.saturating_add(other.bytes.next_multiple_of(align)));
        }
        let offset = best.map_or(end, |(_, at)| at);
        offsets[i] = offset;
        total = total.max(offset.saturating_add(bytes));
        let at = placed.partition_point(|&(o, _)| o <= offset);
        placed.insert(at, (offset, i));
    }
    (offsets, total)
}
