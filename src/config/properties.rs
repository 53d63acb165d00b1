//! The `-Dname=value` options of old start scripts.
//!
//! The original is configured by JVM system properties beside its file. Start scripts go on
//! passing them, so they are read here, each by a typed accessor.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Where the property-file snitch looks when no `rackFile` is given.
pub const DEFAULT_RACK_FILE: &str = "/etc/cassandra/rack.properties";

const STORAGE_CONFIG: &str = "storage-config";
const FOREGROUND: &str = "cassandra-foreground";
const PID_FILE: &str = "cassandra-pidfile";
const DYNAMIC_SNITCH: &str = "cassandra.dynamic_snitch";
const HINT_THROTTLE: &str = "hinted_handoff_throttle";
const PREHEAT_KEY_CACHE: &str = "compaction_preheat_key_cache";
const COMPACTION_PRIORITY: &str = "cassandra.compaction.priority";
const PASSWORD_FILE: &str = "passwd.properties";
const ACCESS_FILE: &str = "access.properties";
const PASSWORD_MODE: &str = "passwd.mode";
const RACK_FILE: &str = "rackFile";
const REPLACE_TOKEN: &str = "cassandra.replace_token";
const ACCEPT_DATA_LOSS: &str = "cassandra.accept_data_loss";
const JMX_PORT: &str = "com.sun.management.jmxremote.port";

/// The properties of a command line.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Properties {
    values: BTreeMap<String, String>,
}

/// A property whose value has not the form that it must have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("-D{name}={value}: {allowed} expected")]
pub struct InvalidProperty {
    /// The name of the property.
    pub name: &'static str,
    /// The value as given.
    pub value: String,
    /// What it may be.
    pub allowed: &'static str,
}

/// How passwords stand in the password file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum PasswordMode {
    /// As they are.
    #[default]
    Plain,
    /// As the hexadecimal MD5 of their UTF-8.
    Md5,
}

/// A value of `passwd.mode` that is none. The original finds out at each login, not at start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "The requested password check mode '{0}' is not a valid mode.  Possible values are 'PLAIN', \
     'MD5', or leave it unspecified."
)]
pub struct UnknownPasswordMode(pub String);

impl PasswordMode {
    /// The mode of an exact name.
    pub fn parse(name: &str) -> Result<Self, UnknownPasswordMode> {
        match name {
            "PLAIN" => Ok(Self::Plain),
            "MD5" => Ok(Self::Md5),
            other => Err(UnknownPasswordMode(other.to_owned())),
        }
    }

    /// The name, as the configuration and the texts for clients have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::Md5 => "MD5",
        }
    }
}

impl Properties {
    /// Reads what follows `-D` in each option: `name=value`, or a name alone for an empty value.
    /// A leading `-D` is accepted. The last of equal names wins, as with the JVM.
    pub fn parse<S: AsRef<str>>(options: impl IntoIterator<Item = S>) -> Self {
        let mut values = BTreeMap::new();
        for option in options {
            let option = option.as_ref();
            let option = option.strip_prefix("-D").unwrap_or(option);
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            values.insert(name.to_owned(), value.to_owned());
        }
        Self { values }
    }

    /// The raw value of a property.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// `cassandra.replace_token`: the token of the dead node whose place a new one takes, as later
    /// versions of the original had it.
    pub fn replace_token(&self) -> Option<&str> {
        self.get(REPLACE_TOKEN).filter(|token| !token.is_empty())
    }

    /// `cassandra.accept_data_loss`: whether a node starts without data that it should have.
    pub fn accept_data_loss(&self) -> bool {
        self.is_true(ACCEPT_DATA_LOSS)
    }

