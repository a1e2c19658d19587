//! The part of a score that comes from the meaning of a question: the similarity of the vectors of the question and the tool.
//!
//! The module `embedding` gets the vectors from a sentence model. A tool's score has two parts: its score by words divided by the best
//! score by words, and the weighted meaning. The meaning is the similarity in standard deviations above the mean. Both the mean and the
//! deviation are constants, so that the texts of one server do not change the scores of other tools. All constants were chosen on the
//! development half of docs/EVAL.md.

use std::sync::Arc;

use super::cut_chars;
use crate::catalog::Tool;
use crate::embedding::{TextDigest, Vector};

/// Weight of the meaning. The best score by words has the weight 1.
const WEIGHT: f32 = 0.3;
/// Mean and standard deviation of the cosines between questions and tools.
const MEAN: f32 = 0.058;
const DEVIATION: f32 = 0.075;
/// Bounds of the meaning, in standard deviations. The upper bound limits the gain of a tool whose text was written for one question.
const LEAST: f32 = -3.0;
const MOST: f32 = 8.0;
/// Minimum meaning of a tool that contains no word of the question. A tool with a lower meaning is not found.
const WITHOUT_WORDS: f32 = 2.0;
/// Expected meaning of a tool that contains a word of the question: the meaning at the lowest score by words, and the increase up to the
/// best score by words. A tool whose vector is not known gets this meaning, so that its place depends on its words.
const EXPECTED: (f32, f32) = (0.0, 3.5);
/// Maximum length of a description in the text of a tool, in characters.
const MAX_DESCRIPTION_CHARS: usize = 1_000;
const MAX_NAME_CHARS: usize = 100;
const MAX_PARAMETERS: usize = 40;

/// The vectors for one search.
#[derive(Debug)]
pub struct Meaning {
    pub question: Arc<Vector>,
    /// The vectors of all tools of the index, in the order of [`super::SearchIndex::texts`]. `None` if a vector is not known yet.
    pub tools: Vec<Option<Arc<Vector>>>,
}

/// A tool whose text has a vector. The vector is stored under the digest of the text. [`Self::text`] makes the text.
#[derive(Debug, Clone, Copy)]
pub struct ToolText<'a> {
    pub digest: TextDigest,
    pub(super) server: &'a str,
    pub(super) tool: &'a Tool,
}

impl ToolText<'_> {
    /// Returns the text that the model reads.
    #[must_use]
    pub fn text(&self) -> String {
        text(self.server, self.tool)
    }
}

pub(super) fn text(server: &str, tool: &Tool) -> String {
    let title = tool.title.as_deref().unwrap_or_default();
    let description = tool.description.as_deref().unwrap_or_default();
    let parameters = tool.input_schema.get("properties").and_then(serde_json::Value::as_object);
    let parameters: Vec<_> =
        parameters.into_iter().flatten().take(MAX_PARAMETERS).map(|(name, _)| cut_chars(name, MAX_NAME_CHARS)).collect();
    let [server, name, title] = [server, &tool.name, title].map(|name| cut_chars(name, MAX_NAME_CHARS));
    let description = cut_chars(description, MAX_DESCRIPTION_CHARS);
    format!("{server} {name} {title}: {description} ({})", parameters.join(", "))
}

