//! The contract of devices, sessions, options, compiled graphs and dynamic shapes: a file per section, a test per row, named
//! `spec_<section>_<row>`.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod backends;
mod harness;
mod spec0_names;
mod spec1_devices;
mod spec2_session;
mod spec3_options;
mod spec3_prepare;
mod spec4_parameters;
mod spec4_rng;
mod spec4_running;
mod spec4_state;
mod spec5_dynamic;
mod spec6_ways;
