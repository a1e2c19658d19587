//! Builds the part of a system prompt that describes which modules code can import.
//!
//! The budget is filled function by function, the likeliest first. For a task, the likeliest functions are those that a search for the task
//! finds. Without a task, they are the first function of each module, then the second of each, and so on, so that no server is missing.
//! First, each function gets a line, and then its declaration, as long as there is room. The remaining budget is used for the beginning of
//! the next text. The end of this beginning says where the rest is. Functions that are not shown are counted.

mod fill;
mod modules;
mod text;

#[cfg(test)]
mod tests;

use super::declarations::Failures;
use super::tokens::estimate_tokens;
use crate::error::{Error, Result};

use fill::Fill;
pub(super) use modules::{AgentPart, ServerPart};

/// The texts about a module that the message can contain.
pub(super) trait Module {
    fn specifier(&self) -> &str;
    /// Returns the purpose of the module in one line.
    fn purpose(&self) -> String;
    /// Number of functions.
    fn functions(&self) -> usize;
    /// Returns code that imports a function and calls it.
    fn example(&self, function: usize) -> String;
    /// Returns a function's line: `  - get_forecast({ city, days? }): The forecast of a city.`
    fn line(&self, function: usize) -> String;
    /// Returns the size in bytes of the data from which a function's declaration is built.
    fn bytes(&self, function: usize) -> usize;
    /// Declares the module with some of its functions.
    fn declaration(&self, functions: &[usize]) -> String;
    /// Returns the name by which `describe` finds a function.
    fn name(&self, function: usize) -> String;
}

/// A function: the index of its module, and its index in this module.
pub(super) type FunctionPosition = (usize, usize);

/// Builds the message within the budget. `found` are the functions that a search for the task found, the best first.
pub(super) fn system_message(
    modules: &[Box<dyn Module + '_>],
    found: &[FunctionPosition],
    failures: Failures,
    budget: usize,
) -> Result<String> {
    let mut fill = Fill::new(modules, order(modules, found), found.len(), failures, budget);
    let least = estimate_tokens(&fill.message());
    if least > budget {
        let problem = format!("budgetTokens: must be at least {least}, not {budget}");
        return Err(Error::InvalidOption { method: "Gateway.systemMessage", problem: problem.into() });
    }
    Ok(fill.filled())
}

/// Returns all functions in the order in which they are listed: those that were found, and then one function of each module in turn.
fn order(modules: &[Box<dyn Module + '_>], found: &[FunctionPosition]) -> Vec<FunctionPosition> {
    let most = modules.iter().map(|module| module.functions()).max().unwrap_or_default();
    let known: std::collections::HashSet<&FunctionPosition> = found.iter().collect();
    // Each round asks only the modules that have so many functions. Among a thousand modules, one may have thousands of functions.
    let mut left: Vec<usize> = (0..modules.len()).collect();
    let mut order = found.to_vec();
    for function in 0..most {
        left.retain(|module| function < modules[*module].functions());
        order.extend(left.iter().map(|module| (*module, function)).filter(|place| !known.contains(place)));
    }
    order
}
