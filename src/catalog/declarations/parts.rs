//! Returns the two parts of a signature separately: the parameters and the result.

use super::convert::Direction;
use super::kinds::Kinds;
use super::signature::brief;
use super::types::Type;
use super::{DeclarationStyle, Failures, types_of};
use crate::catalog::Tool;

/// Number of nesting levels of a type that are written out.
const LEVELS: usize = 3;
const MEMBERS: usize = 12;
/// Maximum number of parameters that are listed. The declaration contains all of them.
const MAX_PARAMETERS: usize = 100;

/// A parameter of a function. It is a property of the tool's input object.
pub(in crate::catalog) struct Parameter {
    pub key: String,
    pub declared: String,
    pub required: bool,
}

/// Returns a tool's parameters and its result type for a short description. In a long type, `…` replaces some parts.
pub(in crate::catalog) fn parts(tool: &Tool, style: &DeclarationStyle) -> (Vec<Parameter>, String) {
    let input = types_of(&tool.input_schema, "", Kinds::OBJECT, Direction::Input, style);
    let parameters = match &input[0].value {
        Type::Object(object) => object.properties.iter().take(MAX_PARAMETERS).map(|property| Parameter {
            key: property.key.clone(),
            declared: brief(&property.value, &input, LEVELS, MEMBERS),
            required: !property.optional,
        }),
        _ => return (Vec::new(), returns(tool, style)),
    };
    (parameters.collect(), returns(tool, style))
}

fn returns(tool: &Tool, style: &DeclarationStyle) -> String {
    let output = tool.output_schema.as_ref().map(|schema| types_of(schema, "", Kinds::ALL, Direction::Output, style));
    let given = match (output, style.seen.of(tool)) {
        (Some(output), _) => brief(&output[0].value, &output, LEVELS, MEMBERS),
        (None, Some(seen)) => seen.brief(LEVELS, MEMBERS),
        (None, None) => "ToolOutput".to_owned(),
    };
    if style.failures == Failures::Returned { format!("{given} | ToolError") } else { given }
}
