//! `alexandra serve`: runs a node until a signal stops it.

use super::check_config::refuse;
use super::log_file::{LogPlan, NamedFile};
use super::offline::{check_user_of_server, components};
use super::output::Failure;
use crate::assembly;
use crate::base::audit;
use crate::base::log_levels;
use crate::base::machine::{self, ConnectionKind};
use crate::config::{ConfigErrors, Loaded, Loader, Note, NoteLevel, Properties, Settings};
use crate::model::comparator::ComparatorRegistry;
use crate::node::{Node, NodeError, NodeOptions};
use sd_notify::NotifyState;
use std::fmt::Display;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code for whatever the configuration is not to blame for.
pub(super) const START_FAILED: u8 = 3;

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct Arguments {
    /// A storage-conf.xml, or the directory that holds it; without it the built-in configuration
    #[arg(long, value_name = "FILE_OR_DIR")]
    pub(super) config: Option<PathBuf>,

    /// A system property as of old, such as -Dstorage-config=DIR or -Dpasswd.properties=FILE
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    pub(super) properties: Vec<String>,

    /// Stays in the foreground, as it always does unless the program is called `cassandra`; lines
    /// of the log go to standard error also if there is a LogFile
    #[arg(short = 'f')]
    pub(super) foreground: bool,

    /// Joins the ring as with AutoBootstrap, as the start script of 0.4 has it
    #[arg(short = 'b', hide = true)]
    bootstrap: bool,

    /// Is started to leave its terminal
    #[arg(long, hide = true)]
    pub(super) detached: bool,

    /// Writes the process id to this file and removes it at the end
    #[arg(short = 'p', value_name = "PIDFILE")]
    pid_file: Option<PathBuf>,

    /// Starts although a part of the commit log is damaged, without what is lost
    #[arg(long)]
    accept_commitlog_loss: bool,

    /// Stops when standard input ends, as it does when whoever holds its other end is gone
    #[arg(long, hide = true)]
    until_input_ends: bool,
}

/// Serves until the end.
pub(super) fn run_here(arguments: &Arguments) -> Result<ExitCode, Failure> {
    run(arguments, LogPlan::usual(arguments.foreground), || {})
}

/// Serves until the end, and calls the function when the node accepts calls.
pub(super) fn run(
    arguments: &Arguments,
    log: LogPlan,
    when_ready: impl FnOnce(),
) -> Result<ExitCode, Failure> {
    let properties = Properties::parse(&arguments.properties);
    let loaded = load(arguments, &properties);
    if let Ok(loaded) = &loaded {
        // Before there is a log file of root.
        check_user_of_server(&loaded.settings)
            .map_err(|failure| Failure::with(START_FAILED, failure.text))?;
    }
    let terminal = log.start(loaded.as_ref().ok().and_then(log_file))?;
    let when_ready = || {
        terminal.leave();
        when_ready();
    };
    Ok(run_with(arguments, properties, loaded, when_ready))
}

/// The log file that a configuration names.
fn log_file(loaded: &Loaded) -> Option<NamedFile> {
    let file = loaded.settings.admin.log_file.clone()?;
    Some(NamedFile { file, setting: format!("LogFile in {}", loaded.settings.origin) })
}

/// Serves with what a configuration says. Logging has begun.
fn run_with(
    arguments: &Arguments,
    properties: Properties,
    loaded: Result<Loaded, ConfigErrors>,
    when_ready: impl FnOnce(),
) -> ExitCode {
    for unknown in properties.unknown() {
        log::warn!("the system property {unknown} has no meaning here");
    }
    let configuration = configuration(arguments, &properties);
    if configuration.is_none() {
        log::info!("no configuration was named: the built-in one serves, data below ./data");
    }
    let mut loaded = match loaded {
        Ok(loaded) => loaded,
        Err(errors) => {
            log_notes(&errors.notes);
            for error in errors.by_line() {
                log::error!("{}", error.log_line());
            }
            return refuse(&errors);
        }
    };
    log_notes(&loaded.notes);
    if let Some(files) = machine::raise_file_limit() {
        check_file_limit(files, loaded.settings.thrift.max_connections.into());
    }
    loaded.settings.auto_bootstrap |= arguments.bootstrap || properties.bootstrap();
    if let Err(why) = log_levels::at_start(loaded.settings.admin.log_levels.as_deref()) {
        log::error!("LogLevels: {why}");
    }
    let options = NodeOptions {
        configuration,
        accept_commitlog_loss: arguments.accept_commitlog_loss,
        properties,
        seed: fastrand::u64(..),
    };
    let served = serve(loaded.settings, &options, arguments, when_ready);
    let Err(failure) = served else { return ExitCode::SUCCESS };
    log::error!("{}", failure.text);
    complain!("Exception encountered during startup.");
    ExitCode::from(failure.exit_code)
}

