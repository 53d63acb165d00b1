//! TLS of the ports: which of them take plain text, and the certificates.
//!
//! All ports show one certificate. Nodes show it to each other, and take each other for nodes of
//! the ring if the authority has signed it; the names in it do not count, since nodes know each
//! other by addresses.

mod stream;

pub use stream::Stream;

use super::latest::Latest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, DigitallySignedStruct, RootCertStore,
    ServerConfig, SignatureScheme,
};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Time before its end from which a certificate is warned of.
const WARNED_SECONDS: u64 = 30 * 24 * 3600;

/// Use of TLS at a port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, derive_more::Display)]
pub enum Mode {
    /// Plain text alone.
    #[default]
    #[display("off")]
    Off,
    /// Either, as the client begins. Nodes try TLS first when they connect.
    #[display("optional")]
    Optional,
    /// TLS alone.
    #[display("required")]
    Required,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Optional, Self::Required];
}

/// Ports that may have TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// For Thrift clients.
    Thrift,
    /// For CQL clients.
    Cql,
    /// For other nodes.
    Storage,
    /// For operators.
    Admin,
}

impl Port {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Thrift, Self::Cql, Self::Storage, Self::Admin];

    /// The element of its mode.
    pub fn element(self) -> &'static str {
        match self {
            Self::Thrift => "ThriftTls",
            Self::Cql => "CqlTls",
            Self::Storage => "StorageTls",
            Self::Admin => "AdminTls",
        }
    }
}

/// Settings of TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Modes by [`Port`].
    pub modes: [Mode; 4],
    /// `TlsCertificateFile`: the certificate of this node, and those between it and the authority.
    pub certificate: Option<PathBuf>,
    /// `TlsKeyFile`: its private key.
    pub key: Option<PathBuf>,
    /// `TlsAuthorityFile`: certificates of those who sign for nodes of this ring.
    pub authority: Option<PathBuf>,
}

/// Modes of the ports, with the certificates that they need. Equal ones have equal files.
#[derive(Debug, Default)]
pub struct Tls {
    options: Options,
    /// Content of the files.
    files: Vec<Vec<u8>>,
    /// End of the first certificate that ends, in seconds since 1970.
    end: Option<u64>,
    clients: Option<Arc<ServerConfig>>,
    nodes: Option<Nodes>,
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.options == other.options && self.files == other.files
    }
}

impl Tls {
    /// Reads the files that the modes need. The error names element and file.
    pub fn read(options: &Options) -> Result<Self, String> {
        if options.modes == [Mode::Off; 4] {
            return Ok(Self { options: options.clone(), ..Self::default() });
        }
        let is_on = |port: &Port| options.modes[*port as usize] != Mode::Off;
        let wanting = Port::ALL.into_iter().find(is_on).map_or("TLS", Port::element);
        let mut files = Vec::new();
        let mut read = |element: &str, path: &Option<PathBuf>, wanting: &str| {
            let Some(path) = path else { return Err(format!("{wanting} needs {element}")) };
            let bytes = std::fs::read(path);
            let bytes = bytes.map_err(|why| format!("{element}: {}: {why}", path.display()))?;
            files.push(bytes.clone());
            Ok((format!("{element}: {}", path.display()), bytes))
        };
        let (name, pem) = read("TlsCertificateFile", &options.certificate, wanting)?;
        let chain = certificates(&pem).map_err(|why| format!("{name}: {why}"))?;
        let first = chain.first().map(ParsedCertificate::try_from);
        first.transpose().map_err(|why| format!("{name}: {why}"))?;
        let end = chain.iter().filter_map(end_of_validity).min();
        let certificate = name;
        let (name, pem) = read("TlsKeyFile", &options.key, wanting)?;
        let key = PrivateKeyDer::from_pem_slice(&pem);
        let key = key.map_err(|why| format!("{name}: no private key in PEM form: {why}"))?;
        let wrong = |why: rustls::Error| format!("{name} does not go with the certificate: {why}");
        let clients = Some(accepting(None, &chain, &key).map_err(wrong)?);
        let nodes = if is_on(&Port::Storage) {
            let wanting = Port::Storage.element();
            let (name, pem) = read("TlsAuthorityFile", &options.authority, wanting)?;
            let roots = authority(&pem).map_err(|why| format!("{name}: {why}"))?;
            let nodes = Nodes::new(roots, chain, &key);
            let wrong = |why| format!("{certificate}: other nodes would refuse it: {why}");
            Some(nodes.map_err(|why| wrong(why.to_string()))?)
        } else {
            None
        };
        Ok(Self { options: options.clone(), files, end, clients, nodes })
    }

    /// The file of the certificate, and the seconds since 1970 at which it ends.
    pub fn certificate_end(&self) -> Option<(String, u64)> {
        Some((self.options.certificate.as_ref()?.display().to_string(), self.end?))
    }

    /// A warning of the certificate, if it ends soon.
    pub fn warning(&self) -> Option<String> {
        let (file, end) = self.certificate_end()?;
        let is_soon = end < UnixTime::now().as_secs() + WARNED_SECONDS;
        is_soon.then(|| {
            format!("TlsCertificateFile: {file} expires within 30 days, or has expired: renew it")
        })
    }

    fn mode(&self, port: Port) -> Mode {
        self.options.modes[port as usize]
    }

