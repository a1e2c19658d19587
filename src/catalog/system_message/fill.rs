//! Chooses the parts of the message, and joins them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::text::{cut, fence_length, fenced, head, in_one_line, module_line, totals};
use super::{FunctionPosition, Module};
use crate::catalog::declarations::Failures;
use crate::catalog::tokens::estimate_tokens;

/// Number of functions found for the task that are declared before others are listed.
const FIRST_DECLARED: usize = 5;
/// Number of times that the rest of the budget is filled. Declarations that are written together share types, so they cost less than the
/// sum of their parts.
const ROUNDS: usize = 6;
/// After this number of texts in a row that do not fit, no further texts of their kind are tried, because there may be thousands.
const MAX_MISSED: usize = 200;
/// Maximum number of functions whose next text is tried for the last part of the budget. Only the beginning of such a text may fit.
const MAX_BEGUN: usize = 8;
/// Minimum number of free tokens. With fewer, no further text is added.
const LEAST: usize = 4;
/// Maximum total size of the tools whose declarations are built. Building them blocks the calling thread, which may be JavaScript's main
/// thread, for a fraction of a second.
const MAX_DECLARED_BYTES: usize = 1024 * 1024;
/// A tool with more than this number of bytes for each token of the budget is not declared. A declaration has at least a tenth of the bytes
/// of its JSON, and a token has about four bytes. So the declaration of a larger tool would not fit, and is not built.
const BYTES_PER_TOKEN: usize = 40;

/// The amount of text about a module, besides its functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ModuleText {
    Absent,
    /// The name of the module, in a list.
    Named,
    /// A separate line.
    Line,
}

/// The amount of text about a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Line,
    /// A line, and the beginning of the declaration.
    Begun,
    Declared,
}

/// A step that takes a part of the budget.
#[derive(Debug, Clone, Copy)]
enum Step {
    Introduce,
    Mention(usize, ModuleText),
    Show(FunctionPosition),
    Declare(FunctionPosition),
}

pub(super) struct Fill<'a> {
    modules: &'a [Box<dyn Module + 'a>],
    failures: Failures,
    budget: usize,
    order: Vec<FunctionPosition>,
    found: usize,
    introduced: bool,
    module_texts: Vec<ModuleText>,
    shown: BTreeMap<FunctionPosition, Shown>,
    /// Texts that may be cut: a function's line, or the declaration after the line.
    begun: BTreeMap<FunctionPosition, String>,
    lines: HashMap<FunctionPosition, String>,
    /// For each function, the number of tokens of its declaration, and the length of the code fence that the declaration needs.
    declared: HashMap<FunctionPosition, Option<(usize, usize)>>,
    bytes: usize,
}

