//! Start and end of a server: ports, files, threads, output and signals. What a start refuses is in
//! the golden scripts in tests/scripts/server.

use crate::server::calls::{
    self, KEYSPACE, Path as ColumnPath, STANDARD, families_with, plain_families,
};
use crate::server::client::Client;
use crate::server::{
    Options, Refusal, Server, configure, is_free, program, reconfigure, refused, serve,
};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

fn insert(server: &Server, count: usize) {
    let mut client = Client::connect(server.thrift_address());
    for number in 0..count {
        let (key, value) = (format!("row {number}"), [b'v'; 300]);
        client.insert(&key, ColumnPath::column(STANDARD, b"column"), &value, 1).unwrap();
    }
}

/// How many of the rows of [`insert`] are there.
fn count_rows(server: &Server) -> usize {
    let rows = Client::connect(server.thrift_address()).scan(STANDARD).unwrap();
    assert!(rows.iter().all(|(_, columns)| columns.len() == 1));
    rows.len()
}

#[track_caller]
fn assert_refused(refusal: &Refusal, exit_code: i32, texts: &[&str]) {
    assert_eq!(refusal.exit_code, Some(exit_code), "{}", refusal.text);
    for text in texts {
        assert!(refusal.text.contains(text), "{text:?} is not in:\n{}", refusal.text);
    }
}

/// Paths of all files below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { directories.push(path) } else { found.push(path) }
        }
    }
    found
}

#[test]
fn a_port_that_is_taken_is_named_and_no_data_are_touched() {
    let directory = tempfile::tempdir().unwrap();
    let address = configure(directory.path(), &Options::default());
    let _taken = TcpListener::bind(address).unwrap();
    let refusal = refused(&serve(directory.path()));
    let text = format!("cannot listen for Thrift clients on {address}");
    assert_refused(&refusal, 3, &[&text, "Exception encountered during startup."]);
    assert!(
        !directory.path().join("data").exists() && !directory.path().join("commitlog").exists()
    );
}

/// How many keys each start has read into the row cache of the family of [`insert`].
fn rows_loaded(server: &Server) -> Vec<String> {
    let log = server.log();
    let end = format!("row cache for {STANDARD} of {KEYSPACE}");
    let lines = log.lines().filter(|line| line.ends_with(&end));
    let count = |line: &str| line.split_once(" ms; ")?.1.split_once(" keys)").map(|it| it.0.into());
    lines.filter_map(count).collect()
}

/// A server with a saved row cache that was started anew: ten rows are in a file now, from where
/// reads fill the cache.
fn restarted_with_rows(directory: &Path) -> Server {
    let attributes = r#"RowsCached="100" RowCacheSavePeriodInSeconds="3600""#;
    let mut server = Server::start(directory, &families_with(attributes));
    insert(&server, 10);
    server.stop();
    server.restart();
    server
}

#[test]
fn the_caches_are_saved_at_the_end_and_filled_after_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = restarted_with_rows(directory.path());
    let mut client = Client::connect(server.thrift_address());
    for number in 0..7 {
        let columns = client.get_slice(&format!("row {number}"), STANDARD, calls::first(9, false));
        assert_eq!(columns.unwrap().len(), 1);
    }
    drop(client);
    server.stop();
    let saved = directory.path().join(format!("saved_caches/{KEYSPACE}-{STANDARD}-RowCache"));
    assert!(saved.exists());
    server.restart();
    let mut waits = 0..200;
    while rows_loaded(&server).is_empty() && waits.next().is_some() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(rows_loaded(&server), ["7"], "{}", server.log());
}

#[test]
fn new_data_are_for_the_user_of_the_server_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = restarted_with_rows(directory.path());
    assert_eq!(count_rows(&server), 10);
    // The end saves the cache.
    server.stop();
    for folder in ["data", "commitlog", "saved_caches"] {
        let folder = directory.path().join(folder);
        let files = files_below(&folder);
        assert!(!files.is_empty(), "{}", folder.display());
        let parents = files.iter().flat_map(|file| file.ancestors().skip(1));
        for path in files.iter().map(PathBuf::as_path).chain(parents) {
            if path.starts_with(&folder) {
                let mode = fs::metadata(path).unwrap().permissions().mode();
                assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
            }
        }
    }
}

