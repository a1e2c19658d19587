//! The methods of `Gateway` for servers whose tools were made from a prompt.

use napi::Env;
use napi::bindgen_prelude::{Object, Unknown};
use napi_derive::napi;

use super::gateway::Gateway;
use hyperlight_mcp::config::GeneratedTools;

#[napi]
impl Gateway {
    /// Adds a server whose tools were generated, or replaces it. Each call of a tool runs the tool's code in its own micro-VM, for at most
    /// 30 s. The code has no modules, no files and no process. Like any server, it can be used only after a person has approved it
    /// (`approvalRequest` shows all of the code) and it has been enabled. If only one line of code changes, another approval is needed. The
    /// server exists until the gateway is closed.
    ///
    /// Rejects with `ERR_INVALID_OPTION` if the name is not allowed for a server, if the config has a server of this name, or if there are
    /// no tools.
    ///
    /// ```js
    /// const add = { name: 'add', description: 'Adds two numbers.', inputSchema: { type: 'object' }, endpoints: [], notes: '',
    ///   needsNetwork: false, readOnly: true, code: 'return args.a + args.b' }
    /// await gateway.setGenerated('sums', { tools: [add], hosts: [] })
    /// console.log(await gateway.approvalRequest('sums')) // for a person
    /// ```
    #[napi(catch_unwind, ts_args_type = "name: string, tools: GeneratedTools", ts_return_type = "Promise<void>")]
    pub fn set_generated<'env>(&self, env: &'env Env, name: Unknown<'env>, tools: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.setGenerated", [Some(name), Some(tools)], |gateway, (name, tools): (String, GeneratedTools)| async move {
            gateway.set_generated(&name, tools).await
        })
    }

    /// Removes a generated server and ends its calls. The approval stays valid for the same code. Does nothing if there is no such server.
    ///
    /// ```js
    /// await gateway.removeGenerated('sums')
    /// ```
    #[napi(catch_unwind, ts_args_type = "name: string", ts_return_type = "Promise<void>")]
    pub fn remove_generated<'env>(&self, env: &'env Env, name: Unknown<'env>) -> napi::Result<Object<'env>> {
        self.method(env, "Gateway.removeGenerated", [Some(name)], |gateway, (name,): (String,)| async move {
            gateway.remove_generated(&name).await
        })
    }
}
