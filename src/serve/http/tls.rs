//! TLS from PEM files.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::{ExposeSecret as _, SecretSlice};
use tokio_rustls::TlsAcceptor;

use super::options::{TlsFiles, invalid};
use crate::error::{Error, Result};
use crate::files::{Links, read_bounded};

const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Returns an acceptor for the certificate and its key.
///
/// # Errors
/// `ERR_IO` if a file cannot be read; `ERR_INVALID_OPTION` if a file contains no certificate or no key, or the key belongs to another
/// certificate.
pub(super) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor> {
    let TlsFiles { certificate, key } = files;
    let read = |option: &str, path: &Path| {
        let what = |error: &io::Error| Error::io(format!("the file {} cannot be read (check {option})", path.display()), error);
        read_bounded(path, Links::Follow, MAX_FILE_BYTES).map(SecretSlice::from).map_err(|error| what(&error))
    };
    let bytes = read("--tls-cert, or tls.cert", certificate)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(bytes.expose_secret()).collect::<std::result::Result<_, _>>().unwrap_or_default();
    if chain.is_empty() {
        return Err(invalid(format!("{} has no certificate in the form of PEM: check --tls-cert, or tls.cert", certificate.display())));
    }
    let bytes = read("--tls-key, or tls.key", key)?;
    let private = PrivateKeyDer::from_pem_slice(bytes.expose_secret());
    let private =
        private.map_err(|_| invalid(format!("{} has no private key in the form of PEM: check --tls-key, or tls.key", key.display())))?;
    let unfit = |error: &rustls::Error| {
        let problem = match error {
            rustls::Error::InconsistentKeys(_) => "the key belongs to another certificate".to_owned(),
            other => other.to_string(),
        };
        invalid(format!(
            "{} and {} cannot be used together: {problem}. Check --tls-cert and --tls-key, or tls",
            certificate.display(),
            key.display()
        ))
    };
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| unfit(&error))?.with_no_client_auth();
    let mut config = builder.with_single_cert(chain, private).map_err(|error| unfit(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn certificate(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let paths = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
        fs::write(&paths.0, made.cert.pem()).unwrap();
        fs::write(&paths.1, made.signing_key.serialize_pem()).unwrap();
        paths
    }

    #[test]
    fn a_key_that_does_not_fit_its_certificate_is_one_clear_error() {
        let folder = tempfile::tempdir().unwrap();
        let ((first, first_key), (_, other_key)) = (certificate(folder.path(), "first"), certificate(folder.path(), "other"));
        let load = |certificate: &Path, key: &Path| acceptor(&TlsFiles { certificate: certificate.into(), key: key.into() }).err();
        assert!(load(&first, &first_key).is_none());
        for (certificate, key, words) in [
            (&first, &other_key, "the key belongs to another certificate"),
            (&first_key, &first_key, "has no certificate"),
            (&first, &first, "has no private key"),
        ] {
            let error = load(certificate, key).unwrap();
            assert!(error.code() == "ERR_INVALID_OPTION" && error.to_string().contains(words), "{error}");
            assert_eq!(error.to_string().lines().count(), 1);
        }
        assert!(load(&folder.path().join("none"), &first_key).unwrap().to_string().contains("--tls-cert"));
    }
}
