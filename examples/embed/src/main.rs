//! `rlx-example-embed [SOUND]`: how likely there is speech, from a file of 16-bit samples at 16 kHz, or in a hum without one.

use rlx_example_embed::{Vad, speech};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sound: Vec<f32> = match std::env::args().nth(1) {
        Some(path) => {
            let bytes = std::fs::read(path)?;
            bytes.chunks_exact(2).map(|c| f32::from(i16::from_le_bytes([c[0], c[1]])) / 32768.0).collect()
        }
        // A second of a voice-like hum: a fundamental and its overtones.
        None => (0..16_000)
            .map(|i| {
                let t = i as f32 / 16_000.0;
                (1..12).map(|k| (t * 140.0 * k as f32 * std::f32::consts::TAU).sin() * 0.3 / k as f32).sum()
            })
            .collect(),
    };
    let mut vad = Vad::new(rlx::Device::Cpu)?;
    for (i, p) in speech(&mut vad, &sound)?.iter().enumerate() {
        println!("{:6.3} s  {p:.3}", i as f32 * 0.032);
    }
    Ok(())
}
