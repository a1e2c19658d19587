use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::catalog::{Catalog, DeclarationStyle, Manifest, SeenResults, Wording};
use crate::text::{sanitise_line, sanitise_text};

/// A module of functions with texts of chosen lengths.
struct Words {
    specifier: String,
    /// For each function, how many words its line has, and how many its declaration has.
    functions: Vec<(usize, usize)>,
}

fn words(number: usize, of: &str) -> String {
    vec![of; number].join(" ")
}

impl Module for Words {
    fn specifier(&self) -> &str {
        &self.specifier
    }

    fn purpose(&self) -> String {
        "A module.".to_owned()
    }

    fn functions(&self) -> usize {
        self.functions.len()
    }

    fn example(&self, function: usize) -> String {
        format!("f_{function}()")
    }

    fn line(&self, function: usize) -> String {
        format!("  - f_{function}(): {}\n", words(self.functions[function].0, "line"))
    }

    fn bytes(&self, function: usize) -> usize {
        self.functions[function].1 * 10
    }

    fn declaration(&self, functions: &[usize]) -> String {
        let one =
            |function: &usize| format!("  /** {} */\n  function f_{function}(): void;\n", words(self.functions[*function].1, "declared"));
        format!("declare module \"{}\" {{\n{}}}\n", self.specifier, functions.iter().map(one).collect::<String>())
    }

    fn name(&self, function: usize) -> String {
        format!("{}.f_{function}", self.specifier)
    }
}

fn module(name: &str, functions: &[(usize, usize)]) -> Box<dyn Module> {
    Box::new(Words { specifier: format!("host:{name}"), functions: functions.to_vec() })
}

fn message(modules: &[Box<dyn Module>], budget: usize) -> String {
    system_message(modules, &[], Failures::Returned, budget).unwrap()
}

#[test]
fn no_text_ends_a_code_block() {
    assert_eq!(text::fenced("ts", "/** Use `x`. */"), "```ts\n/** Use `x`. */\n```\n");
    assert_eq!(text::fenced("ts", "/**\n```\n````sh\n */"), "`````ts\n/**\n```\n````sh\n */\n`````\n");
}

#[test]
fn lines_for_all_come_before_declarations_and_none_waits_for_the_whole_of_a_module() {
    let modules = [module("small", &[(3, 40), (3, 40)]), module("large", &[(3, 60), (3, 60), (3, 2_000), (3, 60)])];
    let text = message(&modules, 600);
    for line in ["f_1(): line", "f_2(): line"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(text.contains("declare module \"host:large\"") && text.contains("6 functions:"), "a part of a module is declared: {text}");
    assert!(!text.contains("not shown:") && estimate_tokens(&message(&modules, 400_000)) > 2_000, "{text}");
}

#[test]
fn what_is_left_out_is_counted_and_what_is_cut_says_where_the_rest_is() {
    let modules = [module("a", &[(30, 40); 40]), module("b", &[(30, 40); 2])];
    let text = message(&modules, 500);
    assert!(text.contains("2 modules with 42 functions; ") && text.contains("of them are not shown:"), "{text}");
    let told = text.matches("  - f_").count();
    assert!(text.contains(&format!("; {} of them", 42 - told)), "{told}\n{text}");
    assert!(text.contains("- host:b (2 functions): A module.") && text.contains("search(\"what it should do\")"), "{text}");
    let one = message(&[module("a", &[(3, 5_000)])], 500);
    assert!(one.contains("… (the rest: describe(\"host:a.f_0\"))") && !one.contains("not shown:"), "{one}");
}

#[test]
fn servers_take_turns_and_what_was_found_for_a_task_comes_first() {
    let modules = [module("a", &[(20, 30); 30]), module("b", &[(20, 30); 30])];
    let text = message(&modules, 600);
    let lines =
        |name: &str| text.split(&format!("- host:{name} ")).nth(1).unwrap().split("- host:").next().unwrap().matches("  - f_").count();
    assert!(lines("a").abs_diff(lines("b")) <= 1, "{text}");
    let found = system_message(&modules, &[(1, 27), (0, 9)], Failures::Returned, 600).unwrap();
    assert!(found.contains("f_27()") && found.contains("function f_27") && found.contains("function f_9("), "{found}");
    let declarations = found.split("```ts").nth(1).unwrap();
    assert!(!declarations.contains("f_0("), "{found}");
}

#[test]
fn below_a_line_a_module_there_are_names_and_below_those_an_error_that_names_the_least() {
    let modules: Vec<_> = (0..200).map(|index| module(&format!("server-{index}"), &[(3, 10); 5])).collect();
    let Err(Error::InvalidOption { problem, .. }) = system_message(&modules, &[], Failures::Thrown, 5) else { panic!("too little") };
    let least: usize = problem.split(|next: char| !next.is_ascii_digit()).find_map(|word| word.parse().ok()).unwrap();
    assert!(system_message(&modules, &[], Failures::Thrown, least).unwrap().contains("200 modules with 1000 functions"));
    assert!(system_message(&modules, &[], Failures::Thrown, least - 1).is_err());
    let names = system_message(&modules, &[], Failures::Thrown, 400).unwrap();
    assert!(names.contains("host:server-0 host:server-1 "), "{names}");
}

#[test]
fn without_any_server_it_still_says_how_code_is_run() {
    let message = message(&[], 1_000);
    assert!(message.contains("0 modules with 0 functions") && message.contains("handler(input)"), "{message}");
}

#[test]
fn what_cannot_fit_is_not_declared() {
    struct Huge;
    impl Module for Huge {
        fn specifier(&self) -> &'static str {
            "host:huge"
        }
        fn purpose(&self) -> String {
            String::new()
        }
        fn functions(&self) -> usize {
            3
        }
        fn example(&self, _: usize) -> String {
            String::new()
        }
        fn line(&self, function: usize) -> String {
            format!("  - f_{function}()\n")
        }
        fn bytes(&self, _: usize) -> usize {
            50_000_000
        }
        fn declaration(&self, _: &[usize]) -> String {
            panic!("this takes long")
        }
        fn name(&self, _: usize) -> String {
            String::new()
        }
    }
    for budget in [300, 2_000, 100_000_000] {
        assert!(message(&[Box::new(Huge)], budget).contains("f_2()"));
    }
}

