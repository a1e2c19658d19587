//! The sources that the guest of a run can load: the agent's code, and the host modules that this code imports. The source of a module is
//! generated when the module is imported.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::module::GuestModules;

/// The specifier of the agent's code in the guest.
pub(super) const CODE_MODULE: &str = "agent:code";

pub(super) struct Sources {
    code: String,
    modules: Arc<dyn GuestModules>,
    /// Generated parts of modules that have not been loaded yet.
    parts: Mutex<BTreeMap<String, String>>,
    begun: AtomicBool,
}

impl Sources {
    /// Returns the sources of a run. `code` is the agent's code as the engine executes it.
    pub(super) fn new(code: String, modules: Arc<dyn GuestModules>) -> Self {
        Self { code, modules, parts: Mutex::default(), begun: AtomicBool::new(false) }
    }

    /// Returns whether the guest has loaded the agent's code. From then on, the run may have had effects.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        name == CODE_MODULE || module_of(name).is_some_and(|module| self.modules.has(module))
    }

    /// Returns the source of a module.
    pub(super) fn load(&self, name: &str) -> Option<String> {
        if name == CODE_MODULE {
            self.begun.store(true, Ordering::Release);
            return Some(self.code.clone());
        }
        let mut parts = self.parts.lock();
        if let Some(made) = parts.remove(name) {
            return Some(made);
        }
        parts.extend(self.modules.module(module_of(name)?)?.sources());
        parts.remove(name)
    }
}

/// Returns the name of a module, without `host:`. `imported` is the specifier of the whole module, or of a generated part of the module.
fn module_of(imported: &str) -> Option<&str> {
    let name = imported.strip_prefix("host:")?;
    Some(name.split_once('/').map_or(name, |(whole, _)| whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::{GuestModule, ModuleFunction};

    fn sources(functions: usize) -> Sources {
        let functions = (0..functions).map(|index| ModuleFunction { name: format!("f_{index}"), target: "x".repeat(100) }).collect();
        Sources::new("code".into(), Arc::new(vec![GuestModule { name: "m".into(), functions }]))
    }

    #[test]
    fn the_agents_code_is_loaded_by_its_name_and_that_begins_the_run() {
        let sources = sources(1);
        assert!(sources.knows(CODE_MODULE) && !sources.has_begun());
        assert_eq!(sources.load(CODE_MODULE).unwrap(), "code");
        assert!(sources.has_begun());
    }

    #[test]
    fn a_module_is_made_when_it_is_asked_for_and_others_are_not_there() {
        let sources = sources(1);
        assert!(sources.load("host:m").unwrap().contains("export { f0 as f_0 };"));
        assert!(sources.load("host:m").is_some(), "a second time as well");
        for unknown in ["host:n", "m", "host:m/part-0", "agent:other", ""] {
            assert!(sources.load(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn a_module_that_comes_in_parts_is_loaded_part_by_part() {
        let sources = sources(2000);
        let main = sources.load("host:m").unwrap();
        assert!(main.contains("host:m/part-0"));
        assert!(sources.load("host:m/part-0").unwrap().contains("f_0"));
        assert!(sources.load("host:m/part-1").is_some() && sources.load("host:m/part-999").is_none());
    }
}
