//! `Gateway.serve`, and the class `ServedGateway` for Node.

use std::path::PathBuf;
use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::{Either, FnArgs, Object, Unknown};
use napi_derive::napi;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::gateway::Gateway;
use super::reply::{Reply, method, promise_of};
use super::runtime::GatewayRuntime;
use super::{glue, options};
use hyperlight_mcp::bridge::ToolErrors;
use hyperlight_mcp::catalog::NameStyle;
use hyperlight_mcp::error::{Error, Result};
use hyperlight_mcp::serve::http::{HttpOptions, Listen, ProtectedResource, ServeLimits, TlsFiles};
use hyperlight_mcp::serve::{self, Direct, Transport};
use hyperlight_mcp::trust::AllowedWrites;

const METHOD: &str = "Gateway.serve";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ServeOptions {
    http: Option<Address>,
    stdio: Option<bool>,
    token_file: Option<PathBuf>,
    tls: Option<TlsOptions>,
    oauth: Option<ResourceOptions>,
    allowed_hosts: Option<Vec<String>>,
    allowed_origins: Option<Vec<String>>,
    limits: Option<ServeLimits>,
    servers: Option<Vec<String>>,
    allow_writes: Vec<String>,
    agent: Option<String>,
    direct: Option<DirectOption>,
    /// The only server whose tools are served. They keep the names that the server gives them.
    only: Option<String>,
    names: NameStyle,
    tool_errors: Option<ToolErrors>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "must be true, false, or an array of server names")]
enum DirectOption {
    All(bool),
    Of(Vec<String>),
}

