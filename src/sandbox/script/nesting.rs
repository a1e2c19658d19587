//! How deeply code nests, found before a parser sees it.
//!
//! The parser recurses, and where it cannot tell a bracket's meaning it tries one reading after the other: inside each other, these
//! tries cost the square of the depth, and for TypeScript's angle brackets far more. So the depth is found first. It is never too
//! small: where this scan cannot tell a regular expression from a division, and it matters, everything behind counts as nested.

use super::edits::next_token;
use super::words::{Before, begins_statement, continues, meaning, starts_anew};

/// How deeply code nests at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Nesting {
    /// Brackets inside each other, without angle ones.
    pub(super) brackets: usize,
    /// Brackets that stand behind an open angle, inside each other: where a reading as type arguments begins again and again.
    pub(super) angles: usize,
    /// Angles that are open at the same time.
    pub(super) open_angles: usize,
    /// Bytes that a reading as TypeScript may go through again: what stands in a statement, once for each of its conditionals that
    /// may begin an arrow function.
    pub(super) again: usize,
    /// Levels of a tree: what has something inside or beside it, statement by statement and item by item.
    pub(super) levels: usize,
}

struct Frame {
    open: u8,
    /// Angle brackets open directly in it.
    angles: usize,
    /// Whether it is the head of `if (…)` and the like: behind it, a slash begins a regular expression.
    head: bool,
    /// Since the statement or the item began.
    levels: usize,
    /// Whether there is any conditional.
    conditional: bool,
    /// Places where one may begin an arrow function.
    conditionals: usize,
    start: usize,
}

struct Scan<'a> {
    text: &'a str,
    code: &'a [u8],
    position: usize,
    frames: Vec<Frame>,
    before: Before,
    /// Whether a statement may have ended with the last token.
    ended: bool,
    /// The last byte of the last token: `a` of a word, zero behind `...`.
    last: u8,
    /// Whether a line has ended since the last token.
    line_end: bool,
    /// Nothing is closed any more.
    lost: bool,
    /// The levels of all frames.
    levels: usize,
    most: Nesting,
}

