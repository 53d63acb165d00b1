//! Ctrl-C while a command is at work: it ends the work, not the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// Times that Ctrl-C is pressed during the same work until the program ends after all.
const PRESSES: u8 = 3;

/// Has Ctrl-C set a flag instead of ending the program.
pub(super) fn stop_at_interrupt(interrupted: Arc<AtomicBool>) {
    let presses = AtomicU8::new(0);
    let watch = async move {
        let Ok(mut interrupts) = signal(SignalKind::interrupt()) else { return };
        while interrupts.recv().await.is_some() {
            if !interrupted.swap(true, Ordering::Relaxed) {
                presses.store(0, Ordering::Relaxed);
            }
            if presses.fetch_add(1, Ordering::Relaxed) + 1 >= PRESSES {
                std::process::exit(130);
            }
        }
    };
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.map(|runtime| runtime.block_on(watch))
    });
}
