//! The logger of the process, whose levels may change while it runs.

use super::audit;
use super::latest::Latest;
use super::lock::{Mutex, rank};
use env_filter::Filter;
use log::{LevelFilter, Log, Metadata, Record};
use std::env;
use std::str::FromStr;
use std::sync::OnceLock;

/// Lines that go to the log.
#[derive(Debug)]
struct Levels {
    /// In the form of `RUST_LOG`.
    text: String,
    filter: Filter,
}

/// A logger that passes on the lines of the present levels.
struct LevelLogger {
    output: env_logger::Logger,
    at_start: String,
    present: Latest<Levels>,
    /// Held during a change.
    changing: Mutex<rank::Last, ()>,
}

static LOGGER: OnceLock<LevelLogger> = OnceLock::new();

/// Logs through this builder with the levels of `RUST_LOG`, else with these. A second call in one
/// process does nothing.
pub fn start(mut output: env_logger::Builder, levels: &str) {
    let text = env::var("RUST_LOG").unwrap_or_else(|_| levels.to_owned());
    // As with env_logger alone, a part that makes no sense is left out.
    let filter = env_filter::Builder::new().parse(&text).build();
    log::set_max_level(filter.filter());
    let present = Latest::new(Levels { text: text.clone(), filter });
    let output = output.filter_level(log::LevelFilter::Trace).build();
    let changing = Mutex::default();
    let logger = LOGGER.get_or_init(|| LevelLogger { output, at_start: text, present, changing });
    // The logger of a test may be there already.
    let _ = log::set_logger(logger);
}

/// Sets the levels of the configuration at a start, unless `RUST_LOG` says which.
pub fn at_start(levels: Option<&str>) -> Result<(), String> {
    match (levels, env::var("RUST_LOG")) {
        (Some(_), Err(_)) => set(levels),
        _ => Ok(()),
    }
}

/// Changes the levels; `None` for those of the start. Fails with the reason if they make no sense.
pub fn set(levels: Option<&str>) -> Result<(), String> {
    let Some(logger) = LOGGER.get() else { return Ok(()) };
    let text = levels.unwrap_or(&logger.at_start).to_owned();
    let filter = parse(&text)?;
    let _one_at_a_time = logger.changing.lock();
    // By the levels until now: the next ones may leave this target out.
    let present = &logger.present.text;
    log::warn!(target: audit::TARGET, "levels of the log: {present} -> {text}");
    log::set_max_level(filter.filter());
    logger.present.set(Levels { text, filter });
    Ok(())
}

/// The present levels; empty if there is no log.
pub fn levels() -> String {
    LOGGER.get().map_or_else(String::new, |logger| logger.present.text.clone())
}

/// Reads levels such as `info` or `info,alexandra::gossip=debug`.
pub fn parse(levels: &str) -> Result<Filter, String> {
    const FORM: &str = "levels are written like `info` or `info,alexandra::gossip=debug`";
    // A word alone would name a part of the program that is logged, and no other.
    let words = levels.split(['/', ',']).map(str::trim).filter(|it| !it.is_empty());
    let mut wrong =
        words.filter(|it| !it.contains(['=', ':']) && LevelFilter::from_str(it).is_err());
    if let Some(word) = wrong.next() {
        return Err(format!("{word} is no level: {FORM}"));
    }
    let parsed = env_filter::Builder::new().try_parse(levels).map(env_filter::Builder::build);
    parsed.map_err(|error| format!("{error}: {FORM}"))
}

impl Log for LevelLogger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.present.filter.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if self.present.filter.matches(record) {
            self.output.log(record);
        }
    }

    fn flush(&self) {
        self.output.flush();
    }
}
