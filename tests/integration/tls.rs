//! TLS, port by port: who gets in, certificates that change, and a ring that moves to it.

use crate::admin::{admin_address, nodetool};
use crate::cluster::nodes::{Cluster, replicated, wait_until};
use crate::cql::{CqlClient, READY, with_cql};
use crate::server::calls::{KEYSPACE, Path as ColumnPath, STANDARD, plain_families};
use crate::server::client::{CallError, Client, Level, Transport, connect, wait_for_end};
use crate::server::{Options, Server, program, reconfigure};
use alexandra::base::tls::Trust;
use alexandra::client::Client as ThriftClient;
use alexandra::thrift::idl::{ColumnPath as StoredAt, ConsistencyLevel, GetArgs, InsertArgs};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::StreamOwned;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

/// Signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes its certificate, and that of a node with its key, into a directory.
    fn write(&self, directory: &Path) -> Files {
        self.write_as(&CertificateParams::default(), directory)
    }

    fn write_as(&self, node: &CertificateParams, directory: &Path) -> Files {
        let path = |name: &str| directory.join(name);
        let files = Files {
            certificate: path("certificate.pem"),
            key: path("key.pem"),
            authority: path("authority.pem"),
        };
        let key = KeyPair::generate().unwrap();
        let certificate = node.signed_by(&key, &self.0).unwrap();
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        fs::write(&files.authority, self.0.pem()).unwrap();
        files
    }
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
    authority: PathBuf,
}

impl Files {
    fn options(&self, options: Options) -> Options {
        let text = |path: &Path| path.display().to_string();
        options
            .with("TlsCertificateFile", &text(&self.certificate))
            .with("TlsKeyFile", &text(&self.key))
            .with("TlsAuthorityFile", &text(&self.authority))
    }

    fn trust(&self) -> Trust {
        self.authority.display().to_string().parse().unwrap()
    }
}

