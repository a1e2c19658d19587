//! What is asked of a server besides calls, on its way: approved, let through, unchanged, asked for.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value as Json, json};

use super::callbacks::{ApprovalQuestion, CallScope, pause};
use super::caller::ScopeCaller;
use super::calls::RunCaller;
use super::core::Core;
use super::events::Event;
use super::grants::Granted;
use crate::bridge::{OfferCall, OfferCaller};
use crate::catalog::{Manifest, Readable};
use crate::client::{CallFailure, CallLimits, Caller, Completed, Connection, Lease, OfferRequest, Watch};
use crate::config::ServerDefinition;
use crate::error::{Error, Result};
use crate::sandbox::RunControl;
use crate::text::json::{json_bytes, object_bytes};
use crate::trust::{Gate, read_gate};

/// What is to be done at a server.
#[derive(Debug, Clone)]
pub(super) enum Errand {
    Ask(OfferRequest),
    Watch(String),
    Unwatch(String),
}

/// What came of it.
pub(super) enum Done {
    Answer(Json),
    Watching(Watch),
}

/// What must have been approved for it.
#[derive(Debug, Clone, Copy)]
enum Wanted<'a> {
    /// By its URI.
    Resource(&'a str),
    /// By the template's text.
    Template(&'a str),
    Prompt(&'a str),
}

impl Errand {
    fn wanted(&self) -> Wanted<'_> {
        match self {
            Self::Ask(OfferRequest::Read { uri }) | Self::Watch(uri) | Self::Unwatch(uri) => Wanted::Resource(uri),
            Self::Ask(OfferRequest::Prompt { name, .. } | OfferRequest::Complete { of: Completed::Prompt(name), .. }) => {
                Wanted::Prompt(name)
            }
            Self::Ask(OfferRequest::Complete { of: Completed::Template(text), .. }) => Wanted::Template(text),
        }
    }

    /// The protocol's name for it.
    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::Ask(request) => request.method(),
            Self::Watch(_) => "resources/subscribe",
            Self::Unwatch(_) => "resources/unsubscribe",
        }
    }

    /// What a person is told of it.
    fn shown(&self) -> Map<String, Json> {
        let shown = match self {
            Self::Ask(OfferRequest::Read { uri }) | Self::Watch(uri) | Self::Unwatch(uri) => json!({ "uri": uri }),
            Self::Ask(OfferRequest::Prompt { name, arguments }) => json!({ "name": name, "arguments": arguments }),
            Self::Ask(OfferRequest::Complete { of: Completed::Prompt(name), argument, value, context }) => {
                json!({ "name": name, "argument": argument, "value": value, "context": context })
            }
            Self::Ask(OfferRequest::Complete { of: Completed::Template(text), argument, value, context }) => {
                json!({ "uriTemplate": text, "argument": argument, "value": value, "context": context })
            }
        };
        shown.as_object().cloned().unwrap_or_default()
    }
}

/// The resources that are watched: asked for again where their server is connected anew.
#[derive(Default)]
pub(super) struct Watched(Mutex<BTreeMap<String, BTreeMap<String, Watch>>>);

impl Watched {
    pub(super) fn add(&self, server: &str, uri: &str, watch: Watch) {
        self.locked().entry(server.to_owned()).or_default().insert(uri.to_owned(), watch);
    }

    pub(super) fn remove(&self, server: &str, uri: &str) {
        if let Some(of_server) = self.locked().get_mut(server) {
            of_server.remove(uri);
        }
    }

    /// The server may do nothing more.
    pub(super) fn forget(&self, server: &str) {
        self.locked().remove(server);
    }

    fn uris(&self, server: &str) -> Vec<String> {
        self.locked().get(server).map(|of_server| of_server.keys().cloned().collect()).unwrap_or_default()
    }

    fn locked(&self) -> parking_lot::MutexGuard<'_, BTreeMap<String, BTreeMap<String, Watch>>> {
        self.0.lock()
    }
}

