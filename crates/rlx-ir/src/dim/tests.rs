//! Tests of dims.
