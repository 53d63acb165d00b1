//! Errors of a configuration, in the original's words where it has some, and notes on one that can
//! be used.

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
        if let Some(nearest) = nearest_value(value.unwrap_or_default(), words) {
            parts.push(format!("did you mean {nearest}?"));
        }
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join("; ")) }
    }
}

/// The most notes that are kept of one file.
pub const MAX_NOTES: usize = 200;

/// A remark on one line of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("line {line}: {level}: {text}")]
pub struct Note {
    /// Its weight.
    pub level: NoteLevel,
    /// The line it is about.
    pub line: u32,
    /// The remark.
    pub text: String,
}

/// Weight of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
pub enum NoteLevel {
    /// The setting is understood and has no effect here.
    #[display("info")]
    Info,
    /// The operator probably meant something else.
    #[display("warning")]
    Warning,
}

/// Notes in the making: bounded, at last in the order of lines.
#[derive(Debug, Default)]
pub(super) struct Notes(Vec<Note>);

impl Notes {
    pub(super) fn warn(&mut self, line: u32, text: String) {
        self.add(NoteLevel::Warning, line, text);
    }

    pub(super) fn info(&mut self, line: u32, text: String) {
        self.add(NoteLevel::Info, line, text);
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() > MAX_NOTES
    }

    fn add(&mut self, level: NoteLevel, line: u32, text: String) {
        if self.0.len() < MAX_NOTES {
            self.0.push(Note { level, line, text });
        } else if self.0.len() == MAX_NOTES {
            let text = "further notes on this file are left out".to_owned();
            self.0.push(Note { level: NoteLevel::Warning, line, text });
        }
    }

    pub(super) fn into_sorted(mut self) -> Vec<Note> {
        self.0.sort_by_key(|note| note.line);
        self.0
    }
}

/// The most bytes of a name that is compared with others.
const LONGEST_NAME: usize = 64;

/// The candidate that is most like a written name, if any is like it.
pub(super) fn nearest<'c>(
    written: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    if written.len() > LONGEST_NAME {
        return None;
    }
    let measured = candidates.into_iter().map(|name| (edit_distance(written, name), name));
    let (distance, candidate) = measured.min_by_key(|(distance, _)| *distance)?;
    let letters = candidate.trim_start_matches('@').len();
    (distance <= (letters / 4).max(2)).then_some(candidate)
}

/// The value that is most like a written one. Packages of classes and what stands in parentheses
/// do not count. Values of less than four letters are all alike, and one with a blank is a
/// description of several.
fn nearest_value<'c>(
    written: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    const LEAST_LETTERS: usize = 4;
    let candidates: Vec<&str> =
        candidates.into_iter().filter(|value| !value.contains(' ')).collect();
    let cores = candidates.iter().map(|value| core(value));
    let found = nearest(core(written), cores.filter(|core| core.len() >= LEAST_LETTERS))?;
    candidates.into_iter().find(|value| core(value) == found)
}

/// The name of a class without its package and its parameters.
fn core(value: &str) -> &str {
    let class = value.split('(').next().unwrap_or(value).trim_end();
    class.rsplit('.').next().unwrap_or(class)
}

/// Number of letters to insert, remove or replace; their case does not count.
fn edit_distance(a: &str, b: &str) -> usize {
    strsim::levenshtein(&a.to_ascii_lowercase(), &b.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_value_gets_the_nearest() {
        let classes = ["org.x.RackAwareStrategy", "org.x.RackUnawareStrategy", "ReversedType(T)"];
        for (written, meant) in [
            ("RackAwareStrategy", Some(classes[0])),
            ("org.y.RackUnawareStrateg", Some(classes[1])),
            ("RevesedType(LongType)", Some(classes[2])),
            ("SimpleStrategy", None),
            ("", None),
        ] {
            assert_eq!(nearest_value(written, classes), meant, "{written}");
        }
        assert_eq!(nearest_value("0.7", ["0.4", "0.5", "0.6"]), None);
        assert_eq!(nearest_value("10.1.0.0/33", ["an address such as 10.1.0.0/16"]), None);
        assert_eq!(nearest_value("preiodic", ["periodic", "batch"]), Some("periodic"));
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
    }
}
