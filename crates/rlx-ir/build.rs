//! Names the sources, for artefacts.

fn main() -> std::io::Result<()> {
    rlx_sources::name()
}
