//! Who may log in.

use crate::config::java_properties::{self, JavaPropertiesError, MAX_FILE_BYTES};
use crate::config::properties::{PasswordMode, UnknownPasswordMode};
use crate::model::comparator::hex;
use crate::thrift::{Failure, Map, Text};
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tokio::task::JoinError;

/// The system property that names the password file.
const PASSWORDS: &str = "passwd.properties";
/// The system property that names the access file.
const ACCESS: &str = "access.properties";

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
    pub password_mode: Result<PasswordMode, UnknownPasswordMode>,
}

/// Why a login is refused. Displays as the text of 0.6, as far as clients see it.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The password mode is not one.
    #[error(transparent)]
    Mode(UnknownPasswordMode),
    /// A credential is missing.
    #[error("Authentication request was missing the required key '{0}'")]
    Missing(&'static str),
    /// No such user, or another password.
    #[error("Given password in password mode {mode} could not be validated for user {user}")]
    Password {
        /// How passwords are kept.
        mode: &'static str,
        /// The user as the client wrote it.
        user: String,
    },
    /// The user may not use the keyspace.
    #[error("User {user} could not be authorized to use keyspace {keyspace}")]
    Unauthorized {
        /// The user.
        user: String,
        /// The keyspace, which need not exist.
        keyspace: String,
    },
    /// Others of its address fail, and it waited too long for its turn.
    #[error("too many logins from this address fail: try again later")]
    TooManyFailed,
    /// No file was configured.
    #[error("logins are looked up in files, and no -D{0}=FILE names one")]
    NoFile(&'static str),
    /// The thread that reads the files ended early.
    #[error("a login was given up: {0}")]
    GivenUp(#[from] JoinError),
    /// A file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file cannot be understood.
    #[error("cannot understand {path}: {source}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: JavaPropertiesError,
    },
}

/// Name and password as a client shows them.
struct Credentials {
    user: String,
    password: String,
}

impl Authenticator {
    /// Whether data calls need a login before.
    pub fn requires_login(&self) -> bool {
        !matches!(self, Self::AllowAll)
    }
}

impl SimpleAuthenticator {
    /// Judges a login. Files are read on a thread that may block.
    pub(super) async fn login(
        &self,
        keyspace: &str,
        credentials: &Map<Text<'_>, Text<'_>>,
    ) -> Result<(), LoginError> {
        let owned = |(key, value): &(Text<'_>, Text<'_>)| (key.to_string(), value.to_string());
        let credentials: BTreeMap<String, String> = credentials.iter().map(owned).collect();
        let (simple, keyspace) = (self.clone(), keyspace.to_owned());
        tokio::task::spawn_blocking(move || simple.check(&keyspace, &credentials)).await?
    }

    /// Reasons for which every login would be refused now.
    pub fn faults(&self) -> Vec<LoginError> {
        let mode = self.password_mode.clone().err().map(LoginError::Mode);
        let passwords = read_properties(self.password_file.as_deref(), PASSWORDS).err();
        let access = read_properties(self.access_file.as_deref(), ACCESS).err();
        [mode, passwords, access].into_iter().flatten().collect()
    }

    /// Judges a login. Reads both files, and so blocks.
    pub fn check(
        &self,
        keyspace: &str,
        credentials: &BTreeMap<String, String>,
    ) -> Result<(), LoginError> {
        let mode = self.password_mode.clone().map_err(LoginError::Mode)?;
        let credential = |key| credentials.get(key).cloned().ok_or(LoginError::Missing(key));
        let credentials =
            Credentials { user: credential("username")?, password: credential("password")? };
        self.authenticate(mode, &credentials)?;
        self.authorize(keyspace, credentials.user)
    }

    fn authenticate(&self, mode: PasswordMode, shown: &Credentials) -> Result<(), LoginError> {
        let passwords = read_properties(self.password_file.as_deref(), PASSWORDS)?;
        let matches = passwords.get(&shown.user).is_some_and(|stored| match mode {
            PasswordMode::Plain => *stored == shown.password,
            PasswordMode::Md5 => {
                stored.eq_ignore_ascii_case(&hex(&Md5::digest(shown.password.as_bytes())))
            }
        });
        if matches {
            return Ok(());
        }
        Err(LoginError::Password { mode: mode.name(), user: shown.user.clone() })
    }

    fn authorize(&self, keyspace: &str, user: String) -> Result<(), LoginError> {
        let access = read_properties(self.access_file.as_deref(), ACCESS)?;
        let users = access.get(keyspace).map_or("", String::as_str);
        if users.split(',').any(|listed| listed == user) {
            return Ok(());
        }
        Err(LoginError::Unauthorized { user, keyspace: keyspace.to_owned() })
    }
}

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        let text = error.to_string();
        match error {
            LoginError::Mode(_)
            | LoginError::Missing(_)
            | LoginError::Password { .. }
            | LoginError::TooManyFailed => Self::Authentication(text),
            LoginError::Unauthorized { .. } => Self::Authorization(text),
            LoginError::NoFile(_)
            | LoginError::GivenUp(_)
            | LoginError::Unreadable { .. }
            | LoginError::Malformed { .. } => Self::Internal(text),
        }
    }
}

fn read_properties(
    path: Option<&Path>,
    property: &'static str,
) -> Result<BTreeMap<String, String>, LoginError> {
    let path = path.ok_or(LoginError::NoFile(property))?;
    let read = || {
        let mut bytes = Vec::new();
        // One byte more than is accepted shows that there are too many.
        File::open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes =
        read().map_err(|source| LoginError::Unreadable { path: path.to_owned(), source })?;
    java_properties::parse(&bytes)
        .map_err(|source| LoginError::Malformed { path: path.to_owned(), source })
}
