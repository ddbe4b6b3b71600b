//! Which rules belong to which name, in this process.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::CustomRules;
use crate::error::OpError;

static RULES: RwLock<BTreeMap<String, Arc<dyn CustomRules>>> = RwLock::new(BTreeMap::new());

/// Registers rules under a name such as `com.acme.Swirl`. The last registration of a name wins; graphs that were made before keep what they
/// were told of their types.
pub fn register(name: impl Into<String>, rules: impl CustomRules + 'static) {
    RULES.write().unwrap_or_else(PoisonError::into_inner).insert(name.into(), Arc::new(rules));
}

/// Whether rules are registered under a name.
pub fn is_registered(name: &str) -> bool {
    RULES.read().unwrap_or_else(PoisonError::into_inner).contains_key(name)
}

/// All names that rules are registered under.
pub fn names() -> Vec<String> {
    RULES.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
}

/// The rules of a name. They are taken out of the registry, which is free again while they run.
pub(super) fn rules(name: &str) -> Result<Arc<dyn CustomRules>, OpError> {
    let found = RULES.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    found.ok_or_else(|| {
        let known = match &names()[..] {
            [] => "none is".to_owned(),
            all => format!("registered are {}", all.join(", ")),
        };
        OpError::new(format!("custom op `{name}` is not registered; {known}"))
            .hint("register its rules with `rlx::custom::register` before graphs with it are made, read or loaded")
    })
}
