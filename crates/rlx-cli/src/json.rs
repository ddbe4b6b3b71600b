//! JSON output.

use serde::Serialize;

use crate::error::CliError;

/// One JSON object on one line.
pub fn line(value: &impl Serialize) -> Result<String, CliError> {
    serde_json::to_string(value).map(|s| s + "\n").map_err(|e| CliError::Other(e.to_string()))
}

/// A float that JSON can hold: `null` for NaN and infinities.
pub fn number(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}
