//! Parses structs and enums of src/, in the form that serde reads and writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use syn::{Attribute, Expr, Fields, GenericArgument, Item, Lit, PathArguments, Type, UseTree};

use crate::kind::{Field, Kind, Shape, merged};

/// The direction of a type: JavaScript reads what Rust writes, or the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    FromRust,
    ToRust,
}

/// The types of the crate that derive serde's traits.
pub struct Types {
    folder: PathBuf,
    items: Vec<(String, Item)>,
    /// The path of each import, by file and name.
    imports: BTreeMap<(String, String), Vec<String>>,
}

/// A file in which types are looked up first.
struct Place<'a> {
    types: &'a Types,
    file: &'a str,
    direction: Direction,
}

impl Types {
    pub fn read(repository: &Path) -> Self {
        let mut files = Vec::new();
        let folder = repository.join("src");
        collect(&folder, &mut files);
        let mut types = Self { folder, items: Vec::new(), imports: BTreeMap::new() };
        for path in files {
            let text = fs::read_to_string(&path).unwrap();
            // Only these files are parsed, because parsing takes time.
            if text.contains("Serialize") || text.contains("Deserialize") {
                let name = path.strip_prefix(&types.folder).unwrap().display().to_string();
                types.add(&name, &text);
            }
        }
        types
    }

    pub fn of(text: &str) -> Self {
        let mut types = Self { folder: PathBuf::new(), items: Vec::new(), imports: BTreeMap::new() };
        types.add("lib.rs", text);
        types
    }

    fn add(&mut self, file: &str, text: &str) {
        let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        for item in parsed.items {
            match &item {
                Item::Struct(_) | Item::Enum(_) => self.items.push((file.to_owned(), item)),
                Item::Use(import) => {
                    let mut paths = Vec::new();
                    import_paths(&import.tree, &mut Vec::new(), &mut paths);
                    for (name, path) in paths {
                        self.imports.insert((file.to_owned(), name), path);
                    }
                }
                _ => (),
            }
        }
    }

    /// Returns a type with everything that it contains, in the form in which it is passed.
    pub fn kind(&self, file: &str, name: &str, direction: Direction) -> Kind {
        self.place(file, direction).named(name)
    }

    /// Returns the numbers and strings in a constant.
    pub fn constant(&self, file: &str, name: &str) -> Vec<Json> {
        let parsed = syn::parse_file(&fs::read_to_string(self.folder.join(file)).unwrap()).unwrap();
        let found = parsed.items.iter().find_map(|item| match item {
            Item::Const(constant) if constant.ident == name => Some(&*constant.expr),
            _ => None,
        });
        literals(found.unwrap_or_else(|| panic!("src/{file} has no constant {name}")))
    }

    fn place<'a>(&'a self, file: &'a str, direction: Direction) -> Place<'a> {
        Place { types: self, file, direction }
    }
}