/// Warns if fewer files may be open than the connections that are allowed and storage may need.
fn check_file_limit(files: u64, max_connections: u64) {
    let reserved = ConnectionKind::Client.reserved_files(files);
    if files - reserved < max_connections {
        log::warn!(
            "{files} files may be open at a time, of which {reserved} are kept for data, other \
             nodes and operators: fewer clients can connect than ThriftMaxConnections allows \
             ({max_connections}). Raise `ulimit -n` or LimitNOFILE to {}, or lower \
             ThriftMaxConnections",
            max_connections + ConnectionKind::Client.reserved_files(u64::MAX)
        );
    }
}

/// Log lines go to standard error; `RUST_LOG` says otherwise which.
pub(super) fn start_logging(level: &str) {
    log_levels::start(env_logger::Builder::new(), level);
}

/// The file of the settings, or its directory; `None` for the built-in configuration.
fn configuration(arguments: &Arguments, properties: &Properties) -> Option<PathBuf> {
    arguments.config.clone().or_else(|| properties.config_directory())
}

fn load(arguments: &Arguments, properties: &Properties) -> Result<Loaded, ConfigErrors> {
    let comparators = ComparatorRegistry::default();
    let path = configuration(arguments, properties);
    // Without its right form a start of the node refuses it.
    let jmx_port = properties.jmx_port().unwrap_or_default();
    Loader { jmx_port, ..Loader::for_server(&comparators) }.load(path.as_deref())
}

fn log_notes(notes: &[Note]) {
    for note in notes {
        match note.level {
            NoteLevel::Info => log::info!("{note}"),
            NoteLevel::Warning => log::warn!("{note}"),
        }
    }
}

/// The runtime cannot be started.
fn no_runtime(error: impl Display) -> Failure {
    Failure::with(START_FAILED, format_args!("the runtime cannot be started: {error}"))
}

fn serve(
    settings: Settings,
    options: &NodeOptions,
    arguments: &Arguments,
    when_ready: impl FnOnce(),
) -> Result<(), Failure> {
    let pid_file = arguments.pid_file.clone().or_else(|| options.properties.pid_file());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_runtime)?;
    let stop = CancellationToken::new();
    runtime.block_on(async {
        // Before anything that takes time, so that an early signal ends the start in order.
        let has_file = arguments.detached || pid_file.is_some();
        let is_managed = has_file || has_manager() || !has_terminal();
        let signals = stop_on_signals(stop.clone(), is_managed).map_err(no_runtime)?;
        if arguments.until_input_ends {
            stop_with_input(stop.clone());
        }
        let _pid_file = pid_file.map(PidFile::claim).transpose()?;
        let failed = |error: NodeError| Failure::with(error.exit_code(), error);
        let mut node = assembly::start(settings, options, components()).map_err(failed)?;
        // Those of a node that is not a member yet are about the file that it has just read.
        let reloading = reload_on_hangup(&node, is_managed).map_err(no_runtime)?;
        let joined = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            joined = node.join() => Some(joined),
        };
        match joined {
            Some(Ok(())) => {
                announce(&node);
                tell_manager(NotifyState::Ready);
                when_ready();
            }
            // It is taken down in order all the same.
            Some(Err(_)) | None => stop.cancel(),
        }
        let served = node.run(stop).await;
        signals.abort();
        reloading.abort();
        joined.unwrap_or(Ok(())).and(served).map_err(failed)
    })
}

