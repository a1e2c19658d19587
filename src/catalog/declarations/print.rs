//! Prints types as TypeScript text.

use std::fmt::Write as _;

use super::text::{comment, key, quoted};
use super::types::{Definition, Object, Tuple, Type};

/// Maximum total length of an object's members for which an object without comments is printed on one line.
const MAX_LINE: usize = 110;
const INDENT: &str = "  ";

/// Position of a type within another type. The position determines whether the type needs parentheses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum TypeContext {
    Alone,
    InUnion,
    InIntersection,
    Element,
}

/// Prints types that refer to the definitions of one module.
pub(super) struct Printer<'a> {
    definitions: &'a [Definition],
    /// For each definition, whether it is written in the place where it is used, because only a function's signature uses it.
    inlined: Vec<bool>,
}

impl<'a> Printer<'a> {
    /// Makes a printer. `roots` are the types of the functions' inputs and results.
    pub(super) fn new(definitions: &'a [Definition], roots: impl Iterator<Item = usize>) -> Self {
        let mut inlined = vec![false; definitions.len()];
        for root in roots {
            inlined[root] = true;
        }
        let mut named = Vec::new();
        for definition in definitions {
            definition.value.names(&mut named);
        }
        for id in named {
            inlined[id] = false;
        }
        Self { definitions, inlined }
    }

    /// Prints the type of a function's input or result.
    pub(super) fn root(&self, id: usize, indent: &str) -> String {
        if self.inlined[id] { self.text(&self.definitions[id].value, indent) } else { self.definitions[id].name.clone() }
    }

    /// Returns the comment of a definition that is written inside a signature. A signature has no place for a comment of its own.
    pub(super) fn inlined_note(&self, id: usize) -> Option<&'a str> {
        self.definitions[id].note.as_deref().filter(|_| self.inlined[id])
    }

    /// Prints the definitions that have names.
    pub(super) fn named(&self, indent: &str) -> String {
        let named = self.definitions.iter().zip(&self.inlined).filter(|(_, inlined)| !**inlined);
        named.map(|(definition, _)| self.definition(definition, indent)).collect()
    }

    /// Prints a definition with its comment. An object becomes an interface. Any other type becomes a type alias.
    fn definition(&self, definition: &Definition, indent: &str) -> String {
        let note = definition.note.as_deref().map(|note| comment(note, indent)).unwrap_or_default();
        let name = &definition.name;
        match &definition.value {
            Type::Object(object) if !is_record(object) => {
                format!("{note}{indent}export interface {name} {}\n", self.object(object, indent))
            }
            value => format!("{note}{indent}export type {name} = {};\n", self.text(value, indent)),
        }
    }

    pub(super) fn text(&self, value: &Type, indent: &str) -> String {
        self.placed(value, indent, TypeContext::Alone)
    }

    fn placed(&self, value: &Type, indent: &str, place: TypeContext) -> String {
        let text = match value {
            Type::Unknown => "unknown".to_owned(),
            Type::Never => "never".to_owned(),
            Type::Undefined => "undefined".to_owned(),
            Type::Null => "null".to_owned(),
            Type::Boolean => "boolean".to_owned(),
            Type::Number => "number".to_owned(),
            Type::String => "string".to_owned(),
            Type::Bytes => "string | Uint8Array".to_owned(),
            Type::BooleanLiteral(value) => value.to_string(),
            Type::NumberLiteral(text) => text.clone(),
            Type::StringLiteral(text) => quoted(text),
            Type::Array(item) => format!("{}[]", self.placed(item, indent, TypeContext::Element)),
            Type::Tuple(tuple) => self.tuple(tuple, indent),
            Type::Object(object) => self.object_type(object, indent),
            Type::Union(members) => self.joined(members, " | ", indent, TypeContext::InUnion),
            Type::Intersection(members) => self.joined(members, " & ", indent, TypeContext::InIntersection),
            Type::Named(id) => self.definitions.get(*id).map_or_else(|| "unknown".to_owned(), |definition| definition.name.clone()),
        };
        let loosest = match value {
            Type::Union(_) | Type::Bytes => TypeContext::InUnion,
            Type::Intersection(_) => TypeContext::InIntersection,
            _ => TypeContext::Element,
        };
        if place > loosest { format!("({text})") } else { text }
    }

    fn joined(&self, members: &[Type], separator: &str, indent: &str, place: TypeContext) -> String {
        members.iter().map(|member| self.placed(member, indent, place)).collect::<Vec<_>>().join(separator)
    }

    fn tuple(&self, tuple: &Tuple, indent: &str) -> String {
        let item = |(index, item): (usize, &Type)| {
            let text = self.placed(item, indent, if index < tuple.required { TypeContext::Alone } else { TypeContext::Element });
            if index < tuple.required { text } else { format!("{text}?") }
        };
        let mut items: Vec<String> = tuple.items.iter().enumerate().map(item).collect();
        items.extend(tuple.rest.as_deref().map(|rest| format!("...{}[]", self.placed(rest, indent, TypeContext::Element))));
        format!("[{}]", items.join(", "))
    }

    /// Prints an object where a type is expected.
    fn object_type(&self, object: &Object, indent: &str) -> String {
        match object.index.as_deref() {
            Some(Type::Unknown) if is_record(object) => "Record<string, unknown>".to_owned(),
            Some(Type::Never) if is_record(object) => "Record<string, never>".to_owned(),
            _ => self.object(object, indent),
        }
    }

    /// Prints an object's properties in braces.
    fn object(&self, object: &Object, indent: &str) -> String {
        let inner = format!("{indent}{INDENT}");
        let mut members: Vec<(Option<&str>, String)> = Vec::with_capacity(object.properties.len() + 1);
        for property in &object.properties {
            let mark = if property.optional { "?" } else { "" };
            let member = format!("{}{mark}: {}", key(&property.key), self.text(&property.value, &inner));
            members.push((property.note.as_deref(), member));
        }
        for (prefix, value) in &object.prefixes {
            members.push((None, format!("[key: `{prefix}${{string}}`]: {}", self.text(value, &inner))));
        }
        match &object.index {
            Some(index) => members.push((None, format!("[key: string]: {}", self.text(index, &inner)))),
            None if object.is_weak() => members.push((None, "[key: string]: unknown".to_owned())),
            None => {}
        }
        let short = members.iter().map(|(_, member)| member.len() + 2).sum::<usize>() <= MAX_LINE;
        if short && members.iter().all(|(note, member)| note.is_none() && !member.contains('\n')) {
            let members: Vec<String> = members.into_iter().map(|(_, member)| member).collect();
            return format!("{{ {} }}", members.join("; "));
        }
        let mut text = "{\n".to_owned();
        for (note, member) in members {
            text.push_str(&note.map(|note| comment(note, &inner)).unwrap_or_default());
            let _ = writeln!(text, "{inner}{member};");
        }
        text + indent + "}"
    }
}

fn is_record(object: &Object) -> bool {
    object.properties.is_empty() && object.prefixes.is_empty()
}