impl From<DirectOption> for Direct {
    fn from(option: DirectOption) -> Self {
        match option {
            DirectOption::All(true) => Self::All,
            DirectOption::All(false) => Self::Off,
            DirectOption::Of(servers) => Self::Of(servers),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "must be a port, or a text like \"[HOST:]PORT\"")]
enum Address {
    Port(u32),
    Text(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TlsOptions {
    cert: PathBuf,
    key: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourceOptions {
    resource: String,
    issuer: String,
    jwks_url: Option<String>,
    #[serde(default)]
    scopes: Vec<String>,
}

impl From<ResourceOptions> for ProtectedResource {
    fn from(ResourceOptions { resource, issuer, jwks_url, scopes }: ResourceOptions) -> Self {
        Self { resource, issuer, jwks_url, scopes }
    }
}

/// Checks that no option for HTTP is given if a host is served on standard input and output.
fn check_stdio(stdio: Option<bool>, of_http: &[(&str, bool)]) -> Result<()> {
    if stdio == Some(false) {
        return Err(invalid("stdio: must not be false without http: give a port in http".to_owned()));
    }
    match of_http.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(invalid(format!("{name}: applies only over HTTP: give a port in http"))),
        None => Ok(()),
    }
}

/// Returns the servers whose tools are listed directly.
fn direct_of(only: Option<String>, direct: Option<DirectOption>) -> Result<Direct> {
    match (only, direct) {
        (Some(_), Some(_)) => {
            Err(invalid("only and direct exclude each other: with only, one server's tools are served under their own names".into()))
        }
        (Some(server), None) => Ok(Direct::Only(server)),
        (None, direct) => Ok(direct.map_or(Direct::Off, Direct::from)),
    }
}

impl ServeOptions {
    fn read(data: &str, functions: &str) -> Result<Self> {
        let functions: Vec<String> = options::arguments(METHOD, functions)?;
        if let Some(name) = functions.first() {
            return Err(invalid(format!("{name}: must not be a function; a host is asked about its own calls")));
        }
        options::arguments(METHOD, data)
    }

    fn split(self) -> Result<(serve::ServeOptions, Transport)> {
        let Self {
            http,
            stdio,
            token_file,
            tls,
            oauth,
            allowed_hosts,
            allowed_origins,
            limits,
            servers,
            allow_writes,
            agent,
            direct,
            only,
            names,
            tool_errors,
        } = self;
        let of_http = [
            ("tokenFile", token_file.is_some()),
            ("tls", tls.is_some()),
            ("oauth", oauth.is_some()),
            ("allowedHosts", allowed_hosts.is_some()),
            ("allowedOrigins", allowed_origins.is_some()),
            ("limits", limits.is_some()),
        ];
        let direct = direct_of(only, direct)?;
        let options = serve::ServeOptions {
            servers: servers.map(|servers| Arc::new(servers.into_iter().collect())),
            allow_writes: AllowedWrites::read(&allow_writes),
            agent,
            direct,
            names,
            tool_errors,
            ..serve::ServeOptions::default()
        };
        let Some(address) = http else {
            return check_stdio(stdio, &of_http).map(|()| (options, Transport::Stdio));
        };
        if stdio == Some(true) {
            return Err(invalid("stdio: cannot be set together with http: call serve twice".to_owned()));
        }
        let address = match address {
            Address::Port(port) => port.to_string(),
            Address::Text(text) => text,
        };
        let listen = Listen::parse(&address).map_err(|error| renamed(error, "http: "))?;
        let http = HttpOptions {
            listen,
            token_file,
            tls: tls.map(|TlsOptions { cert, key }| TlsFiles { certificate: cert, key }),
            oauth: oauth.map(ProtectedResource::from),
            limits: limits.unwrap_or_default().into(),
            allowed_hosts: allowed_hosts.unwrap_or_default(),
            allowed_origins: allowed_origins.unwrap_or_default(),
        };
        Ok((options, Transport::Http(Box::new(http))))
    }
}

fn invalid(problem: String) -> Error {
    Error::InvalidOption { method: METHOD, problem: problem.into() }
}

/// Replaces the method and option names in an error about an invalid option by the names that Node uses.
fn renamed(error: Error, before: &str) -> Error {
    match error {
        Error::InvalidOption { method: "Gateway.agent", problem } => invalid(format!("agent: {problem}")),
        Error::InvalidOption { method: _, problem } => invalid(format!("{before}{problem}")),
        other => other,
    }
}

/// A gateway that is being served, created by `Gateway.serve`. Node does not exit while a gateway is being served.
///
/// ```js
/// const served = await gateway.serve({ http: 0 })
/// served.url // 'http://127.0.0.1:40123/mcp'
/// await served.close()
/// ```
#[napi]
pub struct ServedGateway {
    inner: serve::ServedGateway,
    core: GatewayRuntime,
}

#[napi]
impl ServedGateway {
    /// The URL of the MCP endpoint, for example `http://127.0.0.1:8080/mcp`. It is `undefined` over standard input and output.
    #[napi(getter, ts_return_type = "string | undefined")]
    pub fn url(&self) -> Either<String, ()> {
        self.inner.url().map_or(Either::B(()), |url| Either::A(url.to_owned()))
    }

    /// Resolves when serving has ended: after `close()` or `gateway.close()`. Over standard input and output, serving also ends when the
    /// host has closed its end. Rejects with `ERR_IO` if the host did not use the MCP protocol.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn ended<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        method(env, &self.core, &self.inner, "ServedGateway.ended", [], |served, []: [(); 0]| async move { served.ended().await })
    }

    /// Ends serving. New requests are refused with status 503. Requests in progress may continue for `limits.drainMs` (5 s over standard
    /// input and output), and are then cancelled. The gateway itself stays open. A second call waits for the first.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn close<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        method(env, &self.core, &self.inner, "ServedGateway.close", [], |served, []: [(); 0]| async move {
            served.close().await;
            Ok(())
        })
    }
}

#[napi]
impl Gateway {
    /// Serves the gateway to MCP hosts, like `npx hyperlight-mcp serve`: each client is a separate agent with the tools of `agentTools()`.
    /// All approved servers are enabled, including those that are approved later. Servers that `disable()` has hidden stay disabled.
    /// Without options, serves one host on standard input and output of this process. In this case, `console.log` would break the protocol,
    /// so use `console.error` for logs. Over HTTP, this method may be called several times. Questions about a call go to the host that made
    /// the call, and not to the callbacks of the gateway.
    ///
    /// Rejects with `ERR_INVALID_OPTION`, `ERR_UNKNOWN_SERVER` for a server in `servers`, `allowWrites` or `direct`, `ERR_IO` for a file that cannot
    /// be read or a port that is in use, `ERR_CLOSED`, `ERR_APPROVAL_STORE`.
    ///
    /// ```js
    /// const served = await gateway.serve({ http: 8080 })
    /// console.error(`serving ${served.url}`) // serving http://127.0.0.1:8080/mcp
    /// await served.close()
    /// ```
    #[napi(catch_unwind, ts_args_type = "options?: ServeOptions", ts_return_type = "Promise<ServedGateway>")]
    pub fn serve<'env>(&self, env: &'env Env, options: Option<Unknown<'env>>) -> napi::Result<Object<'env>> {
        let (core, gateway) = (self.caller.core.clone(), self.inner.clone());
        let start = env.create_function_from_closure::<(), Object<'static>, _>("serve", move |context| {
            let env = Env::from_raw(context.env.raw());
            let given = ServeOptions::read(&context.get::<String>(0)?, &context.get::<String>(1)?).and_then(ServeOptions::split);
            let (gateway, owner) = (gateway.clone(), core.clone());
            let work = async move {
                let (options, transport) = given?;
                serve::serve(gateway, options, transport).await.map_err(|error| renamed(error, ""))
            };
            let native = promise_of(
                &env,
                &core,
                work,
                |_| 0,
                move |served, env| match served {
                    Ok(inner) => {
                        keep_alive(&env, &owner, inner.clone())?;
                        Ok(Either::B(ServedGateway { inner, core: owner }))
                    }
                    Err(error) => Ok(Either::A(Reply::failure(&error, Json::Object(Map::new())).into_parts())),
                },
            )?;
            Ok(glue::detached(&native))
        })?;
        glue::call(env, "open", FnArgs::from((start, METHOD, options)))
    }
}

