//! `alexandra passwd`: passwords of users, as hashes.

use super::offline::is_root;
use super::output::{self, Failure};
use crate::config::java_properties;
use crate::service::hash_password;
use std::fmt::Display;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Environment variable for the password of a login.
pub(super) const PASSWORD_VARIABLE: &str = "ALEXANDRA_PASSWORD";

/// Rights of a password file that is made: only its owner reads it.
const PRIVATE: u32 = 0o600;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The user
    user: String,

    /// The file of -Dpasswd.properties, in which the password is set; without it the line for that
    /// file is printed
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Reads a password, from standard input if that is no terminal, and sets or prints its hash.
pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments { user, file } = arguments;
    if user.is_empty() || user.contains(char::is_control) {
        return Err(Failure::new("a user has a name, on one line"));
    }
    let password = read_password().map_err(Failure::new)?;
    let hash = hash_password(&password).map_err(Failure::new)?;
    let line = format!("{}={hash}\n", escaped(user));
    let Some(file) = file else {
        output::text(&line);
        return Ok(output::finish_telling(ExitCode::SUCCESS, output::FAILED));
    };
    let failed = |error: &dyn Display| Failure::new(format_args!("{}: {error}", file.display()));
    let old = match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        found => java_properties::decode(&found.map_err(|error| failed(&error))?),
    };
    let new = replaced(&old, user, &line).map_err(|error| failed(&error))?;
    // A link stays one.
    let target = fs::canonicalize(file);
    let is_new = target.is_err();
    write_atomically(target.as_ref().unwrap_or(file), &new).map_err(|error| failed(&error))?;
    if is_new && is_root() {
        let file = file.display();
        complain!("note: {file} is new, and root's alone: chown it to the user of the server");
    }
    say!("{user} has a new password, which counts from the next login");
    Ok(output::finish(ExitCode::SUCCESS))
}

fn read_password() -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot read a password: {error}");
    let password = if io::stdin().is_terminal() {
        let password = rpassword::prompt_password("Password: ").map_err(failed)?;
        if rpassword::prompt_password("Again: ").map_err(failed)? != password {
            return Err("the two passwords differ: nothing was changed".to_owned());
        }
        password
    } else {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map_err(failed)?;
        line.trim_end_matches(['\r', '\n']).to_owned()
    };
    if password.is_empty() { Err("there is no password".to_owned()) } else { Ok(password) }
}

/// The error for a login without a password.
pub(super) fn no_password() -> String {
    format!("there is no password: give it as {PASSWORD_VARIABLE} or by --password")
}

/// The password of a login: as given, else from the environment, where other users of the machine
/// do not see it, else asked for.
pub(super) fn password_of_login(given: Option<String>) -> Result<String, Failure> {
    let stored = given.or_else(|| std::env::var(PASSWORD_VARIABLE).ok());
    if let Some(password) = stored {
        return Ok(password);
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::new(no_password()));
    }
    rpassword::prompt_password("Password: ")
        .map_err(|error| Failure::new(format_args!("cannot read a password: {error}")))
}

/// A name as a key of Java properties.
fn escaped(name: &str) -> String {
    let mut key = String::new();
    for character in name.chars() {
        if matches!(character, ' ' | '=' | ':' | '#' | '!' | '\\') {
            key.push('\\');
        }
        key.push(character);
    }
    key
}

/// The file with the line of one user replaced or added. All other lines stay as they are.
fn replaced(file: &str, user: &str, line: &str) -> Result<String, String> {
    let mut new = String::new();
    let mut is_set = false;
    for old in file.split_inclusive('\n') {
        let content = old.trim_end_matches(['\r', '\n']);
        if content.ends_with('\\') {
            return Err("a line goes on on the next one: join them first".to_owned());
        }
        let entry = java_properties::parse(content.as_bytes()).map_err(|it| it.to_string())?;
        if entry.contains_key(user) {
            if !is_set {
                new.push_str(line);
            }
            is_set = true;
        } else {
            new.push_str(content);
            new.push('\n');
        }
    }
    if !is_set {
        new.push_str(line);
    }
    Ok(new)
}

/// Replaces a file, which keeps its owner and rights. A server reads the old or the new one.
fn write_atomically(path: &Path, content: &str) -> io::Result<()> {
    let before = fs::metadata(path).ok();
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    // Left by a run that was killed.
    let _ = fs::remove_file(&new);
    let mut file = fs::File::create_new(&new)?;
    let mode = before.as_ref().map_or(PRIVATE, |it| it.mode());
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    if let Some(before) = before {
        chown(&new, Some(before.uid()), Some(before.gid()))?;
    }
    file.write_all(content.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_user_is_replaced_and_others_stay() {
        let file = "# users\njsmith=old\n\nElvis\\ Presley : older\njsmith=twice";
        let line = format!("{}=new\n", escaped("Elvis Presley"));
        assert_eq!(
            replaced(file, "Elvis Presley", &line).unwrap(),
            "# users\njsmith=old\n\nElvis\\ Presley=new\njsmith=twice\n"
        );
        let both = replaced(file, "jsmith", "jsmith=new\n").unwrap();
        assert_eq!(both, "# users\njsmith=new\n\nElvis\\ Presley : older\n");
        assert_eq!(replaced("", "a", "a=b\n").unwrap(), "a=b\n");
        assert!(replaced("a=b\\\nc", "a", "a=b\n").is_err());
    }
}
