//! Who may log in.

use super::{Service, ServiceError, Session};
use crate::config::ConfigError;
use crate::config::java_properties::{self, MAX_FILE_BYTES};
use crate::config::properties::PasswordMode;
use crate::model::comparator::hex;
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The system property that names the password file.
const PASSWORDS: &str = "passwd.properties";
/// The system property that names the access file.
const ACCESS: &str = "access.properties";

/// The most characters of a client's text in a log line.
const LONGEST_SHOWN: usize = 200;

/// How a login is judged.
#[derive(Debug, Clone)]
pub enum Authenticator {
    /// Every login succeeds, and none is needed.
    AllowAll,
    /// Logins are looked up in files, and data calls need one.
    Simple(SimpleAuthenticator),
}

/// Users with their passwords, and keyspaces with their users, in two files of Java properties
/// that are read at every login.
#[derive(Debug, Clone)]
pub struct SimpleAuthenticator {
    /// `user=password`; none was configured if absent.
    pub password_file: Option<PathBuf>,
    /// `keyspace=user,user`; none was configured if absent.
    pub access_file: Option<PathBuf>,
    /// How passwords stand in their file. An unknown mode refuses every login, as in 0.6.
    pub password_mode: Result<PasswordMode, ConfigError>,
}

impl Authenticator {
    /// Whether data calls need a login before.
    pub fn requires_login(&self) -> bool {
        !matches!(self, Self::AllowAll)
    }
}

impl Service {
    /// Marks the connection as logged in. Nothing ever takes the mark away, and it is good for all
    /// keyspaces, as in 0.6. A login that fails is logged, and the next one of its address waits.
    pub async fn login(
        &self,
        session: &Session,
        keyspace: &str,
        credentials: BTreeMap<String, String>,
    ) -> Result<(), ServiceError> {
        if let Authenticator::Simple(simple) = &self.authenticator {
            let Some(turn) = self.login_turns.wait(session.client).await else {
                let why = "too many logins from this address fail: try again later";
                return Err(ServiceError::Unauthenticated(why.to_owned()));
            };
            let (simple, asked) = (simple.clone(), keyspace.to_owned());
            // The files are read on a thread that may block.
            let checked =
                tokio::task::spawn_blocking(move || simple.check(&asked, &credentials)).await;
            let checked = checked.unwrap_or_else(|error| {
                Err(ServiceError::Internal(format!("a login was given up: {error}")))
            });
            if let Err(error) = checked {
                let (client, keyspace) = (session.client, shown(keyspace));
                let why = shown(error.text());
                log::warn!("a login from {client} for keyspace {keyspace} failed: {why}");
                turn.end_late();
                return Err(error);
            }
            turn.end();
        }
        session.logged_in.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// The beginning of a text that a client chose, on one line.
fn shown(text: &str) -> String {
    text.chars().take(LONGEST_SHOWN).flat_map(char::escape_debug).collect()
}

impl SimpleAuthenticator {
    /// Reasons for which every login would be refused now.
    pub fn faults(&self) -> Vec<String> {
        let mode = self.password_mode.as_ref().err().map(ToString::to_string);
        let passwords = read_properties(self.password_file.as_deref(), PASSWORDS).err();
        let access = read_properties(self.access_file.as_deref(), ACCESS).err();
        [mode, passwords, access].into_iter().flatten().collect()
    }

    /// Judges a login. Reads both files, and so blocks.
    pub fn check(
        &self,
        keyspace: &str,
        credentials: &BTreeMap<String, String>,
    ) -> Result<(), ServiceError> {
        let refused = ServiceError::Unauthenticated;
        let mode = self.password_mode.as_ref().map_err(|error| refused(error.to_string()))?;
        let credential = |key| {
            let missing = || format!("Authentication request was missing the required key '{key}'");
            credentials.get(key).ok_or_else(|| refused(missing()))
        };
        let (user, password) = (credential("username")?, credential("password")?);
        if !self.has_password(*mode, user, password)? {
            return Err(refused(format!(
                "Given password in password mode {} could not be validated for user {user}",
                mode.name()
            )));
        }
        let access = read_properties(self.access_file.as_deref(), ACCESS);
        let access = access.map_err(ServiceError::Internal)?;
        let users = access.get(keyspace).map_or("", String::as_str);
        if users.split(',').any(|listed| listed == user) {
            return Ok(());
        }
        Err(ServiceError::Unauthorized(format!(
            "User {user} could not be authorized to use keyspace {keyspace}"
        )))
    }

    fn has_password(
        &self,
        mode: PasswordMode,
        user: &str,
        shown: &str,
    ) -> Result<bool, ServiceError> {
        let passwords = read_properties(self.password_file.as_deref(), PASSWORDS);
        let passwords = passwords.map_err(ServiceError::Internal)?;
        Ok(passwords.get(user).is_some_and(|stored| match mode {
            PasswordMode::Plain => stored == shown,
            PasswordMode::Md5 => stored.eq_ignore_ascii_case(&hex(&Md5::digest(shown.as_bytes()))),
        }))
    }
}

/// The entries of a file, or why they cannot be read.
fn read_properties(
    path: Option<&Path>,
    property: &'static str,
) -> Result<BTreeMap<String, String>, String> {
    let path = path.ok_or_else(|| {
        format!("logins are looked up in files, and no -D{property}=FILE names one")
    })?;
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // One byte more than is accepted shows that there are too many.
        File::open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    java_properties::parse(&bytes)
        .map_err(|error| format!("cannot understand {}: {error}", path.display()))
}