/// Keeps Node and the gateway alive until serving ends, by a pending promise. The promise is needed because the program may have no other
/// reference.
fn keep_alive(env: &Env, core: &GatewayRuntime, served: serve::ServedGateway) -> napi::Result<()> {
    let owner = core.clone();
    let ended = async move {
        let _ = served.ended().await;
    };
    promise_of(
        env,
        core,
        ended,
        |()| 0,
        move |(), _| {
            drop(owner);
            Ok(())
        },
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(data: &str) -> Result<(serve::ServeOptions, Transport)> {
        ServeOptions::read(data, "[]").and_then(ServeOptions::split)
    }

    #[test]
    fn without_a_port_a_gateway_is_served_on_standard_input_and_output() {
        for data in ["{}", r#"{ "stdio": true }"#, r#"{ "agent": "a", "allowWrites": ["b"] }"#] {
            assert!(matches!(given(data), Ok((_, Transport::Stdio))), "{data}");
        }
        for data in [r#"{ "http": 0 }"#, r#"{ "http": "127.0.0.1:0", "stdio": false }"#] {
            assert!(matches!(given(data), Ok((_, Transport::Http(_)))), "{data}");
        }
    }

    #[test]
    fn a_wrong_option_is_named() {
        for (data, words) in [
            (r#"{ "htp": 0 }"#, "unknown field `htp`, expected one of `http`, `stdio`"),
            (r#"{ "http": {} }"#, "http: must be a port"),
            (r#"{ "http": -1 }"#, "http: must be a port"),
            (r#"{ "http": 70000 }"#, "http: \"70000\" is not an address"),
            (r#"{ "http": "example.com:1" }"#, "http: \"example.com\" is not an address to listen on"),
            (r#"{ "http": 0, "stdio": true }"#, "stdio: "),
            (r#"{ "stdio": false }"#, "stdio: "),
            (r#"{ "direct": "a" }"#, "direct: must be true, false, or an array of server names"),
            (r#"{ "names": "x" }"#, "names: unknown variant `x`, expected `underscore` or `hyphen`"),
            (r#"{ "limits": {} }"#, "limits: applies only over HTTP"),
            (r#"{ "tokenFile": "x" }"#, "tokenFile: applies only over HTTP"),
            (r#"{ "http": 0, "tokenFile": 5 }"#, "tokenFile: "),
            (r#"{ "http": 0, "tls": { "cert": "x" } }"#, "missing field `key`"),
            (r#"{ "http": 0, "oauth": { "resource": "x" } }"#, "missing field `issuer`"),
            (r#"{ "http": 0, "limits": { "drain": 5 } }"#, "limits.drain: unknown field `drain`, expected one of `maxBodyBytes`"),
            (r#"{ "http": 0, "limits": { "drainMs": 1.5 } }"#, "limits.drainMs: "),
            (r#"{ "allowWrites": "a" }"#, "allowWrites: "),
        ] {
            let error = given(data).err().unwrap();
            let text = error.to_string();
            assert!(error.code() == "ERR_INVALID_OPTION" && text.starts_with("Gateway.serve: ") && text.contains(words), "{text}");
        }
        let error = ServeOptions::read("{}", r#"["onApproval"]"#).err().unwrap().to_string();
        assert!(error.contains("onApproval: must not be a function"), "{error}");
    }
}
