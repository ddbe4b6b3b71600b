//! The subcommands.

pub mod artefact;
pub mod bench;
pub mod bisect;
pub mod compile;
pub mod export;
pub mod inspect;
pub mod opt;
pub mod profile;
pub mod quantize;
pub mod run;
pub mod verify;

/// What a command gives.
pub struct Outcome {
    /// Its results, for stdout.
    pub text: String,
    /// False for a mismatch.
    pub success: bool,
}

impl Outcome {
    /// Results of a command that cannot mismatch.
    pub fn ok(text: String) -> Self {
        Outcome { text, success: true }
    }
}