#[test]
fn a_log_file_takes_the_place_of_standard_error_when_the_server_is_ready() {
    let directory = tempfile::tempdir().unwrap();
    let options = plain_families().with("LogFile", "log/system.log");
    let options = options.with("LogFileMaxSizeInMB", "1").with("LogFileMaxBackups", "1");
    let mut server = Server::start(directory.path(), &options);
    assert!(server.stop().success());
    let file = directory.path().join("log/system.log");
    let written = || fs::read_to_string(&file).unwrap();
    assert!(written().contains(" INFO ") && written().contains("SIGTERM: stopping"));
    assert!(server.log().contains("log file: log/system.log"), "{}", server.log());
    assert!(!server.log().contains("SIGTERM"), "{}", server.log());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&file) & 0o137, 0, "{:o}", mode(&file));
    assert_eq!(mode(file.parent().unwrap()) & 0o027, 0);

    // A full one is replaced at the next line, and the one before it goes at the one after.
    for age in ["old", "newer"] {
        fs::write(&file, "-".repeat(1 << 20) + age).unwrap();
        server.restart();
        assert!(server.stop().success());
    }
    assert!(written().contains("SIGTERM: stopping"));
    assert!(fs::read_to_string(file.with_extension("log.1")).unwrap().ends_with("newer"));
    assert_eq!(files_below(file.parent().unwrap()).len(), 2);

    // With -f it has every line as well.
    let mut command = serve(directory.path());
    command.arg("-f");
    let mut server = Server::launch(directory.path(), server.thrift_address(), command);
    assert!(server.stop().success());
    assert!(server.log().contains("SIGTERM: stopping"), "{}", server.log());
}

#[test]
fn a_log_file_that_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().unwrap();
    configure(directory.path(), &plain_families().with("LogFile", "log"));
    fs::create_dir(directory.path().join("log")).unwrap();
    let texts = ["cannot open the log file log: ", "name another file as LogFile in"];
    assert_refused(&refused(&serve(directory.path())), 3, &texts);
    assert!(!directory.path().join("data").exists());
}

#[test]
fn two_servers_never_write_to_one_folder_of_an_archive() {
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let archive = first.path().join("archive");
    let options = plain_families().with("CommitLogArchiveDirectory", archive.to_str().unwrap());
    let mut server = Server::start(first.path(), &options);
    insert(&server, 3);
    configure(second.path(), &options);
    let refusal = refused(&serve(second.path()));
    assert_refused(&refusal, 3, &[archive.to_str().unwrap(), "is used by another server"]);
    assert!(server.stop().success());
    // Nor one after the other.
    let segments = || {
        files_below(&archive)
            .into_iter()
            .filter(|path| path.extension().is_some_and(|it| it == "alog"))
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect::<Vec<_>>()
    };
    let before = segments();
    let mut other = Server::start(second.path(), &options);
    insert(&other, 3);
    assert!(other.stop().success());
    let (old, new) = segments().into_iter().partition::<Vec<_>, _>(|it| before.contains(it));
    assert_eq!((old.len(), new.is_empty()), (before.len(), false));
    let folder = |(path, _): &(PathBuf, Vec<u8>)| path.parent().unwrap().to_owned();
    assert!(new.iter().all(|it| old.iter().all(|other| folder(it) != folder(other))));
    server.restart();
    assert_eq!(count_rows(&server), 3);
}

#[test]
fn relative_directories_begin_where_the_server_was_started() {
    let directory = tempfile::tempdir().unwrap();
    let options = plain_families()
        .with("DataFileDirectory", "relative/data")
        .with("CommitLogDirectory", "relative/commitlog")
        .with("SavedCachesDirectory", "relative/saved_caches");
    let address = configure(directory.path(), &options);
    let working = directory.path().join("working");
    fs::create_dir(&working).unwrap();
    let mut command = serve(directory.path());
    command.current_dir(&working);
    let mut server = Server::launch(directory.path(), address, command);
    insert(&server, 3);
    assert!(server.stop().success());
    let keyspace = working.join("relative/data").join(calls::KEYSPACE);
    assert!(!files_below(&keyspace).is_empty() && working.join("relative/commitlog").is_dir());
}

