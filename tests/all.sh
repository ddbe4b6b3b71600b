#!/usr/bin/env bash
# Every check of the project, on a fresh machine: format, lints, rules, generated files, all tests, a minute of fuzzing.
# Needs the Rust toolchain; what else a step needs it fetches itself, pinned, from the package registries.
set -euo pipefail
cd "$(dirname "$0")/.."
step() { printf '\n== %s\n' "$*"; "$@"; }

step cargo fmt --all --check
step cargo fmt --manifest-path examples/backend/Cargo.toml --check
step cargo fmt --manifest-path examples/embed/Cargo.toml --check
step cargo clippy --workspace --all-targets -- -D warnings
step cargo xtask tidy
step cargo xtask docs --check
step cargo test --workspace
step cargo test --manifest-path examples/backend/Cargo.toml --target-dir target
step cargo test --manifest-path examples/embed/Cargo.toml --target-dir target
# NEON is compiled everywhere; running it needs a machine or an emulator.
if rustup target add aarch64-unknown-linux-gnu; then
    step cargo check -p rlx-cpu --target aarch64-unknown-linux-gnu
else
    printf '\n== skipped: the standard library for aarch64 could not be installed\n'
fi
step cargo run --release --manifest-path fuzz/Cargo.toml --bin smoke -- 60
