//! How deeply code nests, found before a parser sees it.
//!
//! The parser recurses, and where it cannot tell a bracket's meaning it tries one reading after the other: inside each other, these
//! tries cost the square of the depth, and for TypeScript's angle brackets far more. So the depth is found first. It is never too
//! small: where this scan cannot tell a regular expression from a division, it closes nothing any more.

/// How deeply code nests at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Nesting {
    /// Brackets inside each other, angle ones included.
    pub(super) brackets: usize,
    /// Brackets that stand behind an open angle, inside each other: where a reading as type arguments begins again and again.
    pub(super) angles: usize,
}

struct Frame {
    open: u8,
    /// Angle brackets open directly in it.
    angles: usize,
    /// Whether it is the head of `if (…)` and the like: behind it, a slash begins a regular expression.
    head: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A slash divides.
    Operand,
    /// A slash begins a regular expression.
    Operator,
    /// The head of a statement may follow.
    Keyword,
    Unclear,
}

struct Scan<'a> {
    code: &'a [u8],
    position: usize,
    frames: Vec<Frame>,
    before: Before,
    /// Nothing is closed any more.
    lost: bool,
    most: Nesting,
}

/// The nesting of some code, or more.
pub(super) fn nesting(code: &str) -> Nesting {
    let bottom = Frame { open: 0, angles: 0, head: false };
    let mut scan =
        Scan { code: code.as_bytes(), position: 0, frames: vec![bottom], before: Before::Operator, lost: false, most: Nesting::default() };
    let (mut brackets, mut angles) = (0, 0);
    while let Some(byte) = scan.code.get(scan.position).copied() {
        scan.step(byte);
        if scan.lost {
            // Strings and comments may be code from here on.
            let rest = &scan.code[scan.position.min(scan.code.len())..];
            brackets = rest.iter().filter(|byte| matches!(byte, b'(' | b'[' | b'{' | b'<')).count();
            angles = rest.split(|byte| *byte == b'<').count() - 1;
            break;
        }
    }
    Nesting { brackets: scan.most.brackets + brackets, angles: scan.most.angles + angles }
}

