//! Keeps the lines that a storage tells, so that a test can look at them or wait for one.

use alexandra::base::events::Events;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

type Hook = dyn Fn(&str) + Send + Sync;

/// Lines told so far.
#[derive(Default)]
pub(crate) struct Heard {
    lines: Mutex<Vec<String>>,
    arrived: Condvar,
    hook: Mutex<Option<Arc<Hook>>>,
}

impl Heard {
    /// Events that are kept in the second.
    pub(crate) fn events() -> (Events, Arc<Self>) {
        let heard = Arc::new(Self::default());
        let receiver = Arc::clone(&heard);
        (Events::received_by(move |_, _, line| receiver.add(line)), heard)
    }

    /// Calls a function for each line, on the thread that tells it.
    pub(crate) fn call(&self, hook: Arc<Hook>) {
        *self.hook.lock().unwrap() = Some(hook);
    }

    fn add(&self, line: &str) {
        self.lines.lock().unwrap().push(line.to_owned());
        self.arrived.notify_all();
        let hook = self.hook.lock().unwrap().clone();
        if let Some(hook) = hook {
            hook(line);
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Lines since the last call of this function.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock().unwrap())
    }

    /// Waits for a line that has all of these parts.
    #[track_caller]
    pub(crate) fn wait_for(&self, timeout: Duration, parts: &[&str]) -> String {
        let find = |lines: &[String]| {
            lines.iter().find(|line| parts.iter().all(|part| line.contains(part))).cloned()
        };
        let lines = self.lines.lock().unwrap();
        let is_missing = |lines: &mut Vec<String>| find(lines).is_none();
        let (lines, _) = self.arrived.wait_timeout_while(lines, timeout, is_missing).unwrap();
        find(&lines).unwrap_or_else(|| panic!("no line has {parts:?}: {lines:#?}"))
    }
}

impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heard").finish_non_exhaustive()
    }
}
