//! Logins through `SimpleAuthenticator`, with the files and system properties of old.

use crate::admin::{admin_address, nodetool};
use crate::server::calls::{self, KEYSPACE, Path, STANDARD};
use crate::server::client::{CallError, Client, Transport, Value};
use crate::server::{Options, Server, configure, program, reconfigure, serve};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// Fields of the exceptions: of `login`, and of the data calls.
const AUTHENTICATION: i16 = 1;
const AUTHORIZATION: i16 = 2;
const INVALID_REQUEST: i16 = 1;

const LOGIN_REQUIRED: &str = "Login is required before any other API calls";

/// A server with two users; passwords stand in their file as the mode says.
fn start(directory: &std::path::Path, mode: Option<&str>, passwords: &str) -> Server {
    let options = calls::plain_families()
        .with("Authenticator", "org.apache.cassandra.auth.SimpleAuthenticator");
    let address = configure(directory, &options);
    fs::write(directory.join("passwd"), passwords).unwrap();
    fs::write(directory.join("access"), format!("{KEYSPACE}=jsmith,Elvis Presley\nOther=nobody\n"))
        .unwrap();
    let mut command = serve(directory);
    for name in ["passwd", "access"] {
        command.arg(format!("-D{name}.properties={}", directory.join(name).display()));
    }
    command.args(mode.map(|mode| format!("-Dpasswd.mode={mode}")));
    Server::launch(directory, address, command)
}

fn credentials<'a>(user: &'a str, password: &'a str) -> [(&'a str, &'a str); 2] {
    [("username", user), ("password", password)]
}

#[track_caller]
fn assert_declared(result: Result<(), CallError>, expected: i16, text: &str) {
    match result {
        Err(CallError::Declared { field, why }) => {
            assert_eq!((field, why.as_str()), (expected, text));
        }
        other => panic!("{other:?} instead of {text:?}"),
    }
}

fn splits_of_everything(client: &mut Client) -> Result<Option<Value>, CallError> {
    let tokens = [1, 2].map(|field| (field, Value::bytes("0")));
    let arguments = tokens.into_iter().chain([(3, Value::I32(128))]);
    client.call("describe_splits", arguments.collect())
}

/// Goes through the whole life of a connection. The users have the passwords `havebadpass` and
/// `graceland4ever`.
fn check(server: &Server, mode: &str, transport: Transport) {
    let mut client = Client::connect_as(server.thrift_address(), transport);
    let path = Path::column(STANDARD, b"column");
    let insert = |client: &mut Client| client.insert("key", path, b"value", 1);
    // What needs no login, and what does: its other faults do not matter before.
    assert_eq!(client.describe_version().unwrap(), "2.2.0");
    assert_declared(insert(&mut client), INVALID_REQUEST, LOGIN_REQUIRED);
    assert_declared(client.insert("", path, b"", 1), INVALID_REQUEST, LOGIN_REQUIRED);
    let slice = client.get_slice("key", "NoSuchFamily", calls::first(1, false));
    assert_declared(slice.map(|_| ()), INVALID_REQUEST, LOGIN_REQUIRED);
    // It can tell keys of rows, and declares no exception.
    let splits = splits_of_everything(&mut client).unwrap_err();
    assert!(
        matches!(&splits, CallError::Application { why, .. } if why == LOGIN_REQUIRED),
        "{splits}"
    );
    let log = server.log();
    assert!(log.contains("is refused: no login") && !log.contains("ERROR"), "{log}");

    let missing = |key| format!("Authentication request was missing the required key '{key}'");
    let result = client.login(KEYSPACE, &[("password", "havebadpass")]);
    assert_declared(result, AUTHENTICATION, &missing("username"));
    let result = client.login(KEYSPACE, &[("username", "jsmith")]);
    assert_declared(result, AUTHENTICATION, &missing("password"));
    for (user, password) in [("jsmith", "wrong"), ("jsmith", ""), ("unknown", "havebadpass")] {
        let text = format!(
            "Given password in password mode {mode} could not be validated for user {user}"
        );
        let result = client.login(KEYSPACE, &credentials(user, password));
        assert_declared(result, AUTHENTICATION, &text);
    }
    for keyspace in ["Other", "NotListed"] {
        let text = format!("User jsmith could not be authorized to use keyspace {keyspace}");
        let result = client.login(keyspace, &credentials("jsmith", "havebadpass"));
        assert_declared(result, AUTHORIZATION, &text);
    }
    assert_declared(insert(&mut client), INVALID_REQUEST, LOGIN_REQUIRED);

    client.login(KEYSPACE, &credentials("jsmith", "havebadpass")).unwrap();
    insert(&mut client).unwrap();
    splits_of_everything(&mut client).unwrap();
    // A failed login later does not take the first away, as in 0.6.
    client.login(KEYSPACE, &credentials("jsmith", "wrong")).unwrap_err();
    insert(&mut client).unwrap();
    client.login(KEYSPACE, &credentials("Elvis Presley", "graceland4ever")).unwrap();
    // A login is good for its connection only.
    let mut other = Client::connect_as(server.thrift_address(), transport);
    assert_declared(insert(&mut other), INVALID_REQUEST, LOGIN_REQUIRED);
}