impl Scan<'_> {
    fn at(&self, offset: usize) -> u8 {
        self.code.get(self.position + offset).copied().unwrap_or(0)
    }

    fn step(&mut self, byte: u8) {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => self.position += 1,
            b'/' if self.at(1) == b'/' => self.skip_line(),
            b'/' if self.at(1) == b'*' => self.skip_comment(),
            b'#' if self.position == 0 && self.at(1) == b'!' => self.skip_line(),
            b'/' => self.slash(),
            b'"' | b'\'' => self.string(byte),
            b'`' => self.template(1),
            b'(' | b'[' | b'{' => self.open(byte),
            b')' | b']' | b'}' => self.close(byte),
            b'<' => self.angle(),
            _ if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'\\' | b'#') || byte >= 0x80 => self.word(),
            _ => self.operator(byte),
        }
    }

    fn skip_line(&mut self) {
        // Unicode's two line ends end a comment, too.
        while self.position < self.code.len()
            && !matches!(self.at(0), b'\n' | b'\r')
            && !self.code[self.position..].starts_with(&[0xe2, 0x80])
        {
            self.position += 1;
        }
        // Not one of them, but a sign that looks like them by its first bytes.
        if self.at(0) == 0xe2 && !matches!(self.at(2), 0xa8 | 0xa9) {
            self.position += 3;
            self.skip_line_rest();
        }
    }

    fn skip_line_rest(&mut self) {
        while self.position < self.code.len() {
            match self.at(0) {
                b'\n' | b'\r' => return,
                0xe2 if self.at(1) == 0x80 && matches!(self.at(2), 0xa8 | 0xa9) => return,
                _ => self.position += 1,
            }
        }
    }

    fn skip_comment(&mut self) {
        let end = self.code[self.position + 2..].windows(2).position(|pair| pair == b"*/");
        self.position = end.map_or(self.code.len(), |length| self.position + length + 4);
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
        self.before = Before::Operand;
    }

    /// A template from behind its first `skipped` bytes to its end or to a `${`.
    fn template(&mut self, skipped: usize) {
        self.position += skipped;
        while self.position < self.code.len() {
            match self.at(0) {
                b'\\' => self.position += 2,
                b'`' => {
                    self.position += 1;
                    self.before = Before::Operand;
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
            Before::Operand => self.operator(b'/'),
            Before::Operator | Before::Keyword => self.regular_expression(),
            Before::Unclear => self.lost = true,
        }
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
                    self.before = Before::Operand;
                    return;
                }
                _ => {}
            }
            self.position += 1;
        }
        self.lost = true;
    }

    fn open(&mut self, open: u8) {
        self.frames.push(Frame { open, angles: 0, head: open == b'(' && self.before == Before::Keyword });
        self.position += 1;
        self.before = Before::Operator;
        self.note();
    }

    fn close(&mut self, close: u8) {
        let frame = self.frames.pop_if(|frame| matches!((frame.open, close), (b'(', b')') | (b'[', b']') | (b'{' | b'$', b'}')));
        let Some(frame) = frame else {
            self.lost = true;
            return;
        };
        if frame.open == b'$' {
            self.template(1);
            return;
        }
        self.position += 1;
        self.before = match close {
            b'}' => Before::Unclear,
            _ if frame.head => Before::Operator,
            _ => Before::Operand,
        };
    }

    fn angle(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.angles += 1;
        }
        self.position += 1;
        self.before = Before::Operator;
        self.note();
    }

    fn operator(&mut self, byte: u8) {
        let arrow = byte == b'>' && self.position > 0 && self.code[self.position - 1] == b'=';
        if let Some(frame) = self.frames.last_mut() {
            match byte {
                b';' => frame.angles = 0,
                b'>' if !arrow => frame.angles = frame.angles.saturating_sub(1),
                _ => {}
            }
        }
        let twice = self.position > 0 && self.code[self.position - 1] == byte;
        self.before = match byte {
            b'+' | b'-' if twice => Before::Unclear,
            b'>' if !arrow => Before::Unclear,
            // Behind a value it may be TypeScript's, and then a slash divides.
            b'!' if matches!(self.before, Before::Operand | Before::Unclear) => Before::Unclear,
            _ => Before::Operator,
        };
        self.position += 1;
    }

    fn word(&mut self) {
        let start = self.position;
        while self.position < self.code.len()
            && (self.at(0).is_ascii_alphanumeric() || matches!(self.at(0), b'_' | b'$' | b'\\' | b'#') || self.at(0) >= 0x80)
        {
            self.position += 1;
        }
        let is_member = self.code[..start].ends_with(b".") && !self.code[..start].ends_with(b"...");
        self.before = match &self.code[start..self.position] {
            _ if is_member => Before::Operand,
            b"if" | b"while" | b"for" | b"with" => Before::Keyword,
            b"return" | b"typeof" | b"case" | b"do" | b"else" | b"in" | b"instanceof" | b"new" | b"void" | b"delete" | b"throw"
            | b"extends" | b"default" => Before::Operator,
            b"await" | b"yield" | b"of" | b"as" | b"satisfies" | b"async" | b"is" => Before::Unclear,
            _ => Before::Operand,
        };
    }

    fn note(&mut self) {
        let brackets = self.frames.len() - 1 + self.frames.iter().map(|frame| frame.angles).sum::<usize>();
        let inside = &self.frames[..self.frames.len() - 1];
        let angles = inside.iter().filter(|frame| frame.angles > 0).count();
        self.most.brackets = self.most.brackets.max(brackets);
        self.most.angles = self.most.angles.max(angles);
        // Far beyond what is looked at: the sums above must not become slow.
        self.lost |= self.frames.len() > 1_000;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brackets(code: &str) -> usize {
        nesting(code).brackets
    }

    #[test]
    fn brackets_count_as_deep_as_they_are_open() {
        assert_eq!(brackets("f(a)(b)[c]; { g({ h: [1] }) }"), 4);
        assert_eq!(brackets("for (let i = 0; i < n; i++) { if (a < b) {} }"), 3);
        assert_eq!(brackets("const m: Map<string, Array<number>> = x; if (a > b) {}"), 2);
        assert_eq!(brackets(&"const a = [1, 2].map((x) => x / 2);\n".repeat(100)), 2);
    }

    #[test]
    fn nothing_in_a_string_or_comment_counts_or_closes() {
        assert_eq!(brackets("'(((' + \"[[[\" + `{{{ ${ f('((') } ((`; // (((\n/* ((( */ /[(\\/(]/"), 2);
        assert_eq!(brackets(&"f(')',".repeat(50)), 50);
        assert_eq!(brackets(&"f(`)`,".repeat(50)), 50);
        assert_eq!(brackets(&"f(/)/,".repeat(50)), 50);
    }

    #[test]
    fn where_a_slash_may_be_either_nothing_closes_any_more() {
        assert!(brackets(&format!("a++ /'/.x; {}", "(')',".repeat(50))) >= 50);
        assert!(brackets(&format!("{{}} /`/.x; {}", "(a)+".repeat(50))) >= 50);
        assert_eq!(brackets(&format!("if (a) /x/.test(b); {}", "(a);".repeat(50))), 1);
        assert_eq!(brackets(&format!("(a) / 2; {}", "(a);".repeat(50))), 1);
    }

    #[test]
    fn brackets_behind_an_open_angle_are_told_apart() {
        assert_eq!(nesting("A<B<(a=A<B<(a=A<B<(a=").angles, 3);
        assert_eq!(nesting("const f = (a: Promise<Array<(b: Map<C, D>) => void>>) => a").angles, 1);
        assert_eq!(nesting("if (a < (b + c) && (d < e)) {}").angles, 1);
    }
}
