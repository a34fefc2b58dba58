//! TLS for the web's own port and for connections to PostgreSQL.

use anyhow::{Context, Result, anyhow};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::sync::Arc;

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>> {
    let list = CertificateDer::pem_file_iter(path).and_then(|i| i.collect());
    list.map_err(|e| anyhow!("{path}: {e}"))
}

/// The web's certificate and key.
pub fn server(cert: &str, key: &str) -> Result<Arc<ServerConfig>> {
    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| anyhow!("{key}: {e}"))?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates(cert)?, key)
        .context("tls: certificate and key")?;
    Ok(Arc::new(config))
}

/// How much of the server's certificate is checked: PostgreSQL's sslmode.
#[derive(Clone, Copy, PartialEq)]
pub enum Check {
    /// `require`: nothing (with a CA given: as `verify-ca`, like libpq).
    Nothing,
    /// `verify-ca`: the signature, not the name.
    Authority,
    /// `verify-full`: both.
    Name,
}

/// The client side of a connection to PostgreSQL.
pub fn client(check: Check, ca: Option<&str>, identity: Option<(&str, &str)>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let check = if ca.is_some() && check == Check::Nothing { Check::Authority } else { check };
    if let Some(ca) = ca {
        for cert in certificates(ca)? {
            roots.add(cert)?;
        }
    }
    let inner = if check == Check::Nothing {
        None
    } else {
        Some(
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
                .build()
                .context("verifying needs --postgres-ca-cert")?,
        )
    };
    let verifier = Arc::new(Verifier { inner, check });
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    Ok(match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|e| anyhow!("{key}: {e}"))?;
            builder.with_client_auth_cert(certificates(cert)?, key)?
        }
    })
}

#[derive(Debug)]
struct Verifier {
    inner: Option<Arc<WebPkiServerVerifier>>,
    check: Check,
}

impl std::fmt::Debug for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(["nothing", "authority", "name"][*self as usize])
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else { return Ok(ServerCertVerified::assertion()) };
        match inner.verify_server_cert(end, others, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == Check::Authority => Ok(ServerCertVerified::assertion()),
            Ok(_) if self.check == Check::Name => {
                verify_server_name(&ParsedCertificate::try_from(end)?, name)
                    .map(|()| ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        m: &[u8],
        c: &CertificateDer<'_>,
        d: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(m, c, d, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        m: &[u8],
        c: &CertificateDer<'_>,
        d: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(m, c, d, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
