//! Logins, and calls that come over a connection.

use super::fixture::*;
use crate::base::clock::SystemClock;
use crate::config::properties::PasswordMode;
use crate::config::settings::Release;
use crate::server::{Server, ServerOptions, listen};
use crate::service::{Authenticator, ServiceError, SimpleAuthenticator};
use crate::thrift::{Clients, Thrift};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// An authenticator with a password file and an access file.
fn authenticator(folder: &TempDir, password: &str) -> SimpleAuthenticator {
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    SimpleAuthenticator {
        password_file: write("passwd.properties", &format!("jsmith={password}\n")),
        access_file: write("access.properties", "Blog=jsmith,Elvis Presley\nOther=dilbert\n"),
        password_mode: Ok(PasswordMode::Plain),
        checks_calls: false,
    }
}

fn check(
    authenticator: &SimpleAuthenticator,
    keyspace: &str,
    credentials: &[(&str, &str)],
) -> Result<(), ServiceError> {
    let owned = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
    let credentials: BTreeMap<_, _> = credentials.iter().map(owned).collect();
    authenticator.check(keyspace, &credentials).map(drop)
}

#[test]
fn logins_are_judged_step_by_step() {
    let folder = TempDir::new().unwrap();
    let simple = authenticator(&folder, "havebadpass");
    let why = |keyspace, credentials: &[_]| {
        check(&simple, keyspace, credentials).unwrap_err().text().to_owned()
    };
    let good = [("username", "jsmith"), ("password", "havebadpass")];
    check(&simple, "Blog", &good).unwrap();
    let missing = |key| format!("Authentication request was missing the required key '{key}'");
    assert_eq!(why("Blog", &[]), missing("username"));
    assert_eq!(why("Blog", &good[..1]), missing("password"));
    for user in ["jsmith", "nobody"] {
        let wrong = why("Nope", &[("username", user), ("password", "x")]);
        let text =
            format!("Given password in password mode PLAIN could not be validated for user {user}");
        assert_eq!(wrong, text);
    }
    for keyspace in ["Other", "Nope"] {
        let text = format!("User jsmith could not be authorized to use keyspace {keyspace}");
        assert_eq!(why(keyspace, &good), text);
    }
    let simple = SimpleAuthenticator { password_mode: PasswordMode::parse("md5"), ..simple };
    let text = check(&simple, "Blog", &[]).unwrap_err().text().to_owned();
    assert!(text.starts_with("The requested password check mode 'md5' is not a valid mode.  "));
}

#[test]
fn passwords_may_be_kept_as_their_md5() {
    let folder = TempDir::new().unwrap();
    for stored in ["9be5c36a45cd8e2e0eb2f1cc3a6a4a52", "5F4DCC3B5AA765D61D8327DEB882CF99"] {
        let plain = authenticator(&folder, stored);
        let simple = SimpleAuthenticator { password_mode: Ok(PasswordMode::Md5), ..plain };
        let login = check(&simple, "Blog", &[("username", "jsmith"), ("password", "password")]);
        assert_eq!(login.is_ok(), stored.starts_with("5F4D"));
    }
}

#[test]
fn a_file_that_cannot_be_read_is_no_fault_of_the_client() {
    let folder = TempDir::new().unwrap();
    let good = [("username", "jsmith"), ("password", "x")];
    let simple = authenticator(&folder, "x");
    let gone = Some(Path::new("no such folder").join("passwd"));
    let unreadable = SimpleAuthenticator { password_file: gone, ..simple.clone() };
    let unset = SimpleAuthenticator { access_file: None, ..simple };
    let error = check(&unreadable, "Blog", &good).unwrap_err();
    assert!(matches!(error, ServiceError::Internal(_)), "{error}");
    let text = "cannot read the file of -Dpasswd.properties: No such file";
    assert!(error.text().starts_with(text), "{error}");
    let error = check(&unset, "Blog", &good).unwrap_err();
    assert!(matches!(error, ServiceError::Internal(_)), "{error}");
    assert!(error.text().contains("no -Daccess.properties=FILE"), "{error}");
}

/// A call without frame, from its method and the bytes of its arguments.
fn call(method: &str, arguments: &[u8]) -> Vec<u8> {
    let length = i32::try_from(method.len()).unwrap().to_be_bytes();
    let head = [&[0x80, 1, 0, 1], length.as_slice(), method.as_bytes(), &[0, 0, 0, 7]];
    [head.concat().as_slice(), arguments].concat()
}

/// A field with a text.
fn text_field(id: u8, text: &str) -> Vec<u8> {
    let length = i32::try_from(text.len()).unwrap().to_be_bytes();
    [&[11, 0, id], length.as_slice(), text.as_bytes()].concat()
}

/// Sends calls one after the other; tells for each whether it was refused for want of a login.
async fn refused(address: SocketAddr, calls: &[Vec<u8>]) -> Vec<bool> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut refused = Vec::new();
    for call in calls {
        stream.write_all(call).await.unwrap();
        let mut reply = vec![0; 4096];
        let length = stream.read(&mut reply).await.unwrap();
        assert!(length > 0, "the connection was closed");
        let text = String::from_utf8_lossy(&reply[..length]).into_owned();
        refused.push(text.contains("Login is required before any other API calls"));
    }
    refused
}

#[tokio::test]
async fn a_connection_stays_logged_in_and_others_do_not() {
    let folder = TempDir::new().unwrap();
    let authenticator = Authenticator::Simple(authenticator(&folder, "x"));
    let api = Arc::new(Node { authenticator, ..Node::default() }.api());
    let clock = Arc::new(SystemClock::new());
    let options = ServerOptions { workers: 1, ..ServerOptions::new(clock) };
    let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let clients = Clients { version: Release::V06, prefer_framed: false };
    let thrift = Thrift::new(api, clients, Arc::clone(&options.clock));
    let mut server = Server::new(options);
    server.add(listener.into(), Arc::new(thrift));
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server.run(stop.clone()));

    // An empty batch, so that only the login can be wanting: map<string, map>, level ONE.
    let level = [8, 0, 3, 0, 0, 0, 1, 0];
    let keyspace = text_field(1, "Blog");
    let batch = [keyspace.as_slice(), &[13, 0, 2, 11, 13, 0, 0, 0, 0], &level];
    let batch = call("batch_mutate", &batch.concat());
    let version = call("describe_version", &[0]);
    let login = |password: &str| {
        let text = |text: &str| text_field(0, text).split_off(3);
        let entries = ["username", "jsmith", "password", password].map(text).concat();
        let credentials = [&[13, 0, 1, 11, 11, 0, 0, 0, 2], entries.as_slice(), &[0]].concat();
        let request = [&[12, 0, 2], credentials.as_slice(), &[0]].concat();
        call("login", &[text_field(1, "Blog"), request].concat())
    };
    let calls = [
        version,
        batch.clone(),
        login("wrong"),
        batch.clone(),
        login("x"),
        batch.clone(),
        login("wrong"),
        batch.clone(),
    ];
    let expected = [false, true, false, true, false, false, false, false];
    assert_eq!(refused(address, &calls).await, expected);
    assert_eq!(refused(address, &[batch]).await, [true], "a login is of its connection");
    stop.cancel();
    serving.await.unwrap().unwrap();
}
