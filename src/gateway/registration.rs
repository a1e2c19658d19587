//! Calls tools for a sandbox that another package provides. These calls have the same approvals, checks, limits and kinds of results as
//! calls of a guest.

use serde_json::Value as Json;

use super::availability::exists_for;
use super::{Agent, ApprovalRead, CallOptions};
use crate::bridge::{ToolErrors, server_module, shape, tool_arguments};
use crate::error::{Error, Result};
use crate::redact::{Redactor, WrittenPaths};
use crate::sandbox::{Arguments, GuestModule, HostReply, Stop, Value};

impl Agent {
    /// Returns the module of an approved server, enabled or not. It contains the functions that [`Agent::call_function`] can call.
    /// `approval_read` selects the approvals on disk or in the cache.
    ///
    /// # Errors
    /// `ERR_UNKNOWN_SERVER`, `ERR_NOT_APPROVED`, `ERR_APPROVAL_STORE`.
    pub fn approved_module(&self, name: &str, approval_read: ApprovalRead) -> Result<GuestModule> {
        self.identity.check_open()?;
        self.core.check_open()?;
        let granted = self.granted(approval_read)?;
        let server = self.core.known_server(name, &granted).map_err(|error| self.core.redacted(error))?;
        if !exists_for(server.as_granted(), &self.identity, &granted) {
            return Err(self.core.redacted(self.core.unknown_server(name, &granted)));
        }
        let approval_status = self.core.approval_status_by(&server, approval_read);
        self.core.refresh_if_cached(approval_read);
        let approved = approval_status.map_err(|error| self.core.redacted(error))?.require_full(&server.name)?;
        let manifest = granted.manifest(&server, &approved).ok_or_else(|| self.core.redacted(self.core.unknown_server(name, &granted)))?;
        Ok(server_module(granted.name_in_code(server.as_granted()).unwrap_or(name), &manifest))
    }

    /// Calls a tool by the name that its server gives it. Returns the same reply that a guest would get, even if the call fails.
    pub async fn call_function(
        &self,
        server: &str,
        tool: &str,
        arguments: Vec<Value>,
        errors: ToolErrors,
        options: CallOptions,
        stop: &Stop,
    ) -> HostReply {
        match self.result_of(server, tool, arguments, options, stop).await {
            Ok((result, written)) => {
                let shaped = shape(&format!("{server}.{tool}"), result, self.core.limits.max_response_bytes, errors);
                shaped.warning.into_iter().for_each(|warning| self.core.events.warn(warning));
                self.coded(server, tool, shaped.reply, written).await
            }
            Err(error) => errors.reply(&self.core.redacted(error)),
        }
    }

    async fn result_of(
        &self,
        server: &str,
        tool: &str,
        arguments: Vec<Value>,
        options: CallOptions,
        stop: &Stop,
    ) -> Result<(Json, WrittenPaths)> {
        let limit = self.core.limits.max_argument_bytes;
        let arguments = tool_arguments(&format!("{server}.{tool}"), Arguments::Given(arguments), limit)?;
        let written = WrittenPaths::of(&arguments);
        Ok((self.call_tool(server, tool, arguments, options, stop).await?, written))
    }

    /// Adds a code to a failure that the tool itself reports, because each rejected promise in Node must have a code.
    async fn coded(&self, server: &str, tool: &str, reply: HostReply, written: WrittenPaths) -> HostReply {
        let HostReply::Throw { code: None, message, .. } = reply else { return reply };
        let (server, tool) = (server.to_owned(), tool.to_owned());
        let redact = move |redactor: &Redactor, message: Json| {
            let message = if let Json::String(message) = message { message } else { String::new() };
            let error = Error::ToolFailed { server, tool: tool.into(), message: message.into() };
            ToolErrors::Throw.reply(&error.redacted(&redactor.for_reader(written.texts())))
        };
        let replied = self.redaction().in_turn(Json::String(message), redact).await;
        replied.unwrap_or_else(|error| ToolErrors::Throw.reply(&self.core.redacted(error)))
    }
}