impl Place<'_> {
    /// Returns the item with a name: from this file, or from the file of its import.
    fn named(&self, name: &str) -> Kind {
        let (file, item) = self.find(name);
        let place = self.types.place(file, self.direction);
        match item {
            Item::Struct(item) => match &item.fields {
                Fields::Named(_) => Kind::one_of(place.shapes(&item.attrs, &item.fields, "rename_all").into_iter().map(Kind::Object)),
                Fields::Unnamed(fields) => place.kind(&fields.unnamed[0].ty),
                Fields::Unit => Kind::word("null"),
            },
            Item::Enum(item) => place.enumeration(item),
            _ => panic!("{name} is not a type"),
        }
    }

    fn find(&self, name: &str) -> (&str, &Item) {
        let is_it = |item: &Item| match item {
            Item::Struct(item) => item.ident == name && has_serde(&item.attrs),
            Item::Enum(item) => item.ident == name && has_serde(&item.attrs),
            _ => false,
        };
        let all: Vec<_> = self.types.items.iter().filter(|(_, item)| is_it(item)).map(|(file, item)| (file.as_str(), item)).collect();
        if let Some(own) = all.iter().find(|(file, _)| *file == self.file) {
            return *own;
        }
        if let [only] = all[..] {
            return only;
        }
        let path = self.types.imports.get(&(self.file.to_owned(), name.to_owned())).cloned().unwrap_or_default();
        let module = path.iter().rev().nth(1).cloned().unwrap_or_default();
        let is_there = |file: &str| file.split(['/', '.']).any(|part| part == module);
        let there: Vec<_> = all.iter().filter(|(file, _)| is_there(file)).collect();
        match there[..] {
            [only] => *only,
            _ => panic!("src/{}: {} types for serde are called {name}", self.file, all.len()),
        }
    }

    fn enumeration(&self, item: &syn::ItemEnum) -> Kind {
        let (tag, is_untagged) = (setting(&item.attrs, "tag"), has_flag(&item.attrs, "untagged"));
        let casing = setting(&item.attrs, "rename_all");
        let fields_casing = setting(&item.attrs, "rename_all_fields");
        let variant = |variant: &syn::Variant| {
            let name = setting(&variant.attrs, "rename").unwrap_or_else(|| cased(&variant.ident.to_string(), casing.as_deref()));
            let inner = match &variant.fields {
                Fields::Unit if tag.is_none() => return Kind::literal(&name),
                Fields::Unit => vec![Shape::new()],
                Fields::Unnamed(fields) if is_untagged => return self.kind(&fields.unnamed[0].ty),
                Fields::Unnamed(fields) if tag.is_none() => {
                    let kind = self.kind(&fields.unnamed[0].ty);
                    return Kind::Object(Shape::from([(name, Field { is_optional: false, kind })]));
                }
                Fields::Unnamed(fields) => self.kind(&fields.unnamed[0].ty).shapes(),
                Fields::Named(_) => self.fields(&variant.fields, fields_casing.as_deref(), false),
            };
            let tag = tag.clone().expect("variants with fields have a tag");
            let tagged = Shape::from([(tag, Field { is_optional: false, kind: Kind::literal(&name) })]);
            Kind::one_of(merged(&[tagged], &inner).into_iter().map(Kind::Object))
        };
        Kind::one_of(item.variants.iter().map(variant))
    }

    fn shapes(&self, attributes: &[Attribute], fields: &Fields, casing: &str) -> Vec<Shape> {
        self.fields(fields, setting(attributes, casing).as_deref(), has_flag(attributes, "default"))
    }

    fn fields(&self, fields: &Fields, casing: Option<&str>, has_defaults: bool) -> Vec<Shape> {
        let mut shapes = vec![Shape::new()];
        for field in fields {
            if has_flag(&field.attrs, "skip") {
                continue;
            }
            if has_flag(&field.attrs, "flatten") {
                shapes = merged(&shapes, &self.kind(&field.ty).shapes());
                continue;
            }
            let raw = field.ident.as_ref().unwrap().to_string();
            let name = setting(&field.attrs, "rename").unwrap_or_else(|| cased(&raw, casing));
            let own = Shape::from([(name, self.field(field, has_defaults))]);
            shapes = merged(&shapes, &[own]);
        }
        shapes
    }

    fn field(&self, field: &syn::Field, has_defaults: bool) -> Field {
        let inner = argument_of(&field.ty, "Option");
        let is_optional = match self.direction {
            Direction::FromRust => setting(&field.attrs, "skip_serializing_if").is_some(),
            Direction::ToRust => has_defaults || inner.is_some() || has_flag(&field.attrs, "default"),
        };
        let kind = match inner {
            Some(inner) if is_optional => self.kind(inner),
            _ => self.kind(&field.ty),
        };
        let is_left_out_if_false = setting(&field.attrs, "skip_serializing_if").is_some_and(|path| path.ends_with("Not::not"));
        let kind = if self.direction == Direction::FromRust && is_left_out_if_false { Kind::word("true") } else { kind };
        Field { is_optional, kind }
    }

    fn kind(&self, written: &Type) -> Kind {
        let path = match written {
            Type::Reference(reference) => return self.kind(&reference.elem),
            Type::Path(path) => &path.path,
            _ => panic!("src/{}: a type of a form that is not known here", self.file),
        };
        let last = path.segments.last().unwrap();
        let argument = |index: usize| match &last.arguments {
            PathArguments::AngleBracketed(arguments) => match arguments.args.iter().nth(index) {
                Some(GenericArgument::Type(argument)) => self.kind(argument),
                _ => panic!("src/{}: an argument that is not a type", self.file),
            },
            _ => panic!("src/{}: a type without its arguments", self.file),
        };
        match last.ident.to_string().as_str() {
            "String" | "str" | "PathBuf" | "SecretString" => Kind::word("string"),
            "bool" => Kind::word("boolean"),
            "u16" | "u32" | "u64" | "usize" | "i64" | "f64" | "NonZeroU64" => Kind::word("number"),
            "Json" | "Value" => Kind::word("unknown"),
            "Map" => Kind::Record(Box::new(Kind::word("unknown"))),
            "BTreeMap" | "HashMap" => Kind::Record(Box::new(argument(1))),
            "Vec" | "BTreeSet" => Kind::List(Box::new(argument(0))),
            "Box" | "Arc" => argument(0),
            "Option" => Kind::one_of([argument(0), Kind::word("null")]),
            name => self.named(name),
        }
    }
}

