//! Errors of a configuration, in the original's words where it has some.

use super::notes::Note;
use super::spelling;
use std::fmt;

/// All errors of a configuration, at least one, and the notes on what could be read. Displays a
/// line for each error, in the order of the file.
#[derive(Debug)]
pub struct ConfigErrors {
    /// In the order of evaluation, which is that of the original.
    pub errors: Vec<ConfigError>,
    /// In the order of lines.
    pub notes: Vec<Note>,
}

impl ConfigErrors {
    /// Class of the first error, which is the one that the original reports.
    pub fn class(&self) -> FailureClass {
        self.errors.first().map_or(FailureClass::Startup, |error| error.class)
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        self.class().exit_code()
    }

    /// The errors in the order of lines.
    pub fn by_line(&self) -> Vec<&ConfigError> {
        let mut errors: Vec<_> = self.errors.iter().collect();
        errors.sort_by_key(|error| error.line);
        errors
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.by_line().into_iter().map(ConfigError::log_line);
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for ConfigErrors {}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self { errors: vec![error], notes: Vec::new() }
    }
}

/// Why the server cannot run with a configuration, a file beside it or a system property. Displays
/// with file, line, element, value and what would be allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ConfigError {
    class: FailureClass,
    line: Option<u32>,
    text: String,
}

impl ConfigError {
    /// Something that the start of the original trips over, such as a file that cannot be read.
    pub(super) fn startup(text: String) -> Self {
        Self { class: FailureClass::Startup, line: None, text }
    }

    /// The same at a line of a file.
    pub(super) fn at(origin: &str, line: u32, fault: impl fmt::Display) -> Self {
        Self { line: Some(line), ..Self::startup(format!("{origin}:{line}: {fault}")) }
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        self.class.exit_code()
    }

    /// The line that the server logs at ERROR, beginning as in the original.
    pub fn log_line(&self) -> String {
        match self.class {
            FailureClass::Startup => format!("Exception encountered during startup. {self}"),
            _ => format!("Fatal error: {self}"),
        }
    }

    /// The line of the fault, if the file could be read at all.
    pub fn line(&self) -> Option<u32> {
        self.line
    }
}

/// End of a process that cannot run with a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// A setting that the original checks.
    BadConfiguration,
    /// A host without an address.
    UnknownHost,
    /// All that the original trips over.
    Startup,
}

impl FailureClass {
    /// The exit code of the process, as old start scripts expect it.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::BadConfiguration => 1,
            Self::UnknownHost => 2,
            Self::Startup => 3,
        }
    }

    /// The line on standard error.
    pub fn stderr_line(self) -> &'static str {
        match self {
            Self::BadConfiguration => "Bad configuration; unable to start server",
            Self::UnknownHost => {
                "Unable to start with unknown hosts configured.  Use IP addresses instead of \
                 hostnames."
            }
            Self::Startup => "Exception encountered during startup.",
        }
    }
}

/// A place in a document, for messages.
#[derive(Debug, Clone)]
pub(super) struct Place<'a> {
    pub(super) origin: &'a str,
    pub(super) line: u32,
    /// The path of the element, as `/Storage/…/ColumnFamily[@Name='x']/@KeysCached`.
    pub(super) element: String,
}

impl Place<'_> {
    pub(super) fn refuse(&self, problem: impl Into<Problem>) -> ConfigError {
        self.error(None, problem)
    }

    /// The value is as written, without surrounding blanks; `None` if there is none.
    pub(super) fn error(&self, value: Option<&str>, problem: impl Into<Problem>) -> ConfigError {
        let (problem, element) = (problem.into(), &self.element);
        let details = problem.details(value);
        let fault = format_args!("{element}: {}{details}", problem.text).to_string();
        ConfigError { class: problem.class, ..ConfigError::at(self.origin, self.line, fault) }
    }
}

/// A problem with an element or attribute.
#[derive(Debug)]
pub(super) struct Problem {
    class: FailureClass,
    text: String,
    /// The values that are allowed, if they are a set of words.
    allowed: Vec<String>,
    /// A way out, where neither the text nor the allowed words say it.
    advice: Option<&'static str>,
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self::new(FailureClass::BadConfiguration, text)
    }
}

impl From<&str> for Problem {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Problem {
    pub(super) fn new(class: FailureClass, text: String) -> Self {
        Self { class, text, allowed: Vec::new(), advice: None }
    }

    /// Something that the original does not check, but trips over.
    pub(super) fn startup(text: impl Into<String>) -> Self {
        Self::new(FailureClass::Startup, text.into())
    }

    pub(super) fn missing() -> Self {
        Self::startup("the element is required")
    }

    pub(super) fn unknown_word(element: &str) -> Self {
        format!("Unrecognized value for {element}.").into()
    }

    pub(super) fn allowing<W: ToString>(self, words: impl IntoIterator<Item = W>) -> Self {
        Self { allowed: words.into_iter().map(|word| word.to_string()).collect(), ..self }
    }

    pub(super) fn advising(self, advice: &'static str) -> Self {
        Self { advice: Some(advice), ..self }
    }

    /// The value and what is allowed instead, as the end of the message.
    fn details(&self, value: Option<&str>) -> String {
        const LONGEST_VALUE: usize = 200;
        let mut parts = Vec::new();
        if let Some(value) = value {
            let start: String = value.chars().take(LONGEST_VALUE).collect();
            parts.push(format!("value is '{}'", start.escape_debug()));
        }
        if !self.allowed.is_empty() {
            parts.push(format!("allowed: {}", self.allowed.join(", ")));
        }
        parts.extend(self.advice.map(str::to_owned));
        let words = self.allowed.iter().map(String::as_str);
        if let Some(nearest) = spelling::nearest_value(value.unwrap_or_default(), words) {
            parts.push(format!("did you mean {nearest}?"));
        }
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join("; ")) }
    }
}
