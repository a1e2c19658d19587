//! Tests that the declarations, which are written by hand in src/node/*.d.ts, agree with the form that serde reads and writes: each field,
//! whether it is optional, its type and its default. Both sides are parsed, so the crate needs no additional derives, and the tests report
//! each field that one side lacks.

mod declared;
mod defaults;
mod kind;
mod pairs;
mod rust;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use declared::Declarations;
use kind::{Field, Kind, Shape};
use pairs::{DECLARED_CLOSER, KEPT, OTHERS, PAIRS};
use rust::Types;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn types() -> Types {
    Types::read(repository())
}

fn declarations() -> Declarations {
    Declarations::read(&repository().join("src/node"))
}

/// Returns the differences between a declaration and its type, one for each line.
fn differences(name: &str, declared: &Kind, real: &Kind) -> Vec<String> {
    if !is_object(declared) || !is_object(real) {
        return if declared == real { Vec::new() } else { vec![format!("{name} is declared as {declared}, but is {real}")] };
    }
    let (declared, real) = (declared.clone().shapes(), real.clone().shapes());
    if let ([declared], [real]) = (&declared[..], &real[..]) {
        return of_fields(name, declared, real);
    }
    let tag = tag_of(&real);
    let tags = |shapes: &[Shape]| shapes.iter().map(|shape| shape.get(&tag).map(|field| field.kind.to_string())).collect::<BTreeSet<_>>();
    let all: BTreeSet<_> = tags(&declared).union(&tags(&real)).flatten().cloned().collect();
    let with = |shapes: &[Shape], value: &str| {
        shapes.iter().find(|shape| shape.get(&tag).is_some_and(|field| field.kind.to_string() == value)).cloned()
    };
    let mut found = Vec::new();
    for value in all {
        match (with(&declared, &value), with(&real, &value)) {
            (Some(declared), Some(real)) => found.extend(of_fields(&format!("{name}[{tag}: {value}]"), &declared, &real)),
            (Some(_), None) if is_kept(name, &value) => (),
            (Some(_), None) => found.push(format!("{name} declares a form with {tag}: {value}, which there is not")),
            (None, _) => found.push(format!("{name} does not declare the form with {tag}: {value}")),
        }
    }
    found
}

fn of_fields(name: &str, declared: &Shape, real: &Shape) -> Vec<String> {
    let interface = name.split('[').next().unwrap();
    let mut found = Vec::new();
    for field in declared.keys().chain(real.keys()).collect::<BTreeSet<_>>() {
        match (declared.get(field), real.get(field)) {
            (Some(_), None) if is_kept(interface, field) => (),
            (Some(_), None) => found.push(format!("{name}.{field} is declared, but the type has no such field")),
            (None, Some(_)) => found.push(format!("{name}.{field} is a field of the type, but is not declared")),
            (Some(declared), Some(real)) => {
                if declared.is_optional != real.is_optional {
                    let word = |is_optional| if is_optional { "may be missing" } else { "is always there" };
                    found.push(format!(
                        "{name}.{field} {}, but is declared as if it {}",
                        word(real.is_optional),
                        word(declared.is_optional)
                    ));
                }
                if !agree(&declared.kind, &real.kind) && !is_closer(interface, field) {
                    found.push(format!("{name}.{field} is declared as {}, but is {}", declared.kind, real.kind));
                }
            }
            (None, None) => unreachable!("it is a field of one of them"),
        }
    }
    found
}

/// Returns whether a declaration is correct for a type. It may be wider if a flag is omitted when it is false, and narrower if a string is
/// one of a few words. Forms without a tag may be declared as one object.
fn agree(declared: &Kind, real: &Kind) -> bool {
    match (declared, real) {
        (Kind::List(declared), Kind::List(real)) | (Kind::Record(declared), Kind::Record(real)) => agree(declared, real),
        (Kind::Object(declared), Kind::Object(real)) => {
            declared.keys().eq(real.keys())
                && declared
                    .values()
                    .zip(real.values())
                    .all(|(declared, real)| declared.is_optional == real.is_optional && agree(&declared.kind, &real.kind))
        }
        (Kind::Object(_), Kind::OneOf(_)) if is_object(real) => agree(declared, &Kind::Object(joined(&real.clone().shapes()))),
        (Kind::Word(declared), Kind::Word(real)) => {
            declared == real
                || (declared.as_str(), real.as_str()) == ("boolean", "true")
                || (declared.starts_with('\'') && real == "string")
        }
        (Kind::OneOf(words), Kind::Word(_)) => words.iter().all(|word| *word != *real && agree(word, real)),
        _ => declared == real,
    }
}

/// Joins all forms to one object. A field that some forms do not have is optional.
fn joined(forms: &[Shape]) -> Shape {
    let mut all = Shape::new();
    for (name, field) in forms.iter().flatten() {
        let is_optional = field.is_optional || !forms.iter().all(|form| form.contains_key(name));
        all.insert(name.clone(), Field { is_optional, kind: field.kind.clone() });
    }
    all
}

fn is_object(kind: &Kind) -> bool {
    match kind {
        Kind::Object(_) => true,
        Kind::OneOf(kinds) => kinds.iter().all(is_object),
        _ => false,
    }
}

/// Returns the field whose literal distinguishes the forms.
fn tag_of(shapes: &[Shape]) -> String {
    let is_tag = |name: &&String| shapes.iter().all(|shape| shape.get(*name).is_some_and(|field| field.kind.to_string().starts_with('\'')));
    shapes[0].keys().find(is_tag).expect("forms have a tag").clone()
}

fn is_kept(interface: &str, field: &str) -> bool {
    KEPT.contains(&(interface, field))
}

