//! Tokens that language models report: OpenAI, Anthropic, Gemini, and those that speak like them.

use serde_json::Value;

use super::pointer::units;

/// What the documents of a response have reported so far.
#[derive(Clone, Debug, Default)]
pub(super) struct LlmUsage {
    /// OpenAI's `total_tokens`, Gemini's `totalTokenCount`: the last one. Gemini repeats it, for all so far.
    total: Option<u64>,
    /// Anthropic's tokens, each for all so far.
    parts: Option<UsageParts>,
    /// The bytes of generated text, for an estimate.
    text: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct UsageParts {
    input: u64,
    written_to_cache: u64,
    read_from_cache: u64,
    output: u64,
    /// Whether `output` is more than the first value, which is sent before there is any output.
    has_output: bool,
}

/// How many tokens a response cost, if that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenCount {
    Reported(u64),
    Estimated(u64),
}

/// How many bytes of text a token has, about.
pub(super) const BYTES_PER_TOKEN: u64 = 4;

impl LlmUsage {
    /// Reads a document of a response: the whole one, an event, or an entry of a list.
    pub(super) fn see(&mut self, document: &[u8]) {
        let Ok(document) = serde_json::from_slice::<Value>(document) else { return };
        self.usage(&document, true);
        // The final event of OpenAI's responses, and the first one of Anthropic's messages.
        self.usage(&document["response"], true);
        self.usage(&document["message"], false);
        self.text = self.text.saturating_add(generated_text(&document));
    }

    /// What is known at the end, or when the stream is cut.
    pub(super) fn count(&self) -> Option<TokenCount> {
        let estimate = self.text.div_ceil(BYTES_PER_TOKEN);
        match (self.total, &self.parts) {
            (Some(total), _) => Some(TokenCount::Reported(total)),
            (None, Some(parts)) if parts.has_output => Some(TokenCount::Reported(parts.sum(parts.output))),
            (None, Some(parts)) => Some(TokenCount::Estimated(parts.sum(parts.output.max(estimate)))),
            (None, None) => (self.text > 0).then_some(TokenCount::Estimated(estimate)),
        }
    }

    fn usage(&mut self, holder: &Value, has_output: bool) {
        if let Some(total) = units(&holder["usageMetadata"]["totalTokenCount"]) {
            self.total = Some(total);
        }
        let Value::Object(usage) = &holder["usage"] else { return };
        let tokens = |names: [&str; 2]| names.into_iter().find_map(|name| usage.get(name).and_then(units));
        if let Some(total) = tokens(["total_tokens", "totalTokens"]) {
            self.total = Some(total);
            return;
        }
        let (input, output) = (["input_tokens", "prompt_tokens"], ["output_tokens", "completion_tokens"]);
        let (input, output) = (tokens(input), tokens(output));
        if input.is_none() && output.is_none() {
            return;
        }
        // Some servers report the input at the end and 0 at the beginning, so the larger is the right one.
        let parts = self.parts.get_or_insert_default();
        let cached = |name| usage.get(name).and_then(units).unwrap_or(0);
        parts.input = parts.input.max(input.unwrap_or(0));
        parts.written_to_cache = parts.written_to_cache.max(cached("cache_creation_input_tokens"));
        parts.read_from_cache = parts.read_from_cache.max(cached("cache_read_input_tokens"));
        parts.output = parts.output.max(output.unwrap_or(0));
        parts.has_output |= has_output && output.is_some();
    }
}

impl UsageParts {
    fn sum(&self, output: u64) -> u64 {
        [self.written_to_cache, self.read_from_cache, output].into_iter().fold(self.input, u64::saturating_add)
    }
}

/// The bytes of text that a document adds to a response.
fn generated_text(document: &Value) -> u64 {
    let length = |value: &Value| value.as_str().map_or(0, str::len) as u64;
    let lengths = |value: &Value, names: &[&str]| -> u64 { names.iter().map(|name| length(&value[name])).sum() };
    let delta = &document["delta"];
    let mut text = length(delta) + lengths(delta, &["text", "partial_json", "thinking"]);
    for choice in list(&document["choices"]) {
        let delta = &choice["delta"];
        text += lengths(choice, &["text"]) + lengths(delta, &["content", "reasoning_content", "refusal"]);
        text += list(&delta["tool_calls"]).iter().map(|call| length(&call["function"]["arguments"])).sum::<u64>();
    }
    for candidate in list(&document["candidates"]) {
        text += list(&candidate["content"]["parts"]).iter().map(|part| length(&part["text"])).sum::<u64>();
    }
    text
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
