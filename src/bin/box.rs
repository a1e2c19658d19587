//! The program `hyperlight-mcp-box`. The addon starts it in place of a server's command: it makes a box and becomes the server.

fn main() {
    std::process::exit(hyperlight_mcp::boxes::build::main())
}
