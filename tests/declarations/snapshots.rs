//! Declarations for review: of representative tools, of the recorded servers, of `host:mcp`.
