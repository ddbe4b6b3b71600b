//! A detector of speech as a type: the model is in the program.

rlx::include_model! {
    /// Tells speech from silence, 576 samples at 16 kHz at a time (64 of them those before).
    pub struct Vad = "../../models/silero_vad/model.onnx";
}

rlx::include_model! {
    /// A product with fixed weights, from text.
    pub struct Product = "src/product.rlx";
}

/// Probabilities of speech in a sound of 16 kHz, one for each 512 samples.
pub fn speech(vad: &mut Vad, sound: &[f32]) -> Result<Vec<f32>, rlx::Error> {
    let mut state = rlx::embed::Array::zeros([2, 1, 128]);
    let mut window = vec![0.0f32; 576];
    let mut out = Vec::new();
    for part in sound.chunks_exact(512) {
        window.copy_within(512.., 0);
        window.truncate(64);
        window.extend_from_slice(part);
        let result = vad.run(rlx::embed::View::new([1, 576], &window), state.view(), 16_000)?;
        state = result.staten;
        out.extend(result.output.iter().map(|[p]| *p));
    }
    Ok(out)
}
