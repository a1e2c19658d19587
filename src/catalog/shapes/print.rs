//! Prints shapes as TypeScript. Text of a server is in it only as names of properties, which look like identifiers.

use std::fmt::Write as _;

use super::{Field, Fields, Shape};

const INDENT: &str = "  ";
/// Maximum length of an object that is printed on one line.
const MAX_LINE: usize = 110;
/// The last property of each object. It says that an object may have further properties. Their type is `any`, so that code which uses them
/// passes a type check.
const OTHERS: &str = "[key: string]: any";

/// The size of a short form: the number of levels that it shows, and the number of properties of each object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Detail {
    pub(super) levels: usize,
    pub(super) names: usize,
}

impl Shape {
    /// Returns the type for a declaration, which accepts properties that were not seen.
    pub(super) fn declared(&self, indent: &str) -> String {
        self.joined(|fields| object(fields, indent), |items| items.declared(indent))
    }

    /// Returns the type on one line, for a reader.
    pub(super) fn brief(&self, detail: Detail) -> String {
        let inner = Detail { levels: detail.levels.saturating_sub(1), ..detail };
        self.joined(|fields| brief_object(fields, detail.levels, inner), |items| items.brief(detail))
    }

    fn joined(&self, object: impl Fn(&Fields) -> String, list: impl Fn(&Shape) -> String) -> String {
        let simple = [(self.boolean, "boolean"), (self.number, "number"), (self.string, "string"), (self.bytes, "Uint8Array")];
        let mut members: Vec<String> = simple.iter().filter(|(is_seen, _)| *is_seen).map(|(_, name)| (*name).to_owned()).collect();
        members.extend(self.list.as_deref().map(|items| {
            let items = list(items);
            if is_union(&items) { format!("({items})[]") } else { format!("{items}[]") }
        }));
        members.extend(self.object.as_deref().map(object));
        // `null` alone says nothing about the values that may come.
        if self.any || members.is_empty() {
            return "any".to_owned();
        }
        members.extend(self.null.then(|| "null".to_owned()));
        members.join(" | ")
    }
}

/// Returns whether ` | ` occurs outside of all brackets.
fn is_union(text: &str) -> bool {
    let mut depth = 0_i32;
    for (index, character) in text.char_indices() {
        match character {
            '{' | '<' | '(' | '[' => depth += 1,
            '}' | '>' | ')' | ']' => depth -= 1,
            '|' if depth == 0 && index > 0 => return true,
            _ => {}
        }
    }
    false
}

fn object(fields: &Fields, indent: &str) -> String {
    let inner = format!("{indent}{INDENT}");
    let fields = match fields {
        Fields::Map(values) => return format!("Record<string, {}>", values.declared(indent)),
        Fields::Named { objects, fields, .. } => fields.iter().map(|field| member(field, *objects, &field.shape.declared(&inner))),
    };
    let members: Vec<String> = fields.chain([OTHERS.to_owned()]).collect();
    let length: usize = members.iter().map(|member| member.len() + 2).sum();
    if length <= MAX_LINE && members.iter().all(|member| !member.contains('\n')) {
        return format!("{{ {} }}", members.join("; "));
    }
    let mut text = "{\n".to_owned();
    for member in members {
        // `write!` to a `String` cannot fail.
        let _ = writeln!(text, "{inner}{member};");
    }
    text + indent + "}"
}

fn brief_object(fields: &Fields, levels: usize, inner: Detail) -> String {
    match fields {
        _ if levels == 0 => "{…}".to_owned(),
        Fields::Map(values) => format!("Record<string, {}>", values.brief(inner)),
        Fields::Named { objects, fields, .. } => {
            let shown = fields.iter().take(inner.names).map(|field| member(field, *objects, &field.shape.brief(inner)));
            let more = (fields.len() > inner.names).then(|| "…".to_owned());
            let members: Vec<String> = shown.chain(more).collect();
            if members.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", members.join("; ")) }
        }
    }
}

fn member(field: &Field, objects: u32, declared: &str) -> String {
    let mark = if field.objects < objects { "?" } else { "" };
    format!("{}{mark}: {declared}", field.name)
}
