//! Checks the declarations of tools with TypeScript's own compiler: they compile for every schema of a server, and they are sound.

mod hostile;
mod project;
mod schemas;
mod snapshots;
mod values;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use hyperlight_mcp::catalog::{
    DeclarationStyle, Failures, Manifest, SeenResults, Tool, Wording, declare_mcp, declare_server, declare_tool,
};
use hyperlight_mcp::text::{sanitise_line, sanitise_text};
use serde_json::{Value as Json, json};

use self::project::{Project, exact_type, expression};
use self::values::{Dice, changed, closed, guess, within_reach};

const SCHEMAS: usize = 600;
const TOOLS_PER_SERVER: usize = 30;
const GUESSES: usize = 24;
const MAX_OF_EACH: usize = 6;

fn style(failures: Failures) -> DeclarationStyle {
    DeclarationStyle {
        wording: Wording { text: sanitise_text, line: sanitise_line, max_chars: 2_000 },
        failures,
        seen: SeenResults::default(),
    }
}

fn tool(name: &str, input_schema: Json, output_schema: Option<Json>) -> Tool {
    Tool {
        name: name.to_owned(),
        title: None,
        description: None,
        input_schema,
        output_schema,
        annotations: None,
        execution: None,
        meta: None,
        icons: None,
    }
}

fn server(tools: Vec<Tool>) -> Manifest {
    Manifest { tools, ..Manifest::default() }
}

