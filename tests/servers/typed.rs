//! Text that a person types for an input never appears in output or files of a gateway, in any form.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use hyperlight_mcp::gateway::{Answer, CallOptions, Callbacks};
use hyperlight_mcp::sandbox::Stop;
use hyperlight_mcp::{Gateway, GatewayOptions};
use secrecy::SecretString;
use serde_json::json;

use crate::support::{FIXTURE, TestFolder, emulated, guest_choice, object};

/// Types the same text for each input.
struct Typist(&'static str);

impl Callbacks for Typist {
    fn input(&self, _id: &str, _description: &str, _server: &str) -> Option<Answer<SecretString>> {
        let typed = SecretString::from(self.0);
        Some(Box::pin(async move { Ok(typed) }))
    }
}

fn is_in_a_file_of(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() { is_in_a_file_of(&path, text) } else { String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(text) }
    })
}

async fn assert_kept_secret(typed: &'static str) {
    let test_folder = TestFolder::new();
    let heard = Arc::new(Mutex::new(String::new()));
    let mut options = GatewayOptions::new(test_folder.watchdog_program(), tokio::runtime::Handle::current());
    options.config = Some(json!({
        "inputs": [{ "type": "promptString", "id": "answer" }],
        "mcpServers": { "one": {
            "command": FIXTURE, "box": "off",
            "args": test_folder.arguments("one", &[]),
            "env": { "ALONE": "${input:answer}", "WITHIN": "it is ${input:answer}" },
            "confirm": "never",
        } },
    }));
    options.state_dir = Some(test_folder.path("state"));
    options.workspace_folder = Some(test_folder.path(""));
    options.guest = guest_choice();
    options.trace = true;
    options.callbacks = Some(Arc::new(Typist(typed)));
    let hearer = Arc::clone(&heard);
    options.on_event = Some(Arc::new(move |event| hearer.lock().unwrap().push_str(&event.to_string())));
    if emulated() {
        options.limits.connect_timeout_ms = Some(80_000);
    }
    let gateway = Gateway::open(options).unwrap();
    gateway.approve("one", None, None).await.unwrap();
    gateway.enable("one").unwrap();
    for (name, how) in [("ALONE", "protocol"), ("WITHIN", "protocol"), ("ALONE", "crash")] {
        let arguments = object(json!({ "name": name, "how": how }));
        let error = gateway.call_tool("one", "leak", arguments, CallOptions::default(), &Stop::new()).await.unwrap_err().to_string();
        assert!(!error.contains(typed) && error.contains("[redacted]"), "{error}");
    }
    gateway.close().await;
    assert!(!heard.lock().unwrap().contains(typed), "{typed} is in an event");
    assert!(!is_in_a_file_of(&test_folder.path("state"), typed), "{typed} is in a file");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_types_is_redacted_though_it_looks_like_any_word() {
    for typed in ["swordfish", "48291734", "vault.key", "Summer/2024x"] {
        assert_kept_secret(typed).await;
    }
}