/// Tells systemd, if it waits for that (`Type=notify`).
fn tell_manager(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        log::warn!("cannot notify the service manager: {error}");
    }
}

/// One line that says where clients are served; scripts wait for it.
fn announce(node: &Node) {
    let version = env!("CARGO_PKG_VERSION");
    let thrift = node.thrift_address();
    match node.admin_address() {
        Some(admin) => say!(
            "Alexandra {version} listening for Thrift clients on {thrift}, for nodetool on {admin}"
        ),
        None => say!("Alexandra {version} listening for Thrift clients on {thrift}"),
    }
}

fn stop_on_signals(
    stop: CancellationToken,
    is_managed: bool,
) -> io::Result<tokio::task::JoinHandle<()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Under nohup the server outlives its terminal.
    let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup())).transpose()?;
    // One that others manage reads its configuration again.
    let hangup = hangup.filter(|_| !is_managed);
    Ok(tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            () = hung_up(hangup) => "SIGHUP",
        };
        log::info!("{name}: stopping");
        tell_manager(NotifyState::Stopping);
        stop.cancel();
    }))
}

/// Whether systemd or its like has started the server, and waits for its word.
fn has_manager() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Whether a terminal can hang the server up.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Reads the configuration again at each SIGHUP, if the server is managed by others and not by a
/// terminal.
fn reload_on_hangup(node: &Node, is_managed: bool) -> io::Result<tokio::task::JoinHandle<()>> {
    let (reload, mut hangup) = (node.reload(), signal(SignalKind::hangup())?);
    Ok(tokio::spawn(async move {
        while is_managed && hangup.recv().await.is_some() {
            log::info!("SIGHUP: reading the configuration again");
            let reload = Arc::clone(&reload);
            let reloaded = tokio::task::spawn_blocking(move || reload.run()).await;
            // Other lines tell what has changed, or why it failed.
            let outcome = if let Ok(Ok(_)) = reloaded { "done" } else { "failed" };
            log::info!(target: audit::TARGET, "reload by SIGHUP: {outcome}");
        }
    }))
}

/// Stops when standard input ends. What stands in it is of no interest.
fn stop_with_input(stop: CancellationToken) {
    // It ends with the process.
    std::thread::spawn(move || {
        let ended = io::copy(&mut io::stdin().lock(), &mut io::sink());
        if let Err(error) = ended {
            log::warn!("cannot read standard input: {error}");
        }
        log::info!("whoever has started this node is gone: stopping");
        stop.cancel();
    });
}

/// Whether the server was started with SIGHUP ignored.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let hangup = 1 << (SignalKind::hangup().as_raw_value() - 1);
    ignored.is_some_and(|mask| mask & hangup != 0)
}

async fn hung_up(hangup: Option<Signal>) {
    match hangup {
        Some(mut hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether a process is a server of the original.
fn is_original(process: &str) -> bool {
    let command = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command).contains("CassandraDaemon")
}

/// The file with the process id, which is locked until the process ends; removed then.
#[derive(Debug)]
struct PidFile {
    path: PathBuf,
    _lock: File,
}

impl PidFile {
    /// Writes the file, unless a running server has it.
    fn claim(path: PathBuf) -> Result<Self, Failure> {
        let failed = |error: &dyn Display| {
            let text = format!("cannot write the process id to {}: {error}", path.display());
            Failure::with(START_FAILED, text)
        };
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let mut file = open.map_err(|error| failed(&error))?;
        let noted = std::fs::read_to_string(&path).unwrap_or_default();
        let running = noted.trim();
        // The original locks nothing. Where files cannot be locked ours is not seen either.
        let is_locked = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if is_locked || is_original(running) {
            return Err(failed(&format_args!(
                "it is that of a running server, process {running}. Stop that one first, or name \
                 another file with -p"
            )));
        }
        let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(|error| failed(&error))?;
        Ok(Self { path, _lock: file })
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            log::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}