/// Returns the scores of tools by words and meaning. `words` are the scores by words alone. A tool that is not found has the score 0, and
/// every other tool has a greater score.
pub(super) fn with_meaning(words: &[f32], scope: &[bool], meaning: &Meaning) -> Vec<f32> {
    let best = words.iter().copied().fold(0.0_f32, f32::max);
    let share = |score: f32| if best > 0.0 { score / best } else { 0.0 };
    let score = |(document, &score): (usize, &f32)| {
        if !scope[document] {
            return 0.0;
        }
        let share = share(score);
        let near = match meaning.tools.get(document).and_then(Option::as_ref) {
            Some(vector) => ((meaning.question.cosine(vector) - MEAN) / DEVIATION).clamp(LEAST, MOST),
            None if share > 0.0 => EXPECTED.0 + EXPECTED.1 * share,
            None => LEAST,
        };
        if share > 0.0 || near >= WITHOUT_WORDS { share + WEIGHT * (near - LEAST) } else { 0.0 }
    };
    words.iter().enumerate().map(score).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::embedding::DIMENSIONS;

    /// Returns a vector whose cosine with the first axis is about `cosine`.
    fn toward(cosine: f32) -> Arc<Vector> {
        let mut values = [0; DIMENSIONS];
        #[expect(clippy::cast_possible_truncation, reason = "from -127 to 127")]
        let rounded = |value: f32| (value * 127.0).round() as i8;
        values[0] = rounded(cosine);
        values[1] = rounded((1.0 - cosine * cosine).sqrt());
        Arc::new(Vector::new(&values).unwrap())
    }

    fn meaning(cosines: &[Option<f32>]) -> Meaning {
        Meaning { question: toward(1.0), tools: cosines.iter().map(|cosine| cosine.map(toward)).collect() }
    }

    fn scores<const N: usize>(words: [f32; N], cosines: [Option<f32>; N]) -> [f32; N] {
        with_meaning(&words, &[true; N], &meaning(&cosines)).try_into().unwrap()
    }

    #[test]
    fn a_near_tool_is_found_without_a_word_and_a_far_one_is_not() {
        let [near, far, word] = scores([0.0, 0.0, 2.0], [Some(0.9), Some(0.2), Some(0.3)]);
        assert!(near > word && word > 0.0 && far == 0.0, "{near} {far} {word}");
        let [near, far] = scores([0.0, 0.0], [Some(0.9), Some(0.2)]);
        assert!(near > 0.0 && far == 0.0, "the same without any word");
    }

    #[test]
    fn among_tools_of_the_same_words_the_nearer_is_better_and_among_the_same_meaning_the_one_with_better_words() {
        let [near, far] = scores([2.0, 2.0], [Some(0.6), Some(0.4)]);
        assert!(near > far);
        let [good, fair] = scores([2.0, 1.0], [Some(0.4), Some(0.4)]);
        assert!(good > fair);
    }

    #[test]
    fn a_tool_whose_vector_is_not_known_stays_among_those_of_as_many_words() {
        let [far, unknown, near] = scores([2.0, 2.0, 2.0], [Some(-0.1), None, Some(0.8)]);
        assert!(far < unknown && unknown < near, "{far} {unknown} {near}");
        let [best, second, none] = scores([3.0, 2.0, 0.0], [None, None, None]);
        assert!(best > second && second > 0.0 && none == 0.0);
    }

    #[test]
    fn a_text_that_is_made_for_a_question_gains_no_more_than_the_bound() {
        let [same, near] = scores([0.0, 0.0], [Some(1.0), Some(MEAN + (MOST + 0.1) * DEVIATION)]);
        assert!((same - near).abs() < 1e-6 && (same - WEIGHT * (MOST - LEAST)).abs() < 1e-6, "{same} {near}");
    }

    #[test]
    fn the_tools_of_one_server_do_not_move_the_scores_of_others_by_their_meaning() {
        let alone = scores([2.0, 1.0], [Some(0.4), Some(0.5)]);
        let beside = scores([2.0, 1.0, 1.0, 0.0], [Some(0.4), Some(0.5), Some(1.0), Some(1.0)]);
        assert_eq!(alone.map(f32::to_bits)[..], beside.map(f32::to_bits)[..2]);
    }

    #[test]
    fn what_is_not_searched_is_not_found() {
        let scores = with_meaning(&[0.0, 0.0], &[false, true], &meaning(&[Some(1.0), Some(1.0)]));
        assert!(scores[0] == 0.0 && scores[1] > 0.0);
        assert_eq!(with_meaning(&[1.0, 0.0], &[true, true], &meaning(&[])).iter().filter(|score| **score > 0.0).count(), 1);
    }

    #[test]
    fn the_text_of_a_tool_is_bounded() {
        let properties: serde_json::Map<_, _> =
            (0..500).map(|index| (format!("{index}{}", "p".repeat(500)), serde_json::json!({}))).collect();
        let tool =
            serde_json::json!({ "name": "n".repeat(9_000), "description": "ü".repeat(9_000), "inputSchema": { "properties": properties } });
        let text = text("server", &serde_json::from_value(tool).unwrap());
        assert!(text.starts_with("server nnn") && text.len() < 8_000, "{}", text.len());
    }

    proptest! {
        #[test]
        fn scores_are_finite_and_what_has_a_word_is_found(
            tools in proptest::collection::vec((0.0_f32..50.0, proptest::option::of(-1.0_f32..1.0)), 1..30),
        ) {
            let (words, cosines): (Vec<_>, Vec<_>) = tools.into_iter().unzip();
            let scores = with_meaning(&words, &vec![true; words.len()], &meaning(&cosines));
            for (score, words) in scores.iter().zip(&words) {
                prop_assert!(score.is_finite() && *score >= 0.0);
                // A tool that matches a word has a score above 0, even if its vector is as far from the query as possible. The score may be tiny.
                prop_assert!(*words < 1e-3 || *score > 0.0);
            }
        }
    }
}
