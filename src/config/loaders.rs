//! Variables that make a program load or run code that its command does not name: of the dynamic loader, of shells, of language runtimes, of
//! package managers and of the tools that these start.

/// Names that programs compare as they are.
const NAMES: &[&str] = &[
    // Where programs, and the files that configure them, are looked for.
    "PATH",
    "HOME",
    "SHELL",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_DATA_HOME",
    "XDG_DATA_DIRS",
    // C libraries and what is built on them.
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LOCPATH",
    "NLSPATH",
    "GIO_EXTRA_MODULES",
    "GIO_MODULE_DIR",
    "GST_PLUGIN_PATH",
    "GST_PLUGIN_SYSTEM_PATH",
    "GTK_MODULES",
    "GTK_PATH",
    "LIBGL_DRIVERS_PATH",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "QML2_IMPORT_PATH",
    "QML_IMPORT_PATH",
    "QT_PLUGIN_PATH",
    "VK_ICD_FILENAMES",
    "VK_LAYER_PATH",
    // Shells.
    "BASHOPTS",
    // Not ENV: shells read it for a person who types alone, and many programs name their stage by it.
    "BASH_ENV",
    "FPATH",
    "IFS",
    "PROMPT_COMMAND",
    "PS4",
    "SHELLOPTS",
    "ZDOTDIR",
    // What tools start for a person.
    "BROWSER",
    "EDITOR",
    "LESSCLOSE",
    "LESSOPEN",
    "MANPAGER",
    "PAGER",
    "VISUAL",
    "EXINIT",
    "VIMINIT",
    // git, ssh, sudo.
    "GIT_ASKPASS",
    "GIT_DIR",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_TEMPLATE_DIR",
    "GIT_WORK_TREE",
    "RSYNC_RSH",
    "SSH_ASKPASS",
    "SVN_SSH",
    "SUDO_ASKPASS",
    // Node and what stands beside it.
    "ELECTRON_RUN_AS_NODE",
    "NODE_COMPILE_CACHE",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "TSX_TSCONFIG_PATH",
    "BUN_CONFIG_REGISTRY",
    "BUN_INSTALL",
    "BUN_OPTIONS",
    "BUN_INSPECT_PRELOAD",
    "DENO_DIR",
    "COREPACK_HOME",
    "COREPACK_NPM_REGISTRY",
    "ESBUILD_BINARY_PATH",
    "PLAYWRIGHT_BROWSERS_PATH",
    "PUPPETEER_EXECUTABLE_PATH",
    // Python.
    "CONDA_PREFIX",
    "CLOUDSDK_PYTHON",
    "OTEL_PYTHON_CONFIGURATOR",
    "PYTHONBREAKPOINT",
    "PYTHONCASEOK",
    "PYTHONEXECUTABLE",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONPLATLIBDIR",
    "PYTHONPYCACHEPREFIX",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONWARNINGS",
    "PYTHON_PRESITE",
    "VIRTUAL_ENV",
    // Perl, Ruby, PHP, Lua, R, Julia, Tcl, awk, Guile, Emacs.
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERL5SHELL",
    "PERLLIB",
    "RUBYLIB",
    "RUBYOPT",
    "RUBYPATH",
    "RUBYSHELL",
    "GEM_HOME",
    "GEM_PATH",
    "BUNDLE_APP_CONFIG",
    "BUNDLE_BIN_PATH",
    "BUNDLE_GEMFILE",
    "BUNDLE_PATH",
    "BUNDLE_USER_CONFIG",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "R_ENVIRON",
    "R_ENVIRON_USER",
    "R_HOME",
    "R_LIBS",
    "R_LIBS_SITE",
    "R_LIBS_USER",
    "R_PROFILE",
    "R_PROFILE_USER",
    "JULIA_DEPOT_PATH",
    "JULIA_LOAD_PATH",
    "JULIA_PROJECT",
    "TCLLIBPATH",
    "AWKLIBPATH",
    "AWKPATH",
    "GUILE_LOAD_COMPILED_PATH",
    "GUILE_LOAD_PATH",
    "EMACSLOADPATH",
    // Java and .NET.
    "CATALINA_OPTS",
    "CLASSPATH",
    "GRADLE_OPTS",
    "JAVA_HOME",
    "JAVA_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "MAVEN_ARGS",
    "MAVEN_OPTS",
    "SBT_OPTS",
    "_JAVA_OPTIONS",
    "DOTNET_ADDITIONAL_DEPS",
    "DOTNET_ROOT",
    "DOTNET_SHARED_STORE",
    "DOTNET_STARTUP_HOOKS",
    "MONO_PATH",
    // Erlang and Elixir.
    "ELIXIR_ERL_OPTIONS",
    "ERL_AFLAGS",
    "ERL_FLAGS",
    "ERL_LIBS",
    "ERL_ZFLAGS",
    "MIX_EXS",
    "MIX_HOME",
    // Build tools.
    "CC",
    "CXX",
    "GNUMAKEFLAGS",
    "MAKEFILES",
    "MAKEFLAGS",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "RUSTFLAGS",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "NIX_PATH",
    "GOENV",
    "GOFLAGS",
    "GOPATH",
    "GOPROXY",
    "GOROOT",
    "GOTOOLCHAIN",
    // Clients whose configuration names programs that they run, or the machine that runs them.
    "ANSIBLE_CONFIG",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "CURL_HOME",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "KUBECONFIG",
    "TF_CLI_CONFIG_FILE",
];
/// How names start, where programs compare them as they are.
const STARTS: &[&str] =
    &["BASH_FUNC_", "CARGO_", "CORECLR_", "COR_", "DYLD_", "GIT_CONFIG", "LD_", "LUA_", "PIP_", "PIPX_", "POETRY_", "TS_NODE_", "UV_"];