/// Modules of any sizes, and functions that were found.
fn catalogue() -> impl Strategy<Value = (Vec<Vec<(usize, usize)>>, Vec<FunctionPosition>)> {
    let function = (0..40_usize, prop_oneof![0..60_usize, 0..60_usize, 500..1_500_usize]);
    let modules = prop::collection::vec(prop::collection::vec(function, 0..16), 0..8);
    (modules, prop::collection::vec((0..8_usize, 0..16_usize), 0..8)).prop_map(|(modules, found)| {
        let known = |(module, function): &FunctionPosition| modules.get(*module).is_some_and(|functions| *function < functions.len());
        let unique: std::collections::BTreeSet<FunctionPosition> = found.into_iter().filter(known).collect();
        (modules.clone(), unique.into_iter().collect())
    })
}

/// Servers whose tools have any number of parameters, with descriptions of any length.
fn servers() -> impl Strategy<Value = Vec<Manifest>> {
    let words = || prop_oneof![Just(0), 1..12_usize, 1..12_usize, 100..400_usize].prop_map(|count| words(count, "describes it"));
    let parameter =
        (prop_oneof!["[a-z]{3,9}", "[a-z]{3,6}_[a-z]{3,6}"], prop_oneof![Just("string"), Just("integer")], words(), any::<bool>());
    let tool = ("[a-z]{3,8}_[a-z]{3,8}", words(), prop::collection::vec(parameter, 0..6), any::<bool>());
    prop::collection::vec(prop::collection::vec(tool, 1..12).prop_map(manifest), 1..5)
}

type Parameter = (String, &'static str, String, bool);

fn manifest(tools: Vec<(String, String, Vec<Parameter>, bool)>) -> Manifest {
    let tool = |(name, description, parameters, has_output): (String, String, Vec<Parameter>, bool)| {
        let required: Vec<_> = parameters.iter().filter(|(.., required)| *required).map(|(name, ..)| name.clone()).collect();
        let property = |(name, kind, text, _): Parameter| (name, json!({ "type": kind, "description": text }));
        let properties: serde_json::Map<_, _> = parameters.into_iter().map(property).collect();
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        let output = has_output.then(|| schema.clone());
        json!({ "name": name, "description": description, "inputSchema": schema, "outputSchema": output })
    };
    let tools: Vec<_> = tools.into_iter().map(tool).collect();
    serde_json::from_value(json!({ "protocolVersion": "", "serverName": "S", "serverVersion": "1", "tools": tools })).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn the_budget_is_kept_and_used_for_servers(manifests in servers(), budget in 200_usize..4_000) {
        let style = DeclarationStyle {
            wording: Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 },
            failures: Failures::Thrown,
            seen: SeenResults::default(),
        };
        let servers = manifests.into_iter().enumerate().map(|(index, manifest)| (format!("server-{index}"), Arc::new(manifest)));
        let catalog = Catalog::new(servers.collect(), Vec::new(), style);
        let text = catalog.system_message(budget).unwrap();
        let used = estimate_tokens(&text);
        prop_assert!(used <= budget, "{used} > {budget}");
        prop_assert!(used * 100 >= budget * 85 || text == catalog.system_message(10_000_000).unwrap(), "{used} of {budget}\n{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_budget_is_kept_and_used_where_there_is_more_to_say((sizes, found) in catalogue(), budget in 200_usize..4_000) {
        let modules: Vec<_> = sizes.iter().enumerate().map(|(index, functions)| module(&format!("s{index}"), functions)).collect();
        let of = |budget| system_message(&modules, &found, Failures::Returned, budget).unwrap();
        let text = of(budget);
        let used = estimate_tokens(&text);
        prop_assert!(used <= budget, "{used} > {budget}");
        prop_assert!(used * 100 >= budget * 85 || text == of(10_000_000), "{used} of {budget}\n{text}");
        prop_assert_eq!(text, of(budget), "the same each time");
    }
}
