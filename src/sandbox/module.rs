//! Generates the JavaScript source of host modules from lists of names. The functions in these modules call the host.

use std::fmt::Write as _;

use serde_json::Value as Json;

/// The approximate maximum size in bytes of one source. The smallest buffer of a guest has room for twice this size.
const MAX_PART_BYTES: usize = 100 * 1024;

/// A function of a host module: its name in agent code, and its name on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleFunction {
    /// The name in agent code: a JavaScript identifier that is not a reserved word.
    pub name: String,
    /// The name that the host receives as [`super::HostCall::function`].
    pub target: String,
}

/// A module that a run can import as `host:<name>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestModule {
    pub name: String,
    pub functions: Vec<ModuleFunction>,
}

/// The modules that a run can import. The source of a module is generated when code imports it.
pub trait GuestModules: Send + Sync {
    /// Returns the modules' names, without `host:`.
    fn names(&self) -> Vec<String>;

    /// Returns whether a module with this name exists.
    fn has(&self, name: &str) -> bool {
        self.names().iter().any(|known| known == name)
    }

    /// Returns the module with this name.
    fn module(&self, name: &str) -> Option<GuestModule>;
}

impl GuestModules for Vec<GuestModule> {
    fn names(&self) -> Vec<String> {
        self.iter().map(|module| module.name.clone()).collect()
    }

    fn module(&self, name: &str) -> Option<GuestModule> {
        self.iter().find(|module| module.name == name).cloned()
    }
}

impl GuestModule {
    /// Returns the specifier that agent code imports.
    #[must_use]
    pub fn specifier(&self) -> String {
        format!("host:{}", self.name)
    }

    /// Returns the module's sources, each with its specifier. A module with a large number of functions is split into several sources,
    /// because each source must fit into the guest's buffer.
    ///
    /// ```
    /// use hyperlight_mcp::sandbox::{GuestModule, ModuleFunction};
    /// let add = ModuleFunction { name: "add".into(), target: "add".into() };
    /// let sources = GuestModule { name: "math".into(), functions: vec![add] }.sources();
    /// assert_eq!(sources[0].0, "host:math");
    /// assert!(sources[0].1.contains("export { f0 as add };"));
    /// ```
    #[must_use]
    pub fn sources(&self) -> Vec<(String, String)> {
        let parts = self.parts();
        if let [part] = parts[..] {
            return vec![(self.specifier(), self.source(part))];
        }
        let mut main = String::new();
        let mut sources = Vec::with_capacity(parts.len() + 1);
        for (index, part) in parts.into_iter().enumerate() {
            let specifier = format!("{}/part-{index}", self.specifier());
            // Writing to a String cannot fail.
            let _ = writeln!(main, "export * from \"{specifier}\"; import p{index} from \"{specifier}\";");
            sources.push((specifier, self.source(part)));
        }
        let names: Vec<String> = (0..sources.len()).map(|index| format!("...p{index}")).collect();
        let _ = writeln!(main, "export default {{ {} }};", names.join(", "));
        sources.push((self.specifier(), main));
        sources
    }

    /// Splits the functions into parts whose sources stay below [`MAX_PART_BYTES`].
    fn parts(&self) -> Vec<&[ModuleFunction]> {
        let mut parts = Vec::new();
        let (mut start, mut size) = (0, 0);
        for (index, function) in self.functions.iter().enumerate() {
            // The source contains each name twice. Quoting may make the host's name up to six times as long. The rest of a function's
            // source is short.
            size += 100 + function.name.len() * 2 + function.target.len() * 6;
            if size > MAX_PART_BYTES && index > start {
                parts.push(&self.functions[start..index]);
                (start, size) = (index, 0);
            }
        }
        parts.push(&self.functions[start..]);
        parts
    }

    fn source(&self, functions: &[ModuleFunction]) -> String {
        let mut source = String::from("const { bind } = globalThis[Symbol.for(\"hyperlight-mcp\")];\n");
        let module = quote(&self.name);
        let mut names = Vec::with_capacity(functions.len());
        for (index, function) in functions.iter().enumerate() {
            // The local names are generated, so that a tool's name cannot collide with `bind` or with another tool's name.
            let _ = writeln!(source, "const f{index} = bind({module}, {});", quote(&function.target));
            let _ = writeln!(source, "export {{ f{index} as {} }};", function.name);
            names.push(format!("{}: f{index}", function.name));
        }
        let _ = writeln!(source, "export default {{ {} }};", names.join(", "));
        source
    }
}

/// Returns a JavaScript string literal. Since ES2019, every JSON string is a valid JavaScript literal, even with U+2028 and U+2029.
fn quote(text: &str) -> String {
    Json::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raw_name_cannot_leave_its_string() {
        let function = ModuleFunction { name: "evil".into(), target: "\"); throw 1; (\"\u{2028}".into() };
        let module = GuestModule { name: "m".into(), functions: vec![function] };
        let source = module.source(&module.functions);
        assert!(source.contains(r#"bind("m", "\"); throw 1; (\""#), "{source}");
        assert_eq!(source.lines().count(), 4);
    }

    #[test]
    fn a_module_with_very_many_functions_comes_in_parts() {
        let functions = (0..2000).map(|index| ModuleFunction { name: format!("f_{index}"), target: "x".repeat(100) }).collect();
        let sources = GuestModule { name: "m".into(), functions }.sources();
        assert!(sources.len() > 5);
        assert!(sources.iter().all(|(_, source)| source.len() < 2 * MAX_PART_BYTES));
        assert!(sources.last().is_some_and(|(name, _)| name == "host:m"));
    }
}
