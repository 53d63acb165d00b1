//! The records that all engines get: the same bytes in the same order.

/// Bytes of a value. Half of them compress, as in the bench of LevelDB.
pub(crate) const VALUE_BYTES: usize = 100;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 20;

/// Content of a record as a client gave it.
pub(crate) const RECORD_BYTES: usize = KEY_BYTES + VALUE_BYTES;

/// Columns of a row in the lines about rows.
pub(crate) const ROW_COLUMNS: usize = 5;

/// Values are cut from so many random bytes: too many for a block to see one twice.
const POOL_BYTES: usize = 1 << 20;

/// Makes keys and values by number.
#[derive(Debug)]
pub(crate) struct Records {
    pool: Vec<u8>,
    /// All numbers, in the order of random writes.
    shuffled: Vec<u32>,
}

pub(crate) type Key = [u8; KEY_BYTES];

impl Records {
    pub(crate) fn new(count: u32) -> Self {
        let mut rng = fastrand::Rng::with_seed(1);
        let pool = std::iter::repeat_with(|| rng.u8(..)).take(POOL_BYTES).collect();
        let mut shuffled: Vec<_> = (0..count).collect();
        rng.shuffle(&mut shuffled);
        Self { pool, shuffled }
    }

    pub(crate) fn count(&self) -> u32 {
        self.shuffled.len() as u32
    }

    /// All numbers in the order of random writes.
    pub(crate) fn shuffled(&self) -> &[u32] {
        &self.shuffled
    }

    /// The value of a record: random bytes, then the same again.
    pub(crate) fn value(&self, number: u32) -> [u8; VALUE_BYTES] {
        const HALF: usize = VALUE_BYTES / 2;
        let at = number as usize * HALF % (POOL_BYTES - HALF);
        let half = &self.pool[at..at + HALF];
        let mut value = [0; VALUE_BYTES];
        value[..HALF].copy_from_slice(half);
        value[HALF..].copy_from_slice(half);
        value
    }
}

/// The key of a record.
pub(crate) fn key(number: u32) -> Key {
    decimal_key(2 * u64::from(number))
}

/// A key between those of two records, which nobody wrote.
pub(crate) fn absent_key(number: u32) -> Key {
    decimal_key(2 * u64::from(number) + 1)
}

fn decimal_key(mut number: u64) -> Key {
    let mut key = *b"user0000000000000000";
    for digit in key.iter_mut().rev() {
        if number == 0 {
            break;
        }
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    key
}
