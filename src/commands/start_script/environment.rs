//! The environment of the start script: `CASSANDRA_CONF`, `JVM_OPTS`, and the include file that
//! sets them.

use super::super::output::{FAILED, Failure};
use super::super::serve;
use crate::config::{FILE_NAME, Properties};
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directories of the include file, beside the home directory and that of the script.
const SHARED: [&str; 3] = ["/usr/share/cassandra", "/usr/local/share/cassandra", "/opt/cassandra"];

/// Name of the include file.
const INCLUDE: &str = "cassandra.in.sh";

/// Directory of the configuration in packages of the original.
const PACKAGED: &str = "/etc/cassandra";

/// Runs the include file and prints the variables that count here.
const SOURCE: &str = r#". "$1" >&2; printf '%s\n%s' "$CASSANDRA_CONF" "$JVM_OPTS""#;

/// Adds the properties of the environment to the arguments, before those of the command line,
/// which win. Returns the path of the configuration, which the arguments name from here on.
pub(super) fn complete(
    arguments: &mut serve::Arguments,
    script: &OsStr,
) -> Result<PathBuf, Failure> {
    let script = locate(Path::new(script));
    let variable = |name| env::var(name).unwrap_or_default();
    let (directory, jvm_options) = match find_include(&script) {
        Some(include) => source(&include, &script)?,
        None => (variable("CASSANDRA_CONF"), variable("JVM_OPTS")),
    };
    let words = jvm_options.split_whitespace().filter(|word| word.starts_with("-D"));
    let mut properties: Vec<String> = words.map(str::to_owned).collect();
    if !directory.is_empty() {
        properties.push(format!("storage-config={directory}"));
    }
    properties.append(&mut arguments.properties);
    let named = arguments.config.take();
    let named = named.or_else(|| Properties::parse(&properties).config_directory());
    let configuration = named.map_or_else(|| find_configuration(&script), Ok)?;
    arguments.properties = properties;
    arguments.config = Some(configuration.clone());
    Ok(configuration)
}

/// The path of a script that was named without one.
fn locate(script: &Path) -> PathBuf {
    let directories = env::var_os("PATH").unwrap_or_default();
    // Joined to a directory, a path with a directory of its own would be another one.
    let is_bare = script.parent() == Some(Path::new(""));
    env::split_paths(&directories)
        .filter(|_| is_bare)
        .map(|directory| directory.join(script))
        .find(|path| path.is_file())
        .unwrap_or_else(|| script.to_owned())
}

fn directory_of(script: &Path) -> PathBuf {
    Path::new(".").join(script.parent().unwrap_or(Path::new("")))
}

fn find_include(script: &Path) -> Option<PathBuf> {
    if let Some(named) = env::var_os("CASSANDRA_INCLUDE").filter(|path| !path.is_empty()) {
        return Some(named.into());
    }
    let home = env::home_dir().unwrap_or_default().join(format!(".{INCLUDE}"));
    let shared = SHARED.map(|directory| Path::new(directory).join(INCLUDE));
    let mut places = shared.into_iter().chain([home, directory_of(script).join(INCLUDE)]);
    places.find(|path| path.is_file())
}

/// Values of `CASSANDRA_CONF` and `JVM_OPTS` after an include file.
fn source(include: &Path, script: &Path) -> Result<(String, String), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        let include = include.display();
        let text = format!("the include file {include} failed: {error}. Correct it, or remove it");
        Failure::with(FAILED, text)
    };
    let mut shell = Command::new("sh");
    // A path without a directory would be searched for in PATH.
    shell.args(["-c", SOURCE]).arg(script).arg(Path::new(".").join(include));
    // Its messages are for the terminal.
    let output = shell.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| failed(&error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.split_once('\n').filter(|_| output.status.success()) {
        Some((directory, options)) => Ok((directory.to_owned(), options.to_owned())),
        None => Err(failed(&output.status)),
    }
}

/// The directory of the configuration where neither a property nor the environment names it.
fn find_configuration(script: &Path) -> Result<PathBuf, Failure> {
    let beside = directory_of(script).join("../conf");
    let places = [beside.as_path(), Path::new(PACKAGED)];
    let found = places.iter().find(|directory| directory.join(FILE_NAME).is_file());
    found.map(|directory| directory.to_path_buf()).ok_or_else(|| {
        Failure::with(
            FAILED,
            format_args!(
                "no {FILE_NAME} in {} or {PACKAGED}: set CASSANDRA_CONF to its directory, or use \
                 -Dstorage-config=DIR",
                beside.display()
            ),
        )
    })
}
