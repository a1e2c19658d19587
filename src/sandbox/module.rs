//! A host module as the guest sees it: JavaScript made from a list of names, whose functions call out of the VM.

use std::fmt::Write as _;

use serde_json::Value as Json;

/// A function of a host module: what agent code writes, and what the host is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleFunction {
    /// A JavaScript identifier that is no reserved word.
    pub name: String,
    /// What [`super::HostCall::function`] will say.
    pub target: String,
}

/// A module that a run can import as `host:<name>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestModule {
    pub name: String,
    pub functions: Vec<ModuleFunction>,
}

impl GuestModule {
    /// The name that agent code imports.
    #[must_use]
    pub fn specifier(&self) -> String {
        format!("host:{}", self.name)
    }

    /// The module's source.
    ///
    /// ```
    /// use hyperlight_mcp::sandbox::{GuestModule, ModuleFunction};
    /// let add = ModuleFunction { name: "add".into(), target: "add".into() };
    /// let source = GuestModule { name: "math".into(), functions: vec![add] }.source();
    /// assert!(source.contains("export { f0 as add };"));
    /// ```
    #[must_use]
    pub fn source(&self) -> String {
        let mut source = String::from("const { bind } = globalThis[Symbol.for(\"hyperlight-mcp\")];\n");
        let module = quote(&self.name);
        let mut names = Vec::with_capacity(self.functions.len());
        for (index, function) in self.functions.iter().enumerate() {
            // The local names are ours, so that no tool's name can collide with `bind` or with another's.
            // Writing to a String cannot fail.
            let _ = writeln!(source, "const f{index} = bind({module}, {});", quote(&function.target));
            let _ = writeln!(source, "export {{ f{index} as {} }};", function.name);
            names.push(format!("{}: f{index}", function.name));
        }
        let _ = writeln!(source, "export default {{ {} }};", names.join(", "));
        source
    }
}

/// A JavaScript string literal. JSON's quoting is JavaScript's, the two line separators included since ES2019.
fn quote(text: &str) -> String {
    Json::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raw_name_cannot_leave_its_string() {
        let function = ModuleFunction { name: "evil".into(), target: "\"); throw 1; (\"\u{2028}".into() };
        let source = GuestModule { name: "m".into(), functions: vec![function] }.source();
        assert!(source.contains(r#"bind("m", "\"); throw 1; (\""#), "{source}");
        assert_eq!(source.lines().count(), 4);
    }
}