impl Core {
    /// Fails at once where the server is revoked or disabled meanwhile.
    pub(super) async fn run_errand(
        &self,
        name: &str,
        errand: &Errand,
        scope: &Arc<CallScope>,
        control: Option<&RunControl>,
        timeout_ms: Option<u64>,
    ) -> Result<Done> {
        let started = Instant::now();
        let ended = self.registry.ended(name);
        let outcome = tokio::select! {
            biased;
            () = ended.cancelled() => Err(self.refusal(name)),
            outcome = self.errand(name, errand, scope, control, timeout_ms) => outcome,
        };
        if matches!(outcome, Err(Error::NotApproved { .. })) {
            self.end_unapproved(name).await;
        }
        let outcome = outcome.map_err(|error| self.redacted(error));
        let traced = self.events.traces();
        self.events.trace(Event::Call {
            server: name.to_owned(),
            tool: errand.method().to_owned(),
            duration_ms: started.elapsed().as_secs_f64() * 1000.0,
            argument_bytes: if traced { object_bytes(&errand.shown()) } else { 0 },
            result_bytes: if let (Ok(Done::Answer(result)), true) = (&outcome, traced) { Some(json_bytes(result)) } else { None },
            error: outcome.as_ref().err().map(Error::code),
        });
        outcome
    }

    async fn errand(
        &self,
        name: &str,
        errand: &Errand,
        scope: &Arc<CallScope>,
        control: Option<&RunControl>,
        timeout_ms: Option<u64>,
    ) -> Result<Done> {
        let mut server = self.registry.server(name)?;
        let limits = self.call_limits(&server, timeout_ms);
        let approved = self.usable(&server)?;
        check(&server, &approved, None, errand.wanted())?;
        let mut connection = self.connect(&server, scope, control, limits.timeout).await?;
        check(&server, &approved, Some(&*connection.manifest().await?), errand.wanted())?;
        if let Gate::Ask(reason) = read_gate(server.confirm) {
            // While a person thinks, nobody else has to wait for the connection; and much can happen.
            drop(connection);
            self.ask_for(scope, name, errand, reason, control).await?;
            server = self.still_same(&server)?;
            let approved = self.usable(&server)?;
            check(&server, &approved, None, errand.wanted())?;
            connection = self.connect(&server, scope, control, limits.timeout).await?;
            check(&server, &approved, Some(&*connection.manifest().await?), errand.wanted())?;
        }
        let caller: Arc<dyn Caller> =
            Arc::new(ScopeCaller { scope: Arc::clone(scope), events: self.events.clone(), control: control.cloned() });
        let place = self.place(&server, errand.method(), limits, timeout_ms).await?;
        if place.after_others {
            server = self.still_same(&server)?;
            let approved = self.usable(&server)?;
            check(&server, &approved, Some(&*connection.manifest().await?), errand.wanted())?;
        }
        let failure = match send(&connection, errand, limits, &caller).await {
            Ok(done) => return Ok(done),
            Err(failure) => failure.error,
        };
        // Nothing of this changes anything at the server: where that has ended, once more.
        if !matches!(failure, Error::ServerExited { .. }) {
            return Err(failure);
        }
        drop(connection);
        let server = self.still_same(&server)?;
        let approved = self.usable(&server)?;
        let connection = self.connect(&server, scope, control, limits.timeout).await.map_err(|_| failure)?;
        check(&server, &approved, Some(&*connection.manifest().await?), errand.wanted())?;
        send(&connection, errand, limits, &caller).await.map_err(|failure| failure.error)
    }

    /// Asks a person, as for a tool's call: the method stands in the place of the tool. A yes to more than one is for requests of this method
    /// alone, and for what is approved of the server's lists.
    async fn ask_for(&self, scope: &CallScope, name: &str, errand: &Errand, reason: &str, control: Option<&RunControl>) -> Result<()> {
        let method = errand.method();
        let now = || {
            let server = self.registry.server(name)?;
            self.grant(&server, |manifest| Granted::Requests { method, manifest: manifest.to_owned() })
        };
        let grant = now()?;
        if self.is_allowed(scope, &grant, method) {
            return Ok(());
        }
        let question = ApprovalQuestion {
            server: name.to_owned(),
            tool: method.to_owned(),
            args: errand.shown(),
            reason: reason.to_owned(),
            run_id: scope.run_id,
        };
        let _clock = pause(control);
        self.ask(scope, grant, question, now).await
    }

    /// A request for a guest or for Node.
    pub(super) async fn offer(&self, call: OfferCall, scope: &Arc<CallScope>, timeout_ms: Option<u64>) -> Result<Json> {
        let OfferCall { server, request, control } = call;
        match self.run_errand(&server, &Errand::Ask(request), scope, control.as_ref(), timeout_ms).await? {
            Done::Answer(result) => Ok(result),
            Done::Watching(_) => Err(Error::Internal("a request was taken for a subscription".to_owned())),
        }
    }

