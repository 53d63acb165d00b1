//! The program under the name `cassandra`: a server that leaves its terminal, its process id and
//! its log file, and the environment of old setups.

use crate::admin::{admin_address, nodetool};
use crate::server::calls::{Path as ColumnPath, STANDARD, plain_families};
use crate::server::client::Client;
use crate::server::{Options, Server, configure, program, reconfigure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// An installation as it was unpacked: `bin/cassandra` beside `conf`. Its server is killed at the
/// end.
struct Installation {
    directory: TempDir,
    address: SocketAddr,
}

/// How the script ended, and what it printed.
struct Ended {
    exit_code: i32,
    printed: String,
    told: String,
}

impl Installation {
    fn new(options: &Options, log_settings: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["bin", "conf"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        symlink(program(), directory.path().join("bin/cassandra")).unwrap();
        let address = configure(&directory.path().join("conf"), options);
        let installation = Self { directory, address };
        let file = installation.path("log/system.log");
        let settings = format!("log4j.appender.R.File={}\n{log_settings}", file.display());
        installation.write("conf/log4j.properties", &settings);
        installation
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The script without an environment of old setups.
    fn script(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("bin/cassandra"));
        command.args(arguments).current_dir(self.directory.path());
        for name in ["CASSANDRA_CONF", "CASSANDRA_INCLUDE", "JVM_OPTS", "RUST_LOG"] {
            command.env_remove(name);
        }
        command.env("HOME", self.directory.path());
        command
    }

    /// Runs the script to its end. Its output goes to files, because a server that did not leave
    /// its terminal would keep a pipe open.
    fn run(&self, command: &mut Command) -> Ended {
        let [printed, told] = ["printed", "told"].map(|name| self.path(name));
        command.stdin(Stdio::null());
        command.stdout(File::create(&printed).unwrap()).stderr(File::create(&told).unwrap());
        let mut process = command.spawn().unwrap();
        let ended = within_a_minute(|| process.try_wait().unwrap());
        let _ = process.kill();
        let [printed, told] = [printed, told].map(|path| fs::read_to_string(path).unwrap());
        let status = ended.unwrap_or_else(|| panic!("it goes on:\n{told}"));
        Ended { exit_code: status.code().unwrap(), printed, told }
    }

    #[track_caller]
    fn assert_starts(&self, command: &mut Command) -> Ended {
        let ended = self.run(command);
        assert_eq!(ended.exit_code, 0, "{}", ended.told);
        let listening = format!("listening for Thrift clients on {}", self.address);
        assert!(ended.printed.contains(&listening), "{}", ended.printed);
        insert(self.address);
        ended
    }

    #[track_caller]
    fn assert_refused(&self, command: &mut Command, exit_code: i32, texts: &[&str]) {
        let ended = self.run(command);
        assert_eq!(ended.exit_code, exit_code, "{}", ended.told);
        for text in texts {
            assert!(ended.told.contains(text), "{text:?} is not in:\n{}", ended.told);
        }
    }

    fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.path("pid")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log/system.log")).unwrap()
    }

    /// Does what stop scripts do, and waits for the end.
    #[track_caller]
    fn stop(&self) {
        kill_process(self.pid().unwrap(), Signal::TERM).unwrap();
        let gone = within_a_minute(|| (!self.path("pid").exists()).then_some(()));
        assert!(gone.is_some(), "{}", self.log());
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn within_a_minute<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    (0..3000).find_map(|_| {
        let found = look();
        if found.is_none() {
            thread::sleep(Duration::from_millis(20));
        }
        found
    })
}

fn insert(address: SocketAddr) {
    let path = ColumnPath::column(STANDARD, b"column");
    Client::connect(address).insert("row", path, b"value", 1).unwrap();
}

#[test]
fn the_script_returns_when_calls_are_answered_and_a_kill_ends_the_server() {
    let installation = Installation::new(&plain_families(), "");
    // Of a server that was killed: it does not matter which process has the number now.
    installation.write("pid", &format!("{}\n", std::process::id()));
    let mut start = installation.script(&["-p", "pid"]);
    let started = installation.assert_starts(&mut start);
    assert!(started.told.contains("bin/../conf"), "{}", started.told);

    let process = PathBuf::from(format!("/proc/{}", installation.pid().unwrap()));
    assert_eq!(fs::read_link(process.join("exe")).unwrap(), program().canonicalize().unwrap());
    for stream in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(fs::read_link(process.join(stream)).unwrap(), Path::new("/dev/null"));
    }
    let fields = fs::read_to_string(process.join("stat")).unwrap();
    let session = fields.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap();
    assert_eq!(session, installation.pid().unwrap().to_string());

    let running = format!("running server, process {}", installation.pid().unwrap());
    installation.assert_refused(&mut start, 3, &[&running, "name another file with -p"]);
    kill_process(installation.pid().unwrap(), Signal::HUP).unwrap();
    insert(installation.address);
    installation.stop();
    assert!(installation.log().contains("SIGTERM: stopping"));
    assert!(installation.log().contains("SIGHUP: reading the configuration again"));
}

#[test]
fn the_pid_file_of_a_running_original_stays() {
    let installation = Installation::new(&plain_families(), "");
    let mut original = Command::new("sleep");
    original.arg0("org.apache.cassandra.thrift.CassandraDaemon");
    let mut original =
        original.arg("60").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    installation.write("pid", &original.id().to_string());
    let running = format!("running server, process {}.", original.id());
    installation.assert_refused(&mut installation.script(&["-p", "pid"]), 3, &[&running]);
    assert_eq!(fs::read_to_string(installation.path("pid")).unwrap(), original.id().to_string());
    original.kill().unwrap();
    original.wait().unwrap();
    installation.assert_starts(&mut installation.script(&["-p", "pid"]));
    installation.stop();
}

#[test]
fn a_start_that_fails_is_told_with_its_exit_code() {
    let installation = Installation::new(&plain_families(), "");
    let mut start = installation.script(&["-p", "pid"]);
    {
        let _taken = TcpListener::bind(installation.address).unwrap();
        let text = format!("cannot listen for Thrift clients on {}", installation.address);
        let texts = [text.as_str(), "Exception encountered during startup."];
        installation.assert_refused(&mut start, 3, &texts);
        assert!(installation.log().contains(&text));
    }
    installation.write("conf/log4j.properties", "log4j.appender.R.File=/dev/null/system.log");
    let texts = ["cannot open the log file /dev/null/system.log", "conf/log4j.properties"];
    installation.assert_refused(&mut start, 3, &texts);
    let missing = installation.path("missing").display().to_string();
    let mut elsewhere = installation.script(&["-D", &format!("storage-config={missing}")]);
    installation.assert_refused(&mut elsewhere, 3, &[&missing]);
    reconfigure(&installation.path("conf"), &Options::default().with("Partitioner", "Unknown"));
    installation.write("conf/log4j.properties", "log4j.appender.R.File=system.log");
    let text = "Bad configuration; unable to start server";
    installation.assert_refused(&mut start, 1, &["Unknown", text]);
    installation.assert_refused(&mut installation.script(&["-x"]), 1, &["-x"]);
    assert!(!installation.path("pid").exists());
}

#[test]
fn a_server_that_ends_before_it_is_ready_is_no_success() {
    // Nobody answers there, which a start waits for.
    let options = plain_families().with("Seed", "127.0.0.99");
    let installation = Installation::new(&options, "");
    let ended = thread::scope(|scope| {
        scope.spawn(|| {
            let log = installation.path("log/system.log");
            let is_waiting = || {
                let log = fs::read_to_string(&log).unwrap_or_default();
                log.contains("Saved Token not found").then_some(())
            };
            within_a_minute(is_waiting).unwrap();
            kill_process(installation.pid().unwrap(), Signal::TERM).unwrap();
        });
        installation.run(&mut installation.script(&["-p", "pid"]))
    });
    assert_eq!(ended.exit_code, 3);
    assert!(ended.told.contains("the server ended before it was ready"), "{}", ended.told);
}

#[test]
fn the_log_is_rotated_as_the_settings_of_log4j_say() {
    let settings = "log4j.appender.R.maxFileSize=200\nlog4j.appender.R.MaxBackupIndex=2\n\
                    log4j.logger.com.facebook=DEBUG\n";
    let installation = Installation::new(&plain_families(), settings);
    let started = installation.assert_starts(&mut installation.script(&["-p", "pid"]));
    let unused = "without effect: log4j.logger.com.facebook=DEBUG";
    assert!(started.told.contains(unused), "{}", started.told);
    installation.stop();
    let mut names: Vec<_> = fs::read_dir(installation.path("log")).unwrap().collect();
    names.sort_by_key(|entry| entry.as_ref().unwrap().path());
    let names: Vec<_> = names.into_iter().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["system.log", "system.log.1", "system.log.2"]);
    let newest_first = ["log/system.log.1", "log/system.log.2"];
    let backups = newest_first.map(|name| fs::read_to_string(installation.path(name)).unwrap());
    assert!(backups.iter().all(|text| text.len() >= 200));
    let [newest, oldest] = backups.each_ref().map(|text| text.lines().last().unwrap());
    let time = |line: &str| line.split_once("] ").unwrap().1[..23].to_owned();
    assert!(time(oldest) <= time(newest), "{oldest}\n{newest}");
}

