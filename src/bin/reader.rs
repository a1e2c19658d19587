//! The program `hyperlight-mcp-reader`: parses agent code for the addon. The addon starts it, sends code to its standard input and reads
//! answers from its standard output. Some code may crash it. Then that code stays unchecked, and nothing else is harmed.

fn main() -> std::io::Result<()> {
    hyperlight_mcp::sandbox::serve_reader()
}
