//! The `-Dname=value` options of old start scripts.
//!
//! The original is configured by JVM system properties beside its file. Start scripts go on
//! passing them, so they are read here, each by a typed accessor.

use super::error::ConfigError;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// File of the property-file snitch without `rackFile`.
pub const DEFAULT_RACK_FILE: &str = "/etc/cassandra/rack.properties";

/// All names that mean something here.
const KNOWN: [&str; 15] = [
    "storage-config",
    "cassandra-foreground",
    "cassandra-pidfile",
    "cassandra.dynamic_snitch",
    "hinted_handoff_throttle",
    "compaction_preheat_key_cache",
    "cassandra.compaction.priority",
    "passwd.properties",
    "access.properties",
    "passwd.mode",
    "rackFile",
    "cassandra.replace_token",
    "cassandra.accept_data_loss",
    "com.sun.management.jmxremote.port",
    "bootstrap",
];

/// The properties of a command line.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Properties {
    values: BTreeMap<String, String>,
}

/// Form of passwords in the password file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum PasswordMode {
    /// As they are.
    #[default]
    Plain,
    /// As the hexadecimal MD5 of their UTF-8.
    Md5,
}

impl PasswordMode {
    /// The mode of an exact name. The original finds out at each login, not at start, that it is
    /// none.
    pub fn parse(name: &str) -> Result<Self, ConfigError> {
        match name {
            "PLAIN" => Ok(Self::Plain),
            "MD5" => Ok(Self::Md5),
            other => Err(ConfigError::startup(format!(
                "The requested password check mode '{other}' is not a valid mode.  Possible \
                 values are 'PLAIN', 'MD5', or leave it unspecified."
            ))),
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
        self.get("cassandra.replace_token").filter(|token| !token.is_empty())
    }

    /// `cassandra.accept_data_loss`: whether a node starts without data that it should have.
    pub fn accept_data_loss(&self) -> bool {
        self.is_true("cassandra.accept_data_loss")
    }

    /// The names that mean nothing here. Those of the JVM itself are left out: every old start
    /// script has some.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        const OF_THE_JVM: [&str; 5] = ["java.", "sun.", "com.sun.", "log4j.", "user."];
        let names = self.values.keys().map(String::as_str);
        names
            .filter(|name| !KNOWN.contains(name))
            .filter(|name| !OF_THE_JVM.iter().any(|prefix| name.starts_with(prefix)))
    }

    /// `storage-config`: the directory that holds `storage-conf.xml`.
    pub fn config_directory(&self) -> Option<PathBuf> {
        self.path("storage-config")
    }

    /// `cassandra-pidfile`: the file to remove at exit.
    pub fn pid_file(&self) -> Option<PathBuf> {
        self.path("cassandra-pidfile")
    }

    /// `bootstrap`: whether the node joins the ring as with `AutoBootstrap`. `-b` of 0.4 sets it.
    pub fn bootstrap(&self) -> bool {
        self.is_true("bootstrap")
    }

    /// `cassandra.dynamic_snitch`: whether snitches are wrapped in the one that looks at latency.
    pub fn dynamic_snitch(&self) -> bool {
        self.is_true("cassandra.dynamic_snitch")
    }

    /// `hinted_handoff_throttle`: the pause between hinted rows delivered, in milliseconds.
    pub fn hinted_handoff_throttle(&self) -> Result<Option<Duration>, ConfigError> {
        let pause: Option<u64> =
            self.number("hinted_handoff_throttle", "a number of milliseconds", |_| true)?;
        Ok(pause.map(Duration::from_millis))
    }

    /// `compaction_preheat_key_cache`: whether keys are cached again after a compaction. Off when
    /// absent, as from 0.6.12 on.
    pub fn compaction_preheats_key_cache(&self) -> bool {
        self.is_true("compaction_preheat_key_cache")
    }

    /// `cassandra.compaction.priority`: 1 (least) to 10, the scale of Java's threads.
    pub fn compaction_priority(&self) -> Result<Option<u8>, ConfigError> {
        self.number("cassandra.compaction.priority", "a number from 1 to 10", |n| {
            (1..=10).contains(n)
        })
    }

    /// `passwd.properties`: the password file of `SimpleAuthenticator`.
    pub fn password_file(&self) -> Option<PathBuf> {
        self.path("passwd.properties")
    }

    /// `access.properties`: the access file of `SimpleAuthenticator`.
    pub fn access_file(&self) -> Option<PathBuf> {
        self.path("access.properties")
    }

    /// `passwd.mode`: how passwords stand in the password file; plain when absent.
    pub fn password_mode(&self) -> Result<PasswordMode, ConfigError> {
        self.get("passwd.mode").map_or(Ok(PasswordMode::default()), PasswordMode::parse)
    }

    /// `rackFile`: the file of the property-file snitch, by default [`DEFAULT_RACK_FILE`].
    pub fn rack_file(&self) -> PathBuf {
        self.path("rackFile").unwrap_or_else(|| PathBuf::from(DEFAULT_RACK_FILE))
    }

    /// `com.sun.management.jmxremote.port`: where operators' tools expect the admin side.
    pub fn jmx_port(&self) -> Result<Option<u16>, ConfigError> {
        self.number("com.sun.management.jmxremote.port", "a port", |_| true)
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    fn number<T: std::str::FromStr>(
        &self,
        name: &str,
        allowed: &str,
        is_allowed: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.parse().ok().filter(is_allowed) {
            Some(number) => Ok(Some(number)),
            None => Err(ConfigError::startup(format!("-D{name}={value}: {allowed} expected"))),
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
        assert!(!none.dynamic_snitch());
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