const PLAIN: &str = "jsmith=havebadpass\nElvis\\ Presley=graceland4ever\n";

#[test]
fn passwords_in_plain_text_are_the_default() {
    for (mode, transport) in [(None, Transport::Unframed), (Some("PLAIN"), Transport::Framed)] {
        let directory = tempfile::tempdir().unwrap();
        let server = start(directory.path(), mode, PLAIN);
        check(&server, "PLAIN", transport);
    }
}

#[test]
fn passwords_as_md5_in_either_case() {
    let directory = tempfile::tempdir().unwrap();
    let passwords = "jsmith=e1a31eee2136eb73e8e47f9e9d13ab0d\n\
                     Elvis\\ Presley=1111515E9384B77D13FDA7C57867D1D6\n";
    let server = start(directory.path(), Some("MD5"), passwords);
    check(&server, "MD5", Transport::Unframed);
    // The hash itself is no password.
    let mut client = Client::connect(server.thrift_address());
    client.login(KEYSPACE, &credentials("jsmith", "e1a31eee2136eb73e8e47f9e9d13ab0d")).unwrap_err();
}

#[test]
fn the_files_are_read_at_every_login() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), None, PLAIN);
    let mut client = Client::connect(server.thrift_address());
    client.login(KEYSPACE, &credentials("jsmith", "changed")).unwrap_err();
    fs::write(directory.path().join("passwd"), "jsmith=changed\n").unwrap();
    client.login(KEYSPACE, &credentials("jsmith", "changed")).unwrap();
    fs::remove_file(directory.path().join("passwd")).unwrap();
    let missing = client.login(KEYSPACE, &credentials("jsmith", "changed"));
    assert!(matches!(missing, Err(CallError::Application { kind: 6, .. })), "{missing:?}");
    assert!(server.log().contains("passwd"), "the log names the file");
}

#[test]
fn a_login_that_fails_is_logged_with_its_address() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), None, PLAIN);
    let mut client = Client::connect(server.thrift_address());
    let user = "jsmith\nERROR all is lost";
    client.login(KEYSPACE, &credentials(user, "guessed")).unwrap_err();
    let log = server.log();
    let line = log.lines().find(|line| line.contains("a login from")).unwrap();
    let why = format!("a login from 127.0.0.1 for keyspace {KEYSPACE} failed: Given password");
    assert!(line.contains(&why) && line.ends_with(r"user jsmith\nERROR all is lost"), "{line}");
    assert!(!log.contains("guessed"), "no password is logged");
}

