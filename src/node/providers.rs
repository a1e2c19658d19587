//! Providers for Node: packages whose code runs in worker threads, and objects that the author of the agent registers.

use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::{FnArgs, Object, Unknown};
use napi_derive::napi;
use serde_json::Value as Json;

use super::gateway::Gateway;
use super::host_module::JavaScriptModule;
use super::reply::{Reply, promise};
use super::{glue, options};
use hyperlight_mcp::error::{Error, Result};
use hyperlight_mcp::gateway::{AgentModule, Answer, Provider, ProviderCode, ProviderLoader, ProviderStatus};
use hyperlight_mcp::registry::providers::MAX_ANSWER_BYTES;
use hyperlight_mcp::sandbox::Value;

const REGISTER: &str = "Gateway.registerProvider";

/// Runs the code of packages in worker threads. The JavaScript thread that opened the gateway starts these threads.
struct WorkerLoader(JavaScriptModule);

/// A provider whose `servers()` is a JavaScript function.
struct JavaScriptProvider(JavaScriptModule);

/// Returns the loader of this environment.
pub(super) fn loader(env: &Env) -> napi::Result<Arc<dyn ProviderLoader>> {
    let functions: Unknown = glue::call(env, "providerLoader", FnArgs::from((include_str!("provider-worker.js"),)))?;
    Ok(Arc::new(WorkerLoader(JavaScriptModule::new(env, "provider".to_owned(), functions, None)?)))
}

impl ProviderLoader for WorkerLoader {
    fn load(&self, code: &ProviderCode) -> Answer<Json> {
        let arguments = [&code.file, &code.folder].map(|path| path.to_str().map(|path| Value::Text(path.to_owned())));
        match arguments {
            [Some(file), Some(folder)] => answer(&self.0, "load", vec![file, folder]),
            _ => Box::pin(async { Err(Error::Internal("the path of a provider's file is not UTF-8".into())) }),
        }
    }
}

impl Provider for JavaScriptProvider {
    fn servers(&self) -> Answer<Json> {
        answer(&self.0, "servers", Vec::new())
    }
}

/// Calls a function that returns JSON text. `providers.js` creates these functions.
fn answer(module: &JavaScriptModule, function: &str, arguments: Vec<Value>) -> Answer<Json> {
    let called = module.call(function, arguments);
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
