//! The sentence model: all-MiniLM-L6-v2 with int8 weights, as an ONNX file, and its tokenizer.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use rten::{ModelOptions, NodeId, RunOptions, ThreadPool};
use rten_tensor::prelude::*;
use rten_tensor::{NdTensor, NdTensorView};
use rten_text::Tokenizer;
use rten_text::tokenizer::EncodeOptions;

/// The number of dimensions of a vector.
pub const DIMENSIONS: usize = 384;
/// The number of tokens of a text that are read, as in the model's own configuration.
const MAX_TOKENS: usize = 256;
/// The largest absolute value of a number in a vector.
const LARGEST: f32 = 127.0;

/// The loaded model.
pub struct Model {
    model: rten::Model,
    tokenizer: Tokenizer,
    /// The inputs: the tokens, which of them count, and the number of each token's sentence.
    inputs: [NodeId; 3],
    output: NodeId,
    options: RunOptions,
}

impl Model {
    /// Loads the model from `model.onnx` and `tokenizer.json` in a folder.
    pub fn load(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let tokenizer = Tokenizer::from_json(&fs::read_to_string(folder.join("tokenizer.json"))?)?;
        let model = ModelOptions::with_all_ops().prepack_weights(true).load(fs::read(folder.join("model.onnx"))?)?;
        let inputs = [model.node_id("input_ids")?, model.node_id("attention_mask")?, model.node_id("token_type_ids")?];
        let output = *model.output_ids().first().ok_or("the model has no output")?;
        // One thread, so that the work in the background leaves the other processors to the agent.
        let options = RunOptions::default().with_thread_pool(Some(Arc::new(ThreadPool::with_num_threads(1))));
        let loaded = Self { model, tokenizer, inputs, output, options };
        // The first run also allocates what later runs use again.
        loaded.vector("warm up")?;
        Ok(loaded)
    }

    /// Returns the vector of a text: the mean of its tokens' vectors, scaled to whole numbers.
    pub fn vector(&self, text: &str) -> Result<Vec<i8>, Box<dyn Error>> {
        let options = EncodeOptions { max_chunk_len: Some(MAX_TOKENS), ..EncodeOptions::default() };
        let encoded = self.tokenizer.encode(text, Some(options))?;
        let tokens: Vec<i32> = encoded.token_ids().iter().map(|token| i32::try_from(*token)).collect::<Result<_, _>>()?;
        let count = tokens.len();
        let [ids, mask, sentence] = [tokens, vec![1; count], vec![0; count]].map(|values| NdTensor::from_data([1, count], values));
        let inputs = self.inputs.into_iter().zip([ids.view().into(), mask.view().into(), sentence.view().into()]).collect();
        let [hidden] = self.model.run_n(inputs, [self.output], Some(self.options.clone()))?;
        let hidden: NdTensor<f32, 3> = hidden.try_into()?;
        if hidden.shape() != [1, count, DIMENSIONS] {
            return Err(format!("the model's output has the shape {:?}", hidden.shape()).into());
        }
        Ok(scaled(&sum(&hidden.view())))
    }
}

/// Returns the sum of the tokens' vectors. It has the direction of their mean.
fn sum(hidden: &NdTensorView<f32, 3>) -> Vec<f32> {
    (0..DIMENSIONS).map(|dimension| (0..hidden.size(1)).map(|token| hidden[[0, token, dimension]]).sum()).collect()
}

/// Scales a vector, so that its largest number is [`LARGEST`], and rounds its numbers.
fn scaled(vector: &[f32]) -> Vec<i8> {
    let largest = vector.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    #[expect(clippy::cast_possible_truncation, reason = "from -127 to 127")]
    let round = |value: &f32| if largest > 0.0 { (value / largest * LARGEST).round() as i8 } else { 0 };
    vector.iter().map(round).collect()
}
