//! Describes functions that have a TypeScript signature: functions of the modules that the agent's author adds, and functions of
//! `host:mcp`.

use super::{FunctionInfo, ParameterInfo};
use crate::catalog::AgentFunction;

/// Describes a function of a module that the agent's author adds.
pub(super) fn of_agent(function: &AgentFunction) -> FunctionInfo {
    let (parameters, returns) = function.signature.as_deref().and_then(split).unwrap_or(("(...args: any[])", "any"));
    described(&function.name, parameters, returns, function.description.as_deref().unwrap_or_default())
}

/// Describes a function. `parameters` is a list such as `(city: string, days?: number)`.
pub(super) fn described(name: &str, parameters: &str, returns: &str, purpose: &str) -> FunctionInfo {
    let listed = listed(parameters);
    let given: Vec<&str> = listed.iter().filter(|parameter| parameter.required).map(|parameter| parameter.name.as_str()).collect();
    FunctionInfo {
        name: name.to_owned(),
        tool: None,
        purpose: purpose.to_owned(),
        signature: format!("{name}{parameters}: {returns}"),
        example: format!("{name}({})", given.join(", ")),
        parameters: listed,
        returns: returns.to_owned(),
        results_seen: None,
        caveats: Vec::new(),
    }
}

/// Splits a function type into its parameters and its return type. The parameters include type parameters.
fn split(signature: &str) -> Option<(&str, &str)> {
    let open = signature.find('(')?;
    let end = open + top_level(&signature[open..], |_, depth| depth == 0).next()? + 1;
    let returns = signature[end..].trim_start().strip_prefix("=>")?;
    Some((signature[..end].trim(), returns.trim()))
}

/// Parses a list of parameters such as `(a: string, b?: { c: number })`.
fn listed(parameters: &str) -> Vec<ParameterInfo> {
    let Some(inside) = parameters.find('(').and_then(|open| parameters[open + 1..].strip_suffix(')')) else { return Vec::new() };
    let mut parts = Vec::new();
    let mut start = 0;
    for comma in top_level(inside, |character, depth| character == ',' && depth == 0) {
        parts.push(&inside[start..comma]);
        start = comma + 1;
    }
    parts.push(&inside[start..]);
    parts.into_iter().filter_map(parameter).collect()
}

fn parameter(part: &str) -> Option<ParameterInfo> {
    let (name, declared) = part.split_once(':')?;
    let (name, is_rest) = match name.trim().strip_prefix("...") {
        Some(name) => (name, true),
        None => (name.trim(), false),
    };
    let plain = name.trim_end_matches('?');
    let required = !is_rest && plain == name;
    Some(ParameterInfo { name: plain.trim().to_owned(), declared: declared.trim().to_owned(), required, description: None, default: None })
}

/// Returns the positions of those commas and closing brackets for which `wanted` returns true. `wanted` gets the character and its
/// nesting depth. For a bracket, this is the depth after it. Strings are skipped. The `>` of an arrow `=>` does not count as a bracket.
fn top_level(text: &str, wanted: impl Fn(char, usize) -> bool) -> impl Iterator<Item = usize> {
    let (mut depth, mut quote, mut before) = (0_usize, None, ' ');
    text.char_indices().filter_map(move |(index, character)| {
        let last = std::mem::replace(&mut before, character);
        match (quote, character) {
            (Some(open), _) if character == open && last != '\\' => quote = None,
            (None, '"' | '\'' | '`') => quote = Some(character),
            (None, '(' | '[' | '{' | '<') => depth += 1,
            (None, '>') if last == '=' => return None,
            (None, ')' | ']' | '}' | '>') => {
                depth = depth.saturating_sub(1);
                return wanted(character, depth).then_some(index);
            }
            (None, ',') => return wanted(character, depth).then_some(index),
            // The character is inside a string, or has no special meaning.
            _ => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(signature: &str) -> (String, String, String) {
        let function = AgentFunction { name: "f".into(), description: None, signature: Some(signature.into()) };
        let info = of_agent(&function);
        (info.signature, info.returns, info.example)
    }

    #[test]
    fn a_signature_is_split_where_its_parameters_end() {
        for (signature, line, returns, example) in [
            ("() => number", "f(): number", "number", "f()"),
            ("(x: number) => (y: string) => void", "f(x: number): (y: string) => void", "(y: string) => void", "f(x)"),
            (
                "(cb: () => void, more?: string) => { f: () => string }",
                "f(cb: () => void, more?: string): { f: () => string }",
                "{ f: () => string }",
                "f(cb)",
            ),
            ("<T>(a: ')' | T, ...rest: T[]) => T", "f<T>(a: ')' | T, ...rest: T[]): T", "T", "f(a)"),
        ] {
            assert_eq!(told(signature), (line.to_owned(), returns.to_owned(), example.to_owned()));
        }
    }

    #[test]
    fn without_a_signature_anything_may_be_given() {
        let info = of_agent(&AgentFunction { name: "f".into(), description: None, signature: None });
        assert_eq!(info.signature, "f(...args: any[]): any");
        assert_eq!(info.parameters[0].name, "args");
        assert!(!info.parameters[0].required);
    }
}