/// The nesting of some code, or more.
pub(super) fn nesting(code: &str) -> Nesting {
    let mut scan = Scan::new(code);
    while let Some(byte) = scan.code.get(scan.position).copied() {
        scan.step(byte);
        if scan.lost {
            break;
        }
    }
    while let Some(frame) = scan.frames.pop() {
        scan.count_again(&frame);
    }
    let mut most = scan.most;
    if scan.lost {
        // Strings and comments may be code from here on.
        let rest = &code[code.floor_char_boundary(scan.position.saturating_sub(1))..];
        let count = |bytes: &[u8]| rest.bytes().filter(|byte| bytes.contains(byte)).count();
        let angles = count(b"<");
        most.brackets += count(b"([{");
        most.angles += angles;
        most.open_angles += angles;
        most.again += count(b"?") * rest.len();
        most.levels += super::parse::level_bound(rest);
    }
    most
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Self {
        let position = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let mut scan = Self {
            text,
            code: text.as_bytes(),
            position,
            frames: Vec::new(),
            before: Before::Operator,
            ended: false,
            last: 0,
            line_end: false,
            lost: false,
            levels: 0,
            most: Nesting::default(),
        };
        scan.frames.push(scan.frame(0, false));
        if scan.text[position..].starts_with("#!") {
            scan.skip_line();
        }
        scan
    }

    fn frame(&self, open: u8, head: bool) -> Frame {
        Frame { open, angles: 0, head, levels: 0, conditional: false, conditionals: 0, start: self.position }
    }

    fn at(&self, offset: usize) -> u8 {
        self.code.get(self.position + offset).copied().unwrap_or(0)
    }

    fn step(&mut self, byte: u8) {
        let code = self.code;
        let rest = &code[self.position..];
        match byte {
            b' ' | b'\t' | 0x0b | 0x0c => self.position += 1,
            b'\n' | b'\r' => {
                self.position += 1;
                self.line_end = true;
            }
            b'/' if self.at(1) == b'/' => self.skip_line(),
            b'/' if self.at(1) == b'*' => self.skip_comment(),
            // The parser reads some of these as comments of HTML.
            _ if rest.starts_with(b"<!--") || rest.starts_with(b"-->") && self.line_end => self.lost = true,
            _ if byte >= 0x80 && self.skip_blank() => {}
            _ => {
                self.token(byte);
                self.line_end = false;
            }
        }
    }

    fn token(&mut self, byte: u8) {
        let is_word = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'\\' | b'#') || byte >= 0x80;
        match byte {
            b'/' => self.slash(),
            b'"' | b'\'' => self.string(byte),
            b'`' => self.template(1),
            b'(' | b'[' | b'{' => self.open(byte),
            b')' | b']' | b'}' => self.close(byte),
            _ if byte.is_ascii_digit() => self.number(),
            _ if is_word => self.word(),
            _ => self.operator(byte),
        }
        self.last = if is_word { b'a' } else { self.last };
    }

    /// A blank that is not of ASCII.
    fn skip_blank(&mut self) -> bool {
        let Some(character) = self.text[self.position..].chars().next() else { return false };
        let blank = character.is_whitespace() || character == '\u{feff}';
        if blank {
            self.line_end |= matches!(character, '\u{2028}' | '\u{2029}');
            self.position += character.len_utf8();
        }
        blank
    }

    fn skip_line(&mut self) {
        let rest = &self.text[self.position..];
        self.position += rest.find(super::edits::is_line_end).unwrap_or(rest.len());
    }

    fn skip_comment(&mut self) {
        let rest = &self.text[self.position + 2..];
        let length = rest.find("*/");
        self.line_end |= rest[..length.unwrap_or(rest.len())].contains(super::edits::is_line_end);
        self.position = length.map_or(self.code.len(), |length| self.position + length + 4);
    }

    fn string(&mut self, quote: u8) {
        self.position += 1;
        while self.position < self.code.len() {
            match self.at(0) {
                b'\\' => self.position += 2,
                b'\n' | b'\r' => {
                    self.lost = true;
                    return;
                }
                byte => {
                    self.position += 1;
                    if byte == quote {
                        break;
                    }
                }
            }
        }
        self.operand(quote);
    }

    fn operand(&mut self, last: u8) {
        (self.before, self.ended, self.last) = (Before::Operand, true, last);
    }

    /// A template from behind its first `skipped` bytes to its end or to a `${`.
    fn template(&mut self, skipped: usize) {
        self.level();
        self.position += skipped;
        while self.position < self.code.len() {
            match self.at(0) {
                b'\\' => self.position += 2,
                b'`' => {
                    self.position += 1;
                    self.operand(b'`');
                    return;
                }
                b'$' if self.at(1) == b'{' => {
                    self.position += 1;
                    self.open(b'$');
                    return;
                }
                _ => self.position += 1,
            }
        }
    }

    fn slash(&mut self) {
        match self.before {
            Before::Operand if !self.line_end => self.operator(b'/'),
            // Behind a line's end, a statement may have ended.
            Before::Operand | Before::Unclear => self.either(),
            Before::Operator | Before::Keyword => self.regular_expression(),
        }
    }

    /// A slash that divides or begins a regular expression. It is no matter which, if nothing up to the next one means more in one.
    fn either(&mut self) {
        let rest = &self.text[self.position + 1..];
        let line = &rest[..rest.find(super::edits::is_line_end).unwrap_or(rest.len())];
        let Some(end) = line.find('/') else {
            // A regular expression without an end is where the parser stops.
            self.operator(b'/');
            return;
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" \t_$.+-*%^&|=:".contains(&byte);
        let behind = line.as_bytes().get(end + 1).copied().unwrap_or(0);
        self.lost = end == 0 || !line.bytes().take(end).all(plain) || matches!(behind, b'/' | b'*');
        self.level();
        self.position += end + 2;
        while !self.lost && (self.at(0).is_ascii_alphanumeric() || matches!(self.at(0), b'_' | b'$')) {
            self.position += 1;
        }
        (self.before, self.ended, self.last) = (Before::Unclear, false, b'/');
    }

    fn regular_expression(&mut self) {
        let mut in_class = false;
        self.position += 1;
        while self.position < self.code.len() {
            match self.at(0) {
                b'\n' | b'\r' => break,
                b'\\' => self.position += 1,
                b'[' => in_class = true,
                b']' => in_class = false,
                b'/' if !in_class => {
                    self.position += 1;
                    self.operand(b'/');
                    return;
                }
                _ => {}
            }
            self.position += 1;
        }
        self.lost = true;
    }

    fn open(&mut self, open: u8) {
        self.level();
        self.frames.push(self.frame(open, open == b'(' && self.before == Before::Keyword));
        self.position += 1;
        (self.before, self.ended, self.last) = (Before::Operator, false, open);
        self.note();
    }

    fn close(&mut self, close: u8) {
        let frame = self.frames.pop_if(|frame| matches!((frame.open, close), (b'(', b')') | (b'[', b']') | (b'{' | b'$', b'}')));
        let Some(frame) = frame else {
            self.lost = true;
            return;
        };
        self.count_again(&frame);
        self.levels -= frame.levels;
        if frame.open == b'$' {
            self.template(1);
            return;
        }
        self.position += 1;
        self.last = close;
        self.ended = !frame.head;
        self.before = match close {
            b'}' => Before::Unclear,
            _ if frame.head => Before::Operator,
            _ => Before::Operand,
        };
    }

    fn operator(&mut self, byte: u8) {
        let arrow = byte == b'>' && self.position > 0 && self.code[self.position - 1] == b'=';
        let after_operand = self.before == Before::Operand && !self.line_end;
        let (mut length, mut before) = (1, Before::Operator);
        match byte {
            b';' => self.semicolon(),
            b',' => self.begin_item(),
            b'<' => self.angle(),
            b'?' => self.conditional(),
            b':' if self.last == b')' => self.conditional_ends(),
            b'>' if !arrow => {
                self.innermost(|frame| frame.angles = frame.angles.saturating_sub(1));
                before = Before::Unclear;
            }
            b'.' if self.at(1) == b'.' && self.at(2) == b'.' => length = 3,
            b'+' | b'-' if self.at(1) == byte => {
                length = 2;
                before = if after_operand { Before::Operand } else { Before::Unclear };
            }
            // Behind a value it may be TypeScript's, and then a slash divides.
            b'!' if self.at(1) != b'=' && after_operand => before = Before::Operand,
            b'!' if self.at(1) != b'=' && matches!(self.before, Before::Operand | Before::Unclear) => before = Before::Unclear,
            _ => {}
        }
        if !matches!(byte, b';' | b',') {
            self.level();
        }
        self.ended = before == Before::Operand;
        self.before = before;
        self.last = if length == 3 { 0 } else { byte };
        self.position += length;
    }

    fn innermost(&mut self, change: impl FnOnce(&mut Frame)) {
        if let Some(frame) = self.frames.last_mut() {
            change(frame);
        }
    }

    fn angle(&mut self) {
        self.innermost(|frame| frame.angles += 1);
        self.note();
    }

    /// `a ? (b) : c => d`: what stands before the colon may be an arrow function's parameters, and is tried as such.
    fn conditional(&mut self) {
        let next = self.text[self.position + 1..].trim_start();
        if self.last == b'?' || next.starts_with(['?', '.', ':', ',', ')']) {
            return;
        }
        let tried = next.starts_with(['(', '<', '/']) || next.starts_with("async");
        self.innermost(|frame| {
            frame.conditional = true;
            frame.conditionals += usize::from(tried);
        });
    }

    /// `a ? b => (c) : d => e`: so may what stands before a colon.
    fn conditional_ends(&mut self) {
        self.innermost(|frame| frame.conditionals += usize::from(frame.conditional));
    }

    fn count_again(&mut self, frame: &Frame) {
        self.most.again = self.most.again.saturating_add(frame.conditionals * (self.position - frame.start));
    }

    fn semicolon(&mut self) {
        // The one thing that goes on behind a semicolon.
        let next = next_token(self.text, self.position + 1);
        if !self.text[next..].starts_with("else") {
            self.begin();
        }
    }

    /// A statement begins: what was open in the one before is not any more.
    fn begin(&mut self) {
        self.innermost(|frame| frame.angles = 0);
        self.begin_item();
    }

    fn begin_item(&mut self) {
        // Type arguments have commas, too.
        if let Some(mut frame) = self.frames.pop() {
            if frame.angles == 0 {
                self.count_again(&frame);
                self.levels -= frame.levels;
                (frame.levels, frame.conditional, frame.conditionals, frame.start) = (0, false, 0, self.position);
            }
            self.frames.push(frame);
        }
    }

    fn level(&mut self) {
        self.innermost(|frame| frame.levels += 1);
        self.levels += 1;
        self.most.levels = self.most.levels.max(self.levels);
    }

    /// A number, with its point: behind `1.`, a slash divides.
    fn number(&mut self) {
        let start = self.position;
        self.skip_word();
        if self.at(0) == b'.' && !self.code[start..self.position].contains(&b'n') {
            self.position += 1;
            self.skip_word();
        }
        self.operand(b'0');
    }

    fn skip_word(&mut self) {
        while let Some(character) = self.text[self.position..].chars().next() {
            let inside = character.is_ascii_alphanumeric() || matches!(character, '_' | '$' | '\\' | '#');
            if !inside && (character.is_ascii() || character.is_whitespace() || character == '\u{feff}') {
                break;
            }
            self.position += character.len_utf8();
        }
    }

    fn word(&mut self) {
        let start = self.position;
        self.skip_word();
        let word = &self.text[start..self.position];
        let is_member = self.last == b'.';
        let in_block = self.frames.last().is_some_and(|frame| matches!(frame.open, 0 | b'{'));
        let on_its_own = self.line_end || self.last == b'}';
        let begins = self.ended && (begins_statement(word) || on_its_own && !continues(word)) || starts_anew(word);
        if in_block && !is_member && begins {
            self.begin();
        }
        let (before, ended) = match meaning(word) {
            _ if is_member => (Before::Operand, true),
            // `for await (…)`
            _ if word == "await" && self.before == Before::Keyword => (Before::Keyword, false),
            meaning => meaning,
        };
        if self.last == b'a' || before != Before::Operand {
            self.level();
        }
        (self.before, self.ended) = (before, ended);
    }

    fn note(&mut self) {
        let inside = &self.frames[..self.frames.len() - 1];
        self.most.brackets = self.most.brackets.max(inside.len());
        self.most.angles = self.most.angles.max(inside.iter().filter(|frame| frame.angles > 0).count());
        let open = self.frames.iter().map(|frame| frame.angles).sum();
        self.most.open_angles = self.most.open_angles.max(open);
        // Far beyond what is looked at: the sums above must not become slow.
        self.lost |= self.frames.len() > 200;
    }
}
