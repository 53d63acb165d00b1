//! The ring: partitioners and tokens, ranges of them, who owns them and where replicas go.
//!
//! Pure data and functions. A [`Partitioner`] maps a row key to its [`Token`]; rows sort as
//! [`DecoratedKey`]s everywhere.

mod collation;
mod collation_table;
mod decorated_key;
mod midpoint;
mod partitioner;
mod token;

pub use decorated_key::DecoratedKey;
pub use partitioner::{Partitioner, TokenError};
pub use token::{CollationKey, OrderedString, Token};