#[test]
fn all_data_directories_get_files_and_all_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let data = ["a", "b", "c"].map(|name| directory.path().join(name));
    let element =
        |path: &PathBuf| format!("<DataFileDirectory>{}</DataFileDirectory>", path.display());
    let options =
        plain_families().with("DataFileDirectories", &data.each_ref().map(element).concat());
    let mut server = Server::start(directory.path(), &options);
    // An orderly stop flushes. How often that happens by itself depends on how busy the machine is.
    for _ in 0..6 {
        insert(&server, 200);
        assert!(server.stop().success());
        server.restart();
    }
    assert_eq!(count_rows(&server), 200);
    // Where flushes went; compactions have moved most of it since.
    let log = server.log();
    let flushes = data.map(|path| {
        log.matches(&format!("Completed flushing {}/{}/", path.display(), calls::KEYSPACE)).count()
    });
    assert!(!flushes.contains(&0), "{flushes:?}");
}

/// The exit code and standard error of a command whose standard output is this.
fn run_into(directory: &Path, output: Stdio, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(program());
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    let process = command.stdout(output).stderr(Stdio::piped()).spawn().unwrap();
    let ended = process.wait_with_output().unwrap();
    (ended.status.code().unwrap(), String::from_utf8(ended.stderr).unwrap())
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_command_that_cannot_print_does_its_work_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path(), &plain_families());
    insert(&server, 10);
    assert!(server.stop().success());
    let snapshot = |arguments: &[&str], output| {
        let all = [&["snapshot"], arguments, &["--config", "."]].concat();
        run_into(directory.path(), output, &all)
    };
    let why = "not everything could be printed";
    for (output, tag, is_told) in [(full(), "one", true), (closed(), "two", false)] {
        let (exit_code, error) = snapshot(&["take", tag], output);
        assert_eq!((exit_code, error.contains(why)), (0, is_told), "{error}");
    }
    let is_taken = |path: &PathBuf, tag: &str| path.to_str().unwrap().contains(tag);
    let files = files_below(&directory.path().join("data"));
    assert!(["-one/", "-two/"].iter().all(|tag| files.iter().any(|path| is_taken(path, tag))));
    let telling: [(&[&str], i32); 5] = [
        (&["version"], 1),
        (&["check-config", "."], 1),
        (&["snapshot", "list", "--config", "."], 1),
        (&["restore", "--snapshot", "one", "--dry-run", "--config", "."], 1),
        (&["sstable", "verify", "--config", "."], 2),
    ];
    for (arguments, failed) in telling {
        let (exit_code, error) = run_into(directory.path(), full(), arguments);
        assert_eq!((exit_code, error.contains(why)), (failed, true), "{arguments:?}: {error}");
        let (exit_code, error) = run_into(directory.path(), closed(), arguments);
        assert_eq!((exit_code, error.contains(why)), (0, false), "{arguments:?}: {error}");
    }
    for arguments in [["clear", "--name", "one"], ["clear", "--name", "two"]] {
        assert_eq!(snapshot(&arguments, full()).0, 0);
        let (exit_code, error) = snapshot(&arguments, closed());
        assert_eq!((exit_code, error.contains("no snapshot ")), (1, true), "{error}");
    }
}

/// Whether these tests were started by nohup, or the like.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    ignored & 1 != 0
}

