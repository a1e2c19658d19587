//! `hyperlight-mcp-reader`: reads agent code for the addon, which starts it, asks about code on its standard input and gets answers on
//! its standard output. It may end over some code: then that code has not been looked at, and nothing else has happened.

fn main() -> std::io::Result<()> {
    hyperlight_mcp::sandbox::serve_reader()
}
