//! Tests of the variables that load code.

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
        "PYENV_HOOK_PATH",
        "RBENV_ROOT",
        "NODENV_VERSION",
        "GOENV_ROOT",
        "ASDF_DATA_DIR",
        "MISE_CONFIG_DIR",
        "VOLTA_HOME",
        "FNM_DIR",
        "NVM_BIN",
        "SDKMAN_DIR",
        "PROTO_HOME",
        "RUBYGEMS_GEMDEPS",
        "IBM_JAVA_OPTIONS",
        "OPENJ9_JAVA_OPTIONS",
        "JRUBY_OPTS",
        "COMPlus_AltJitName",
        "DOTNET_GCPath",
        "KRB5_CONFIG",
        "ODBCSYSINI",
        "CHROME_PATH",
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
        "MISE_GITHUB_TOKEN",
        "PROTO_API_KEY",
        "DOTNET_gcServer",
        "DOTNET_ENVIRONMENT",
        "PATH_SRC",
        "SRC",
        "OPTIONS",
        "DATABASE_URL",
        "API_OPTION",
        "SSL_CERT_FILE",
        "TERM_PROGRAM",
        "FEATURE_FLAGS",
        "SLACK_WEBHOOK",
        "tar_options",
    ] {
        assert!(!loads_code(name), "{name}");
    }
}

#[test]
fn what_names_a_library_a_program_or_its_options_is_known_by_its_end() {
    for name in [
        "NAPI_RS_NATIVE_LIBRARY_PATH",
        "PRISMA_QUERY_ENGINE_LIBRARY",
        "CAML_LD_LIBRARY_PATH",
        "GDK_PIXBUF_MODULE_FILE",
        "PKCS11_MODULE_PATH",
        "DJANGO_SETTINGS_MODULE",
        "MAGICK_CONFIGURE_PATH",
        "AZURE_EXTENSION_DIR",
        "LIBMYSQL_PLUGIN_DIR",
        "LIBVA_DRIVERS_PATH",
        "PYTEST_PLUGINS",
        "PLAYWRIGHT_CHROMIUM_EXECUTABLE_PATH",
        "SWC_BINARY_PATH",
        "CHROME_BIN",
        "GH_PAGER",
        "KUBE_EDITOR",
        "GH_BROWSER",
        "RSYNC_CONNECT_PROG",
        "FZF_DEFAULT_COMMAND",
        "PYSPARK_PYTHON",
        "CVS_RSH",
        "SSH_PKCS11_HELPER",
        "TAR_OPTIONS",
        "FZF_DEFAULT_OPTS",
        "PYTEST_ADDOPTS",
        "GUNICORN_CMD_ARGS",
        "WGETRC",
        "PSQLRC",
        "INPUTRC",
        "UNKNOWN_TOOL_LIBRARY_PATH",
        "UNKNOWN_TOOL_OPTIONS",
    ] {
        assert!(loads_code(name), "{name}");
    }
}
