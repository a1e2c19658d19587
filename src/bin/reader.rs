//! The program `hyperlight-mcp-reader`. It parses agent code for the addon. The addon starts it, sends code to its standard input, and
//! reads answers from its standard output. If some code crashes the parser, only the check of that code fails, and the addon continues.

fn main() -> std::io::Result<()> {
    hyperlight_mcp::sandbox::serve_reader()
}