/// How names start, where programs ignore case.
const STARTS_IN_ANY_CASE: &[&str] = &["npm_config_", "pnpm_config_", "yarn_"];
/// How names end that stand for a credential: they load nothing, and are to be masked.
const CREDENTIAL_ENDS: &[&str] = &["_auth", "_authtoken", "_auth_token", "_auth_ident", "_password", "_token", "_username", "otp"];

/// Returns whether a variable of this name can make a program load or run code.
///
/// ```
/// use hyperlight_mcp::config::loads_code;
/// assert!(loads_code("NODE_OPTIONS") && loads_code("LD_PRELOAD") && loads_code("NPM_CONFIG_script_shell"));
/// assert!(!loads_code("API_KEY") && !loads_code("npm_config_//registry.example/:_authToken"));
/// ```
#[must_use]
pub fn loads_code(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let starts = STARTS.iter().any(|start| name.starts_with(start)) || STARTS_IN_ANY_CASE.iter().any(|start| lower.starts_with(start));
    NAMES.contains(&name) || (starts && !CREDENTIAL_ENDS.iter().any(|end| lower.ends_with(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_loads_code_is_known_by_its_name_in_the_case_that_its_program_takes() {
        for name in [
            "NODE_OPTIONS",
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "LD_AUDIT",
            "PATH",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "PERL5OPT",
            "PERL5LIB",
            "RUBYOPT",
            "BASH_ENV",
            "JAVA_TOOL_OPTIONS",
            "npm_config_script_shell",
            "NPM_CONFIG_NODE_OPTIONS",
            "Npm_Config_Registry",
            "GIT_SSH_COMMAND",
            "DYLD_INSERT_LIBRARIES",
            "GIT_CONFIG_COUNT",
            "UV_INDEX_URL",
            "HOME",
            "BASH_FUNC_ls%%",
            "LUA_INIT_5_4",
            "CARGO_HOME",
            "NODE_COMPILE_CACHE",
            "BUN_CONFIG_REGISTRY",
            "PUPPETEER_EXECUTABLE_PATH",
            "XDG_CACHE_HOME",
            "SVN_SSH",
            "RSYNC_RSH",
            "TF_CLI_CONFIG_FILE",
            "TMPDIR",
        ] {
            assert!(loads_code(name), "{name}");
        }
    }

    #[test]
    fn what_loads_nothing_or_is_a_credential_is_not_taken_for_it() {
        for name in [
            "",
            "API_KEY",
            "node_options",
            "LD",
            "DEBUG",
            "ENV",
            "NODE_ENV",
            "PYTHONUNBUFFERED",
            "MYPATH",
            "npm_config__authToken",
            "npm_config_//registry.example/:_authToken",
            "UV_INDEX_OURS_PASSWORD",
            "CARGO_REGISTRY_TOKEN",
            "YARN_NPM_AUTH_TOKEN",
        ] {
            assert!(!loads_code(name), "{name}");
        }
    }
}
