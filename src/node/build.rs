//! napi's set-up of the addon.

fn main() {
    // Where napi-derive notes types (.cargo/config.toml); it complains where there is no such folder.
    if let Some(types) = std::env::var_os("NAPI_TYPE_DEF_TMP_FOLDER") {
        let _ = std::fs::create_dir_all(types);
    }
    napi_build::setup();
}