#[test]
fn a_server_serves_without_an_output_until_it_is_hung_up() {
    // With a PID file others manage the server, and SIGHUP is for its configuration.
    for (output, with_pid_file) in [(full(), true), (closed(), false)] {
        let directory = tempfile::tempdir().unwrap();
        let address = configure(directory.path(), &plain_families());
        let mut command = serve(directory.path());
        let log = fs::File::create(directory.path().join("log")).unwrap();
        command.args(with_pid_file.then_some(["-p", "pid"]).into_iter().flatten());
        command.env_remove("NOTIFY_SOCKET");
        let mut process = command.stdout(output).stderr(log).spawn().unwrap();
        let mut waits = 0..600;
        let pause = || std::thread::sleep(std::time::Duration::from_millis(50));
        let pid_file = directory.path().join("pid");
        while is_free(address) && waits.next().is_some() {
            pause();
        }
        assert_eq!(pid_file.exists(), with_pid_file);
        Client::connect(address)
            .insert("row", ColumnPath::column(STANDARD, b"column"), b"value", 1)
            .unwrap();
        // What ignores SIGHUP hands that down: nohup means that nothing is to be hung up.
        let has_terminal = fs::File::open("/dev/tty").is_ok();
        let is_told = with_pid_file || ignores_hangup() || !has_terminal;
        let signal = if is_told { Signal::TERM } else { Signal::HUP };
        kill_process(Pid::from_child(&process), signal).unwrap();
        while process.try_wait().unwrap().is_none() && waits.next().is_some() {
            pause();
        }
        let _ = process.kill();
        let status = process.wait().unwrap();
        assert!(status.success(), "{status}");
        assert!(!pid_file.exists());
    }
}

#[test]
fn a_hangup_during_a_reload_has_the_last_configuration_read_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let address = configure(directory.path(), &plain_families());
    let mut command = serve(directory.path());
    command.args(["-p", "pid"]);
    let server = Server::launch(directory.path(), address, command);
    let file = directory.path().join("storage-conf.xml");
    let [first, last] = ["9", "10"].map(|phi| {
        reconfigure(directory.path(), &Options::default().with("PhiConvictThreshold", phi));
        fs::read(&file).unwrap()
    });
    // The server is in the middle of a reload for as long as the other end of this pipe is open.
    fs::remove_file(&file).unwrap();
    let made = Command::new("mkfifo").args(["-m", "600"]).arg(&file).status().unwrap();
    assert!(made.success());
    server.hang_up();
    let mut writer = wait_for("the reload has begun", || {
        let flags = OFlags::NONBLOCK.bits() as i32;
        OpenOptions::new().write(true).custom_flags(flags).open(&file).ok()
    });
    server.hang_up();
    let other = directory.path().join("other");
    fs::write(&other, &last).unwrap();
    fs::rename(&other, &file).unwrap();
    writer.write_all(&first).unwrap();
    drop(writer);
    wait_for("both have ended", || {
        (server.log().matches("reload by SIGHUP: done").count() == 2).then_some(())
    });
    let log = server.log();
    let changes = log.lines().filter_map(|line| line.split_once("changed: PhiConvictThreshold: "));
    assert_eq!(changes.map(|(_, change)| change).collect::<Vec<_>>(), ["8 -> 9", "9 -> 10"]);
}

