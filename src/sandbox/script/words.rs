//! What the words of the languages mean for what may stand behind them.

/// What stands before a token, as far as it says what a slash is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// A slash divides.
    Operand,
    /// A slash begins a regular expression.
    Operator,
    /// The head of a statement may follow.
    Keyword,
    Unclear,
}

/// What a word is for what follows it, and whether a statement may end with it.
pub(super) fn meaning(word: &str) -> (Before, bool) {
    match word {
        "if" | "while" | "for" | "with" => (Before::Keyword, false),
        "return" | "typeof" | "case" | "do" | "else" | "in" | "instanceof" | "new" | "void" | "delete" | "throw" | "extends"
        | "default" => (Before::Operator, false),
        // Words with something behind them that need not be a value, and words that are names as well.
        "await" | "yield" | "of" | "as" | "satisfies" | "async" | "is" | "break" | "continue" | "debugger" | "const" | "let" | "var"
        | "function" | "class" | "enum" | "import" | "export" | "static" | "keyof" | "unique" | "readonly" | "infer" | "asserts"
        | "abstract" | "declare" | "accessor" | "interface" | "implements" | "try" | "finally" | "catch" | "switch" | "using"
        | "namespace" | "module" | "public" | "private" | "protected" | "override" => (Before::Unclear, false),
        // An escape may stand for any character.
        _ if word.contains('\\') => (Before::Unclear, false),
        _ => (Before::Operand, true),
    }
}

/// Words that begin a statement wherever a value stands before them.
pub(super) fn begins_statement(word: &str) -> bool {
    matches!(
        word,
        "const"
            | "var"
            | "function"
            | "class"
            | "export"
            | "import"
            | "return"
            | "if"
            | "for"
            | "while"
            | "throw"
            | "try"
            | "switch"
            | "do"
            | "break"
            | "continue"
            | "debugger"
    )
}

/// Words that go on with what stands in the line before.
pub(super) fn continues(word: &str) -> bool {
    matches!(
        word,
        "in" | "instanceof"
            | "as"
            | "satisfies"
            | "is"
            | "extends"
            | "of"
            | "from"
            | "implements"
            | "else"
            | "catch"
            | "finally"
            | "with"
            | "while"
    )
}

/// Words before which everything has ended.
pub(super) fn starts_anew(word: &str) -> bool {
    word == "case"
}