#[test]
fn a_start_without_the_files_of_logins_explains_itself() {
    let directory = tempfile::tempdir().unwrap();
    let options = calls::plain_families()
        .with("Authenticator", "org.apache.cassandra.auth.SimpleAuthenticator");
    let address = configure(directory.path(), &options);
    let mut command = serve(directory.path());
    command.arg("-Dpasswd.properties=nowhere");
    let server = Server::launch(directory.path(), address, command);
    let log = server.log();
    for why in ["cannot read nowhere: No such file", "logins are looked up in files, and no -Dacc"]
    {
        assert!(log.contains(&format!("every login will be refused: {why}")), "{log}");
    }
    let checked = Command::new(program()).arg("check-config").arg(directory.path()).output();
    let checked = checked.unwrap();
    let text = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && text.contains("no -Dpasswd.properties=FILE"), "{text}");
}

#[test]
fn an_unknown_password_mode_refuses_every_login() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), Some("md5"), PLAIN);
    let mut client = Client::connect(server.thrift_address());
    let text = "The requested password check mode 'md5' is not a valid mode.  Possible values are \
                'PLAIN', 'MD5', or leave it unspecified.";
    let result = client.login(KEYSPACE, &credentials("jsmith", "havebadpass"));
    assert_declared(result, AUTHENTICATION, text);
}

#[test]
fn without_an_authenticator_every_login_succeeds_and_none_is_needed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &calls::plain_families());
    let mut client = Client::connect(server.thrift_address());
    client.insert("key", Path::column(STANDARD, b"column"), b"value", 1).unwrap();
    client.login("NoSuchKeyspace", &[]).unwrap();
}

#[test]
fn with_keyspace_rights_each_call_needs_a_right_to_its_keyspace() {
    let directory = tempfile::tempdir().unwrap();
    let options = calls::plain_families()
        .with("Authenticator", "org.apache.cassandra.auth.SimpleAuthenticator")
        .with("KeyspaceRights", "true");
    let path = |name: &str| directory.path().join(name);
    let address = configure(directory.path(), &options);
    fs::write(path("passwd"), "writer=1\nreader=2\nsystem=3\n").unwrap();
    let access = format!("{KEYSPACE}.<rw>=writer\n{KEYSPACE}.<ro>=reader,writer\nsystem=system\n");
    fs::write(path("access"), access).unwrap();
    let mut command = serve(directory.path());
    for name in ["passwd", "access"] {
        command.arg(format!("-D{name}.properties={}", path(name).display()));
    }
    let server = Server::launch(directory.path(), address, command);
    assert!(!server.log().contains("there is no KeyspaceRights"));

    let mut client = Client::connect(server.thrift_address());
    let column = Path::column(STANDARD, b"column");
    client.login(KEYSPACE, &credentials("writer", "1")).unwrap();
    client.insert("key", column, b"value", 1).unwrap();
    // The rights are those of the last login.
    client.login(KEYSPACE, &credentials("reader", "2")).unwrap();
    assert_eq!(client.get_slice("key", STANDARD, calls::first(1, false)).unwrap().len(), 1);
    let refused = format!("User reader may only read keyspace {KEYSPACE}");
    assert_declared(client.insert("key", column, b"value", 2), INVALID_REQUEST, &refused);
    assert_declared(client.remove("key", column, 2), INVALID_REQUEST, &refused);
    client.login("system", &credentials("system", "3")).unwrap();
    let refused = format!("User system could not be authorized to use keyspace {KEYSPACE}");
    let slice = client.get_slice("key", STANDARD, calls::first(1, false));
    assert_declared(slice.map(|_| ()), INVALID_REQUEST, &refused);
    assert_declared(client.insert("key", column, b"value", 2), INVALID_REQUEST, &refused);
}

