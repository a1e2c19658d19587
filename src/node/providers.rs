//! Providers for Node: packages whose code runs in processes of its own, and objects that the author of the agent registers.

use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::{FnArgs, Object, Unknown};
use napi_derive::napi;
use serde_json::Value as Json;

use super::gateway::{Gateway, watchdog};
use super::host_module::JavaScriptModule;
use super::reply::{Reply, promise};
use super::{glue, options};
use hyperlight_mcp::error::{Error, Result};
use hyperlight_mcp::gateway::{AgentModule, Answer, NodeLoader, Provider, ProviderLoader, ProviderStatus};
use hyperlight_mcp::registry::providers::MAX_ANSWER_BYTES;
use hyperlight_mcp::sandbox::Value;

/// The program of this process, also if its file was replaced or removed since (`proc(5)`).
const THIS_PROGRAM: &str = "/proc/self/exe";
/// The variable that marks a process which runs the code of a package.
const MARK: &str = "HYPERLIGHT_MCP_PROVIDER";
/// Variables of this process that Node may need to start, or to trust the certificates that this process trusts.
const KEPT_VARIABLES: [&str; 2] = ["LD_LIBRARY_PATH", "NODE_EXTRA_CA_CERTS"];
const REGISTER: &str = "Gateway.registerProvider";

/// A provider whose `servers()` is a JavaScript function.
struct JavaScriptProvider(JavaScriptModule);

/// Returns the loader for the code of packages, which starts this program once more. Returns `None` if this program does not take `-e` as Node
/// does, and so would only start itself again: a single executable application, or a process that was started to run the code of a package.
pub(super) fn loader(env: &Env) -> napi::Result<Option<Arc<dyn ProviderLoader>>> {
    let is_application: bool = glue::call(env, "isSingleExecutable", ())?;
    if is_application || std::env::var_os(MARK).is_some() {
        return Ok(None);
    }
    let kept = KEPT_VARIABLES.into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
    let added = [(MARK, "1"), ("ELECTRON_RUN_AS_NODE", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(Some(Arc::new(NodeLoader::new(THIS_PROGRAM, watchdog(env)?).with_environment(kept.chain(added).collect()))))
}

impl Provider for JavaScriptProvider {
    fn servers(&self) -> Answer<Json> {
        let called = self.0.call("servers", Vec::new());
        Box::pin(async move {
            let problem = |problem: &str| Error::HostFunction { function: "servers".into(), message: problem.into() };
            match called.await? {
                Value::Text(text) if text.len() > MAX_ANSWER_BYTES => {
                    Err(problem(&format!("its answer has more than {MAX_ANSWER_BYTES} bytes of JSON")))
                }
                Value::Text(text) => serde_json::from_str(&text).map_err(|_| problem("its answer is nested too deeply")),
                _ => Err(problem("its answer is not a list of definitions")),
            }
        })
    }
}

#[napi]
impl Gateway {
    /// Registers a provider: an object whose `servers()` returns definitions. This function is called now and at each `reload()`, and must
    /// answer within 2 s. The provider's servers are named `<name>--<server>`, and each of them needs approval. If the function throws, or
    /// returns anything other than definitions, the provider is listed as failed. If a provider is already registered under this name, the
    /// new provider replaces it.
    ///
    /// Rejects with `ERR_INVALID_OPTION` if the name is invalid or belongs to the provider of a package, and with `ERR_STORE`.
    ///
    /// ```js
    /// const { servers } = await gateway.registerProvider('acme', {
    ///   servers: () => [{ name: 'files', package: '@acme/mcp-files', envRequired: ['ACME_KEY'] }],
    /// })
    /// // servers: ['acme--files']
    /// ```
    #[napi(catch_unwind, ts_args_type = "name: string, provider: Provider", ts_return_type = "Promise<ProviderStatus>")]
    pub fn register_provider<'env>(&self, env: &'env Env, name: Unknown<'env>, provider: Unknown<'env>) -> napi::Result<Object<'env>> {
        let (core, gateway) = (self.caller.core.clone(), self.inner.clone());
        let start = env.create_function_from_closure::<(), Object<'static>, _>(REGISTER, move |context| {
            let env = Env::from_raw(context.env.raw());
            let arguments = options::arguments::<(String,)>(REGISTER, &context.get::<String>(0)?);
            let provider = JavaScriptProvider(JavaScriptModule::new(&env, "provider".to_owned(), context.get(1)?, None)?);
            let gateway = gateway.clone();
            let work = async move {
                let registered: Result<ProviderStatus> = async { gateway.register_provider(&arguments?.0, Arc::new(provider)).await }.await;
                Reply::new(registered)
            };
            Ok(glue::detached(&promise(&env, &core, work)?))
        })?;
        glue::call(env, "registerProvider", FnArgs::from((start, name, provider)))
    }

    /// Lists the providers: both registered providers and packages. Reads no file. Packages are checked when the gateway opens, at each
    /// `reload()`, and when a provider is registered, approved or revoked.
    #[napi(catch_unwind, ts_return_type = "ProviderStatus[]")]
    pub fn providers<'env>(&self, env: &'env Env) -> napi::Result<Unknown<'env>> {
        glue::call(env, "parse", FnArgs::from((self.inner.providers_as_json().to_string(),)))
    }

    /// Returns everything that a person must see before the code of a package may run. This method does not run that code. `name` is the
    /// name of the provider or of the package.
    ///
    /// Rejects with `ERR_UNKNOWN_PROVIDER`, `ERR_PROVIDER`, `ERR_STORE`.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<ProviderRequest>")]
    pub fn provider_request<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.providerRequest", [Some(name)], |gateway, (name,): (String,)| async move {
            gateway.provider_request(&name).await
        })
    }

    /// Approves the code of a package exactly as the request with this digest shows it, and runs the code. Each server that the package
    /// provides needs its own approval. Rejects with `ERR_DIGEST_CHANGED` if the package has changed since, and with the errors of
    /// `providerRequest`.
    ///
    /// ```js
    /// const request = await gateway.providerRequest('acme-mcp')
    /// // … a person looks at it …
    /// await gateway.approveProvider('acme-mcp', request.digest)
    /// ```
    #[napi(catch_unwind, ts_args_type = "name: string, digest: string", ts_return_type = "Promise<ProviderStatus>")]
    pub fn approve_provider<'env>(&self, env: &'env Env, name: Unknown<'env>, digest: Unknown<'env>) -> napi::Result<Object<'env>> {
        type Arguments = (String, String);
        self.method(env, "Gateway.approveProvider", [Some(name), Some(digest)], |gateway, (name, digest): Arguments| async move {
            gateway.approve_provider(&name, &digest).await
        })
    }

    /// Revokes the approval of a package's code for every process, and removes the provider's servers from this gateway. Rejects with
    /// `ERR_UNKNOWN_PROVIDER`, `ERR_PROVIDER` for a registered provider, and `ERR_STORE`.
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<ProviderStatus>")]
    pub fn revoke_provider<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.revokeProvider", [Some(name)], |gateway, (name,): (String,)| async move {
            gateway.revoke_provider(&name).await
        })
    }
}
