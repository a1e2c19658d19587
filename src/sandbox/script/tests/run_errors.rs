//! Tests of the explanations that parsing the code adds to the errors of a run.

use super::*;
use crate::sandbox::module::{GuestModule, ModuleFunction};

fn weather() -> [Importable; 1] {
    let function = ModuleFunction { name: "get_forecast".into(), target: "get-forecast".into() };
    [Importable::from(&GuestModule { name: "mcp-weather".into(), functions: vec![function] })]
}

#[test]
fn what_does_not_load_says_what_was_meant() {
    let code = "import w from 'host:mcp-weather';\nw.nope();\nimport { get_forcast } from 'host:mcp-weather';";
    let Some(Error::CodeSyntax { message, line, column }) = explain_load(code, &weather()) else { panic!("no explanation") };
    assert_eq!(message.shown(), "host:mcp-weather has no function get_forcast; did you mean get_forecast?");
    assert_eq!((line, column), (Some(3), Some(10)));
    let Some(Error::CodeSyntax { message, .. }) = explain_load("import 'weather'", &weather()) else { panic!("no explanation") };
    assert_eq!(message.shown(), "there is no module weather; did you mean host:mcp-weather?");
    assert!(explain_load("import w from 'host:mcp-weather'; w.nope()", &weather()).is_none());
}

#[test]
fn what_is_no_function_is_explained_at_its_own_line() {
    let code = "import w from 'host:mcp-weather';\nconst handler = () =>\n  w.get_forcast({});";
    let expected = "host:mcp-weather has no function get_forcast; did you mean get_forecast?";
    assert_eq!(explain_not_a_function(code, &weather(), 3).as_deref(), Some(expected));
    assert_eq!(explain_not_a_function(code, &weather(), 2), None);
}
