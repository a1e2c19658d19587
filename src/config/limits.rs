//! Reads `limits` of a config: the limits of the gateway, by the same names as in `Gateway.open`.

use super::tree::{Node, Value};
use crate::limits::LimitChanges;
use crate::text::{Problem, displayed};

/// Reads the section. Each problem makes the whole config unusable, because an ignored limit would protect nobody.
pub(super) fn limits(node: &Node, problems: &mut Vec<Problem>) -> LimitChanges {
    let mut limits = LimitChanges::default();
    let Some(entries) = node.entries() else {
        problems.push(Problem::new("limits", node.position, "must be an object"));
        return limits;
    };
    for entry in entries {
        let field = format!("limits.{}", displayed(&entry.name));
        let number = if let Value::Number(text) = &entry.node.value { text.parse::<u64>().ok() } else { None };
        // The name is checked first. In place of a value that is not a number, this uses a number outside of every range.
        let outcome = limits.set(&entry.name, number.unwrap_or(u64::MAX));
        if let Err(problem) = outcome {
            let is_unknown = problem.contains("unknown");
            let position = if is_unknown { entry.position } else { entry.node.position };
            let problem = if number.is_some() || is_unknown { problem } else { "must be a whole number".to_owned() };
            problems.push(Problem::new(field, position, problem));
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use crate::config::parse_text;

    fn fatal(text: &str) -> String {
        parse_text(text, "c.json", None).unwrap_err().in_full()
    }

    #[test]
    fn limits_are_read_by_the_names_of_the_option() {
        let config = parse_text(r#"{ "limits": { "runTimeoutMs": 120000, "maxServers": 1 } }"#, "c.json", None).unwrap();
        assert_eq!((config.limits.run_timeout_ms, config.limits.max_servers), (Some(120_000), Some(1)));
        assert_eq!(config.limits.max_connections, None);
        assert_eq!(parse_text("{}", "c.json", None).unwrap().limits, crate::limits::LimitChanges::default());
    }

    #[test]
    fn a_wrong_limit_is_a_problem_with_line_and_field() {
        assert_eq!(fatal(r#"{ "limits": 5 }"#), "c.json:1:13: limits: must be an object");
        let unknown = fatal("{ \"limits\": {\n  \"maxServer\": 5 } }");
        assert!(unknown.starts_with("c.json:2:3: limits.maxServer: this key is unknown; there are: maxServers, "), "{unknown}");
        assert_eq!(fatal(r#"{ "limits": { "maxServers": 0 } }"#), "c.json:1:29: limits.maxServers: must be from 1 to 1000, not 0");
        for wrong in ["\"5\"", "1.5", "-1", "null", "[]"] {
            let text = fatal(&format!(r#"{{ "limits": {{ "maxServers": {wrong} }} }}"#));
            assert_eq!(text, "c.json:1:29: limits.maxServers: must be a whole number", "{wrong}");
        }
    }

    #[test]
    fn whether_shapes_of_results_are_learnt_is_a_boolean() {
        let learns = |text: &str| parse_text(text, "c.json", None).unwrap().learn_results;
        let texts = ["{}", r#"{ "learnResults": false }"#, r#"{ "learnResults": true }"#];
        assert_eq!(texts.map(learns), [None, Some(false), Some(true)]);
        for wrong in ["0", "\"no\"", "null", "{}"] {
            let text = fatal(&format!(r#"{{ "learnResults": {wrong} }}"#));
            assert_eq!(text, "c.json:1:19: learnResults: must be true or false");
        }
    }

    #[test]
    fn the_number_of_servers_that_the_config_permits_counts_unless_the_caller_names_one() {
        let text = r#"{ "limits": { "maxServers": 1 }, "mcpServers": { "a": { "command": "x" }, "b": { "command": "x" } } }"#;
        assert_eq!(parse_text(text, "c.json", None).unwrap_err().code(), "ERR_TOO_MANY_SERVERS");
        assert_eq!(parse_text(text, "c.json", 2).unwrap().servers.len(), 2);
        // If a limit cannot be read, the default applies, and the error names the cause.
        let servers: Vec<String> = (0..21).map(|at| format!(r#""s{at}": {{ "command": "x" }}"#)).collect();
        let text = format!(r#"{{ "limits": {{ "maxServers": 5000 }}, "mcpServers": {{ {} }} }}"#, servers.join(", "));
        assert_eq!(fatal(&text), "c.json:1:29: limits.maxServers: must be from 1 to 1000, not 5000");
    }
}
