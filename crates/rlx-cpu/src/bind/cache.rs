//! Bindings kept by the sizes that they were made from, bounded by count and bytes; the least recently used ones go first, and it is
//! remembered that they were here. Finding one allocates nothing.

use super::BoundSegment;
use rlx_compile::target::MissReason;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// How many bindings that are gone are remembered.
const REMEMBERED: usize = 4096;

/// No neighbour.
const NONE: usize = usize::MAX;

/// One binding in a list from the latest used to the earliest.
struct Slot {
    key: Box<[i64]>,
    bound: Arc<BoundSegment>,
    bytes: usize,
    newer: usize,
    older: usize,
}

/// A bounded map from sizes to bindings.
pub struct BindCache {
    slots: Vec<Slot>,
    places: HashMap<Box<[i64]>, usize>,
    newest: usize,
    oldest: usize,
    bytes: usize,
    capacity: usize,
    max_bytes: usize,
    /// Why bindings of these hashes went.
    gone: HashMap<u64, MissReason>,
    hasher: RandomState,
    evictions: u64,
    used: bool,
}

impl BindCache {
    /// An empty cache. The latest binding stays whatever the bounds are.
    pub fn new(capacity: usize, max_bytes: usize) -> BindCache {
        BindCache {
            slots: Vec::new(),
            places: HashMap::new(),
            newest: NONE,
            oldest: NONE,
            bytes: 0,
            capacity: capacity.max(1),
            max_bytes,
            gone: HashMap::new(),
            hasher: RandomState::new(),
            evictions: 0,
            used: false,
        }
    }

    /// The binding of these sizes, or why it is not there.
    pub fn get(&mut self, key: &[i64]) -> Result<Arc<BoundSegment>, MissReason> {
        // Most calls have the sizes of the call before.
        if let Some(slot) = self.slots.get(self.newest).filter(|s| *s.key == *key) {
            return Ok(slot.bound.clone());
        }
        match self.places.get(key).copied() {
            Some(at) => {
                self.unlink(at);
                self.link(at);
                Ok(self.slots[at].bound.clone())
            }
            None if !self.used => Err(MissReason::First),
            None => Err(self.gone.get(&self.hash(key)).copied().unwrap_or(MissReason::NewSizes)),
        }
    }

    /// Keeps a binding. Gives how many went for it.
    pub fn insert(&mut self, key: &[i64], bound: Arc<BoundSegment>, bytes: usize) -> u64 {
        self.used = true;
        if let Some(at) = self.places.get(key).copied() {
            // Another thread was faster; both made the same.
            self.bytes = self.bytes - self.slots[at].bytes + bytes;
            self.slots[at].bound = bound;
            self.slots[at].bytes = bytes;
            return 0;
        }
        let before = self.evictions;
        while !self.slots.is_empty() {
            let reason = match (self.slots.len() >= self.capacity, self.bytes.saturating_add(bytes) > self.max_bytes) {
                (true, _) => MissReason::EvictedByCount,
                (_, true) => MissReason::EvictedByBytes,
                _ => break,
            };
            self.evict(reason);
        }
        self.gone.remove(&self.hash(key));
        let at = self.slots.len();
        self.slots.push(Slot { key: key.into(), bound, bytes, newer: NONE, older: NONE });
        self.places.insert(key.into(), at);
        self.bytes += bytes;
        self.link(at);
        self.evictions - before
    }

    fn hash(&self, key: &[i64]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Lets the least recently used binding go.
    fn evict(&mut self, reason: MissReason) {
        let at = self.oldest;
        self.unlink(at);
        let slot = self.slots.swap_remove(at);
        self.places.remove(&slot.key);
        // What was last has moved into the gap.
        if let Some(moved) = self.slots.get(at) {
            let (newer, older) = (moved.newer, moved.older);
            if let Some(place) = self.places.get_mut(&moved.key) {
                *place = at;
            }
            match self.slots.get_mut(newer) {
                Some(s) => s.older = at,
                None => self.newest = at,
            }
            match self.slots.get_mut(older) {
                Some(s) => s.newer = at,
                None => self.oldest = at,
            }
        }
        self.bytes -= slot.bytes;
        self.evictions += 1;
        if self.gone.len() >= REMEMBERED {
            self.gone.clear();
        }
        self.gone.insert(self.hash(&slot.key), reason);
    }

    fn unlink(&mut self, at: usize) {
        let (newer, older) = (self.slots[at].newer, self.slots[at].older);
        match self.slots.get_mut(newer) {
            Some(s) => s.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older) {
            Some(s) => s.newer = newer,
            None => self.oldest = newer,
        }
    }

    /// Makes a slot that is in no list the newest.
    fn link(&mut self, at: usize) {
        let older = self.newest;
        self.slots[at].newer = NONE;
        self.slots[at].older = older;
        match self.slots.get_mut(older) {
            Some(s) => s.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    /// Number of bindings kept.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if none is kept.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of the bindings kept, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(n: i64) -> Arc<BoundSegment> {
        Arc::new(BoundSegment { symbols: vec![n], ..BoundSegment::default() })
    }

    /// Keys in the cache, found without touching the order.
    fn keys(c: &BindCache) -> Vec<i64> {
        let mut at = c.newest;
        let mut out = Vec::new();
        while let Some(s) = c.slots.get(at) {
            assert_eq!(c.places[&s.key], at);
            out.push(s.key[0]);
            at = s.older;
        }
        assert_eq!(out.len(), c.len());
        out
    }

    #[test]
    fn the_least_recently_used_goes_and_is_remembered() {
        let mut c = BindCache::new(3, usize::MAX);
        assert_eq!(c.get(&[1]).unwrap_err(), MissReason::First);
        for n in 1..=3 {
            assert_eq!(c.insert(&[n], binding(n), 10), 0);
        }
        assert_eq!(c.get(&[1]).unwrap().symbols, [1]);
        assert_eq!(c.insert(&[4], binding(4), 10), 1);
        assert_eq!(keys(&c), [4, 1, 3]);
        assert_eq!(c.get(&[2]).unwrap_err(), MissReason::EvictedByCount);
        assert_eq!(c.get(&[9]).unwrap_err(), MissReason::NewSizes);
    }

    #[test]
    fn bytes_bound_it_too_and_the_latest_stays() {
        let mut c = BindCache::new(100, 25);
        for n in 1..=3 {
            c.insert(&[n], binding(n), 10);
        }
        assert_eq!((keys(&c), c.bytes()), (vec![3, 2], 20));
        assert_eq!(c.get(&[1]).unwrap_err(), MissReason::EvictedByBytes);
        assert_eq!(c.insert(&[5], binding(5), 1000), 2);
        assert_eq!((keys(&c), c.bytes()), (vec![5], 1000));
    }

    #[test]
    fn it_agrees_with_a_list() {
        let mut rng = crate::testing::Rng(5);
        let mut c = BindCache::new(7, usize::MAX);
        let mut list: Vec<i64> = Vec::new();
        for _ in 0..5000 {
            let n = rng.below(15) as i64;
            let found = c.get(&[n]).map(|b| b.symbols[0]).ok();
            assert_eq!(found, list.contains(&n).then_some(n));
            list.retain(|&x| x != n);
            list.insert(0, n);
            list.truncate(7);
            if found.is_none() {
                c.insert(&[n], binding(n), 1);
            }
            assert_eq!((keys(&c), c.bytes()), (list.clone(), list.len()));
        }
    }
}