fn is_closer(interface: &str, field: &str) -> bool {
    let path = format!("{interface}.{field}");
    DECLARED_CLOSER.iter().any(|(known, _)| *known == path)
}

fn none(found: &[String]) {
    assert!(found.is_empty(), "src/node/*.d.ts and src/ disagree:\n  {}", found.join("\n  "));
}

#[test]
fn each_field_is_declared_as_serde_has_it() {
    let (types, declarations) = (types(), declarations());
    let of_pair =
        |&(name, file, item, direction): &pairs::Pair| differences(name, &declarations.kind(name), &types.kind(file, item, direction));
    none(&PAIRS.iter().flat_map(of_pair).collect::<Vec<_>>());
}

#[test]
fn each_declaration_is_compared_or_says_why_not() {
    let declarations = declarations();
    // The forms of a union are compared together with the union.
    let union = fs::read_to_string(repository().join("src/node/event-types.d.ts")).unwrap();
    let is_form = |name: &str| union.contains(&format!("  | {name}\n"));
    let is_known = |name: &str| PAIRS.iter().any(|pair| pair.0 == name) || OTHERS.iter().any(|other| other.0 == name) || is_form(name);
    let unknown: Vec<_> =
        declarations.names().filter(|name| !is_known(name)).map(|name| format!("{name} is compared with nothing")).collect();
    none(&unknown);
    let all: BTreeSet<_> = declarations.names().collect();
    let listed =
        OTHERS.iter().chain(KEPT).map(|(name, _)| *name).chain(DECLARED_CLOSER.iter().map(|(path, _)| path.split('.').next().unwrap()));
    none(&listed.filter(|name| !all.contains(name)).map(|name| format!("{name} is listed, but not declared")).collect::<Vec<_>>());
}

#[test]
fn each_exception_is_needed() {
    let (types, declarations) = (types(), declarations());
    let is_needed = |path: &str| {
        let (name, field) = path.split_once('.').unwrap();
        let Some(&(_, file, item, direction)) = PAIRS.iter().find(|pair| pair.0 == name) else { return false };
        let of_field =
            |kind: Kind| kind.shapes().into_iter().filter_map(|mut shape| shape.remove(field)).map(|field| field.kind).collect::<Vec<_>>();
        of_field(declarations.kind(name)) != of_field(types.kind(file, item, direction))
    };
    none(
        &DECLARED_CLOSER.iter().filter(|(path, _)| !is_needed(path)).map(|(path, _)| format!("{path} is as its type")).collect::<Vec<_>>(),
    );
}

#[test]
fn the_callbacks_are_those_that_are_read() {
    for (interface, constant) in [("CallerCallbacks", "CALLERS"), ("Callbacks", "OPERATORS")] {
        let read: BTreeSet<_> =
            types().constant("node/options.rs", constant).into_iter().map(|name| name.as_str().unwrap().to_owned()).collect();
        assert_eq!(declarations().methods(interface).into_iter().collect::<BTreeSet<_>>(), read);
    }
}

/// Returns the error codes in a text, each found between `before` and `after`.
fn codes(text: &str, before: &str, after: &str) -> BTreeSet<String> {
    let code = |rest: &str| rest.split_once(after).map(|(code, _)| code.to_owned()).filter(|code| code.starts_with("ERR_"));
    text.split(before).skip(1).filter_map(code).collect()
}

#[test]
fn the_codes_are_declared_and_documented() {
    let read = |path: &str| fs::read_to_string(repository().join(path)).unwrap();
    let real = codes(&read("src/error/code.rs"), "=> \"", "\",");
    assert!(real.len() > 50 && real.contains("ERR_INTERNAL"), "{real:?}");
    let Kind::OneOf(declared) = declarations().kind("ErrorCode") else { panic!("ErrorCode is a union") };
    assert_eq!(declared.iter().map(|code| code.to_string().replace('\'', "")).collect::<BTreeSet<_>>(), real);
    assert_eq!(codes(&read("docs/ERRORS.md"), "\n| `", "` |"), real);
    let glue = read("src/node/glue.js") + &read("src/node/tools.js");
    let words = glue.split(|letter: char| !letter.is_ascii_uppercase() && letter != '_');
    let written: BTreeSet<_> = words.filter(|word| word.starts_with("ERR_") && word.len() > 4).map(ToOwned::to_owned).collect();
    assert!(written.len() > 3 && written.is_subset(&real), "{written:?}");
}

#[test]
fn a_field_that_one_side_lacks_is_found() {
    let rust = |fields: &str| {
        let text = format!("#[derive(Serialize)]\n#[serde(rename_all = \"camelCase\")]\nstruct Report {{ {fields} }}");
        Types::of(&text).kind("lib.rs", "Report", rust::Direction::FromRust)
    };
    let declared = |fields: &str| Declarations::of(&format!("export interface Report {{ {fields} }}")).kind("Report");
    let real = rust("boot_ms: f64, #[serde(skip_serializing_if = \"Option::is_none\")] names: Option<Vec<String>>");
    let found = |fields: &str| differences("Report", &declared(fields), &real).join("\n");
    assert_eq!(found("bootMs: number; names?: string[]"), "");
    assert_eq!(found("bootMs: number"), "Report.names is a field of the type, but is not declared");
    assert_eq!(found("bootMs: number; names?: string[]; more: 5"), "Report.more is declared, but the type has no such field");
    assert_eq!(found("bootMs: number; names: string[]"), "Report.names may be missing, but is declared as if it is always there");
    assert_eq!(found("bootMs: string; names?: string[]"), "Report.bootMs is declared as string, but is number");
}