    /// The names that mean nothing here. Those of the JVM itself are left out: every old start
    /// script has some.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        const KNOWN: [&str; 14] = [
            REPLACE_TOKEN,
            ACCEPT_DATA_LOSS,
            STORAGE_CONFIG,
            FOREGROUND,
            PID_FILE,
            DYNAMIC_SNITCH,
            HINT_THROTTLE,
            PREHEAT_KEY_CACHE,
            COMPACTION_PRIORITY,
            PASSWORD_FILE,
            ACCESS_FILE,
            PASSWORD_MODE,
            RACK_FILE,
            JMX_PORT,
        ];
        const OF_THE_JVM: [&str; 5] = ["java.", "sun.", "com.sun.", "log4j.", "user."];
        let names = self.values.keys().map(String::as_str);
        names
            .filter(|name| !KNOWN.contains(name))
            .filter(|name| !OF_THE_JVM.iter().any(|prefix| name.starts_with(prefix)))
    }

    /// `storage-config`: the directory that holds `storage-conf.xml`.
    pub fn config_directory(&self) -> Option<PathBuf> {
        self.path(STORAGE_CONFIG)
    }

    /// `cassandra-foreground`: whether the process stays on its terminal. Any value counts.
    pub fn foreground(&self) -> bool {
        self.get(FOREGROUND).is_some()
    }

    /// `cassandra-pidfile`: the file to remove at exit.
    pub fn pid_file(&self) -> Option<PathBuf> {
        self.path(PID_FILE)
    }

    /// `cassandra.dynamic_snitch`: whether snitches are wrapped in the one that looks at latency.
    pub fn dynamic_snitch(&self) -> bool {
        self.is_true(DYNAMIC_SNITCH)
    }

    /// `hinted_handoff_throttle`: the pause between hinted rows delivered, in milliseconds.
    pub fn hinted_handoff_throttle(&self) -> Result<Option<Duration>, InvalidProperty> {
        let pause: Option<u64> =
            self.number(HINT_THROTTLE, "a number of milliseconds", |_| true)?;
        Ok(pause.map(Duration::from_millis))
    }

    /// `compaction_preheat_key_cache`: whether keys are cached again after a compaction. Off when
    /// absent, as from 0.6.12 on.
    pub fn compaction_preheats_key_cache(&self) -> bool {
        self.is_true(PREHEAT_KEY_CACHE)
    }

    /// `cassandra.compaction.priority`: 1 (least) to 10, the scale of Java's threads.
    pub fn compaction_priority(&self) -> Result<Option<u8>, InvalidProperty> {
        self.number(COMPACTION_PRIORITY, "a number from 1 to 10", |n| (1..=10).contains(n))
    }

    /// `passwd.properties`: the password file of `SimpleAuthenticator`.
    pub fn password_file(&self) -> Option<PathBuf> {
        self.path(PASSWORD_FILE)
    }

    /// `access.properties`: the access file of `SimpleAuthenticator`.
    pub fn access_file(&self) -> Option<PathBuf> {
        self.path(ACCESS_FILE)
    }

    /// `passwd.mode`: how passwords stand in the password file; plain when absent.
    pub fn password_mode(&self) -> Result<PasswordMode, UnknownPasswordMode> {
        self.get(PASSWORD_MODE).map_or(Ok(PasswordMode::default()), PasswordMode::parse)
    }

    /// `rackFile`: the file of the property-file snitch, by default [`DEFAULT_RACK_FILE`].
    pub fn rack_file(&self) -> PathBuf {
        self.path(RACK_FILE).unwrap_or_else(|| PathBuf::from(DEFAULT_RACK_FILE))
    }

    /// `com.sun.management.jmxremote.port`: where operators' tools expect the admin side.
    pub fn jmx_port(&self) -> Result<Option<u16>, InvalidProperty> {
        self.number(JMX_PORT, "a port", |_| true)
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    fn number<T: std::str::FromStr>(
        &self,
        name: &'static str,
        allowed: &'static str,
        is_allowed: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, InvalidProperty> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.parse().ok().filter(is_allowed) {
            Some(number) => Ok(Some(number)),
            None => Err(InvalidProperty { name, value: value.to_owned(), allowed }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_command_line() {
        let properties = Properties::parse([
            "-Dstorage-config=/etc/cassandra",
            "cassandra-foreground",
            "-Dcassandra-pidfile=/var/run/c.pid",
            "-Dcassandra.dynamic_snitch=TRUE",
            "hinted_handoff_throttle=50",
            "cassandra.compaction.priority=1",
            "passwd.properties=conf/passwd.properties",
            "passwd.mode=MD5",
            "com.sun.management.jmxremote.port=8081",
            "com.sun.management.jmxremote.ssl=false",
            "log4j.configuration=x=y",
            "cassandra.typo=1",
        ]);
        assert_eq!(properties.config_directory(), Some("/etc/cassandra".into()));
        assert!(properties.foreground());
        assert_eq!(properties.pid_file(), Some("/var/run/c.pid".into()));
        assert!(properties.dynamic_snitch());
        assert!(!properties.compaction_preheats_key_cache());
        let pause = Some(Duration::from_millis(50));
        assert_eq!(properties.hinted_handoff_throttle(), Ok(pause));
        assert_eq!(properties.compaction_priority(), Ok(Some(1)));
        assert_eq!(properties.password_file(), Some("conf/passwd.properties".into()));
        assert_eq!(properties.access_file(), None);
        assert_eq!(properties.password_mode(), Ok(PasswordMode::Md5));
        assert_eq!(properties.rack_file(), PathBuf::from(DEFAULT_RACK_FILE));
        assert_eq!(properties.jmx_port(), Ok(Some(8081)));
        assert_eq!(properties.get("log4j.configuration"), Some("x=y"));
        assert_eq!(properties.unknown().collect::<Vec<_>>(), ["cassandra.typo"]);
    }

    #[test]
    fn nothing_given_is_the_default() {
        let none = Properties::parse::<&str>([]);
        assert_eq!(none.password_mode(), Ok(PasswordMode::Plain));
        assert_eq!(none.hinted_handoff_throttle(), Ok(None));
        assert!(!none.foreground() && !none.dynamic_snitch());
        assert_eq!(none.config_directory(), None);
    }

    #[test]
    fn bad_values_say_what_is_expected() {
        let bad = Properties::parse(["cassandra.compaction.priority=11", "passwd.mode=md5"]);
        assert_eq!(
            bad.compaction_priority().unwrap_err().to_string(),
            "-Dcassandra.compaction.priority=11: a number from 1 to 10 expected"
        );
        assert_eq!(
            bad.password_mode().unwrap_err().to_string(),
            "The requested password check mode 'md5' is not a valid mode.  \
             Possible values are 'PLAIN', 'MD5', or leave it unspecified."
        );
    }
}