#[test]
fn without_keyspace_rights_a_user_that_may_only_read_cannot_log_in() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), None, PLAIN);
    assert!(server.log().contains("there is no KeyspaceRights"), "{}", server.log());
    fs::write(directory.path().join("access"), format!("{KEYSPACE}.<ro>=jsmith\n")).unwrap();
    let mut client = Client::connect(server.thrift_address());
    let refused = client.login(KEYSPACE, &credentials("jsmith", "havebadpass"));
    let text = format!("User jsmith may only read keyspace {KEYSPACE}");
    assert_declared(refused, AUTHORIZATION, &text);
}

#[test]
fn a_reload_gives_connections_the_rights_of_the_changed_file() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), None, PLAIN);
    let mut client = Client::connect(server.thrift_address());
    let path = Path::column(STANDARD, b"column");
    client.login(KEYSPACE, &credentials("jsmith", "havebadpass")).unwrap();
    client.insert("key", path, b"value", 1).unwrap();
    reconfigure(directory.path(), &Options::default().with("KeyspaceRights", "true"));
    fs::write(directory.path().join("access"), format!("{KEYSPACE}.<ro>=jsmith\n")).unwrap();
    client.insert("key", path, b"value", 2).unwrap();
    let passwords = directory.path().join("passwd");
    fs::set_permissions(&passwords, fs::Permissions::from_mode(0o644)).unwrap();
    let reload = nodetool(admin_address(directory.path()), &["reload"]);
    let changed = "changed: KeyspaceRights: false -> true\n\
                   changed: the file of access.properties, as it is now\n\
                   note: passwd.properties: all users of this machine can read ";
    let told = String::from_utf8_lossy(&reload.stdout);
    assert!(told.starts_with(changed), "{told}");
    let refused = format!("User jsmith may only read keyspace {KEYSPACE}");
    assert_declared(client.insert("key", path, b"value", 3), INVALID_REQUEST, &refused);
    let log = server.log();
    for line in ["login of jsmith from 127.0.0.1", "127.0.0.1 is refused: User jsmith may only"] {
        assert!(log.contains(&format!("alexandra::audit] {line}")), "{log}");
    }
    assert!(log.contains("alexandra::audit] POST /api/v1/reload of 127.0.0.1: 200 OK"), "{log}");
    let has_row = |client: &mut Client| {
        client.get_slice("key", STANDARD, calls::first(1, false)).unwrap().len() == 1
    };
    assert!(has_row(&mut client));
    // Rights that cannot be read leave those that are there.
    fs::rename(directory.path().join("access"), directory.path().join("away")).unwrap();
    let reload = nodetool(admin_address(directory.path()), &["reload"]);
    let why = String::from_utf8_lossy(&reload.stderr);
    let refused = "nothing has changed: Authenticator: every login would be refused: cannot read ";
    assert!(!reload.status.success() && why.contains(refused), "{why}");
    assert!(has_row(&mut client));
    let login = client.login(KEYSPACE, &credentials("jsmith", "havebadpass")).unwrap_err();
    let (login, path) = (format!("{login:?}"), directory.path().display().to_string());
    assert!(!login.contains(&path), "{login}");
}

#[test]
fn each_user_of_an_address_is_logged() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), None, "one=1\ntwo=2\n");
    fs::write(directory.path().join("access"), format!("{KEYSPACE}=one,two\n")).unwrap();
    let mut client = Client::connect(server.thrift_address());
    for (user, password) in [("one", "1"), ("two", "2"), ("one", "1")] {
        client.login(KEYSPACE, &credentials(user, password)).unwrap();
    }
    let log = server.log();
    let logins: Vec<_> = log.lines().filter_map(|it| it.split_once("] login of ")).collect();
    let logins: Vec<_> = logins.into_iter().map(|(_, login)| login).collect();
    assert_eq!(logins, ["one from 127.0.0.1", "two from 127.0.0.1"]);
}