    /// A connection was made anew: what was watched in the one before is asked for again.
    pub(super) async fn watch_again(&self, server: &Arc<ServerDefinition>, connection: &Lease) {
        let uris = self.watched.uris(&server.name);
        if uris.is_empty() {
            return;
        }
        let caller: Arc<dyn Caller> =
            Arc::new(ScopeCaller { scope: Arc::clone(&self.session), events: self.events.clone(), control: None });
        for uri in uris {
            let watched = match (self.usable(server), connection.manifest().await) {
                (Ok(approved), Ok(live)) => match check(server, &approved, Some(&*live), Wanted::Resource(&uri)) {
                    Ok(()) => connection.watch(&uri, self.call_limits(server, None), &caller).await.map_err(|failure| failure.error),
                    Err(error) => Err(error),
                },
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
            match watched {
                Ok(watch) => self.watched.add(&server.name, &uri, watch),
                Err(error) => {
                    self.watched.remove(&server.name, &uri);
                    self.events.warn(format!("a resource of server \"{}\" is no longer watched: {}", server.name, self.redacted(error)));
                }
            }
        }
    }
}

async fn send(
    connection: &Connection,
    errand: &Errand,
    limits: CallLimits,
    caller: &Arc<dyn Caller>,
) -> std::result::Result<Done, CallFailure> {
    match errand {
        Errand::Ask(request) => connection.offer(request, limits, caller).await.map(Done::Answer),
        Errand::Watch(uri) => connection.watch(uri, limits, caller).await.map(Done::Watching),
        Errand::Unwatch(uri) => connection.unwatch(uri, limits, caller).await.map(|()| Done::Answer(Json::Null)),
    }
}

/// Returns whether what is wanted was approved, and is let through; with a live manifest, whether it is still what was approved.
fn check(server: &ServerDefinition, approved: &Manifest, live: Option<&Manifest>, wanted: Wanted<'_>) -> Result<()> {
    let name = server.name.clone();
    match wanted {
        Wanted::Prompt(prompt) => {
            let known = approved.prompt(prompt).filter(|_| server.prompt_filter.admits(prompt));
            let Some(known) = known else {
                let known = approved.prompts.iter().map(|prompt| prompt.name.clone()).collect();
                return Err(Error::UnknownPrompt { server: name, prompt: prompt.to_owned(), known });
            };
            let unchanged = live.is_none_or(|live| live.prompt(prompt) == Some(known));
            if unchanged { Ok(()) } else { Err(Error::PromptChanged { server: name, prompt: prompt.to_owned() }) }
        }
        Wanted::Template(text) => {
            let same = |template: &&crate::catalog::ResourceTemplate| template.uri_template == text;
            let known = approved.resource_templates.iter().find(same).filter(|_| server.resource_filter.admits(text));
            let known = known.ok_or_else(|| unknown(&name, approved, text))?;
            let unchanged = live.is_none_or(|live| live.resource_templates.contains(known));
            if unchanged { Ok(()) } else { Err(Error::ResourceChanged { server: name, uri: text.to_owned() }) }
        }
        Wanted::Resource(uri) => {
            let ways: Vec<_> = if server.resource_filter.admits(uri) { approved.readable(uri).collect() } else { Vec::new() };
            if ways.is_empty() {
                return Err(unknown(&name, approved, uri));
            }
            let is_live = |live: &Manifest| {
                ways.iter().any(|way| match way {
                    Readable::Resource(resource) => live.resources.contains(resource),
                    Readable::Template(template) => live.resource_templates.contains(template),
                })
            };
            if live.is_none_or(is_live) { Ok(()) } else { Err(Error::ResourceChanged { server: name, uri: uri.to_owned() }) }
        }
    }
}

fn unknown(server: &str, approved: &Manifest, uri: &str) -> Error {
    let resources = approved.resources.iter().map(|resource| resource.uri.clone());
    let templates = approved.resource_templates.iter().map(|template| template.uri_template.clone());
    Error::UnknownResource { server: server.to_owned(), uri: uri.to_owned(), known: resources.chain(templates).collect() }
}

impl OfferCaller for RunCaller {
    fn offer(&self, call: OfferCall) -> Pin<Box<dyn Future<Output = Result<Json>> + Send>> {
        let (core, scope) = (self.core.upgrade(), Arc::clone(&self.scope));
        Box::pin(async move {
            match core {
                Some(core) => core.offer(call, &scope, None).await,
                None => Err(Error::Closed { what: "gateway" }),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_text;

    fn server(fields: &str) -> ServerDefinition {
        parse_text(&format!(r#"{{ "mcpServers": {{ "a": {{ "command": "x"{fields} }} }} }}"#), "c", 9).unwrap().servers.remove(0)
    }

    fn manifest(description: &str) -> Manifest {
        serde_json::from_value(json!({
            "protocolVersion": "", "serverName": "", "serverVersion": "", "tools": [],
            "resources": [{ "uri": "log://1", "name": "log", "description": description }, { "uri": "memo://1", "name": "one" }],
            "resourceTemplates": [{ "uriTemplate": "memo://{id}", "name": "memo", "description": description }],
            "prompts": [{ "name": "p", "description": description }],
        }))
        .unwrap()
    }

    fn code(fields: &str, live: Option<&Manifest>, wanted: Wanted<'_>) -> &'static str {
        check(&server(fields), &manifest("as approved"), live, wanted).err().map_or("fine", |error| error.code())
    }

    #[test]
    fn what_is_listed_or_follows_a_template_may_be_read_and_nothing_else() {
        for (uri, expected) in [
            ("log://1", "fine"),
            ("memo://1", "fine"),
            ("memo://other", "fine"),
            ("log://2", "ERR_UNKNOWN_RESOURCE"),
            ("memo://a/b", "ERR_UNKNOWN_RESOURCE"),
            ("memo://..", "ERR_UNKNOWN_RESOURCE"),
            ("file:///etc/passwd", "ERR_UNKNOWN_RESOURCE"),
        ] {
            assert_eq!(code("", None, Wanted::Resource(uri)), expected, "{uri}");
        }
        assert_eq!(code("", None, Wanted::Template("memo://{id}")), "fine");
        assert_eq!(code("", None, Wanted::Template("log://{id}")), "ERR_UNKNOWN_RESOURCE");
        assert_eq!(code("", None, Wanted::Prompt("p")), "fine");
        assert_eq!(code("", None, Wanted::Prompt("q")), "ERR_UNKNOWN_PROMPT");
    }

    #[test]
    fn a_filter_counts_for_each_uri_however_it_is_written() {
        let denied = r#", "denyResources": ["memo://secret*"]"#;
        for (uri, expected) in [
            ("memo://open", "fine"),
            ("memo://secret", "ERR_UNKNOWN_RESOURCE"),
            ("memo://%73ecret", "ERR_UNKNOWN_RESOURCE"),
            ("memo://secret%2Fa", "ERR_UNKNOWN_RESOURCE"),
        ] {
            assert_eq!(code(denied, None, Wanted::Resource(uri)), expected, "{uri}");
        }
        let allowed = r#", "allowResources": ["memo://1"], "allowPrompts": []"#;
        assert_eq!(code(allowed, None, Wanted::Resource("memo://1")), "fine");
        assert_eq!(code(allowed, None, Wanted::Resource("log://1")), "ERR_UNKNOWN_RESOURCE");
        assert_eq!(code(allowed, None, Wanted::Prompt("p")), "ERR_UNKNOWN_PROMPT");
    }

    #[test]
    fn what_the_server_describes_in_another_way_is_refused() {
        let (same, changed) = (manifest("as approved"), manifest("changed"));
        for wanted in [Wanted::Resource("log://1"), Wanted::Resource("memo://2"), Wanted::Template("memo://{id}")] {
            assert_eq!(code("", Some(&same), wanted), "fine");
            assert_eq!(code("", Some(&changed), wanted), "ERR_RESOURCE_CHANGED");
            assert_eq!(code("", Some(&Manifest::default()), wanted), "ERR_RESOURCE_CHANGED");
        }
        assert_eq!(code("", Some(&changed), Wanted::Prompt("p")), "ERR_PROMPT_CHANGED");
        // It is listed as it was, though the template that it follows as well has changed.
        assert_eq!(code("", Some(&changed), Wanted::Resource("memo://1")), "fine");
    }
}