#[test]
fn a_log_file_of_the_configuration_comes_before_that_of_log4j() {
    let options = plain_families().with("LogFile", "own.log");
    let installation = Installation::new(&options, "");
    installation.assert_starts(&mut installation.script(&["-p", "pid"]));
    assert!(nodetool(admin_address(&installation.path("conf")), &["flush"]).status.success());
    installation.stop();
    let log = fs::read_to_string(installation.path("own.log")).unwrap();
    assert!(log.contains(") alexandra::audit: POST /api/v1/flush of 127.0.0.1: 200"), "{log}");
    assert!(log.contains(" INFO [main] 20") && log.contains("SIGTERM: stopping"), "{log}");
    assert!(!installation.path("log").exists());
}

#[test]
fn a_log_that_cannot_be_written_stops_no_server() {
    let installation = Installation::new(&plain_families(), "");
    let settings = "log4j.rootLogger=WARN,stdout,R\nlog4j.appender.R.File=/dev/full";
    installation.write("conf/log4j.properties", settings);
    let started = installation.assert_starts(&mut installation.script(&["-p", "pid"]));
    assert_eq!(started.told, "");
    installation.stop();
}

#[test]
fn an_include_file_names_configuration_and_options_of_the_jvm() {
    let installation = Installation::new(&plain_families(), "");
    fs::rename(installation.path("conf"), installation.path("elsewhere")).unwrap();
    let mut bare = installation.script(&[]);
    installation.assert_refused(&mut bare, 1, &["set CASSANDRA_CONF to its directory"]);
    let include = "JVM_OPTS=\" \\\n  -Xmx1G \\\n  -Dcassandra-pidfile=pid -DrackFile=x\"\n\
                   echo included\nCASSANDRA_CONF=`dirname $0`/../elsewhere\nfalse\n";
    installation.write("bin/cassandra.in.sh", include);
    // A script is also found by its name alone.
    let mut by_name = Command::new("env");
    by_name.arg("cassandra").current_dir(installation.directory.path());
    let path = std::env::join_paths([installation.path("bin"), "/usr/bin".into(), "/bin".into()]);
    by_name.env("PATH", path.unwrap()).env_remove("CASSANDRA_INCLUDE").env_remove("RUST_LOG");
    let started = installation.assert_starts(&mut by_name);
    assert!(started.told.contains("included"), "{}", started.told);
    installation.stop();
    let mut broken = installation.script(&["-p", "pid"]);
    broken.env("CASSANDRA_INCLUDE", installation.path("none.sh"));
    installation.assert_refused(&mut broken, 1, &["none.sh failed"]);
    let mut named = installation.script(&["-Dstorage-config=elsewhere", "-p", "pid"]);
    installation.write("in.sh", "CASSANDRA_CONF=/nowhere");
    installation.assert_starts(named.env("CASSANDRA_INCLUDE", "in.sh"));
}

#[test]
fn with_f_the_server_stays_and_logs_to_both() {
    let installation = Installation::new(&plain_families(), "");
    let pid_file = installation.path("pid");
    let pid_property = format!("-Dcassandra-pidfile={}", pid_file.display());
    let by_option: &[&str] = &["-f", "-p", pid_file.to_str().unwrap()];
    let by_property: &[&str] = &["-D", "cassandra-foreground=yes", &pid_property];
    for arguments in [by_option, by_property] {
        let command = installation.script(arguments);
        let mut server =
            Server::launch(installation.directory.path(), installation.address, command);
        assert_eq!(installation.pid(), Some(server.pid()));
        insert(installation.address);
        assert!(server.stop().success());
        assert!(!pid_file.exists(), "the file goes with the process");
        for log in [server.log(), installation.log()] {
            assert!(log.contains(" INFO [main] 20") && log.contains("SIGTERM: stopping"), "{log}");
        }
    }
    let help = installation.run(&mut installation.script(&["-h"]));
    let name = installation.path("bin/cassandra");
    let usage = format!("Usage: {} [-f] [-h] [-p pidfile] [-b]\n", name.display());
    assert_eq!((help.exit_code, help.printed), (0, usage));
}