    /// Whether the settings are the same, whatever the files hold.
    pub fn has_options_of(&self, other: &Self) -> bool {
        self.options == other.options
    }

    /// Whether the same nodes may connect.
    pub fn admits_nodes_of(&self, other: &Self) -> bool {
        let authority = |it: &Self| it.nodes.as_ref().and_then(|_| it.files.last().cloned());
        self.mode(Port::Storage) == other.mode(Port::Storage) && authority(self) == authority(other)
    }

    fn accepting(&self, port: Port) -> Option<&Arc<ServerConfig>> {
        match port {
            Port::Storage => self.nodes.as_ref().map(|nodes| &nodes.accepting),
            _ => self.clients.as_ref(),
        }
    }
}

/// Configurations between nodes, which show their certificates to each other.
#[derive(Debug)]
struct Nodes {
    accepting: Arc<ServerConfig>,
    dialing: Trust,
}

impl Nodes {
    fn new(
        roots: RootCertStore,
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'static>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let shared = Arc::new(roots.clone());
        let verifier = WebPkiClientVerifier::builder_with_provider(shared, provider()).build()?;
        if let Some((own, rest)) = chain.split_first() {
            // Other nodes check it as that of a client and as that of a server.
            let (now, any) = (UnixTime::now(), ServerName::from(IpAddr::from([0; 4])));
            verifier.verify_client_cert(own, rest, now)?;
            AnyNode::new(roots.clone()).verify_server_cert(own, rest, &any, &[], now)?;
        }
        let accepting = accepting(Some(verifier), &chain, key)?;
        let config = dialing(roots)?.with_client_auth_cert(chain, key.clone_key())?;
        Ok(Self { accepting, dialing: Trust(Arc::new(config)) })
    }
}

/// The TLS of one port, as the settings are now.
#[derive(Debug, Clone)]
pub struct Guard {
    tls: Arc<Latest<Tls>>,
    port: Port,
}

impl Guard {
    /// The guard of a port.
    pub fn new(tls: &Arc<Latest<Tls>>, port: Port) -> Self {
        Self { tls: Arc::clone(tls), port }
    }

    /// The guard of a port for plain text alone.
    pub fn off(port: Port) -> Self {
        Self { tls: Arc::new(Latest::new(Tls::default())), port }
    }

    /// Its mode now.
    pub fn mode(&self) -> Mode {
        self.tls.mode(self.port)
    }

    /// For connections to other nodes; `None` if these have no TLS.
    pub fn dialing(&self) -> Option<Trust> {
        self.tls.nodes.as_ref().map(|nodes| nodes.dialing.clone())
    }

    /// Why plain text is refused.
    pub fn refusal(&self) -> String {
        format!("this port takes TLS alone ({})", self.port.element())
    }
}

/// Configuration of a client that accepts certificates of some authorities. Parsed from the path of
/// a file with theirs.
#[derive(Debug, Clone)]
pub struct Trust(Arc<ClientConfig>);

impl FromStr for Trust {
    type Err = String;

    fn from_str(file: &str) -> Result<Self, String> {
        let pem = std::fs::read(file).map_err(|why| why.to_string())?;
        let config = dialing(authority(&pem)?).map_err(|why| why.to_string())?;
        Ok(Self(Arc::new(config.with_no_client_auth())))
    }
}

impl Trust {
    /// A session with a server, which begins with its first bytes.
    pub fn session(&self, server: IpAddr) -> io::Result<ClientConnection> {
        // Names in certificates are not checked.
        ClientConnection::new(Arc::clone(&self.0), server.into()).map_err(io::Error::other)
    }
}

/// The one provider of cryptography, so that none has to be installed for the process.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(chain) if chain.is_empty() => Err("no certificate in PEM form".to_owned()),
        read => read.map_err(|why| format!("no certificate in PEM form: {why}")),
    }
}

fn end_of_validity(certificate: &CertificateDer<'_>) -> Option<u64> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    parsed.validity().not_after.timestamp().try_into().ok()
}

fn authority(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|why| why.to_string())?;
    }
    Ok(roots)
}

fn accepting(
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let config = ServerConfig::builder_with_provider(provider());
    let config = config.with_safe_default_protocol_versions()?;
    let config = match verifier {
        Some(verifier) => config.with_client_cert_verifier(verifier),
        None => config.with_no_client_auth(),
    };
    Ok(Arc::new(config.with_single_cert(chain.to_vec(), key.clone_key())?))
}

fn dialing(
    roots: RootCertStore,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, rustls::Error> {
    let config = ClientConfig::builder_with_provider(provider());
    let config = config.with_safe_default_protocol_versions()?.dangerous();
    Ok(config.with_custom_certificate_verifier(Arc::new(AnyNode::new(roots))))
}

/// Accepts every certificate that the authority has signed. Names are not checked.
#[derive(Debug)]
struct AnyNode {
    roots: RootCertStore,
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyNode {
    fn new(roots: RootCertStore) -> Self {
        Self { roots, algorithms: provider().signature_verification_algorithms }
    }
}

impl ServerCertVerifier for AnyNode {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let (roots, algorithms) = (&self.roots, self.algorithms.all);
        let signed = verify_server_cert_signed_by_trust_anchor(
            &certificate,
            roots,
            intermediates,
            now,
            algorithms,
        );
        signed.map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
