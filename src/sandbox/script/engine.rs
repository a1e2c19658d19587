//! Finds valid syntax that the guest's engine does not support.

use oxc_ast::ast::{AccessorProperty, AccessorPropertyType, Decorator, Program};
use oxc_ast_visit::{Visit, walk};
use oxc_span::Span;

use super::edits::{Edits, is_line_end};
use super::typescript::Unsupported;

const DECORATOR: &str = "the engine does not support decorators: call the function on the class or the method instead";
const ACCESSOR: &str = "the engine does not support accessor fields: write a field, or a getter and a setter, instead of accessor";

/// Returns the decorators and accessor fields of a program, which the engine does not support.
pub(super) fn unknown_to_the_engine(code: &str, program: &Program<'_>) -> Vec<Unsupported> {
    let mut finder = Finder(Vec::new());
    if code.contains('@') || code.contains("accessor") {
        finder.visit_program(program);
    }
    finder.0
}

struct Finder(Vec<Unsupported>);

impl Finder {
    fn refuse(&mut self, span: Span, message: &str) {
        self.0.push(Unsupported { start: span.start as usize, end: span.end as usize, message: message.to_owned() });
    }
}

impl<'a> Visit<'a> for Finder {
    fn visit_decorator(&mut self, decorator: &Decorator<'a>) {
        self.refuse(decorator.span, DECORATOR);
    }

    fn visit_accessor_property(&mut self, accessor: &AccessorProperty<'a>) {
        if accessor.r#type == AccessorPropertyType::AccessorProperty {
            self.refuse(accessor.span, ACCESSOR);
        }
        walk::walk_accessor_property(self, accessor);
    }
}

/// The characters of which a Markdown fence may consist.
const FENCE_MARKS: [char; 2] = ['`', '~'];
/// The minimum number of these characters in a fence.
const LEAST_FENCE: usize = 3;

/// Returns the code inside a Markdown fence. A fence is a line such as "```js", "~~~" or "```js title=x", then lines of code, then a line
/// with the same marks. The two lines of the fence become empty, so that positions do not change. Returns `None` if the code is not inside
/// one fence as a whole.
pub(super) fn without_fence(code: &str) -> Option<String> {
    let start = code.len() - code.trim_start().len();
    let first_end = start + code[start..].find(is_line_end)?;
    let first = &code[start..first_end];
    let mark = first.chars().next().filter(|mark| FENCE_MARKS.contains(mark))?;
    let info = first.trim_start_matches(mark);
    let length = first.len() - info.len();
    // A fence of backticks has no further backtick in its first line. A line with one could be a template literal.
    let is_fence = length >= LEAST_FENCE && !(mark == '`' && info.contains(mark));
    let whole = code.trim_end();
    let last_start = whole.trim_end_matches(mark).len();
    let follows_line = code.get(first_end..last_start)?.trim_end_matches([' ', '\t']).ends_with(is_line_end);
    (is_fence && follows_line && whole.len() - last_start >= length).then(|| {
        let mut edits = Edits::new(code);
        edits.blank(start, first_end);
        edits.blank(last_start, whole.len());
        edits.apply()
    })
}

/// Returns the code without a first line such as `#!/usr/bin/env node`. Returns `None` if there is no such line. The line must be removed
/// because in a run, a prologue comes before the code, and the engine accepts `#!` only at the beginning.
pub(super) fn without_hashbang(code: &str) -> Option<String> {
    code.starts_with("#!").then(|| {
        let mut edits = Edits::new(code);
        edits.blank(0, code.find(is_line_end).unwrap_or(code.len()));
        edits.apply()
    })
}
