//! Parses the declarations in src/node/*.d.ts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use oxc_allocator::Allocator;
use oxc_ast::ast::{Declaration, Expression, PropertyKey, Statement, TSInterfaceDeclaration, TSLiteral, TSSignature, TSType, TSTypeName};
use oxc_parser::Parser;
use oxc_span::{GetSpan as _, SourceType};

use crate::kind::{Field, Kind, Shape, merged};

/// A type in its written form.
#[derive(Debug, Clone)]
enum Written {
    Word(String),
    Literal(String),
    Reference(String, Vec<Written>),
    List(Box<Written>),
    Union(Vec<Written>),
    Intersection(Vec<Written>),
    Object(Vec<Member>),
    Function,
}

#[derive(Debug, Clone)]
struct Member {
    name: String,
    is_optional: bool,
    written: Written,
    comment: String,
}

struct Declared {
    written: Written,
    /// The interfaces that the interface extends.
    extends: Vec<Written>,
}

/// All declarations of the package, except the methods of its classes.
pub struct Declarations(BTreeMap<String, Declared>);

impl Declarations {
    pub fn read(folder: &Path) -> Self {
        let mut all = BTreeMap::new();
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for path in files.into_iter().filter(|path| path.to_string_lossy().ends_with(".d.ts")) {
            parse(&fs::read_to_string(path).unwrap(), &mut all);
        }
        Self(all)
    }

    pub fn of(text: &str) -> Self {
        let mut all = BTreeMap::new();
        parse(text, &mut all);
        Self(all)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns a declaration with everything to which it refers. Leaves out functions, because they are not passed between JavaScript and
    /// Rust.
    pub fn kind(&self, name: &str) -> Kind {
        let declared = self.0.get(name).unwrap_or_else(|| panic!("src/node/*.d.ts has no {name}"));
        let own = self.resolved(&declared.written);
        if declared.extends.is_empty() {
            return own;
        }
        let bases = declared.extends.iter().map(|base| self.resolved(base).shapes());
        Kind::one_of(bases.chain([own.shapes()]).reduce(|all, more| merged(&all, &more)).unwrap().into_iter().map(Kind::Object))
    }

    /// Returns the names of an interface's own methods.
    pub fn methods(&self, name: &str) -> Vec<String> {
        let Written::Object(members) = &self.0[name].written else { panic!("{name} is not an interface") };
        members.iter().filter(|member| matches!(member.written, Written::Function)).map(|member| member.name.clone()).collect()
    }

    /// Returns the comments of all fields, with names like `Interface.field`.
    pub fn comments(&self) -> impl Iterator<Item = (String, &str)> {
        self.0.iter().flat_map(|(name, declared)| {
            let members = if let Written::Object(members) = &declared.written { members.as_slice() } else { &[] };
            members.iter().map(move |member| (format!("{name}.{}", member.name), member.comment.as_str()))
        })
    }

    fn resolved(&self, written: &Written) -> Kind {
        match written {
            Written::Word(word) => Kind::word(if word == "any" { "unknown" } else { word }),
            Written::Literal(text) => Kind::literal(text),
            Written::List(inner) => Kind::List(Box::new(self.resolved(inner))),
            Written::Union(parts) => Kind::one_of(parts.iter().map(|part| self.resolved(part))),
            Written::Intersection(parts) => {
                let shapes = parts.iter().map(|part| self.resolved(part).shapes()).reduce(|all, more| merged(&all, &more));
                Kind::one_of(shapes.unwrap().into_iter().map(Kind::Object))
            }
            Written::Object(members) => self.object(members),
            Written::Function => Kind::word("function"),
            Written::Reference(name, arguments) => self.referred(name, arguments),
        }
    }

    fn object(&self, members: &[Member]) -> Kind {
        let is_field = |member: &&Member| !matches!(member.written, Written::Function);
        if let [Member { name, written, .. }] = members
            && name == "[key]"
        {
            return Kind::Record(Box::new(self.resolved(written)));
        }
        let field = |member: &Member| {
            let Member { name, is_optional, written, comment: _ } = member;
            (name.clone(), Field { is_optional: *is_optional, kind: self.resolved(written) })
        };
        Kind::Object(members.iter().filter(is_field).map(field).collect())
    }

    fn referred(&self, name: &str, arguments: &[Written]) -> Kind {
        match (name, arguments) {
            // This type contains itself, and can be any JSON value.
            ("Value", []) => Kind::word("unknown"),
            ("Record", [_, value]) => Kind::Record(Box::new(self.resolved(value))),
            ("Partial", [whole]) => {
                let optional = |(name, field): (String, Field)| (name, Field { is_optional: true, ..field });
                Kind::one_of(
                    self.resolved(whole).shapes().into_iter().map(|shape| Kind::Object(shape.into_iter().map(optional).collect::<Shape>())),
                )
            }
            ("Omit", [whole, left_out]) => {
                let left_out = match self.resolved(left_out) {
                    Kind::OneOf(words) => words,
                    word => [word].into(),
                };
                let without = |mut shape: Shape| {
                    shape.retain(|name, _| !left_out.contains(&Kind::literal(name)));
                    Kind::Object(shape)
                };
                Kind::one_of(self.resolved(whole).shapes().into_iter().map(without))
            }
            _ if self.0.contains_key(name) => self.kind(name),
            // This is a type parameter or a class.
            _ => Kind::word(name),
        }
    }
}

fn parse(text: &str, all: &mut BTreeMap<String, Declared>) {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, text, SourceType::d_ts()).parse();
    assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
    let comments: BTreeMap<u32, &str> =
        parsed.program.comments.iter().map(|comment| (comment.attached_to, comment.content_span().source_text(text))).collect();
    let reader = Reader { text, comments };
    for statement in &parsed.program.body {
        let Statement::ExportNamedDeclaration(export) = statement else { panic!("a declaration that is not exported") };
        let (name, declared) = match export.declaration.as_ref().unwrap() {
            Declaration::TSInterfaceDeclaration(interface) => (interface.id.name.to_string(), reader.interface(interface)),
            Declaration::TSTypeAliasDeclaration(alias) => {
                (alias.id.name.to_string(), Declared { written: reader.written(&alias.type_annotation), extends: Vec::new() })
            }
            // The tests in Node check the fields of classes.
            Declaration::ClassDeclaration(_) => continue,
            _ => panic!("a declaration of an unknown form"),
        };
        assert!(all.insert(name.clone(), declared).is_none(), "{name} is declared twice");
    }
}

