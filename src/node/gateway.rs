//! The class `Gateway` for Node.

use std::path::PathBuf;
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::{Either, FnArgs, Object, Unknown};
use napi_derive::napi;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::callbacks::callbacks;
use super::caller::Caller;
use super::events::EventSink;
use super::options::CallbackOwner;
use super::providers::loader;
use super::reply::{Reply, method, promise_of};
use super::runtime::GatewayRuntime;
use super::{glue, options};
use hyperlight_mcp::blocking::blocking;
use hyperlight_mcp::error::Result;
use hyperlight_mcp::gateway::{GatewayOptions, HomesToRemove, ResolveOptions};

/// The private homes to remove.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "must be 'unused', or a list of servers or ids")]
enum Homes {
    All(Unused),
    Named(Vec<String>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unused {
    Unused,
}

impl Homes {
    fn into_choice(self) -> HomesToRemove {
        match self {
            Self::All(Unused::Unused) => HomesToRemove::Unused,
            Self::Named(names) => HomesToRemove::Named(names),
        }
    }
}

const WATCHDOG: &str = "hyperlight-mcp-watchdog";

/// MCP servers, their approvals, and sandboxes in which agent code calls the servers' tools.
///
/// ```js
/// const { Gateway } = require('hyperlight-mcp')
/// const gateway = await Gateway.open({ config: { mcpServers: {} } })
/// gateway.servers() // []
/// await gateway.close()
/// ```
#[napi]
pub struct Gateway {
    pub(super) inner: hyperlight_mcp::gateway::Gateway,
    /// The operator's own agent.
    pub(super) caller: Caller,
}

#[napi]
impl Gateway {
    /// Opens a gateway: reads the config and the approvals. Opening starts no server and needs no hypervisor.
    ///
    /// Rejects with `ERR_INVALID_OPTION`, `ERR_CONFIG_UNREADABLE`, `ERR_CONFIG_SYNTAX`, `ERR_CONFIG_INVALID`,
    /// `ERR_TOO_MANY_SERVERS`, `ERR_UNKNOWN_SERVER` for a name in `enable`, `ERR_APPROVAL_STORE`.
    #[napi(catch_unwind, ts_args_type = "options?: GatewayOptions", ts_return_type = "Promise<Gateway>")]
    pub fn open<'env>(env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        let watchdog = watchdog(env)?;
        let provider_loader = loader(env)?;
        let start = env.create_function_from_closure::<(), Object<'static>, _>("open", move |context| {
            let env = Env::from_raw(context.env.raw());
            let read = options::read::<options::OpenOptions>(
                "Gateway.open",
                &context.get::<String>(0)?,
                &context.get::<String>(1)?,
                CallbackOwner::Operator,
            );
            let asked = callbacks(&env, context.get(3)?)?;
            let core = GatewayRuntime::start().map_err(|error| glue::thrown(&env, &error))?;
            let events = EventSink::new(context.get(2)?)?;
            core.tell_by(events.clone());
            let handle = core.handle().map_err(|error| glue::thrown(&env, &error))?;
            let opening = read.and_then(|options| options.into_gateway_options(watchdog.clone(), handle)).map(|options| GatewayOptions {
                on_event: events.clone().map(EventSink::event_listener),
                callbacks: asked,
                provider_loader: provider_loader.clone(),
                ..options
            });
            let runtime = core.clone();
            let work = blocking(move || opening.and_then(hyperlight_mcp::gateway::Gateway::open));
            let native = promise_of(
                &env,
                &runtime,
                work,
                |_| 0,
                move |opened, env| match opened {
                    Ok(inner) => {
                        // If an environment is torn down while a gateway is open, for example because a worker is terminated, the servers
                        // must end too.
                        glue::open_gateways(&env)?.add(inner.downgrade());
                        core.own(inner.clone());
                        let caller = Caller { core, agent: inner.clone().into(), events };
                        Ok(Either::B(Gateway { inner, caller }))
                    }
                    Err(error) => {
                        core.shut_down();
                        Ok(Either::A(Reply::failure(&error, Json::Object(Map::new())).into_parts()))
                    }
                },
            )?;
            Ok(glue::detached(&native))
        })?;
        glue::call(env, "open", FnArgs::from((start, "Gateway.open", options)))
    }

    /// Reports whether this machine can run a guest. If it cannot, also reports the reason. The first call boots a guest to find out.
    #[napi(catch_unwind, ts_return_type = "Promise<HypervisorReport>")]
    pub fn hypervisor<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.hypervisor", [], |gateway, []: [(); 0]| async move { blocking(move || Ok(gateway.hypervisor())).await })
    }

    /// Reports which parts of a box this machine supports, and what can be done about missing parts. The first call tries to use each part.
    #[napi(catch_unwind, ts_return_type = "Promise<BoxesReport>")]
    pub fn boxes<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.boxes", [], |gateway, []: [(); 0]| async move { blocking(move || Ok(gateway.boxes())).await })
    }

    /// Lists the private homes of servers in boxes, with their size and use. Homes of servers that no longer exist are listed too. Rejects
    /// with `ERR_APPROVAL_STORE`.
    #[napi(catch_unwind, ts_return_type = "Promise<PrivateHome[]>")]
    pub fn private_homes<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.privateHomes", [], |gateway, []: [(); 0]| blocking(move || gateway.private_homes()))
    }

    /// Removes private homes. A list contains names of servers or ids of homes. `'unused'` means all homes that no server can get any more.
    /// A home is never removed if a server runs in it, or if a configured server gets it at its next start. Such homes are listed in
    /// `kept`.
    ///
    /// Rejects with `ERR_INVALID_OPTION` if there is no home for one of the names; nothing is removed then. Also rejects with
    /// `ERR_APPROVAL_STORE` and `ERR_IO`.
    ///
    /// ```js
    /// const { removed } = await gateway.removePrivateHomes('unused')
    /// ```
    #[napi(catch_unwind, ts_args_type = "homes: 'unused' | string[]", ts_return_type = "Promise<RemovedHomes>")]
    pub fn remove_private_homes<'env>(&self, env: &'env Env, homes: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.removePrivateHomes", [Some(homes)], |gateway, (homes,): (Homes,)| {
            blocking(move || gateway.remove_private_homes(&homes.into_choice()))
        })
    }

    /// Returns the status of all servers. Servers that wait for a person's decision come first, then all others in the order of the config.
    /// Servers whose entry has an error come last. Reads no file. Changes by this gateway are visible immediately. Changes by another
    /// process or on disk are visible shortly after a call. `serverInfo` reads such changes immediately. Throws `ERR_APPROVAL_STORE`.
    #[napi(catch_unwind, ts_return_type = "ServerStatus[]")]
    pub fn servers<'env>(&self, env: &'env Env) -> napi::Result<Unknown<'env>> {
        let json = self.inner.servers_as_json().map_err(|error| glue::thrown(env, &error))?;
        glue::call(env, "parse", FnArgs::from((json,)))
    }

    /// Returns everything that a person must see before approving a server. At stage `command`, nothing has been started yet. After the
    /// command is approved, this method starts the server and reads its tools (stage `manifest`).
    ///
    /// Rejects with `ERR_UNKNOWN_SERVER`, and at stage `manifest` with the errors of connecting.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<ApprovalRequest>")]
    pub fn approval_request<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.approvalRequest", [Some(name)], |gateway, (name,): (String,)| async move {
            gateway.approval_request(&name).await
        })
    }

    /// Approves a server. With a digest, approves exactly the request that has this digest, and starts nothing. In this case, it rejects
    /// with `ERR_DIGEST_CHANGED` if the request has changed since, with `ERR_NOT_APPROVED` if the approval was revoked during the call, and
    /// with `ERR_BOX_FAILED` if the server's box cannot be made now. Without a digest, starts the server, and approves both its command and
    /// its manifest in their present state.
    ///
    /// ```js
    /// const request = await gateway.approvalRequest('files')
    /// // … a person looks at it …
    /// await gateway.approve('files', request.digest)
    /// ```
    #[napi(catch_unwind, ts_args_type = "name: string, digest?: string, options?: ApproveOptions", ts_return_type = "Promise<void>")]
    pub fn approve<'env>(
        &self,
        env: &'env Env,
        name: Unknown<'env>,
        digest: Option<Unknown<'env>>,
        options: Option<Unknown<'env>>,
    ) -> napi::Result<Object<'env>> {
        type Arguments = (String, Option<String>, Option<options::ApproveOptions>);
        self.method(env, "Gateway.approve", [Some(name), digest, options], |gateway, (name, digest, options): Arguments| async move {
            let valid_for = options.unwrap_or_default().valid_for_ms.map(|time| Duration::from_millis(time.get()));
            gateway.approve(&name, digest.as_deref(), valid_for).await
        })
    }

    /// Reads the config again. The connection of a changed server is closed. The server also loses its approval if the change affects what
    /// is executed. Unchanged servers keep their connections. If the config cannot be read, or is invalid as a whole, the call rejects and
    /// changes nothing.
    ///
    /// Rejects with `ERR_CONFIG_UNREADABLE`, `ERR_CONFIG_SYNTAX`, `ERR_CONFIG_INVALID`, `ERR_TOO_MANY_SERVERS`.
    ///
    /// ```js
    /// const { changed, invalid } = await gateway.reload()
    /// ```
    #[napi(catch_unwind, ts_return_type = "Promise<ReloadReport>")]
    pub fn reload<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.reload", [], |gateway, []: [(); 0]| async move { gateway.reload().await })
    }

    /// Returns the merged `mcpServers` that would be available to an agent and a task, with a reason for each server. Secrets are replaced
    /// by variables: `${NAME}`. This method changes nothing and starts nothing.
    ///
    /// Rejects with `ERR_INVALID_OPTION`, `ERR_CONFIG_INVALID` for an entry that the task defines, `ERR_APPROVAL_STORE`.
    ///
    /// ```js
    /// const { mcpServers, servers } = await gateway.resolve({ task: { text: 'compare two forecasts' } })
    /// for (const { reason } of servers) console.log(reason)
    /// ```
    #[napi(catch_unwind, ts_args_type = "options?: ResolveOptions", ts_return_type = "Promise<Resolution>")]
    pub fn resolve<'env>(&self, env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.resolve", [options], |gateway, (options,): (Option<ResolveOptions>,)| async move {
            gateway.resolve(options.unwrap_or_default()).await
        })
    }

    /// Revokes the approval of a server for every process, and ends the server's calls and connection in this gateway.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<void>")]
    pub fn revoke<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.revoke", [Some(name)], |gateway, (name,): (String,)| async move { gateway.revoke(&name).await })
    }

    /// Returns the last rows of the audit that match the query, the oldest first: approvals, changes of servers, grants, connections and
    /// calls, of all processes with the same state folder. Rejects with `ERR_INVALID_OPTION`, `ERR_STORE`.
    ///
    /// ```js
    /// const calls = await gateway.audit({ kind: 'call', since: Date.now() - 3_600_000 })
    /// ```
    #[napi(catch_unwind, ts_args_type = "query?: AuditQuery", ts_return_type = "Promise<AuditRow[]>")]
    pub fn audit<'env>(&self, env: &'env Env, query: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        type Arguments = (Option<options::AuditQuery>,);
        self.method(env, "Gateway.audit", [query], |gateway, (query,): Arguments| async move {
            gateway.audit(query.unwrap_or_default().into()).await
        })
    }

    /// Verifies the audit: finds each row that was changed, removed, added or moved since it was written. Rejects with `ERR_STORE`.
    #[napi(catch_unwind, ts_return_type = "Promise<AuditReport>")]
    pub fn verify_audit<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.verifyAudit", [], |gateway, []: [(); 0]| async move { gateway.verify_audit().await })
    }

    /// Makes the server available to runs that start from now on. If the server is not approved, `onServerApproval` is called first.
    /// Rejects with `ERR_NOT_APPROVED` if there is no such callback or the answer is no, with `ERR_SERVER_DISABLED` if the config has
    /// `disabled: true`, and with the errors of connecting, because the tools are read before they are approved.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<void>")]
    pub fn enable<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.enable", [Some(name)], |gateway, (name,): (String,)| async move { gateway.enable_asking(&name).await })
    }

    /// Hides the server from runs that start from now on, and ends the server's calls and connection. A model cannot enable the server
    /// again. Only `enable()`, or a command that a person types, can do this.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<void>")]
    pub fn disable<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.disable", [Some(name)], |gateway, (name,): (String,)| async move { gateway.disable(&name).await })
    }

    /// Closes the connection to the server, connects again and reports the result. Rejects with `ERR_NOT_APPROVED`, and with the errors of
    /// connecting.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<ConnectionReport>")]
    pub fn test<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.test", [Some(name)], |gateway, (name,): (String,)| async move { gateway.test(&name).await })
    }

    /// Creates a sandbox. The first call boots the guest. Rejects with `ERR_NO_HYPERVISOR` if no guest boots; the message contains the
    /// reason.
    #[napi(catch_unwind, ts_args_type = "options?: SandboxOptions", ts_return_type = "Promise<Sandbox>")]
    pub fn sandbox<'env>(&self, env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        self.caller.sandbox(env, "Gateway.sandbox", options)
    }

    /// Calls a tool without a guest. Resolves with a `ToolResult` for every answer of the server, even if the answer has `isError: true`.
    /// Rejects for all other failures: time-out, crash, refusal, protocol error. The second form takes a name from
    /// `toolInfo().directNames`, without the argument `server`.
    ///
    /// ```js
    /// const { content } = await gateway.callTool('everything', 'echo', { message: 'hi' })
    /// await gateway.callTool('mcp_everything_echo', { message: 'hi' })
    /// ```
    #[napi(
        catch_unwind,
        // The text contains a second signature, because napi writes only one for each method.
        ts_args_type = "server: string, tool: string, args?: Record<string, unknown>, options?: CallOptions): Promise<ToolResult>\n  callTool(name: string, args?: Record<string, unknown>, options?: CallOptions",
        ts_return_type = "Promise<ToolResult>"
    )]
    pub fn call_tool<'env>(
        &self,
        env: &'env Env,
        server: Unknown<'env>,
        tool: Unknown<'env>,
        args: Option<Unknown<'env>>,
        options: Option<Unknown<'env>>,
    ) -> napi::Result<Object<'env>> {
        self.caller.call_tool(env, "Gateway.callTool", [Some(server), Some(tool), args, options])
    }

    /// Closes the gateway: ends all runs, calls, connections and server processes. Pending promises reject with `ERR_CLOSED`. A gateway
    /// whose callbacks refer to it, also indirectly, is never garbage collected: close it, or it stays until Node ends.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn close<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        let (core, inner) = (self.caller.core.clone(), self.inner.clone());
        let start = env.create_function_from_closure::<(), Object<'static>, _>("close", move |context| {
            let env = Env::from_raw(context.env.raw());
            let (gateway, owner) = (inner.clone(), core.clone());
            gateway.begin_close();
            let settled = core.begin_close();
            let work = async move {
                gateway.close().await;
                settled.await;
                gateway.release();
            };
            let native = promise_of(
                &env,
                &core,
                work,
                |()| 0,
                move |(), _| {
                    owner.shut_down();
                    Ok(Reply::new(Ok(())).into_parts())
                },
            )?;
            Ok(glue::detached(&native))
        })?;
        glue::call(env, "method", FnArgs::from((start, "Gateway.close", Vec::<Unknown>::new())))
    }
}

impl Gateway {
    /// Runs a method whose arguments and result are plain data.
    pub(super) fn method<'env, const N: usize, A, T, F, W>(
        &self,
        env: &'env Env,
        name: &'static str,
        args: [Option<Unknown<'env>>; N],
        work: F,
    ) -> napi::Result<Object<'env>>
    where
        A: DeserializeOwned + Send + 'static,
        T: Serialize,
        F: Fn(hyperlight_mcp::gateway::Gateway, A) -> W + Send + Clone + 'static,
        W: Future<Output = Result<T>> + Send + 'static,
    {
        method(env, &self.caller.core, &self.inner, name, args, work)
    }
}

/// Returns the path of the watchdog program. The program is in the same folder as the addon.
pub(super) fn watchdog(env: &Env) -> napi::Result<PathBuf> {
    let addon: String = glue::call(env, "path", FnArgs::from((env.get_module_file_name()?,)))?;
    Ok(PathBuf::from(addon).with_file_name(WATCHDOG))
}
