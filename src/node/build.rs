//! The build script of the addon, as napi requires it.

fn main() {
    // napi-derive writes types to this folder (.cargo/config.toml). It prints an error if the folder does not exist.
    if let Some(types) = std::env::var_os("NAPI_TYPE_DEF_TMP_FOLDER") {
        let _ = std::fs::create_dir_all(types);
    }
    napi_build::setup();
}
