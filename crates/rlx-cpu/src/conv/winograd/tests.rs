//! Winograd against f64 loops.