fn recorded(name: &str) -> Manifest {
    let path = format!("{}/tests/manifests/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

const RECORDED: [&str; 4] = ["everything", "filesystem", "git", "memory"];

/// The number of values that were tried.
#[derive(Default)]
struct Tally {
    valid: usize,
    in_place: usize,
    invalid: usize,
}

/// Returns TypeScript lines: some must compile, and some must not.
fn assignments(index: usize, type_name: &str, schema: &Json, tally: &mut Tally) -> String {
    let validator = |schema: &Json| jsonschema::options().should_validate_formats(false).build(schema).unwrap();
    let (exact, reach, strict) = (validator(schema), validator(&within_reach(schema)), validator(&closed(schema)));
    let mut dice = Dice::new(index);
    let mut seen = BTreeSet::new();
    let (mut text, mut valid, mut invalid) = (String::new(), 0, 0);
    for round in 0..GUESSES {
        let mut value = guess(schema, schema, &mut dice, 0);
        if round % 3 != 0 {
            value = changed(&value, &mut dice, 0);
        }
        if !seen.insert(value.to_string()) {
            continue;
        }
        let name = format!("v{index}_{round}");
        if exact.is_valid(&value) && valid < MAX_OF_EACH {
            valid += 1;
            let _ = writeln!(text, "export const {name}: {type_name} = null! as {};", exact_type(&value));
            if strict.is_valid(&value) {
                tally.in_place += 1;
                let _ = writeln!(text, "export const {name}_in_place: {type_name} = {};", expression(&value));
            }
        } else if !reach.is_valid(&value) && invalid < MAX_OF_EACH {
            invalid += 1;
            let _ = writeln!(text, "// @ts-expect-error\nexport const {name}: {type_name} = {};", expression(&value));
        }
    }
    tally.valid += valid;
    tally.invalid += invalid;
    text
}

#[test]
fn values_type_check_if_they_are_valid_and_not_if_they_are_invalid_within_typescripts_reach() {
    let all = schemas::generated(SCHEMAS);
    let mut project = Project::new();
    project.add("mcp.d.ts", &declare_mcp(&style(Failures::Thrown)));
    let mut tally = Tally::default();
    for (number, schemas) in all.chunks(TOOLS_PER_SERVER).enumerate() {
        let name = |index: usize| format!("tool_{index}");
        let tools = schemas.iter().enumerate().map(|(index, schema)| tool(&name(index), schema.clone(), Some(schema.clone())));
        let manifest = server(tools.collect());
        project.add(&format!("s{number}.d.ts"), &declare_server(&format!("s{number}"), &manifest, &style(Failures::Thrown)));
        // `ReturnType` does not take a function whose input is `never`.
        let mut text = format!(
            "import type * as all from \"host:mcp-s{number}\";\ntype Result<F> = F extends (input: never) => infer R ? R : \"no function\";\n"
        );
        for (index, schema) in schemas.iter().enumerate() {
            let id = number * TOOLS_PER_SERVER + index;
            text += &assignments(id, &format!("Result<typeof all.tool_{index}>"), schema, &mut tally);
            // The input type is always an object type. If the schema already says that it is an object, input and output have the same
            // type.
            if schema.get("type") == Some(&json!("object")) && schema.get("required") != Some(&json!([])) {
                let input = format!("Exclude<Parameters<typeof all.tool_{index}>[0], undefined>");
                text += &assignments(id + SCHEMAS, &input, schema, &mut tally);
            }
        }
        project.add(&format!("u{number}.ts"), &text);
    }
    let problems = project.problems();
    println!("{SCHEMAS} schemas: {} valid values ({} in place as well), {} invalid ones", tally.valid, tally.in_place, tally.invalid);
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems[..problems.len().min(20)].join("\n"));
    assert!(tally.valid > SCHEMAS && tally.in_place > SCHEMAS / 2 && tally.invalid > SCHEMAS, "too little was tried");
}

/// Declares a server on a thread with a small stack, because the depth of a schema must not matter.
fn declared(name: &str, manifest: &Manifest, failures: Failures) -> String {
    let declare = || declare_server(name, manifest, &style(failures));
    std::thread::scope(|scope| std::thread::Builder::new().stack_size(512 * 1024).spawn_scoped(scope, declare).unwrap().join().unwrap())
}

#[test]
fn hostile_and_recorded_manifests_compile_alone_and_together() {
    // Copying and dropping such deep values needs a large stack.
    let all = std::thread::Builder::new().stack_size(64 * 1024 * 1024).spawn(compile_hostile_and_recorded).unwrap();
    all.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn compile_hostile_and_recorded() {
    let servers = hostile::servers().into_iter().chain(RECORDED.map(|name| (name.to_owned(), recorded(name))));
    let mut project = Project::new();
    project.add("mcp.d.ts", &declare_mcp(&style(Failures::Returned)));
    project.add("math.d.ts", &snapshots::math());
    for (name, manifest) in servers {
        let began = std::time::Instant::now();
        let whole = declared(&name, &manifest, Failures::Returned);
        println!("{name}: {} tools, {} bytes, {:?}", manifest.tools.len(), whole.len(), began.elapsed());
        assert!(whole.len() < 8 * 1024 * 1024);
        project.add(&format!("{name}.d.ts"), &whole);
        let thrown = declared(&format!("{name}-thrown"), &manifest, Failures::Thrown);
        assert!(!thrown.contains("| ToolError;"), "{name}");
        project.add(&format!("{name}-thrown.d.ts"), &thrown);
        for (index, tool) in manifest.tools.iter().take(40).enumerate() {
            let one = declare_tool(&format!("{name}-{index}"), &manifest, &tool.name, &style(Failures::Returned)).unwrap();
            project.add(&format!("{name}-{index}.d.ts"), &one);
        }
    }
    let problems = project.problems();
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems[..problems.len().min(20)].join("\n"));
}

#[test]
fn the_failure_of_a_call_is_told_from_its_result_by_is_error() {
    let schema = json!({ "type": "object", "properties": { "words": { "type": "integer" } }, "required": ["words"] });
    let manifest = server(vec![tool("count", json!({ "type": "object" }), Some(schema)), tool("say", json!({ "type": "object" }), None)]);
    let problems = |body: &str| {
        let mut project = Project::new();
        project.add("mcp.d.ts", &declare_mcp(&style(Failures::Returned)));
        project.add("s.d.ts", &declare_server("s", &manifest, &style(Failures::Returned)));
        let imports = "import { count, say } from 'host:mcp-s'; import { isError } from 'host:mcp';";
        project.add(
            "use.ts",
            &format!("{imports}\nexport function handler() {{ const counted = count({{}}); const said = say({{}}); {body} }}\n"),
        );
        project.problems()
    };
    for sound in [
        "if (isError(counted)) throw new Error(counted.error); return counted.words + 1",
        "return isError(counted) ? counted.code : counted.words",
        "if (isError(said)) throw new Error(said.error); return String(said)",
    ] {
        assert_eq!(problems(sound), Vec::<String>::new(), "{sound}");
    }
    for wrong in ["return counted.words", "if (isError(counted)) return counted.words; return 0"] {
        assert_eq!(problems(wrong).len(), 1, "{wrong}");
    }
}

#[test]
fn outstanding_calls_are_typed_as_the_calls_that_they_are() {
    let schema = |field: &str, kind: &str| json!({ "type": "object", "properties": { field: { "type": kind } }, "required": [field] });
    let manifest = server(vec![tool("count", schema("text", "string"), Some(schema("words", "integer")))]);
    let problems = |body: &str| {
        let mut project = Project::new();
        project.add("mcp.d.ts", &declare_mcp(&style(Failures::Thrown)));
        project.add("math.d.ts", &snapshots::math());
        project.add("s.d.ts", &declare_server("s", &manifest, &style(Failures::Thrown)));
        let imports = "import * as s from 'host:mcp-s'; import { all, allSettled, call, sleep, type ToolResult } from 'host:mcp';";
        project.add("use.ts", &format!("{imports}\nexport async function handler(texts: string[]) {{ {body} }}\n"));
        project.problems()
    };
    for sound in [
        "const counts: { words: number }[] = await Promise.all(texts.map((text) => s.count.async({ text }))); return counts",
        "const [one, two, three] = all([s.count.async({ text: '' }), call.async('s', 'count'), 5]); two satisfies ToolResult; return one.words + three",
        "const [one] = allSettled([s.count.async({ text: '' })]); return one.status === 'fulfilled' ? one.value.words : one.reason",
        "return await Promise.race([s.count.async({ text: '' }), sleep(5)])",
    ] {
        assert_eq!(problems(sound), Vec::<String>::new(), "{sound}");
    }
    for wrong in
        ["s.count.async({ texts })", "s.count.async()", "(await s.count.async({ text: '' })).word", "all([s.count.async({ text: '' })])[1]"]
    {
        assert_eq!(problems(wrong).len(), 1, "{wrong}");
    }
}
