//! Messages in their frames, which are being written.

use super::queue::Queued;
use crate::net::frame::put_frame;
use std::io;
use tokio::net::TcpStream;

/// About how many bytes are written at a time.
pub(super) const BATCH_BYTES: usize = 256 << 10;

/// A buffer larger than this is given back when it has been written.
const KEPT_BYTES: usize = 4 * BATCH_BYTES;

/// Messages in their frames, and how far they are written. There is one for a queue: whoever has
/// it is the only one who writes.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// The messages, each with the place where its frame ends.
    messages: Vec<(Queued, usize)>,
    written: usize,
}

impl Batch {
    /// Whether there is nothing left to write or to count.
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether the system has all of it.
    pub(super) fn is_written(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// Takes further messages, when all before are written.
    pub(super) fn fill(&mut self, messages: Vec<Queued>, checksums: bool) {
        self.clear();
        for queued in messages {
            // What no frame can hold was not queued.
            if put_frame(&mut self.bytes, &queued.message, checksums).is_ok() {
                self.messages.push((queued, self.bytes.len()));
            }
        }
    }

    /// Number of messages and bytes of a batch that is written. It is empty then.
    pub(super) fn finish(&mut self) -> (usize, usize) {
        let counts = (self.messages.len(), self.bytes.len());
        self.clear();
        counts
    }

    /// The messages that were not written, or not to their end. The batch is empty then.
    pub(super) fn unsent(&mut self) -> std::vec::IntoIter<Queued> {
        let written = self.written;
        let unsent = self.messages.drain(..).filter(|(_, end)| *end > written);
        let unsent: Vec<Queued> = unsent.map(|(queued, _)| queued).collect();
        self.clear();
        unsent.into_iter()
    }

    /// As if so many bytes had been written.
    #[cfg(test)]
    pub(super) fn note_written(&mut self, bytes: usize) {
        self.written += bytes;
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.written = 0;
    }

    /// Writes what the system takes at once. False if that was not all.
    pub(super) fn try_write(&mut self, stream: &TcpStream) -> io::Result<bool> {
        while !self.is_written() {
            match stream.try_write(&self.bytes[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Writes all of it.
    pub(super) async fn write(&mut self, stream: &TcpStream) -> io::Result<()> {
        while !self.try_write(stream)? {
            stream.writable().await?;
        }
        Ok(())
    }
}