fn literals(expression: &Expr) -> Vec<Json> {
    match expression {
        Expr::Array(array) => array.elems.iter().flat_map(literals).collect(),
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => vec![number.base10_parse::<u64>().unwrap().into()],
            Lit::Str(text) => vec![text.value().into()],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn import_paths(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<(String, Vec<String>)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            import_paths(&path.tree, before, found);
            before.pop();
        }
        UseTree::Name(name) => found.push((name.ident.to_string(), [before.clone(), vec![name.ident.to_string()]].concat())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| import_paths(tree, before, found)),
        UseTree::Rename(_) | UseTree::Glob(_) => (),
    }
}

/// Returns the argument of a generic type with this name.
fn argument_of<'a>(written: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = written else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    arguments.args.iter().find_map(|argument| if let GenericArgument::Type(argument) = argument { Some(argument) } else { None })
}

fn has_serde(attributes: &[Attribute]) -> bool {
    let mut found = false;
    for derive in attributes.iter().filter(|attribute| attribute.path().is_ident("derive")) {
        derive
            .parse_nested_meta(|meta| {
                found |= meta.path.segments.last().is_some_and(|last| last.ident == "Serialize" || last.ident == "Deserialize");
                Ok(())
            })
            .unwrap();
    }
    found
}

/// Returns the settings in `#[serde(…)]`, by name. The value of a flag is empty.
fn settings(attributes: &[Attribute]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        attribute
            .parse_nested_meta(|meta| {
                let name = meta.path.get_ident().unwrap().to_string();
                let value = if meta.input.peek(syn::Token![=]) { meta.value()?.parse::<syn::LitStr>()?.value() } else { String::new() };
                all.push((name, value));
                Ok(())
            })
            .unwrap();
    }
    // A setting that this code does not know must not be ignored.
    for (name, _) in &all {
        assert!(KNOWN.contains(&name.as_str()), "serde's {name} is not known here");
    }
    all
}

const KNOWN: [&str; 12] = [
    "rename_all",
    "rename_all_fields",
    "rename",
    "tag",
    "untagged",
    "flatten",
    "skip",
    "skip_serializing_if",
    "default",
    "deny_unknown_fields",
    // It reads the same form, but into a type that serde does not read.
    "deserialize_with",
    "expecting",
];

fn setting(attributes: &[Attribute], name: &str) -> Option<String> {
    settings(attributes).into_iter().find(|(known, value)| known == name && !value.is_empty()).map(|(_, value)| value)
}

fn has_flag(attributes: &[Attribute], name: &str) -> bool {
    settings(attributes).iter().any(|(known, _)| known == name)
}

fn cased(name: &str, casing: Option<&str>) -> String {
    let words = || name.split('_');
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    match casing {
        None => name.to_owned(),
        Some("lowercase") => name.to_lowercase(),
        // Fields are in snake case, variants in Pascal case.
        Some("camelCase") => {
            let joined: String = words().take(1).map(ToOwned::to_owned).chain(words().skip(1).map(capital)).collect();
            joined[..1].to_lowercase() + &joined[1..]
        }
        Some("kebab-case") => {
            let letter = |(index, letter): (usize, char)| {
                let dash = if index > 0 && letter.is_uppercase() { "-" } else { "" };
                format!("{dash}{}", letter.to_lowercase())
            };
            name.char_indices().map(letter).collect()
        }
        Some(other) => panic!("serde's {other} is not known here"),
    }
}