/// Waits until there is something.
#[track_caller]
fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..6000 {
        if let Some(found) = found() {
            return found;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("not within a minute: {what}");
}

#[test]
fn root_serves_no_data_of_another_user() {
    let directory = tempfile::tempdir().unwrap();
    let options = plain_families().with("LogFile", "system.log");
    assert!(Server::start(directory.path(), &options).stop().success());
    let place = |name: &str| directory.path().join(name);
    fs::remove_file(place("system.log")).unwrap();
    for name in ["data", "commitlog"] {
        let mut files = fs::read_dir(place(name)).unwrap();
        let file = files.next().unwrap().unwrap().path();
        // Only root can give files away.
        if chown(&file, Some(12345), Some(54321)).is_err() {
            return;
        }
        let way_out = "Run: setpriv --reuid 12345 --regid 54321 --clear-groups ";
        assert_refused(&refused(&serve(directory.path())), 3, &[way_out, " serve --config "]);
        assert!(!place("system.log").exists(), "a log file of root");
        chown(&file, Some(0), Some(0)).unwrap();
    }
    // As with a volume of a container.
    for name in ["data", "commitlog"] {
        chown(place(name), Some(12345), Some(54321)).unwrap();
    }
    assert!(Server::start(directory.path(), &options).stop().success());
}

/// Names and niceness of the threads of a server.
fn threads(server: &Server) -> Vec<(String, i32)> {
    let tasks = format!("/proc/{}/task", server.pid().as_raw_nonzero());
    let thread = |task: std::io::Result<fs::DirEntry>| {
        // A thread may have ended since.
        let stat = fs::read_to_string(task.unwrap().path().join("stat")).ok()?;
        let (name, fields) = stat.rsplit_once(')').unwrap();
        let nice = fields.split_whitespace().nth(16).unwrap().parse().unwrap();
        Some((name.split_once('(').unwrap().1.to_owned(), nice))
    };
    fs::read_dir(tasks).unwrap().filter_map(thread).collect()
}

#[test]
fn compaction_and_long_requests_leave_the_processor_to_short_ones() {
    const LONG: i32 = 5;
    let own = rustix::process::getpriority_process(None).unwrap();
    for (arguments, compaction) in [
        (&[][..], 4),
        (&["-Dcassandra.compaction.priority=5"], 0),
        (&["-D", "cassandra.compaction.priority=3"], 2),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let address = configure(directory.path(), &plain_families());
        let mut command = serve(directory.path());
        command.args(arguments);
        let server = Server::launch(directory.path(), address, command);
        let expected = |name: &str| match name {
            _ if name.starts_with("compaction") => compaction,
            _ if name.starts_with("long-read") || name.starts_with("client-large") => LONG,
            _ => 0,
        };
        let is_so = |threads: &[(String, i32)]| {
            threads.iter().any(|(name, _)| name.starts_with("compaction"))
                && threads.iter().all(|(name, nice)| nice - own == expected(name))
        };
        // A thread sets its niceness when it begins to run.
        let mut last = threads(&server);
        for _ in 0..500 {
            if is_so(&last) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            last = threads(&server);
        }
        assert!(is_so(&last), "{arguments:?}, niceness here {own}: {last:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    configure(directory.path(), &plain_families());
    let mut command = serve(directory.path());
    command.arg("-Dcassandra.compaction.priority=11");
    assert_refused(&refused(&command), 3, &["a number from 1 to 10 expected"]);
}

#[test]
fn a_start_that_is_stopped_while_it_joins_does_not_say_that_it_listens() {
    let directory = tempfile::tempdir().unwrap();
    // Nobody answers there, which a start waits for.
    let address = configure(directory.path(), &plain_families().with("Seed", "127.0.0.99"));
    let mut server = Server::begin(directory.path(), address, serve(directory.path()));
    let is_begun = (0..6000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        server.log().contains("Saved Token not found")
    });
    assert!(is_begun, "{}", server.log());
    assert!(server.stop().success());
    assert!(!server.log().contains("listening"), "{}", server.log());
}

#[test]
fn a_low_limit_of_open_files_is_told_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let thrift = configure(directory.path(), &calls::plain_families());
    let serve = crate::server::serve(directory.path());
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 512; exec \"$@\"", "sh"]).arg(serve.get_program());
    command.args(serve.get_args()).current_dir(directory.path());
    let server = Server::launch(directory.path(), thrift, command);
    let told = "512 files may be open at a time, of which 128 are kept for data";
    assert!(server.log().contains(told), "{}", server.log_end());
    assert!(server.log().contains("Raise `ulimit -n` or LimitNOFILE to 10256"));
}

#[test]
fn files_with_secrets_that_everybody_can_read_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let options = plain_families()
        .with("AdminToken", "open sesame")
        .with("TlsKeyFile", path("key").to_str().unwrap())
        .with("Authenticator", "org.apache.cassandra.auth.SimpleAuthenticator");
    configure(directory.path(), &options);
    let files = [
        ("AdminToken", path("storage-conf.xml")),
        ("TlsKeyFile", path("key")),
        ("passwd.properties", path("passwd")),
    ];
    fs::write(path("key"), "").unwrap();
    fs::write(path("passwd"), "jsmith=havebadpass").unwrap();
    for mode in [0o644, 0o640] {
        for (_, file) in &files {
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut check = Command::new(program());
        check.arg("check-config").arg(directory.path());
        let properties = format!("-Dpasswd.properties={}", path("passwd").display());
        let checked = check.arg(properties).output().unwrap();
        let said = String::from_utf8_lossy(&checked.stderr);
        for (what, file) in &files {
            let file = file.display();
            let warning = format!("{what}: all users of this machine can read {file}: chmod o-rwx");
            assert_eq!(said.contains(&warning), mode == 0o644, "{said}");
        }
    }
}
