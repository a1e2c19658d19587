//! The protocol between the host and the reader program. A frame consists of its length (four bytes, little-endian) and JSON.

use std::borrow::Cow;
use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::sandbox::script::{Importable, Problem};

/// The maximum size of a frame in bytes. Code and lists of modules are far smaller.
pub(super) const MAX_FRAME_BYTES: usize = 64 << 20;

/// A question about code.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "question", rename_all = "kebab-case")]
pub(super) enum Question<'a> {
    /// Asks for the code without TypeScript types.
    ToJavascript { code: Cow<'a, str> },
    /// Asks for all problems of the code.
    Check { code: Cow<'a, str>, modules: Cow<'a, [Importable]> },
    /// Asks why the code did not load.
    ExplainLoad { code: Cow<'a, str>, modules: Cow<'a, [Importable]> },
    /// Asks why the engine cannot parse the code.
    ExplainSyntax { code: Cow<'a, str>, modules: Cow<'a, [Importable]>, message: String, line: Option<u32> },
    /// Asks for the call in this line whose function does not exist in its module.
    ExplainNotAFunction { code: Cow<'a, str>, modules: Cow<'a, [Importable]>, line: u32 },
    /// Asks for the problems in the body of a function.
    CheckBody { body: Cow<'a, str>, parameters: Cow<'a, [Cow<'a, str>]>, globals: Cow<'a, [Cow<'a, str>]> },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum Answer {
    /// The code is already JavaScript.
    AsItIs,
    Javascript {
        code: String,
    },
    Problems {
        problems: Vec<Problem>,
    },
    /// A syntax error. It becomes `ERR_CODE_SYNTAX`.
    Syntax {
        message: String,
        line: Option<u32>,
        column: Option<u32>,
    },
    Text {
        text: String,
    },
    Sentences {
        sentences: Vec<String>,
    },
    /// There is nothing to report.
    Nothing,
}

pub(super) fn write_frame(output: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    output.write_all(&length.to_le_bytes())?;
    output.write_all(&json)?;
    output.flush()
}

/// Reads a frame. Returns `None` at the end of the input.
pub(super) fn read_frame<T: DeserializeOwned>(input: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_le_bytes(length);
    if length as usize > MAX_FRAME_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame has {length} bytes, which is too much")));
    }
    let mut json = Vec::new();
    input.take(length.into()).read_to_end(&mut json)?;
    Ok(Some(serde_json::from_slice(&json)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, &Question::ToJavascript { code: "let a: \u{1f600}".into() }).unwrap();
        let mut input = &bytes[..];
        let Some(Question::ToJavascript { code }) = read_frame(&mut input).unwrap() else { panic!() };
        assert_eq!(code, "let a: \u{1f600}");
        assert!(read_frame::<Answer>(&mut input).unwrap().is_none());
    }

    #[test]
    fn what_is_no_frame_is_an_error() {
        assert!(read_frame::<Answer>(&mut &[255, 255, 255, 255, b'{'][..]).is_err());
        assert!(read_frame::<Answer>(&mut &[2, 0, 0, 0, b'{', b'{'][..]).is_err());
        assert!(read_frame::<Answer>(&mut &[9, 0, 0, 0, b'{'][..]).is_err());
    }
}