#[test]
fn a_password_that_the_command_has_set_is_kept_as_a_hash() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), None, PLAIN);
    let (file, link) = (directory.path().join("passwd"), directory.path().join("link"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    // In the encoding of Java.
    fs::write(&file, [PLAIN.as_bytes(), b"Jos\xe9=secret\n"].concat()).unwrap();
    let mut command = Command::new(program());
    command.args(["passwd", "--file"]).arg(&link).arg("Elvis Presley");
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    running.stdin.take().unwrap().write_all(b"all shook up\n").unwrap();
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success());
    let passwords = fs::read_to_string(&file).unwrap();
    assert!(passwords.starts_with("jsmith=havebadpass\nElvis\\ Presley=$argon2id$"), "{passwords}");
    let mut client = Client::connect(server.thrift_address());
    for (user, password) in [("Elvis Presley", "graceland4ever"), ("unknown", "all shook up")] {
        client.login(KEYSPACE, &credentials(user, password)).unwrap_err();
    }
    client.login(KEYSPACE, &credentials("jsmith", "all shook up")).unwrap_err();
    client.login(KEYSPACE, &credentials("Elvis Presley", "all shook up")).unwrap();
    client.login(KEYSPACE, &credentials("jsmith", "havebadpass")).unwrap();
    assert!(passwords.ends_with("\nJos\u{e9}=secret\n"), "{passwords}");
}

#[test]
fn the_shell_says_what_is_wrong_with_a_login_in_the_words_of_the_original() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), None, PLAIN);
    let port = server.thrift_address().port().to_string();
    let link = directory.path().join("cassandra-cli");
    std::os::unix::fs::symlink(program(), &link).unwrap();
    let run = |arguments: &[&str], statements: &str| {
        let mut shell = Command::new(&link);
        shell.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = shell.spawn().unwrap();
        running.stdin.take().unwrap().write_all(statements.as_bytes()).unwrap();
        let output = running.wait_with_output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let log_in = |keyspace: &str, password: &str| {
        let user = ["-username", "jsmith", "-password", password, "-keyspace", keyspace];
        run(&[&["-host", "127.0.0.1", "-port", &port], &user[..]].concat(), "show config file\n")
    };
    let connected = format!("Connected to: \"Tests\" on 127.0.0.1/{port}");
    let told = log_in(KEYSPACE, "havebadpass");
    assert!(told.contains(&connected) && told.contains("<ClusterName>Tests<"), "{told}");
    let wrong = "Exception during authentication to the cassandra node, verify you are using \
                 correct credentials.";
    assert!(log_in(KEYSPACE, "wrong").contains(wrong));
    assert!(
        log_in("Other", "havebadpass").contains("You are not authorized to use keyspace: Other")
    );

    let told = run(&[], &format!("show api version\nconnect 127.0.0.1/{port}\nshow api version\n"));
    let place = |text: &str| told.find(text).unwrap_or_else(|| panic!("{text} is not in {told}"));
    let order = ["Not connected to a cassandra instance.", &connected, "2.2.0"].map(place);
    assert!(order.is_sorted(), "{told}");
}

#[test]
fn passwords_of_tools_need_not_stand_on_the_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), None, PLAIN);
    let port = server.thrift_address().port().to_string();
    let run = |password: Option<&str>, tool: &[&str]| {
        let mut command = Command::new(program());
        command.args(tool).args(["-p", &port, "--username", "jsmith"]);
        command.env_remove("ALEXANDRA_PASSWORD").stdin(Stdio::null());
        command.envs(password.map(|it| ("ALEXANDRA_PASSWORD", it)));
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let statement = format!("set {STANDARD}['row']['column'] = 'value'");
    let cli = ["cli", "--admin-port", "0", "-k", KEYSPACE, "-e", &statement];
    let stress = ["stress", "insert", "--rows", "10"];
    for tool in [&cli[..], &stress] {
        let (is_well, text) = run(Some("havebadpass"), tool);
        assert!(is_well, "{text}");
        assert!(!run(Some("wrong"), tool).0);
        let (is_well, text) = run(None, tool);
        let way_out = "there is no password: give it as ALEXANDRA_PASSWORD or by --password";
        assert!(!is_well && text.contains(way_out), "{text}");
    }
}
