//! Bindings kept by the sizes that they were made from; the least recently used ones go.

use super::BoundSegment;
use std::collections::HashMap;
use std::sync::Arc;

/// A bounded map from sizes to bindings.
pub struct BindCache {
    entries: HashMap<Box<[i64]>, (u64, Arc<BoundSegment>)>,
    capacity: usize,
    clock: u64,
}

impl BindCache {
    /// An empty cache of at least one binding.
    pub fn new(capacity: usize) -> BindCache {
        BindCache { entries: HashMap::new(), capacity: capacity.max(1), clock: 0 }
    }

    /// The binding of these sizes.
    pub fn get(&mut self, key: &[i64]) -> Option<Arc<BoundSegment>> {
        self.clock += 1;
        let (used, bound) = self.entries.get_mut(key)?;
        *used = self.clock;
        Some(bound.clone())
    }

    /// Keeps a binding.
    pub fn insert(&mut self, key: &[i64], bound: Arc<BoundSegment>) {
        self.clock += 1;
        if self.entries.len() >= self.capacity
            && !self.entries.contains_key(key)
            && let Some(oldest) = self.entries.iter().min_by_key(|(_, (used, _))| *used).map(|(k, _)| k.clone())
        {
            self.entries.remove(&oldest);
        }
        self.entries.insert(key.into(), (self.clock, bound));
    }

    /// Number of bindings kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if none is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