struct Reader<'a> {
    text: &'a str,
    /// The comments, by the position of the item that they precede.
    comments: BTreeMap<u32, &'a str>,
}

impl Reader<'_> {
    fn interface(&self, interface: &TSInterfaceDeclaration) -> Declared {
        let extends = interface.extends.iter().map(|heritage| {
            let Expression::Identifier(name) = &heritage.expression else { panic!("an interface extends an expression") };
            let arguments = heritage.type_arguments.iter().flat_map(|arguments| &arguments.params);
            Written::Reference(name.name.to_string(), arguments.map(|argument| self.written(argument)).collect())
        });
        Declared { extends: extends.collect(), written: self.members(&interface.body.body) }
    }

    fn members(&self, signatures: &[TSSignature]) -> Written {
        let comment = |place: u32| self.comments.get(&place).copied().unwrap_or_default().to_owned();
        let member = |signature: &TSSignature| match signature {
            TSSignature::TSPropertySignature(property) => Member {
                name: key(&property.key),
                is_optional: property.optional,
                written: self.written(&property.type_annotation.as_ref().unwrap().type_annotation),
                comment: comment(property.span.start),
            },
            TSSignature::TSMethodSignature(method) => Member {
                name: key(&method.key),
                is_optional: method.optional,
                written: Written::Function,
                comment: comment(method.span.start),
            },
            TSSignature::TSIndexSignature(index) => Member {
                name: "[key]".to_owned(),
                is_optional: true,
                written: self.written(&index.type_annotation.type_annotation),
                comment: String::new(),
            },
            _ => panic!("a member of an unknown form"),
        };
        Written::Object(signatures.iter().map(member).collect())
    }

    fn written(&self, written: &TSType) -> Written {
        match written {
            TSType::TSArrayType(list) => Written::List(Box::new(self.written(&list.element_type))),
            TSType::TSUnionType(union) => Written::Union(union.types.iter().map(|part| self.written(part)).collect()),
            TSType::TSIntersectionType(parts) => Written::Intersection(parts.types.iter().map(|part| self.written(part)).collect()),
            TSType::TSParenthesizedType(inner) => self.written(&inner.type_annotation),
            TSType::TSFunctionType(_) => Written::Function,
            TSType::TSTypeLiteral(literal) => self.members(&literal.members),
            TSType::TSTypeReference(reference) => {
                let TSTypeName::IdentifierReference(name) = &reference.type_name else { panic!("a qualified name") };
                let arguments = reference.type_arguments.iter().flat_map(|arguments| &arguments.params);
                Written::Reference(name.name.to_string(), arguments.map(|argument| self.written(argument)).collect())
            }
            TSType::TSLiteralType(literal) => match &literal.literal {
                TSLiteral::StringLiteral(text) => Written::Literal(text.value.to_string()),
                _ => Written::Word(self.source(written)),
            },
            // This is a keyword.
            other => Written::Word(self.source(other)),
        }
    }

    fn source(&self, written: &TSType) -> String {
        written.span().source_text(self.text).to_owned()
    }
}

fn key(key: &PropertyKey) -> String {
    key.static_name().map_or_else(|| "[computed]".to_owned(), |name| name.to_string())
}