/// Runs a command of the program with this authority.
fn trusting(authority: &Path, address: SocketAddr, command: &str, arguments: &[&str]) -> Output {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let mut process = Command::new(program());
    process.args([command, "-h", &host, "-p", &port, "--tls-authority"]);
    process.arg(authority).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn thrift(address: SocketAddr, files: &Files, is_framed: bool) -> std::io::Result<ThriftClient> {
    let host = address.ip().to_string();
    ThriftClient::connect((&host, address.port()), is_framed, Some(&files.trust()))
}

#[test]
fn each_port_takes_what_its_element_allows() {
    let directory = tempfile::tempdir().unwrap();
    let files = Authority::new().write(directory.path());
    let (cql, options) = with_cql();
    let options = files.options(options.with("AdminToken", "secret"));
    let options = options.with("ThriftTls", "required").with("CqlTls", "optional");
    let server = Server::start(directory.path(), &options.with("AdminTls", "required"));
    let address = server.thrift_address();

    for transport in [Transport::Unframed, Transport::Framed] {
        let path = ColumnPath::column(STANDARD, b"column");
        let refused = Client::connect_as(address, transport).insert("key", path, b"value", 1);
        let Err(CallError::Declared { why, .. }) = refused else { panic!("{refused:?}") };
        assert!(why.contains("this port takes TLS alone (ThriftTls)"), "{why}");
    }
    let statements = "show cluster name; show keyspaces;";
    // A method without an exception of its own.
    let refused = Client::connect(address).describe_version();
    let Err(CallError::Application { why, .. }) = refused else { panic!("{refused:?}") };
    assert!(why.contains("this port takes TLS alone (ThriftTls)"), "{why}");
    // A request that comes in pieces.
    let mut pieces = connect(address);
    pieces.write_all(b"\0\0\0\x1D").unwrap();
    thread::sleep(Duration::from_millis(100));
    pieces.write_all(b"\x80\x01\0\x01\0\0\0\x10describe_version\0\0\0\0\0").unwrap();
    let mut told = Vec::new();
    pieces.read_to_end(&mut told).unwrap();
    assert!(String::from_utf8_lossy(&told).contains("this port takes TLS alone"), "{told:?}");
    assert!(!server.log().contains("ERROR"), "{}", server.log());
    let told = trusting(&files.authority, address, "cli", &["--admin-port", "0", "-e", statements]);
    assert!(told.status.success() && said(&told).contains("system"), "{told:?}");

    assert_eq!(CqlClient::begin(cql).1.opcode, READY, "in plain text");
    let session = files.trust().session(cql.ip()).unwrap();
    let mut stream = StreamOwned::new(session, connect(cql));
    stream.write_all(b"\x04\0\0\x09\x05\0\0\0\0").unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(head[..5], *b"\x84\0\0\x09\x06", "SUPPORTED, by TLS");

    let admin = admin_address(directory.path());
    let plain = nodetool(admin, &["info"]);
    assert!(!plain.status.success(), "{plain:?}");
    assert!(said(&plain).contains("takes TLS alone (AdminTls)"), "{plain:?}");
    let told = trusting(&files.authority, admin, "nodetool", &["info"]);
    assert!(told.status.success() && said(&told).contains("Generation No"), "{told:?}");
    let elsewhere = tempfile::tempdir().unwrap();
    let others = Authority::new().write(elsewhere.path());
    let told = trusting(&others.authority, admin, "nodetool", &["info"]);
    assert!(!told.status.success() && said(&told).contains("invalid peer certificate"), "{told:?}");
}

#[test]
fn large_requests_and_answers_pass_by_tls() {
    let directory = tempfile::tempdir().unwrap();
    let files = Authority::new().write(directory.path());
    let options = files.options(plain_families()).with("ThriftTls", "optional");
    let server = Server::start(directory.path(), &options);
    let value: Vec<u8> = (0..12_000_000_u32).map(|at| (at % 251) as u8).collect();
    let path = StoredAt {
        column_family: STANDARD.into(),
        super_column: None,
        column: Some(b"large".as_slice()),
    };
    for is_framed in [false, true] {
        let mut client = thrift(server.thrift_address(), &files, is_framed).unwrap();
        let insert = InsertArgs {
            keyspace: KEYSPACE.into(),
            key: "key".into(),
            column_path: path.clone(),
            value: value.as_slice(),
            timestamp: 1,
            consistency_level: ConsistencyLevel::One,
        };
        client.call(&insert).unwrap();
        let get = GetArgs {
            keyspace: KEYSPACE.into(),
            key: "key".into(),
            column_path: path.clone(),
            consistency_level: ConsistencyLevel::One,
        };
        let found = client.call(&get).unwrap();
        assert!(found.column.is_some_and(|it| it.value == value));
    }
}

#[test]
fn certificates_and_modes_change_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = authority.write(directory.path());
    let options = files.options(Options::default()).with("ThriftTls", "required");
    let server = Server::start(directory.path(), &options);
    let admin = admin_address(directory.path());
    let old = files.authority.with_file_name("old.pem");
    fs::copy(&files.authority, &old).unwrap();
    let ask = |authority: &Path| {
        let statement = ["--admin-port", "0", "-e", "show cluster name"];
        trusting(authority, server.thrift_address(), "cli", &statement)
    };
    assert!(ask(&old).status.success());

    fs::write(&files.key, "no key").unwrap();
    let refused = nodetool(admin, &["reload"]);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(said(&refused).contains("nothing has changed: TlsKeyFile"), "{refused:?}");
    assert!(ask(&old).status.success());

    // The same authority, and a certificate that has ended.
    let mut ended = CertificateParams::default();
    ended.not_after = date_time_ymd(2010, 1, 1);
    authority.write_as(&ended, directory.path());
    assert!(nodetool(admin, &["reload"]).status.success());
    assert!(server.log().contains("has expired: renew it"), "{}", server.log());
    let (mut metrics, mut text) = (connect(admin), String::new());
    metrics.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    metrics.read_to_string(&mut text).unwrap();
    let file = files.certificate.display();
    let end = format!("alexandra_tls_certificate_end_seconds{{file=\"{file}\"}} 1262304000\n");
    assert!(text.contains(&end), "{text}");
    // A new one.
    authority.write(directory.path());
    let renewed = said(&nodetool(admin, &["reload"]));
    assert!(renewed.contains("the files of TLS, as they are now"), "{renewed}");
    assert!(ask(&old).status.success());
    // With an authority of their own.
    Authority::new().write(directory.path());
    assert!(nodetool(admin, &["reload"]).status.success());
    assert!(ask(&files.authority).status.success());
    assert!(!ask(&old).status.success());

    reconfigure(directory.path(), &Options::default().with("ThriftTls", "off"));
    let told = said(&nodetool(admin, &["reload"]));
    assert!(told.contains("ThriftTls: required -> off"), "{told}");
    Client::connect(server.thrift_address()).describe_version().unwrap();
}

