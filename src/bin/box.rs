//! The program `hyperlight-mcp-box`. The addon starts it in place of a server's command. It makes a box, and then replaces itself by the
//! server.

fn main() {
    std::process::exit(hyperlight_mcp::boxes::build::main())
}