impl<'a> Fill<'a> {
    pub(super) fn new(
        modules: &'a [Box<dyn Module + 'a>],
        order: Vec<FunctionPosition>,
        found: usize,
        failures: Failures,
        budget: usize,
    ) -> Self {
        Self {
            modules,
            failures,
            budget,
            order,
            found,
            introduced: false,
            module_texts: vec![ModuleText::Absent; modules.len()],
            shown: BTreeMap::new(),
            begun: BTreeMap::new(),
            lines: HashMap::new(),
            declared: HashMap::new(),
            bytes: MAX_DECLARED_BYTES,
        }
    }

    /// Uses the budget, and returns the message.
    pub(super) fn filled(&mut self) -> String {
        for _ in 0..ROUNDS {
            if self.round() == 0 {
                break;
            }
        }
        self.begin_next();
        self.message()
    }

    /// Takes all steps that fit, in their order. Returns the number of them.
    fn round(&mut self) -> usize {
        let mut left = self.budget.saturating_sub(estimate_tokens(&self.message()));
        let mut taken = Vec::new();
        for steps in self.phases() {
            let mut missed = 0;
            for step in steps {
                if left < LEAST || missed > MAX_MISSED {
                    break;
                }
                match self.cost(step, left) {
                    Some(cost) if cost <= left => {
                        taken.push((step, self.take(step)));
                        left -= cost;
                        missed = 0;
                    }
                    Some(_) => missed += 1,
                    None => {}
                }
            }
        }
        // The costs are upper bounds, except for unusual texts, such as names that form one token with their neighbours. If the message is
        // too long, the last steps are undone.
        while estimate_tokens(&self.message()) > self.budget
            && let Some((step, before)) = taken.pop()
        {
            self.undo(step, before);
        }
        taken.len()
    }

    /// Returns all steps in the order in which they are taken.
    fn phases(&self) -> [Vec<Step>; 6] {
        let modules = self.modules_in_order();
        let mention = |text| modules.iter().map(|module| Step::Mention(*module, text)).collect();
        let declare = |count| self.order.iter().take(count).map(|place| Step::Declare(*place)).collect();
        [
            mention(ModuleText::Named),
            vec![Step::Introduce],
            declare(self.found.min(FIRST_DECLARED)),
            mention(ModuleText::Line),
            self.order.iter().map(|place| Step::Show(*place)).collect(),
            declare(self.order.len()),
        ]
    }

    /// Returns the modules in the order of their likeliest functions. Modules without functions come last.
    fn modules_in_order(&self) -> Vec<usize> {
        let mut seen = BTreeSet::new();
        let all = self.order.iter().map(|(module, _)| *module).chain(0..self.modules.len());
        all.filter(|module| seen.insert(*module)).collect()
    }

    /// Returns an upper bound for the tokens of a step. If the bound is above `left`, any number above `left` may be returned. Returns
    /// `None` if the step was taken before or is not possible.
    fn cost(&mut self, step: Step, left: usize) -> Option<usize> {
        match step {
            Step::Introduce => (!self.introduced).then(|| {
                let head = |example: Option<&str>| estimate_tokens(&head(example, self.failures));
                head(Some(&self.example())) - head(None)
            }),
            Step::Mention(module, text) => {
                (self.module_texts[module] < text && !self.is_declared(module)).then(|| self.mention_tokens(module, text))
            }
            Step::Show(place) => {
                (!self.shown.contains_key(&place) && self.module_texts[place.0] == ModuleText::Line).then(|| self.line_tokens(place))
            }
            Step::Declare(place) => {
                if self.shown.get(&place) == Some(&Shown::Declared) {
                    return None;
                }
                let line = if self.shown.contains_key(&place) { self.line_tokens(place) } else { 0 };
                if self.modules[place.0].bytes(place.1) / BYTES_PER_TOKEN > left + line {
                    return Some(usize::MAX);
                }
                let (tokens, fence) = self.declaration_tokens(place)?;
                Some((tokens + 2 * estimate_tokens(&"`".repeat(fence)) + 2).saturating_sub(line))
            }
        }
    }

    fn mention_tokens(&self, module: usize, text: ModuleText) -> usize {
        let (of, functions) = (&self.modules[module], self.modules[module].functions());
        match text {
            ModuleText::Absent => 0,
            ModuleText::Named => estimate_tokens(of.specifier()) + 1,
            ModuleText::Line => estimate_tokens(&module_line(of.specifier(), functions, functions, &of.purpose())),
        }
    }

    fn line_tokens(&mut self, place: FunctionPosition) -> usize {
        let modules = self.modules;
        let line = self.lines.entry(place).or_insert_with(|| modules[place.0].line(place.1));
        estimate_tokens(line.trim_start())
    }

    fn declaration_tokens(&mut self, place: FunctionPosition) -> Option<(usize, usize)> {
        if let Some(known) = self.declared.get(&place) {
            return *known;
        }
        let bytes = self.modules[place.0].bytes(place.1);
        let of = (bytes <= self.bytes).then(|| {
            self.bytes -= bytes;
            let text = self.modules[place.0].declaration(&[place.1]);
            (estimate_tokens(&text), fence_length(&text))
        });
        self.declared.insert(place, of);
        of
    }

    /// Takes a step. Returns the amounts of text about the step's function and module before the step.
    fn take(&mut self, step: Step) -> (Option<Shown>, ModuleText) {
        match step {
            Step::Introduce => self.introduced = true,
            Step::Mention(module, text) => return (None, std::mem::replace(&mut self.module_texts[module], text)),
            Step::Show(place) => return (self.shown.insert(place, Shown::Line), ModuleText::Absent),
            Step::Declare(place) => return (self.shown.insert(place, Shown::Declared), ModuleText::Absent),
        }
        (None, ModuleText::Absent)
    }

    fn undo(&mut self, step: Step, (shown, text): (Option<Shown>, ModuleText)) {
        match (step, shown) {
            (Step::Introduce, _) => self.introduced = false,
            (Step::Mention(module, _), _) => self.module_texts[module] = text,
            (Step::Show(place) | Step::Declare(place), Some(shown)) => drop(self.shown.insert(place, shown)),
            (Step::Show(place) | Step::Declare(place), None) => drop(self.shown.remove(&place)),
        }
    }

    /// Uses the rest of the budget for the next texts of some functions. The text that does not fit is cut.
    fn begin_next(&mut self) {
        let mut left = self.budget.saturating_sub(estimate_tokens(&self.message()));
        let mut tried = 0;
        for place in self.order.clone() {
            if left < LEAST * 2 || tried > MAX_BEGUN {
                return;
            }
            let shown = self.shown.get(&place).copied();
            let Some(text) = self.next_text(place, shown).filter(|text| !text.trim().is_empty()) else { continue };
            tried += 1;
            let whole = format!("{}\n", text.trim_end());
            let name = self.modules[place.0].name(place.1);
            // One token is kept for the line end that the text replaces.
            let text = if estimate_tokens(&whole) < left { Some(whole) } else { cut(&text, &name, left - 1) };
            let Some(text) = text else { continue };
            self.begun.insert(place, text);
            self.shown.insert(place, Shown::Begun);
            let used = estimate_tokens(&self.message());
            if used > self.budget {
                self.begun.remove(&place);
                self.undo(Step::Show(place), (shown, ModuleText::Absent));
            } else {
                left = self.budget - used;
            }
        }
    }

    /// Returns the next text about a function: its line, or its declaration if the line is already shown.
    fn next_text(&mut self, place: FunctionPosition, shown: Option<Shown>) -> Option<String> {
        match shown {
            None if self.module_texts[place.0] == ModuleText::Line => {
                self.line_tokens(place);
                self.lines.get(&place).cloned()
            }
            Some(Shown::Line) => {
                // The declaration's beginning fits even if the whole declaration does not.
                let bytes = self.modules[place.0].bytes(place.1);
                self.bytes = self.bytes.checked_sub(bytes)?;
                Some(format!("    {}", in_one_line(&self.modules[place.0].declaration(&[place.1]))))
            }
            _ => None,
        }
    }

    /// Returns the example of the first function in the order.
    fn example(&self) -> String {
        self.order.first().map(|(module, function)| self.modules[*module].example(*function)).unwrap_or_default()
    }

    /// Returns whether all functions of a module are declared. The declarations then say what its line would.
    fn is_declared(&self, module: usize) -> bool {
        let functions = self.modules[module].functions();
        functions > 0 && (0..functions).all(|function| self.shown.get(&(module, function)) == Some(&Shown::Declared))
    }

    /// Returns the message with all that was chosen.
    pub(super) fn message(&self) -> String {
        let example = self.introduced.then(|| self.example());
        let mut message = head(example.as_deref(), self.failures);
        let functions: usize = self.modules.iter().map(|module| module.functions()).sum();
        message.push_str(&totals(self.modules.len(), functions, functions - self.shown.len()));
        let mut named = Vec::new();
        let mut declarations = String::new();
        for (index, module) in self.modules.iter().enumerate() {
            let shown: Vec<(usize, Shown)> =
                self.shown.range((index, 0)..(index + 1, 0)).map(|((_, function), shown)| (*function, *shown)).collect();
            let declared: Vec<usize> = shown.iter().filter(|(_, shown)| *shown == Shown::Declared).map(|(function, _)| *function).collect();
            if !declared.is_empty() {
                declarations.push_str(&module.declaration(&declared));
            }
            match self.module_texts[index] {
                _ if self.is_declared(index) => {}
                ModuleText::Absent => {}
                ModuleText::Named => named.push(module.specifier()),
                ModuleText::Line => {
                    let all = module.functions();
                    message.push_str(&module_line(module.specifier(), all, all - shown.len(), &module.purpose()));
                    for (function, shown) in shown {
                        message.push_str(&self.about((index, function), shown));
                    }
                }
            }
        }
        if !named.is_empty() {
            message.push_str(&named.join(" "));
            message.push('\n');
        }
        if !declarations.is_empty() {
            message.push_str(&fenced("ts", declarations.trim_end()));
        }
        message
    }

    fn about(&self, place: FunctionPosition, shown: Shown) -> String {
        let line = self.lines.get(&place).map(String::as_str).unwrap_or_default();
        match (shown, self.begun.get(&place)) {
            (Shown::Declared, _) => String::new(),
            (Shown::Begun, Some(begun)) if begun.starts_with("    ") => format!("{line}{begun}"),
            (Shown::Begun, Some(begun)) => begun.clone(),
            _ => line.to_owned(),
        }
    }
}