#[test]
fn a_ring_moves_to_tls_node_by_node() {
    let directory = tempfile::tempdir().unwrap();
    let files = Authority::new().write(directory.path());
    let cluster = Cluster::start(3, files.options(replicated(3)));
    let path = ColumnPath::column(STANDARD, b"column");
    let mut written = 0;
    let mut write = |cluster: &Cluster| {
        for number in 0..3 {
            let mut client = cluster.client(number).at(Level::All);
            let key = format!("key{written}");
            wait_until("all replicas answer", || client.insert(&key, path, b"value", 1).is_ok());
            written += 1;
        }
    };
    for mode in ["optional", "required"] {
        for number in 0..3 {
            let options = Options::default().with("StorageTls", mode);
            reconfigure(&cluster.nodes[number].directory, &options);
            cluster.nodetool(number, &["reload"]);
            write(&cluster);
        }
    }
    // Whoever speaks plain text, or has a certificate of somebody else, is not heard.
    let storage = cluster.nodes[0].storage();
    let mut plain = connect(storage);
    plain.write_all(&[0; 64]).unwrap();
    assert_eq!(wait_for_end(&mut plain), 0);
    let elsewhere = tempfile::tempdir().unwrap();
    Authority::new().write(elsewhere.path());
    let session = files.trust().session(storage.ip()).unwrap();
    let mut nobody = StreamOwned::new(session, connect(storage));
    let _ = nobody.write_all(&[0; 64]);
    let read = nobody.read(&mut [0; 1]);
    assert!(read.is_err_and(|why| why.to_string().contains("CertificateRequired")));
    let log = cluster.server(0).log();
    assert!(log.contains("this port takes TLS alone (StorageTls)"), "{log}");
}

#[test]
fn a_mode_without_its_files_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let files = Authority::new().write(directory.path());
    let check = |options: Options| {
        crate::server::configure(directory.path(), &options);
        let mut command = Command::new(program());
        said(&command.arg("check-config").arg(directory.path()).output().unwrap())
    };
    let thrift = || Options::default().with("ThriftTls", "optional");
    let text = check(thrift());
    assert!(text.contains("ThriftTls needs TlsCertificateFile"), "{text}");
    let text = check(files.options(thrift()).with("TlsKeyFile", "/nowhere/key.pem"));
    assert!(text.contains("TlsKeyFile: /nowhere/key.pem: No such file"), "{text}");
    let text = check(files.options(thrift().with("ThriftTls", "sometimes")));
    assert!(text.contains("ThriftTls") && text.contains("off, optional, required"), "{text}");
    // The key of another certificate.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Authority::new().write(elsewhere.path());
    let text = check(files.options(thrift()).with("TlsKeyFile", &other.key.display().to_string()));
    assert!(text.contains("does not go with the certificate"), "{text}");
    // One that other nodes would not take.
    let between = || Options::default().with("StorageTls", "optional");
    let strange = other.options(between());
    let text = check(strange.with("TlsAuthorityFile", &files.authority.display().to_string()));
    assert!(text.contains("certificate.pem: other nodes would refuse it: "), "{text}");
    let uses = |uses: &[ExtendedKeyUsagePurpose]| {
        let mut parameters = CertificateParams::default();
        parameters.extended_key_usages = uses.to_vec();
        check(Authority::new().write_as(&parameters, directory.path()).options(between()))
    };
    let (server, client) =
        (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
    for half in [&server, &client] {
        let text = uses(std::slice::from_ref(half));
        assert!(text.contains("other nodes would refuse it: "), "{text}");
    }
    assert!(!uses(&[server, client]).contains("refuse"));
}

#[test]
fn a_client_that_does_not_complete_what_it_has_begun_is_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let files = Authority::new().write(directory.path());
    let options = files.options(Options::default()).with("ThriftTls", "required");
    let server = Server::start(directory.path(), &options);
    // A handshake that announces 65 KB, and one that says its first byte.
    let record = [&[0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xfb][..], &[0; 0x3ffc]].concat();
    let mut large = connect(server.thrift_address());
    large.write_all(&record).unwrap();
    let _ = large.write_all(&[&[0x16, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat());
    wait_for_end(&mut large);
    let mut short = connect(server.thrift_address());
    short.write_all(&[0x16]).unwrap();
    assert_eq!(wait_for_end(&mut short), 0);
    let log = server.log();
    for why in ["its handshake is longer than 16384 bytes", "nothing of the rest of its request"] {
        assert!(log.contains(why), "{log}");
    }
}

#[test]
fn where_tls_is_optional_a_node_that_others_refuse_goes_on_in_plain_text() {
    let directory = tempfile::tempdir().unwrap();
    let files = Authority::new().write(directory.path());
    let elsewhere = tempfile::tempdir().unwrap();
    let others = Authority::new().write(elsewhere.path());
    let cluster = Cluster::start(2, files.options(replicated(2)));
    reconfigure(&cluster.nodes[1].directory, &others.options(Options::default()));
    for number in 0..2 {
        let options = Options::default().with("StorageTls", "optional");
        reconfigure(&cluster.nodes[number].directory, &options);
        cluster.nodetool(number, &["reload"]);
    }
    for number in 0..2 {
        let mut client = cluster.client(number).at(Level::All);
        let path = ColumnPath::column(STANDARD, b"column");
        wait_until("both replicas answer", || client.insert("key", path, b"value", 1).is_ok());
    }
}
